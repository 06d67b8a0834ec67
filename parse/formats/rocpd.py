"""Experimental: AMD's databases -> Capture: rocprofv3's rocpd (schema 3, its views) and rocmProfileData's RPD (2).

The reader was written from the views' definitions (rocprofiler-sdk, ROCm 7) and tested on databases made by hand and on
one of a HIP program, none of a PyTorch run; users get a warning about this. In rocpd, process, thread and agent numbers
are keys of their tables, and a kernel and the HIP call that launched it have the same stack_id in their events; in RPD
a table of pairs joins them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyprof.errors import InputError
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.databases.database import Database, Source, database, named
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


def _numeric(table: str, columns: str, required: str) -> Source:
    """A table of whole numbers, in order of start."""
    names = tuple(name for name, _ in named(columns))
    order = tuple(name for name in ("start_ns", "id") if "start_ns" in names)
    return Source(table, named(columns), tuple(required.split()), order, numbers=names)


_TIMES = "start_ns=start, end_ns=end"
STRINGS = Source("rocpd_string", named("id, text=string"), required=("id", "text"))

# rocprofv3: `pid`, `tid` and agents are keys of their tables; an event has the stack_id that a call and what it
# launched have in common.
_GRID = ", ".join(f"grid_{axis}=grid_size_{axis}" for axis in "xyz")
_BLOCK = ", ".join(f"block_{axis}=workgroup_size_{axis}" for axis in "xyz")
KERNELS = _numeric(
    "rocpd_kernel_dispatch",
    f"id, {_TIMES}, pid, agent=agent_id, stream=stream_id, kernel=kernel_id, event=event_id, {_GRID}, {_BLOCK}",
    required="start_ns end_ns pid kernel event",
)
COPIES = _numeric(
    "rocpd_memory_copy",
    f"id, {_TIMES}, pid, target=dst_agent_id, origin=src_agent_id, stream=stream_id, name=name_id, bytes=size,"
    " event=event_id",
    required="name",
)
REGIONS = _numeric(
    "rocpd_region", f"id, {_TIMES}, pid, tid, name=name_id, event=event_id", "start_ns end_ns pid tid name event"
)
EVENTS = _numeric("rocpd_event", "id, stack=stack_id, category=category_id", required="id stack")
EXTRA = Source("rocpd_event", named("id, text=extdata"), required=("id", "text"))
AGENTS = Source("rocpd_info_agent", named("id, text=extdata"), required=("id", "text"))
SYMBOLS = Source("rocpd_info_kernel_symbol", named("id, text=kernel_name"), required=("id", "text"))
DISPLAYED = Source("rocpd_info_kernel_symbol", named("id, text=display_name"), required=("id", "text"))
PROCESSES = _numeric("rocpd_info_process", "id, number=pid", required="id number")
THREADS = _numeric("rocpd_info_thread", "id, number=tid", required="id number")

# rocmProfileData
CALLS = _numeric(
    "rocpd_api", f"id, {_TIMES}, pid, tid, name=apiName_id, args=args_id", "id start_ns end_ns pid tid name args"
)
OPERATIONS = _numeric(
    "rocpd_op",
    f"id, {_TIMES}, device=gpuId, queue=queueId, name=description_id, type=opType_id",
    required="id start_ns end_ns device queue name type",
)
PAIRS = _numeric("rocpd_api_ops", "operation=op_id, call=api_id", required="operation call")

# Without the required columns of these tables nothing can be read.
NEEDED_V3, NEEDED_RPD = (KERNELS, SYMBOLS, REGIONS, EVENTS, STRINGS), (OPERATIONS, CALLS, STRINGS)
GPU_TABLES = (KERNELS.table, COPIES.table, OPERATIONS.table)


def is_rocpd(db: Database) -> bool:
    """Whether a database is rocpd or RPD."""
    return db.has(KERNELS.table) or (db.has(OPERATIONS.table) and db.has(CALLS.table))


def read(file: Path) -> Capture:
    """Read a rocpd or RPD database.

    Raises InputError if it has no GPU activity, and SchemaError if it lacks a column.
    """
    with database(file) as db:
        rocprof = db.has(KERNELS.table)
        for source in NEEDED_V3 if rocprof else NEEDED_RPD:
            db.check(source)
        events = _rocprof_events(db) if rocprof else _rpd_events(db)
        if events.operations:
            return capture_of(file, events._replace(warnings=db.wrong_types(but=GPU_TABLES)))
    raise InputError(file, f"expected kernels, found a {events.profiler} database without any GPU activity")


def _rocprof_events(db: Database) -> Events:
    """The events of a rocprofv3 database, from the views whose names lack the run's identifier."""
    pids, tids = dict(db.records(PROCESSES)), dict(db.records(THREADS))
    strings, extra = db.texts(STRINGS), db.texts(EXTRA) if db.has_all(EXTRA) else {}
    of_event = {id_: (stack, category) for id_, stack, category in db.records(EVENTS)}
    events = Events(ROCPROFV3, [], [], [], [])
    launches: dict[int, int] = {}
    for _, start, end, pid, tid, name_id, event in db.records(REGIONS):
        times = (_number_of(pids, pid), _number_of(tids, tid), start, end)
        name, (stack, category) = strings.get(name_id, ""), of_event.get(event, (None, None))
        if not strings.get(category, "").startswith("MARKER"):
            if stack is not None:
                launches.setdefault(stack, len(events.calls))
            events.calls.append(TextRange(*times, name))
        elif name not in NO_RANGES:
            events.markers.append(TextRange(*times, _message(extra.get(event)) or name))
    agents = _agents(db)
    for row, operation in [*_dispatches(db, agents), *_copies(db, strings, agents)]:
        stack, _ = of_event.get(row["event"], (None, None))
        call = NULL if stack is None else launches.get(stack, NULL)
        events.operations.append(operation._replace(pid=_number_of(pids, row["pid"]), call=call))
    return events


def _number_of(numbers: dict[int, int | None], key: int | None) -> int | None:
    """The operating system's number of a process or thread; the key if no table has it."""
    return key if key is None else numbers.get(key, key)


def _agents(db: Database) -> dict[int, Gpu | None]:
    """Key of an agent -> the GPU; None for a CPU. Empty in a database without agents."""
    records = {id_: _extra(text) for id_, text in (db.texts(AGENTS) if db.has_all(AGENTS) else {}).items()}
    return {id_: gpu_of(record) for id_, record in records.items() if record}


Row = dict[str, Any]


def _rows(db: Database, source: Source) -> Iterator[tuple[Row, tuple[str, ...]]]:
    """The rows of a table, and the names of the columns in which each has a value of a wrong type."""
    rows = db.records(source)
    wrong: dict[int, tuple[str, ...]] = {}
    for column, odd in db.wrong.get(source.table, {}).items():
        wrong.update({row: (*wrong.get(row, ()), column) for row in odd.tolist()})
    for number, row in enumerate(rows):
        yield dict(zip(source.names, row, strict=True)), wrong.get(number, ())


def _stream(db: Database, source: Source, row: Row) -> int | None:
    """The row's stream; 0 in a database of a release that has no streams."""
    stream: int | None = row["stream"]
    return stream if db.has(source.table, source.column("stream")) else 0


def _dispatches(db: Database, agents: dict[int, Gpu | None]) -> Iterator[tuple[Row, Operation]]:
    """Kernels with their rows, still without process and call."""
    symbols, displayed = db.texts(SYMBOLS), db.texts(DISPLAYED) if db.has_all(DISPLAYED) else {}
    names = {id_: kernel_name(symbol, displayed.get(id_, "")) for id_, symbol in symbols.items()}
    for row, wrong in _rows(db, KERNELS):
        gpu = agents.get(row["agent"]) or Gpu(row["agent"])
        block = [row[f"block_{axis}"] for axis in "xyz"]
        grid = in_blocks([row[f"grid_{axis}"] for axis in "xyz"], block)
        name, place = names.get(row["kernel"], ""), (gpu.device, _stream(db, KERNELS, row), grid, block)
        operation = Operation("kernel", name, row["start_ns"], row["end_ns"], None, *place)
        yield row, operation._replace(gpu=gpu.name, info=gpu.info, wrong=wrong)


def _copies(db: Database, strings: dict[int, str], agents: dict[int, Gpu | None]) -> Iterator[tuple[Row, Operation]]:
    """As ``_dispatches``. A copy between the host and a GPU is the GPU's."""
    for row, wrong in _rows(db, COPIES):
        gpu = agents.get(row["target"]) or agents.get(row["origin"]) or Gpu(row["target"])
        name, times = copy_name(strings.get(row["name"], "")), (row["start_ns"], row["end_ns"])
        operation = Operation("memcpy", name, *times, None, gpu.device, _stream(db, COPIES, row), bytes=row["bytes"])
        yield row, operation._replace(gpu=gpu.name, info=gpu.info, wrong=wrong)


def _rpd_events(db: Database) -> Events:
    """The events of an RPD database. A marker is a call named UserMarker, and its text is the call's arguments."""
    strings = db.texts(STRINGS)
    calls: list[TextRange] = []
    markers: list[TextRange] = []
    places: dict[int, int] = {}  # key of a call -> its place in ``calls``
    for id_, start, end, pid, tid, name_id, args in db.records(CALLS):
        name = strings.get(name_id, "")
        if name == "UserMarker":
            markers.append(TextRange(pid, tid, start, end, strings.get(args, "")))
        else:
            places[id_] = len(calls)
            calls.append(TextRange(pid, tid, start, end, name))
    operations = list(_rpd_operations(db, strings, calls, places))
    return Events("rocmProfileData", operations, calls, markers, [])


def _rpd_operations(
    db: Database, strings: dict[int, str], calls: list[TextRange], places: dict[int, int]
) -> Iterator[Operation]:
    """An operation's process is that of its call: the first one, if it has several."""
    launches: dict[int, int] = {}
    for operation, call in db.records(PAIRS):
        if operation is not None and call is not None:
            launches[operation] = min(call, launches.get(operation, call))
    pids = {call.pid for call in calls if call.pid is not None}
    only_pid = next(iter(pids)) if len(pids) == 1 else NULL
    for row, wrong in _rows(db, OPERATIONS):
        place = places.get(launches.get(row["id"], NULL), NULL)
        pid = only_pid if place == NULL else calls[place].pid
        type_ = strings.get(row["type"], "")
        kind, text = _kind(type_), strings.get(row["name"]) or type_
        text = copy_name(text) if kind == "memcpy" else text
        where = (pid, row["device"], row["queue"])
        yield Operation(kind, text, row["start_ns"], row["end_ns"], *where, call=place, wrong=wrong)


def _kind(operation: str) -> str:
    """The kind of an operation from HIP's name: KernelExecution, CopyHostToDevice, FillBuffer; no name: a kernel."""
    if operation.startswith("Copy"):
        return "memcpy"
    return "memset" if operation.startswith("Fill") else "kernel"


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
