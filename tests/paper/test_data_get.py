"""Downloads of data sets, from a server in this process."""

import dataclasses
import hashlib
import http.server
import io
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from data_sets import (
    FOLDER,
    needs_folder,
    needs_pooch,
    save_mat,
    save_npz,
    tiny_arrays,
    tiny_record,
    truncated,
)
from mixvi.paper import _download, _parsers, _sources, data

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


def from_server(record, server, *paths, sha256=None):
    sources = tuple(_sources.Source((server.url + path,), sha256) for path in paths)
    return dataclasses.replace(record, sources=sources)


def cached():
    folder = _download.cache_folder()
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def mat_bytes(variable="tiny"):
    file = io.BytesIO()
    save_mat(file, variable, tiny_arrays())
    return file.getvalue()


@needs_pooch
def test_a_download_ends_in_the_cache_and_is_found_there(tiny, server, monkeypatch):
    server.files["/benchmarks.mat"] = mat_bytes()
    record = from_server(tiny, server, "/benchmarks.mat")
    monkeypatch.setitem(_sources.REGISTRY, "tiny", record)
    places = data.get("tiny")
    assert (
        places
        == {"tiny": str(_download.cache_folder() / record.file)}
        == {"tiny": data.path("tiny")}
    )
    assert cached() == [record.file]
    assert data.load("tiny").train.shape == (3, 6)
    data.get(["tiny"])
    assert len(server.asked) == 1
    data.get(["tiny"], force=True)
    assert len(server.asked) == 2


@needs_pooch
def test_a_damaged_file_in_the_cache_is_got_anew(tiny, server):
    server.files["/benchmarks.mat"] = mat_bytes()
    registry = {"tiny": from_server(tiny, server, "/benchmarks.mat")}
    path = Path(data.get("tiny", registry=registry)["tiny"])
    truncated(path, None, None)
    data.get("tiny", registry=registry)
    assert len(server.asked) == 2
    data.load("tiny")


@needs_pooch
def test_one_file_with_a_known_hash_serves_several_sets(tiny, server):
    """As benchmarks.mat does: it stays in the cache, checked by its hash."""
    content = scipy.io.loadmat(io.BytesIO(mat_bytes()))
    file = io.BytesIO()
    scipy.io.savemat(file, {"tiny": content["tiny"], "other": content["tiny"]})
    server.files["/b.mat"] = file.getvalue()
    digest = hashlib.sha256(file.getvalue()).hexdigest()
    registry = {
        name: from_server(tiny_record(name), server, "/b.mat", sha256=digest)
        for name in ("tiny", "other")
    }
    assert list(data.get("all", registry=registry)) == ["tiny", "other"]
    assert len(server.asked) == 1
    server.files["/b.mat"] += b"?"
    wrong = from_server(tiny, server, "/b.mat", sha256="0" * 64)
    with pytest.raises(data.DataError, match=r"SHA256 hash of downloaded file|does not match"):
        data.get("tiny", force=True, registry={"tiny": wrong})


@needs_pooch
def test_text_files_of_the_real_registry(server):
    """iris as R writes it, from scikit-learn's copy: the published checksum must come out."""
    datasets = pytest.importorskip("sklearn.datasets")
    iris = datasets.load_iris()
    rows = [
        ",".join([f'"{i + 1}"', *map(str, x), f'"{iris.target_names[t]}"'])
        for i, (x, t) in enumerate(zip(iris.data, iris.target, strict=True))
    ]
    header = '"rownames","Sepal.Length","Sepal.Width","Petal.Length","Petal.Width","Species"'
    server.files["/iris.csv"] = "\n".join([header, *rows, ""]).encode()
    record = from_server(_sources.REGISTRY["iris"], server, "/not-there.csv", "/iris.csv")
    assert data.get("iris", registry={"iris": record}) == {"iris": "iris comes with scikit-learn"}
    assert server.asked == []
    path = Path(data.get("iris", force=True, registry={"iris": record})["iris"])
    assert server.asked == ["/not-there.csv", "/iris.csv"]
    assert _parsers.read_npz(path, record).x.shape == (150, 4)


@needs_pooch
@needs_folder
@pytest.mark.parametrize(
    "name", ["ecoli", "crabs", "soybean", "wine", "glass", "vehicle", "boston", "concrete"]
)
def test_text_layouts(name, server):
    """Written from the folder in the layout of the source, in as many parts as it has."""
    record = _sources.REGISTRY[name]
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
    if record.table.header:
        lines.insert(0, "rownames,sp,sex,index,FL,RW,CL,CW,BD")
    parts = np.array_split(lines, len(record.sources[0].urls))
    for number, part in enumerate(parts):
        server.files[f"/{number}"] = "\r\n".join(part).encode()
    source = _sources.Source(tuple(f"{server.url}/{number}" for number in range(len(parts))))
    record = dataclasses.replace(record, sources=(source,))
    found = _parsers.read_npz(
        Path(data.get(name, force=True, registry={name: record})[name]), record
    )
    np.testing.assert_array_equal(found.x, stored.x)
    np.testing.assert_array_equal(found.y, stored.y)


@needs_pooch
@pytest.mark.parametrize("content", [None, b"", b"<html>", mat_bytes("other"), mat_bytes()[:-90]])
def test_a_server_without_the_data_leaves_nothing_behind(content, tiny, server):
    server.files["/benchmarks.mat"] = content
    registry = {"tiny": from_server(tiny, server, "/benchmarks.mat")}
    with pytest.raises(data.DataError, match="tiny could not be downloaded") as caught:
        data.get("tiny", registry=registry)
    assert f"{server.url}/benchmarks.mat" in str(caught.value)
    assert "MIXVI_DATA" in str(caught.value)
    assert ("404 Client Error" in str(caught.value)) == (content is None)
    assert cached() == []


@needs_pooch
def test_wrong_numbers_from_a_server_are_refused_and_no_server_is_said(tiny, server):
    server.files["/benchmarks.mat"] = mat_bytes()
    other = from_server(tiny_record(checksum="0" * 64), server, "/benchmarks.mat")
    with pytest.raises(data.DataError, match="checksum"):
        data.get("tiny", registry={"tiny": other})
    nobody = dataclasses.replace(tiny, sources=(_sources.Source(("http://127.0.0.1:9/x",)),))
    with pytest.raises(data.DataError, match="Look at the connection"):
        data.get("tiny", registry={"tiny": nobody})
    assert cached() == []


def test_a_write_that_fails_leaves_nothing_half(tiny, tmp_path, monkeypatch):
    arrays = _parsers.canonical(tiny_arrays(), tiny)
    path = tmp_path / "cache" / tiny.file

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_parsers.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _parsers.write_npz(path, arrays, tiny)
    assert cached() == []


def test_without_pooch_only_downloads_fail(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    save_npz(tmp_path / "cache", tiny, tiny_arrays())
    assert data.load("tiny").kind == "binary"
    assert data.get(["balance", "tiny"])["tiny"] == data.path("tiny")
    with pytest.raises(ImportError, match=r"pip install 'mixvi\[data\]'"):
        data.get("ecoli")


@needs_pooch
def test_the_cache_is_where_pooch_has_it(monkeypatch):
    import pooch

    monkeypatch.delenv("MIXVI_CACHE")
    assert _download.cache_folder() == Path(pooch.os_cache("mixvi"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.home() / "elsewhere"))
    assert _download.cache_folder() == Path(pooch.os_cache("mixvi"))
