"""``nsys export --type sqlite`` -> Capture, for every schema from before 2022 to 2026.

Columns are detected, never versions: NVIDIA promises no compatibility of the SQLite export. An absent table means
that there were no such events. Times are ns from the capture's start and may be negative.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.errors import InputError
from pyprof.gc_pause import uncollected
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.reasons import BEFORE_CAPTURE, NO_CALL, NO_CALLS
from pyprof.parse.attribute.scope import NAMING
from pyprof.parse.formats.cupti import name_operations, triples
from pyprof.parse.formats.database import Database, database
from pyprof.parse.formats.gpu_info import nsys_infos
from pyprof.parse.formats.kernel_names import demangle, short_name
from pyprof.parse.formats.key_join import lookup
from pyprof.parse.formats.possible_times import lasted, settle
from pyprof.parse.nsys.nccl_payloads import Payload, missing_sizes, payloads, with_messages
from pyprof.parse.nsys.nvtx_ranges import read_ranges
from pyprof.parse.nsys.ranks import ranks
from pyprof.table.columns import NULL, Coded, Data, Ints, distinct

KERNEL, MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH, API = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_RUNTIME"
NODES = "CUDA_GRAPH_NODE_EVENTS"
KINDS = ((KERNEL, "kernel"), (MEMCPY, "memcpy"), (MEMSET, "memset"), (GRAPH, "graph"))

COMMON = ("start", "end", "globalPid", "correlationId", "deviceId", "graphNodeId")
DETAILS = ("streamId", "bytes", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread",
           "staticSharedMemory", "dynamicSharedMemory", "demangledName", "shortName", "mangledName",
           "copyKind", "graphId")  # fmt: skip

SIGNS = ("StringIds", "ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME")  # one is in every export
EVENTS = ("NVTX_EVENTS", API, *(table for table, _ in KINDS))


def is_nsys(db: Database) -> bool:
    return any(db.has(table) for table in SIGNS)


@uncollected()
def read(file: Path, lean: bool = False) -> Capture:
    """Read an nsys SQLite export.

    ``lean``: for the kernel table alone, which is the same. Ranges of threads that launch nothing are left out where no
    row can depend on them: such a thread may have millions.

    Raises InputError where the file is no nsys export, SchemaError where a column is missing that nothing replaces.
    """
    with database(file) as db:
        check(file, db)
        return _capture(file, db, lean)


def check(file: Path, db: Database) -> None:
    """Raise InputError where the file is no nsys export, or one without events."""
    if not is_nsys(db):
        found = ", ".join(sorted(db.columns)[:4]) or "no tables"
        raise InputError(file, f"expected an nsys SQLite export, found a database with {found}")
    if not any(db.has(table) for table in EVENTS):
        raise InputError(
            file, "expected CUDA or NVTX events, found an nsys export with none (profile with -t cuda,nvtx)"
        )


def _capture(file: Path, db: Database, lean: bool) -> Capture:
    gpu = gpu_rows(db)
    nvtx = read_ranges(db, launching=_launching(db) if lean else None)
    if lean and not any(scope.kind in NAMING for scope in nvtx.scopes):
        nvtx = read_ranges(db)  # whether the capture has ops at all is told
    told = payloads(db)
    ranges = with_messages(told, nvtx.ranges, nvtx.scopes, nvtx.tids)
    calls = read_calls(db)
    found = launches(db, gpu, calls, nvtx.tids)
    columns = dict(gpu.columns)
    columns["pid"], columns["corr"], columns["rank"] = gpu.pid, gpu.corr, rank_column(db, told, gpu.pid)
    if len(calls.pid):
        known = found.call >= 0
        at = np.where(known, found.call, 0)
        columns["tid"] = np.where(known, calls.tid[at] & 0xFFFFFF, NULL)
        columns["apiStart"] = np.where(known, calls.start[at], NULL)
        columns["apiDuration"] = np.where(known, lasted(calls.start[at], calls.end[at]), NULL)
        codes = np.where(known, calls.name.codes[at], -1).astype(np.int32)
        columns["api"] = Coded(codes, calls.name.values)
    return Capture(
        file=str(file),
        profiler=profiler(db),
        threads=pairs(nvtx.tids),
        scopes=nvtx.scopes,
        ranges=ranges,
        spans=nvtx.spans,
        rows=gpu.rows,
        columns=columns,
        launch_thread=found.thread,
        launch_time=found.time,
        reason=found.reasons,
        reason_code=found.reason_code,
        origin_thread=found.origin_thread,
        origin_time=found.origin_time,
        outs=nvtx.outs,
        warnings=warnings_of(db, gpu, told),
    )


class Gpu(NamedTuple):
    """GPU operations in order of start."""

    rows: int
    pid: Ints
    corr: Ints
    start: Ints
    graph_node: Ints
    kind: Ints  # index into KINDS
    columns: dict[str, Data]
    warnings: list[str]


def gpu_rows(db: Database) -> Gpu:
    """All GPU operations: kernels, copies, memsets and opaque graph launches."""
    data, said = _operations(db, *COMMON, *DETAILS)
    gpu = _gpu(db, data, said)
    short, long = _names(db, data)
    names, infos = _gpus(db, gpu.pid, data["deviceId"])
    gpu.columns.update({
        "kShortName": short,
        "kLongName": long,
        "stream": data["streamId"],
        "registers": data["registersPerThread"],
        "staticSmem": data["staticSharedMemory"],
        "dynamicSmem": data["dynamicSharedMemory"],
        "graphNode": data["graphNodeId"],
        "bytes": data["bytes"],
        "grid": triples(data["gridX"], data["gridY"], data["gridZ"]),
        "block": triples(data["blockX"], data["blockY"], data["blockZ"]),
        "gpu": names,
        "gpuInfo": infos,
    })  # fmt: skip
    return gpu


def brief_rows(db: Database) -> Gpu:
    """The same with the columns alone that a summary tells."""
    data, said = _operations(db, *COMMON)
    gpu = _gpu(db, data, said)
    gpu.columns["gpu"], _ = _gpus(db, gpu.pid, data["deviceId"])
    return gpu


def _operations(db: Database, *keys: str) -> tuple[dict[str, Ints], list[str]]:
    """Columns of all GPU operations, with the index into KINDS of each as `kind`, and warnings."""
    tables = []
    for number, (table, _) in enumerate(KINDS):
        db.require(table, "start", "end", "correlationId")
        data = dict(zip(keys, db.ints(table, *keys), strict=True))
        data["kind"] = np.full(len(data["start"]), number, np.int64)
        tables.append(data)
    data = {key: np.concatenate([table.pop(key) for table in tables]) for key in list(tables[0])}
    times = settle(data["start"], data["end"])
    data["start"], data["end"] = times.start, times.end
    order = np.lexsort((data["correlationId"], data["start"]))
    for key in data:
        data[key] = data[key][order]
    return data, times.warnings()


def _gpu(db: Database, data: dict[str, Ints], said: list[str]) -> Gpu:
    pid = np.where(data["globalPid"] == NULL, NULL, (data["globalPid"] >> 24) & 0xFFFFFF)
    if np.all(pid == NULL):  # hand-made subsets lack globalPid: right only where one process was captured
        pids = np.unique((db.ints(API, "globalTid")[0] >> 24) & 0xFFFFFF)
        pid = np.full(len(pid), pids[0] if len(pids) == 1 else NULL, np.int64)
    columns: dict[str, Data] = {
        "kind": Coded(data["kind"].astype(np.int32), [name for _, name in KINDS]),
        "start": data["start"],
        "kDuration": data["end"] - data["start"],
        "device": data["deviceId"],
    }
    return Gpu(len(pid), pid, data["correlationId"], data["start"], data["graphNodeId"], data["kind"], columns, said)


def _names(db: Database, data: dict[str, Ints]) -> tuple[Coded, Coded]:
    """Short and long names: of a kernel from the file, of the rest as nsys stats prints them."""
    short, long = _kernel_names(db, data)
    for number, (table, kind) in enumerate(KINDS):
        if table != KERNEL:
            name_operations(
                [short, long], data["kind"] == number, kind, data["copyKind" if table == MEMCPY else "graphId"]
            )
    return short, long


def _kernel_names(db: Database, data: dict[str, Ints]) -> tuple[Coded, Coded]:
    """As the file has them; where it lacks one of the two, made of the other or of the mangled one."""
    keys = ("shortName", "demangledName", "mangledName")
    strings = db.strings(np.concatenate([data[key] for key in keys]))
    used, codes = distinct(*(data[key] for key in keys))
    told = [tuple(strings.get(id_, "") for id_ in ids) for ids in used]
    longs = [long or demangle(mangled) or short for short, long, mangled in told]
    shorts = [names[0] or short_name(long) for names, long in zip(told, longs, strict=True)]
    return Coded(codes.astype(np.int32), shorts), Coded(codes.astype(np.int32), longs)


def _coded(ids: Ints, strings: dict[int, str]) -> Coded:
    used, codes = distinct(ids)
    return Coded(codes.astype(np.int32), [strings.get(id_, "") for (id_,) in used])


def _gpus(db: Database, pid: Ints, device: Ints) -> tuple[Coded, Coded]:
    """The GPU's name and facts a row: by TARGET_INFO_CUDA_DEVICE where it is there, else by TARGET_INFO_GPU.cuDevice.

    Never by TARGET_INFO_GPU.id: on a 4-GPU host ids 0, 1, 2, 3 were CUDA devices 1, 0, 3, 2.
    """
    names: dict[tuple[int | None, int], tuple[str, str]] = {}
    infos = nsys_infos(db)
    id_ = "id" if infos else "NULL"
    if db.has("TARGET_INFO_GPU", "name"):
        if db.has("TARGET_INFO_GPU", "cuDevice"):
            real = "WHERE computeMajor > 0" if db.has("TARGET_INFO_GPU", "computeMajor") else ""
            query = f"SELECT cuDevice, name, {id_} FROM TARGET_INFO_GPU {real} ORDER BY cuDevice"  # noqa: S608 (our own text)
            names.update({(None, number): (str(name), infos.get(gpu, "")) for number, name, gpu in db.rows(query)})
        if db.has("TARGET_INFO_CUDA_DEVICE", "gpuId"):
            query = ("SELECT d.pid, d.cudaId, g.name, g.id FROM TARGET_INFO_CUDA_DEVICE d"
                     " JOIN TARGET_INFO_GPU g ON g.id = d.gpuId ORDER BY d.pid, d.cudaId")  # fmt: skip
            found = db.rows(query)
            names.update({(owner, number): (str(name), infos.get(gpu, "")) for owner, number, name, gpu in found})
    used, codes = distinct(pid, device)
    told = [names.get((p, d)) or names.get((None, d), ("", "")) for p, d in used]
    name, info = ([pair[i] for pair in told] for i in range(2))
    return Coded(codes.astype(np.int32), name), Coded(codes.astype(np.int32), info)


def rank_column(db: Database, payloads: list[Payload], pid: Ints) -> Ints:
    """The rank of each row's process."""
    told = ranks(db, payloads)
    pids, number = distinct(pid)
    return np.array([told.get(owner, NULL) for (owner,) in pids], np.int64)[number] if pids else pid


class Calls(NamedTuple):
    """CUDA API calls, runtime and driver."""

    pid: Ints
    corr: Ints
    tid: Ints  # globalTid
    start: Ints
    end: Ints
    name: Coded


def read_calls(db: Database, brief: bool = False) -> Calls:
    """All calls; ``brief``: without ends and names. Class 67 (backtraces) repeats correlation ids and is left out."""
    db.require(API, "start", "end", "correlationId", "globalTid")
    where = "eventClass IN (0, 1)" if db.has(API, "eventClass") else ""
    corr, tid, start, *more = db.ints(
        API, "correlationId", "globalTid", "start", *(() if brief else ("end", "nameId")), where=where
    )
    pid = (tid >> 24) & 0xFFFFFF
    if brief:
        return Calls(pid, corr, tid, start, start, Coded.empty(len(start)))
    end, name = more
    return Calls(pid, corr, tid, start, end, _coded(name, db.strings(name)))


def threads_of(tids: Ints, known: dict[int, int]) -> Ints:
    """The dense number of each globalTid; ``known`` gets the new ones."""
    used, inverse = distinct(tids)
    numbers = [known.setdefault(tid, len(known)) for (tid,) in used]
    return np.array(numbers, np.int64)[inverse] if used else np.zeros(0, np.int64)


def _launching(db: Database) -> list[int]:
    """The globalTids of threads that call CUDA or capture graphs."""
    tables = [table for table in (API, NODES) if db.has(table, "globalTid")]
    found = [db.rows(f"SELECT DISTINCT globalTid FROM {table} WHERE globalTid IS NOT NULL") for table in tables]  # noqa: S608
    return [tid for rows in found for (tid,) in rows]


def pairs(tids: Iterable[int]) -> list[tuple[int, int]]:
    """(pid, tid) of each globalTid."""
    return [((tid >> 24) & 0xFFFFFF, tid & 0xFFFFFF) for tid in tids]


class Launches(NamedTuple):
    """Where and when GPU operations were launched; the columns of Capture."""

    call: Ints  # index into the calls, -1 for none
    thread: Ints
    time: Ints
    reasons: list[str]
    reason_code: Ints
    origin_thread: Ints | None
    origin_time: Ints | None


def launches(db: Database, gpu: Gpu, calls: Calls, tids: dict[int, int]) -> Launches:
    """Each operation's launch. ``tids``: globalTid -> thread number, which gets the new ones."""
    call = lookup(calls.pid, calls.corr, gpu.pid, gpu.corr)
    known = call >= 0
    if len(calls.pid):
        at = np.where(known, call, 0)
        thread = np.where(known, threads_of(calls.tid, tids)[at], -1)
        time = np.where(known, calls.start[at], NULL)
    else:
        thread, time = np.full(gpu.rows, -1, np.int64), np.full(gpu.rows, NULL, np.int64)
    return Launches(call, thread, time, *_reasons(calls, gpu, known), *_graph_origins(db, tids, gpu))


def _graph_origins(db: Database, tids: dict[int, int], gpu: Gpu) -> tuple[Ints | None, Ints | None]:
    """Where each CUDA graph node was captured: its creation event, behind clones followed to the original."""
    if not db.has(NODES, "graphNodeId") or not np.any(gpu.graph_node != NULL):
        return None, None
    node, original, start, tid = db.ints(NODES, "graphNodeId", "originalGraphNodeId", "start", "globalTid")
    if not len(node):
        return None, None
    # instantiation writes a node twice, as created and as cloned: the row that tells the original comes first
    order = np.argsort(original == NULL, kind="stable")
    node, original, start, tid = node[order], original[order], start[order], tid[order]
    pid = (tid >> 24) & 0xFFFFFF
    event = lookup(pid, node, gpu.pid, gpu.graph_node)
    for _ in range(len(node)):  # a chain cannot be longer than the table
        found = np.flatnonzero(event >= 0)
        clones = found[original[event[found]] != NULL]
        further = lookup(pid, node, gpu.pid[clones], original[event[clones]])
        moved = (further >= 0) & (further != event[clones])
        if not moved.any():
            break
        event[clones[moved]] = further[moved]
    known = event >= 0
    at = np.where(known, event, 0)
    return np.where(known, threads_of(tid, tids)[at], -1), np.where(known, start[at], NULL)


def _reasons(calls: Calls, gpu: Gpu, known: NDArray[np.bool_]) -> tuple[list[str], Ints]:
    """Why a row has no launch: before the first API call of its process, or lost.

    Correlation ids ascend: in a slice of FSDP with offloading, kernels of a second later were launched before it.
    """
    code = np.where(known, -1, 1)
    for pid in np.unique(gpu.pid[~known]).tolist():
        mine, lost = calls.pid == pid, ~known & (gpu.pid == pid)
        if mine.any():
            code[lost & ((gpu.start < calls.start[mine].min()) | (gpu.corr < calls.corr[mine].min()))] = 0
        else:
            code[lost] = 2
    return [BEFORE_CAPTURE, NO_CALL, NO_CALLS], code


def profiler(db: Database) -> str:
    """nsys, with its version where the export tells it."""
    rows = []
    if db.has("META_DATA_EXPORT", "value"):
        rows = db.rows("SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_PRODUCT_VERSION'")
    return f"nsys {rows[0][0] if rows else ''}".strip()


def warnings_of(db: Database, gpu: Gpu, told: list[Payload]) -> list[str]:
    """What the capture lacks, and what nsys itself said."""
    said = list(gpu.warnings)
    if not gpu.rows:
        said.append("no GPU activity in the capture: nothing was launched, or nsys ran without -t cuda")
    if np.any(gpu.kind == 3):
        said.append("CUDA graphs are opaque in this capture: profile with --cuda-graph-trace=node to see their kernels")
    if db.has("DIAGNOSTIC_EVENT", "severity"):
        rows = db.rows("SELECT DISTINCT text FROM DIAGNOSTIC_EVENT WHERE severity >= 2 ORDER BY timestamp LIMIT 5")
        said += [f"nsys: {text}" for (text,) in rows]
    if sizes := missing_sizes(db, told):
        said.append(sizes)
    return said
