"""A cluster of two processes."""

import os
import sys

import pytest


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as workers,
        distributed.Client(workers) as client,
    ):
        yield client
