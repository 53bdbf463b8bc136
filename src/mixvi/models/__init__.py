"""Models with linear predictors: a basis, a likelihood, and hyperparameters that are learnt."""

from ._basis import RBF as RBF
from ._basis import Basis as Basis
from ._basis import Features as Features
from ._basis import Linear as Linear
from ._density import ModelDensity as ModelDensity
from ._kernel import GaussianProcess as GaussianProcess
from ._likelihoods import Bernoulli as Bernoulli
from ._likelihoods import Likelihood as Likelihood
from ._likelihoods import Softmax as Softmax
from ._loo import LeaveOneOut as LeaveOneOut
from ._loo import leave_one_out as leave_one_out
from ._model import Model as Model
from ._noise import Cauchy as Cauchy
from ._noise import Gaussian as Gaussian
from ._noise import LocationScale as LocationScale
from ._noise import Poisson as Poisson
from ._noise import RealLikelihood as RealLikelihood
from ._noise import StudentT as StudentT
from ._predict import Predictive as Predictive
