"""A cluster: data that stay on Dask's workers, and many problems in batches."""

from ._dask import dask as dask
from ._files import Results as Results
from ._many import fit_many as fit_many
