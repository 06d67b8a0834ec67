"""The events in AMD's databases: the SQL of rocprofv3's rocpd views and of rocmProfileData's RPD."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyprof.parse.formats.database import Database
from pyprof.parse.formats.text_ranges import TextRange
from pyprof.table.columns import NULL

# Table -> columns without which nothing can be read
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
Size = tuple[int, int, int]
NO_SIZE = (NULL, NULL, NULL)


class Operation(NamedTuple):
    """A GPU operation; the fields have the database's values, which may be anything."""

    kind: str
    name: str
    start: int  # ns
    end: int
    pid: int
    device: int | None
    stream: int
    grid: Size = NO_SIZE  # in blocks
    block: Size = NO_SIZE
    bytes: int | None = NULL
    call: int = NULL  # place of the call that launched it

    def numbers(self) -> list[int]:
        """All fields but kind and name."""
        return [number(value) for value in (*self[2:7], *self.grid, *self.block, self.bytes, self.call)]


class Events(NamedTuple):
    """The events of a database, as they are stored."""

    profiler: str
    operations: list[Operation]
    calls: list[TextRange]
    markers: list[TextRange]


def number(value: int | None) -> int:
    """The value; ``NULL`` for SQL's NULL."""
    return NULL if value is None else value


def rocprof_events(db: Database) -> Events:
    """rocprofv3: the views without the run's identifier in their names."""
    pids, tids = _numbers(db, "rocpd_info_process", "pid"), _numbers(db, "rocpd_info_thread", "tid")
    extra = "e.extdata" if db.has("rocpd_event", "extdata") else "''"
    category = "e.category_id" if db.has("rocpd_event", "category_id") else "NULL"
    regions = db.rows(
        f'SELECT r.pid, r.tid, r.start, r."end", s.string, e.stack_id, c.string, {extra} FROM rocpd_region r'  # noqa: S608 (our own text)
        " JOIN rocpd_string s ON s.id = r.name_id JOIN rocpd_event e ON e.id = r.event_id"
        f" LEFT JOIN rocpd_string c ON c.id = {category} ORDER BY r.start, r.id"
    )
    calls: list[TextRange] = []
    markers: list[TextRange] = []
    launches: dict[int, int] = {}
    for pid, tid, start, end, name, stack, kind, data in regions:
        times = (pids.get(pid, pid), tids.get(tid, tid), start, end)
        if str(kind or "").startswith("MARKER"):
            markers.append(TextRange(*times, _message(data) or str(name)))
        else:
            launches.setdefault(stack, len(calls))
            calls.append(TextRange(*times, str(name)))
    return Events("rocprofv3", _dispatches(db, pids, launches) + _copies(db, pids, launches), calls, markers)


def _dispatches(db: Database, pids: dict[int, int], launches: dict[int, int]) -> list[Operation]:
    sizes = [f"{size}_size_{axis}" for size in ("grid", "workgroup") for axis in "xyz"]
    sizes = [f"coalesce(k.{name}, 1)" if db.has("rocpd_kernel_dispatch", name) else "1" for name in sizes]
    places = [f"k.{name}" if db.has("rocpd_kernel_dispatch", name) else "0" for name in ("agent_id", "stream_id")]
    rows = db.rows(
        f'SELECT k.start, k."end", s.kernel_name, k.pid, e.stack_id, {", ".join([*places, *sizes])}'  # noqa: S608 (our own text)
        " FROM rocpd_kernel_dispatch k LEFT JOIN rocpd_info_kernel_symbol s ON s.id = k.kernel_id"
        " LEFT JOIN rocpd_event e ON e.id = k.event_id ORDER BY k.start, k.id"
    )
    operations = []
    for start, end, symbol, pid, stack, agent, stream, gx, gy, gz, *block in rows:
        name, call = str(symbol or "").removesuffix(".kd"), launches.get(stack, NULL)
        grid, block_size = _blocks((gx, gy, gz), block), (block[0], block[1], block[2])
        operations.append(
            Operation("kernel", name, start, end, pids.get(pid, pid), agent, stream, grid, block_size, call=call)
        )
    return operations


def _blocks(items: Size, block: Sequence[int]) -> Size:
    """A grid in work-items -> in workgroups."""
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
    operations = []
    for start, end, name, pid, agent, size, stack in rows:
        call, owner = launches.get(stack, NULL), pids.get(pid, pid)
        operations.append(Operation("memcpy", str(name or ""), start, end, owner, agent, 0, bytes=size, call=call))
    return operations


def rpd_events(db: Database) -> Events:
    """rocmProfileData: a marker is a call of the name UserMarker, its text the call's arguments."""
    rows = db.rows(
        "SELECT a.id, a.pid, a.tid, a.start, a.\"end\", n.string, coalesce(t.string, '') FROM rocpd_api a"
        " JOIN rocpd_string n ON n.id = a.apiName_id LEFT JOIN rocpd_string t ON t.id = a.args_id"
        " ORDER BY a.start, a.id"
    )
    calls: list[TextRange] = []
    markers: list[TextRange] = []
    places: dict[int, int] = {}
    for id_, pid, tid, start, end, name, text in rows:
        if name == "UserMarker":
            markers.append(TextRange(pid, tid, start, end, str(text)))
        else:
            places[id_] = len(calls)
            calls.append(TextRange(pid, tid, start, end, str(name)))
    return Events("rocmProfileData", _rpd_operations(db, calls, places), calls, markers)


def _rpd_operations(db: Database, calls: list[TextRange], places: dict[int, int]) -> list[Operation]:
    """``places``: key of a call -> its place in ``calls``. An operation's process is that of its call."""
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
    """HIP's names: KernelExecution, CopyHostToDevice, FillBuffer."""
    if operation.startswith("Copy"):
        return "memcpy"
    return "memset" if operation.startswith("Fill") else "kernel"


def _numbers(db: Database, table: str, column: str) -> dict[int, int]:
    """Key -> the number that the operating system knows."""
    if not db.has(table, column):
        return {}
    return dict(db.rows(f"SELECT id, {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY id"))  # noqa: S608 (our own text)


def _message(data: Any) -> str:
    """A ROCTX range's text, from the event's extra data, which are JSON."""
    try:
        extra = json.loads(data) if data else None
    except (ValueError, TypeError, RecursionError):
        return ""
    message = extra.get("message") if isinstance(extra, dict) else None
    return message if isinstance(message, str) else ""
