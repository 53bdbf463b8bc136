"""Options as the first engine wants them."""

import dataclasses
from typing import Any

from .._errors import InputError
from .._fit._options import Options
from . import _families

TOL = 1e-5


@dataclasses.dataclass(frozen=True)
class FirstOptions(Options):
    """What this engine's programs want to know besides."""

    # Where many problems run at once, rescue operations wait for a second try.
    hasty: bool = False

    @property
    def mode_search(self) -> dict[str, Any]:
        names = ("on_indefinite", "memory", "hyper_steps")
        return {name: getattr(self, name) for name in names} | {"tune": self.hyper_steps > 0}

    @property
    def other_modes(self) -> dict[str, Any]:
        """Of further mode searches: nothing is repaired and hyperparameters stay."""
        return self.mode_search | {"on_indefinite": "raise", "tune": False}

    @property
    def bound_search(self) -> dict[str, Any]:
        names = ("optimiser", "tol", "max_steps", "memory")
        return {name: getattr(self, name) for name in names}


def of_first_engine(options: Options) -> FirstOptions:
    """The same options with this engine's own families and tolerance."""
    family: Any = options.richest
    if family is not None:
        twin = getattr(_families, type(family).__name__, None)
        if twin is None:
            raise InputError(
                f"a family of your own ({type(family).__name__}) can be fitted by fit without "
                "hyper= alone, for now."
            )
        family = twin(**{f.name: getattr(family, f.name) for f in dataclasses.fields(family)})
    tol = TOL if options.tol is None else options.tol
    asked = {one.name: getattr(options, one.name) for one in dataclasses.fields(Options)}
    return FirstOptions(**asked | {"richest": family, "tol": tol})
