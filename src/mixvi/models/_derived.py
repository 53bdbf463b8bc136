"""What one method says, others say in closed form: where a subclass changes the first, the others
would still speak of its parent. They are then taken from the most general class again."""

from collections.abc import Mapping
from typing import Any


def definers(cls: type, name: str) -> list[type]:
    """The classes that define a name, the one that counts first."""
    return [one for one in cls.__mro__ if name in vars(one)]


def is_newer(cls: type, name: str, other: str) -> bool:
    """Whether `name` is defined further down than `other`."""
    return cls.__mro__.index(definers(cls, name)[0]) < cls.__mro__.index(definers(cls, other)[0])


def renew(cls: type, derived: Mapping[str, tuple[str, ...]]) -> None:
    """`derived`: the names that follow from each name."""
    for name, others in derived.items():
        if len(definers(cls, name)) < 3:
            continue  # what the general class leaves open is said for the first time
        for other in others:
            if is_newer(cls, name, other):
                setattr(cls, other, vars(definers(cls, other)[-1])[other])


def value_of(derivatives: Any) -> Any:
    """`log_prob` from `derivatives`. These are held: a subclass whose own `log_prob` asks its
    parent's gets the parent's."""

    def log_prob(self, y, eta, hyper):
        return derivatives(self, y, eta, hyper, 0)[0]

    log_prob.__dict__["follows"] = True
    return log_prob
