"""Experimental: AMD's databases -> Capture: rocprofv3's rocpd (schema 3, its views) and rocmProfileData's RPD (2).

The reader was written from the views' definitions (rocprofiler-sdk, ROCm 7) and tested on databases made by hand and on
one of a HIP program, none of a PyTorch run; users get a warning about this. In rocpd, process, thread and agent numbers
are keys of their tables, and a kernel and the HIP call that launched it have the same stack_id in their events; in RPD
a table of pairs joins them.
"""

import json
from pathlib import Path
from typing import Any

from pyprof.errors import InputError, SchemaError
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.formats.database import Database, database
from pyprof.parse.formats.rocm_events import (
    NO_RANGES,
    ROCPROFV3,
    Events,
    Gpu,
    Operation,
    capture_of,
    copy_name,
    gpu_of,
    in_blocks,
    kernel_name,
)
from pyprof.parse.formats.text_ranges import TextRange
from pyprof.table.columns import NULL

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
                return capture_of(file, events)
        except (TypeError, ValueError, OverflowError) as error:  # SQLite columns may contain values of any type
            found = f"expected numbers as times, sizes and ids, found another value ({error})"
            raise SchemaError(file, found) from None
    raise InputError(file, f"expected kernels, found a {events.profiler} database without any GPU activity")


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
    events = Events(ROCPROFV3, [], [], [])
    launches: dict[int, int] = {}
    for pid, tid, start, end, name, stack, kind, data in regions:
        times = (pids.get(pid, pid), tids.get(tid, tid), start, end)
        if not str(kind or "").startswith("MARKER"):
            launches.setdefault(stack, len(events.calls))
            events.calls.append(TextRange(*times, str(name)))
        elif name not in NO_RANGES:
            events.markers.append(TextRange(*times, _message(data) or str(name)))
    agents = _agents(db)
    for row in [*_dispatches(db, agents), *_copies(db, agents)]:
        process, call = pids.get(row.pid, row.pid), launches.get(row.call, NULL)
        events.operations.append(row._replace(pid=process, call=call))
    return events


def _agents(db: Database) -> dict[int, Gpu | None]:
    """Key of an agent -> the GPU; None for a CPU. Empty in a database without agents."""
    if not db.has("rocpd_info_agent", "extdata"):
        return {}
    rows = db.rows("SELECT id, extdata FROM rocpd_info_agent ORDER BY id")
    records = ((id_, _extra(data)) for id_, data in rows)
    return {id_: gpu_of(record) for id_, record in records if record}


def _selected(db: Database, table: str, *columns: str, missing: str = "NULL") -> list[str]:
    """SQL of a table's columns; ``missing`` for a column that it lacks."""
    return [f"k.{column}" if db.has(table, column) else missing for column in columns]


def _dispatches(db: Database, agents: dict[int, Gpu | None]) -> list[Operation]:
    """Kernels, with the database's key of the process and the stack_id in place of the call."""
    table = "rocpd_kernel_dispatch"
    display = "s.display_name" if db.has("rocpd_info_kernel_symbol", "display_name") else "NULL"
    sizes = [f"{size}_size_{axis}" for size in ("grid", "workgroup") for axis in "xyz"]
    places = _selected(db, table, "agent_id", "stream_id", missing="0")
    extents = [f"coalesce({column}, 1)" for column in _selected(db, table, *sizes)]
    rows = db.rows(
        f'SELECT s.kernel_name, {display}, k.start, k."end", k.pid, {", ".join(places)},'  # noqa: S608 (our own text)
        f" e.stack_id, {', '.join(extents)} FROM rocpd_kernel_dispatch k"
        " LEFT JOIN rocpd_info_kernel_symbol s ON s.id = k.kernel_id"
        " LEFT JOIN rocpd_event e ON e.id = k.event_id ORDER BY k.start, k.id"
    )
    names: dict[tuple[object, object], str] = {}
    operations = []
    for symbol, displayed, start, end, pid, agent, stream, stack, *extent in rows:
        key = (symbol, displayed)
        name = names.get(key) or names.setdefault(key, kernel_name(str(symbol or ""), str(displayed or "")))
        grid, block, gpu = in_blocks(extent[:3], extent[3:]), extent[3:], agents.get(agent) or Gpu(agent)
        place = (gpu.device, stream, grid, block)
        operations.append(Operation("kernel", name, start, end, pid, *place, NULL, stack, gpu.name, gpu.info))
    return operations


def _copies(db: Database, agents: dict[int, Gpu | None]) -> list[Operation]:
    """As ``_dispatches``. A copy between the host and a GPU is the GPU's."""
    table = "rocpd_memory_copy"
    if not db.has(table, "name_id"):
        return []
    source, stream = _selected(db, table, "src_agent_id", "stream_id")
    rows = db.rows(
        f'SELECT s.string, k.start, k."end", k.pid, k.dst_agent_id, {source}, coalesce({stream}, 0), k.size, e.stack_id'  # noqa: S608 (our own text)
        " FROM rocpd_memory_copy k LEFT JOIN rocpd_string s ON s.id = k.name_id"
        " LEFT JOIN rocpd_event e ON e.id = k.event_id ORDER BY k.start, k.id"
    )
    operations = []
    for name, start, end, pid, target, origin, stream_id, size, stack in rows:
        gpu = agents.get(target) or agents.get(origin) or Gpu(target)
        operation = Operation("memcpy", copy_name(str(name or "")), start, end, pid, gpu.device, stream_id, bytes=size)
        operations.append(operation._replace(call=stack, gpu=gpu.name, info=gpu.info))
    return operations


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
        kind, text = _kind(str(type_)), str(name or type_)
        text = copy_name(text) if kind == "memcpy" else text
        operations.append(Operation(kind, text, start, end, pid, gpu, queue, call=call))
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
    message = _extra(data).get("message")
    return message if isinstance(message, str) else ""


def _extra(data: Any) -> dict[str, Any]:
    """A row's extra data in JSON; empty if there is none."""
    try:
        extra = json.loads(data) if data else None
    except (ValueError, TypeError, RecursionError):
        return {}
    return extra if isinstance(extra, dict) else {}
