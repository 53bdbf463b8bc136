"""What `fit`, `laplace` and `fit_many` take, and what they refuse."""

import inspect

import numpy as np
import pytest

import mixvi
from mixvi._fit._options import DEFAULTS, FitOptions, LaplaceOptions, Options, checked

OWN = {"log_density", "init", "data", "hyper", "constraints"}
BATCHES = {"init_batched", "hyper_batched", "strategy", "progress", "throw"}
ATTENDED = {"throw", "progress", "callback", "on_interrupt", "checkpoint"}


def normal(w, data=0.0):
    return -0.5 * ((w - data) ** 2).sum()


def test_every_option_has_a_type_and_a_default():
    assert set(DEFAULTS) == set(FitOptions.__annotations__)
    assert set(LaplaceOptions.__annotations__) < set(DEFAULTS)
    derived = {"richest", "is_auto", "may_use_fewer", "mixture"}
    assert set(Options.__dataclass_fields__) - derived | {"family"} == set(DEFAULTS)


@pytest.mark.parametrize(
    ("function", "own", "options"),
    [
        (mixvi.fit, OWN | ATTENDED, set(FitOptions.__annotations__)),
        (mixvi.laplace, OWN | ATTENDED, set(LaplaceOptions.__annotations__)),
        (mixvi.fit_many, OWN | BATCHES, set(FitOptions.__annotations__)),
    ],
)
def test_signatures_show_options_and_defaults(function, own, options):
    parameters = inspect.signature(function).parameters
    assert set(parameters) == own | options
    assert [*parameters][:3] == ["log_density", "init", "data"]
    for name, parameter in list(parameters.items())[3:]:
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, name
    assert all(parameters[name].default == DEFAULTS[name] for name in options)
    for name in (own | options) - {"log_density"}:
        documented = (mixvi.fit.__doc__ or "") + (function.__doc__ or "")
        assert f"`{name}" in documented, name


def test_data_follow_init():
    for post in (mixvi.fit(normal, 0.0, 3.0), mixvi.laplace(normal, 0.0, 3.0)):
        assert float(post.mean) == pytest.approx(3.0)
    posts = mixvi.fit_many(normal, np.zeros(2), np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert posts.mean.round(6).tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("function", [mixvi.fit, mixvi.laplace, mixvi.fit_many])
@pytest.mark.parametrize("family", ["eig", mixvi.LowRank(rank=1), mixvi.EigenScale])
def test_a_family_in_the_place_of_data(function, family):
    said = 'family="eig"' if family == "eig" else "family=..."
    with pytest.raises(mixvi.InputError, match=f"a family goes by keyword: {said}"):
        function(normal, np.zeros(2), family)


def test_text_is_no_data():
    with pytest.raises(mixvi.InputError, match="data must be arrays, not the text 'eigen'"):
        mixvi.fit(normal, np.zeros(2), "eigen")


@pytest.mark.parametrize(
    ("function", "wrong", "said"),
    [
        (mixvi.fit, "draw", "did you mean 'draws'"),
        (mixvi.fit, "optimizer", "did you mean 'optimiser'"),
        (mixvi.laplace, "draws", r"laplace\(\) has no option 'draws'"),
        (mixvi.fit_many, "callback", r"fit_many\(\) has no option 'callback'"),
    ],
)
def test_an_option_that_does_not_exist(function, wrong, said):
    with pytest.raises(TypeError, match=said):
        function(normal, np.zeros(2), **{wrong: 1})


def test_failures_of_many_never_raise():
    centres = np.array([1.0, np.nan])
    posts = mixvi.fit_many(normal, np.zeros(1), centres, throw=False)
    assert posts.converged.tolist() == [True, False]
    with pytest.raises(mixvi.InputError, match=r"never raises, so leave throw= out; posts\.conv"):
        mixvi.fit_many(normal, np.zeros(1), centres, throw=True)


def test_defaults_pass_their_own_checks():
    options = checked({})
    assert options.is_auto
    assert options.tol is None
    assert options.dtype == np.float64
