"""Fast, deterministic, honest Gaussian approximation of Bayesian posteriors."""

from ._approximate._families import EigenScale as EigenScale
from ._approximate._families import Family as Family
from ._approximate._families import FullRank as FullRank
from ._approximate._families import LowRank as LowRank
from ._approximate._families import MeanField as MeanField
from ._approximate._families import MeanOnly as MeanOnly
from ._approximate._mixture import Mixture as Mixture
from ._arrays._draws import IID as IID
from ._arrays._draws import Draws as Draws
from ._arrays._draws import Matched as Matched
from ._arrays._draws import Quadrature as Quadrature
from ._arrays._draws import Sobol as Sobol
from ._density._additive import Additive as Additive
from ._density._kinds import Interval as Interval
from ._density._linear_predictor import LinearPredictor as LinearPredictor
from ._density._numpy import from_numpy as from_numpy
from ._density._pieces import Pieces as Pieces
from ._density._protocol import Density as Density
from ._density._protocol import Expectation as Expectation
from ._errors import IndefiniteHessianError as IndefiniteHessianError
from ._errors import InputError as InputError
from ._errors import MixviError as MixviError
from ._errors import NoModeError as NoModeError
from ._errors import NonFiniteError as NonFiniteError
from ._errors import NotConvergedWarning as NotConvergedWarning
from ._fit import fit as fit
from ._fit import fit_many as fit_many
from ._fit import laplace as laplace
from ._fit._compare import Comparison as Comparison
from ._fit._compare import compare as compare
from ._fit._hyper import HyperReport as HyperReport
from ._fit._hyper_posterior import HyperPosterior as HyperPosterior
from ._fit._modes import PosteriorMode as PosteriorMode
from ._fit._posterior import Posterior as Posterior
from ._fit._posterior import load as load
from ._fit._posteriors import Posteriors as Posteriors
from ._fit._screen import Screening as Screening
from ._fit._screen import best_together as best_together
from ._fit._screen import screen as screen
from ._judge._diagnosis import Estimate as Estimate
from ._judge._psis import psis as psis
from ._judge._verdict import Reason as Reason
from ._law._curve import Marginal as Marginal
from ._watch import Step as Step

__version__ = "0.1.0"
