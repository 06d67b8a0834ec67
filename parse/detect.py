"""Detect a file's format by its content, never by its name."""

import os
import re
import stat
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.errors import InputError
from pyprof.files import GZIP, inflated
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.databases.database import HEADER
from pyprof.parse.formats.plain_pickle import is_pickle
from pyprof.table.container import is_container
from pyprof.text import as_utf8

if TYPE_CHECKING:
    from pyprof.parse.attribute.contents import Contents
    from pyprof.parse.attribute.notes import CaptureNotes

SUFFIXES = (".nsys-rep", ".qdrep")
# Text that ncu prints before its CSV and in the CSV's header.
NCU_TEXT = (b'"ID","Process ID"', b"==PROF==", b"==WARNING==", b"==ERROR==")
NCU_USE = (
    "which has metrics and no timeline (record one with nsys or torch.profiler, parse that, and join this to it: "
    "pyprof prof --ncu FILE net.dict)"
)
BINARY = {
    b"NVR\0": f"an Nsight Compute report, {NCU_USE}",
    b"\0\x05\x16\x07": "what macOS keeps beside a file, under a name that begins with ._ (give the file itself)",
    b"PK\x03\x04": "a zip archive (unpack it)",
    b"\x1f\x8b": "a gzip file within a gzip file (unpack it once)",
    b"BZh": "a bzip2 file (unpack it: bunzip2 FILE)",
    b"\xfd7zXZ": "an xz file (unpack it: unxz FILE)",
    b"\x28\xb5\x2f\xfd": "a Zstandard file (unpack it: unzstd FILE)",
}
PARQUET = b"PAR1"
# How profilers' files are called; torch.profiler's tensorboard_trace_handler writes WORKER.TIME.pt.trace.json
PROFILES = (".pt.trace.json", ".pt.trace.json.gz", ".nsys-rep", ".sqlite", ".json.gz")
ROCPROF_JSON = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"')
WANTED = "expected an nsys or nvprof SQLite database or a torch.profiler JSON trace"


Reader = Callable[[Path], Capture]
BriefReader = Callable[[Path], "tuple[CaptureNotes, Contents]"]


def reader(file: Path) -> Reader:
    """The reader of a file's format. Raises InputError if the format is unknown."""
    head = _head(file)
    found = _reader(file, head)
    if found is None:
        raise InputError(file, f"{WANTED}, found {_describe(file, head)}")
    return found


def lean_reader(file: Path) -> Reader:
    """A reader for the kernel table alone. It may skip ranges on which no row depends. Raises as ``reader`` does."""
    read = reader(file)
    if read is _read_database:
        return partial(_read_database, lean=True)
    return partial(_read_report, lean=True) if read is _read_report else read


def brief_reader(file: Path) -> BriefReader | None:
    """A reader that summarizes a file without reading all of it; None if the format needs a full read.

    A torch.profiler trace needs one, since it is a single text. Raises InputError as ``reader`` does.
    """
    read = reader(file)
    if read is _read_report:
        from pyprof.parse.nsys import nsys_rep

        return nsys_rep.brief
    if read is not _read_database:
        return None
    from pyprof.parse.nsys import overview
    from pyprof.parse.nsys import reader as nsys

    return overview.brief if _database_reader(file) is nsys.read else None


def is_table(file: Path) -> bool:
    """Whether a file is a kernel table or a container (True), or a profiler's (False).

    Raises InputError if it is neither.
    """
    head = _head(file)
    if _is_table(head) or is_container(file):
        return True
    if _reader(file, head) is None:
        raise InputError(file, f"{WANTED}, or a kernel table (net.dict, net.parquet), found {_describe(file, head)}")
    return False


def _reader(file: Path, head: bytes) -> Reader | None:
    if head.startswith(HEADER) or is_parquet_folder(file):
        return _read_database
    if ROCPROF_JSON.match(head):
        from pyprof.parse.formats import rocprof_json

        return rocprof_json.read
    if head.lstrip()[:1] in (b"{", b"[") and not _is_table(head):
        from pyprof.parse.kineto import reader as kineto

        return kineto.read
    if is_pickle(head):
        from pyprof.parse.formats import memory_snapshot

        return memory_snapshot.read
    if b"\0" in head[:512] and file.name.endswith(SUFFIXES):  # the only format without documented first bytes
        return _read_report
    return None


def is_parquet_folder(file: Path) -> bool:
    """Whether a folder is an export of nsys in the form of Parquet files."""
    if not os.path.isdir(file):
        return False
    from pyprof.parse.databases.parquet_folder import SUFFIX
    from pyprof.parse.nsys.reader import EVENTS, SIGNS

    return any((file / f"{table}{SUFFIX}").is_file() for table in (*SIGNS, *EVENTS))


def _is_table(head: bytes) -> bool:
    """Whether a file is a net.dict: it begins with a dictionary whose first key is a column's key."""
    from pyprof.table.netdict import FIRST_KEY
    from pyprof.table.schema import COLUMN

    match = FIRST_KEY.match(head)
    return head.startswith(PARQUET) or (match is not None and match["key"].decode() in COLUMN)


def _read_database(file: Path, lean: bool = False) -> Capture:
    from pyprof.parse.nsys import reader as nsys

    read = _database_reader(file)
    return nsys.read(file, lean) if read is nsys.read else read(file)


def _database_reader(file: Path) -> Reader:
    from pyprof.parse.databases.database import database
    from pyprof.parse.formats import nvprof, rocpd
    from pyprof.parse.nsys import reader as nsys

    if os.path.isdir(file):
        return nsys.read
    with database(file) as db:
        if nvprof.is_nvprof(db):
            return nvprof.read
        return rocpd.read if rocpd.is_rocpd(db) else nsys.read


def _read_report(file: Path, lean: bool = False) -> Capture:
    from pyprof.parse.nsys import nsys_rep

    return nsys_rep.read(file, lean)


def _head(file: Path) -> bytes:
    if os.path.isdir(file):
        return b""
    pipe = "a profiler's file is read more than once and cannot come through a pipe: save it first"
    if str(file) == "-":
        raise InputError(file, pipe)
    try:
        if stat.S_ISFIFO(file.stat().st_mode):
            raise InputError(file, pipe)
        with file.open("rb") as source:
            head = source.read(4096)
            if head.startswith(GZIP):
                source.seek(0)
                head = next(filter(None, inflated(source, file)), b"")[:4096]
        return as_utf8(head)
    except (EOFError, zlib.error) as error:
        raise InputError(file, f"{WANTED}, found a broken gzip file ({error}); copy it again") from None
    except OSError as error:
        raise InputError(file, f"cannot be read: {error.strerror or error}") from None


def _folder(folder: Path) -> str:
    """A folder that is no nsys export, and how to give the profiles in it and in its folders.

    TensorBoard's handler of torch.profiler writes a folder of traces, one for each worker and cycle of the schedule.
    """
    files = (file for pattern in ("*", "*/*") for file in folder.glob(pattern))
    found = sorted(str(file) for file in files if file.name.endswith(PROFILES) and file.is_file())
    if not found:
        return "a folder without nsys's tables (nsys export --type parquetdir makes one that is read)"
    if len(found) == 1:
        return f"a folder with one profile (give {found[0]})"
    ranks = f"pyprof ranks {os.path.commonpath([os.path.dirname(file) for file in found])} -o JOB"
    return f"a folder with {len(found):,} profiles (give one of them, such as {found[0]}; of a job's ranks: {ranks})"


def _describe(file: Path, head: bytes) -> str:
    if is_container(file):
        return "a container of pyprof's, parsed already: give it to prof.py"
    if os.path.isdir(file):
        return _folder(file)
    if not head:
        return "an empty file"
    if head.startswith(PARQUET) and is_parquet_folder(file.parent):
        return f"one table of an export by nsys: give the folder, {file.parent}"
    if head.lstrip()[:1] == b"<":
        return "XML: an .nvvp project of the Visual Profiler holds no events (export with nvprof -o net.sql)"
    if _is_table(head):
        return "a kernel table, parsed already: give it to prof.py"
    if any(head.startswith(mark) for mark in NCU_TEXT):
        return f"a table of Nsight Compute, {NCU_USE}"
    known = next((words for mark, words in BINARY.items() if head.startswith(mark)), None)
    if known:
        return known
    if b"\0" in head[:512]:
        return "a binary file (give an .nsys-rep that name, or export it: nsys export --type sqlite FILE)"
    return f"text that starts {head[:30].decode('utf-8', 'replace')!r}"
