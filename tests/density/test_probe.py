"""Log densities are known again by values that need no start of their own to differ."""

import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._density._make import density_of, prepared
from mixvi._density._probe import probed, same


def values_of(log_density, init=None, hyper=None):
    init, dtype = np.zeros(3) if init is None else init, np.dtype(np.float64)
    target, start = prepared(log_density, init, None, dtype, hyper)
    density = density_of(log_density, target, dtype, 2**28).inner
    return probed(density, start.astype(np.float64), np.asarray(target.theta))


def narrow(scale):
    return lambda w: -0.5 * scale * (w**2).sum()


def test_priors_that_say_the_same_at_zero():
    one = values_of(narrow(1.0))
    assert one[0] == 0.0
    assert same(one, values_of(narrow(1.0)))
    assert not same(one, values_of(narrow(2.0)))
    assert not same(one, values_of(narrow(1.0), np.ones(3)))


def test_priors_of_hyperparameters_that_say_the_same_at_zero():
    def learnt(scale):
        return lambda w, hyper: narrow(jnp.exp(hyper))(w) + 1.5 * hyper - scale * hyper**2

    one = values_of(learnt(1.0), hyper=0.0)
    assert same(one, values_of(learnt(1.0), hyper=0.0))
    assert not same(one, values_of(learnt(2.0), hyper=0.0))


def test_one_that_is_undefined_beside_its_start():
    def only_there(w):
        if w.any():
            raise ValueError("only at zeros")
        return 0.0, -w

    one = values_of(mixvi.from_numpy(only_there))
    assert one == [0.0, None, None]
    assert same(one, one)

    def nowhere(w):
        raise ValueError("nowhere")

    with pytest.raises(mixvi.InputError, match="nowhere"):
        values_of(mixvi.from_numpy(nowhere))


def test_what_is_not_finite_says_nothing():
    one = values_of(lambda w: jnp.log(1e-3 - w).sum())
    assert one[0] is not None
    assert None in one
