"""Small tables in files, and the command run as a shell runs it."""

import csv
import json
from pathlib import Path

import numpy as np

import mixvi_cli


def people(n: int = 60, seed: int = 0) -> dict[str, list[str]]:
    """One table with a target of every kind; `noise` says nothing."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.integers(18, 80, n), 20, 75)
    height = np.round(np.clip(rng.normal(170, 10, n), 158, 182), 1)
    city = rng.choice(["Rome", "Paris", "Oslo"], n)
    member = rng.choice(["yes", "no"], n)
    eta = (age - 45) / 12 - 1.5 * (city == "Rome") + 0.8 * (member == "yes")
    bought = np.where(rng.random(n) < 1 / (1 + np.exp(-eta)), "bought", "left")
    return {
        "age": [str(one) for one in age],
        "height": [str(one) for one in height],
        "city": city.tolist(),
        "member": member.tolist(),
        "did": bought.tolist(),
        "spent": [f"{one:.3f}" for one in 20 + 3 * eta + 0.5 * rng.standard_t(4, n)],
        "visits": [str(one) for one in rng.poisson(np.exp(0.4 * eta))],
        "plan": np.where(eta + 0.7 * rng.standard_normal(n) < -1, "a", "b").tolist(),
    }


FEATURES = ("age", "height", "city", "member")


def only(table: dict[str, list[str]], *names: str) -> dict[str, list[str]]:
    return {name: list(table[name]) for name in names}


def changed(table: dict[str, list[str]], name: str, row: int, text: str) -> dict[str, list[str]]:
    """A copy with one cell that differs."""
    made = {key: list(cells) for key, cells in table.items()}
    made[name][row] = text
    return made


def written(path: Path, table: dict[str, list[str]], separator: str = ",") -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return path


class Ran:
    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> dict:
        return json.loads(self.out)


def ran(capsys, *args: object) -> Ran:
    """Exit code and what was said."""
    capsys.readouterr()
    code = mixvi_cli.main([str(one) for one in args])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return Ran(code, out, err)
