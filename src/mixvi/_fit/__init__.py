"""What a user calls: options, the ladder of "auto", enough draws, restarts, the report."""

from ._public import fit as fit
from ._public import laplace as laplace
