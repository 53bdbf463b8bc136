"""What a fit took, and a few numbers of its end."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Stats:
    """None where a number does not apply: a Laplace approximation has no draws.

    `mode_steps`: Newton steps to the mode. `gradients`, `values`: what the log density was asked
    for, at single points (a Hessian counts as many gradients as there are dimensions); `passes`:
    over all draws or nodes; `products`: Hessians times a vector. `draws`, `draws_kind`: the last
    ones. `gradient`: the bound's largest at the end, per standard deviation. `gain_left`: nats
    still to be had. `draw_loss`: nats that the choice of draws costs. `modes`, `share`: of several
    starts, distinct modes and this one's share of their mass. `components`:
    of a mixture. `seconds`: wall time.
    """

    mode_steps: int = 0
    key: int | str = 0
    dtype: str = "float64"
    gradients: int = 0
    values: int = 0
    passes: int | None = None
    products: int | None = None
    draws: int | None = None
    draws_kind: str | None = None
    optimiser: str | None = None
    gradient: float | None = None
    gain_left: float | None = None
    draw_loss: float | None = None
    modes: int | None = None
    share: float | None = None
    components: int | None = None
    seconds: float | None = None

    @classmethod
    def from_file(cls, fields: dict[str, Any]) -> "Stats":
        """Of this version or an earlier one: what is not known any more is left out."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in fields.items() if name in known})
