"""What is approximated, as a few batched questions. Nothing else in the house knows more of it."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._arrays._draws import Nodes
from .._arrays._roots import Root as Matrix
from .._arrays._roots import colour, outer

# The step of central differences that balances truncation and rounding.
STEP = float(np.finfo(np.float64).eps) ** (1 / 3)


class Points(NamedTuple):
    """Draws that stand for a standard normal, all of the same weight. `paired`: the second half is
    minus the first."""

    z: Float[np.ndarray, "n dim"]
    paired: bool


Rule = Points | Nodes
NOTHING = np.zeros(0)


class Expectation(NamedTuple):
    """Over `w = mean + root z`, with `g` the gradient of the log density at `w`: `E log p~(w)`,
    `E g`, `E g z^T` (of a diagonal root the diagonal of that alone), and the expected gradient in
    the hyperparameters (empty where there are none).

    >>> import numpy as np
    >>> import mixvi
    >>> found = mixvi.Expectation(-1.0, np.zeros(2), -np.eye(2))
    >>> found.value, found.cross.shape
    (-1.0, (2, 2))
    """

    value: float
    gradient: Float[np.ndarray, " dim"]
    cross: Matrix
    hyper: Float[np.ndarray, " hyper"] = NOTHING


class EvidenceSlopes(NamedTuple):
    """What the gradient of Laplace's evidence is made of, at a mode with the root `R` of its
    covariance: `direct = dl/dtheta`, `mixed = d2l/dw dtheta`, and the derivatives `in_w` and
    `in_theta` of `(1/2) sum_i d2l[r_i, r_i]` with the columns `r_i` of `R` held still."""

    direct: Float[np.ndarray, " hyper"]
    mixed: Float[np.ndarray, "dim hyper"]
    in_w: Float[np.ndarray, " dim"]
    in_theta: Float[np.ndarray, " hyper"]


class OwnEvidence(NamedTuple):
    """Laplace's log evidence with its gradient in the hyperparameters. `fall`: how far the log
    density falls two standard deviations from the mode, where that is flattest. `near`: what the
    next search for a mode may begin from; `mode`: makes the mode itself."""

    value: float
    gradient: Float[np.ndarray, " hyper"]
    fall: float
    near: Any
    mode: Callable[[], Float[np.ndarray, " dim"]]


class BestGaussian(NamedTuple):
    """The one with the highest bound over some rule. `evaluated_at`: the mean and root whose bound
    and gradient these are, from where `gain_left` nats were left; one step lies between."""

    mean: Float[np.ndarray, " dim"]
    root: Float[np.ndarray, "dim dim"]
    evaluated_at: tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]
    elbo: float
    gradient: Float[np.ndarray, " dim"]
    gain_left: float
    n_passes: int


class Density(abc.ABC):
    """An unnormalised log density over flat vectors of `dim` real numbers.

    `fit` and `laplace` make one of a function. To approximate something else, a simulator behind a
    socket or a sum over files, write a class with `dim` and `gradients`, and pass an instance in
    the place of `log_density`. The other questions have answers made of gradients; override them
    where better ones are known.

    >>> import numpy as np
    >>> import mixvi
    >>> class Pair(mixvi.Density):
    ...     dim = 2
    ...
    ...     def gradients(self, points):  # of -(x - 3)^2 / 2 - 2 (y - x)^2
    ...         x, y = points.T
    ...         values = -0.5 * (x - 3) ** 2 - 2 * (y - x) ** 2
    ...         return values, np.stack([3 - x + 4 * (y - x), -4 * (y - x)], 1)
    >>> post = mixvi.laplace(Pair(), np.zeros(2))
    >>> post.mean.round(4).tolist(), post.std.round(4).tolist()
    ([3.0, 3.0], [1.0, 1.118])
    """

    dim: int
    # Relative rounding of values and gradients; tolerances are read from it.
    resolution: float = float(np.finfo(np.float64).eps)
    # The same of expectations over draws, where it is another.
    resolution_over_draws: float | None = None
    # Hyperparameters that can be learnt: `at` binds others.
    n_hyper: int = 0
    # Linear predictors per observation, over which `expect` integrates by quadrature; 0 for none.
    n_predictors: int = 0
    # Rows of a table, where that is what it is made of and plain NumPy answers.
    n_rows: int = 0
    # Whether it is a sum over pieces of data, computed on all cores.
    in_pieces: bool = False
    # Whether it is known to be log-concave: then it has one mode, and no other is looked for.
    log_concave: bool = False
    # Whether its gradients need no look before anything is built on them.
    is_checked: bool = False
    # How near to a mode a search ends, in posterior standard deviations.
    mode_tol: float = 1e-7
    # Up to so many dimensions a Hessian is worth its time on the way to a mode.
    dense_newton: int = 300
    # Whether it answers `own_evidence`.
    has_own_evidence: bool = False
    # Whether it answers `best_gaussian`.
    has_best_gaussian: bool = False
    # Points that `values` answers in about the time of one.
    values_at_once: int = 1

    @property
    def called(self) -> str:
        """What errors call it."""
        return type(self).__name__

    def prepare(self) -> None:  # noqa: B027
        """Begins, in the background, what takes long before the first answer. `fit` asks once."""

    @abc.abstractmethod
    def gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
        """Log densities and their gradients at many points."""

    def joint_gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"], Float[np.ndarray, " hyper"]]:
        """Log densities, their gradients, and the mean over the points of the gradient in the
        hyperparameters."""
        return *self.gradients(points), NOTHING

    def __call__(self, point: Float[np.ndarray, " dim"]) -> float:
        """The log density at one point."""
        return float(self.values(np.asarray(point, dtype=np.float64)[None])[0])

    def values(self, points: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Log densities at many points."""
        return self.gradients(points)[0]

    def expect(self, mean: Float[np.ndarray, " dim"], root: Matrix, rule: Rule) -> Expectation:
        """Expectations over `w = mean + root z`; a vector stands for a diagonal root."""
        if isinstance(rule, Nodes):
            raise NotImplementedError("quadrature needs a linear predictor")
        values, gradients, slope = self.joint_gradients(coloured(mean, root, rule.z))
        return averaged(values, gradients, root, rule)._replace(hyper=slope)

    def expects_over_draws(self, root: Matrix) -> bool:
        """Whether expectations over draws have a way of their own, cheaper than by gradients."""
        del root
        return type(self).expect is not Density.expect and self.n_predictors == 0

    def expected_by_row(
        self, mean: Float[np.ndarray, " dim"], root: Matrix, rule: Nodes
    ) -> Float[np.ndarray, " rows"]:
        """Where there are linear predictors: the expected log likelihood of every row."""
        raise NotImplementedError("rows are known of linear predictors alone")

    def curvature(
        self, point: Float[np.ndarray, " dim"]
    ) -> tuple[float, Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
        """Log density, gradient and Hessian at one point; the Hessian by central differences."""
        steps = STEP * np.maximum(1.0, np.abs(point))
        shifts = np.diag(steps)
        values, gradients = self.gradients(
            np.concatenate([point[None], point + shifts, point - shifts])
        )
        ahead, behind = gradients[1 : self.dim + 1], gradients[self.dim + 1 :]
        hessian = (ahead - behind) / (2 * steps[:, None])
        return float(values[0]), gradients[0], 0.5 * (hessian + hessian.T)

    def approached(self, point: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " dim"]:
        """A point nearer to a mode, by steps that cannot go astray, where such are known: Newton's
        method begins there."""
        return point

    def at(self, theta: Float[np.ndarray, " hyper"]) -> "Density":
        """The same density with other hyperparameters."""
        raise NotImplementedError("this density has no hyperparameters")

    def evidence_slopes(
        self, mode: Float[np.ndarray, " dim"], root: Float[np.ndarray, "dim dim"]
    ) -> EvidenceSlopes:
        raise NotImplementedError("this density has no hyperparameters")

    def own_evidence(self, near: Any, tol: float) -> OwnEvidence | None:
        """Laplace's evidence by a way of its own, cheaper than by the Hessian of the parameters;
        None where no mode is found. `near`: of an earlier answer, or None."""
        raise NotImplementedError("this density has no evidence of its own")

    def best_gaussian(
        self, mean: Float[np.ndarray, " dim"], root: Matrix, rule: Nodes, gain: float
    ) -> BestGaussian | None:
        """The Gaussian with the highest bound, to `gain` nats, by a way of its own from
        `N(mean, root root^T)`; None where that leads nowhere."""
        raise NotImplementedError("this density has no way of its own to the best Gaussian")

    def product(
        self, point: Float[np.ndarray, " dim"], vector: Float[np.ndarray, " dim"]
    ) -> tuple[float, Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
        """Log density, gradient and the Hessian times `vector` at one point."""
        furthest = np.abs(vector / np.maximum(1.0, np.abs(point))).max(initial=0.0)
        if furthest == 0 or not np.isfinite(furthest):
            values, gradients = self.gradients(point[None])
            return float(values[0]), gradients[0], 0 * vector
        h = STEP / furthest
        shifted = np.stack([point, point + h * vector, point - h * vector])
        values, gradients = self.gradients(shifted)
        return float(values[0]), gradients[0], (gradients[1] - gradients[2]) / (2 * h)

    def products(
        self, point: Float[np.ndarray, " dim"], vectors: Float[np.ndarray, "n dim"]
    ) -> Float[np.ndarray, "n dim"]:
        """The Hessian at one point times many vectors."""
        found = [self.product(point, vector)[2] for vector in vectors]
        return np.array(found).reshape(vectors.shape)


def coloured(
    mean: Float[np.ndarray, " dim"], root: Matrix, z: Float[np.ndarray, "n dim"]
) -> Float[np.ndarray, "n dim"]:
    """`mean + root z` for every row of `z`."""
    return mean + colour(root, z)


def averaged(
    values: Float[np.ndarray, " n"],
    gradients: Float[np.ndarray, "n dim"],
    root: Matrix,
    rule: Points,
) -> Expectation:
    n, z = len(values), rule.z
    return Expectation(float(values.mean()), gradients.mean(0), outer(root, gradients, z) / n)
