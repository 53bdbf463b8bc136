"""Fits of one posterior side by side."""

import jax.numpy as jnp
import numpy as np
import pytest

import mixvi


def skewed(w):
    """log of a Gamma(2) variable, normalised: its log evidence is 0."""
    return 2 * w - jnp.exp(w)


def test_the_highest_bound_is_first_and_below_the_evidence():
    fits = {name: mixvi.fit(skewed, 0.0, family=name) for name in ("laplace", "eig")}
    found = mixvi.compare(fits)
    assert found.best == "eig"
    first, second = found.rows
    assert first.behind.value == first.behind.se == 0
    assert second.behind.value == pytest.approx(first.elbo.value - second.elbo.value)
    assert second.behind.se == pytest.approx(np.hypot(first.elbo.se, second.elbo.se))
    assert all(row.elbo.value < 3 * row.elbo.se for row in found.rows)


def test_a_line_each_with_the_reason():
    fits = {
        "a normal": mixvi.fit(lambda w: -0.5 * w @ w, np.zeros(2)),
        "<two>": mixvi.fit(lambda w: jnp.logaddexp(-((w - 5) ** 2), -((w + 5) ** 2)), 4.0),
    }
    lines = str(mixvi.compare(fits)).splitlines()
    assert len(lines) == 3
    (two,) = [line for line in lines if line.startswith("<two>")]
    assert two.split()[-2:] == ["reject", "modes"]
    assert "&lt;two&gt;" in mixvi.compare(fits)._repr_html_()


@pytest.mark.parametrize("given", [{}, [1], {"a": 3}])
def test_what_cannot_be_compared(given):
    with pytest.raises(mixvi.InputError, match="compare: "):
        mixvi.compare(given)
    blind = mixvi.fit(skewed, 0.0, diagnostics=False)
    with pytest.raises(mixvi.InputError, match="without diagnostics"):
        mixvi.compare({"blind": blind})
