"""Downloads of data sets, from a server in this process."""

import dataclasses
import hashlib
import http.server
import io
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from data_sets import (
    FOLDER,
    needs_folder,
    save_mat,
    tiny_arrays,
    tiny_record,
    truncated,
)
from reproduction import data, data_files, registry

pytestmark = pytest.mark.usefixtures("nothing_from_outside")


class Files(http.server.BaseHTTPRequestHandler):
    """What the test put into `files`, nothing else; counts what it was asked for."""

    def do_GET(self):
        server = self.server
        server.asked.append(self.path)
        content = server.files.get(self.path)
        self.send_response(200 if content is not None else 404)
        self.end_headers()
        self.wfile.write(content or b"<html>no such thing</html>")

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as running:
        running.files, running.asked = {}, []
        running.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def known(monkeypatch):
    """Puts a record into the registry, with its sources on the server."""

    def put(record, server, *paths, sha256=None):
        sources = tuple((server.url + path,) for path in paths)
        record = dataclasses.replace(record, sources=sources, sha256=sha256)
        monkeypatch.setitem(registry.REGISTRY, record.name, record)
        return record

    return put


def cached():
    folder = data_files.cache_folder()
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def mat_bytes(variable="tiny"):
    file = io.BytesIO()
    save_mat(file, variable, tiny_arrays())
    return file.getvalue()


def test_a_download_ends_in_the_cache_and_is_found_there(tiny, server, known):
    server.files["/benchmarks.mat"] = mat_bytes()
    record = known(tiny, server, "/benchmarks.mat")
    assert data.get("tiny") == str(data_files.cache_folder() / record.file) == data.path("tiny")
    assert cached() == [record.file]
    assert data.load("tiny").train.shape == (3, 6)
    data.get("tiny")
    assert len(server.asked) == 1
    data.get("tiny", force=True)
    assert len(server.asked) == 2


def test_a_damaged_file_in_the_cache_is_got_anew(tiny, server, known):
    server.files["/benchmarks.mat"] = mat_bytes()
    known(tiny, server, "/benchmarks.mat")
    truncated(Path(data.get("tiny")), None, None)
    data.get("tiny")
    assert len(server.asked) == 2
    data.load("tiny")


def test_one_file_with_a_known_hash_serves_several_sets(tiny, server, known):
    """As benchmarks.mat does: it stays in the cache, checked by its hash."""
    content = scipy.io.loadmat(io.BytesIO(mat_bytes()))
    file = io.BytesIO()
    scipy.io.savemat(file, {"tiny": content["tiny"], "other": content["tiny"]})
    server.files["/b.mat"] = file.getvalue()
    digest = hashlib.sha256(file.getvalue()).hexdigest()
    for name in ("tiny", "other"):
        known(tiny_record(name), server, "/b.mat", sha256=digest)
        data.get(name)
    assert len(server.asked) == 1
    server.files["/b.mat"] += b"?"
    known(tiny, server, "/b.mat", sha256="0" * 64)
    with pytest.raises(registry.DataError, match=r"SHA256 hash of downloaded file|does not match"):
        data.get("tiny", force=True)


def test_text_files_of_the_real_registry(server, known):
    """iris as R writes it, from scikit-learn's copy: the published checksum must come out."""
    datasets = pytest.importorskip("sklearn.datasets")
    iris = datasets.load_iris()
    rows = [
        ",".join([f'"{i + 1}"', *map(str, x), f'"{iris.target_names[t]}"'])
        for i, (x, t) in enumerate(zip(iris.data, iris.target, strict=True))
    ]
    header = '"rownames","Sepal.Length","Sepal.Width","Petal.Length","Petal.Width","Species"'
    server.files["/iris.csv"] = "\n".join([header, *rows, ""]).encode()
    record = known(registry.REGISTRY["iris"], server, "/not-there.csv", "/iris.csv")
    assert data.get("iris") == "iris comes with scikit-learn"
    assert server.asked == []
    path = Path(data.get("iris", force=True))
    assert server.asked == ["/not-there.csv", "/iris.csv"]
    assert data_files.read_npz(path, record).x.shape == (150, 4)


@needs_folder
@pytest.mark.parametrize(
    "name", ["ecoli", "crabs", "soybean", "wine", "glass", "vehicle", "boston", "concrete"]
)
def test_text_layouts(name, server, monkeypatch):
    """Written from the folder in the layout of the source, in as many parts as it has."""
    record = registry.REGISTRY[name]
    stored = data.load(name, FOLDER)
    lines = []
    for i, (x, y) in enumerate(zip(stored.x.tolist(), stored.y, strict=True)):
        numbers = [f"{value:g}" if value == float(f"{value:g}") else repr(value) for value in x]
        label = record.class_names[y] if record.n_classes else repr(float(y))
        if name == "crabs":
            lines.append(",".join([str(i + 1), *label, str(i % 50 + 1), *numbers]))
        elif name in ("vehicle", "boston", "concrete"):
            lines.append(" ".join([*numbers, label]) + " ")
        else:
            lines.append(",".join([*["7"] * (name == "glass"), *numbers, label]))
    if record.columns.get("header"):
        lines.insert(0, "rownames,sp,sex,index,FL,RW,CL,CW,BD")
    parts = np.array_split(lines, len(record.sources[0]))
    for number, part in enumerate(parts):
        server.files[f"/{number}"] = "\r\n".join(part).encode()
    addresses = tuple(f"{server.url}/{number}" for number in range(len(parts)))
    record = dataclasses.replace(record, sources=(addresses,))
    monkeypatch.setitem(registry.REGISTRY, name, record)
    found = data_files.read_npz(Path(data.get(name, force=True)), record)
    np.testing.assert_array_equal(found.x, stored.x)
    np.testing.assert_array_equal(found.y, stored.y)


# Named, since the header of such a file says when it was written: workers that collect in different
# seconds would have different tests.
@pytest.mark.parametrize(
    "content",
    [None, b"", b"<html>", mat_bytes("other"), mat_bytes()[:-90]],
    ids=["refused", "empty", "page", "others", "cut short"],
)
def test_a_server_without_the_data_leaves_nothing_behind(content, tiny, server, known):
    server.files["/benchmarks.mat"] = content
    known(tiny, server, "/benchmarks.mat")
    with pytest.raises(registry.DataError, match="tiny could not be downloaded") as caught:
        data.get("tiny")
    assert f"{server.url}/benchmarks.mat" in str(caught.value)
    assert "MIXVI_DATA" in str(caught.value)
    assert ("404 Client Error" in str(caught.value)) == (content is None)
    assert cached() == []


def test_wrong_numbers_from_a_server_are_refused_and_no_server_is_said(tiny, server, known):
    server.files["/benchmarks.mat"] = mat_bytes()
    known(tiny_record(checksum="0" * 64), server, "/benchmarks.mat")
    with pytest.raises(registry.DataError, match="checksum"):
        data.get("tiny")
    server.url = "http://127.0.0.1:9"
    known(tiny, server, "/x")
    with pytest.raises(registry.DataError, match="Look at the connection"):
        data.get("tiny")
    assert cached() == []


def test_a_write_that_fails_leaves_nothing_half(tiny, tmp_path, monkeypatch):
    arrays = data_files.canonical(tiny_arrays(), tiny)
    path = tmp_path / "cache" / tiny.file

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(data_files.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data_files.write_npz(path, arrays, tiny)
    assert cached() == []
