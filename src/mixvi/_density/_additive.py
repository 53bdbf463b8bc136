"""Log densities that are a prior and a sum over rows."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Float

from .._errors import InputError
from ._target import checked_number


@jtu.register_pytree_with_keys_class
@dataclasses.dataclass(frozen=True, eq=False)
class Additive:
    """A log density that is `log_prior(w)` and the sum of `log_likelihood(w, rows)` over rows.

    Call it as any log density; with `data=mixvi.Pieces...` the sum is taken piece by piece.

    **Arguments:**

    - `log_prior`: a function of the parameters, `log_prior(w)`, or `log_prior(w, hyper)` where
      `hyper=` is given: one number.
    - `log_likelihood`: `log_likelihood(w, rows)`, or `log_likelihood(w, hyper, rows)`: one number
      for every row of the data, not their sum. What it says of a row may depend on that row only.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> model = mixvi.Additive(
    ...     lambda w: -0.5 * (w**2).sum(),
    ...     lambda w, rows: jax.nn.log_sigmoid(rows["sign"] * (rows["x"] @ w)),
    ... )
    >>> x, sign = jnp.array([[-1.0, 1.0], [0.5, 1.0], [2.0, 1.0]]), jnp.array([-1, 1, 1])
    >>> rows = {"x": x, "sign": sign}
    >>> in_memory = mixvi.fit(model, jnp.zeros(2), data=rows)
    >>> in_pieces = mixvi.fit(model, jnp.zeros(2), data=mixvi.Pieces.arrays(rows))
    >>> bool(abs(in_memory.mean - in_pieces.mean).max() < 1e-10)
    True
    """

    log_prior: Any
    log_likelihood: Any

    def __post_init__(self):
        for field in dataclasses.fields(self):
            given = getattr(self, field.name)
            if not callable(given):
                raise InputError(
                    f"Additive: {field.name} must be a function, not {type(given).__name__}."
                )

    # A pytree whose leaves are the functions: a module's arrays go into compiled code as arguments.

    def tree_flatten_with_keys(self) -> tuple[tuple, None]:
        names = [field.name for field in dataclasses.fields(self)]
        return tuple((jtu.GetAttrKey(name), getattr(self, name)) for name in names), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple) -> "Additive":
        made = object.__new__(cls)  # its leaves may be anything here
        for field, child in zip(dataclasses.fields(cls), children, strict=True):
            object.__setattr__(made, field.name, child)
        return made

    def __call__(self, w: Any, *extra: Any) -> Float[Array, ""]:
        return self.prior(w, *extra) + self.by_row(w, *extra).sum()

    def prior(self, w: Any, *extra: Any) -> Float[Array, ""]:
        """`extra`: hyperparameters, where there are any, and rows."""
        if not extra:
            raise InputError("Additive: the rows are missing: give them by data=.")
        value = self.log_prior(w, *extra[:-1])
        return checked_number(value, jnp.result_type(float), "log_prior")

    def by_row(self, w: Any, *extra: Any) -> Float[Array, " n"]:
        """The log likelihood of every row."""
        if not extra:
            raise InputError("Additive: the rows are missing: give them by data=.")
        n = {jnp.shape(leaf)[:1] for leaf in jtu.tree_leaves(extra[-1])}
        values = jnp.asarray(self.log_likelihood(w, *extra))
        if values.ndim != 1 or n != {values.shape}:
            rows = ", ".join(str(shape[0]) for shape in sorted(n) if shape)
            raise InputError(
                f"Additive: log_likelihood returned shape {values.shape} for {rows} rows: it must "
                "give one number for every row, not their sum."
            )
        return values
