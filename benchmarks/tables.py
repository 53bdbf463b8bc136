"""Tables with their splits, read from the stored files, and those that scikit-learn brings."""

import dataclasses
import os
import pathlib
import platform

import numpy as np

RAETSCH = ("banana", "german", "heart", "thyroid", "titanic")
SEVERAL = ("iris", "wine", "glass")
SKLEARN = ("breast_cancer", "digits", "diabetes")
REGRESSION = ("diabetes", "boston", "concrete")
# The eight of the README, then scikit-learn's; its wine is the one above.
ALL = (*RAETSCH, *SEVERAL, *SKLEARN)
TEST_SHARE = 0.3


@dataclasses.dataclass(frozen=True)
class Split:
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    def first(self, n: int) -> "Split":
        """With at most `n` training rows; splits are in random order."""
        return dataclasses.replace(self, x=self.x[:n], y=self.y[:n])


def folder() -> pathlib.Path:
    """MIXVI_DATA, or the folder beside the checkout."""
    beside = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    return pathlib.Path(os.environ.get("MIXVI_DATA", beside))


def split(name: str, i: int = 0) -> Split:
    """A published split of a Raetsch set; otherwise 70/30 at random, by the seed `i`, with the
    shares of all classes kept."""
    if name in RAETSCH:
        with np.load(folder() / f"raetsch_{name}.npz") as file:
            x, y = file["x"].astype(float), file["t"]
            train, test = file["train"][i], file["test"][i]
        return Split(x[train], y[train], x[test], y[test])
    from sklearn.model_selection import train_test_split

    x, y = whole(name)
    classes = None if name in REGRESSION else y
    parts = train_test_split(x, y, test_size=TEST_SHARE, random_state=i, stratify=classes)
    x, x_test, y, y_test = parts
    return Split(x, y, x_test, y_test)


def whole(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows, where splits are not published."""
    if name in SKLEARN:
        import sklearn.datasets

        return getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    with np.load(folder() / f"{name}.npz") as file:
        return file["x"].astype(float), file["y"] if name in REGRESSION else file["t"]


def standardised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(0)) / x.std(0)


def machine() -> str:
    import scipy
    import sklearn

    return (
        f"{os.cpu_count()} CPU cores, {platform.machine()}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"
    )
