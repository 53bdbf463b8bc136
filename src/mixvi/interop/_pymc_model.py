"""A PyMC model as it is: free variables in an order, readable names, labels, data; what is refused.

PyMC itself is imported where it is needed, by functions.
"""

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._density._structure import listed
from .._errors import InputError

# PyMC's transforms by the names that mixvi gives to such parameters.
READABLE = {"log": "log", "logodds": "logit"}


def model_of(given: Any) -> Any:
    """A PyMC model, a Bambi one (built where it is not yet), or the one of the `with` block."""
    pymc = imported()
    if given is None:
        try:
            return pymc.modelcontext(None)
        except TypeError as err:
            raise InputError("give a model, fit(model), or call fit inside `with model:`.") from err
    if isinstance(given, pymc.Model):
        return given
    if type(given).__module__.split(".")[0] == "bambi" and hasattr(given, "build"):
        if not given.built:
            given.build()
        return given.backend.model
    raise InputError(
        f"model must be a pymc.Model or a bambi.Model, not {type(given).__name__}. (What a `with "
        "pm.Model() as model:` block makes, not a function that makes one.)"
    )


def imported() -> Any:
    try:
        import pymc
    except ImportError as err:
        raise ImportError("mixvi.interop.pymc needs PyMC: pip install 'mixvi[pymc]'") from err
    return pymc


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """What is read of a model at the time of a fit."""

    model: Any

    @functools.cached_property
    def free(self) -> list[Any]:
        """Free variables by their names in order, which is the order that JAX gives to a dict: the
        same model in other clothes has the same parameters in the same places."""
        return sorted(self.model.free_RVs, key=lambda rv: rv.name)

    @functools.cached_property
    def values(self) -> list[Any]:
        """The unbounded variables that stand for them in the log density."""
        return [self.model.rvs_to_values[rv] for rv in self.free]

    @functools.cached_property
    def names(self) -> list[str]:
        """`mu`, `log tau`; PyMC's `mu`, `tau_log__`."""
        names = []
        for rv in self.free:
            transform = self.model.rvs_to_transforms[rv]
            kind = None if transform is None else READABLE.get(transform.name, transform.name)
            names.append(f"{kind} {rv.name}" if kind else rv.name)
        return names

    def start(self, given: Mapping[str, Any] | None) -> "OrderedDict[str, np.ndarray]":
        """PyMC's own start, with the values given, under the readable names."""
        from pymc.initial_point import make_initial_point_fn

        if given is None:
            point = self.model.initial_point(random_seed=0)
        else:
            self._refuse_unknown(given)
            overrides: Any = dict(given)
            point = make_initial_point_fn(model=self.model, overrides=overrides)(0)
        pairs = zip(self.names, self.values, strict=True)
        return OrderedDict((name, np.array(point[value.name], np.float64)) for name, value in pairs)

    def _refuse_unknown(self, given: Mapping[str, Any]) -> None:
        known = [rv.name for rv in self.free]
        for name in given:
            if name not in known:
                raise InputError(
                    f"start: there is no free variable {name!r}. There are {listed(known, 10)}."
                )

    def refuse(self) -> None:
        """What no Gaussian can approximate."""
        if not self.free:
            raise InputError("the model has no free variables: there is nothing to approximate.")
        discrete = [rv.name for rv in self.free if np.dtype(rv.dtype).kind in "biu"]
        if discrete:
            raise InputError(
                f"the model has discrete free variables: {listed(discrete)}. A Gaussian "
                "approximates continuous ones: sum them out, by hand (pm.Mixture and its kin) or "
                f"with pymc_extras.marginalize(model, {discrete})."
            )

    def refuse_random(self, log_density: Any) -> None:
        """A log density that draws random numbers: a minibatch, a simulator."""
        from pytensor.graph.traversal import ancestors
        from pytensor.tensor.random.type import RandomType

        if any(isinstance(one.type, RandomType) for one in ancestors([log_density])):
            observed = [rv.name for rv in self.model.observed_RVs]
            raise InputError(
                f"the log density draws random numbers, so that it has no one value (is one of "
                f"{listed(observed)} a pm.Minibatch or a simulator?): give all rows in the place "
                "of a minibatch."
            )

    # --- what comes back ----------------------------------------------------------------------

    @functools.cached_property
    def shown(self) -> dict[str, Any]:
        """Graphs of all that the model names, on its own scales, from the unbounded variables."""
        model = self.model
        bound = [rv for rv in model.free_RVs if model.rvs_to_transforms[rv] is not None]
        made = dict(zip(bound, model.replace_rvs_by_values(bound), strict=True)) if bound else {}
        graphs = {rv.name: made.get(rv, model.rvs_to_values[rv]) for rv in model.free_RVs}
        if model.deterministics:
            of_them = model.replace_rvs_by_values(model.deterministics)
            names = [one.name for one in model.deterministics]
            graphs |= dict(zip(names, of_them, strict=True))
        return graphs

    @functools.cached_property
    def log_likelihood(self) -> dict[str, Any]:
        """Graphs of the log likelihood of every observation."""
        observed = self.model.observed_RVs
        if not observed:
            return {}
        names = [rv.name for rv in observed]
        return dict(zip(names, self.model.logp(vars=observed, sum=False), strict=True))

    @functools.cached_property
    def dims(self) -> dict[str, tuple[Any, ...]]:
        return {name: tuple(dims) for name, dims in self.model.named_vars_to_dims.items()}

    @functools.cached_property
    def coords(self) -> dict[str, np.ndarray]:
        its = self.model.coords.items()
        return {name: np.array(labels) for name, labels in its if labels is not None}

    @property
    def observed_data(self) -> dict[str, np.ndarray]:
        from pymc.backends.arviz import find_observations

        return {name: np.asarray(one) for name, one in find_observations(self.model).items()}

    @property
    def constant_data(self) -> dict[str, np.ndarray]:
        from pymc.backends.arviz import find_constants

        return {name: np.asarray(one) for name, one in find_constants(self.model).items()}
