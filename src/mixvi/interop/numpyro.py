"""NumPyro models as they are: `fit(model, *args)`, and the guide `AutoMVI`.

from mixvi.interop import numpyro as mvi

fitted = mvi.fit(model, x, y)
fitted.sample(0, 1000)
"""

try:
    import numpyro  # noqa: F401
except ImportError as err:
    raise ImportError("this takes NumPyro: pip install 'mixvi[numpyro]'") from err

from ._numpyro_fit import fit as fit
from ._numpyro_fitted import Fitted as Fitted
from ._numpyro_guide import AutoMVI as AutoMVI
