"""One `.npz` file of plain arrays and a JSON header: no pickle, a schema number."""

import errno
import io
import json
import math
import os
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import jax.tree_util as jtu
import numpy as np

from .._arrays._structured import KINDS, StructuredRoot
from .._density._structure import Structure
from .._errors import InputError
from ._gaussian import Gaussian
from ._mixture import GaussianMixture, Law

SCHEMA = 1


def write(path: str | Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
    """Written beside the target and moved over it, so that a killed run leaves no half a file."""
    path = Path(path)
    if path.suffix != ".npz" and not is_special(path):
        path = path.with_name(path.name + ".npz")
    if not path.parent.is_dir():
        raise InputError(f"save: there is no folder {str(path.parent)!r}.")
    replace_with(path, lambda file: write_to(file, header, arrays))
    return path


def write_to(file: BufferedIOBase, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    as_bytes = np.frombuffer(to_json({"schema": SCHEMA, **header}), dtype=np.uint8)
    np.savez_compressed(file, header=as_bytes, **arrays)  # type: ignore[arg-type]


def replace_with(path: Path, put: Callable[[BufferedIOBase], object]) -> None:
    """A file is replaced by another; a device or a pipe is written to, and a link stays and what it
    leads to is replaced."""
    if is_special(path):
        content = io.BytesIO()  # archives are not written front to back
        put(content)
        with open(path, "wb") as file:
            file.write(content.getvalue())
        return
    path = Path(os.path.realpath(path))
    partial = _partial(path)
    try:
        with open(partial, "wb") as file:
            put(file)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def check_writable(path: Path) -> None:
    """The OSError that `replace_with` would end in for want of a right or a folder, before what is
    to be written has been made. It is tried out: rights alone do not tell of a read-only disk."""
    if is_special(path):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return
    partial = _partial(Path(os.path.realpath(path)))
    partial.open("wb").close()
    partial.unlink()


def is_special(path: Path) -> bool:
    """Whether there is something that is neither a file nor a folder: a device, a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    path = Path(path)
    if not path.exists() and path.with_name(path.name + ".npz").exists():
        path = path.with_name(path.name + ".npz")
    if not path.exists():
        raise InputError(f"load: there is no file {str(path)!r}.")
    return read_from(path, str(path))


def read_from(
    file: Path | BufferedIOBase, name: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """`name`: of the file, in what is said of it."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
        header = from_json(arrays.pop("header").tobytes())
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, EOFError, AttributeError) as err:
        raise InputError(f"load: {name!r} is not a posterior saved by mixvi{reason(err)}.") from err
    if header.get("schema") != SCHEMA:
        raise InputError(
            f"load: {name!r} has schema {header.get('schema')}, this mixvi reads schema "
            f"{SCHEMA}: use the version that wrote it."
        )
    return header, arrays


def reason(err: Exception) -> str:
    """In brackets; nothing where NumPy takes what it does not know for a pickle, and says how to
    load it unsafely."""
    what = " ".join(str(err).split()).rstrip(".")
    return f" ({what})" if what and "pickle" not in what else ""


def to_json(header: dict[str, Any]) -> bytes:
    return json.dumps(_safe(header), allow_nan=False, default=_plain).encode()


def from_json(text: bytes) -> Any:
    return json.loads(text.decode(), object_hook=_revived)


def _safe(value: Any) -> Any:
    """JSON has no infinities: they travel as strings under a marked key."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"__float__": repr(value)}
    if isinstance(value, dict):
        return {key: _safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_safe(item) for item in value]
    return value


def _revived(item: dict) -> Any:
    return float(item["__float__"]) if set(item) == {"__float__"} else item


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written to JSON")


# --- laws: a Gaussian's mean and root; of a mixture, those of every component --------------------


def law_to(law: Law) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What goes into the header and what into arrays."""
    if isinstance(law, Gaussian):
        return _gaussian_to(law)
    headers, arrays = [], {"weights": law.weights}
    for k, one in enumerate(law.components):
        header, own = _gaussian_to(one)
        headers.append(header)
        arrays |= {f"component{k}.{name}": array for name, array in own.items()}
    return {"components": headers}, arrays


def law_from(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Law:
    if "components" not in header:
        return _gaussian_from(header, arrays)
    each = []
    for k, own in enumerate(header["components"]):
        start = f"component{k}."
        kept = {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}
        each.append(_gaussian_from(own, kept))
    return GaussianMixture(arrays["weights"], tuple(each))


def _gaussian_to(law: Gaussian) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not isinstance(law.root, StructuredRoot):
        return {}, {"mean": law.mean, "root": law.root}
    own = {f"root.{name}": one for name, one in law.root.arrays().items()}
    return {"root": law.root.kind}, {"mean": law.mean, **own}


def _gaussian_from(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Gaussian:
    if (kind := header.get("root")) is None:
        return Gaussian(arrays["mean"], arrays["root"])
    own = {name.removeprefix("root."): one for name, one in arrays.items() if "root." in name}
    return Gaussian(arrays["mean"], KINDS[kind].of_arrays(own))


# --- pytree structures: dicts, lists, tuples, None and leaves ----------------------------------


def structure_to(structure: Structure) -> dict[str, Any]:
    """The skeleton in JSON, with None for what is kept; containers that JSON cannot rebuild become
    an ordered dict of paths."""
    n, places = len(structure.shapes), {kept.index for kept in structure.kept}
    numbers = iter(range(n))
    leaves = [None if i in places else next(numbers) for i in range(n + len(places))]
    try:
        skeleton = _skeleton(structure.treedef, iter(leaves))
    except TypeError:
        skeleton = {"ordered": [[path, i] for i, path in enumerate(structure.paths)]}
    return {"skeleton": skeleton, "shapes": structure.shapes, "paths": structure.paths}


def structure_from(stored: dict[str, Any]) -> Structure:
    treedef = jtu.tree_structure(_rebuilt(stored["skeleton"]))
    return Structure(treedef, tuple(map(tuple, stored["shapes"])), tuple(stored["paths"]))


def _skeleton(treedef: Any, leaves: Iterator[int | None]) -> Any:
    if (node := treedef.node_data()) is None:
        return next(leaves)
    (kind, keys), items = node, [_skeleton(child, leaves) for child in treedef.children()]
    if kind is type(None):
        return None
    if kind is dict and all(type(key) is str for key in keys):
        return {"dict": [list(pair) for pair in zip(keys, items, strict=True)]}
    if kind in (list, tuple):
        return {kind.__name__: items}
    raise TypeError(kind.__name__)


def _rebuilt(skeleton: Any) -> Any:
    if skeleton is None or isinstance(skeleton, int):
        return skeleton
    ((kind, items),) = skeleton.items()
    if kind in ("dict", "ordered"):
        made = {"dict": dict, "ordered": OrderedDict}[kind]
        return made((key, _rebuilt(item)) for key, item in items)
    return {"list": list, "tuple": tuple}[kind](_rebuilt(item) for item in items)
