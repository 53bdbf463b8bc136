"""Posteriors as data frames, and that nothing is imported before it is asked for."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import mixvi
from mixvi.interop import pandas as frames
from mixvi.interop._labelled import Labelled


@pytest.fixture(scope="module")
def post():
    def log_density(w):
        return -0.5 * (w["beta"] ** 2).sum() - 0.5 * (w["s"] - 2) ** 2

    start = {"beta": np.zeros(2), "s": 1.0}
    return mixvi.laplace(log_density, start, constraints={"s": "positive"})


def test_draws_have_the_names_and_numbers_of_the_posterior(post):
    frame, draws = frames.draws(post, 20, 5), post.sample(5, 20)
    assert list(frame.columns) == ["beta[0]", "beta[1]", "s"]
    assert frame.index.name == "draw"
    np.testing.assert_array_equal(frame["beta[1]"], draws["beta"][:, 1])
    np.testing.assert_array_equal(frame["s"], draws["s"])


def test_the_summary_has_the_numbers_of_summary(post):
    frame = frames.summary(post)
    assert list(frame.columns) == ["mean", "std", "5%", "50%", "95%"]
    assert frame.loc["s", "mean"] == pytest.approx(float(post.mean["s"]))
    assert frame.loc["s", "95%"] == pytest.approx(float(post.quantiles(0.95)["s"]))
    for name, row in frame.iterrows():
        (line,) = (one for one in post.summary().splitlines() if one.startswith(f"{name} "))
        assert line.split()[1:] == [f"{number:.4g}" for number in row]


def test_variables_of_a_model_are_named_by_their_labels(post):
    class OfModel:
        def __init__(self):
            self.post = post

        def labelled(self, n, key=0):
            theta = np.stack([np.arange(n), np.ones(n)], 1)
            draws = {"theta": theta, "mu": np.arange(n) * 2, "free": np.ones((n, 1, 2))}
            coords = {"school": ["Choate", "Deerfield"]}
            return Labelled(draws, np.zeros(n), dims={"theta": ("school",)}, coords=coords)

    frame = frames.draws(OfModel(), 3)
    names = ["theta[Choate]", "theta[Deerfield]", "mu", "free[0,0]", "free[0,1]"]
    assert list(frame.columns) == names
    assert list(frame["mu"]) == [0, 2, 4]
    summary = frames.summary(OfModel())
    assert isinstance(summary, pd.DataFrame)
    assert summary.loc["theta[Deerfield]", "mean"] == 1
    with pytest.raises(mixvi.InputError, match="takes a Posterior or"):
        frames.draws(3)  # pyright: ignore


def test_nothing_is_imported_before_it_is_asked_for():
    """Neither by mixvi nor by its adaptors: the libraries come with the first call."""
    libraries = {"pandas", "xarray", "arviz", "arviz_base", "pymc", "bambi", "pytensor", "numpyro"}
    code = (
        "import sys, mixvi\n"
        f"libraries = {libraries!r}\n"
        "print(sorted(libraries & sys.modules.keys()), 'mixvi.interop' in sys.modules)\n"
        "import mixvi.interop.arviz, mixvi.interop.pandas, mixvi.interop.pymc\n"
        "print(sorted(libraries & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[] False", "[]"]


@pytest.mark.parametrize(
    ("library", "call", "extra"),
    [
        ("pandas", "from mixvi.interop import pandas; pandas.draws(post)", "pandas"),
        ("xarray", "from mixvi.interop.arviz import to_arviz; to_arviz(post)", "arviz"),
        ("pymc", "import mixvi.interop.pymc as i; i.fit(None)", "pymc"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(post, library, call, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(ImportError, match=rf"pip install 'mixvi\[{extra}\]'"):
        exec(call, {"post": post})
