"""Many small problems over a cluster: results are files, written as they come."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float, PyTree

from .._density._data import unframed
from .._errors import InputError
from .._fit._many import fit_many as fit_many_here
from .._fit._posteriors import Posteriors
from .._law import _store
from ._dask import client_of, spoken
from ._work import same

ABOUT = "problems.json"
# Batches that are on the way for each thread of the cluster: one works, one waits.
AHEAD = 2
NUMBERS = ("mean", "std", "log_evidence", "elbo", "elbo_se", "khat", "converged")
WORDS = ("family", "trust", "status")


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
        about = _about_in(folder)
        if about is None:
            raise InputError(f"cluster: there are no results in {str(folder)!r}.")
        files = [_file(folder, k) for k in range(_n_batches(about["n"], about["batch"]))]
        if lacking := [one.name for one in files if not one.exists()]:
            raise InputError(
                f"cluster: {str(folder)!r} lacks {len(lacking)} of {len(files)} batches: call "
                "fit_many again, which goes on where it was."
            )
        parts = []
        for one in files:
            with np.load(one, allow_pickle=False) as stored:
                parts.append({name: stored[name] for name in (*NUMBERS, *WORDS)})
        whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return cls(folder, tuple(about["names"]), **whole)

    def __len__(self) -> int:
        return len(self.converged)


def fit_many(
    client: Any,
    log_density: Callable,
    init: PyTree,
    data: PyTree,
    folder: str | Path,
    *,
    batch: int = 500,
    progress: Callable[[int, int], Any] | None = None,
    **options: Any,
) -> Results:
    """Many problems of one shape, in batches over a cluster.

    Every batch is written into `folder` as soon as it is done. Called again after a kill it goes on
    with the batches that are not there; the numbers are the same.

    **Arguments:** `client`, a `distributed.Client` or the scheduler's address; `log_density`,
    `init`, `data` (problems on the first axis of every leaf) and `options` as for
    `mixvi.fit_many`; `batch`, problems that go together; `progress`, called with the problems that
    are done and their number after every batch.

    **Returns:** `Results`, which `Results.read(folder)` reads again.

    >>> import tempfile
    >>> import numpy as np
    >>> from distributed import Client
    >>> from mixvi import cluster
    >>> centres = np.array([[0.0, 1.0], [5.0, 2.0], [9.0, 9.0]])
    >>> def log_density(w, centre):
    ...     return -0.5 * ((w - centre) ** 2).sum()
    >>> with Client(processes=False, n_workers=1, dashboard_address=":0") as client:
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         found = cluster.fit_many(client, log_density, np.zeros(2), centres, folder)
    >>> found.mean.round(6).tolist()
    [[0.0, 1.0], [5.0, 2.0], [9.0, 9.0]]
    """
    client, folder = client_of(client), Path(folder)
    leaves, tree = jtu.tree_flatten(unframed(data, "data"))
    lengths = {np.shape(leaf)[:1] for leaf in leaves}
    if not leaves or () in lengths or len(lengths) > 1:
        raise InputError(
            "cluster.fit_many: every leaf of data must have the problems on its first axis, the "
            f"same number of them; got {sorted(lengths)}."
        )
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise InputError(f"cluster.fit_many: batch must be a positive integer, got {batch!r}.")
    n = len(leaves[0])
    about = {"n": n, "batch": batch, "asked": _digest((init, sorted(options.items())))}
    _refuse_others(folder, about)

    def some(k: int) -> PyTree:
        own = slice(k * batch, (k + 1) * batch)
        return jtu.tree_unflatten(tree, [np.asarray(leaf[own]) for leaf in leaves])

    done = 0
    with spoken(client):
        work = functools.partial(_fitted, log_density, init, options)
        there = client.submit(same, work, pure=False)
        for k in _as_they_come(client, there, some, folder, _n_batches(n, batch)):
            done += min(batch, n - k * batch)
            if progress is not None:
                progress(done, n)
    return Results.read(folder)


def _as_they_come(
    client: Any, work: Any, some: Callable[[int], PyTree], folder: Path, n_batches: int
) -> Iterator[int]:
    """Numbers of batches that are there, whoever comes first."""
    import distributed

    left = iter(range(n_batches))
    coming = distributed.as_completed([], with_results=False)
    numbers: dict[Any, tuple[int, str]] = {}

    def next_ones(room: int) -> Iterator[int]:
        """Sends batches while there is room; yields those that are there already."""
        for k in left:
            data = some(k)
            key = _digest(data)
            if _is_there(folder, k, key):
                yield k
                continue
            future = client.submit(_called, work, data, pure=False)
            numbers[future] = k, key
            coming.add(future)
            if len(numbers) >= room:
                return

    def room() -> int:
        return AHEAD * max(1, sum(client.nthreads().values()))

    yield from next_ones(room())
    while numbers:
        future = next(coming)
        k, key = numbers.pop(future)
        names, arrays = future.result()
        _write(folder, k, key, names, arrays)
        yield k
        yield from next_ones(room())


# --- on a worker --------------------------------------------------------------------------------


def _called(work: Callable, data: PyTree) -> Any:
    return work(data)


def _fitted(
    log_density: Callable, init: PyTree, options: dict[str, Any], data: PyTree
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    posts = fit_many_here(log_density, init, data, progress=False, **options)
    return posts.names, _arrays(posts)


def _arrays(posts: Posteriors) -> dict[str, np.ndarray]:
    def number(value: Any) -> float:
        return np.nan if value is None else float(value)

    words = {
        "family": np.array([post.family for post in posts]),
        "trust": np.array([str(post.trust) for post in posts]),
        "status": np.array([post.status for post in posts]),
    }
    return words | {
        "mean": np.stack([post.flat_mean for post in posts]),
        "std": np.stack([post.law.std for post in posts]),
        "log_evidence": np.array([number(post.log_evidence) for post in posts]),
        "elbo": np.array([number(post.elbo and post.elbo.value) for post in posts]),
        "elbo_se": np.array([number(post.elbo and post.elbo.se) for post in posts]),
        "khat": np.array([number(post.khat) for post in posts]),
        "converged": np.array([post.converged for post in posts]),
    }


# --- files --------------------------------------------------------------------------------------


def _n_batches(n: int, batch: int) -> int:
    return -(-n // batch)


def _file(folder: Path, k: int) -> Path:
    return folder / f"batch-{k:06}.npz"


def _is_there(folder: Path, k: int, key: str) -> bool:
    """Of the same data; a batch of others is refused."""
    path = _file(folder, k)
    if not path.exists():
        return False
    with np.load(path, allow_pickle=False) as stored:
        if str(stored["key"]) == key:
            return True
    raise InputError(
        f"cluster.fit_many: {str(path)!r} holds results of other data: give another folder, or "
        "remove that one."
    )


def _write(
    folder: Path, k: int, key: str, names: tuple[str, ...], arrays: dict[str, np.ndarray]
) -> None:
    about = _about_in(folder)
    if about is not None and "names" not in about:
        _write_about(folder, about | {"names": list(names)})
    try:
        _store.replace_with(
            _file(folder, k),
            lambda file: np.savez_compressed(file, key=np.array(key), **arrays),  # type: ignore[arg-type]
        )
    except OSError as err:
        raise InputError(
            f"cluster.fit_many: {str(folder)!r} cannot be written ({err.strerror}). What was "
            "finished is there; the same call goes on."
        ) from err


def _refuse_others(folder: Path, about: dict[str, Any]) -> None:
    known = _about_in(folder)
    if known is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write_about(folder, about)
        except OSError as err:
            raise InputError(
                f"cluster.fit_many: {str(folder)!r} cannot be written ({err.strerror})."
            ) from err
        return
    for what, said in (("n", "problems"), ("batch", "problems a batch")):
        if known[what] != about[what]:
            raise InputError(
                f"cluster.fit_many: {str(folder)!r} holds results of {known[what]:,} {said}, not "
                f"{about[what]:,}: give another folder, or remove that one."
            )
    if known["asked"] != about["asked"]:
        raise InputError(
            f"cluster.fit_many: {str(folder)!r} holds results from another init or other options: "
            "give another folder, or remove that one."
        )


def _about_in(folder: Path) -> dict[str, Any] | None:
    path = folder / ABOUT
    return json.loads(path.read_text()) if path.exists() else None


def _write_about(folder: Path, about: dict[str, Any]) -> None:
    _store.replace_with(folder / ABOUT, lambda file: file.write(json.dumps(about).encode()))


def _digest(tree: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for leaf in jtu.tree_leaves(tree):
        array = np.asarray(leaf)
        if array.dtype.kind == "O":
            digest.update(repr(leaf).encode())
        else:
            digest.update(f"{array.shape}{array.dtype.str}".encode() + array.tobytes())
    return digest.hexdigest()
