"""Which files the server may read: those in the folders that were named when it was started."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pyprof.errors import PyprofError

LOOKED_AT = 20_000  # files in a folder, in the order of their names; later ones are not listed


class Listed(NamedTuple):
    """A file that may be read."""

    file: str
    bytes: int
    modified_s: float  # Unix time


class Folders:
    """The folders of ``pyprof mcp FOLDER...``."""

    def __init__(self, names: Sequence[str]) -> None:
        for name in names:
            if not Path(name).is_dir():
                raise PyprofError(f"{name}: expected a folder with captures, found {_what(Path(name))}")
        self.all = [Path(name).resolve() for name in names]

    def file(self, name: str) -> str:
        """The path of a file, or of a capture that is a folder. A name without a folder is looked for in each.

        Raises PyprofError for what is not there, and for what links lead out of the folders.
        """
        found = [path for folder in self.all if (path := Path(folder, name)).exists()]
        if "\0" in name or not found:
            raise PyprofError(
                f"{name}: expected a file in {self._shown()}, found none; list the captures for the names"
            )
        path = found[0].resolve()
        parts = _all_below(path) if path.is_dir() else ()
        if not all(self._holds(each) for each in (path, *(part.resolve() for part in parts))):
            raise PyprofError(f"{name}: expected a file in {self._shown()}, found one outside of them")
        if path in self.all:
            raise PyprofError(f"{name}: expected a file, found the whole folder")
        return str(path)

    def listed(self) -> list[Listed]:
        """The files in the folders, the newest first; at most ``LOOKED_AT`` of each."""
        found = []
        for folder in self.all:
            for entry in islice(_entries(folder), LOOKED_AT):
                path = Path(entry)
                if path.is_file() and self._holds(path.resolve()):
                    facts = path.stat()
                    found.append(Listed(str(path), facts.st_size, facts.st_mtime))
        return sorted(found, key=lambda file: (-file.modified_s, file.file))

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self.all)

    def _shown(self) -> str:
        return " or ".join(map(str, self.all))


def _all_below(folder: Path) -> Iterator[Path]:
    """Everything below a folder, hidden or not; what links lead to is not looked into."""
    for where, folders, files in os.walk(folder):
        yield from (Path(where, name) for name in (*folders, *files))


def _entries(folder: Path) -> Iterator[str]:
    """All files below a folder, hidden ones left out; links to folders are not followed."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(where, name) for name in sorted(files) if not name.startswith("."))


def _what(path: Path) -> str:
    return "a file" if path.exists() else "nothing"
