"""Which format a file is, by its content; never by its name."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

from pyprof.errors import InputError
from pyprof.parse.capture import Capture
from pyprof.parse.database import HEADER

WANTED = "expected an nsys or nvprof SQLite database or a torch.profiler JSON trace"


def reader(file: Path) -> Callable[[Path], Capture]:
    """The reader of a file's format. Raises InputError where it is none that we know."""
    head = _head(file)
    if head.startswith(HEADER):
        return _read_database
    if head.lstrip()[:1] in (b"{", b"["):
        from pyprof.parse import kineto

        return kineto.read
    raise InputError(file, f"{WANTED}, found {_describe(head)}")


def _read_database(file: Path) -> Capture:
    from pyprof.parse import nsys, nvprof
    from pyprof.parse.database import database

    with database(file) as db:
        foreign = nvprof.is_nvprof(db)
    return nvprof.read(file) if foreign else nsys.read(file)


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as source:
            head = source.read(4096)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(file) as packed:
                return packed.read(4096)
        return head
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(file, f"{WANTED}, found a broken gzip file ({error}); copy it again") from None
    except OSError as error:
        raise InputError(file, f"cannot be read: {error.strerror or error}") from None


def _describe(head: bytes) -> str:
    if not head:
        return "an empty file"
    if head.startswith(b"<?xml") or head.lstrip()[:1] == b"<":
        return "XML: an .nvvp project of the Visual Profiler holds no events (export with nvprof -o net.sql)"
    if head.startswith(b"NVR\0"):
        return "an Nsight Compute report (export with ncu --import FILE --csv --page raw)"
    if b"\0" in head[:512]:
        return "a binary file (of an .nsys-rep make the export: nsys export --type sqlite FILE.nsys-rep)"
    return f"text that starts {head[:30].decode('utf-8', 'replace')!r}"
