"""Models with a linear predictor: a basis, a likelihood, and hyperparameters that are learnt."""

from ._basis import RBF as RBF
from ._basis import Basis as Basis
from ._basis import Features as Features
from ._basis import Linear as Linear
from ._likelihoods import Bernoulli as Bernoulli
from ._likelihoods import Cauchy as Cauchy
from ._likelihoods import Gaussian as Gaussian
from ._likelihoods import Likelihood as Likelihood
from ._likelihoods import Poisson as Poisson
from ._likelihoods import RealLikelihood as RealLikelihood
from ._likelihoods import Softmax as Softmax
from ._likelihoods import StudentT as StudentT
from ._model import Model as Model
from ._model import paper_starts as paper_starts
from ._model import spread_starts as spread_starts
from ._predict import Predictive as Predictive
