"""What can go wrong, as codes that travel through compiled code and as exceptions that speak."""

import enum

__all__ = ["Code", "IndefiniteHessianError", "InputError", "MixviError", "NoModeError"]
__all__ += ["NonFiniteError", "NotConvergedWarning"]


class MixviError(Exception):
    """The base of everything that mixvi raises."""


class InputError(MixviError, ValueError):
    """An argument is not what it must be; the sentence names it and the remedy."""


class NonFiniteError(MixviError, ValueError):
    """The log density or its gradient is not finite where it has to be."""


class IndefiniteHessianError(MixviError, ValueError):
    """The log density does not curve downwards in every direction at the point found."""


class NoModeError(MixviError, ValueError):
    """The search for a mode ran off or got stuck: there is no Gaussian to begin with."""


class NotConvergedWarning(UserWarning):
    """The adaptation stopped before its own test was met; the result says so too."""


class Code(enum.IntEnum):
    """How a computation ended. Integers, so that a batch of fits can carry one each."""

    OK = 0
    # the mode search
    NON_FINITE_START = 1
    RAN_OUT_OF_STEPS = 2
    STUCK = 3
    # the curvature at the mode
    INDEFINITE = 4
    # the search over the bound
    NON_FINITE_DRAWS = 5
    BOUND_OUT_OF_STEPS = 6
    BOUND_STUCK = 7
    RAN_OFF = 8
    INTERRUPTED = 9
