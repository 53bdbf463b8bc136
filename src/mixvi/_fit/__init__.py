"""What a user calls: options, the ladder of "auto", enough draws, restarts, the report."""

from ._many import fit_many as fit_many
from ._public import fit as fit
from ._public import laplace as laplace
