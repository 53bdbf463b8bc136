"""scikit-learn estimators. They need scikit-learn: pip install 'mixvi[sklearn]'."""

try:
    # Clusters are what a first fit needs; they take longer to import than many fits.
    import sklearn.cluster as _sklearn
except ImportError as err:
    raise ImportError("mixvi.estimators needs scikit-learn: pip install 'mixvi[sklearn]'") from err

from ._base import shared_n_basis as shared_n_basis
from ._classifier import MVIClassifier as MVIClassifier
from ._regressor import MVIRegressor as MVIRegressor

del _sklearn
