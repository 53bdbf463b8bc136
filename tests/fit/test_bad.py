"""Errors are part of the product: every bad input and known-bad target gets its word."""

import json
import re
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import bad_inputs
import known_bad
import mixvi


@pytest.fixture(scope="module")
def sentences():
    """In a process of its own: what users see, not what the type checker of these tests says."""
    command = [sys.executable, bad_inputs.__file__, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.mark.parametrize("name", bad_inputs.CASES)
def test_bad_inputs(name, sentences):
    _, kind, words = bad_inputs.CASES[name]
    said_kind, said = sentences[name]
    assert said_kind == kind, said
    assert words in said
    assert len(said) < 700


EXPECTED = {
    "funnel (10 dimensions)": "Do not trust",
    "two far modes": "Do not trust: 1 other mode",
    "banana shape": "Do not trust",
    "centred eight schools": "NoModeError: .*log_tau went from .*non-centred",
    "saddle start": "Do not trust: 1 other mode",
    "ridge, variance 1e6": "Trust",
    "separable logistic, no prior": "NoModeError: .*slope went from",
    "flat direction": "IndefiniteHessianError: .*carried by",
    "heavy tails (Student, 2 df)": "Do not trust",
    "support x > 0, untransformed": "Do not trust",
}


@pytest.mark.parametrize("name", known_bad.CASES)
@pytest.mark.parametrize("family", ["laplace", "eig", "auto"])
def test_known_bad_targets(name, family):
    said = known_bad.seen(name, family)
    expected = EXPECTED[name]
    if name == "centred eight schools" and family != "laplace":
        expected = "Do not trust"  # a fit needs no mode
    assert re.match(expected, said), said


@pytest.mark.parametrize(
    ("error", "log_density", "init"),
    [
        (mixvi.InputError, lambda w: -(w**2), "nothing"),
        (mixvi.NonFiniteError, lambda w: jnp.log(w), -1.0),
        (mixvi.IndefiniteHessianError, lambda w: -(w[0] ** 2), np.zeros(2)),
        (mixvi.NoModeError, lambda w: w, 0.0),
    ],
)
def test_every_error_is_ours(error, log_density, init):
    """Whoever catches `MixviError` catches all of them, each of its own kind."""
    with pytest.raises(mixvi.MixviError) as caught:
        mixvi.laplace(log_density, init)
    assert caught.type is error


@pytest.mark.parametrize(
    ("log_density", "asks"),
    [
        (lambda w: 0.5 * w @ w, True),
        (lambda w: 0.5 * w @ w + jnp.logaddexp(0.0, w[0]), True),
        (lambda w: w.sum(), False),  # improper
        (lambda w: w[0] ** 2 - w[1] ** 2, False),  # a saddle
        (lambda w: -((w[0] - w[1]) ** 2), False),  # flat
        (lambda w: -jnp.logaddexp(0.0, -w[0]) - w[1] ** 2, False),  # separable
    ],
)
def test_asks_for_the_sign_of_an_energy_alone(log_density, asks):
    said = mixvi.laplace(log_density, np.full(2, 0.5), throw=False).status
    assert ("did you pass a potential energy?" in said) == asks


def test_mean_only_where_the_width_cannot_change():
    function, init, data = known_bad.CASES["support x > 0, untransformed"]
    with pytest.raises(mixvi.NonFiniteError, match="mu"):
        mixvi.fit(function, init, family="mu", data=data, anchor="mode")
