"""A fitted estimator in words: what it is, how well it predicts, how well it was integrated."""

from typing import Any

import numpy as np

MOST_COEFFICIENTS = 20


def summary(model: Any) -> str:
    lines = [_about(model), f"prediction    {_predicts(model)}"]
    if hasattr(model, "coef_") and np.ndim(model.coef_) == 1:
        lines += ["", *_coefficients(model), ""]
    return "\n".join([*lines, model.posterior_.summary()])


def _about(model: Any) -> str:
    basis = model._model.basis
    about = f"{model.n_basis_} {basis.name} basis functions and a constant"
    if getattr(basis, "per_feature", False):
        about += ", a width for each feature"
    return f"{model._model.likelihood.name} on {about}"


def _predicts(model: Any) -> str:
    """Of rows left out; a Gaussian may be exact and the model still a poor one."""
    loo = model._loo
    total = float(loo.weight.sum())
    words = f"rows left out: {model.loo_ / total:.3f} ± {model.loo_se_ / total:.3f} nats each"
    return f"{words}, {model._score_left_out()}"


def _coefficients(model: Any) -> list[str]:
    names = list(getattr(model, "feature_names_in_", [f"x{i}" for i in range(len(model.coef_))]))
    width = max(12, *(len(str(name)) for name in names))
    order = np.argsort(-np.abs(model.coef_ / np.maximum(model.coef_sd_, 1e-300)))
    shown = np.sort(order[:MOST_COEFFICIENTS])
    lines = [f"{'coefficient':<{width}} {'mean':>11} {'sd':>11}"]
    for i in shown:
        lines.append(f"{names[i]!s:<{width}} {model.coef_[i]:>11.4g} {model.coef_sd_[i]:>11.4g}")
    if len(shown) < len(names):
        lines.append(f"... the {len(shown)} of {len(names)} that are furthest from zero, in sds")
    lines.append(f"{'intercept':<{width}} {model.intercept_:>11.4g} {model.intercept_sd_:>11.4g}")
    return lines
