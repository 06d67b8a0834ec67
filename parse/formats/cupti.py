"""Code shared by the readers of nsys and nvprof databases, both of which come from CUPTI's activity records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.parse.databases.database import Database, Source, named
from pyprof.parse.formats.possible_times import LATEST_NS, lasted, settle, times_warning
from pyprof.table.columns import NULL, Coded, Data, Ints, distinct, folded, value_at

# Columns of CUPTI's records: pyprof's name (the kernel table's name if it has the column) and CUPTI's name.
TIMES = named("start_ns=start, end_ns=end")
OPERATION = (*TIMES, *named("corr=correlationId, device=deviceId, stream=streamId"))
LAUNCH = named(
    "grid_x=gridX, grid_y=gridY, grid_z=gridZ, block_x=blockX, block_y=blockY, block_z=blockZ,"
    " registers=registersPerThread, staticSmem=staticSharedMemory, dynamicSmem=dynamicSharedMemory"
)
COPY = named("bytes, copy_kind=copyKind, from_memory=srcKind, to_memory=dstKind")
REQUIRED = ("start_ns", "end_ns", "corr")
BY_START = ("start_ns", "corr")
# Columns that the kernel table has under the same name and in the same unit.
SAME = ("corr", "device", "stream", "registers", "staticSmem", "dynamicSmem", "bytes", "graphNode")

# CUpti_ActivityMemcpyKind, from value 1 on, with the labels that nsys stats prints.
_COPIES = (
    "Host-to-Device, Device-to-Host, Host-to-Array, Array-to-Host, Array-to-Array, Array-to-Device, Device-to-Array,"
    " Device-to-Device, Host-to-Host, Peer-to-Peer, Unified Host-to-Device, Unified Device-to-Host,"
    " Unified Device-to-Device"
)
COPIES = dict(enumerate(_COPIES.split(", "), 1))


# The kinds of memory that a copy reads and writes: CUpti_ActivityMemoryKind, whose 0 is unknown.
MEMORY = dict(enumerate("Pageable, Pinned, Device, Array, Managed, Device Static, Managed Static".split(", "), 1))


def gpu_operations(
    db: Database, sources: Sequence[Source], names: Sequence[str] = (), earliest: int = -LATEST_NS
) -> tuple[dict[str, Ints], list[str], int]:
    """The GPU operations of several tables as one table, in order of start; warnings; the rows with impossible times.

    Reads all columns, or only ``names``; a column that a table lacks is ``NULL``. `kind` is the index of the row's
    source. Impossible times are corrected (see ``settle``). Raises SchemaError if a table lacks a required column.
    """
    tables = [db.read(source, *(name for name in names if name in source.names)) for source in sources]
    counts = [len(table["start_ns"]) for table in tables]
    data: dict[str, Ints] = {"kind": np.repeat(np.arange(len(sources)), counts)}
    for name in dict.fromkeys(names or (name for source in sources for name in source.names)):
        parts = [table.pop(name, None) for table in tables]
        unknown = (np.broadcast_to(np.int64(NULL), count) for count in counts)
        data[name] = folded(np.concatenate([b if a is None else a for a, b in zip(parts, unknown, strict=True)]))
    data["start_ns"], data["end_ns"], wrong = settle(data["start_ns"], data["end_ns"], earliest)
    warnings = [*times_warning(wrong), *_wrong_types(db, sources, counts, data["end_ns"] - data["start_ns"])]
    order = np.lexsort([data[name] for name in reversed(sources[0].order)])
    for name, column in data.items():
        data[name] = column[order] if any(column.strides) else column  # without strides: one value for all rows
    return data, warnings, wrong


def _wrong_types(db: Database, sources: Sequence[Source], counts: Sequence[int], took: Ints) -> list[str]:
    """A warning about the operations with values that are not integers. ``took``: ns of each row of the sources."""
    found = [
        (column, begin + rows)
        for source, begin in zip(sources, np.cumsum([0, *counts]).tolist(), strict=False)
        for column, rows in db.wrong.get(source.table, {}).items()
    ]
    if not found:
        return []
    rows = np.unique(np.concatenate([rows for _, rows in found]))
    return [wrong_operations(len(rows), int(took[rows].sum()), [column for column, _ in found])]


def wrong_operations(rows: int, took: int, columns: Iterable[str]) -> str:
    """The warning about ``rows`` GPU operations of ``took`` ns with values of wrong types in these columns."""
    what = f"{rows:,} GPU operations, which take {took:,} ns,"
    return f"{what} have values that are not whole numbers, which are unknown ({', '.join(dict.fromkeys(columns))})"


def table_columns(data: Mapping[str, Ints], kinds: Sequence[str]) -> dict[str, Data]:
    """The kernel table's columns, made from ``gpu_operations``' data. ``kinds``: per source, the kind of its rows."""
    columns: dict[str, Data] = {
        "kind": Coded(data["kind"].astype(np.int32), list(kinds)),
        "start": data["start_ns"],
        "kDuration": data["end_ns"] - data["start_ns"],
    }
    columns.update({name: data[name] for name in SAME if name in data})
    if "grid_x" in data:
        columns["grid"], columns["block"] = sizes(data, "grid"), sizes(data, "block")
    return columns


class Calls(NamedTuple):
    """API calls; ``corr`` is their correlation ids."""

    start: Ints  # ns
    end: Ints
    pid: Ints
    tid: Ints
    name: Coded
    corr: Ints


def launch_columns(call: Ints, calls: Calls, origin: int = 0) -> dict[str, Data]:
    """The columns about each row's ``call`` (an index, -1: none). ``origin``: the time in ns that becomes 0."""
    start = value_at(calls.start, call)
    return {
        "tid": value_at(calls.tid, call),
        "apiStart": np.where(start == NULL, NULL, start - np.where(start == NULL, 0, origin)),
        "apiDuration": lasted(start, value_at(calls.end, call)),
        "api": Coded(value_at(calls.name.codes, call, -1), calls.name.values),
        "apiSync": value_at(following_syncs(calls), call),
    }


def following_syncs(calls: Calls) -> Ints:
    """Per call, the duration in ns of its thread's next call if this waits for a stream; NULL if it does not."""
    found = np.full(len(calls.start), NULL, np.int64)
    waiting = calls.name.where(lambda name: "StreamSynchronize" in name)
    if not waiting.any():
        return found
    order = np.lexsort((calls.start, calls.tid, calls.pid))
    after = np.flatnonzero(waiting[order[1:]]) + 1
    call, before = order[after], order[after - 1]
    same_thread = (calls.pid[call] == calls.pid[before]) & (calls.tid[call] == calls.tid[before])
    follows = same_thread & (calls.start[call] >= calls.end[before])
    found[before] = np.where(follows, lasted(calls.start[call], calls.end[call]), NULL)
    return found


def name_operations(names: Sequence[Coded], data: Mapping[str, Ints], kinds: Sequence[str]) -> None:
    """Name copies, memsets and graphs as nsys stats prints them: `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`."""
    details = {"memcpy": "copy_kind", "graph": "graph"}
    for number, kind in enumerate(kinds):
        if kind == "kernel":
            continue
        rows = np.flatnonzero(data["kind"] == number)
        detail = data[details[kind]][rows] if kind in details else np.full(len(rows), NULL)
        for value in np.unique(detail).tolist():
            text = COPIES.get(value, "") if kind == "memcpy" else str(value)
            for column in names:
                column.values.append(f"[CUDA {kind} {text}]" if value >= 0 and text else f"[CUDA {kind}]")
                column.codes[rows[detail == value]] = len(column.values) - 1


def name_memory(names: Coded, data: Mapping[str, Ints], memory: Mapping[int, str]) -> None:
    """Add to copies' names the memory that they read and write: `[CUDA memcpy Host-to-Device] (Pageable -> Device)`.

    ``memory``: the kinds of memory. Names stay as they are where one of the two kinds is not among them.
    """
    pairs, number = distinct(data["from_memory"], data["to_memory"], names.codes)
    for place, (source, target, code) in enumerate(pairs):
        if source in memory and target in memory and code >= 0:
            names.values.append(f"{names.values[code]} ({memory[source]} -> {memory[target]})")
            names.codes[number == place] = len(names.values) - 1


def sizes(data: Mapping[str, Ints], name: str) -> Coded:
    """The grid or block of each launch, from its three columns."""
    return triples(*(data[f"{name}_{axis}"] for axis in "xyz"))


def triples(x: Ints, y: Ints, z: Ints) -> Coded:
    """A grid or block column as texts `[x, y, z]`, made once per distinct size; empty where a number is unknown."""
    distinct_sizes, codes = distinct(x, y, z)
    values = ["" if NULL in size else f"[{size[0]}, {size[1]}, {size[2]}]" for size in distinct_sizes]
    coded = Coded(codes.astype(np.int32), values)
    coded.codes[(x == NULL) | (y == NULL) | (z == NULL)] = -1
    return coded


def texts_of(ids: Ints, texts: Mapping[int, str]) -> Coded:
    """The text of each row's text number; empty if it has none."""
    used, codes = distinct(ids)
    return Coded(codes.astype(np.int32), [texts.get(id_, "") for (id_,) in used])
