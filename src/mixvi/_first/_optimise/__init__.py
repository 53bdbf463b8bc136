"""Minimisers that know nothing of inference; each compiles, batches and returns a code."""

from ._newton import newton as newton
from ._newton_cg import newton_cg as newton_cg
from ._quasi_newton import bfgs as bfgs
from ._quasi_newton import bfgs_carrying as bfgs_carrying
from ._quasi_newton import lbfgs as lbfgs
from ._result import Minimum as Minimum
from ._result import resolution as resolution
from ._scg import scaled_conjugate_gradients as scaled_conjugate_gradients
