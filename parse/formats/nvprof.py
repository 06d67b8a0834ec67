"""nvprof's database (``nvprof -o net.sql``) -> Capture.

One process a file. Times are ns since 1970 and become ns since the first event. Kernel names are mangled. Ranges are
marker records: flags 2 begins one, 4 ends it, and both have its id.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from pyprof.errors import InputError
from pyprof.parse.attribute.capture import Capture, Ranges
from pyprof.parse.attribute.reasons import NO_CALL
from pyprof.parse.attribute.scope import Scope, classify, split
from pyprof.parse.formats.cupti import name_operations, triples
from pyprof.parse.formats.database import Database, database
from pyprof.parse.formats.gpu_info import nvprof_infos
from pyprof.parse.formats.kernel_names import demangle, short_name
from pyprof.parse.formats.key_join import lookup
from pyprof.parse.formats.possible_times import LATEST_NS, lasted, settle
from pyprof.table.columns import NULL, Coded, Data, Ints, distinct

PREFIX = "CUPTI_ACTIVITY_KIND_"
KERNELS = ("CONCURRENT_KERNEL", "KERNEL")  # the second where nvprof serialised kernels
COMMON = ("start", "end", "correlationId", "deviceId", "streamId", "bytes", "copyKind")
LAUNCH = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory",
          "dynamicSharedMemory", "name")  # fmt: skip
BEGIN, END = 2, 4  # CUpti_ActivityFlag of a marker
# cupti_runtime_cbid.h and cupti_driver_cbid.h: the calls that launch
APIS = ("RUNTIME", "DRIVER")
CALLS = {("RUNTIME", 13): "cudaLaunch", ("RUNTIME", 211): "cudaLaunchKernel", ("RUNTIME", 31): "cudaMemcpy",
         ("RUNTIME", 41): "cudaMemcpyAsync", ("RUNTIME", 49): "cudaMemset", ("RUNTIME", 51): "cudaMemsetAsync",
         ("DRIVER", 307): "cuLaunchKernel"}  # fmt: skip


def is_nvprof(db: Database) -> bool:
    return db.has("StringTable") and any(table.startswith(PREFIX) for table in db.columns)


def read(file: Path) -> Capture:
    """Read an nvprof database. Raises InputError where it is none or holds no GPU activity."""
    with database(file) as db:
        if not is_nvprof(db):
            found = ", ".join(sorted(db.columns)[:4]) or "no tables"
            raise InputError(file, f"expected an nvprof database, found one with {found}")
        return _capture(file, db)


def _capture(file: Path, db: Database) -> Capture:
    data, kinds, warnings = _gpu_rows(db)
    if not len(data["start"]):
        raise InputError(
            file,
            "expected kernels, found an nvprof database without any GPU activity"
            " (with --profile-from-start off the program must call cudaProfilerStart)",
        )
    calls, names = _calls(db)
    call = lookup(np.zeros_like(calls["correlationId"]), calls["correlationId"],
                  np.zeros_like(data["correlationId"]), data["correlationId"])  # fmt: skip
    known = call >= 0
    at = np.where(known, call, 0)
    threads: dict[tuple[int, int], int] = {}
    ranges, scopes = _ranges(db, threads)
    owners, owner = distinct(calls["processId"], calls["threadId"] & 0xFFFFFFFF)
    number = np.array([threads.setdefault((pid, tid), len(threads)) for pid, tid in owners], np.int64)
    first = [int(data["start"].min()), *ranges.start[:1].tolist(), *calls["start"][:1].tolist()]
    origin = min((time for time in first if 0 < time < LATEST_NS), default=0)
    ranges.start -= origin
    ranges.end -= origin
    columns = _columns(db, data, kinds, origin)
    launch_thread, launch_time = np.full(len(call), -1, np.int64), np.full(len(call), NULL, np.int64)
    columns["pid"] = np.full(len(call), next(iter(threads), (NULL, NULL))[0], np.int64)  # one process a file
    if owners:
        start = calls["start"][at]
        columns["pid"] = np.where(known, calls["processId"][at], calls["processId"][0])
        columns["tid"] = np.where(known, calls["threadId"][at] & 0xFFFFFFFF, NULL)
        columns["apiStart"] = np.where(known, start - origin, NULL)
        columns["apiDuration"] = np.where(known, lasted(start, calls["end"][at]), NULL)
        columns["api"] = Coded(np.where(known, names.codes[at], -1).astype(np.int32), names.values)
        launch_thread, launch_time = np.where(known, number[owner[at]], -1), np.where(known, start - origin, NULL)
    return Capture(
        file=str(file),
        profiler="nvprof",
        threads=list(threads),
        scopes=scopes,
        ranges=ranges,
        rows=len(data["start"]),
        columns=columns,
        launch_thread=launch_thread,
        launch_time=launch_time,
        reason=[NO_CALL],
        reason_code=np.where(known, -1, 0),
        warnings=warnings,
    )


def _gpu_rows(db: Database) -> tuple[dict[str, Ints], list[str], list[str]]:
    """All GPU operations in order of start, their kinds, and warnings. nvprof reports a correlation id once."""
    kernel = next((name for name in KERNELS if db.has(PREFIX + name)), KERNELS[0])
    kinds = ["kernel", "memcpy", "memset"]
    tables = []
    for number, name in enumerate((kernel, "MEMCPY", "MEMSET")):
        db.require(PREFIX + name, "start", "end", "correlationId")
        keys = (*COMMON, *LAUNCH)
        table = dict(zip(keys, db.ints(PREFIX + name, *keys), strict=True))
        table["kind"] = np.full(len(table["start"]), number, np.int64)
        tables.append(table)
    data = {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}
    times = settle(data["start"], data["end"], earliest=1)
    data["start"], data["end"] = times.start, times.end
    order = np.lexsort((data["correlationId"], data["start"]))
    return {key: column[order] for key, column in data.items()}, kinds, times.warnings()


def _columns(db: Database, data: dict[str, Ints], kinds: list[str], origin: int) -> dict[str, Data]:
    long, short = _names(db, data)
    for number, kind in enumerate(kinds[1:], 1):
        name_operations([short, long], data["kind"] == number, kind, data["copyKind"])
    return {
        "kind": Coded(data["kind"].astype(np.int32), kinds),
        "kShortName": short,
        "kLongName": long,
        "start": data["start"] - origin,
        "kDuration": data["end"] - data["start"],
        "corr": data["correlationId"],
        "device": data["deviceId"],
        "stream": data["streamId"],
        "registers": data["registersPerThread"],
        "staticSmem": data["staticSharedMemory"],
        "dynamicSmem": data["dynamicSharedMemory"],
        "bytes": data["bytes"],
        "grid": triples(data["gridX"], data["gridY"], data["gridZ"]),
        "block": triples(data["blockX"], data["blockY"], data["blockZ"]),
        "gpu": _gpu_names(db, data["deviceId"]),
        "gpuInfo": _gpu_infos(db, data["deviceId"]),
    }


def _names(db: Database, data: dict[str, Ints]) -> tuple[Coded, Coded]:
    used, codes = np.unique(data["name"], return_inverse=True)
    strings = _strings(db)
    mangled = [strings.get(id_, "") for id_ in used.tolist()]
    rows = codes.reshape(-1).astype(np.int32)
    return Coded(rows, [demangle(name) for name in mangled]), Coded(rows.copy(), [short_name(n) for n in mangled])


def _strings(db: Database) -> dict[int, str]:
    return db.texts("StringTable", "_id_")


def _gpu_names(db: Database, device: Ints) -> Coded:
    if not (db.has(f"{PREFIX}DEVICE", "id") and db.has(f"{PREFIX}DEVICE", "name")):
        return Coded.empty(len(device))
    strings = _strings(db)
    found = dict(db.rows(f"SELECT id, name FROM {PREFIX}DEVICE ORDER BY id"))  # noqa: S608 (our own text)
    return Coded.of(strings.get(found.get(number, -1), "") for number in device.tolist())


def _gpu_infos(db: Database, device: Ints) -> Coded:
    infos = nvprof_infos(db, f"{PREFIX}DEVICE")
    return Coded.of(infos.get(number, "") for number in device.tolist())


def _calls(db: Database) -> tuple[dict[str, Ints], Coded]:
    """Runtime and driver calls. A runtime call that launches shadows the driver call under it: its rows come first."""
    keys = ("correlationId", "processId", "threadId", "start", "end", "cbid")
    tables = [dict(zip(keys, db.ints(f"{PREFIX}{api}", *keys), strict=True)) for api in APIS]
    calls = {key: np.concatenate([table[key] for table in tables]) for key in keys}
    api = np.repeat(np.arange(len(APIS)), [len(table["cbid"]) for table in tables])
    used, codes = distinct(api, calls["cbid"])
    names = [CALLS.get((APIS[which], cbid), f"{APIS[which].lower()} call {cbid}") for which, cbid in used]
    return calls, Coded(codes.astype(np.int32), names)


def _ranges(db: Database, threads: dict[tuple[int, int], int]) -> tuple[Ranges, list[Scope]]:
    """Markers paired by id; one that never ends lasts to the end of the capture."""
    table = f"{PREFIX}MARKER"
    if not db.has(table):
        return Ranges.empty(), []
    strings = _strings(db)
    query = (
        f"SELECT flags, timestamp, id, objectKind, objectId, name FROM {table}"  # noqa: S608 (our own text)
        f" WHERE typeof(timestamp) = 'integer' AND timestamp BETWEEN 1 AND {LATEST_NS} ORDER BY timestamp, _id_"
    )
    opened: dict[int, int] = {}
    rows: list[tuple[int, ...]] = []
    ends: list[int] = []
    scopes: dict[tuple[str, bool, str], int] = {}
    owners: dict[object, int] = {}
    texts: dict[object, tuple[int, int, int]] = {}  # name -> scope, sequence number, op id
    for flags, time, id_, kind, owner, name in db.connection.execute(query):
        if flags == END and id_ in opened:
            ends[opened.pop(id_)] = time
        elif flags == BEGIN and kind == 2:  # 2: the object is a thread
            if name not in texts:
                text, seq, op_id, sizes = split(strings.get(name, ""))
                scope = scopes.setdefault((text, seq is not None or op_id is not None, sizes), len(scopes))
                texts[name] = scope, NULL if seq is None else seq, NULL if op_id is None else op_id
            if owner not in owners:
                owners[owner] = threads.setdefault(_thread(owner), len(threads))
            opened[id_] = len(rows)
            ends.append(1 << 62)
            rows.append((owners[owner], time, 0, *texts[name]))
    columns = np.array(rows, np.int64).reshape(-1, 6).T.copy()
    columns[2] = ends
    return Ranges(*columns), [classify(*key) for key in scopes]


def _thread(owner: object) -> tuple[int, int]:
    """(process, thread) of a marker's object: 32 bits each, little-endian, as SQLite text or blob."""
    data = (
        owner.encode("latin-1", "replace")
        if isinstance(owner, str)
        else bytes(owner)
        if isinstance(owner, bytes)
        else b""
    )
    pid, tid = struct.unpack("<II", data[:8].ljust(8, b"\0"))
    return pid, tid
