"""A profiler's file as a recording, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyprof.errors import InputError
from pyprof.parse.detect import reader
from pyprof.parse.stats.recording import Recording


@contextmanager
def recording(file: Path) -> Iterator[Recording]:
    """The events of a file; a database stays open meanwhile. Raises InputError where it is of no known format."""
    from pyprof.parse import kineto

    if reader(file) is kineto.read:
        from pyprof.parse.stats.from_kineto import KinetoRecording

        yield KinetoRecording(file)
        return
    from pyprof.parse.database import database
    from pyprof.parse.nsys import is_nsys
    from pyprof.parse.nvprof import is_nvprof
    from pyprof.parse.stats.from_nsys import NsysRecording
    from pyprof.parse.stats.from_nvprof import NvprofRecording

    with database(file) as db:
        if is_nvprof(db):
            yield NvprofRecording(db)
        elif is_nsys(db):
            yield NsysRecording(db)
        else:
            found = ", ".join(sorted(db.columns)[:4]) or "no tables"
            raise InputError(file, f"expected an nsys or nvprof database, found one with {found}")
