"""``nsys export --type sqlite`` -> Capture, for every schema from before 2022 to 2026.

Columns are detected, never versions: NVIDIA promises no compatibility of the SQLite export. An absent table means
that there were no such events. Times are ns from the capture's start and may be negative.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.errors import InputError
from pyprof.parse.capture import Capture
from pyprof.parse.cupti import name_operations, triples
from pyprof.parse.database import Database, database
from pyprof.parse.gpu_info import nsys_infos
from pyprof.parse.join import lookup
from pyprof.parse.nvtx_ranges import read_ranges
from pyprof.parse.ranks import ranks
from pyprof.parse.times import lasted, settle
from pyprof.parse.uncollected import uncollected
from pyprof.table import NULL, Coded, Data, Ints, distinct

KERNEL, MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH, API = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_RUNTIME"
NODES = "CUDA_GRAPH_NODE_EVENTS"
KINDS = ((KERNEL, "kernel"), (MEMCPY, "memcpy"), (MEMSET, "memset"), (GRAPH, "graph"))

COMMON = ("start", "end", "globalPid", "correlationId", "deviceId", "streamId", "graphNodeId", "bytes")
LAUNCH = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory",
          "dynamicSharedMemory", "demangledName", "shortName")  # fmt: skip


SIGNS = ("StringIds", "ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME")  # one is in every export
EVENTS = ("NVTX_EVENTS", API, *(table for table, _ in KINDS))


def is_nsys(db: Database) -> bool:
    return any(db.has(table) for table in SIGNS)


@uncollected()
def read(file: Path) -> Capture:
    """Read an nsys SQLite export.

    Raises InputError where the file is no nsys export, SchemaError where a column is missing that nothing replaces.
    """
    with database(file) as db:
        if not is_nsys(db):
            found = ", ".join(sorted(db.columns)[:4]) or "no tables"
            raise InputError(file, f"expected an nsys SQLite export, found a database with {found}")
        if not any(db.has(table) for table in EVENTS):
            raise InputError(
                file, "expected CUDA or NVTX events, found an nsys export with none (profile with -t cuda,nvtx)"
            )
        return _capture(file, db)


def _capture(file: Path, db: Database) -> Capture:
    gpu = _gpu_rows(db)
    nvtx = read_ranges(db)
    calls = _calls(db)
    threads = _Threads(nvtx.tids)
    call = lookup(calls.pid, calls.corr, gpu.pid, gpu.corr)
    known = call >= 0
    at = np.where(known, call, 0)
    columns = dict(gpu.columns)
    columns["pid"], columns["corr"], columns["rank"] = gpu.pid, gpu.corr, _ranks(db, gpu.pid)
    if len(calls.pid):
        columns["tid"] = np.where(known, calls.tid[at] & 0xFFFFFF, NULL)
        columns["apiStart"] = np.where(known, calls.start[at], NULL)
        columns["apiDuration"] = np.where(known, lasted(calls.start[at], calls.end[at]), NULL)
        codes = np.where(known, calls.name.codes[at], -1).astype(np.int32)
        columns["api"] = Coded(codes, calls.name.values)
        launch_thread = np.where(known, threads.index(calls.tid)[at], -1)
        launch_time = np.where(known, calls.start[at], NULL)
    else:
        launch_thread, launch_time = np.full(gpu.rows, -1, np.int64), np.full(gpu.rows, NULL, np.int64)
    origin_thread, origin_time = _graph_origins(db, threads, gpu)
    reasons, reason_code = _reasons(calls, gpu, known)
    return Capture(
        file=str(file),
        profiler=f"nsys {_version(db)}".strip(),
        threads=threads.pairs(),
        scopes=nvtx.scopes,
        ranges=nvtx.ranges,
        spans=nvtx.spans,
        rows=gpu.rows,
        columns=columns,
        launch_thread=launch_thread,
        launch_time=launch_time,
        reason=reasons,
        reason_code=reason_code,
        origin_thread=origin_thread,
        origin_time=origin_time,
        outs=nvtx.outs,
        warnings=_warnings(db, gpu, calls),
    )


class _Gpu(NamedTuple):
    rows: int
    pid: Ints
    corr: Ints
    start: Ints
    graph_node: Ints
    kind: Ints  # index into KINDS
    columns: dict[str, Data]
    warnings: list[str]


def _gpu_rows(db: Database) -> _Gpu:
    """All GPU operations in order of start: kernels, copies, memsets and opaque graph launches."""
    tables = [_gpu_table(db, number) for number in range(len(KINDS))]
    data = {key: np.concatenate([table.pop(key) for table in tables]) for key in list(tables[0])}
    times = settle(data["start"], data["end"])
    data["start"], data["end"] = times.start, times.end
    order = np.lexsort((data["correlationId"], data["start"]))
    for key in data:
        data[key] = data[key][order]
    kind = data["kind"]
    short, long = _names(db, data)
    pid = np.where(data["globalPid"] == NULL, NULL, (data["globalPid"] >> 24) & 0xFFFFFF)
    if np.all(pid == NULL):  # hand-made subsets lack globalPid: right only where one process was captured
        pids = np.unique((db.ints(API, "globalTid")[0] >> 24) & 0xFFFFFF)
        pid = np.full(len(pid), pids[0] if len(pids) == 1 else NULL, np.int64)
    names, infos = _gpus(db, pid, data["deviceId"])
    columns: dict[str, Data] = {
        "kind": Coded(kind.astype(np.int32), [name for _, name in KINDS]),
        "kShortName": short,
        "kLongName": long,
        "start": data["start"],
        "kDuration": data["end"] - data["start"],
        "device": data["deviceId"],
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
    }
    return _Gpu(
        len(pid), pid, data["correlationId"], data["start"], data["graphNodeId"], kind, columns, times.warnings()
    )


def _gpu_table(db: Database, number: int) -> dict[str, Ints]:
    table = KINDS[number][0]
    db.require(table, "start", "end", "correlationId")
    keys = (*COMMON, *LAUNCH, "copyKind", "graphId")
    data = dict(zip(keys, db.ints(table, *keys), strict=True))
    data["kind"] = np.full(len(data["start"]), number, np.int64)
    return data


def _names(db: Database, data: dict[str, Ints]) -> tuple[Coded, Coded]:
    """Short and long names: of a kernel from the file, of the rest as nsys stats prints them."""
    strings = db.strings(np.concatenate([data["demangledName"], data["shortName"]]))
    short, long = _coded(data["shortName"], strings), _coded(data["demangledName"], strings)
    for number, (table, kind) in enumerate(KINDS):
        if table != KERNEL:
            name_operations(
                [short, long], data["kind"] == number, kind, data["copyKind" if table == MEMCPY else "graphId"]
            )
    return short, long


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
    pairs, codes = distinct(pid, device)
    told = [names.get((p, d)) or names.get((None, d), ("", "")) for p, d in pairs]
    name, info = ([pair[i] for pair in told] for i in range(2))
    return Coded(codes.astype(np.int32), name), Coded(codes.astype(np.int32), info)


def _ranks(db: Database, pid: Ints) -> Ints:
    told = ranks(db)
    pids, number = distinct(pid)
    return np.array([told.get(owner, NULL) for (owner,) in pids], np.int64)[number] if pids else pid


class _Calls(NamedTuple):
    pid: Ints
    corr: Ints
    tid: Ints  # globalTid
    start: Ints
    end: Ints
    name: Coded


def _calls(db: Database) -> _Calls:
    """CUDA API calls, runtime and driver; class 67 (backtraces) repeats correlation ids and is left out."""
    db.require(API, "start", "end", "correlationId", "globalTid")
    where = "eventClass IN (0, 1)" if db.has(API, "eventClass") else ""
    corr, tid, start, end, name = db.ints(API, "correlationId", "globalTid", "start", "end", "nameId", where=where)
    return _Calls((tid >> 24) & 0xFFFFFF, corr, tid, start, end, _coded(name, db.strings(name)))


class _Threads:
    """globalTids <-> dense numbers."""

    def __init__(self, ids: dict[int, int]) -> None:
        self.ids = ids

    def index(self, tids: Ints) -> Ints:
        used, inverse = distinct(tids)
        numbers = [self.ids.setdefault(tid, len(self.ids)) for (tid,) in used]
        return np.array(numbers, np.int64)[inverse] if used else np.zeros(0, np.int64)

    def pairs(self) -> list[tuple[int, int]]:
        return [((tid >> 24) & 0xFFFFFF, tid & 0xFFFFFF) for tid in self.ids]


def _graph_origins(db: Database, threads: _Threads, gpu: _Gpu) -> tuple[Ints | None, Ints | None]:
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
    return np.where(known, threads.index(tid)[at], -1), np.where(known, start[at], NULL)


def _reasons(calls: _Calls, gpu: _Gpu, known: NDArray[np.bool_]) -> tuple[list[str], Ints]:
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
    return ["launched before the capture", "no API row", "the capture has no API rows of its process"], code


def _version(db: Database) -> str:
    if not db.has("META_DATA_EXPORT", "value"):
        return ""
    rows = db.rows("SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_PRODUCT_VERSION'")
    return str(rows[0][0]) if rows else ""


def _warnings(db: Database, gpu: _Gpu, calls: _Calls) -> list[str]:
    said = list(gpu.warnings)
    if not gpu.rows:
        said.append("no GPU activity in the capture: nothing was launched, or nsys ran without -t cuda")
    if np.any(gpu.kind == 3):
        said.append("CUDA graphs are opaque in this capture: profile with --cuda-graph-trace=node to see their kernels")
    if db.has("DIAGNOSTIC_EVENT", "severity"):
        rows = db.rows("SELECT DISTINCT text FROM DIAGNOSTIC_EVENT WHERE severity >= 2 ORDER BY timestamp LIMIT 5")
        said += [f"nsys: {text}" for (text,) in rows]
    return said
