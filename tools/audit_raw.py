"""The GPU operations of a profiler's file as plain records, for ``audit.py``. Shares no code with pyprof.

Kineto: events with a device; nsys and nvprof: the CUPTI tables; rocpd: dispatches and copies. Times are whole ns.
"""

import gzip
import json
import re
import sqlite3
import tempfile
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

GPU_CATEGORIES = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
GPU_CATEGORIES |= {"memcpy": "memcpy", "memset": "memset"}  # before 2022
WORDS = {"Input Dims": "sizes", "Input dims": "sizes", "Input type": "types"}
WORDS |= {"Sequence number": "seq", "Concrete Inputs": "values", "Input Strides": "strides"}
LAUNCHING = ("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "runtime")


class Unreadable(Exception):
    """Why this module does not read the file."""


class Range(NamedTuple):
    """A range of a CPU thread; ``arguments``: shapes, dtypes and scalars of an op's inputs, where they are recorded."""

    begin: int
    end: int
    name: str
    arguments: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Operation:
    """A row of the kernel table; ``api``: begin and end of the call that launched it, and its (process, thread)."""

    kind: str
    name: str
    device: tuple[int, int]
    start: int
    end: int
    api: tuple[int, int] | None = None
    thread: tuple[Any, Any] | None = None
    nbytes: int | None = None
    full: str = ""  # a kernel's name with its template arguments
    around: list[Range] = field(default_factory=list)  # the ranges that contain its launch, outermost first
    printed: dict[str, str] = field(default_factory=dict)  # pyprof's row for it, by column

    @property
    def duration(self) -> int:
        return self.end - self.start


@dataclass
class Capture:
    """``ranges``: those of each thread; ``steps``: number, begin and end as marked."""

    operations: list[Operation] = field(default_factory=list)
    ranges: dict[tuple[Any, Any], list[Range]] = field(default_factory=lambda: defaultdict(list))
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    names_every_op: bool = False  # Kineto says of each range whether it is an op; NVTX ranges have only a text

    def launched_in(self, pattern: str, begun: bool = False) -> list[Operation]:
        """The operations launched inside a range whose name has the pattern, on the range's own thread.

        begun: those whose launch begins there, too, though it returns later.
        """
        search = re.compile(pattern).search
        covered = {
            thread: _merged((range_.begin, range_.end) for range_ in ranges if search(range_.name))
            for thread, ranges in self.ranges.items()
        }
        return [
            row
            for row in self.operations
            if row.api and _contains(covered.get(row.thread, []), row.api[0], row.api[0 if begun else 1])
        ]

    def enclose(self) -> None:
        """Fill ``around`` of each operation: one pass over each thread, with a stack of the open ranges.

        The kernels of a CUDA graph share one launch, which says nothing about their ops: they get no ranges.
        """
        shared = Counter((row.thread, row.api) for row in self.operations)
        waiting: dict[Any, list[Operation]] = defaultdict(list)
        for row in self.operations:
            if row.api and shared[row.thread, row.api] == 1:
                waiting[row.thread].append(row)
        for thread, rows in waiting.items():
            ranges = sorted(self.ranges.get(thread, []), key=lambda range_: (range_.begin, -range_.end))
            stack: list[Range] = []
            place = 0
            for row in sorted(rows, key=lambda row: row.api or (0, 0)):
                begin = row.api[0] if row.api else 0
                while place < len(ranges) and ranges[place].begin <= begin:
                    stack = [open_ for open_ in stack if open_.end > ranges[place].begin]
                    stack.append(ranges[place])
                    place += 1
                stack = [open_ for open_ in stack if open_.end > begin]
                row.around = list(stack)


def _merged(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def _contains(intervals: list[tuple[int, int]], begin: int, end: int) -> bool:
    place = bisect_right(intervals, begin, key=lambda interval: interval[0]) - 1
    return place >= 0 and end <= intervals[place][1]


def read(file: Path) -> Capture:
    """The operations in order of start. Raises Unreadable if the file has no GPU operation or another form."""
    with _plain(file) as plain:
        with plain.open("rb") as opened:
            is_database = opened.read(16).startswith(b"SQLite format 3")
        found = _database(plain) if is_database else _kineto(plain)
    if not found.operations:
        raise Unreadable("no GPU operation in the file")
    found.operations.sort(key=lambda operation: operation.start)
    found.enclose()
    return found


@contextmanager
def _plain(file: Path) -> Iterator[Path]:
    if file.read_bytes()[:2] != b"\x1f\x8b":
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "capture")
        target.write_bytes(gzip.decompress(file.read_bytes()))
        yield target


def _kineto(file: Path) -> Capture:
    try:
        document = json.loads(file.read_bytes(), parse_float=Decimal)
    except (ValueError, RecursionError):
        raise Unreadable("no valid JSON: pyprof mends it, this reader does not") from None
    events = document if isinstance(document, list) else document.get("traceEvents", [])
    events = [event for event in events if isinstance(event, dict) and event.get("ph") == "X" and "dur" in event]
    found, calls = Capture(names_every_op=True), {}
    # Old traces of ROCm have no correlation ids: calls and kernels have the same external id.
    pairing = [event.get("args") or {} for event in events if str(event.get("cat", "")).lower() in LAUNCHING]
    key = "correlation" if any("correlation" in arguments for arguments in pairing) else "External id"
    for event in events:
        category, arguments = str(event.get("cat", "")).lower(), event.get("args") or {}
        begin, end = _span(event)
        if category in LAUNCHING and key in arguments:
            calls[arguments[key]] = ((begin, end), (event["pid"], event["tid"]))
        if category in ("cpu_op", "operator"):
            details = {WORDS[key]: value for key, value in arguments.items() if key in WORDS}
            found.ranges[event["pid"], event["tid"]].append(Range(begin, end, event["name"], details))
        if category == "user_annotation":  # what the program names itself; torch names its optimizers so
            found.ranges[event["pid"], event["tid"]].append(Range(begin, end, f"user: {event['name']}"))
        if category in ("user_annotation", "cpu_op", "operator") and event["name"].startswith("ProfilerStep#"):
            number = event["name"].partition("#")[2]
            if number.isdecimal():
                found.steps.append((int(number), begin, end))
    for event in events:
        kind = GPU_CATEGORIES.get(str(event.get("cat", "")).lower())
        if kind is None:
            continue
        arguments = event.get("args") or {}
        begin, end = _span(event)
        api, thread = calls.get(arguments.get(key), (None, None))
        device = (0, int(arguments.get("device", 0)))
        size = arguments.get("bytes")
        found.operations.append(Operation(kind, event["name"], device, begin, end, api, thread, size, event["name"]))
    return found


def _arguments(text: str) -> dict[str, Any]:
    """``sizes`` of an NVTX text of emit_nvtx or nsys' --pytorch: ``aten::mm, seq = 1, sizes = [[2, 3], [3, 4]]``."""
    found, number = re.search(r", sizes = (\[.*?\])(?:, input_op_ids|$)", text), re.search(r", seq = (\d+)", text)
    seq = {"seq": number[1]} if number else {}
    try:
        return seq | ({"sizes": json.loads(found[1])} if found else {})
    except ValueError:  # nsys cuts long texts
        return seq


def _span(event: dict[str, Any]) -> tuple[int, int]:
    begin = round(Decimal(event["ts"]) * 1000)
    return begin, begin + max(round(Decimal(event["dur"]) * 1000), 0)


COPY = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP", 3: "HtoA", 4: "AtoH", 9: "HtoH"}


def _database(file: Path) -> Capture:
    connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        cupti = any(table.startswith("CUPTI_ACTIVITY_KIND_") for table in tables)
        for sign, reader in (("StringIds", _nsys), ("StringTable", _nvprof)):
            if cupti and sign in tables:
                return reader(connection, tables)
        if "rocpd_kernel_dispatch" in tables:
            return _rocpd(connection, tables)
        raise Unreadable("a database of another profiler than nsys, nvprof and rocprofv3")
    finally:
        connection.close()


def _nsys(connection: sqlite3.Connection, tables: set[str]) -> Capture:
    found, calls = Capture(), {}
    columns = {table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")} for table in tables}
    texts = dict(connection.execute("SELECT id, value FROM StringIds"))
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        query = "SELECT globalTid, correlationId, start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        for thread, correlation, start, end in connection.execute(query):
            calls[thread >> 24, correlation] = ((start, end), (thread >> 24, thread))
    sources = (("KERNEL", "kernel", "shortName", "NULL"), ("MEMCPY", "memcpy", "copyKind", "bytes"))
    sources += (("MEMSET", "memset", "NULL", "bytes"), ("GRAPH_TRACE", "graph", "NULL", "NULL"))
    for suffix, kind, name, size in sources:
        long = "demangledName" if kind == "kernel" else "NULL"
        table = f"CUPTI_ACTIVITY_KIND_{suffix}"
        if table not in tables:
            continue
        process = "globalPid" if "globalPid" in columns[table] else "0"
        query = f"SELECT start, end, deviceId, {process}, correlationId, {name}, {size}, {long} FROM {table}"  # noqa: S608 (names of our own)
        for start, end, device, pid, correlation, named, nbytes, demangled in connection.execute(query):
            api, thread = calls.get((pid >> 24, correlation), (None, None))
            text = texts.get(named, str(named)) if kind == "kernel" else COPY.get(named, "")
            full = texts.get(demangled, text)
            operation = Operation(kind, text, (pid, device), start, max(end, start), api, thread, nbytes, full)
            found.operations.append(operation)
    if "NVTX_EVENTS" in tables:
        query = (
            "SELECT e.start, e.end, e.globalTid, coalesce(e.text, s.value) FROM NVTX_EVENTS e"
            " LEFT JOIN StringIds s ON s.id = e.textId WHERE e.end IS NOT NULL AND e.eventType IN (59, 60)"
        )
        if "textId" not in columns["NVTX_EVENTS"]:
            query = (
                "SELECT start, end, globalTid, text FROM NVTX_EVENTS WHERE end IS NOT NULL AND eventType IN (59, 60)"
            )
        for start, end, thread, text in connection.execute(query):
            found.ranges[(thread or 0) >> 24, thread].append(Range(start, end, text or "", _arguments(text or "")))
    return found


def _nvprof(connection: sqlite3.Connection, tables: set[str]) -> Capture:
    found = Capture()
    query = "SELECT correlationId, start, end, processId, threadId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    calls = {id_: ((start, end), (pid, tid)) for id_, start, end, pid, tid in connection.execute(query)}
    texts = dict(connection.execute("SELECT _id_, value FROM StringTable"))
    sources = (("CONCURRENT_KERNEL", "kernel", "name", "NULL"), ("KERNEL", "kernel", "name", "NULL"))
    sources += (("MEMCPY", "memcpy", "copyKind", "bytes"), ("MEMSET", "memset", "NULL", "bytes"))
    for suffix, kind, name, size in sources:
        table = f"CUPTI_ACTIVITY_KIND_{suffix}"
        if table not in tables:
            continue
        query = f"SELECT start, end, deviceId, correlationId, {name}, {size} FROM {table}"  # noqa: S608 (names of our own)
        for start, end, device, correlation, named, nbytes in connection.execute(query):
            text = texts.get(named, "") if kind == "kernel" else COPY.get(named, "")
            api, thread = calls.get(correlation, (None, None))
            operation = Operation(kind, text, (0, device), start, max(end, start), api, thread, nbytes, text)
            found.operations.append(operation)
    if "CUPTI_ACTIVITY_KIND_MARKER" in tables:
        found.ranges = _marks(connection, texts)
    return found


def _marks(connection: sqlite3.Connection, texts: dict[int, str]) -> dict[tuple[Any, Any], list[Range]]:
    """nvprof's ranges: each has a row at its begin, with the name, and one at its end. The object is a packed id."""
    ranges, begun = defaultdict(list), {}
    query = "SELECT id, flags, timestamp, objectId, name FROM CUPTI_ACTIVITY_KIND_MARKER ORDER BY timestamp"
    for number, flags, at, owner, name in connection.execute(query):
        if flags & 2:
            begun[number] = (at, texts.get(name, ""))
        elif flags & 4 and number in begun:
            begin, text = begun.pop(number)
            pid, tid = (int.from_bytes(owner[place : place + 4], "little", signed=True) for place in (0, 4))
            ranges[pid, tid].append(Range(begin, at, text, _arguments(text)))
    return ranges


def _rocpd(connection: sqlite3.Connection, tables: set[str]) -> Capture:
    """A kernel and the call that launched it have one stack id."""
    found, calls = Capture(), {}
    query = "SELECT e.stack_id, r.start, r.end, r.tid FROM rocpd_region r JOIN rocpd_event e ON e.id = r.event_id"
    for stack, start, end, thread in connection.execute(query):
        calls[stack] = ((start, end), (0, thread))
    query = (
        "SELECT 'kernel', s.display_name, k.agent_id, k.start, k.end, e.stack_id, NULL FROM rocpd_kernel_dispatch k"
        " JOIN rocpd_event e ON e.id = k.event_id JOIN rocpd_info_kernel_symbol s ON s.id = k.kernel_id"
    )
    if "rocpd_memory_copy" in tables:
        query += (
            " UNION ALL SELECT 'memcpy', n.string, m.dst_agent_id, m.start, m.end, e.stack_id, m.size"
            " FROM rocpd_memory_copy m JOIN rocpd_event e ON e.id = m.event_id JOIN rocpd_string n ON n.id = m.name_id"
        )
    for kind, name, agent, start, end, stack, size in connection.execute(query):
        api, thread = calls.get(stack, (None, None))
        found.operations.append(Operation(kind, name, (0, agent), start, max(end, start), api, thread, size, name))
    return found
