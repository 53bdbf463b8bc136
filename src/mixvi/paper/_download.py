"""Getting data sets from where they are published into the user's cache."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ._parsers import Arrays, parse, read_npz, write_npz
from ._sources import DataError, Record, Source

CACHE_VARIABLE = "MIXVI_CACHE"


def cache_folder() -> Path:
    """MIXVI_CACHE, or what pooch.os_cache("mixvi") says; worked out here because reading what was
    once downloaded must not need pooch."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own).expanduser()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
        return Path(local).expanduser() / "mixvi" / "mixvi" / "Cache"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/mixvi").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache").expanduser() / "mixvi"


def download(record: Record, force: bool) -> Path:
    """The file in the cache, from there if it is good, otherwise from the first source that gives
    the right arrays."""
    path = cache_folder() / record.file
    if path.is_file() and not force:
        with contextlib.suppress(DataError):  # damaged: got anew
            read_npz(path, record)
            return path
    failures = []
    for source in record.sources:
        try:
            write_npz(path, _fetched(source, record, force), record)
            return path
        except DataError as error:
            failures.append(str(error))
    raise DataError(
        f"{record.name} could not be downloaded. {' '.join(failures)} Look at the connection and "
        f"try again, or put {record.file} into a folder and name it in MIXVI_DATA."
    )


def _fetched(source: Source, record: Record, force: bool) -> Arrays:
    """Of one source. Files with a known hash stay: benchmarks.mat holds thirteen sets."""
    try:
        import pooch
    except ImportError as error:
        raise ImportError("Downloading data needs pooch: pip install 'mixvi[data]'") from error

    folder = cache_folder() / "downloads"
    paths = [folder / pooch.utils.unique_file_name(url) for url in source.urls]
    try:
        for url, path in zip(source.urls, paths, strict=True):
            if force and source.sha256 is None:
                path.unlink(missing_ok=True)
            try:
                with _quiet(pooch.get_logger()):
                    pooch.retrieve(url, source.sha256, fname=path.name, path=folder)
            except (OSError, ValueError) as error:  # no connection, no such file; another hash
                raise DataError(f"{url}: {_first_sentence(error)}.") from error
        return parse(paths, record, source.urls[0])
    finally:
        if source.sha256 is None:  # what was wrong must not be taken for good next time
            for path in paths:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Without pooch's advice to pin the hash of each file: the arrays are what is pinned."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _first_sentence(error: Exception) -> str:
    if "Max retries exceeded" in str(error):  # a page of text from below says no more than this
        return "the server cannot be reached"
    return " ".join(str(error).split()).split(". ")[0].rstrip(".")[:300] or type(error).__name__
