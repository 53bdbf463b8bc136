"""What can go wrong, as codes that travel through compiled code and as exceptions that speak."""

import enum

__all__ = ["Code", "IndefiniteHessianError", "InputError", "MixviError", "NoModeError"]
__all__ += ["NonFiniteError", "NotConvergedWarning"]


class MixviError(Exception):
    """The base of everything that mixvi raises.

    >>> import mixvi
    >>> try:
    ...     mixvi.fit(lambda w: -w**2, 0.0, family="fulll")
    ... except mixvi.MixviError as error:
    ...     print(type(error).__name__)
    InputError
    """


class InputError(MixviError, ValueError):
    """An argument is not what it must be; the sentence names it and the remedy.

    >>> import mixvi
    >>> try:
    ...     mixvi.fit(lambda w: -w**2, 0.0, draws=1)
    ... except mixvi.InputError as error:
    ...     print(error)
    the number of draws must be at least 2, got 1.
    """


class NonFiniteError(MixviError, ValueError):
    """The log density or its gradient is not finite where it has to be.

    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> try:
    ...     mixvi.fit(lambda w: jnp.log(w), -1.0)
    ... except mixvi.NonFiniteError as error:
    ...     print(str(error).split(":")[0])
    the log density is nan at the start (w=-1)
    """


class IndefiniteHessianError(MixviError, ValueError):
    """The log density does not curve downwards in every direction at the point found.

    >>> import mixvi
    >>> try:
    ...     mixvi.laplace(lambda w: -(w["a"] ** 2), {"a": 1.0, "b": 0.0})
    ... except mixvi.IndefiniteHessianError as error:
    ...     print(str(error).split(" at the point")[0])
    the log density does not change along a direction (nothing in the density fixes it)
    """


class NoModeError(MixviError, ValueError):
    """The search for a mode ran off or got stuck: there is no Gaussian to begin with.

    >>> import mixvi
    >>> try:
    ...     mixvi.laplace(lambda w: w, 0.0)
    ... except mixvi.NoModeError as error:
    ...     print(str(error).split(":")[0])
    the search for a mode was still going after 300 steps
    """


class NotConvergedWarning(UserWarning):
    """The adaptation stopped before its own test was met; the result says so too.

    >>> import warnings
    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     post = mixvi.fit(lambda w: 3 * w - jnp.exp(w), 0.0, family="full", max_steps=1)
    >>> caught[0].category.__name__, post.converged
    ('NotConvergedWarning', False)
    """


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
