"""Are the probabilities true? Reliability curves of Laplace, MVI_eig and a calibrated SVC.

On banana (4900 test points), or two moons where that set is not at hand; leaves
report/calibration.png.
"""

import argparse
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sklearn.calibration import CalibratedClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from example_table import banana
from mixvi import metrics
from mixvi.estimators import MVIClassifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("report"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    name, x, y, x_test, y_test = banana()
    models = {
        "Laplace": MVIClassifier("laplace"),
        "MVI_eig": MVIClassifier("eig"),
        "SVC, calibrated": make_pipeline(StandardScaler(), CalibratedClassifierCV(SVC())),
    }
    picture, axes = plt.subplots(figsize=(5.6, 5.2))
    axes.plot([0, 1], [0, 1], color="0.7", lw=1)
    for label, model in models.items():
        proba = model.fit(x, y).predict_proba(x_test)
        curve = metrics.reliability_curve(y_test, proba)
        ece = metrics.expected_calibration_error(y_test, proba)
        brier = metrics.brier_score(y_test, proba)
        axes.plot(curve.predicted, curve.observed, "o-", ms=4, label=f"{label}: ECE {ece:.3f}")
        print(f"{label}: ECE {ece:.4f}, Brier score {brier:.4f}")
    axes.set(xlabel="predicted probability", ylabel="observed frequency", title=name)
    axes.legend(frameon=False)
    picture.tight_layout()
    path = options.out / "calibration.png"
    picture.savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
