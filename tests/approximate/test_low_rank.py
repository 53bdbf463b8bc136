"""A diagonal and a few directions, against dense algebra; the bound along them, by differences."""

import numpy as np
import pytest

from mixvi._approximate._low_rank import Curvature
from mixvi._approximate._subspace import Part, Subspace, SubspaceBound, foreseen
from mixvi._arrays import _roots
from mixvi._density._protocol import Density

DIM = 200


class Quadratic(Density):
    """And, with `skew`, a cubic term along the first parameters."""

    def __init__(self, precision, skew=0.0):
        self.precision, self.skew, self.dim = precision, skew, len(precision)

    def gradients(self, points):
        gradients = -points @ self.precision
        values = 0.5 * (points * gradients).sum(1)
        some = np.exp(np.minimum(points[:, :3], 5.0))
        gradients[:, :3] -= self.skew * some
        return values - self.skew * some.sum(1), gradients


def wide(rng, scale):
    x = rng.normal(size=(20, DIM))
    return np.diag(scale) + x.T @ x


def arrow(rng):
    made = np.diag(np.r_[np.full(3, 50.0), 1 + 4 * rng.random(DIM - 3)])
    made[:3, 3:] = rng.normal(size=(3, DIM - 3))
    made[3:, :3] = made[:3, 3:].T
    made[:3, :3] += made[:3, 3:] @ made[3:, :3]
    return made


def chain():
    eye = np.eye(DIM)
    return 2.1 * eye - np.eye(DIM, k=1) - np.eye(DIM, k=-1)


def precisions():
    rng = np.random.default_rng(0)
    scale = np.exp(rng.normal(size=DIM))
    return {
        "wide": (wide(rng, np.full(DIM, 3.0)), np.ones(DIM)),
        "wide, a prior of many scales": (wide(rng, scale), scale),
        "arrow": (arrow(rng), np.ones(DIM)),
        "diagonal, nothing known": (np.diag(np.exp(rng.normal(size=DIM))), np.ones(DIM)),
        "one steep direction": (wide(rng, np.r_[1e8, np.ones(DIM - 1)]), np.ones(DIM)),
        "identity": (np.eye(DIM), np.ones(DIM)),
    }


def found_of(precision, base, most=DIM):
    at = Quadratic(precision), np.zeros(DIM), np.random.default_rng(1)
    return Curvature(*at).directions(base, most)


@pytest.mark.parametrize("name", precisions())
def test_what_is_a_diagonal_and_a_few_directions_is_found(name):
    precision, base = precisions()[name]
    found = found_of(precision, base)
    covariance = np.linalg.inv(precision)
    assert found.is_definite
    assert found.left_out < 0.01
    assert len(found.rows) < 130
    np.testing.assert_allclose(found.root.sds, np.sqrt(np.diagonal(covariance)), rtol=0.02)
    exact = -0.5 * np.linalg.slogdet(precision)[1]
    assert found.root.log_det == pytest.approx(exact, abs=0.1)
    np.testing.assert_allclose(found.rows @ found.rows.T, np.eye(len(found.rows)), atol=1e-10)


def test_what_is_left_out_is_told():
    precision = chain()
    found = found_of(precision, np.ones(DIM), most=64)
    root = _roots.colour(found.root, np.eye(DIM)).T
    values = np.linalg.eigvalsh(root.T @ precision @ root)
    exact = 0.5 * (values - 1 - np.log(values)).sum()
    assert exact > 1
    assert found.left_out == pytest.approx(exact, rel=0.6)  # to second order


def test_directions_that_curve_upwards_are_seen():
    precision = np.eye(DIM)
    precision[7, 7] = -2.0
    found = found_of(precision, np.ones(DIM))
    assert not found.is_definite
    value, direction = found.steepest()
    assert value == pytest.approx(-2.0, abs=1e-6)
    assert np.argmax(np.abs(direction)) == 7


@pytest.mark.parametrize("kind", ["low rank", "diagonal"])
@pytest.mark.parametrize("part", [Part(), Part(widths=False), Part(means=False)])
def test_the_bound_and_its_gradient(kind, part):
    precision, base = precisions()["wide"]
    directions = found_of(precision, base)
    root = directions.root if kind == "low rank" else 1 / np.sqrt(np.diagonal(precision))
    space = Subspace(root, directions if kind == "low rank" else None, 0, 64)
    density, centre = Quadratic(precision, skew=0.3), np.full(DIM, 0.01)
    bound = SubspaceBound(density, centre, space, part)
    x = 0.1 * np.random.default_rng(2).normal(size=len(bound.start))
    slopes = bound(x)[1]
    for i in (0, len(x) // 2, len(x) - 1):
        step = np.zeros_like(x)
        step[i] = 1e-5
        difference = (bound(x + step)[0] - bound(x - step)[0]) / 2e-5
        assert slopes[i] == pytest.approx(difference, abs=1e-6)
    # The root that is handed on is the one of the bound.
    changed = space.changed(bound.split(x)[1])
    entropy = bound(x)[0] - np.mean(bound.by_pair(x)[0])
    exact = _roots.log_det(changed) + 0.5 * DIM * (1 + np.log(2 * np.pi))
    assert entropy == pytest.approx(exact, abs=1e-8)


def test_along_its_directions_a_gaussian_is_exact_for_any_draws():
    precision, base = precisions()["wide"]
    directions = found_of(precision, base)
    space = Subspace(directions.root, directions, 0, 64)
    bound = SubspaceBound(Quadratic(precision), np.zeros(DIM), space, Part())
    np.testing.assert_allclose(bound(bound.start)[1], 0, atol=1e-8)
    said = foreseen(bound)
    assert abs(said.means + said.widths) < 1e-6
