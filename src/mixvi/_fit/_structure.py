"""Which structure the root of a covariance has: dense below some thousand parameters, otherwise
what the density knows of itself."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .._density._linear_predictor import LinearPredictor
from .._density._protocol import Density
from .._density._target import Target
from .._errors import InputError
from ._events import Structured
from ._options import DENSE, DIAGONAL, LOW_RANK, SPARSE, Options

# Up to so many parameters a dense root is quick and knows most; above so many there is none.
MOST_DENSE, MOST_DENSE_AT_ALL = 2000, 20_000
# Of other log densities, whose curvature is then known by a few directions alone.
MOST_DENSE_OTHERS = 5000
# Up to so many rows, and so many times fewer than parameters, an n x n problem is quick.
FEW_ROWS, FEWER = 3000, 2
FAMILIES = ("laplace", "mu", "full")
# Of log densities that are no linear predictors.
OTHERS = {LOW_RANK: ("laplace", "mu", "eig"), DIAGONAL: ("laplace", "mu", "diag")}


@dataclasses.dataclass(frozen=True)
class Choice:
    """`name`: of the structure; `event`: what the status says of it. `by_rows`: of linear
    predictors, otherwise from products with the Hessian."""

    name: str
    event: Structured | None = None
    by_rows: bool = True


def chosen(log_density: Any, target: Target, options: Options, constraints: Any) -> Choice:
    asked, dim = options.structure, target.structure.size
    model = log_density if isinstance(log_density, LinearPredictor) else None
    if asked == DENSE:
        if model is not None and _gives_sparse_prior(model, target):
            raise InputError(
                'structure="dense": this prior_precision is a function that makes a sparse matrix; '
                "let it make a vector, or leave structure= out."
            )
        return Choice(DENSE)
    name, why = (asked, "asked for") if asked != "auto" else _best(model, target, options)
    if name == DENSE:
        return Choice(DENSE)
    refused = _refused(name, model, target, options, constraints)
    if refused is None:
        return Choice(name, Structured(name, dim, why), model is not None)
    if asked == "auto" and dim <= MOST_DENSE_AT_ALL and not _must(model, target):
        return Choice(DENSE)
    if asked == "auto":
        refused += f" ({dim} parameters are too many for a dense root.)"
    raise InputError(f'structure="{name}": {refused}')


def _best(model: LinearPredictor | None, target: Target, options: Options) -> tuple[str, str]:
    """And why."""
    dim = target.structure.size
    if model is None:
        return (LOW_RANK, f"{dim} parameters") if dim > MOST_DENSE_OTHERS else (DENSE, "")
    if callable(model.design) and not model.is_sparse:
        return DENSE, ""
    n = getattr(model.design, "shape", (0,))[0]
    too_large = 16 * n * dim > options.memory and model.is_sparse
    if dim <= MOST_DENSE and not too_large and not _gives_sparse_prior(model, target):
        return DENSE, ""
    few = n <= FEW_ROWS and FEWER * n <= dim
    if few and not _gives_sparse_prior(model, target) and not hasattr(_prior(model), "tocsc"):
        return LOW_RANK, f"{n} rows and {dim} parameters"
    if model.is_sparse or _gives_sparse_prior(model, target):
        return SPARSE, "a sparse design or prior precision"
    return (DIAGONAL, f"{n} dense rows") if dim > MOST_DENSE_AT_ALL else (DENSE, "")


def _prior(model: LinearPredictor) -> Any:
    return model.prior_precision


def _gives_sparse_prior(model: LinearPredictor, target: Target) -> bool:
    """A function of hyperparameters or data may make one, which is seen when it is called."""
    if not callable(model.prior_precision) or hasattr(model.prior_precision, "tocsc"):
        return False
    try:
        return hasattr(model.prior_precision(*target.extra), "tocsc")
    except Exception:  # what is wrong with it is said where it is needed
        return False


def _must(model: LinearPredictor | None, target: Target) -> bool:
    return model is not None and _gives_sparse_prior(model, target)


def _refused(
    name: str, model: LinearPredictor | None, target: Target, options: Options, constraints: Any
) -> str | None:
    """What stands against it, with a remedy."""
    if constraints is not None:
        return "constraints= go with dense roots alone: write the parameters on unbounded scales."
    if options.dtype != np.float64:
        return 'dtype="float32" goes with dense roots alone.'
    if options.on_indefinite != "raise":
        return "on_indefinite= repairs dense Hessians alone: give every parameter a proper prior."
    if options.n_restarts:
        return "n_restarts= goes with dense roots alone: give other starts as init."
    if options.anchor == "average":
        return 'anchor="average" goes with dense roots alone.'
    if options.minibatch is not None:
        return "minibatch= goes with dense roots alone: leave it out."
    if model is None:
        return _refused_others(name, target, options)
    if target.n_predictors != 1 or len(target.structure.shapes[0]) != 1:
        return "it is for one predictor per observation: init must be one vector."
    family = _family_of(options)
    families = (*FAMILIES[:2], "diag") if name == DIAGONAL else FAMILIES
    if family not in ("auto", *families):
        known = ", ".join(f'"{one}"' for one in ("auto", *families))
        return f'family="{family}" needs a dense root; with this structure there are {known}.'
    if options.draws is not None and options.draws.kind != "quadrature":
        return "expectations are by quadrature: leave draws= out, or give mixvi.Quadrature(n)."
    if options.optimiser not in ("auto", "stein"):
        return f'optimiser="{options.optimiser}" goes with dense roots alone: leave it out.'
    return None


def _family_of(options: Options) -> str:
    is_auto = options.is_auto and options.mixture is None
    return "auto" if is_auto else options.family_name


def _refused_others(name: str, target: Target, options: Options) -> str | None:
    if name == SPARSE:
        return (
            "it needs a mixvi.LinearPredictor(design, log_likelihood, prior_precision): of any "
            'other log density no pattern is known. "low_rank" and "diagonal" go with all of them.'
        )
    if target.hyper_structure is not None:
        return (
            "hyper= needs a mixvi.LinearPredictor, or a dense root; hyperparameters may also be "
            "parameters like the others, with a prior."
        )
    family, families = _family_of(options), OTHERS[name]
    if family not in ("auto", *families):
        known = ", ".join(f'"{one}"' for one in ("auto", *families))
        return f'family="{family}" needs a dense root; with this structure there are {known}.'
    draws = options.draws
    if draws is not None and (draws.kind != "matched" or draws.n % 2 or draws.n < 8):
        return "draws come in pairs: leave draws= out, or give an even number of at least 8."
    if options.optimiser not in ("auto", "bfgs", "lbfgs"):
        return f'optimiser="{options.optimiser}" goes with dense roots alone: leave it out.'
    return None


def densified(log_density: Callable | Density) -> Any:
    """With dense arrays in the place of sparse ones."""
    if not isinstance(log_density, LinearPredictor) or not log_density.is_sparse:
        return log_density
    made = {
        name: one.toarray()
        for name in ("design", "prior_precision")
        if hasattr(one := getattr(log_density, name), "toarray")
    }
    return dataclasses.replace(log_density, **made)
