"""Many posteriors of the same shape: a sequence whose numbers also come stacked."""

from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Any, overload

import numpy as np
from jaxtyping import Bool, Float, PyTree

from .._errors import InputError
from ._posterior import Posterior
from ._summary import table


class Posteriors:
    """What `fit_many` returns. Index it for one `Posterior`, slice it for fewer, or read the
    stacked numbers: every array has the problems on its first axis. A problem that failed has
    NaNs in its place, `converged` False, and the reason in `status`.

    >>> import numpy as np
    >>> import mixvi
    >>> centres = np.array([[0.0, 1.0], [5.0, 2.0], [9.0, 9.0]])
    >>> posts = mixvi.fit_many(lambda w, c: -0.5 * ((w - c) ** 2).sum(), np.zeros(2), data=centres)
    >>> len(posts), posts.mean.shape, posts[1].mean.round(2)
    (3, (3, 2), array([5., 2.]))
    """

    def __init__(self, posts: Iterable[Posterior]):
        given = list(posts)
        if not given:
            raise InputError("Posteriors: at least one posterior is needed.")
        if any(post.structure != given[0].structure for post in given):
            raise InputError("Posteriors: the posteriors have parameters of different structure.")
        self._made: list[Posterior | None] = [*given]
        self._make: Callable[[int], Posterior] | None = None

    @classmethod
    def lazily(cls, n: int, make: Callable[[int], Posterior]) -> "Posteriors":
        """Each is made when it is first looked at."""
        posts = cls.__new__(cls)
        posts._made, posts._make = [None] * n, make
        return posts

    def _post(self, index: int) -> Posterior:
        post = self._made[index]
        if post is None:
            assert self._make is not None
            post = self._made[index] = self._make(index)
        return post

    @property
    def _posts(self) -> list[Posterior]:
        return [self._post(index) for index in range(len(self))]

    def __reduce__(self) -> tuple:
        """Pickled as what they are, all made."""
        return Posteriors, (self._posts,)

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[Posterior]:
        return (self._post(index) for index in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Posterior: ...
    @overload
    def __getitem__(self, index: slice) -> "Posteriors": ...
    def __getitem__(self, index):
        if isinstance(index, slice):
            return Posteriors(self._post(i) for i in range(*index.indices(len(self))))
        return self._post(range(len(self))[index])

    def _stacked(self, name: str) -> np.ndarray:
        missing = np.nan
        values = [getattr(post, name) for post in self._posts]
        return np.stack([np.asarray(missing if value is None else value) for value in values])

    def _stacked_trees(self, name: str) -> PyTree:
        return self._post(0)._shown.stacked(getattr(post, name) for post in self._posts)

    @property
    def names(self) -> tuple[str, ...]:
        return self._post(0).names

    @property
    def mean(self) -> PyTree:
        return self._stacked_trees("mean")

    @property
    def std(self) -> PyTree:
        return self._stacked_trees("std")

    @property
    def cov(self) -> Float[np.ndarray, "batch dim dim"]:
        return self._stacked("cov")

    @property
    def elbo(self) -> Float[np.ndarray, " batch"]:
        """The bound on fresh draws of each (its standard error is in `posts[i].elbo`)."""
        return np.array([np.nan if p.elbo is None else p.elbo.value for p in self._posts])

    @property
    def gap(self) -> Float[np.ndarray, " batch"]:
        return self._stacked("gap")

    @property
    def log_evidence(self) -> Float[np.ndarray, " batch"]:
        return self._stacked("log_evidence")

    @property
    def khat(self) -> Float[np.ndarray, " batch"]:
        return self._stacked("khat")

    @property
    def converged(self) -> Bool[np.ndarray, " batch"]:
        return self._stacked("converged")

    @property
    def status(self) -> list[str]:
        return [post.status for post in self._posts]

    @property
    def verdict(self) -> list[str]:
        return [post.verdict for post in self._posts]

    def sample(self, key: Any, n: int) -> PyTree:
        """`n` draws of each, leaves of shape (batch, n, ...); the same standard normals for all."""
        draws = (post.sample(key, n) for post in self._posts)
        return self._post(0)._shown.stacked(draws)

    def summary(self, most: int = 10) -> str:
        """How many are to be trusted, weighed or left; then those that are not, with the reason."""
        title, counts, wanting, more = self._told(most)
        lines = [title, *(f"{count:>6}  {kind}" for kind, count in counts)]
        lines += [f"{name} {verdict}" for name, verdict in wanting]
        return "\n".join(lines + ([more] if more else []))

    __str__ = summary

    def _repr_html_(self) -> str:
        title, counts, wanting, more = self._told(most=10)
        rows = [([str(count)], [kind]) for kind, count in counts]
        rows += [([name], [verdict]) for name, verdict in wanting]
        said = f"<p>{escape(more)}</p>" if more else ""
        return f"<div><p><b>{escape(title)}</b></p>{table(rows)}{said}</div>"

    def _told(self, most: int) -> tuple[str, list[tuple[str, int]], list[tuple[str, str]], str]:
        """A title, how many there are of each kind, those not to be trusted with the reason, and a
        word on more of them."""
        verdicts = self.verdict
        kinds = [verdict.split(":")[0] for verdict in verdicts]
        counts = [(kind, kinds.count(kind)) for kind in dict.fromkeys(kinds)]
        wanting = [i for i, kind in enumerate(kinds) if kind not in ("Trust", "Not judged")]
        left = len(wanting) - most
        more = f"... and {left} more: summary(most=...), .verdict" if left > 0 else ""
        shown = [(f"[{i}]", verdicts[i]) for i in wanting[:most]]
        return f"{len(self)} posteriors of {self._post(0).dim} parameters", counts, shown, more

    def __repr__(self) -> str:
        return f"Posteriors({len(self)} of {self._post(0).dim} parameters)"
