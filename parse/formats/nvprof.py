"""nvprof's database (``nvprof -o net.sql``) -> Capture.

There is one process per file. Times are ns since 1970 and become ns since the first event. Kernel names are mangled.
Ranges are marker records: a record with flags 2 begins a range, flags 4 ends it, and both have the range's id.
"""

import struct
from pathlib import Path

import numpy as np

from pyprof.errors import InputError
from pyprof.parse.attribute.capture import OPEN, Capture
from pyprof.parse.databases.database import Database, Source, database, named
from pyprof.parse.formats import cupti
from pyprof.parse.formats.gpu_info import database_infos
from pyprof.parse.formats.kernel_names import demangle, short_name
from pyprof.parse.formats.lost_records import untimed
from pyprof.parse.formats.possible_times import LATEST_NS
from pyprof.parse.formats.text_ranges import TextRange, capture_fields
from pyprof.table.columns import NULL, Coded, Data, Ints, distinct, lookup, value_at

PREFIX = "CUPTI_ACTIVITY_KIND_"

STRINGS = Source("StringTable", named("id=_id_, text=value"), required=("id", "text"))

# GPU operations; `name` is an id of STRINGS. nvprof writes the second table if it serialised kernels.
KERNELS = tuple(
    Source(f"{PREFIX}{kind}", (*cupti.OPERATION, *cupti.LAUNCH, *named("name")), cupti.REQUIRED, cupti.BY_START)
    for kind in ("CONCURRENT_KERNEL", "KERNEL")
)
MEMCPY = Source(f"{PREFIX}MEMCPY", (*cupti.OPERATION, *cupti.COPY), cupti.REQUIRED, cupti.BY_START)
MEMSET = Source(f"{PREFIX}MEMSET", (*cupti.OPERATION, *named("bytes")), cupti.REQUIRED, cupti.BY_START)

# API calls; `callback` is CUPTI's number of the function.
_CALL = (*cupti.TIMES, *named("corr=correlationId, pid=processId, tid=threadId, callback=cbid"))
RUNTIME, DRIVER = (Source(f"{PREFIX}{api}", _CALL) for api in ("RUNTIME", "DRIVER"))

# Beginnings and ends of ranges; `object` is the thread (64 bits), `name` an id of STRINGS.
_MARKER = named("flags, time_ns=timestamp, id, object_kind=objectKind, object=objectId, name, row=_id_")
_MARKER_NUMBERS = ("flags", "time_ns", "id", "object_kind", "name")
MARKERS = Source(f"{PREFIX}MARKER", _MARKER, order=("time_ns", "row"), numbers=_MARKER_NUMBERS)

# GPUs; the columns of facts have the key names of ``gpu_info``.
_DEVICE = named(
    "id, name, smCount=numMultiprocessors, clockRate=coreClockRate, memoryBandwidth=globalMemoryBandwidth,"
    " computeMajor=computeCapabilityMajor, computeMinor=computeCapabilityMinor, totalMemory=globalMemorySize,"
    " l2CacheSize, threadsPerWarp=numThreadsPerWarp"
)
DEVICES = Source(f"{PREFIX}DEVICE", _DEVICE, required=("id", "name"), order=("id",), numbers=("id", "name"))
DEVICE_UNITS = {"clockRate": 1000, "memoryBandwidth": 1000}  # CUpti_ActivityDevice: kHz, kB/s

KINDS = ("kernel", "memcpy", "memset")
BEGIN, END = 2, 4  # CUpti_ActivityFlag of a marker
THREAD = 2  # CUpti_ActivityObjectKind: the marker's object is a thread
# cupti_runtime_cbid.h and cupti_driver_cbid.h: the calls that launch
_LAUNCHING = (
    "runtime 13 cudaLaunch, runtime 211 cudaLaunchKernel, runtime 31 cudaMemcpy, runtime 41 cudaMemcpyAsync,"
    " runtime 49 cudaMemset, runtime 51 cudaMemsetAsync, driver 307 cuLaunchKernel"
)
FUNCTIONS = {f"{api} {number}": name for api, number, name in map(str.split, _LAUNCHING.split(", "))}


def is_nvprof(db: Database) -> bool:
    """Whether a database is nvprof's."""
    return db.has(STRINGS.table) and any(table.startswith(PREFIX) for table in db.columns)


def read(file: Path) -> Capture:
    """Read an nvprof database. Raises InputError if the file is not one or has no GPU activity."""
    with database(file) as db:
        if not is_nvprof(db):
            found = ", ".join(sorted(db.columns)[:4]) or "no tables"
            raise InputError(file, f"expected an nvprof database, found one with {found}")
        return _capture(db)


def _capture(db: Database) -> Capture:
    data, warnings, timeless = read_operations(db)
    if not len(data["start_ns"]):
        advice = "with --profile-from-start off the program must call cudaProfilerStart"
        raise InputError(db.file, f"expected kernels, found an nvprof database without any GPU activity ({advice})")
    calls, markers = read_calls(db), read_markers(db)
    call = find_calls(calls, data["corr"])
    origin = _origin(data, calls, markers)
    pids = [*calls.pid[:1].tolist(), *(marker.pid for marker in markers[:1]), NULL]  # one process per file
    columns = _columns(db, data)
    columns["start"] = data["start_ns"] - origin
    columns["pid"] = value_at(calls.pid, call, pids[0])
    warnings += other_warnings(db)
    fields = capture_fields(columns, call, calls, markers, origin)
    fields["losses"] += untimed(timeless)
    return Capture(file=str(db.file), profiler="nvprof", warnings=warnings, **fields)


def read_operations(db: Database) -> tuple[dict[str, Ints], list[str], int]:
    """As ``gpu_operations``. Raises SchemaError if a table lacks a column."""
    kernels = next((source for source in KERNELS if db.has(source.table)), KERNELS[0])
    return cupti.gpu_operations(db, (kernels, MEMCPY, MEMSET), earliest=1)


def other_warnings(db: Database) -> list[str]:
    """Warnings about values of wrong types, in all tables that were read except those of GPU operations."""
    return db.wrong_types(but=[source.table for source in (*KERNELS, MEMCPY, MEMSET)])


def operation_names(db: Database, data: dict[str, Ints]) -> tuple[Coded, Coded, Coded]:
    """Long, short and mangled names of GPU operations."""
    raw = cupti.texts_of(data["name"], db.texts(STRINGS))
    long, short = (Coded(raw.codes.copy(), [*map(form, raw.values)]) for form in (demangle, short_name))
    cupti.name_operations((long, short, raw), data, KINDS)
    return long, short, raw


def _columns(db: Database, data: dict[str, Ints]) -> dict[str, Data]:
    columns = cupti.table_columns(data, KINDS)
    long, columns["kShortName"], _ = operation_names(db, data)
    cupti.name_memory(long, data, cupti.MEMORY)
    columns["kLongName"] = long
    strings, infos = db.texts(STRINGS), database_infos(db, DEVICES, DEVICE_UNITS)
    names = {id_: strings.get(name, "") for id_, name in db.records(DEVICES, "id", "name")}
    device = data["device"].tolist()
    columns["gpu"] = Coded.of(names.get(number, "") for number in device)
    columns["gpuInfo"] = Coded.of(infos.get(number, "") for number in device)
    return columns


def read_calls(db: Database) -> cupti.Calls:
    """Runtime calls, then driver calls: a runtime call that launches comes before the driver call under it."""
    apis = [db.read(source) for source in (RUNTIME, DRIVER)]
    data = {name: np.concatenate([api[name] for api in apis]) for name in RUNTIME.names}
    is_driver = np.repeat(np.arange(2), [len(api["corr"]) for api in apis])
    used, codes = distinct(is_driver, data["callback"])
    functions = [(("runtime", "driver")[api], callback) for api, callback in used]
    names = [FUNCTIONS.get(f"{api} {callback}", f"{api} call {callback}") for api, callback in functions]
    name, tid = Coded(codes.astype(np.int32), names), data["tid"] & 0xFFFFFFFF
    return cupti.Calls(data["start_ns"], data["end_ns"], data["pid"], tid, name, data["corr"])


def find_calls(calls: cupti.Calls, corr: Ints) -> Ints:
    """The index of the first call with each correlation id, -1 for none."""
    return lookup(np.zeros_like(calls.corr), calls.corr, np.zeros_like(corr), corr)


def read_markers(db: Database) -> list[TextRange]:
    """Ranges of threads in order of start. The end of a range that was never closed is ``OPEN``.

    A beginning or end of which the time, the kind, the range or the thread is unknown makes no range. Then the ranges
    without an end are left out, too, since theirs may be the end that is unknown.
    """
    strings = db.texts(STRINGS)
    opened: dict[int, int] = {}
    begun: list[tuple[int, object, str]] = []
    ends: list[int] = []
    columns = ("flags", "time_ns", "id", "object_kind", "object", "name")
    rows = db.records(MARKERS, *columns)
    for flags, time, id_, kind, owner, name in rows:
        if time is None or not 1 <= time <= LATEST_NS:
            continue
        if flags == END and id_ in opened:
            ends[opened.pop(id_)] = time
        elif flags == BEGIN and kind == THREAD and id_ is not None:
            opened[id_] = len(begun)
            begun.append((time, owner, strings.get(name, "")))
            ends.append(OPEN)
    owners = {owner: _thread(owner) for _, _, _, _, owner, _ in rows}
    strangers = [row for row, (_, _, _, kind, owner, _) in enumerate(rows) if kind == THREAD and owners[owner] is None]
    db.note(MARKERS.table, MARKERS.column("object"), np.array(strangers, np.int64))
    is_end_lost = any(None in row[:3] for row in rows)
    return [
        TextRange(*thread, time, end, text)
        for (time, owner, text), end in zip(begun, ends, strict=True)
        if (thread := owners[owner]) is not None and not (is_end_lost and end == OPEN)
    ]


def _thread(owner: object) -> tuple[int, int] | None:
    """(process, thread) of a marker's object: 32 bits each, little-endian, text or blob; None if it is not."""
    data = owner.encode("latin-1", "replace") if isinstance(owner, str) else owner
    if not isinstance(data, bytes) or not data:
        return None
    pid, tid = struct.unpack("<II", data[:8].ljust(8, b"\0"))
    return pid, tid


def _origin(data: dict[str, Ints], calls: cupti.Calls, markers: list[TextRange]) -> int:
    """The time of the first event in ns since 1970; 0 if no event has a possible time."""
    first_marker = [marker.start for marker in markers[:1]]
    times = [int(data["start_ns"].min()), *first_marker, *calls.start[:1].tolist()]
    return min((time for time in times if 0 < time < LATEST_NS), default=0)
