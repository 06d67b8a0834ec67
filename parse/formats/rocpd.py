"""AMD's databases -> Capture, experimentally: rocprofv3's rocpd (schema 3, its views) and rocmProfileData's RPD (2).

The reader is written from the views' definitions (rocprofiler-sdk, ROCm 7), without a rocprofv3 database of a PyTorch
run, and tested on databases made by hand; a warning says so. rocpd's grid is in work-items, and its process and thread
numbers are keys of their tables. A kernel and the HIP call that launched it share their event's stack_id; in RPD a
table of pairs joins them. PyTorch's own ranges come as ROCTX markers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyprof.errors import InputError, SchemaError
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.formats.cupti import CallTimes, launch_columns, launch_fields, triples
from pyprof.parse.formats.database import Database, database
from pyprof.parse.formats.kernel_names import demangle, short_name
from pyprof.parse.formats.possible_times import settle
from pyprof.parse.formats.rocpd_events import NEEDED_RPD, NEEDED_V3, Events, number, rocprof_events, rpd_events
from pyprof.parse.formats.text_ranges import Threads, ranges_of, thread_numbers
from pyprof.table.columns import NULL, Coded

EXPERIMENTAL = "AMD's databases are read experimentally: compare with a torch.profiler trace, which is read fully"


def is_rocpd(db: Database) -> bool:
    """Whether a database is rocpd or RPD."""
    return db.has("rocpd_kernel_dispatch") or (db.has("rocpd_op") and db.has("rocpd_api"))


def read(file: Path) -> Capture:
    """Read a rocpd or RPD database.

    Raises InputError where it holds no GPU activity, SchemaError where it lacks a column or holds another value than
    expected.
    """
    with database(file) as db:
        rocprof = db.has("rocpd_kernel_dispatch")
        for table, columns in (NEEDED_V3 if rocprof else NEEDED_RPD).items():
            db.require(table, *columns)
        try:
            events = rocprof_events(db) if rocprof else rpd_events(db)
            if events.operations:
                return _capture(file, events)
        except (TypeError, ValueError, OverflowError) as error:  # SQLite's columns hold whatever was put there
            raise SchemaError(
                file, f"expected numbers as times, sizes and ids, found another value ({error})"
            ) from None
    raise InputError(file, f"expected kernels, found a {events.profiler} database without any GPU activity")


def _capture(file: Path, events: Events) -> Capture:
    numbers = np.array([operation.numbers() for operation in events.operations], np.int64)
    times = settle(numbers[:, 0], numbers[:, 1], earliest=1)
    order = np.argsort(times.start, kind="stable")
    start, end = times.start[order], times.end[order]
    pid, device, stream, gx, gy, gz, bx, by, bz, size, launched = numbers[order, 2:].T
    operations = [events.operations[i] for i in order.tolist()]
    calls = np.array([[number(value) for value in call[:4]] for call in events.calls], np.int64).reshape(-1, 4)
    markers = [marker for marker in events.markers if all(type(value) is int for value in marker[:4])]
    first_call = [time for time in calls[:1, 2].tolist() if time > 0]
    origin = min([int(start[0]), *first_call, *(marker.start for marker in markers[:1])])
    threads: Threads = {}
    ranges, scopes = ranges_of(markers, threads, origin)
    call = np.where(launched == NULL, -1, launched)
    call_times = CallTimes(calls[:, 1], calls[:, 2], calls[:, 3], Coded.of(call.text for call in events.calls))
    columns = {
        "kind": Coded.of(operation.kind for operation in operations),
        "kShortName": Coded.of(short_name(operation.name) for operation in operations),
        "kLongName": Coded.of(demangle(operation.name) for operation in operations),
        "start": start - origin,
        "kDuration": end - start,
        "pid": pid,
        "device": device,
        "stream": stream,
        "grid": triples(gx, gy, gz),
        "block": triples(bx, by, bz),
        "bytes": size,
        **launch_columns(call, call_times, origin),
    }
    return Capture(
        file=str(file),
        profiler=events.profiler,
        threads=list(threads),
        scopes=scopes,
        ranges=ranges,
        rows=len(operations),
        columns=columns,
        warnings=[EXPERIMENTAL, *times.warnings()],
        **launch_fields(call, thread_numbers(calls[:, 0], calls[:, 1], threads), columns),
    )
