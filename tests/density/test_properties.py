"""Properties that hold for any numbers: bounds there and back, names, flat vectors."""

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mixvi._density._constraints import constrained
from mixvi._density._structure import flatten
from mixvi._density._target import prepare
from targets import DOUBLE

KINDS = {
    "positive": ("positive", 1.0),
    "unit": ("unit", 0.5),
    "simplex": ("simplex", np.full(4, 0.25)),
    "ordered": ("ordered", np.arange(4.0)),
}
FREE = {"positive": 1, "unit": 1, "simplex": 3, "ordered": 4}
quick = hypothesis.settings(max_examples=30, deadline=None)


def bounds_of(name):
    kind, init = KINDS[name]
    target, start = prepare(lambda w: 0.0 * jnp.sum(w), init, None, DOUBLE, None)
    return constrained(target, start, {"w": kind})[0].constraints


@pytest.mark.parametrize("name", KINDS)
@quick
@hypothesis.given(data=st.data())
def test_there_and_back(name, data):
    bounds = bounds_of(name)
    u = data.draw(hnp.arrays(float, FREE[name], elements=st.floats(-6, 6)))
    with jax.enable_x64(True):
        x = np.atleast_1d(np.asarray(bounds.constrained(u), float)).ravel()
    np.testing.assert_allclose(bounds.unconstrain(x), u, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", KINDS)
@quick
@hypothesis.given(data=st.data())
def test_the_log_determinant_is_that_of_the_derivative(name, data):
    bounds = bounds_of(name)
    u = data.draw(hnp.arrays(float, FREE[name], elements=st.floats(-4, 4)))
    with jax.enable_x64(True):
        jacobian = jax.jacobian(lambda u: jnp.ravel(bounds.constrain(u)))(u)
    square = np.asarray(jacobian)[: len(u)]  # a simplex: all entries but the last
    expected = np.linalg.slogdet(square)[1]
    assert float(bounds.log_dets(u)) == pytest.approx(expected, rel=1e-6, abs=1e-6)


names = st.text("abcdefgh", min_size=1, max_size=3)
shapes = st.lists(st.integers(0, 3), max_size=2).map(tuple)


@quick
@hypothesis.given(st.dictionaries(names, shapes, min_size=1, max_size=4))
def test_every_number_has_one_name_and_finds_its_place_again(made):
    tree = {key: np.arange(float(np.prod(shape))).reshape(shape) for key, shape in made.items()}
    hypothesis.assume(sum(leaf.size for leaf in tree.values()) > 0)
    hypothesis.assume(all(leaf.size for leaf in tree.values()))
    structure, flat = flatten(tree, DOUBLE, "init")
    assert len(set(structure.names)) == len(structure.names) == structure.size == len(flat)
    back = structure.unravel(flat)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for key, leaf in tree.items():
        np.testing.assert_array_equal(back[key], leaf)
    np.testing.assert_array_equal(structure.ravel(back, "w"), flat)
    for name, value in zip(structure.names, flat, strict=True):
        key, _, index = name.partition("[")
        at = tuple(int(i) for i in index.rstrip("]").split(",")) if index else ()
        assert tree[key][at] == value
