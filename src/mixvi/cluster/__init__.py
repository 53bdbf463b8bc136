"""A cluster: data that stay on Dask's workers, and many problems side by side.

>>> from distributed import Client
>>> import jax.numpy as jnp
>>> import numpy as np
>>> import dask.array as da
>>> import mixvi
>>> from mixvi import cluster
>>> model = mixvi.Additive(
...     lambda w: -0.5 * (w**2).sum(), lambda w, rows: -0.5 * (rows["y"] - rows["x"] @ w) ** 2)
>>> x = np.linspace(-1, 1, 600)[:, None] ** np.arange(3)
>>> rows = {"x": da.from_array(x, chunks=(200, 3)), "y": da.from_array(np.sin(x[:, 1]), chunks=200)}
>>> with Client(processes=False, n_workers=1, dashboard_address=None) as client:
...     post = mixvi.fit(model, np.zeros(3), data=cluster.dask(client, rows))
>>> alone = mixvi.fit(model, np.zeros(3), data={"x": x, "y": np.sin(x[:, 1])})
>>> bool(abs(post.mean - alone.mean).max() < 1e-10)
True
"""

from ._dask import dask as dask
from ._many import Results as Results
from ._many import fit_many as fit_many
