"""Linear predictors: expectations by quadrature over the few dimensions that a row has.

`E log p~` and its exact gradients under the discrete rule, `E g` and `E g z^T`, are the derivatives
of one compiled sum in the mean and in the root.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float

from .._arrays._draws import SETS, Nodes
from ._jax import BACKWARD, JaxDensity
from ._protocol import Expectation, Matrix, Rule
from ._target import Target, precision_scope

# Nodes that one call takes: of one predictor, of several.
CHUNK, CHUNK_OF_SEVERAL = 32, 256


class PredictorDensity(JaxDensity):
    """A `LinearPredictor`: like any other density at points, quadrature for expectations."""

    def __init__(self, target: Target, dtype: np.dtype, memory: int):
        super().__init__(target, dtype, memory)
        self.n_predictors = target.n_predictors
        self._target = target

    def expect(self, mean: Float[np.ndarray, " dim"], root: Matrix, rule: Rule) -> Expectation:
        if not isinstance(rule, Nodes):
            return super().expect(mean, root, rule)
        value, gradient, cross, slope, _ = self._integrated(mean, root, rule)
        return Expectation(float(value), gradient, cross, slope)

    def expected_by_row(
        self, mean: Float[np.ndarray, " dim"], root: Matrix, rule: Nodes
    ) -> Float[np.ndarray, " rows"]:
        """`E log p(y_n | eta_n)` for every row."""
        return self._integrated(mean, root, rule)[-1]

    def _wanted(self) -> list[Callable]:
        sets, k = (1, 1) if self.n_predictors == 1 else (SETS, self.n_predictors)
        return [lambda: self._by_nodes(2, self._nodes_at_once(k), (sets, k)), self._values]

    def _nodes_at_once(self, k: int) -> int:
        usual = CHUNK if k == 1 else CHUNK_OF_SEVERAL
        return self._affordable(usual, BACKWARD * self.trace.bytes)

    def _integrated(self, mean: np.ndarray, root: Matrix, rule: Nodes) -> tuple[np.ndarray, ...]:
        nodes = rule.z.reshape(len(rule.weights), *(rule.z.shape[1:] or (1, 1)))
        size = self._nodes_at_once(nodes.shape[2])
        with precision_scope(self.dtype):
            program = self._by_nodes(root.ndim, size, nodes.shape[1:])
            at = [one.astype(self.dtype, copy=False) for one in (mean, root)]
            asked = [
                program(self.trace.consts, self.operands, *at, *part)
                for part in self._cut_nodes(nodes, rule.weights, size)
            ]
            parts = [[np.asarray(one, dtype=np.float64) for one in answer] for answer in asked]
        return tuple(np.asarray(np.sum(each, axis=0)) for each in zip(*parts, strict=True))

    def _cut_nodes(
        self, nodes: np.ndarray, weights: np.ndarray, size: int
    ) -> Iterator[tuple[np.ndarray, ...]]:
        """Nodes of weight zero fill the last call up. The prior is counted in the first."""
        for first in range(0, len(nodes), size):
            z, its = nodes[first : first + size], weights[first : first + size]
            if missing := size - len(z):
                z = np.concatenate([z, np.zeros((missing, *z.shape[1:]))])
                its = np.concatenate([its, np.zeros(missing)])
            share_of_prior = np.array(1.0 if first == 0 else 0.0)
            yield tuple(one.astype(self.dtype) for one in (z, its, share_of_prior))

    def _by_nodes(self, root_ndim: int, size: int, node_shape: tuple[int, ...]) -> Callable:
        target = self._target
        tree = jtu.tree_structure((target.arrays, target.data, target.theta))

        def make(
            consts: list, operands: list, mean: Any, root: Any, z: Any, weights: Any, share: Any
        ) -> Any:
            del consts
            arrays, data, theta = jtu.tree_unflatten(tree, operands)

            def expected(mean: Any, root: Any, theta: Any) -> Any:
                bound = dataclasses.replace(target, arrays=arrays, data=data, theta=theta)
                model, extra = bound.callable, bound.extra
                rows = bound.counted(model.expected_by_row(mean, root, z, weights, *extra))
                prior = bound.share_of_prior * model.expected_prior(mean, root, *extra)
                return rows.sum() + share * prior, rows

            slopes = jax.value_and_grad(expected, (0, 1, 2), has_aux=True)
            (value, rows), (gradient, cross, slope) = slopes(mean, root, theta)
            return value, gradient, cross, slope, rows

        shapes = [(self.dim,), (self.dim,) * root_ndim, (size, *node_shape), (size,), ()]
        name = ("nodes", root_ndim, size, node_shape)
        return self.trace.program(name, make, *(self._shape(*shape) for shape in shapes))
