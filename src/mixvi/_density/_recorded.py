"""Answers of a density kept in a file, for a fit that may be killed.

A fit is deterministic: begun again it asks the same questions. What took long to answer is read
from the file, what took no time is computed again, to the same bits; so it soon is where it was.
"""

import contextlib
import hashlib
import json
import os
import struct
import time
import warnings
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays._draws import Nodes
from .._errors import InputError
from ._probe import probed, same
from ._protocol import BestGaussian, Density, EvidenceSlopes, Expectation, Points

MAGIC = b"mixvi-checkpoint-2\n"
# Of a record: its key, the length of what follows, and its checksum.
HEAD = struct.Struct("<16sQI")
# Seconds below which an answer is not worth writing, and bytes a second that a disk takes: an
# answer that is had faster than it is written is not written either.
LEAST_SECONDS, DISK = 0.01, 1e8
DRAWS_KNOWN = 16

Arrays = list[np.ndarray]


class Checkpoint:
    """A file of answers by their questions. Records are appended; one that was cut off is cut
    away."""

    def __init__(self, path: Path, about: dict[str, Any]):
        self.path, self.places = path, dict[bytes, tuple[int, int]]()
        self.is_full = False
        try:
            # Without a buffer, which would keep what a full disk has not taken, and try again.
            self.file = open(path, "r+b" if path.exists() else "w+b", buffering=0)  # noqa: SIM115
        except OSError as err:
            raise _unwritable(path, err) from err
        try:
            if not lock(self.file):
                raise InputError(
                    f"checkpoint: another fit is writing {str(path)!r}: name a file for each."
                )
            self._read(about)
        except BaseException:
            self.file.close()
            raise

    def _read(self, about: dict[str, Any]) -> None:
        begin = self.file.read(len(MAGIC))
        if not begin or (MAGIC.startswith(begin) and begin != MAGIC):  # new, or killed at once
            self._begin(about)
            return
        if begin != MAGIC:
            raise InputError(
                f"checkpoint: {str(self.path)!r} is no checkpoint of mixvi: name another file."
            )
        line = self.file.readline()
        if not line.endswith(b"\n"):
            self._begin(about)
            return
        self._refuse_another(json.loads(line), about)
        size = os.fstat(self.file.fileno()).st_size
        while True:
            at, head = self.file.tell(), self.file.read(HEAD.size)
            if len(head) < HEAD.size:
                break
            key, length, checksum = HEAD.unpack(head)
            if at + HEAD.size + length > size:
                break
            if zlib.crc32(self.file.read(length)) != checksum:
                break
            self.places[key] = at + HEAD.size, length
        self.file.truncate(at)
        self.file.seek(at)

    def _begin(self, about: dict[str, Any]) -> None:
        self.file.seek(0)
        self.file.truncate()
        try:
            self._put(MAGIC + json.dumps(about).encode() + b"\n")
        except OSError as err:
            raise _unwritable(self.path, err) from err

    def _put(self, text: bytes) -> None:
        """All of it, or nothing."""
        at, left = self.file.tell(), memoryview(text)
        try:
            while left:
                left = left[self.file.write(left) :]
        except OSError:
            self.file.truncate(at)
            self.file.seek(at)
            raise

    def _refuse_another(self, known: dict[str, Any], about: dict[str, Any]) -> None:
        was, now = known["values"], about["values"]
        if known["parameters"] != about["parameters"]:
            other = "other parameters"
        elif known["start"] != about["start"]:
            other = "another start"
        elif not same(was, now):
            other = f"another log density or other data ({was[0]} at the start, now {now[0]})"
            if same(was[:1], now[:1]):
                other = "another log density or other data"
        else:
            return
        raise InputError(
            f"checkpoint: {str(self.path)!r} is of a fit with {other}. Name another file, or "
            "remove that one to begin anew."
        )

    def read(self, key: bytes) -> Arrays | None:
        if key not in self.places:
            return None
        at, length = self.places[key]
        end = self.file.tell()
        self.file.seek(at)
        stored = BytesIO(self.file.read(length))
        self.file.seek(end)
        found = []
        while stored.tell() < length:
            found.append(np.load(stored, allow_pickle=False))
        return found

    def write(self, key: bytes, answer: Arrays) -> None:
        """What cannot be written, on a full disk, say, is told once; the fit goes on."""
        if self.is_full or key in self.places:
            return
        stored, at = BytesIO(), self.file.tell()
        for one in answer:
            np.save(stored, one, allow_pickle=False)
        text = stored.getvalue()
        try:
            self._put(HEAD.pack(key, len(text), zlib.crc32(text)) + text)
        except OSError as err:
            self.is_full = True
            warnings.warn(
                f"checkpoint: {str(self.path)!r} cannot be written any more ({err}). The fit goes "
                "on; were it killed now, it would go on from what was written until then.",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        self.places[key] = at + HEAD.size, len(text)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what a full disk did not take
            self.file.close()


def _unwritable(path: Path, err: OSError) -> InputError:
    return InputError(f"checkpoint: {str(path)!r} cannot be written: {err}.")


def lock(file: Any) -> bool:
    """Whether it is this process's until it is closed, or its process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # where there are no such locks
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Recorded(Density):
    """Answers as `inner` does; dear answers once."""

    def __init__(self, inner: Density, checkpoint: Checkpoint):
        self.inner, self.checkpoint = inner, checkpoint
        for name in PASSED_ON:
            setattr(self, name, getattr(inner, name))
        self._theta = b""
        self._known: deque[tuple[np.ndarray, bytes]] = deque(maxlen=DRAWS_KNOWN)

    @property
    def called(self) -> str:
        return self.inner.called

    def prepare(self):
        self.inner.prepare()

    def expects_over_draws(self, root):
        return self.inner.expects_over_draws(root)

    def approached(self, point):
        return self.inner.approached(point)

    def own_evidence(self, near, tol):
        return self.inner.own_evidence(near, tol)

    def at(self, theta):
        other = Recorded(self.inner.at(theta), self.checkpoint)
        other._theta, other._known = np.asarray(theta, dtype=np.float64).tobytes(), self._known
        return other

    # --- what may take long -------------------------------------------------------------------

    def values(self, points):
        return self._asked("values", self.inner.values, [points], first)

    def gradients(self, points):
        return self._asked("gradients", self.inner.gradients, [points], tuple)

    def joint_gradients(self, points):
        return self._asked("joint_gradients", self.inner.joint_gradients, [points], tuple)

    def expect(self, mean, root, rule):
        return self._asked("expect", self.inner.expect, [mean, root, rule], numbers_of(Expectation))

    def expected_by_row(self, mean, root, rule):
        return self._asked("rows", self.inner.expected_by_row, [mean, root, rule], first)

    def curvature(self, point):
        return self._asked("curvature", self.inner.curvature, [point], numbers_of(tuple_of))

    def product(self, point, vector):
        return self._asked("product", self.inner.product, [point, vector], numbers_of(tuple_of))

    def evidence_slopes(self, mode, root):
        make = numbers_of(EvidenceSlopes)
        return self._asked("evidence_slopes", self.inner.evidence_slopes, [mode, root], make)

    def best_gaussian(self, mean, root, rule, gain):
        def flat(*arguments: Any) -> tuple:
            found = self.inner.best_gaussian(*arguments)
            if found is None:
                return ()
            return (*found[:2], *found.evaluated_at, *found[3:])

        def made(parts: Arrays) -> BestGaussian | None:
            if not parts:
                return None
            mean, root, at_mean, at_root, elbo, slope, left, passes = parts
            at = at_mean, at_root
            return BestGaussian(mean, root, at, float(elbo), slope, float(left), int(passes))

        return self._asked("best_gaussian", flat, [mean, root, rule, np.float64(gain)], made)

    def _asked(
        self,
        question: str,
        answer: Callable,
        arguments: Sequence[Any],
        made: Callable[[Arrays], Any],
    ) -> Any:
        key = self._key(question, arguments)
        known = self.checkpoint.read(key)
        if known is not None:
            return made(known)
        began = time.perf_counter()
        found = answer(*arguments)
        seconds = time.perf_counter() - began
        parts = found if isinstance(found, tuple) else (found,)
        arrays = [np.asarray(part) for part in parts]
        if seconds > LEAST_SECONDS + sum(one.nbytes for one in arrays) / DISK:
            self.checkpoint.write(key, arrays)
        return made(arrays)

    def _key(self, question: str, arguments: Sequence[Any]) -> bytes:
        digest = hashlib.blake2b(question.encode() + b"\0" + self._theta, digest_size=16)
        for one in arguments:
            if isinstance(one, Nodes | Points):  # used again and again
                digest.update(type(one).__name__.encode() + self._of_draws(one.z))
            else:
                digest.update(_bytes_of(np.asarray(one)))
        return digest.digest()

    def _of_draws(self, z: np.ndarray) -> bytes:
        for known, digest in self._known:
            if known is z:
                return digest
        made = hashlib.blake2b(_bytes_of(z), digest_size=16).digest()
        self._known.append((z, made))
        return made


# What a density says of itself.
PASSED_ON = (
    *("dim", "resolution", "resolution_over_draws", "n_hyper", "n_predictors", "n_rows"),
    *("log_concave", "is_checked", "mode_tol", "dense_newton", "has_own_evidence"),
    *("has_best_gaussian", "values_at_once", "in_pieces"),
)


def _bytes_of(array: np.ndarray) -> bytes:
    return f"{array.shape}{array.dtype.str}".encode() + np.ascontiguousarray(array).tobytes()


def first(parts: Arrays) -> np.ndarray:
    return parts[0]


def tuple_of(*parts: Any) -> tuple:
    return parts


def numbers_of(kind: Callable) -> Callable[[Arrays], Any]:
    """Its parts, those of no dimension as numbers."""
    return lambda parts: kind(*(one.item() if one.ndim == 0 else one for one in parts))


@contextlib.contextmanager
def recorded(
    inner: Density, path: Any, names: Sequence[str], start: np.ndarray, theta: np.ndarray
) -> Iterator[tuple[Density, Callable[[], None]]]:
    """`inner` with its answers in the file `path`, which holds those of the same fit already if
    that was killed; and what to call when they are not needed any more."""
    try:
        path = Path(os.fspath(path))
    except TypeError:
        raise InputError(f"checkpoint must be a path, got {type(path).__name__}.") from None
    if path.is_dir():
        raise InputError(f"checkpoint: {str(path)!r} is a folder: name a file in it.")
    if not path.parent.is_dir():
        raise InputError(f"checkpoint: there is no folder {str(path.parent)!r}.")
    about = {
        "parameters": hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest(),
        "start": hashlib.blake2b(_bytes_of(start), digest_size=16).hexdigest(),
        "values": probed(inner, start, theta),
    }
    checkpoint = Checkpoint(path, about)
    try:
        yield Recorded(inner, checkpoint), checkpoint.path.unlink
    finally:
        checkpoint.close()
