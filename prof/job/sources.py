"""The captures of a job: files, patterns, folders and URLs as one list, in the order of their numbers."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from pyprof.errors import InputError, PyprofError

# Forms of profiler files that a folder is searched for; a file that is named is read whatever its name.
ENDINGS = tuple(f"{ending}{packed}" for ending in (".json", ".sqlite", ".nsys-rep", ".db") for packed in ("", ".gz"))
_NUMBER = re.compile(r"(\d+)")
_RANK = re.compile(r"(?:^|[^a-z])rank[-_.=]?(\d{1,7})(?!\d)", re.IGNORECASE)


def sources(names: Iterable[str]) -> list[str]:
    """The files, patterns (``*``, ``?``, ``[..]``), folders and URLs, each file once; numbers in names in their order.

    Raises InputError for a name that finds nothing, and MissingPackage for a URL where fsspec is not installed.
    """
    found: dict[str, None] = {}
    for name in names:
        for file in sorted(_expanded(name), key=_natural):
            found[file] = None
    return list(found)


def is_url(name: str) -> bool:
    return "://" in name


def _expanded(name: str) -> list[str]:
    if is_url(name):
        return _of_url(name)
    if os.path.isdir(name):
        files = [entry.path for entry in os.scandir(name) if entry.is_file() and _is_capture(entry.name)]
        if not files:
            raise InputError(name, f"expected captures ({', '.join(ENDINGS[::2])}; gzipped or not), found none")
        return files
    if os.path.exists(name):
        return [name]
    files = [file for file in glob.glob(name, recursive=True) if os.path.isfile(file)]
    if not files:
        raise InputError(name, "expected a capture, or a pattern or folder of captures, found none of that name")
    return files


def _of_url(name: str) -> list[str]:
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(name)
        if glob.has_magic(path):
            paths = [each for each in system.glob(path) if system.isfile(each)]
        elif system.isdir(path):
            paths = [each for each in system.ls(path, detail=False) if _is_capture(each) and system.isfile(each)]
        else:
            paths = [path] if system.exists(path) else []
    except (OSError, ValueError, ImportError) as error:
        raise InputError(name, f"cannot be listed: {error}") from error
    if not paths:
        raise InputError(name, "expected a capture, or a pattern or folder of captures, found none")
    return [system.unstrip_protocol(each) for each in paths]


def _is_capture(name: str) -> bool:
    return name.lower().endswith(ENDINGS) and not PurePosixPath(name).name.startswith(".")


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts rank2 before rank10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBER.split(name)]


def rank_in_name(name: str) -> int | None:
    """The number after the word "rank" in a file's name, or else in the name of the folder that holds it."""
    path = PurePosixPath(name.replace("\\", "/"))
    for part in (path.name, path.parent.name):
        numbers = _RANK.findall(part)
        if numbers:
            return int(numbers[-1])
    return None


@contextmanager
def local_copy(name: str) -> Iterator[Path]:
    """The file itself, or a temporary copy of a remote one. Raises InputError if it cannot be fetched."""
    if not is_url(name):
        yield Path(name)
        return
    import fsspec

    with TemporaryDirectory(prefix="pyprof-") as folder:
        copy = Path(folder, PurePosixPath(name).name)
        try:
            system, path = fsspec.core.url_to_fs(name)
            system.get_file(path, str(copy))
        except (OSError, ValueError, ImportError) as error:
            raise PyprofError(f"{name}: cannot be fetched: {error}") from error
        yield copy
