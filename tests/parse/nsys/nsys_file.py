"""Tiny nsys exports out of literal rows."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import Table

COLUMNS = {
    "StringIds": "id, value",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, streamId, correlationId, globalPid, demangledName, shortName,"
    " registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory,"
    " graphNodeId, mangledName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start, end, deviceId, streamId, correlationId, globalPid, bytes, value",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start, end, deviceId, streamId, correlationId, globalPid, graphId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
    "NVTX_EVENTS": "start, end, eventType, text, textId, globalTid, domainId, endGlobalTid, jsonText, jsonTextId,"
    " binaryData",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId, schemaId, idx, name, type, offset",
    "NVTX_PAYLOAD_ENUMS": "domainId, schemaId, size",
    "NVTX_PAYLOAD_ENUM_ENTRIES": "domainId, schemaId, idx, name, value",
    "MPI_RANKS": "globalPid, rank",
    "ThreadNames": "nameId, priority, globalTid",
    "OSRT_API": "start, end, eventClass, globalTid, nameId",
    "CUDA_GRAPH_NODE_EVENTS": "start, end, globalTid, graphNodeId, originalGraphNodeId",
    "TARGET_INFO_GPU": "id, cuDevice, name, computeMajor",
    "TARGET_INFO_CUDA_DEVICE": "pid, cudaId, gpuId",
    "DIAGNOSTIC_EVENT": "timestamp, severity, text",
}
KERNEL, API, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"


def thread(pid: int, tid: int) -> int:
    """A globalTid: hardware 1, machine 0."""
    return (1 << 56) | (pid << 24) | tid


def process(pid: int) -> int:
    return thread(pid, 0)


def kernel(start: int, corr: int, pid: int = 7, name: int = 1, node: int | None = None) -> tuple[Any, ...]:
    """A kernel of 10 ns."""
    return (start, start + 10, 0, 7, corr, process(pid), name + 100, name, 32, 4, 5, 6, 128, 1, 1, 0, 1024, node)


def call(start: int, corr: int, pid: int = 7, tid: int = 1, event_class: int = 0) -> tuple[Any, ...]:
    """An API call of 4 ns."""
    return (start, start + 4, event_class, thread(pid, tid), corr, 50)


def push(start: int, end: int | None, text: Any, pid: int = 7, tid: int = 1, domain: int = 0) -> tuple[Any, ...]:
    """A push/pop range; an int is a textId."""
    by_id = isinstance(text, int)
    return (start, end, 59, None if by_id else text, text if by_id else None, thread(pid, tid), domain)


def startend(start: int, end: int | None, text: str, tid: int = 1, end_tid: int | None = None) -> tuple[Any, ...]:
    """A start/end range of process 7, which may end on another thread."""
    return (start, end, 60, text, None, thread(7, tid), 0, thread(7, end_tid or tid))


def write(path: Path, drop: dict[str, str] | None = None, **tables: list[tuple[Any, ...]]) -> Path:
    """An export with these tables; ``drop`` names a column to leave out of a table.

    A row may lack its last columns: they are empty.
    """
    connection = sqlite3.connect(path)
    tables.setdefault("StringIds", [(1, "gemm"), (101, "void gemm<float>(int)"), (50, "cudaLaunchKernel_v7000")])
    for table, rows in tables.items():
        names = [name.strip() for name in COLUMNS[table].split(",")]
        keep = [i for i, name in enumerate(names) if (drop or {}).get(table) != name]
        listed = ", ".join(f'"{names[i]}"' for i in keep)
        connection.execute(f'CREATE TABLE "{table}" ({listed})')
        marks = ", ".join("?" * len(keep))
        connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', [_cells(row, keep) for row in rows])
    connection.commit()
    connection.close()
    return path


def _cells(row: tuple[Any, ...], keep: list[int]) -> list[Any]:
    return [row[i] if i < len(row) else None for i in keep]


def read_table(tmp_path: Path, **tables: list[tuple[Any, ...]]) -> Table:
    """The kernel table of an export with these tables."""
    return correlate(read(write(tmp_path / "net.sqlite", **tables)))


def texts(rows: Table, key: str) -> list[Any]:
    """A text column; a JSON list becomes a list."""
    return [json.loads(text) if text[:1] == "[" and key != "kShortName" else text for text in rows.coded(key).texts()]
