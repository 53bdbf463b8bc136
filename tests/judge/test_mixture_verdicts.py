"""The shapes behind the limits of mixtures, and how the limits are learnt."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixture_models
import mixture_verdicts
from mixture_verdicts import Learner, label
from mixvi._judge._verdict import MIXTURE_THRESHOLDS

# Where all of the mass is, for those whose tails end.
BOXES = {
    "banana: 2-D, bends (0.5,), widths (0.7,), shear 0.0": ((-8, 8), (-6, 34)),
    "banana: 2-D, bends (1.0,), widths (0.5,), shear 0.7": ((-50, 8), (-8, 70)),
    "funnel: 2-D, width 0.6, shear 0.0": ((-4, 4), (-25, 25)),
    "skewed: 2-D, logs of gammas (0.4, 1.0), shear 0.0": ((-50, 4), (-25, 4)),
    "skewed: 2-D, normals skewed by (3.0, 8.0), shear 0.0": ((-4, 8), (-4, 8)),
    "ring: 2-D, (4.0, 0.3, 0.0, 0.7)": ((-9, 9), (-9, 9)),
    "ring: 2-D, (3.0, 0.3, 1.0, 0.0)": ((-6, 6), (-6, 6)),
    "modes: 2-D, ((0.7, 0.3), 2.0, (1.0, 0.5))": ((-8, 10), (-9, 8)),
    "modes: 2-D, ((0.5, 0.3, 0.2), 3.0, (1.0, 0.5, 0.7))": ((-14, 9), (-14, 8)),
}


@pytest.mark.parametrize("name", BOXES)
def test_moments_in_closed_form_are_those_of_a_grid(name):
    shape = mixture_models.SHAPES[name][1]()
    box = tuple((float(low), float(high)) for low, high in BOXES[name])
    grid = mixture_models.by_grid(shape.log_density, shape.data, box)
    np.testing.assert_allclose(grid.mean, shape.mean, atol=1e-4)
    np.testing.assert_allclose(grid.sd, shape.sd, rtol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "banana: 3-D, bends (1.0, 0.6), widths (0.4, 0.4), shear 0.0",
        "funnel: 3-D, width 1.0, shear 0.7",
        "twist: 3-D, (1.0, 2.0, 0.3, 0.0, 0.3, 0.7)",
        "twist: 4-D, (1.0, 1.0, 0.7, 0.3, 0.7, 0.0)",
        "heavy: 3-D, Student's t (3.0, 5.0, 8.0), shear 0.7",
        "heavy: 4-D, Student's t 5.0 of all together",
        "ring: 4-D, (2.0, 0.5, 0.0, 0.0)",
        "modes: 4-D, ((0.9, 0.1), 1.0, (0.5, 2.5))",
        "banana: chain, 3-D, (0.5, 0.5, 0.0)",
        "hierarchy: 5-D, centred, y (6.0, -4.0, 1.0), se (1.0, 1.5, 1.0)",
    ],
)
def test_moments_are_those_of_weighted_draws(name):
    """Of Student's t around the exact ones, wider than any of these."""
    shape, nu, n = mixture_models.SHAPES[name][1](), 2.0, 400_000
    rng, dim = np.random.default_rng(0), len(shape.mean)
    z = rng.standard_normal((n, dim)) / np.sqrt(rng.chisquare(nu, (n, 1)) / nu)
    points = shape.mean + 1.2 * shape.sd * z
    log_q = -0.5 * (nu + dim) * np.log1p((z**2).sum(1) / nu)
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, shape.data)
        log_p = np.asarray(jax.jit(jax.vmap(lambda w: shape.log_density(w, data)))(points))
    weights = np.exp(log_p - log_q - (log_p - log_q).max())
    weights /= weights.sum()
    mean = weights @ points
    sd = np.sqrt(weights @ (points - mean) ** 2)
    np.testing.assert_allclose((mean - shape.mean) / shape.sd, 0, atol=0.03)
    np.testing.assert_allclose(sd / shape.sd, 1, atol=0.08)


def test_both_ways_to_write_a_hierarchy_have_the_same_scale():
    """Centred or not, the mean of the groups and `log tau` are the same."""
    given = ((3.0, 1.0, -2.0, 0.0), (2.0, 1.0, 2.0, 3.0), 3.0)
    a, b = (mixture_models.hierarchy_of(*given, way) for way in (True, False))
    np.testing.assert_allclose(a.mean[:2], b.mean[:2], rtol=1e-6)
    np.testing.assert_allclose(a.sd[:2], b.sd[:2], rtol=1e-6)


def row(name, sd_off, told, kind="kind", mean_off=0.0):
    moments = {"khat": 0.2, "kl": 0.01, "mean_off": 0.0, "mean_se": 0.01, "mean_at": 0}
    moments |= {"sd_ratio": told, "sd_se": 0.01, "sd_at": 0, "tail_share": 0.0}
    diagnosis = {"elbo": {"value": -1.0, "se": 0.01}, "khat": 0.2, "kl": 0.01, "ess": 900.0}
    diagnosis |= {"n_non_finite": 0, "n_draws": 1000, "moments": moments}
    diagnosis |= {"n_mixed": 3000, "looked_far": True}
    said = {"diagnosis": diagnosis, "other_modes": 0.0}
    return {"name": name, "kind": kind, "family": "mixture", "dim": 2, "converged": True} | {
        "mean_off": mean_off, "sd_off": sd_off, "told": said, "components": 4, "key": 0
    }  # fmt: skip


def test_limits_are_where_no_bad_fit_is_trusted_and_most_others_are():
    """Bad fits are told 1.17 and more, others 1.12 and less."""
    good = [row(f"good {i}", told, told) for i, told in enumerate((1.01, 1.07, 1.12))]
    bad = [row(f"bad {i}", 2.0, told) for i, told in enumerate((1.17, 1.4))]
    assert [label(one) for one in (*good, *bad)] == ["good"] * 3 + ["bad"] * 2
    learner = Learner(good + bad)
    assert learner.chosen(np.ones(5, bool)).weigh[1] == 1.15
    # Without the worse of the bad: between 1.12 and 1.4 the strictest is taken.
    assert learner.chosen(np.array([True] * 3 + [False, True])).weigh[1] == 1.15
    # Without what is told 1.12 and 1.07 a strict limit costs nothing.
    assert learner.chosen(np.array([True, False, False, True, True])).weigh[1] == 1.05


def test_what_is_left_out_is_not_learnt_from():
    """One posterior hides its error: it is trusted by limits that never saw it, and makes those of
    the others strict."""
    others = [row(f"other {i}", told, told) for i, told in enumerate((1.01, 1.04, 1.12))]
    hides = row("hides", 2.0, 1.12, "another")
    learner = Learner([*others, hides])
    assert learner.chosen(np.ones(4, bool)).weigh[1] < 1.12
    for by in ("name", "kind"):
        assert learner.left_out(by)[0] == ["T", "T", "U", "T"]


def test_a_posterior_with_many_fits_counts_once():
    many = [row("many", 1.12, 1.12) for _ in range(50)]
    few = [row(f"few {i}", 1.02, 1.02) for i in range(3)]
    right = Learner(many + few).shares(np.ones((1, 53), bool), np.ones(53, bool))[1]
    assert right == pytest.approx(1.0)
    flags = np.array([[True] * 50 + [False] * 3])
    assert Learner(many + few).shares(flags, np.ones(53, bool))[1] == pytest.approx(0.25)


def test_the_page_is_that_of_its_rows():
    kept = mixture_verdicts.ROWS.with_name("mixture_verdicts.md").read_text(encoding="utf-8")
    assert kept.strip() == mixture_verdicts.page().strip()
    assert MIXTURE_THRESHOLDS.weigh == (0.2, 1.15)
