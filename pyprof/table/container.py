"""The container net.pyprof: a folder with everything that parse.py makes of a capture, as one versioned thing.

    net.pyprof/meta.json        format and version, the profiler, its warnings, and the rows of each table
    net.pyprof/kernels.parquet  the kernel table, where the capture has operations or CPU ops
    net.pyprof/memory.parquet   the memory table, where the capture has allocations
    net.pyprof/host_calls.parquet  the calls of the GPU's API, where the capture has them; ``pyprof replay`` reads them

A reader ignores files that meta.json does not name. The folder appears under its name when it is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import msgspec
import numpy as np
from msgspec import Meta

from pyprof._version import __version__
from pyprof.errors import InputError, PyprofError, SchemaError
from pyprof.files import link_unnamed, scratch_folder, unnamed_file, usual_mode
from pyprof.table.columns import NULL, HostTable, MemoryTable, Table
from pyprof.text import clean

META, FORMAT, VERSION = "meta.json", "pyprof/container", 1
LARGEST_META = 16 << 20  # bytes; warnings and names of files, which are few
KERNELS_FILE, MEMORY_FILE, HOST_FILE = "kernels.parquet", "memory.parquet", "host_calls.parquet"
ADVICE = "make it with parse.py -o net.pyprof"
_FAR = 1 << 61  # times and sums of bytes stay below it


class _Meta(msgspec.Struct, omit_defaults=False):
    """The content of meta.json."""

    format: str
    version: int
    pyprof: str = ""
    profiler: str | None = None
    files: list[str] = []
    warnings: list[str] = []
    tables: dict[str, Annotated[int, Meta(ge=0)]] = {}


@dataclass(frozen=True, slots=True)
class Container:
    """The content of a container; a table that the capture does not have is None."""

    kernels: Table | None
    memory: MemoryTable | None
    profiler: str | None = None
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    host: HostTable | None = None


def is_container(path: Path) -> bool:
    """Whether a path is a folder with a container's meta.json."""
    return os.path.isfile(path / META)


def check_container_output(target: Path, force: bool) -> None:
    """Raise PyprofError if ``write_container`` would raise it. With ``force`` only a container is overwritten."""
    if not target.absolute().parent.is_dir():
        raise PyprofError(f"{target}: cannot be written: there is no folder {target.parent}; make it first")
    if not os.path.lexists(target):
        return
    if not force:
        raise PyprofError(f"{target}: exists; give --force to overwrite it, or another name")
    if not is_container(target):
        raise PyprofError(f"{target}: exists and is no container of pyprof's: it is left alone; give another name")


def write_container(container: Container, target: Path, force: bool = False) -> None:
    """Write the folder ``target``. It is written beside its place and moved there when it is complete.

    On Linux its files have no names until all are complete, so that nothing is left if the process is killed.
    """
    check_container_output(target, force)
    parent = target.absolute().parent
    try:
        with ExitStack() as stack:
            files = [(name, stack.enter_context(_file(parent)), write) for name, write in _parts(container)]
            for _, file, write in files:
                write(file)
                file.flush()
            scratch = stack.enter_context(scratch_folder(parent, f".{target.name[:100]}."))
            made = Path(scratch, "made")
            made.mkdir()
            for name, file, _ in files:
                _name(file, made / name)
            _move(made, target, Path(scratch, "before"))
    except OSError as error:
        raise PyprofError(f"{target}: cannot be written: {error.strerror or error}") from error


def _file(folder: Path) -> BinaryIO:
    handle = unnamed_file(folder)
    return cast(BinaryIO, tempfile.TemporaryFile(dir=folder)) if handle is None else open(handle, "w+b")


def _name(file: BinaryIO, name: Path) -> None:
    """Put a complete file in its place: by a link, or where there are none, as a copy."""
    try:
        link_unnamed(file.fileno(), name)
    except OSError:
        file.seek(0)
        with name.open("wb") as out:
            shutil.copyfileobj(file, out)
    name.chmod(usual_mode(name.parent / "new"))


def _move(made: Path, target: Path, before: Path) -> None:
    """Put the new folder into its place; what was there goes to ``before``, and comes back if that fails."""
    replaces = os.path.lexists(target)
    if replaces:
        target.rename(before)
    try:
        made.rename(target)
    except OSError:
        if replaces:
            before.rename(target)
        raise


def _parts(container: Container) -> list[tuple[str, Callable[[BinaryIO], object]]]:
    """The names of the files, and what writes each."""
    from pyprof.table.parquet import write_columns

    tables: Mapping[str, Table | None] = {
        KERNELS_FILE: container.kernels,
        MEMORY_FILE: container.memory,
        HOST_FILE: container.host,
    }
    there = {name: table for name, table in tables.items() if table is not None}
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "pyprof": __version__,
        "profiler": None if container.profiler is None else clean(container.profiler),
        "files": [clean(file) for file in container.files],
        "warnings": [clean(text) for text in container.warnings],
        "tables": {name: len(table) for name, table in there.items()},
    }
    text = (json.dumps(meta, indent=1) + "\n").encode("ascii")
    return [
        *((name, partial(write_columns, table)) for name, table in there.items()),
        (META, lambda out: out.write(text)),
    ]


def read_container(folder: Path) -> Container:
    """Read a container. Raises InputError if it is damaged, or of a version that this pyprof does not know."""
    from pyprof.table.parquet import read_columns

    meta = _read_meta(folder)
    for name in meta.tables:
        if name in (KERNELS_FILE, MEMORY_FILE, HOST_FILE) and not (folder / name).is_file():
            raise InputError(folder, f"expected the table {name}, which {META} names, found none; {ADVICE}")
    kernels = read_columns(folder / KERNELS_FILE, Table) if KERNELS_FILE in meta.tables else None
    memory = read_columns(folder / MEMORY_FILE, MemoryTable) if MEMORY_FILE in meta.tables else None
    host = read_columns(folder / HOST_FILE, HostTable) if HOST_FILE in meta.tables else None
    if memory is not None:
        check_memory(memory, folder / MEMORY_FILE)
    if host is not None:
        check_host_calls(host, folder / HOST_FILE)
    return Container(kernels, memory, meta.profiler, tuple(meta.files), tuple(meta.warnings), host)


def _read_meta(folder: Path) -> _Meta:
    file = folder / META
    try:
        size = file.stat().st_size
        if size > LARGEST_META:
            raise InputError(file, f"expected at most {LARGEST_META:,} bytes, found {size:,}; {ADVICE}")
        meta = msgspec.json.decode(file.read_bytes(), type=_Meta)
    except OSError as error:
        raise InputError(file, f"cannot be read: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(file, f"expected a container's description, found another text ({error}); {ADVICE}") from None
    if meta.format != FORMAT or meta.version != VERSION:
        found = f"{meta.format!r} version {meta.version}"
        raise InputError(file, f"expected {FORMAT!r} version {VERSION}, found {found}; read it with its own pyprof")
    return meta


def check_memory(table: MemoryTable, file: Path) -> None:
    """Raise SchemaError for a memory table whose rows do not fit together: it may come from any source."""
    rows = len(table)
    time, size, peer = (table.ints(key) for key in ("time", "bytes", "peer"))
    _check(file, "time", "a time in ns", time, np.abs(_known(time)) < _FAR, time == NULL)
    _check(file, "bytes", "a number of bytes", size, np.abs(_known(size)) < _FAR, size == NULL)
    for key in ("allocated", "reserved"):
        total = table.ints(key)
        _check(file, key, "a number of bytes", total, np.abs(_known(total)) < _FAR)
    if rows and float(np.abs(_known(size)).astype(np.float64).sum()) >= _FAR:
        raise SchemaError(file, f"column bytes: expected a sum below 2**61, found more; {ADVICE}")
    linked = np.flatnonzero(peer != NULL)
    inside = (peer[linked] >= 0) & (peer[linked] < rows)
    mutual = inside.copy()
    mutual[inside] = (peer[peer[linked[inside]]] == linked[inside]) & (peer[linked[inside]] != linked[inside])
    if not mutual.all():
        wrong = int(linked[~mutual][0])
        raise SchemaError(file, f"column peer: expected pairs of rows, found {int(peer[wrong])} in row {wrong}")


def check_host_calls(table: HostTable, file: Path) -> None:
    """Raise SchemaError for host calls without possible times, or in another order than that of the schema."""
    start, duration = table.ints("start"), table.ints("duration")
    _check(file, "start", "a time in ns", start, np.abs(_known(start)) < _FAR, start == NULL)
    possible = (duration >= 0) & (duration < _FAR)
    _check(file, "duration", "a time in ns", duration, possible, duration == NULL)
    order = np.lexsort((start, table.ints("tid"), table.ints("pid")))
    moved = np.flatnonzero(order != np.arange(len(order)))
    if len(moved):
        raise SchemaError(file, f"expected rows in order of pid, tid and start, found row {moved[0]} elsewhere")


def _known(values: Any) -> Any:
    return np.where(values == NULL, 0, values)


def _check(file: Path, key: str, wanted: str, values: Any, good: Any, missing: Any = None) -> None:
    wrong = np.flatnonzero(~good if missing is None else (~good | missing))
    if len(wrong):
        row = int(wrong[0])
        found = "none" if values[row] == NULL else str(int(values[row]))
        raise SchemaError(file, f"column {key}: expected {wanted}, found {found} in row {row}; {ADVICE}")
