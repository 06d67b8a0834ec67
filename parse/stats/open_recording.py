"""Opens a profiler's file as a recording, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyprof.files import open_input
from pyprof.parse.detect import reader
from pyprof.parse.formats.database import HEADER, database
from pyprof.parse.stats.recording import Recording


@contextmanager
def recording(file: Path) -> Iterator[Recording]:
    """The events of a file, whose database stays open meanwhile. Raises InputError where no format is known."""
    from pyprof.parse.formats import nvprof
    from pyprof.parse.kineto import reader as kineto
    from pyprof.parse.nsys import reader as nsys
    from pyprof.parse.stats.from_capture import CaptureRecording
    from pyprof.parse.stats.from_kineto import KinetoRecording
    from pyprof.parse.stats.from_nsys import NsysRecording
    from pyprof.parse.stats.from_nvprof import NvprofRecording

    read = reader(file)
    if read is kineto.read:
        yield KinetoRecording(file)
    elif not _is_database(file):
        yield CaptureRecording(read(file))
    else:
        with database(file) as db:
            if nvprof.is_nvprof(db):
                yield NvprofRecording(db)
            elif nsys.is_nsys(db):
                yield NsysRecording(db)
            else:
                yield CaptureRecording(read(file))


def _is_database(file: Path) -> bool:
    with open_input(file) as source:
        return source.read(len(HEADER)) == HEADER
