"""A folder of results: what was asked, and a file for each batch of problems."""

import contextlib
import dataclasses
import hashlib
import inspect
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float

from .._density._probe import same
from .._density._recorded import lock
from .._errors import InputError
from .._law import _store

ABOUT, LOCK = "problems.json", ".lock"
NUMBERS = ("mean", "std", "log_evidence", "elbo", "elbo_se", "khat", "converged")
WORDS = ("family", "trust", "status")
# What a file that is not one of ours, or not whole, raises when it is read.
SPOILT = (zipfile.BadZipFile, ValueError, KeyError, EOFError, OSError)


@dataclasses.dataclass(frozen=True)
class Results:
    """What `cluster.fit_many` has left in a folder; one row for each problem, in their order.

    `names` of the parameters; `mean` and `std` (problems, parameters) of the flat unbounded
    parameters; `log_evidence`, `elbo` with `elbo_se`, `khat`; `converged`; `family`, `trust` and
    `status` in words. A problem that failed has NaNs, and the reason in its `status`.

    >>> from mixvi import cluster
    >>> cluster.Results.read("nowhere")
    Traceback (most recent call last):
    mixvi._errors.InputError: cluster: there are no results in 'nowhere'.
    """

    folder: Path
    names: tuple[str, ...]
    mean: Float[np.ndarray, "n dim"]
    std: Float[np.ndarray, "n dim"]
    log_evidence: Float[np.ndarray, " n"]
    elbo: Float[np.ndarray, " n"]
    elbo_se: Float[np.ndarray, " n"]
    khat: Float[np.ndarray, " n"]
    converged: np.ndarray
    family: np.ndarray
    trust: np.ndarray
    status: np.ndarray

    @classmethod
    def read(cls, folder: str | Path) -> "Results":
        """Of a folder that holds all of them."""
        folder = Path(folder)
        about = about_in(folder)
        if about is None:
            raise InputError(f"cluster: there are no results in {str(folder)!r}.")
        numbers = range(n_batches(about["n"], about["batch"]))
        parts = [one for k in numbers if (one := _read(_file(folder, k))) is not None]
        if lacking := len(numbers) - len(parts):
            raise InputError(
                f"cluster: {str(folder)!r} lacks {lacking} of {len(numbers)} batches: call "
                "fit_many again, which goes on where it was."
            )
        whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return cls(folder, tuple(about["names"]), **whole)

    def __len__(self) -> int:
        return len(self.converged)


class Folder:
    """Where `fit_many` writes; one process at a time. `about`: what is asked of how many."""

    def __init__(self, path: Path, about: dict[str, Any]):
        self.path, self.about = path, about
        self.n_batches = n_batches(about["n"], about["batch"])

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            file = open(self.path / LOCK, "a+")  # noqa: SIM115
        with file:
            if not lock(file):
                raise InputError(
                    f"cluster.fit_many: another process is writing into {str(self.path)!r}: wait "
                    "for it, or give another folder."
                )
            known = about_in(self.path)
            if known is None:
                if any(self.path.glob("batch-*.npz")):
                    raise InputError(
                        f"cluster.fit_many: {str(self.path)!r} holds results, and {ABOUT}, which "
                        "says what of, is gone or not whole: give another folder."
                    )
                self._write_about()
            else:
                self._refuse_others(known)
            yield

    def _refuse_others(self, known: dict[str, Any]) -> None:
        for what, said in (("n", "problems"), ("batch", "problems a batch")):
            if known[what] != self.about[what]:
                self._refuse(f"of {known[what]:,} {said}, not {self.about[what]:,}")
        for what, said in (
            ("asked", "from another init or other options"),
            ("data", "of other data"),
        ):
            if known[what] != self.about[what]:
                self._refuse(said)
        if not same(known["values"], self.about["values"]):
            self._refuse("of another log density")
        self.about = known

    def _refuse(self, said: str) -> None:
        raise InputError(
            f"cluster.fit_many: {str(self.path)!r} holds results {said}: give another folder, or "
            "remove that one."
        )

    def has(self, k: int) -> bool:
        """Whether a batch is there, whole; what is not is made again."""
        return _read(_file(self.path, k)) is not None

    def write(self, k: int, names: tuple[str, ...], arrays: dict[str, np.ndarray]) -> None:
        with self._writing():
            if "names" not in self.about:
                self.about["names"] = list(names)
                self._write_about()
            _store.replace_with(
                _file(self.path, k),
                lambda file: np.savez_compressed(file, **arrays),  # type: ignore[arg-type]
            )

    def _write_about(self) -> None:
        with self._writing():
            text = json.dumps(self.about).encode()
            _store.replace_with(self.path / ABOUT, lambda file: file.write(text))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as err:
            raise InputError(
                f"cluster.fit_many: {str(self.path)!r} cannot be written ({err.strerror}). What "
                "was finished is there; the same call goes on."
            ) from err


def n_batches(n: int, batch: int) -> int:
    return -(-n // batch)


def about_in(folder: Path) -> dict[str, Any] | None:
    try:
        return json.loads((folder / ABOUT).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def _file(folder: Path, k: int) -> Path:
    return folder / f"batch-{k:06}.npz"


def _read(path: Path) -> dict[str, np.ndarray] | None:
    """None where there is no file, or not a whole one."""
    try:
        # NumPy does not close a file that is no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in (*NUMBERS, *WORDS)}
    except SPOILT:
        return None


# --- what was asked -----------------------------------------------------------------------------


def digest_of(tree: Any) -> str:
    """The same in another process for the same arrays, numbers, words and settings."""
    digest = hashlib.blake2b(digest_size=16)
    for path, leaf in jtu.tree_leaves_with_path(tree, is_leaf=lambda one: one is None):
        digest.update(f"{path}".encode() + _told(leaf))
    return digest.hexdigest()


def _told(leaf: Any) -> bytes:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, np.ndarray | np.generic | jax.Array):
        array = np.asarray(leaf)
        return f"{array.shape}{array.dtype.str}".encode() + array.tobytes()
    if isinstance(leaf, str | int | float | bool | None | bytes):
        return repr(leaf).encode()
    if inspect.isroutine(leaf) or isinstance(leaf, type):
        return f"{leaf.__module__}.{leaf.__qualname__}".encode()
    # A family, draws: what it is and what it holds, not where in memory.
    held = sorted(getattr(leaf, "__dict__", {}).items())
    return f"{type(leaf).__qualname__}{digest_of(held)}".encode()
