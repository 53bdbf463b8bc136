"""Our estimators and scikit-learn's by name, and the log predictive density of each.

Probabilities below 1e-12 count as that, for all. Those of scikit-learn stand in a pipeline with a
StandardScaler; ours standardise by themselves. A regressor's density: ours its own; BayesianRidge
and the Gaussian process a normal with their own standard deviation, noise included; gradient
boosting a normal whose standard deviation is that of the residuals in a five-fold cross-validation
of the training rows (made after the clock has stopped).
"""

import importlib
import os
from typing import Any

FLOOR = 1e-12
CLASSIFIERS = ("mixvi", "mixvi gp", "logistic", "gp", "svc", "boosting")
REGRESSORS = ("mixvi", "mixvi gp", "ridge", "gp", "boosting")
TOLD = {
    "mixvi": "MVI",
    "mixvi linear": "MVI, linear",
    "mixvi gp": "MVI, GP",
    "mixvi gp matern52": "MVI, GP, Matern 5/2",
    "mixvi gp gaussian": "MVI, GP, Gaussian noise",
    "logistic": "LogisticRegression",
    "ridge": "BayesianRidge",
    "gp": "sklearn GP",
    "gp matern52": "sklearn GP, Matern 5/2",
    "svc": "calibrated SVC",
    "boosting": "HistGradientBoosting",
}
MODULES = {
    "logistic": ("linear_model",),
    "ridge": ("linear_model",),
    "gp": ("gaussian_process",),
    "gp matern52": ("gaussian_process",),
    "svc": ("svm", "calibration", "model_selection"),
    "boosting": ("ensemble",),
}


def one_thread() -> None:
    """For processes to come, unless told otherwise. Idle threads spin: where anything else runs,
    small fits would take 100 times longer."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def imported(method: str) -> None:
    """All that `made` needs, so that it can be timed apart."""
    if method.startswith("mixvi"):
        importlib.import_module("mixvi.estimators")
        return
    for module in (*MODULES[method], "pipeline", "preprocessing"):
        importlib.import_module(f"sklearn.{module}")


def made(method: str, n_features: int, classifies: bool) -> Any:
    return (
        ours(method, classifies)
        if method.startswith("mixvi")
        else peer(method, n_features, classifies)
    )


def ours(method: str, classifies: bool) -> Any:
    from mixvi.estimators import MVIClassifier, MVIRegressor

    words = method.split()[1:]
    settings: dict[str, Any] = {}
    for word in words:
        if word in ("gp", "linear"):
            settings["basis"] = word
        elif word == "gaussian":
            settings["noise"] = word
        else:
            settings["kernel"] = word
    return (MVIClassifier if classifies else MVIRegressor)(**settings)


def peer(method: str, n_features: int, classifies: bool) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if method == "boosting":  # trees need no scale
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        kind = HistGradientBoostingClassifier if classifies else HistGradientBoostingRegressor
        return kind(random_state=0)
    if method == "logistic":
        from sklearn.linear_model import LogisticRegression

        model: Any = LogisticRegression(max_iter=1000)
    elif method == "ridge":
        from sklearn.linear_model import BayesianRidge

        model = BayesianRidge()
    elif method == "svc":
        model = calibrated_svc(n_features)
    else:
        model = gaussian_process(method, n_features, classifies)
    return make_pipeline(StandardScaler(), model)


def calibrated_svc(n_features: int) -> Any:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    gammas = [gamma / n_features for gamma in (0.1, 0.3, 1.0, 3.0)]
    grid = {"C": [0.3, 1.0, 10.0, 100.0], "gamma": gammas}
    return CalibratedClassifierCV(GridSearchCV(SVC(), grid, cv=3), cv=3)


def gaussian_process(method: str, n_features: int, classifies: bool) -> Any:
    """One width and one amplitude, learnt from one start: the usual distance of rows."""
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

    width = n_features**0.5
    shape = Matern(width, nu=2.5) if method.endswith("matern52") else RBF(width)
    kernel = ConstantKernel(1.0) * shape
    if classifies:
        return GaussianProcessClassifier(kernel, random_state=0)
    return GaussianProcessRegressor(kernel + WhiteKernel(0.1), normalize_y=True, random_state=0)


def scores(method: str, model: Any, split: Any, classifies: bool) -> dict[str, float]:
    """Log predictive density a row, and the error: the share of rows that are classified wrongly,
    or the mean square divided by the variance of the test targets."""
    import numpy as np

    y = split.y_test
    if classifies:
        proba = model.predict_proba(split.x_test)
        own = proba[np.arange(len(y)), np.searchsorted(model.classes_, y)]
        wrong = model.classes_[proba.argmax(1)] != y
        return {"lpd": float(np.log(np.maximum(own, FLOOR)).mean()), "error": float(wrong.mean())}
    if method.startswith("mixvi"):
        mean = model.predict(split.x_test)
        lpd = model.log_predictive_density(split.x_test, y, pointwise=True)
    else:
        mean, sd = _mean_and_sd(method, model, split)
        lpd = -0.5 * ((y - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))
    square = np.mean((y - mean) ** 2)
    return {"lpd": float(np.mean(lpd)), "error": float(square / np.var(y)), "mse": float(square)}


def _mean_and_sd(method: str, model: Any, split: Any) -> tuple[Any, Any]:
    import numpy as np

    if method != "boosting":
        return model.predict(split.x_test, return_std=True)
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_predict

    left_out = cross_val_predict(clone(model), split.x, split.y, cv=5)
    return model.predict(split.x_test), np.sqrt(np.mean((split.y - left_out) ** 2))


def predicted(model: Any, x: Any, classifies: bool) -> Any:
    return model.predict_proba(x) if classifies else model.predict(x)


def told(model: Any) -> dict[str, Any]:
    """What one of ours says of itself."""
    post = model.posterior_
    return {
        "verdict": post.verdict.split(":")[0].split(".")[0],
        "family": post.family,
        "converged": bool(post.converged),
        "n_basis": int(model.n_basis_),
        "widths": getattr(model.hyper_.get("log_width"), "ndim", 0) > 0,
        "tried": len(model.choices_),
    }
