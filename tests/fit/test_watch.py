"""Waiting and giving up: the line on a terminal, callbacks, Ctrl-C."""

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._fit import _progress
from mixvi._fit._progress import Line, worded
from mixvi._fit._threads import _controller
from mixvi._watch import Step, Watch
from targets import logistic, logistic_data

# Slow enough to be met on the way, at any stage: a skewed posterior, a millisecond a point.
SLOW = """
import json, signal, sys, threading, time, warnings
import numpy as np
import mixvi
from threadpoolctl import threadpool_info

class Slow(mixvi.Density):
    dim = 3
    def __init__(self, seconds):
        self.seconds = seconds
    def gradients(self, points):
        time.sleep(self.seconds * len(points))
        return (points - np.exp(points)).sum(1), 1 - np.exp(points)

def said(post):
    return {"status": post.status, "converged": post.converged, "verdict": post.verdict,
            "family": post.family, "mean": post.mean.tolist(), "std": post.std.tolist()}

def blas():
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

def tell(step):
    print(json.dumps(["step", step.stage, step.passes]), flush=True)

warnings.simplefilter("ignore")
"""


def fresh(**options):
    """What an uninterrupted fit of `Slow` finds."""
    return mixvi.fit(lambda w: (w - jnp.exp(w)).sum(), np.full(3, 0.5), **options)


def interrupted(code: str, stage: str, passes: int) -> list[dict]:
    """What `code` prints after it got SIGINT at such a step, one JSON object a line."""
    code = SLOW + textwrap.dedent(code)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told, sent = [], False
        for line in process.stdout:
            one = json.loads(line)
            if isinstance(one, dict):
                told.append(one)
            elif not sent and one[1] == stage and one[2] >= passes:
                sent = True
                process.send_signal(signal.SIGINT)
        error = process.stderr.read()
        process.wait(timeout=60)
    assert sent, f"{stage} was never told. {error[-2000:]}"
    assert process.returncode == 0, error[-2000:]
    return told


FIT = """
before = blas()
try:
    post = mixvi.fit(Slow(0.002), np.full(3, 0.5), callback=tell, on_interrupt={way!r}, {options})
    print(json.dumps(said(post)), flush=True)
except KeyboardInterrupt:
    print(json.dumps({{"raised": True}}), flush=True)
assert blas() == before
print(json.dumps(said(mixvi.fit(Slow(0.0), np.full(3, 0.5), {options}))), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "passes", "options", "where", "family"),
    [
        ("family", 1, 'family="eig"', "in the search over the bound", "mu"),  # climbed first
        ("family", 2, 'family="full", tol=1e-9', "in the search over the bound", "full"),
        ("verdict", 1, 'family="eig", diagnostics=1000', "before the verdict", "eig"),
        ("verdict", 0, 'family="laplace", diagnostics=5000', "before the verdict", "laplace"),
    ],
)
def test_ctrl_c_gives_back_what_there_is(stage, passes, options, where, family):
    post, again = interrupted(FIT.format(way="return", options=options), stage, passes)
    assert post["status"].startswith("Interrupted")
    assert where in post["status"]
    assert not post["converged"]
    assert post["verdict"].startswith("Do not trust")
    assert post["family"] == family
    whole = fresh(**eval(f"dict({options})"))
    # On its way from the mode (0) to the end.
    ends = np.minimum(0, whole.mean) - 0.1, np.maximum(0, whole.mean) + 0.1
    assert (ends[0] < post["mean"]).all()
    assert (post["mean"] < ends[1]).all()
    np.testing.assert_allclose(again["mean"], whole.mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(again["std"], whole.std, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "stage"), [("raise", "family"), ("return", "mode")])
def test_ctrl_c_is_raised_by_default_and_where_there_is_nothing(way, stage):
    told = interrupted(FIT.format(way=way, options='family="eig"'), stage, 0)
    assert told[0] == {"raised": True}
    np.testing.assert_allclose(told[1]["mean"], fresh(family="eig").mean, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_ctrl_c_while_a_program_compiles_leaves_a_process_that_works_and_ends():
    code = """
    import jax.numpy as jnp
    def f(w):
        for k in range(40):  # takes a second or more to compile
            w = w + 0.01 * jnp.sin((k + 1.0) * w)
        return (w - jnp.exp(w)).sum()
    threading.Timer(0.5, lambda: tell(mixvi.Step("compiling", 0, None, None, 1.0))).start()
    try:
        mixvi.fit(f, np.full(3, 0.5))
        print(json.dumps({"raised": False}), flush=True)
    except KeyboardInterrupt:
        print(json.dumps({"raised": True}), flush=True)
    print(json.dumps(said(mixvi.fit(f, np.full(3, 0.5)))), flush=True)
    print(json.dumps(said(mixvi.fit(lambda w: f(w), np.full(3, 0.5)))), flush=True)
    """
    raised, first, second = interrupted(code, "compiling", 0)
    assert raised["raised"]
    assert first == second
    assert first["converged"]


def test_who_waits_for_a_program_whose_compilation_is_interrupted_compiles_it():
    """And nothing is left behind that a later fit would wait for."""
    from mixvi._density._jax import Trace
    from mixvi._density._target import prepare

    target, _ = prepare(lambda w: -(w**2), 1.0, None, np.dtype(np.float64))
    trace, begun, got = Trace(target, np.dtype(np.float64)), threading.Event(), []
    point = jax.ShapeDtypeStruct((1,), np.float64)

    def interrupted(consts, operands, flat):
        begun.set()
        time.sleep(0.2)
        raise KeyboardInterrupt

    def whole(consts, operands, flat):
        return trace.function(consts, operands)(flat)

    def wait():
        begun.wait()
        got.append(trace.program("one", whole, point))

    thread = threading.Thread(target=wait)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        trace.program("one", interrupted, point)
    thread.join(timeout=20)
    assert len(got) == 1
    assert trace.program("one", interrupted, point) is got[0]


def test_a_callback_is_told_of_every_pass():
    steps: list[Step] = []
    post = mixvi.fit(
        logistic, np.zeros(3), logistic_data(n=80, dim=3), family="eig", callback=steps.append
    )
    stages = list(dict.fromkeys(step.stage for step in steps))
    assert stages == ["mode", "family", "verdict"]
    assert [s.passes for s in steps if s.stage == "mode"] == list(range(post.stats.mode_steps + 1))
    bounds = [s.bound for s in steps if s.stage == "family" and s.bound is not None]
    assert bounds == sorted(bounds)
    assert bounds[-1] == post.elbo_fixed
    assert steps[-1].passes == post.stats.passes
    assert steps[-1].gain_left < 1e-3
    seconds = [step.seconds for step in steps]
    assert seconds == sorted(seconds)
    assert seconds[-1] <= post.stats.seconds


def test_more_draws_are_a_stage_and_stein_steps_are_told():
    def banana(w):
        return -0.5 * (w[0] ** 2 + (w[1] - w[0] ** 2) ** 2 / 0.3) - 0.5 * (w[2] - w[1]) ** 2

    stages = []
    mixvi.fit(banana, np.zeros(3), family="full", callback=lambda step: stages.append(step.stage))
    assert "draws" in stages


@pytest.mark.parametrize("stage", ["mode", "family", "verdict"])
@pytest.mark.parametrize("error", [ValueError, TypeError, KeyError, mixvi.InputError])
def test_what_a_callback_raises_ends_the_fit(stage, error):
    def stop(step):
        if step.stage == stage:
            raise error("enough")

    with pytest.raises(error, match="enough") as caught:
        mixvi.fit(lambda w: -jnp.cosh(w).sum(), np.ones(2), family="eig", callback=stop)
    assert type(caught.value) is error


def test_a_callback_can_stop_a_fit_as_ctrl_c_does(tmp_path):
    def stop(step):
        if step.stage == "family" and step.bound is not None:
            raise KeyboardInterrupt

    how = {"data": logistic_data(n=80, dim=3), "family": "eig", "callback": stop}
    with pytest.warns(mixvi.NotConvergedWarning, match="Interrupted"):
        post = mixvi.fit(logistic, np.zeros(3), on_interrupt="return", **how)
    assert post.family in ("mu", "eig")
    assert post.stats.seconds > 0
    assert "Interrupted" in post.summary()
    again = mixvi.load(post.save(tmp_path / "interrupted"))
    assert (again.status, again.converged) == (post.status, False)
    with pytest.raises(KeyboardInterrupt):
        mixvi.fit(logistic, np.zeros(3), **how)


def test_interrupted_with_hyperparameters_on_their_way():
    def shrunk(w, log_alpha, y):
        prior = 0.5 * (log_alpha - jnp.exp(log_alpha) * w**2)
        return (prior - 0.5 * (y - w) ** 2).sum()

    seen = []

    def stop(step):
        seen.append(step)
        if step.bound is not None and len([s for s in seen if s.bound is not None]) == 3:
            raise KeyboardInterrupt

    y = np.array([2.0, -1.5, 3.0, 0.5, -2.2])
    with pytest.warns(mixvi.NotConvergedWarning, match="on the way to a mode"):
        post = mixvi.fit(shrunk, np.zeros(5), y, hyper=2.0, callback=stop, on_interrupt="return")
    best = -np.log((y**2).mean() - 1)
    assert abs(float(post.hyper) - best) < abs(2.0 - best)
    assert not post.hyper_report.converged
    np.testing.assert_allclose(post.mean, y / (1 + np.exp(post.hyper)), atol=1e-5)


def test_a_finished_start_goes_before_one_that_was_cut_short():
    def two(w):
        return jnp.logaddexp(-0.5 * (w + 6.0) ** 2, -0.5 * (w - 6.0) ** 2 - 1.0)

    whole = []

    def stop(step):
        whole.append(step.stage)
        if step.stage == "mode" and "verdict" in whole:
            raise KeyboardInterrupt

    with pytest.warns(mixvi.NotConvergedWarning, match="Interrupted"):
        post = mixvi.fit(
            two, -5.0, family="eig", n_restarts=8, callback=stop, on_interrupt="return"
        )
    assert float(post.mean) == pytest.approx(-6.0, abs=0.05)
    assert post.family == "eig"


def test_options_that_cannot_be():
    with pytest.raises(mixvi.InputError, match='on_interrupt must be one of "raise", "return"'):
        mixvi.fit(lambda w: -(w**2), 0.0, on_interrupt="stop")


def test_nobody_watches_another_threads_fit():
    seen, done = [], []

    def other(step):
        seen.append(step.stage)
        if not done:
            thread = threading.Thread(target=lambda: done.append(mixvi.laplace(normal, 1.0)))
            thread.start()
            thread.join()
            before = len(seen)
            mixvi.laplace(normal, 2.0)  # nor that of one inside
            assert len(seen) == before

    def normal(w):
        return -0.5 * w**2

    mixvi.laplace(normal, 3.0, callback=other, diagnostics=False)
    assert done
    assert set(seen) == {"mode", "family"}


# --- the line ---------------------------------------------------------------------------------


def test_the_line_says_stage_pass_bound_and_gain():
    step = Step("family", 12, -123.45678, 0.0312, 7.2)
    assert worded("fit", step) == "fit: family, pass 12, bound -123.4568, 0.03 nat to gain, 7 s"
    assert worded("laplace", Step("mode", 3, None, None, 4.0)) == "laplace: mode, step 3, 4 s"
    assert worded("fit", Step("compiling", 0, None, None, 4.0)) == "fit: compiling, 4 s"


def test_the_line_is_rewritten_and_cleared(capsys, monkeypatch):
    monkeypatch.setattr(_progress, "PATIENCE", 0.01)
    monkeypatch.setattr(_progress, "EVERY", 0.01)
    watch = Watch()
    with Line("fit", watch):
        time.sleep(0.1)
        watch.stage = "a longer stage"
        time.sleep(0.1)
    said = capsys.readouterr().err
    lines = said.split("\r")
    assert "\n" not in said
    assert any(line.startswith("fit: compiling") for line in lines)
    assert any(line.startswith("fit: a longer stage") for line in lines)
    assert lines[-1] == ""
    assert lines[-2] == " " * max(map(len, lines))  # all of it is wiped out


def test_a_short_fit_says_nothing(capsys):
    mixvi.laplace(lambda w: -(w**2), 1.0, progress=True)
    assert capsys.readouterr().err == ""


def test_threads_say_nothing_by_default(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    said = [_progress.is_shown(None)]
    thread = threading.Thread(target=lambda: said.append(_progress.is_shown(None)))
    thread.start()
    thread.join()
    assert said == [True, False]
    assert _progress.is_shown(True)
    assert not _progress.is_shown(False)


@pytest.mark.slow
def test_a_slow_fit_speaks_on_a_terminal_alone():
    code = SLOW + textwrap.dedent("""
        from mixvi._fit import _progress
        _progress.PATIENCE = 0.2
        mixvi.fit(Slow(0.0005), np.full(3, 0.5), family="eig", diagnostics=False)
    """)
    ours, theirs = pty.openpty()
    quiet = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    with subprocess.Popen([sys.executable, "-c", code], stderr=theirs) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            said += more
    os.close(ours)
    assert process.returncode == 0, said
    assert quiet.stderr == b""
    lines = said.decode().split("\r")
    assert any("fit: family, pass" in line and "nat to gain" in line for line in lines), lines
    assert lines[-1] == ""
    assert lines[-2].strip() == ""


def test_blas_threads_are_as_they_were_after_an_exception():
    def threads():
        return {one["num_threads"] for one in _controller().info() if one["user_api"] == "blas"}

    during = []

    def stop(step):
        during.append(threads())
        raise KeyboardInterrupt

    with _controller().limit(limits=2, user_api="blas"):
        with pytest.raises(KeyboardInterrupt):
            mixvi.laplace(lambda w: -(w**2), 1.0, callback=stop)
        assert (during, threads()) == ([{1}], {2})
