"""AMD's databases -> Capture, experimentally: rocprofv3's rocpd (schema 3, its views) and rocmProfileData's RPD (2).

No rocprofv3 database of a PyTorch run was at hand: the reader is written from the views' definitions (rocprofiler-sdk,
ROCm 7) and tested on databases made by hand, and says so in a warning. rocpd's grid is in work-items, and its process
and thread numbers are keys of their tables. A kernel and the HIP call that launched it share their event's stack_id;
in RPD a table of pairs joins them. PyTorch's own ranges come as ROCTX markers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyprof.errors import InputError, SchemaError
from pyprof.parse.attribute.capture import Capture, Ranges
from pyprof.parse.attribute.reasons import NO_CALL
from pyprof.parse.attribute.scope import Scope, classify, split
from pyprof.parse.formats.cupti import triples
from pyprof.parse.formats.database import Database, database
from pyprof.parse.formats.kernel_names import demangle, short_name
from pyprof.parse.formats.possible_times import lasted, settle
from pyprof.table.columns import NULL, Coded, Data, Ints

EXPERIMENTAL = "AMD's databases are read experimentally: compare with a torch.profiler trace, which is read fully"
NEEDED_V3 = {
    "rocpd_kernel_dispatch": ("start", "end", "pid", "kernel_id", "event_id"),
    "rocpd_info_kernel_symbol": ("id", "kernel_name"),
    "rocpd_region": ("start", "end", "pid", "tid", "name_id", "event_id"),
    "rocpd_event": ("id", "stack_id"),
    "rocpd_string": ("id", "string"),
}
NEEDED_RPD = {
    "rocpd_op": ("id", "start", "end", "gpuId", "queueId", "description_id", "opType_id"),
    "rocpd_api": ("id", "start", "end", "pid", "tid", "apiName_id", "args_id"),
    "rocpd_string": ("id", "string"),
}

# kind, start, end, name, pid, device, stream, grid (blocks) x y z, block x y z, bytes, launch (row of a call, or NULL)
Operation = tuple[str, int, int, str, int, int, int, int, int, int, int, int, int, int, int]
Span = tuple[int, int, int, int, str]  # pid, tid, start, end, text


class _Found(NamedTuple):
    profiler: str
    operations: list[Operation]
    calls: list[Span]
    markers: list[Span]


def is_rocpd(db: Database) -> bool:
    return db.has("rocpd_kernel_dispatch") or (db.has("rocpd_op") and db.has("rocpd_api"))


def read(file: Path) -> Capture:
    """Read a rocpd or RPD database. Raises InputError where it holds no GPU activity, SchemaError for other columns."""
    with database(file) as db:
        rocprof = db.has("rocpd_kernel_dispatch")
        for table, columns in (NEEDED_V3 if rocprof else NEEDED_RPD).items():
            db.require(table, *columns)
        try:
            found = _version_3(db) if rocprof else _rpd(db)
            if found.operations:
                return _capture(file, found)
        except (TypeError, ValueError, OverflowError) as error:  # SQLite's columns hold whatever was put there
            words = f"expected numbers as times, sizes and ids, found another value ({error})"
            raise SchemaError(file, words) from None
    raise InputError(file, f"expected kernels, found a {found.profiler} database without any GPU activity")


def _capture(file: Path, found: _Found) -> Capture:
    numbers = np.array([[_number(value) for value in (row[1], row[2], *row[4:])] for row in found.operations], np.int64)
    times = settle(numbers[:, 0], numbers[:, 1], earliest=1)
    order = np.argsort(times.start, kind="stable")
    start, end = times.start[order], times.end[order]
    pid, device, stream, gx, gy, gz, bx, by, bz, size, call = numbers[order, 2:].T
    operations = [found.operations[i] for i in order.tolist()]
    calls = np.array([[_number(value) for value in span[:4]] for span in found.calls], np.int64).reshape(-1, 4)
    markers = [span for span in found.markers if all(type(value) is int for value in span[:4])]
    begins = [int(start[0]), *(time for time in calls[:1, 2].tolist() if time > 0), *(span[2] for span in markers[:1])]
    origin = min(begins)
    threads: dict[tuple[int, int], int] = {}
    ranges, scopes = _ranges(markers, threads, origin)
    owner = [threads.setdefault((pid, tid), len(threads)) for pid, tid in calls[:, :2].tolist()]
    thread = np.array([*owner, -1], np.int64)
    begun = np.append(np.where(calls[:, 2] == NULL, NULL, calls[:, 2] - origin), NULL)
    at = np.where(call == NULL, -1, call)
    names = [row[3] for row in operations]
    columns: dict[str, Data] = {
        "kind": Coded.of([row[0] for row in operations]),
        "kShortName": Coded.of([short_name(name) for name in names]),
        "kLongName": Coded.of([demangle(name) for name in names]),
        "start": start - origin, "kDuration": end - start, "pid": pid, "device": device, "stream": stream,
        "tid": np.append(calls[:, 1], NULL)[at], "grid": triples(gx, gy, gz), "block": triples(bx, by, bz),
        "bytes": size, "api": Coded.of([*(span[4] for span in found.calls), ""]).take(at),
        "apiStart": begun[at],
        "apiDuration": np.append(lasted(calls[:, 2], calls[:, 3]), NULL)[at],
    }  # fmt: skip
    return Capture(
        file=str(file),
        profiler=found.profiler,
        threads=list(threads),
        scopes=scopes,
        ranges=ranges,
        rows=len(operations),
        columns=columns,
        launch_thread=thread[at],
        launch_time=begun[at],
        reason=[NO_CALL],
        reason_code=np.where(at >= 0, -1, 0),
        warnings=[EXPERIMENTAL, *times.warnings()],
    )


def _number(value: int | None) -> int:
    return NULL if value is None else value


def _ranges(markers: list[Span], threads: dict[tuple[int, int], int], origin: int) -> tuple[Ranges, list[Scope]]:
    scopes: dict[tuple[str, bool, str], int] = {}
    rows = []
    for pid, tid, start, end, text in markers:
        name, seq, op_id, sizes = split(text)
        recorded = seq is not None or op_id is not None
        scope = scopes.setdefault((name, recorded, sizes), len(scopes))
        thread = threads.setdefault((pid, tid), len(threads))
        numbers = (NULL if number is None else number for number in (seq, op_id))
        rows.append((thread, start - origin, end - origin, scope, *numbers))
    columns: list[Ints] = list(np.array(rows, np.int64).reshape(-1, 6).T.copy())
    return Ranges(*columns), [classify(*key) for key in scopes]


def _version_3(db: Database) -> _Found:
    """rocprofv3: the views without the run's identifier in their names."""
    pids, tids = (
        _numbers(db, f"rocpd_info_{what}", column) for what, column in (("process", "pid"), ("thread", "tid"))
    )
    extra = "e.extdata" if db.has("rocpd_event", "extdata") else "''"
    category = "e.category_id" if db.has("rocpd_event", "category_id") else "NULL"
    regions = db.rows(
        f'SELECT r.pid, r.tid, r.start, r."end", s.string, e.stack_id, c.string, {extra} FROM rocpd_region r'  # noqa: S608 (our own text)
        " JOIN rocpd_string s ON s.id = r.name_id JOIN rocpd_event e ON e.id = r.event_id"
        f" LEFT JOIN rocpd_string c ON c.id = {category} ORDER BY r.start, r.id"
    )
    calls: list[Span] = []
    markers: list[Span] = []
    launches: dict[int, int] = {}
    for pid, tid, start, end, name, stack, kind, data in regions:
        span = (pids.get(pid, pid), tids.get(tid, tid), start, end)
        if str(kind or "").startswith("MARKER"):
            markers.append((*span, _message(data) or str(name)))
        else:
            launches.setdefault(stack, len(calls))
            calls.append((*span, str(name)))
    return _Found("rocprofv3", _dispatches(db, pids, launches) + _copies(db, pids, launches), calls, markers)


def _dispatches(db: Database, pids: dict[int, int], launches: dict[int, int]) -> list[Operation]:
    sizes = [f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz"]
    told = [f"coalesce(k.{name}, 1)" if db.has("rocpd_kernel_dispatch", name) else "1" for name in sizes]
    where = [f"k.{name}" if db.has("rocpd_kernel_dispatch", name) else "0" for name in ("agent_id", "stream_id")]
    rows = db.rows(
        f'SELECT k.start, k."end", s.kernel_name, k.pid, {", ".join([*where, *told])}, e.stack_id'  # noqa: S608 (our own text)
        " FROM rocpd_kernel_dispatch k LEFT JOIN rocpd_info_kernel_symbol s ON s.id = k.kernel_id"
        " LEFT JOIN rocpd_event e ON e.id = k.event_id ORDER BY k.start, k.id"
    )
    return [
        ("kernel", start, end, str(name or "").removesuffix(".kd"), pids.get(pid, pid), agent, stream,
         *_blocks(items, block), *block, NULL, launches.get(stack, NULL))
        for start, end, name, pid, agent, stream, *rest, stack in rows
        for items, block in [(rest[:3], (rest[3], rest[4], rest[5]))]
    ]  # fmt: skip


def _blocks(items: list[int], block: tuple[int, int, int]) -> tuple[int, int, int]:
    """Work-items -> workgroups."""
    x, y, z = (-(-count // max(size, 1)) for count, size in zip(items, block, strict=True))
    return x, y, z


def _copies(db: Database, pids: dict[int, int], launches: dict[int, int]) -> list[Operation]:
    if not db.has("rocpd_memory_copy", "name_id"):
        return []
    rows = db.rows(
        'SELECT m.start, m."end", s.string, m.pid, m.dst_agent_id, m.size, e.stack_id FROM rocpd_memory_copy m'
        " LEFT JOIN rocpd_string s ON s.id = m.name_id LEFT JOIN rocpd_event e ON e.id = m.event_id"
        " ORDER BY m.start, m.id"
    )
    none = (NULL,) * 3
    return [
        ("memcpy", start, end, str(name or ""), pids.get(pid, pid), _number(agent), 0, *none, *none, _number(size),
         launches.get(stack, NULL))
        for start, end, name, pid, agent, size, stack in rows
    ]  # fmt: skip


def _rpd(db: Database) -> _Found:
    """rocmProfileData: markers are calls of the name UserMarker, their text the arguments."""
    spans = db.rows(
        "SELECT a.id, a.pid, a.tid, a.start, a.\"end\", n.string, coalesce(t.string, '') FROM rocpd_api a"
        " JOIN rocpd_string n ON n.id = a.apiName_id LEFT JOIN rocpd_string t ON t.id = a.args_id"
        " ORDER BY a.start, a.id"
    )
    calls: list[Span] = []
    markers: list[Span] = []
    place: dict[int, int] = {}
    for id_, pid, tid, start, end, name, text in spans:
        if name == "UserMarker":
            markers.append((pid, tid, start, end, str(text)))
        else:
            place[id_] = len(calls)
            calls.append((pid, tid, start, end, str(name)))
    pairs = db.rows("SELECT op_id, min(api_id) FROM rocpd_api_ops GROUP BY op_id") if db.has("rocpd_api_ops") else []
    launches = {op: place[api] for op, api in pairs if api in place}
    rows = db.rows(
        'SELECT o.id, o.start, o."end", d.string, t.string, o.gpuId, o.queueId FROM rocpd_op o'
        " LEFT JOIN rocpd_string d ON d.id = o.description_id LEFT JOIN rocpd_string t ON t.id = o.opType_id"
        " ORDER BY o.start, o.id"
    )
    none = (NULL,) * 3
    only = {pid for pid, *_ in calls}
    alone = next(iter(only)) if len(only) == 1 else NULL
    operations: list[Operation] = [
        (_kind(str(type_)), start, end, str(name or type_), calls[launches[id_]][0] if id_ in launches else alone, gpu,
         queue, *none, *none, NULL, launches.get(id_, NULL))
        for id_, start, end, name, type_, gpu, queue in rows
    ]  # fmt: skip
    return _Found("rocmProfileData", operations, calls, markers)


def _kind(operation: str) -> str:
    """HIP's names: KernelExecution, CopyHostToDevice, FillBuffer."""
    return "memcpy" if operation.startswith("Copy") else "memset" if operation.startswith("Fill") else "kernel"


def _numbers(db: Database, table: str, column: str) -> dict[int, int]:
    """Key -> the system's own number."""
    if not db.has(table, column):
        return {}
    return dict(db.rows(f"SELECT id, {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY id"))  # noqa: S608 (our own text)


def _message(data: Any) -> str:
    """A ROCTX range's text: the event's extra data, JSON."""
    try:
        found = json.loads(data) if data else None
    except (ValueError, TypeError, RecursionError):
        return ""
    message = found.get("message") if isinstance(found, dict) else None
    return message if isinstance(message, str) else ""
