"""Pieces, clusters and checkpoints that go wrong: what is said, and that nothing is lost."""

import json
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("distributed")
pytest.importorskip("dask.dataframe")
pytest.importorskip("pyarrow")
pytest.importorskip("resource")

import bad_pieces

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcomes():
    """In a process of their own, which is not watched by a type checker: workers import it."""
    command = [sys.executable, bad_pieces.__file__, "--json"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=env)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", bad_pieces.CASES)
def test_bad_pieces(name, outcomes):
    words, kept, is_sound = outcomes[name]
    assert re.search(bad_pieces.CASES[name].expected, words), words
    assert is_sound, kept
