"""Several linear predictors per row (softmax): the same in blocks, one row of weights for each.

    eta_nk = phi_n^T w_k        P_kl = Phi^T diag(-a l''_kl) Phi + [k = l] Lambda

Under a Gaussian the K predictors of a row are jointly Gaussian, `N(m_n, S_n)`, `S_n = L_n L_n^T`.
The rule's nodes zeta are in K dimensions; the bound's derivative in `S_n` follows from that in
`L_n` by the derivative of the Cholesky factor (Murray 2016):

    V_n = E[l' zeta^T],    dS_n = (1/2) L^-T (F + F^T) L^-1,    F = tril(L^T V), its diagonal halved

Blocks of `P` and all `S_n` are products with `phi_i phi_j`, i <= j, of all rows, which are kept.
"""

import functools
from typing import Any

import numpy as np

from .._arrays._draws import SETS, Nodes
from .._arrays._roots import is_diagonal
from .._density._protocol import EvidenceSlopes, Expectation, averaged, coloured
from ._density import IN_CACHE, Block, ModelDensity, gaussian_at, slices, some_points

# Products of columns that are kept; numbers of a temporary array that stays in the cache.
PRODUCTS_KEPT, SMALL = 2**23, 2**15
# Rows with the same nodes go together where these have so many predictors at nodes in all, or fewer
# rows than this make a small array.
LARGE_SET, ROWS_OF_A_SET = 2**13, 4


class SeveralPredictors(ModelDensity):
    def _bind(self, hyper):
        super()._bind(hyper)
        self._products: dict[int, np.ndarray] = {}

    def values(self, points):
        total = self._log_prior(self._prior_at_points(points)[0])
        for block in self.blocks():
            for some in some_points(len(points), len(block.y) * self.n_predictors):
                eta = self._eta(block, points[some])
                (value,) = self.likelihood.several(block.y, eta, self.hyper, order=0)
                total[some] += block.weight @ value
        return total

    def _at_points(self, points, learns, dtype=np.float64):
        """What predictors say is computed in `dtype`, the predictors never: weights may be large
        and cancel."""
        square, pulled = self._prior_at_points(points)
        values, gradients = self._log_prior(square), -pulled
        slopes = [self._prior_slopes_over(points, square)] if learns else []
        for block in self.blocks():
            in_design = np.zeros_like(block.phi) if learns else None
            weight, phi = block.weight.astype(dtype), block.phi.astype(dtype)
            unweighted = (weight == 1).all()
            for some in some_points(len(points), len(block.y) * self.n_predictors):
                eta = self._eta(block, points[some]).astype(dtype, copy=False)
                value, slope = self.likelihood.several(block.y, eta, self.hyper)
                values[some] += weight @ value
                slope = slope.transpose(1, 2, 0).reshape(-1, len(phi))
                if not unweighted:
                    slope = slope * weight
                pulled = (slope @ phi).reshape(self.n_predictors, -1, self.n_weights)
                gradients[some] += pulled.transpose(1, 0, 2).reshape(-1, self.dim)
                if in_design is not None:
                    in_design += slope.T @ self._by_predictor(points[some]) / len(points)
            if in_design is not None:
                slopes.append(self._basis_slopes(block, in_design))
        return values, gradients, self._sum_slopes(*slopes) if learns else np.zeros(0)

    def _eta(self, block: Block, points: np.ndarray) -> np.ndarray:
        """(n, K, points); in memory predictors come first, so that sums over them are fast."""
        eta = self._by_predictor(points) @ block.phi.T
        eta = eta.reshape(self.n_predictors, -1, len(block.phi)).transpose(2, 0, 1)
        return eta if self.offset is None else eta + block.offset.reshape(len(eta), -1, 1)

    def _by_predictor(self, points: np.ndarray) -> np.ndarray:
        """Weights as rows, (K points, weights)."""
        w = points.reshape(-1, self.n_predictors, self.n_weights)
        return w.transpose(1, 0, 2).reshape(-1, self.n_weights)

    def curvature(self, point):
        square, pulled = self._prior_at_points(point[None])
        value, gradient = float(self._log_prior(square)[0]), -pulled[0]
        hessian = np.zeros((self.dim, self.dim))
        for block in self.blocks():
            eta = self._eta(block, point[None])
            one, slope = self.likelihood.several(block.y, eta, self.hyper)
            value += float(block.weight @ one[:, 0])
            slope = slope[:, :, 0] * block.weight[:, None]
            gradient += (slope.T @ block.phi).ravel()
            bend = self.likelihood.several_hessians(block.y, eta[:, :, 0], self.hyper)
            hessian += self._assembled(block, bend * block.weight[:, None, None])
        return value, gradient, self._minus_prior(hessian)

    def _assembled(self, block: Block, by: np.ndarray) -> np.ndarray:
        """Blocks `Phi^T diag(by_kl) Phi`, for symmetric `by`."""
        k, size, phi = self.n_predictors, self.n_weights, block.phi
        products = self._products_of(block)
        if products is not None:
            (row, column, outputs), (*_, weights) = pairs(k), pairs(size)
            made = by[:, row, column].T @ products
            return made[outputs[:, None, :, None], weights[:, None, :]].reshape(self.dim, self.dim)
        made = np.empty((k, size, k, size))
        for i in range(k):
            # All blocks of a row of them from one product.
            wide = (phi[:, None, :] * by[:, i, i:, None]).reshape(len(phi), -1)
            part = (phi.T @ wide).reshape(size, k - i, size)
            made[i, :, i:, :] = part
            made[i:, :, i, :] = part.transpose(1, 2, 0)
        return made.reshape(self.dim, self.dim)

    def _products_of(self, block: Block) -> np.ndarray | None:
        """`phi_i phi_j`, i <= j, of every row; None where these are too many to keep."""
        size, first = self.n_weights, block.which.start
        if self.n_rows * size * (size + 1) // 2 > PRODUCTS_KEPT:
            return None
        if first not in self._products:
            made, begin = np.empty((len(block.phi), size * (size + 1) // 2)), 0
            for i in range(size):
                end = begin + size - i
                np.multiply(block.phi[:, i : i + 1], block.phi[:, i:], out=made[:, begin:end])
                begin = end
            self._products[first] = made
        return self._products[first]

    def product(self, point, vector):
        square, pulled = self._prior_at_points(np.stack([point, vector]))
        value = float(self._log_prior(square[:1])[0])
        gradient, product = -pulled[0], -pulled[1]
        for block in self.blocks():
            eta, along = self._eta(block, point[None]), self._by_output(vector)
            one, slope = self.likelihood.several(block.y, eta, self.hyper)
            bend = self.likelihood.several_hessians(block.y, eta[:, :, 0], self.hyper)
            moved = np.einsum("nkl,nl->nk", bend, block.phi @ along)
            value += float(block.weight @ one[:, 0])
            gradient += ((slope[:, :, 0] * block.weight[:, None]).T @ block.phi).ravel()
            product += ((moved * block.weight[:, None]).T @ block.phi).ravel()
        return value, gradient, product

    def evidence_slopes(self, mode, root):
        prior = self._prior_slopes(float(mode @ self._changed_prior_times(mode)))
        if "log_alpha" in prior:
            prior["log_alpha"] = prior["log_alpha"] - 0.5 * self._changed_prior_trace(root)
        slopes, in_w = [prior], np.zeros(self.dim)
        mixed = np.zeros((self.dim, self.n_hyper))
        covariance, w = root @ root.T, self._by_output(mode)
        for block in self.blocks():
            a, phi, eta = block.weight, block.phi, self._eta(block, mode[None])
            _, slope = self.likelihood.several(block.y, eta, self.hyper)
            eta, slope = eta[:, :, 0], slope[:, :, 0] * a[:, None]
            bend = a[:, None, None] * self.likelihood.several_hessians(block.y, eta, self.hyper)
            third = self.likelihood.several_thirds(
                block.y, eta, self.hyper, self._dense_covariances(block, covariance)
            )
            third = 0.5 * a[:, None] * third
            in_w += (third.T @ phi).ravel()
            in_design = (slope + third) @ w.T + self._spread(phi, covariance, bend)
            slopes.append(self._basis_slopes(block, in_design))
            self._add_mixed(mixed, block, w, slope, bend)
        if "log_alpha" in self.hyper:
            mixed[:, self._place("log_alpha")] -= self._changed_prior_times(mode)[:, None]
        return EvidenceSlopes(self._sum_slopes(*slopes), mixed, in_w, np.zeros(self.n_hyper))

    def _spread(self, phi: np.ndarray, covariance: np.ndarray, by: np.ndarray) -> np.ndarray:
        """`sum_kl by_kl Sigma_kl phi_n` for symmetric `by`, (n, weights)."""
        k, size = self.n_predictors, self.n_weights
        row, column, _ = pairs(k)
        parts = covariance.reshape(k, size, k, size)[row, :, column, :]
        # Two blocks that are each other's transposes have the same factor.
        both = np.where(row == column, 0.5, 1.0)[:, None, None] * (parts + parts.transpose(0, 2, 1))
        wide = both.transpose(2, 0, 1).reshape(size, -1)
        by, found = by[:, row, column], np.empty((len(phi), size))
        for some in slices(len(phi), max(32, SMALL // wide.shape[1])):
            of_pairs = (phi[some] @ wide).reshape(-1, len(row), size)
            found[some] = (by[some, None, :] @ of_pairs)[:, 0]
        return found

    def _dense_covariances(self, block: Block, covariance: np.ndarray) -> np.ndarray:
        """Of the predictors of every row, (n, K, K)."""
        k, size, phi = self.n_predictors, self.n_weights, block.phi
        row, column, outputs = pairs(k)
        parts = covariance.reshape(k, size, k, size)[row, :, column, :]
        products = self._products_of(block)
        if products is None:
            made = [((phi @ part) * phi).sum(1) for part in parts]
            return np.stack(made, 1)[:, outputs]
        i, j, _ = pairs(size)
        wide = np.where(i == j, 0.5, 1.0) * (parts[:, i, j] + parts[:, j, i])
        return (products @ wide.T)[:, outputs]

    def _add_mixed(self, mixed, block, w, slope, bend) -> None:
        """As for one predictor."""
        parts = (block.rows, self.shared, self.hyper, block.phi[:, :-1])
        along, across = self.basis.tangents(*parts, w[:-1], slope)
        moved = np.einsum("nkl,nlh->nkh", bend, along)
        change = np.einsum("nd,nkh->kdh", block.phi, moved, optimize=True)
        change[:, :-1] += across.transpose(1, 0, 2)
        mixed[:, self._basis_places] += change.reshape(self.dim, -1)

    # --- under a Gaussian ---------------------------------------------------------------------

    def predictors(self, mean, root):
        k = self.n_predictors
        means, covariances = np.empty((self.n_rows, k)), np.empty((self.n_rows, k, k))
        whole = None if is_diagonal(root) else root @ root.T
        for block in self.blocks():
            means[block.which] = self._eta(block, mean[None])[:, :, 0]
            covariances[block.which] = self._covariances(block, root, whole)
        return means, covariances

    def _covariances(self, block: Block, root: np.ndarray, whole: Any) -> np.ndarray:
        """Of the predictors of every row, (n, K, K); `whole`: the covariance, where it is dense."""
        k = self.n_predictors
        if whole is None:
            variances = block.phi**2 @ (root**2).reshape(k, -1).T
            return variances[:, :, None] * np.eye(k)
        return self._dense_covariances(block, whole)

    def expect(self, mean, root, rule):
        if not isinstance(rule, Nodes):
            return self._expect_over_draws(mean, root, rule)
        value, gradient, cross, prior = self._expected_prior(mean, root)
        slopes, w = [prior], self._by_output(mean)
        whole = None if is_diagonal(root) else root @ root.T
        curved = np.zeros((self.dim, self.dim)) if whole is not None else None
        for block in self.blocks():
            phi, factor = block.phi, row_roots(self._covariances(block, root, whole))
            values, pull, in_root = self._over_nodes(block, mean, factor, rule)
            value += float(block.weight @ values)
            pull *= block.weight[:, None]
            gradient += (pull.T @ phi).ravel()
            in_covariance = root_slopes(factor, in_root) * block.weight[:, None, None]
            # d/dB of sum_n tr(dS_n S_n): 2 dS phi phi^T B
            if whole is None:
                diagonal = np.einsum("nkk->nk", in_covariance)
                cross = cross + 2 * (diagonal.T @ phi**2).ravel() * root
            else:
                assert curved is not None
                curved += self._assembled(block, 2 * in_covariance)
            if self.n_hyper:
                in_design = pull @ w.T + self._spread_slopes(phi, in_covariance, root, whole)
                slopes.append(self._basis_slopes(block, in_design))
        if curved is not None:
            cross = cross + curved @ root
        return Expectation(value, gradient, cross, self._sum_slopes(*slopes))

    def _expect_over_draws(self, mean, root, rule):
        """As for one predictor where predictors are independent. Where they are not, `Phi B` has
        more columns than `Phi`, and predictors come from the weights."""
        if not is_diagonal(root):
            w, learns = coloured(mean, root, rule.z), bool(self.n_hyper)
            values, gradients, slope = self._at_points(w, learns, self._over_draws)
            return averaged(values, gradients, root, rule)._replace(hyper=slope)
        (value, gradient, cross, _), prior = self._prior_over_draws(mean, root, rule)
        slopes, n, k = [prior], len(rule.z), self.n_predictors
        draws = self._draws_and_one(rule.z.reshape(n, k, -1)).transpose(1, 0, 2)
        w, spread = self._by_output(mean), root.reshape(k, 1, -1)
        for block in self.blocks():
            a, phi = block.weight, block.phi
            centre = self._eta(block, mean[None])[:, :, 0].T
            affine = np.concatenate([spread * phi, centre[:, :, None]], 2).astype(draws.dtype)
            t = np.empty(affine.shape)
            for rows in slices(len(a), IN_CACHE // (n * k)):
                eta = (affine[:, rows] @ draws.transpose(0, 2, 1)).transpose(1, 0, 2)
                values, slope = self.likelihood.several(block.y[rows], eta, self.hyper)
                value += float(a[rows] @ values.sum(1)) / n
                t[:, rows] = slope.transpose(1, 0, 2) @ draws
            t *= (a / n)[:, None]
            bend, pull = t[:, :, :-1], t[:, :, -1]
            gradient = gradient + (pull @ phi).ravel()
            cross = cross + (phi * bend).sum(1).ravel()
            if self.n_hyper:
                in_design = pull.T @ w.T + (bend * spread).sum(0)
                slopes.append(self._basis_slopes(block, in_design))
        return Expectation(value, gradient, cross, self._sum_slopes(*slopes))

    def _spread_slopes(self, phi, in_covariance, root, whole) -> np.ndarray:
        if whole is None:
            diagonal = np.einsum("nkk->nk", in_covariance)
            return 2 * phi * (diagonal @ (root**2).reshape(self.n_predictors, -1))
        return 2 * self._spread(phi, whole, in_covariance)

    def site_slopes(self, centre, covariances, rule):
        factor, a = row_roots(covariances), self.weight
        value, slope, in_root = self._at_nodes(
            self.y, centre[:, :, None], factor, self.groups, rule
        )
        curvature = -2 * a[:, None, None] * root_slopes(factor, in_root)
        return value, a[:, None] * slope, curvature

    def point_sites(self, mean):
        w, a = self._by_output(mean), self.weight
        own = np.concatenate([block.phi @ w for block in self.blocks()])
        eta = own if self.offset is None else own + self.offset
        slope = self.likelihood.several(self.y, eta[:, :, None], self.hyper)[1][:, :, 0]
        curvature = -a[:, None, None] * self.likelihood.several_hessians(self.y, eta, self.hyper)
        return a[:, None] * slope + (curvature @ own[:, :, None])[:, :, 0], curvature

    def of_sites(self, mean, slope, curvature):
        hessian, pull = np.zeros((self.dim, self.dim)), -self._prior_times(mean)
        for block in self.blocks():
            pull += (slope[block.which].T @ block.phi).ravel()
            hessian += self._assembled(block, -curvature[block.which])
        return gaussian_at(mean, pull, self._minus_prior(hessian))

    def expected_by_row(self, mean, root, rule):
        found = np.empty(self.n_rows)
        whole = None if is_diagonal(root) else root @ root.T
        for block in self.blocks():
            factor = row_roots(self._covariances(block, root, whole))
            found[block.which] = self._over_nodes(block, mean, factor, rule)[0]
        return found

    def _over_nodes(
        self, block: Block, mean: np.ndarray, factor: np.ndarray, rule: Nodes
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`E l`, `E l'` and `E l' zeta^T` of every row."""
        centre = self._eta(block, mean[None])
        return self._at_nodes(block.y, centre, factor, self.groups[block.which], rule)

    def _at_nodes(
        self, y: np.ndarray, centre: np.ndarray, factor: np.ndarray, group: np.ndarray, rule: Nodes
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Few rows at a time, which stay in the processor's cache."""
        n, k = len(y), self.n_predictors
        values, sums = np.empty(n), np.empty((n, k, k + 1))
        nodes, weighted = _by_set(rule)
        group = group % SETS
        # Products with (zeta, 1), and of the slopes with the same, weighted.
        affine = np.concatenate([factor, centre], axis=2)
        each = k * len(rule.weights)
        few, of_a_set = SMALL // each, n * each // SETS
        if few >= ROWS_OF_A_SET and of_a_set < LARGE_SET:
            for some in slices(n, few):
                eta = affine[some] @ nodes[group[some]]
                value, slope = self.likelihood.several(y[some], eta, self.hyper)
                values[some], sums[some] = value @ rule.weights, slope @ weighted[group[some]]
        else:  # rows that share their nodes go together, in larger products
            for one in np.unique(group):
                mine = np.flatnonzero(group == one)
                for some in slices(len(mine), max(few, ROWS_OF_A_SET)):
                    rows = mine[some]
                    eta = (affine[rows].reshape(-1, k + 1) @ nodes[one]).reshape(len(rows), k, -1)
                    value, slope = self.likelihood.several(y[rows], eta, self.hyper)
                    values[rows] = value @ rule.weights
                    sums[rows] = (slope.reshape(len(rows) * k, -1) @ weighted[one]).reshape(
                        -1, k, k + 1
                    )
        return values, sums[:, :, k].copy(), np.ascontiguousarray(sums[:, :, :k])

    @property
    def _rows_at_once(self) -> int:
        # Arrays (n, K (K + 1) / 2, weights) and (n, K, nodes) are made.
        k = self.n_predictors
        return max(16, min(super()._rows_at_once, 2**22 // max(k * k * self.n_weights, 512 * k)))


@functools.lru_cache(maxsize=64)
def pairs(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`i` and `j` of all pairs with i <= j, and the number of the pair of any two."""
    row, column = np.triu_indices(size)
    number = np.empty((size, size), dtype=np.intp)
    number[row, column] = number[column, row] = np.arange(len(row))
    return row, column, number


@functools.lru_cache(maxsize=8)
def _nodes_by_set(z: Any, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    by_set = z.array.transpose(1, 2, 0)
    affine = np.concatenate([by_set, np.ones_like(by_set[:, :1])], axis=1)
    weighted = np.ascontiguousarray((affine * weights.array).transpose(0, 2, 1))
    return affine, weighted


class _Held:
    """An array, compared by identity: rules are made once and kept."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.array is self.array

    def __hash__(self) -> int:
        return id(self.array)


def _by_set(rule: Nodes) -> tuple[np.ndarray, np.ndarray]:
    """`(zeta, 1)` of every set, (sets, K + 1, nodes), and weighted (sets, nodes, K + 1)."""
    return _nodes_by_set(_Held(rule.z), _Held(rule.weights))


def row_roots(covariance: np.ndarray) -> np.ndarray:
    """Lower roots of many small matrices, which may just fail to be definite by rounding."""
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        k = covariance.shape[-1]
        trace = np.einsum("nkk->n", covariance)
        lifted = 1e-12 * np.maximum(trace, 1e-300)[:, None, None] * np.eye(k)
        return np.linalg.cholesky(covariance + lifted)


def root_slopes(factor: np.ndarray, in_root: np.ndarray) -> np.ndarray:
    """The derivative in `S = L L^T` of what has the derivative `in_root` in `L`."""
    lower = np.tril(factor.transpose(0, 2, 1) @ in_root)
    k = factor.shape[-1]
    lower[:, np.arange(k), np.arange(k)] *= 0.5
    both = 0.5 * (lower + lower.transpose(0, 2, 1))
    inverse = np.linalg.inv(factor)
    return inverse.transpose(0, 2, 1) @ both @ inverse
