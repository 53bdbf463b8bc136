"""Pictures of posteriors and of predictions. Needs matplotlib: `pip install 'mixvi[plots]'`."""

try:
    import matplotlib.pyplot  # noqa: F401
except ImportError as error:
    raise ImportError("mixvi.plots needs matplotlib: pip install 'mixvi[plots]'") from error

from ._posterior import ellipse as ellipse
from ._posterior import marginals as marginals
from ._posterior import pairs as pairs
from ._posterior import path as path
from ._predictions import calibration as calibration
from ._predictions import confusion as confusion
from ._predictions import coverage as coverage
from ._predictions import effects as effects
from ._predictions import residuals as residuals
