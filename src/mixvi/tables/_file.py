"""A model in one file: JSON and plain arrays in a zip. Nothing in it is run when it is read."""

import contextlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from .._errors import InputError
from .._fit import _files
from .._fit._posterior import Posterior
from .._law import _store
from ._columns import Columns
from ._effects import Effect
from ._model import Settings, TableModel
from ._scores import Score
from ._target import Target

SCHEMA, MARK = 1, "mixvi table model"
HEADER, ARRAYS, POSTERIOR = "model.json", "arrays.npz", "posterior.npz"
SUFFIX = ".mvi"


def save(model: TableModel, path: str | Path) -> Path:
    """Written beside the target and moved over it, so that a killed run leaves no half a file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, part in _content(model).items():
            archive.writestr(zipfile.ZipInfo(name), part)  # the same bytes every time
    return write_atomically(path, content.getvalue())


def write_atomically(path: str | Path, content: bytes) -> Path:
    path = Path(path)
    with _told(path):
        _store.replace_with(path, lambda file: file.write(content))
    return path


def check_writable(path: str | Path) -> None:
    """Before a long fit, not after it."""
    path = Path(path)
    with _told(path):
        _store.check_writable(path)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """What is in the way of writing a file, in a sentence."""
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder: name a file.")
    if not path.parent.is_dir():
        raise InputError(f"{str(path)!r}: there is no folder {str(path.parent)!r}.")
    try:
        yield
    except OSError as err:
        raise InputError(f"{str(path)!r} cannot be written: {err.strerror}.") from err


def _content(model: TableModel) -> dict[str, bytes]:
    header = {
        "mark": MARK,
        "schema": SCHEMA,
        "version": __version__,
        "target": model.target.to_json(),
        "columns": model.columns.to_json(),
        "settings": vars(model.settings),
        "zero": model.zero,
        "unit": model.unit,
        "score": model.score.to_json(),
        "effects": [one.to_json() for one in model.effects],
        "facts": model.facts,
    }
    arrays = {"centre": model.centre, "scale": model.scale}
    arrays |= {f"hyper.{name}": value for name, value in model.hyper.items()}
    arrays |= {f"shared.{name}": np.asarray(value) for name, value in model.shared.items()}
    packed, posterior = io.BytesIO(), io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    _files.write_to(posterior, model.posterior)
    parts = {ARRAYS: packed.getvalue(), POSTERIOR: posterior.getvalue()}
    return {HEADER: _store.to_json(header), **parts}


def load(path: str | Path) -> TableModel:
    """What `save` wrote. It predicts what the saved model predicts, bit for bit."""
    path = Path(path)
    header, arrays, posterior = _parts(path)
    named: dict[str, dict[str, Any]] = {"hyper": {}, "shared": {}}
    for name, value in arrays.items():
        group, _, rest = name.partition(".")
        if rest:
            named[group][rest] = value
    try:
        return TableModel(
            Target.from_json(header["target"]),
            Columns.from_json(header["columns"]),
            Settings(**header["settings"]),
            Posterior(**posterior),
            named["hyper"],
            named["shared"],
            arrays["centre"],
            arrays["scale"],
            header["zero"],
            header["unit"],
            Score.from_json(header["score"]),
            tuple(Effect.from_json(one) for one in header["effects"]),
            header["facts"] | {"version": header["version"]},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise _damaged(path, f" ({type(err).__name__}: {err})") from err


def _parts(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any]]:
    if os.path.isdir(path):  # `Path.is_dir` raises where a name is too long
        raise InputError(f"the model {str(path)!r} is a folder, not a model.")
    try:
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError as err:
        raise InputError(f"the model {str(path)!r} does not exist.") from err
    except OSError as err:
        raise InputError(f"the model {str(path)!r} cannot be read: {err.strerror}.") from err
    with file:
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError) as err:
            raise _foreign(path, file) from err
        with archive:
            return _read(path, archive, cut=_begins(file))


def _begins(file: BufferedIOBase) -> bool:
    """Whether the first part is a model's: an archive in one that was cut short may be whole."""
    file.seek(0)
    return HEADER.encode() in file.read(64)


def _read(path: Path, archive: zipfile.ZipFile, cut: bool) -> tuple[Any, Any, Any]:
    if HEADER not in archive.namelist():
        if cut:
            raise _damaged(path, " (its end is missing)")
        raise _not_a_model(path, "it is some other archive")
    try:
        header = _store.from_json(archive.read(HEADER))
        if not isinstance(header, dict) or header.get("mark") != MARK:
            raise _not_a_model(path, "it is some other archive")
        if header.get("schema") != SCHEMA:
            raise InputError(
                f"the model {str(path)!r} was written by mixvi {header.get('version')} in another "
                f"form than this version, {__version__}, reads: use that version."
            )
        with np.load(io.BytesIO(archive.read(ARRAYS)), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        posterior = _files.read_from(io.BytesIO(archive.read(POSTERIOR)), str(path))
    except InputError:
        raise
    except (
        KeyError,
        ValueError,
        TypeError,
        OSError,
        EOFError,
        MemoryError,
        NotImplementedError,
        RuntimeError,
        RecursionError,
        zipfile.BadZipFile,
        zlib.error,
        json.JSONDecodeError,
    ) as err:
        raise _damaged(path, _store.reason(err)) from err
    return header, arrays, posterior


def _foreign(path: Path, file: BufferedIOBase) -> InputError:
    """No zip that can be opened: one that was cut short, or something else."""
    file.seek(0)
    begins = file.read(4)
    if begins[:2] == b"PK":
        return _damaged(path, " (its end is missing)")
    if not begins:
        return _not_a_model(path, "it is empty")
    return _not_a_model(path, "models come from 'mixvi fit'")


def _not_a_model(path: Path, why: str) -> InputError:
    return InputError(f"{str(path)!r} is not a model saved by mixvi ({why}).")


def _damaged(path: Path, why: str) -> InputError:
    """`why`: in brackets, after a blank."""
    return InputError(f"the model {str(path)!r} is damaged{why}: copy it again, or fit it again.")
