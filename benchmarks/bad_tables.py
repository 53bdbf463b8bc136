"""Hard and bad tables given to the estimators, and what each of them gets; printed by itself."""

import json
import warnings

import numpy as np

import mixvi
from mixvi.estimators import MVIClassifier, MVIRegressor

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 3))
Y = (X[:, 0] + 0.5 * rng.standard_normal(60) > 0).astype(int)
WIDE = rng.standard_normal((50, 10_000))
GAP = np.r_[np.linspace(-2, -1, 25), np.linspace(1, 2, 25)][:, None]


def classes(model, x):
    proba = model.predict_proba(x)
    return (
        f"probabilities from {proba.min():.3f} to {proba.max():.3f}, error "
        f"{100 * np.mean(model.predict(x) != model._labels):.0f}%"
    )


def classify(x, y, **settings):
    model = MVIClassifier(n_basis=10, **settings).fit(x, y)
    model._labels = y
    return classes(model, x)


def regress(x, y, **settings):
    model = MVIRegressor(n_basis=10, **settings).fit(x, y)
    mean = model.predict(x)
    return f"predictions from {mean.min():.3g} to {mean.max():.3g}"


def with_nan():
    bad = X.copy()
    bad[7, 1] = np.nan
    return bad


CASES = {
    "a target without noise": lambda: regress(X, X[:, 0]),
    "perfectly separable classes": lambda: classify(GAP, (GAP[:, 0] > 0).astype(int)),
    "one class only": lambda: classify(X, np.ones(60)),
    "one class only, classes= given": lambda: classify(X, np.ones(60), classes=[0, 1]),
    "labels are noise": lambda: classify(X, rng.integers(0, 2, 60)),
    "two constant columns, one of them 1e9": lambda: classify(
        np.c_[X, np.full(60, 1e9), np.zeros(60)], Y
    ),
    "all columns constant": lambda: classify(np.ones((60, 3)), Y),
    "10,000 features, 50 rows": lambda: classify(WIDE, (WIDE[:, 0] > 0).astype(int)),
    "the same, linear basis": lambda: classify(WIDE, (WIDE[:, 0] > 0).astype(int), basis="linear"),
    "every row ten times": lambda: classify(np.repeat(X, 10, 0), np.repeat(Y, 10)),
    "the same row with both labels": lambda: classify(np.zeros((20, 2)), np.arange(20) % 2),
    "a NaN in the table": lambda: classify(with_nan(), Y),
    "an infinite target": lambda: regress(X, np.where(np.arange(60) == 3, np.inf, X[:, 0])),
    "one row": lambda: regress(X[:1], Y[:1]),
    "two rows": lambda: classify(X[:2], [0, 1]),
    "no rows": lambda: classify(X[:0], Y[:0]),
    "text in the table": lambda: classify(np.full((60, 2), "a"), Y),
    "a constant target": lambda: regress(X, np.full(60, 4.2)),
    "targets near 1e12": lambda: regress(X, 1e12 + X[:, 0]),
    "one target of 1e9": lambda: regress(X, np.where(np.arange(60) == 3, 1e9, X[:, 0])),
    "counts that are negative": lambda: regress(X, Y - 1, noise="poisson"),
    "negative sample weights": lambda: MVIClassifier().fit(X, Y, sample_weight=-np.ones(60)),
    "X and y of different length": lambda: classify(X, Y[:10]),
    "a column more at prediction": lambda: MVIClassifier(n_basis=5).fit(X, Y).predict(np.c_[X, Y]),
    "prediction before fitting": lambda: MVIClassifier().predict(X),
}


def outcome(call) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mixvi.NotConvergedWarning)
        try:
            return str(call())
        except Exception as err:
            return f"{type(err).__name__}: {' '.join(str(err).split())}"


def main() -> None:
    print("| table | what comes back |\n|---|---|")
    for name, call in CASES.items():
        print(f"| {name} | {json.dumps(outcome(call), ensure_ascii=False)[1:-1][:230]} |")


if __name__ == "__main__":
    main()
