"""Captures that a server keeps in memory, so that the next question about one does not read it again."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyprof.prof.load import LoadedFile

Key = tuple[Hashable, ...]
_kept: KeptFiles | None = None


class KeptFiles:
    """The files that were read last. A file that has changed since is read again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._files: OrderedDict[Key, tuple[Key, LoadedFile]] = OrderedDict()

    def get(self, key: Key, names: list[str], read: Callable[[], LoadedFile]) -> LoadedFile:
        """What ``read`` returns, or returned for this key while these files were as they are now."""
        stamp = tuple(_stamp(name) for name in names)
        known = self._files.get(key)
        if known is not None and known[0] == stamp and None not in stamp:
            self._files.move_to_end(key)
            return known[1]
        self._files.pop(key, None)
        found = read()
        self._files[key] = stamp, found
        while len(self._files) > self._most:
            self._files.popitem(last=False)
        return found


def _stamp(name: str) -> Key | None:
    """What changes when a file does; None for what is not there, and for a folder: its files may change without it."""
    try:
        facts = os.stat(name)
    except OSError:
        return None
    regular = os.path.isfile(name)
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns) if regular else None


@contextmanager
def keep_files(most: int) -> Iterator[None]:
    """For the block, ``load_table`` keeps the last ``most`` files that it read; 0: none."""
    global _kept
    before, _kept = _kept, KeptFiles(most) if most else None
    try:
        yield
    finally:
        _kept = before


def kept(key: Key, names: list[str], read: Callable[[], LoadedFile]) -> LoadedFile:
    """``read()``, or, where files are kept, what it returned before."""
    return read() if _kept is None else _kept.get(key, names, read)
