"""A fit that is killed goes on from its checkpoint and ends with the same numbers."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import mixvi
from mixvi import models
from mixvi._density import _recorded

SLOW = """
import json, sys, time
import numpy as np
import mixvi

asked = 0

def slow(w):  # bent, so that there is much to ask; every call takes 20 ms
    global asked
    asked += 1
    print(asked, file=sys.stderr, flush=True)
    time.sleep(0.02)
    (x, y), rest = w.T[:2], w[:, 2:]
    bent, off = y - x**2, rest - x[:, None]
    pull = np.sinh(off)
    value = -0.5 * (x - 1) ** 2 - bent**2 - np.cosh(off).sum(1)
    return value, np.column_stack([-(x - 1) + 4 * bent * x + pull.sum(1), -2 * bent, -pull])

post = mixvi.fit(mixvi.from_numpy(slow, batched=True), np.zeros(6),
                 checkpoint=sys.argv[1] if len(sys.argv) > 1 else None)
print(json.dumps([asked, post.flat_mean.tobytes().hex(), post.root.tobytes().hex()]))
"""


def started(*arguments: str) -> subprocess.Popen:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", SLOW, *arguments], **pipes)


def ended(process: subprocess.Popen) -> list:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-2000:]
    return json.loads(out.splitlines()[-1])


def killed_after(n: int, path) -> None:
    process = started(str(path))
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip() == str(n):
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


@pytest.mark.slow
def test_a_killed_fit_goes_on_and_ends_with_the_same_bits(tmp_path):
    whole, *numbers = ended(started())
    path = tmp_path / "fit.checkpoint"
    for _ in range(2):
        killed_after(whole // 3, path)
    with open(path, "ab") as file:  # what a kill in the middle of a write leaves
        file.write(b"half a record")
    left, *again = ended(started(str(path)))
    assert again == numbers
    # Each time a third was done; what has to be asked anew is the question that was cut off, and
    # those that tell whether it is the same density.
    assert left <= whole - 2 * (whole // 3 - 4)
    assert not path.exists()


class Slow(mixvi.Density):
    """`-sum cosh(w - centre)`, which counts what it is asked."""

    dim = 2

    def __init__(self, centre: float = 0.0):
        self.centre, self.asked = centre, 0

    def gradients(self, points):
        self.asked += 1
        off = points - self.centre
        return -np.cosh(off).sum(1), -np.sinh(off)


@pytest.fixture
def everything_is_slow(monkeypatch):
    monkeypatch.setattr(_recorded, "LEAST_SECONDS", -1.0)
    monkeypatch.setattr(_recorded, "DISK", np.inf)


def fit_until(n: int, density: mixvi.Density, path) -> None:
    """Stopped at its `n`-th step."""
    steps = []

    def stop(step):
        steps.append(step)
        if len(steps) >= n:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        mixvi.fit(density, np.zeros(2), callback=stop, checkpoint=path)


@pytest.mark.usefixtures("everything_is_slow")
def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    path = tmp_path / "fit.checkpoint"
    fit_until(2, Slow(), path)
    with pytest.raises(mixvi.InputError, match="with another log density or other data"):
        mixvi.fit(Slow(3.0), np.zeros(2), checkpoint=path)
    with pytest.raises(mixvi.InputError, match="with another start"):
        mixvi.fit(Slow(), np.ones(2), checkpoint=path)
    with pytest.raises(mixvi.InputError, match="with other parameters"):
        mixvi.fit(Slow(), {"a": np.zeros(2)}, checkpoint=path)
    other = tmp_path / "data.csv"
    other.write_text("x,y\n1,2\n")
    with pytest.raises(mixvi.InputError, match="no checkpoint of mixvi"):
        mixvi.fit(Slow(), np.zeros(2), checkpoint=other)
    assert other.read_text() == "x,y\n1,2\n"
    for wrong, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "x", "no folder"),
        (3.5, "path"),
    ):
        with pytest.raises(mixvi.InputError, match=said):
            mixvi.fit(Slow(), np.zeros(2), checkpoint=wrong)


@pytest.mark.usefixtures("everything_is_slow")
def test_what_is_known_is_not_asked_again(tmp_path):
    path = tmp_path / "fit.checkpoint"
    alone = Slow()
    expected = mixvi.fit(alone, np.zeros(2))
    fit_until(4, first := Slow(), path)
    size = path.stat().st_size
    post = mixvi.fit(second := Slow(), np.zeros(2), checkpoint=path)
    # What no checkpoint can save: the check of the gradient, and the log density at the start.
    assert second.asked < alone.asked
    assert first.asked + second.asked > alone.asked
    assert size > 0
    np.testing.assert_array_equal(post.flat_mean, expected.flat_mean)
    np.testing.assert_array_equal(post.root, expected.root)
    assert post.verdict == expected.verdict
    assert not path.exists()


@pytest.mark.usefixtures("everything_is_slow")
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_record_is_left_out(tmp_path, damage):
    path = tmp_path / "fit.checkpoint"
    fit_until(4, Slow(), path)
    whole = path.read_bytes()
    spoilt = whole[:-7] if damage == "cut" else whole[:-7] + bytes([whole[-7] ^ 1]) + whole[-6:]
    path.write_bytes(spoilt)
    post = mixvi.fit(Slow(), np.zeros(2), checkpoint=path)
    np.testing.assert_array_equal(post.root, mixvi.fit(Slow(), np.zeros(2)).root)


@pytest.mark.usefixtures("everything_is_slow")
def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path, monkeypatch):
    path, write = tmp_path / "fit.checkpoint", _recorded.Checkpoint.write
    n_written = []

    class Full:
        """A file on a disk that is full."""

        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, text):
            raise OSError(28, "No space left on device")

    def write_until_full(self, key, answer):
        n_written.append(1)
        if len(n_written) == 3:
            self.file = Full(self.file)
        write(self, key, answer)

    monkeypatch.setattr(_recorded.Checkpoint, "write", write_until_full)
    with pytest.warns(RuntimeWarning, match="No space left on device.*The fit goes on"):
        post = mixvi.fit(Slow(), np.zeros(2), checkpoint=path)
    np.testing.assert_array_equal(post.root, mixvi.fit(Slow(), np.zeros(2)).root)


@pytest.mark.usefixtures("everything_is_slow")
def test_two_fits_do_not_share_a_file(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "fit.checkpoint"

    def again(step):
        with pytest.raises(mixvi.InputError, match="another fit is writing"):
            mixvi.fit(Slow(), np.zeros(2), checkpoint=path)
        raise RuntimeError("seen")

    with pytest.raises(RuntimeError, match="seen"):
        mixvi.fit(Slow(), np.zeros(2), checkpoint=path, callback=again)


@pytest.mark.usefixtures("everything_is_slow")
def test_every_kind_of_density_is_recorded(tmp_path):
    """JAX, hyperparameters, quadrature, a model in closed form: the same bits with a file."""
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3))
    y = (x[:, 0] + rng.normal(0, 1, 60) > 0).astype(float)

    def learnt(w, hyper, data):
        eta = data["x"] @ w
        prior = -0.5 * jnp.exp(hyper["log_alpha"]) * (w @ w) + 1.5 * hyper["log_alpha"]
        return (data["y"] * eta - jnp.logaddexp(0.0, eta)).sum() + prior - 2 * jnp.log(2 * jnp.pi)

    model = models.Model(models.RBF(5), models.Softmax(2))
    density = model.density(x, y)
    predictor = mixvi.LinearPredictor(x, lambda eta: y * eta - jnp.logaddexp(0.0, eta), 1.0)
    cases = [
        dict(log_density=learnt, init=np.zeros(3), data={"x": x, "y": y}, hyper={"log_alpha": 0.0}),
        dict(log_density=density, init=density.init, hyper=density.hyper),
        dict(log_density=predictor, init=np.zeros(3)),
        dict(log_density=Slow(), init=np.ones(2), constraints={"w": "positive"}),
    ]
    for k, case in enumerate(cases):
        path = tmp_path / f"{k}.checkpoint"
        expected = mixvi.fit(**case, key=k)
        with pytest.raises(RuntimeError):  # the whole fit, but for its last words
            mixvi.fit(**case, key=k, checkpoint=path, callback=Stop(6))
        assert path.stat().st_size > 500
        post = mixvi.fit(**case, key=k, checkpoint=path)
        np.testing.assert_array_equal(post.flat_mean, expected.flat_mean)
        np.testing.assert_array_equal(post.root, expected.root)
        assert post.summary() == expected.summary()


class Stop:
    def __init__(self, n: int):
        self.left = n

    def __call__(self, step) -> None:
        self.left -= 1
        if self.left <= 0:
            raise RuntimeError("stopped")
