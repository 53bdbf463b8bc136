"""Many small problems over a cluster: results are files, written as they come."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree

from .._density._constraints import constrained
from .._density._data import unframed
from .._density._make import density_of
from .._density._probe import probed
from .._density._structure import parameters
from .._density._target import prepare
from .._errors import InputError
from .._fit._many import fit_many as fit_many_here
from .._fit._options import FitOptions, checked
from .._fit._posteriors import Posteriors
from ._client import as_they_come, connected, spoken, submitted
from ._files import Folder, Results, digest_of
from ._travel import Kept, Packed, packed, unpacked
from ._work import same

# What `mixvi.fit_many` takes and `fit` does not.
SHARED = ("hyper", "constraints", "init_batched", "hyper_batched", "strategy")
BATCH = "a batch of problems", "take a smaller batch="
WORK_KEPT = 4


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
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise InputError(f"cluster.fit_many: batch must be a positive integer, got {batch!r}.")
    problems = _Problems(init, unframed(data, "data"), options)
    n = problems.n
    work = packed(functools.partial(_fitted, log_density, problems.options), "the log density")
    about: dict[str, Any] = {
        "n": n,
        "batch": batch,
        "asked": digest_of((init, options)),
        "data": digest_of(problems.data),
        "values": problems.values(log_density),
    }
    there = Folder(Path(folder), about)
    with connected(client) as client, there.opened():
        numbers = range(there.n_batches)
        left = [k for k in numbers if not there.has(k)]

        def reported(k: int) -> None:
            nonlocal done
            done += min(batch, n - k * batch)
            if progress is not None:
                progress(done, n)

        done = 0
        for k in sorted(set(numbers) - set(left)):
            reported(k)
        with spoken(client, BATCH):
            travelling = submitted(client, same, work) if left else None

            def tasks() -> Iterator[tuple[int, Callable, tuple]]:
                for k in left:
                    first, last = k * batch, min(n, (k + 1) * batch)
                    yield k, _called, (travelling, *problems.some(first, last), first)

            for k, (names, arrays) in as_they_come(client, tasks()):
                there.write(k, names, arrays)
                reported(k)
        return Results.read(folder)


class _Problems:
    """What differs from problem to problem, apart from what all share."""

    def __init__(self, init: PyTree, data: PyTree, options: dict[str, Any]):
        self.init, self.options = init, dict(options)
        self.data, self.hyper = data, self.options.pop("hyper", None)
        self.init_batched = bool(options.get("init_batched", False))
        self.hyper_batched = bool(options.get("hyper_batched", False))
        self.checked = checked(_own(options))
        lengths = {np.shape(leaf)[:1] for leaf in jtu.tree_leaves(data)}
        if not lengths or () in lengths or len(lengths) > 1 or lengths == {(0,)}:
            raise InputError(
                "cluster.fit_many: every leaf of data must have the problems on its first axis, "
                f"the same number of them, at least one; got {sorted(lengths)}."
            )
        ((self.n,),) = lengths

    def some(self, first: int, last: int) -> tuple[PyTree, PyTree, PyTree]:
        """Starts, data and hyperparameters."""
        own = slice(first, last)

        def taken(tree: PyTree) -> PyTree:
            return jtu.tree_map(lambda leaf: np.asarray(leaf)[own], tree)

        init = self._start(own) if self.init_batched else self.init
        hyper = taken(self.hyper) if self.hyper_batched else self.hyper
        return init, taken(self.data), hyper

    def _start(self, own: Any) -> PyTree:
        """Constants are the same for all."""
        leaves, tree = jtu.tree_flatten(self.init)
        pairs = zip(leaves, parameters(self.init), strict=True)
        return tree.unflatten(leaf if array is None else array[own] for leaf, array in pairs)

    def values(self, log_density: Callable) -> list[float | None]:
        """Numbers by which the log density of the first problem is known again."""
        asked = self.checked
        _, data, hyper = self.some(0, 1)
        data = jtu.tree_map(lambda leaf: leaf[0], data)
        if self.hyper_batched:
            hyper = jtu.tree_map(lambda leaf: leaf[0], hyper)
        init = self._start(0) if self.init_batched else self.init
        target, start = prepare(log_density, init, data, asked.dtype, hyper)
        target, start = constrained(target, start, self.options.get("constraints"))
        density = density_of(log_density, target, asked.dtype, asked.memory).inner
        return probed(density, start.astype(np.float64), np.asarray(target.theta))


def _own(options: dict[str, Any]) -> FitOptions:
    """Those that `fit` knows."""
    return {k: v for k, v in options.items() if k not in SHARED}  # type: ignore[return-value]


# --- on a worker --------------------------------------------------------------------------------

_work = Kept(WORK_KEPT)


def _called(work: Packed, init: PyTree, data: PyTree, hyper: PyTree, first: int) -> Any:
    return _work.get(work.name, lambda: unpacked(work))(init, data, hyper, first)


def _fitted(
    log_density: Callable,
    options: dict[str, Any],
    init: PyTree,
    data: PyTree,
    hyper: PyTree,
    first: int,
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    try:
        posts = fit_many_here(log_density, init, data, hyper=hyper, progress=False, **options)
    except InputError as err:
        n = len(jtu.tree_leaves(data)[0])
        raise InputError(
            f"cluster.fit_many, problems {first} to {first + n - 1} (numbers below begin there): "
            f"{err}"
        ) from err
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
