"""Experimental: AMD's databases -> Capture: rocprofv3's rocpd (schema 3, its views) and rocmProfileData's RPD (2).

The reader was written from the views' definitions (rocprofiler-sdk, ROCm 7), without a rocprofv3 database of a PyTorch
run, and tested on databases made by hand; users get a warning about this. In rocpd, the grid is in work-items, and
process and thread numbers are keys of their tables. A kernel and the HIP call that launched it have the same stack_id
in their events; in RPD a table of pairs joins them. PyTorch's own ranges are ROCTX markers.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyprof.errors import InputError, SchemaError
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.formats.cupti import Calls, triples
from pyprof.parse.formats.database import Database, database
from pyprof.parse.formats.kernel_names import demangle, short_name
from pyprof.parse.formats.possible_times import settle, times_warning
from pyprof.parse.formats.text_ranges import TextRange, capture_fields
from pyprof.table.columns import NULL, Coded

EXPERIMENTAL = "AMD's databases are read experimentally: compare with a torch.profiler trace, which is read fully"
# Table -> columns without which nothing can be read
NEEDED_V3 = {
    "rocpd_kernel_dispatch": "start end pid kernel_id event_id",
    "rocpd_info_kernel_symbol": "id kernel_name",
    "rocpd_region": "start end pid tid name_id event_id",
    "rocpd_event": "id stack_id",
    "rocpd_string": "id string",
}
NEEDED_RPD = {
    "rocpd_op": "id start end gpuId queueId description_id opType_id",
    "rocpd_api": "id start end pid tid apiName_id args_id",
    "rocpd_string": "id string",
}


class Operation(NamedTuple):
    """A GPU operation. The fields have the database's values, which are not checked."""

    kind: str
    name: str
    start: int  # ns
    end: int
    pid: int
    device: int | None
    stream: int
    grid: Sequence[int] = (NULL, NULL, NULL)  # in blocks
    block: Sequence[int] = (NULL, NULL, NULL)
    bytes: int | None = NULL
    call: int = NULL  # index of the call that launched it

    def numbers(self) -> list[int]:
        """All fields except kind and name."""
        return [_number(value) for value in (*self[2:7], *self.grid, *self.block, self.bytes, self.call)]


class Events(NamedTuple):
    """The events of a database, as they are stored."""

    profiler: str
    operations: list[Operation]
    calls: list[TextRange]
    markers: list[TextRange]


def is_rocpd(db: Database) -> bool:
    """Whether a database is rocpd or RPD."""
    return db.has("rocpd_kernel_dispatch") or (db.has("rocpd_op") and db.has("rocpd_api"))


def read(file: Path) -> Capture:
    """Read a rocpd or RPD database.

    Raises InputError if it has no GPU activity, and SchemaError if it lacks a column or has an unexpected value.
    """
    with database(file) as db:
        rocprof = db.has("rocpd_kernel_dispatch")
        for table, columns in (NEEDED_V3 if rocprof else NEEDED_RPD).items():
            db.require(table, *columns.split())
        try:
            events = _rocprof_events(db) if rocprof else _rpd_events(db)
            if events.operations:
                return _capture(file, events)
        except (TypeError, ValueError, OverflowError) as error:  # SQLite columns may contain values of any type
            found = f"expected numbers as times, sizes and ids, found another value ({error})"
            raise SchemaError(file, found) from None
    raise InputError(file, f"expected kernels, found a {events.profiler} database without any GPU activity")


def _capture(file: Path, events: Events) -> Capture:
    numbers = np.array([operation.numbers() for operation in events.operations], np.int64)
    starts, ends, wrong = settle(numbers[:, 0], numbers[:, 1], earliest=1)
    order = np.argsort(starts, kind="stable")
    start, end = starts[order], ends[order]
    pid, device, stream, gx, gy, gz, bx, by, bz, size, launched = numbers[order, 2:].T
    operations = [events.operations[i] for i in order.tolist()]
    calls = np.array([[_number(value) for value in call[:4]] for call in events.calls], np.int64).reshape(-1, 4)
    markers = [marker for marker in events.markers if all(type(value) is int for value in marker[:4])]
    first_call = [time for time in calls[:1, 2].tolist() if time > 0]
    origin = min([int(start[0]), *first_call, *(marker.start for marker in markers[:1])])
    names = Coded.of(call.text for call in events.calls)
    api = Calls(calls[:, 2], calls[:, 3], calls[:, 0], calls[:, 1], names, np.arange(len(calls)))
    columns = {
        "kind": Coded.of(operation.kind for operation in operations),
        "kShortName": Coded.of(short_name(operation.name) for operation in operations),
        "kLongName": Coded.of(demangle(operation.name) for operation in operations),
        "start": start - origin,
        "kDuration": end - start,
        "pid": pid,
        "device": device,
        "stream": stream,
        "grid": triples(gx, gy, gz),
        "block": triples(bx, by, bz),
        "bytes": size,
    }
    fields = capture_fields(columns, np.where(launched == NULL, -1, launched), api, markers, origin)
    warnings = [EXPERIMENTAL, *times_warning(wrong)]
    return Capture(file=str(file), profiler=events.profiler, warnings=warnings, **fields)


def _number(value: int | None) -> int:
    """The value; ``NULL`` for SQL's NULL."""
    return NULL if value is None else value


def _rocprof_events(db: Database) -> Events:
    """The events of a rocprofv3 database, from the views whose names lack the run's identifier."""
    pids, tids = _numbers(db, "rocpd_info_process", "pid"), _numbers(db, "rocpd_info_thread", "tid")
    extra = "e.extdata" if db.has("rocpd_event", "extdata") else "''"
    category = "e.category_id" if db.has("rocpd_event", "category_id") else "NULL"
    regions = db.rows(
        f'SELECT r.pid, r.tid, r.start, r."end", s.string, e.stack_id, c.string, {extra} FROM rocpd_region r'  # noqa: S608 (our own text)
        " JOIN rocpd_string s ON s.id = r.name_id JOIN rocpd_event e ON e.id = r.event_id"
        f" LEFT JOIN rocpd_string c ON c.id = {category} ORDER BY r.start, r.id"
    )
    events = Events("rocprofv3", [], [], [])
    launches: dict[int, int] = {}
    for pid, tid, start, end, name, stack, kind, data in regions:
        times = (pids.get(pid, pid), tids.get(tid, tid), start, end)
        if str(kind or "").startswith("MARKER"):
            events.markers.append(TextRange(*times, _message(data) or str(name)))
        else:
            launches.setdefault(stack, len(events.calls))
            events.calls.append(TextRange(*times, str(name)))
    for row in [*_dispatches(db), *_copies(db)]:
        process, call = pids.get(row.pid, row.pid), launches.get(row.call, NULL)
        events.operations.append(row._replace(pid=process, call=call))
    return events


def _dispatches(db: Database) -> list[Operation]:
    """Kernels, with the database's key of the process and the stack_id in place of the call."""
    sizes = [f"{size}_size_{axis}" for size in ("grid", "workgroup") for axis in "xyz"]
    sizes = [f"coalesce(k.{name}, 1)" if db.has("rocpd_kernel_dispatch", name) else "1" for name in sizes]
    places = [f"k.{name}" if db.has("rocpd_kernel_dispatch", name) else "0" for name in ("agent_id", "stream_id")]
    rows = db.rows(
        f'SELECT s.kernel_name, k.start, k."end", k.pid, {", ".join(places)}, e.stack_id, {", ".join(sizes)}'  # noqa: S608 (our own text)
        " FROM rocpd_kernel_dispatch k LEFT JOIN rocpd_info_kernel_symbol s ON s.id = k.kernel_id"
        " LEFT JOIN rocpd_event e ON e.id = k.event_id ORDER BY k.start, k.id"
    )
    operations = []
    for symbol, start, end, pid, agent, stream, stack, *extent in rows:
        name, block = str(symbol or "").removesuffix(".kd"), extent[3:]
        grid = [-(-items // max(size, 1)) for items, size in zip(extent[:3], block, strict=True)]
        operations.append(Operation("kernel", name, start, end, pid, agent, stream, grid, block, call=stack))
    return operations


def _copies(db: Database) -> list[Operation]:
    """As ``_dispatches``."""
    if not db.has("rocpd_memory_copy", "name_id"):
        return []
    rows = db.rows(
        'SELECT s.string, m.start, m."end", m.pid, m.dst_agent_id, m.size, e.stack_id FROM rocpd_memory_copy m'
        " LEFT JOIN rocpd_string s ON s.id = m.name_id LEFT JOIN rocpd_event e ON e.id = m.event_id"
        " ORDER BY m.start, m.id"
    )
    return [
        Operation("memcpy", str(name or ""), start, end, pid, agent, 0, bytes=size, call=stack)
        for name, start, end, pid, agent, size, stack in rows
    ]


def _rpd_events(db: Database) -> Events:
    """The events of an RPD database. A marker is a call named UserMarker, and its text is the call's arguments."""
    rows = db.rows(
        "SELECT a.id, a.pid, a.tid, a.start, a.\"end\", n.string, coalesce(t.string, '') FROM rocpd_api a"
        " JOIN rocpd_string n ON n.id = a.apiName_id LEFT JOIN rocpd_string t ON t.id = a.args_id"
        " ORDER BY a.start, a.id"
    )
    calls: list[TextRange] = []
    markers: list[TextRange] = []
    places: dict[int, int] = {}  # key of a call -> its place in ``calls``
    for id_, pid, tid, start, end, name, text in rows:
        if name == "UserMarker":
            markers.append(TextRange(pid, tid, start, end, str(text)))
        else:
            places[id_] = len(calls)
            calls.append(TextRange(pid, tid, start, end, str(name)))
    return Events("rocmProfileData", _rpd_operations(db, calls, places), calls, markers)


def _rpd_operations(db: Database, calls: list[TextRange], places: dict[int, int]) -> list[Operation]:
    """An operation's process is that of its call."""
    pairs = db.rows("SELECT op_id, min(api_id) FROM rocpd_api_ops GROUP BY op_id") if db.has("rocpd_api_ops") else []
    launches = {op: places[api] for op, api in pairs if api in places}
    rows = db.rows(
        'SELECT o.id, o.start, o."end", d.string, t.string, o.gpuId, o.queueId FROM rocpd_op o'
        " LEFT JOIN rocpd_string d ON d.id = o.description_id LEFT JOIN rocpd_string t ON t.id = o.opType_id"
        " ORDER BY o.start, o.id"
    )
    pids = {call.pid for call in calls}
    only_pid = next(iter(pids)) if len(pids) == 1 else NULL
    operations = []
    for id_, start, end, name, type_, gpu, queue in rows:
        call = launches.get(id_, NULL)
        pid = only_pid if call == NULL else calls[call].pid
        operations.append(Operation(_kind(str(type_)), str(name or type_), start, end, pid, gpu, queue, call=call))
    return operations


def _kind(operation: str) -> str:
    """The kind of an operation from HIP's name: KernelExecution, CopyHostToDevice, FillBuffer."""
    if operation.startswith("Copy"):
        return "memcpy"
    return "memset" if operation.startswith("Fill") else "kernel"


def _numbers(db: Database, table: str, column: str) -> dict[int, int]:
    """Key in the table -> process or thread number of the operating system."""
    if not db.has(table, column):
        return {}
    return dict(db.rows(f"SELECT id, {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY id"))  # noqa: S608 (our own text)


def _message(data: Any) -> str:
    """A ROCTX range's text, from the event's extra data in JSON."""
    try:
        extra = json.loads(data) if data else None
    except (ValueError, TypeError, RecursionError):
        return ""
    message = extra.get("message") if isinstance(extra, dict) else None
    return message if isinstance(message, str) else ""
