"""The sentence for each kind of case, before and after.

python benchmarks/sentences.py --rows FILE --label after     one line a case, appended
python benchmarks/sentences.py --rows FILE --page            the table
"""

import argparse
import json
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mixvi

PARTS = pathlib.Path(__file__).resolve().parents[1] / "docs" / "results" / "parts"
ROWS = PARTS / "sentences_rows.jsonl"
CASES: dict[str, Callable[[], dict[str, Any]]] = {}


def case(about: str) -> Callable:
    def named(make: Callable) -> Callable:
        CASES[about] = make
        return make

    return named


def two_groups(n: int = 60) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.concatenate([rng.normal(-3, 1, n // 2), rng.normal(3, 1, n // 2)])


def mixture(w, y):
    each = -0.5 * (y[:, None] - w["m"]) ** 2
    return jax.nn.logsumexp(each, axis=1).sum() - 0.5 * (w["m"] ** 2).sum() / 25


@case("a Gaussian")
def gaussian():
    return {"log_density": lambda w: -0.5 * w @ w, "init": np.zeros(3)}


@case("logistic regression, 200 x 5")
def logistic():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((200, 5))
    y = (rng.random(200) < 1 / (1 + np.exp(-x[:, 0]))).astype(float)

    def log_density(w, data):
        eta = data[0] @ w
        return (data[1] * eta - jnp.logaddexp(0.0, eta)).sum() - 0.5 * w @ w

    return {"log_density": log_density, "init": np.zeros(5), "data": (x, y)}


@case("labels that switch: a mixture of two")
def labels():
    return {"log_density": mixture, "init": {"m": np.array([-1.0, 1.0])}, "data": two_groups()}


@case("the same, twenty restarts")
def labels_with_restarts():
    return {**labels(), "n_restarts": 20}


@case("the same, accepted")
def labels_accepted():
    return {**labels(), "symmetric": "accept"}


@case("the same, in order")
def labels_in_order():
    return {**labels(), "constraints": {"m": "ordered"}}


@case("a sign that flips: one factor")
def sign():
    rng = np.random.default_rng(3)
    y = rng.standard_normal((50, 1)) * np.array([1.0, -0.8, 1.2]) + 0.5 * rng.standard_normal(
        (50, 3)
    )

    def log_density(w, y):
        away = y - jnp.outer(w["score"], w["loading"])
        prior = w["score"] @ w["score"] + w["loading"] @ w["loading"]
        return -2 * (away**2).sum() - 0.5 * prior

    start = {"loading": np.array([1.0, -0.5, 1.0]), "score": np.full(50, 0.1)}
    return {"log_density": log_density, "init": start, "data": y}


@case("a phase")
def phase():
    rng = np.random.default_rng(4)
    t = np.linspace(0, 6, 40)
    y = 1.5 * np.sin(2 * t + 0.5) + 0.3 * rng.standard_normal(40)

    def log_density(w, data):
        t, y = data
        fit = w["height"] * jnp.sin(2 * t + w["phase"])
        return -5.5 * ((y - fit) ** 2).sum() - 0.5 * (w["height"] ** 2 + w["phase"] ** 2) / 9

    return {"log_density": log_density, "init": {"height": 1.0, "phase": 0.0}, "data": (t, y)}


@case("two modes 8 sds apart in 20 dimensions")
def far():
    other = np.full(20, 8 / np.sqrt(20))

    def log_density(w):
        return jnp.logaddexp(-0.5 * w @ w, jnp.log(0.5) - 0.5 * ((w - other) ** 2).sum())

    return {"log_density": log_density, "init": np.zeros(20)}


@case("eight schools, non-centred")
def schools():
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    se = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def log_density(w):
        theta = w["mu"] + jnp.exp(w["log_tau"]) * w["z"]
        prior = (w["mu"] / 5) ** 2 + w["z"] @ w["z"]
        half_cauchy = w["log_tau"] - jnp.log1p(jnp.exp(2 * w["log_tau"]) / 25)
        return half_cauchy - 0.5 * (prior + (((y - theta) / se) ** 2).sum())

    return {"log_density": log_density, "init": {"mu": 0.0, "log_tau": 0.0, "z": np.zeros(8)}}


@case("a banana")
def banana():
    def log_density(w):
        return -0.5 * w[0] ** 2 / 4 - 2 * (w[1] - w[0] ** 2 / 2) ** 2

    return {"log_density": log_density, "init": np.zeros(2)}


@case("heavy tails: Student, 3 df, Laplace")
def heavy():
    def log_density(w):
        return (-2 * jnp.log1p(w**2 / 3)).sum()

    return {"log_density": log_density, "init": np.full(3, 0.1), "family": "laplace"}


@case("skewed: log of a Gamma(0.5)")
def skewed():
    return {"log_density": lambda w: 0.5 * w - jnp.exp(w), "init": 0.0}


@case("correlated, mean field")
def mean_field():
    precision = np.linalg.inv(0.95 + 0.05 * np.eye(5))
    return {
        "log_density": lambda w: -0.5 * w @ precision @ w,
        "init": np.zeros(5),
        "family": "diag",
    }


@case("a bound that was not declared")
def bound():
    def log_density(w):
        return jnp.where(w > 0, 0.5 * jnp.log(jnp.abs(w)) - w, -jnp.inf)

    return {"log_density": log_density, "init": 1.0, "family": "laplace"}


def said(about: str) -> str:
    given = CASES[about]()
    parts = (given.pop("log_density"), given.pop("init"), given.pop("data", None))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mixvi.fit(*parts, **given).verdict
    except (mixvi.MixviError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def page(rows: pathlib.Path) -> str:
    told: dict[str, dict[str, str]] = {}
    for line in rows.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        told.setdefault(row["case"], {})[row["label"]] = row["verdict"].replace("|", "/")
    lines = ["| case | before | after |", "|---|---|---|"]
    lines += [
        f"| {name} | {its.get('before', '-')} | {its['after']} |" for name, its in told.items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=pathlib.Path, default=ROWS, help="where rows are kept")
    parser.add_argument("--label", default="after")
    options = parser.parse_args()
    before = options.rows.read_text(encoding="utf-8").splitlines() if options.rows.exists() else []
    others = [line for line in before if json.loads(line)["label"] != options.label]
    rows = [{"label": options.label, "case": about, "verdict": said(about)} for about in CASES]
    lines = [*others, *(json.dumps(row) for row in rows)]
    options.rows.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(page(options.rows))


if __name__ == "__main__":
    main()
