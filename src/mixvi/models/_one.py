"""One linear predictor per row: mode, evidence and bound in closed form.

    curvature    P = Phi^T diag(-a l'') Phi + Lambda
    evidence     with Sigma = P^-1, h_n = phi_n^T Sigma phi_n, the derivative of -(1/2) log det P
                 in w is (1/2) Phi^T (a l''' h); in Phi it is
                 diag(a l'') Phi Sigma + (1/2) (a l''' h) w^T
    bound        eta_n ~ N(m_n, s_n^2), s_n = |B^T phi_n|; with E over the nodes zeta of the rule,
                 E g = Phi^T (a E l') - Lambda mu,
                 E g z^T = Phi^T diag(a E[l' zeta] / s) Phi B - Lambda B

The last is the exact gradient of the discrete rule (`E[l' zeta]`, not `s E l''`): searches need it.
"""

import math

import numpy as np

from .._arrays._draws import Nodes
from .._arrays._roots import is_diagonal
from .._density._protocol import EvidenceSlopes, Expectation
from ._density import IN_CACHE, Block, ModelDensity, gaussian_at, slices, some_points

# Steps on the way to a mode before Newton's, and nats that one must gain.
MOST_APPROACHES, NEAR = 50, 0.1


class OnePredictor(ModelDensity):
    def values(self, points):
        total = self._log_prior(self._prior_at_points(points)[0])
        for block in self.blocks():
            for some in some_points(len(points), len(block.y)):
                eta = block.phi @ points[some].T + np.reshape(block.offset, (-1, 1))
                (value,) = self._derivatives(block, eta, 0)
                total[some] += block.weight @ value
        return total

    def _at_points(self, points, learns):
        square, pulled = self._prior_at_points(points)
        values, gradients = self._log_prior(square), -pulled
        slopes = [self._prior_slopes_over(points, square)] if learns else []
        for block in self.blocks():
            in_design = np.zeros_like(block.phi) if learns else None
            for some in some_points(len(points), len(block.y)):
                eta = block.phi @ points[some].T + np.reshape(block.offset, (-1, 1))
                found = self._derivatives(block, eta, 1)
                slope = found[1] * block.weight[:, None]
                values[some] += block.weight @ found[0]
                gradients[some] += slope.T @ block.phi
                if in_design is not None:
                    in_design += slope @ points[some] / len(points)
                    own = self.likelihood.hyper_slopes(block.y[:, None], eta, self.hyper, 0, found)
                    slopes.append(
                        {k: (block.weight @ one[0]).sum() / len(points) for k, one in own.items()}
                    )
            if in_design is not None:
                slopes.append(self._basis_slopes(block, in_design))
        return values, gradients, self._sum_slopes(*slopes) if learns else np.zeros(0)

    def curvature(self, point):
        square, pulled = self._prior_at_points(point[None])
        value, gradient = float(self._log_prior(square)[0]), -pulled[0]
        hessian = np.zeros((self.dim, self.dim))
        for block in self.blocks():
            eta = block.phi @ point + block.offset
            one, slope, bend = self._derivatives(block, eta, 2)
            value += float(block.weight @ one)
            gradient += block.phi.T @ (block.weight * slope)
            hessian += _weighted_square(block.phi, block.weight * bend)
        return value, gradient, self._minus_prior(hessian)

    def approached(self, point):
        return point if self.log_concave else approached(self.minorant, point)

    def minorant(self, point):
        """Value, gradient and curvature of a parabola that lies below the log density and touches
        it at this point; None where none is known."""
        value, pull = self._log_prior(point @ (pulled := self._prior_times(point))), -pulled
        hessian = np.zeros((self.dim, self.dim))
        for block in self.blocks():
            eta = block.phi @ point + block.offset
            one, slope = self._derivatives(block, eta, 1)
            curvature = self.likelihood.minorised(block.y, eta, self.hyper)
            if curvature is None:
                return None
            value += float(block.weight @ one)
            pull += block.phi.T @ (block.weight * slope)
            hessian += _weighted_square(block.phi, -block.weight * curvature)
        return value, pull, self._minus_prior(hessian)

    def product(self, point, vector):
        square, pulled = self._prior_at_points(np.stack([point, vector]))
        value = float(self._log_prior(square[:1])[0])
        gradient, product = -pulled[0], -pulled[1]
        for block in self.blocks():
            eta = block.phi @ point + block.offset
            one, slope, bend = self._derivatives(block, eta, 2)
            value += float(block.weight @ one)
            gradient += block.phi.T @ (block.weight * slope)
            product += block.phi.T @ (block.weight * bend * (block.phi @ vector))
        return value, gradient, product

    def evidence_slopes(self, mode, root):
        prior = self._prior_slopes(float(mode @ self._changed_prior_times(mode)))
        if "log_alpha" in prior:  # of -(1/2) log det P
            prior["log_alpha"] = prior["log_alpha"] - 0.5 * self._changed_prior_trace(root)
        slopes, in_w = [prior], np.zeros(self.dim)
        mixed = np.zeros((self.dim, self.n_hyper))
        for block in self.blocks():
            a, phi = block.weight, block.phi
            eta = phi @ mode + block.offset
            found = self._derivatives(block, eta, 3)
            spread = phi @ root
            h = (spread * spread).sum(1)
            _, slope, bend, third = (a * one for one in found)
            in_w += 0.5 * phi.T @ (third * h)
            in_design = np.outer(slope + 0.5 * third * h, mode)
            in_design += (bend[:, None] * spread) @ root.T
            slopes.append(self._basis_slopes(block, in_design))
            own = self.likelihood.hyper_slopes(block.y, eta, self.hyper, 2, found)
            slopes.append(
                {
                    name: a @ one[0] + 0.5 * (a * h) @ np.broadcast_to(one[2], h.shape)
                    for name, one in own.items()
                }
            )
            self._add_mixed(mixed, block, mode, slope, bend, own)
        if "log_alpha" in self.hyper:
            mixed[:, self._place("log_alpha")] -= self._changed_prior_times(mode)[:, None]
        nothing = np.zeros(self.n_hyper)
        return EvidenceSlopes(self._sum_slopes(*slopes), mixed, in_w, nothing)

    def _add_mixed(self, mixed, block, mode, slope, bend, own) -> None:
        """`d^2 l / dw dtheta = (dPhi)^T l' + Phi^T (l'' dPhi w + dl'/dtheta)`."""
        parts = (block.rows, self.shared, self.hyper, block.phi[:, :-1])
        along, across = self.basis.tangents(*parts, mode[:-1, None], slope[:, None])
        places = self._basis_places
        mixed[:-1, places] += across[:, 0]
        mixed[:, places] += block.phi.T @ (bend[:, None] * along[:, 0])
        for name, one in own.items():
            mixed[:, self._place(name)] += (block.phi.T @ (block.weight * one[1]))[:, None]

    # --- under a Gaussian ---------------------------------------------------------------------

    def predictors(self, mean, root):
        means, variances = np.empty(self.n_rows), np.empty(self.n_rows)
        for block in self.blocks():
            means[block.which] = block.phi @ mean + block.offset
            variances[block.which] = _variance(block.phi, root)
        return means, variances

    def expect(self, mean, root, rule):
        if not isinstance(rule, Nodes):
            return self._expect_over_draws(mean, root, rule)
        value, gradient, cross, prior = self._expected_prior(mean, root)
        slopes, z = [prior], rule.z
        for block in self.blocks():
            a, phi = block.weight, block.phi
            spread = phi * root if is_diagonal(root) else phi @ root
            sd = np.sqrt((spread * spread).sum(1))
            eta = (phi @ mean + block.offset)[:, None] + sd[:, None] * z
            found = self._derivatives(block, eta, 1)
            value += float(a @ (found[0] @ rule.weights))
            pull = a * (found[1] @ rule.weights)
            # Where a row has no spread at all it has no share in the gradient of the root.
            bend = a * (found[1] @ (rule.weights * z)) / np.where(sd > 0, sd, 1.0)
            gradient += phi.T @ pull
            bent = bend[:, None] * spread
            cross = cross + ((phi * bent).sum(0) if is_diagonal(root) else phi.T @ bent)
            if self.n_hyper:
                in_spread = bent * root if is_diagonal(root) else bent @ root.T
                slopes.append(self._basis_slopes(block, np.outer(pull, mean) + in_spread))
                own = self.likelihood.hyper_slopes(block.y[:, None], eta, self.hyper, 0, found)
                slopes.append({k: a @ (one[0] @ rule.weights) for k, one in own.items()})
        return Expectation(value, gradient, cross, self._sum_slopes(*slopes))

    def _expect_over_draws(self, mean, root, rule):
        """Predictors are `Phi mean + (Phi B) z`, and all that is wanted of a row's slopes is
        `t_n = E[l' (z, 1)]`: two products with the draws."""
        if not self.expects_over_draws(root):
            return super().expect(mean, root, rule)
        (value, gradient, cross, _), prior = self._prior_over_draws(mean, root, rule)
        slopes, n, draws = [prior], len(rule.z), self._draws_and_one(rule.z)
        for block in self.blocks():
            a, phi, y = block.weight, block.phi, block.y[:, None]
            spread = phi * root if is_diagonal(root) else phi @ root
            affine = np.column_stack([spread, phi @ mean + block.offset]).astype(draws.dtype)
            t, values, own_slopes = np.empty(affine.shape), np.empty(len(a)), []
            for rows in slices(len(a), IN_CACHE // n):
                eta = affine[rows] @ draws.T
                found = self.likelihood.derivatives(y[rows], eta, self.hyper, 1)
                values[rows], t[rows] = found[0].sum(1), found[1] @ draws
                if self.n_hyper:
                    own = self.likelihood.hyper_slopes(y[rows], eta, self.hyper, 0, found)
                    own_slopes.append({k: a[rows] @ (one[0].sum(1) / n) for k, one in own.items()})
            value += float(a @ values) / n
            t *= (a / n)[:, None]
            bend, pull = t[:, :-1], t[:, -1]
            gradient = gradient + phi.T @ pull
            cross = cross + ((phi * bend).sum(0) if is_diagonal(root) else phi.T @ bend)
            if self.n_hyper:
                in_spread = bend * root if is_diagonal(root) else bend @ root.T
                slopes.append(self._basis_slopes(block, np.outer(pull, mean) + in_spread))
                slopes += own_slopes
        return Expectation(value, gradient, cross, self._sum_slopes(*slopes))

    def site_slopes(self, centre, covariances, rule):
        y, sd = self.y[:, None], np.sqrt(covariances)
        eta = centre[:, None] + sd[:, None] * rule.z
        value, slope = self.likelihood.derivatives(y, eta, self.hyper, 1)
        bend = slope @ (rule.weights * rule.z) / np.where(sd > 0, sd, 1.0)
        return value @ rule.weights, self.weight * (slope @ rule.weights), -self.weight * bend

    def point_sites(self, mean):
        own = self.predictors_at(mean)
        eta = own if self.offset is None else own + self.offset
        _, slope, bend = self.likelihood.derivatives(self.y, eta, self.hyper, 2)
        return self.weight * (slope - bend * own), -self.weight * bend

    def predictors_at(self, mean: np.ndarray) -> np.ndarray:
        """`Phi mean`."""
        return np.concatenate([block.phi @ mean for block in self.blocks()])

    def of_sites(self, mean, slope, curvature):
        hessian, pull = np.zeros((self.dim, self.dim)), -self._prior_times(mean)
        for block in self.blocks():
            pull += block.phi.T @ slope[block.which]
            hessian += _weighted_square(block.phi, -curvature[block.which])
        return gaussian_at(mean, pull, self._minus_prior(hessian))

    def expected_by_row(self, mean, root, rule):
        found = np.empty(self.n_rows)
        for block in self.blocks():
            sd = np.sqrt(_variance(block.phi, root))
            eta = (block.phi @ mean + block.offset)[:, None] + sd[:, None] * rule.z
            found[block.which] = self._derivatives(block, eta, 0)[0] @ rule.weights
        return found

    def _derivatives(self, block: Block, eta: np.ndarray, order: int) -> list[np.ndarray]:
        y = block.y if eta.ndim == 1 else block.y[:, None]
        return self.likelihood.derivatives(y, eta, self.hyper, order)


def approached(minorant, point):
    """By steps to the top of the parabolas below the log density, which always rise, while they
    gain."""
    last = -math.inf
    for _ in range(MOST_APPROACHES):
        told = minorant(point)
        if told is None:
            return point
        value, pull, hessian = told
        there = gaussian_at(point, pull, hessian)
        if not value > last + NEAR or there is None:
            break
        last, point = value, there[0]
    return point


def _variance(phi: np.ndarray, root: np.ndarray) -> np.ndarray:
    spread = phi * root if is_diagonal(root) else phi @ root
    return (spread * spread).sum(1)


def _weighted_square(phi: np.ndarray, by: np.ndarray) -> np.ndarray:
    """`Phi^T diag(by) Phi`; where all have one sign half the work does."""
    if (by <= 0).all():
        root = np.sqrt(-by)[:, None] * phi
        return -(root.T @ root)
    return phi.T @ (by[:, None] * phi)
