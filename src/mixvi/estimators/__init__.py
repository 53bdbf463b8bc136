"""scikit-learn estimators. They need scikit-learn: pip install 'mixvi[sklearn]'."""

try:
    import sklearn as _sklearn
except ImportError as err:
    raise ImportError("mixvi.estimators needs scikit-learn: pip install 'mixvi[sklearn]'") from err

from ._base import shared_n_basis as shared_n_basis
from ._classifier import MVIClassifier as MVIClassifier
from ._regressor import MVIRegressor as MVIRegressor

del _sklearn
