"""Reports of files of a few literal rows."""

import sqlite3
import struct
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyprof.parse.stats.recording import recording
from pyprof.parse.stats.reports import wanted
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, write

STRINGS = [
    (1, "gemm"),
    (2, "relu"),
    (50, "cudaLaunchKernel_v7000"),
    (51, "cudaGraphLaunch_v10000"),
    (52, "cuGetProcAddress_v2"),
    (60, "poll"),
    (61, "read"),
    (101, "void gemm<float>(int)"),
    (102, "void relu<float>(float*)"),
    (201, "_Z4gemmIfEvi"),
    (90, "registered"),
]
MEMCPY, MEMSET, OSRT = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "OSRT_API"


def report(folder: Path, name: str, **tables: list[tuple[Any, ...]]) -> list[list[Any]]:
    """A report's rows, decimals as text."""
    file = folder / "net.sqlite"
    file.unlink(missing_ok=True)
    with recording(write(file, **{"StringIds": STRINGS, **tables})) as found:
        return plain(wanted(name).rows(found))


def plain(rows: list[list[Any]]) -> list[list[Any]]:
    return [[str(cell) if isinstance(cell, Decimal) else cell for cell in row] for row in rows]


def lasting(row: tuple[Any, ...], ns: int) -> tuple[Any, ...]:
    """The same event, ns long."""
    return (row[0], row[0] + ns, *row[2:])


NESTED = {
    NVTX: [push(0, 100, "step"), push(10, 60, "op"), push(120, 160, "op"), push(0, 200, "step", tid=2)],
    API: [call(20, 1), call(30, 2), call(70, 3), call(130, 4), call(20, 5, tid=2), call(300, 6)],
    KERNEL: [
        kernel(1000, 1),
        kernel(1020, 2, name=2),
        kernel(1040, 3),
        lasting(kernel(1100, 4), 30),
        kernel(1060, 5),
        kernel(1200, 6),
    ],
}


def nvprof_file(path: Path) -> Path:
    """One kernel, launched in a range that is in another; the third was never closed. Times since 1970."""
    owner = struct.pack("<IIQ", 7, 1, 0)
    tables = {
        "StringTable": ("_id_, value", [(1, "_Z4gemmIfEvi"), (2, "outer"), (3, "inner"), (4, "open")]),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start, end, correlationId, processId, threadId, cbid",
            [(1020, 1024, 1, 7, 1, 211), (1030, 1040, 2, 7, 1, 4242)],
        ),
        "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": ("start, end, correlationId, deviceId, name", [(1050, 1060, 1, 0, 1)]),
        "CUPTI_ACTIVITY_KIND_MARKER": (
            "_id_, flags, timestamp, id, objectKind, objectId, name",
            [
                (1, 2, 1000, 11, 2, owner, 2),
                (2, 2, 1010, 12, 2, owner, 3),
                (3, 4, 1025, 12, 2, owner, 0),
                (4, 4, 1100, 11, 2, owner, 0),
                (5, 2, 1080, 13, 2, owner, 4),
                (6, 1, 1090, 14, 2, owner, 4),
            ],
        ),
    }
    with closing(sqlite3.connect(path)) as connection:
        for name, (columns, rows) in tables.items():
            listed = ", ".join(f'"{column}"' for column in columns.split(", "))
            connection.execute(f"CREATE TABLE {name} ({listed})")
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        connection.commit()
    return path
