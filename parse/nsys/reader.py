"""``nsys export --type sqlite`` -> Capture, for every schema from before 2022 to 2026.

The reader checks which columns exist, never the version (``tables``). An absent table means that there were no such
events. Times are ns from the capture's start and may be negative.
"""

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np

from pyprof.errors import InputError
from pyprof.gc_pause import given_back, uncollected
from pyprof.parse.attribute.capture import OPEN, Capture
from pyprof.parse.attribute.reasons import NO_CALL
from pyprof.parse.attribute.scope import NAMING
from pyprof.parse.databases.database import Database
from pyprof.parse.databases.parquet_folder import opened
from pyprof.parse.formats.cupti import Calls, launch_columns
from pyprof.parse.formats.lost_records import Joined, lost_records, reported_losses, untimed
from pyprof.parse.formats.measured_steps import of_markers
from pyprof.parse.nsys import tables
from pyprof.parse.nsys.api_launches import (
    ApiCalls,
    Launches,
    calls_of,
    captured_launches,
    launches,
    launching_threads,
    read_calls,
    with_graph_numbers,
)
from pyprof.parse.nsys.captured_ranges import with_captured_ranges
from pyprof.parse.nsys.graph_nodes import KERNEL, CapturedNodes, captured_nodes, nodes_that_never_ran
from pyprof.parse.nsys.memory import memory_events
from pyprof.parse.nsys.nccl_payloads import Payload, memberships, missing_sizes, payloads, with_messages
from pyprof.parse.nsys.nvtx_ranges import Nvtx, read_ranges, sort_ranges
from pyprof.parse.nsys.nvtx_sql import left_out
from pyprof.parse.nsys.operations import KINDS, SOURCES, Operations, read_operations
from pyprof.parse.nsys.synchronizations import host_calls
from pyprof.source_path import without_folders
from pyprof.step_timer import NAME
from pyprof.table.columns import NULL, Ints, distinct, folded
from pyprof.table.losses import Loss
from pyprof.table.measured_steps import MeasuredStep

SIGNS = (tables.STRINGS.table, "ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME")  # every export has one of them
EVENTS = tuple(source.table for source in (tables.NVTX, tables.API, *SOURCES))
SEVERE = 2  # messages with at least this DIAGNOSTIC_EVENT.severity become warnings
MOST_MESSAGES = 5
RANK_NAME = re.compile(r"MPI Rank (\d{1,9})")
MOST_RANKS = 1 << 31


def is_nsys(db: Database) -> bool:
    """Whether a database is an nsys export."""
    return any(db.has(table) for table in SIGNS)


@uncollected()
def read(file: Path, lean: bool = False) -> Capture:
    """Read an nsys SQLite export.

    ``lean``: read only what the kernel table needs; the table is the same. Ranges on which no row can depend are left
    out for threads that launch nothing, since such a thread may have millions.

    Raises InputError if the file is not an nsys export, and SchemaError if a required column is missing.
    """
    with opened(file, tables.CAPTURE) as db:
        check(db)
        return _capture(db, lean)


def check(db: Database) -> None:
    """Raise InputError if the file is not an nsys export, or is one without events."""
    if not is_nsys(db):
        found = ", ".join(sorted(db.columns)[:4]) or "no tables"
        raise InputError(db.file, f"expected an nsys SQLite export, found a database with {found}")
    if not any(db.has(table) for table in EVENTS):
        found = "an nsys export with none (profile with -t cuda,nvtx)"
        raise InputError(db.file, f"expected CUDA or NVTX events, found {found}")


@given_back()
def _capture(db: Database, lean: bool) -> Capture:
    operations, calls, named_calls, call, nvtx = _read_columns(db, lean)
    nvtx, warned = with_captured_ranges(db, nvtx)
    messages = payloads(db)
    nvtx = sort_ranges(nvtx._replace(ranges=with_messages(messages, nvtx.ranges, nvtx.scopes, nvtx.tids)))
    launched = launches(db, operations, calls, call, nvtx.tids)
    memory = memory_events(db, calls, nvtx.tids)
    capture = assemble(db, operations, nvtx, launched, messages)
    capture.memory = memory
    capture.measured, warnings = _measured(nvtx, calls)
    capture.warnings += [*warnings, *warned]
    if not lean:
        capture.calls = host_calls(db, calls, named_calls, nvtx.tids)
    captured = captured_launches(calls, named_calls, call, nvtx.tids)
    capture.graph_launches = with_graph_numbers(db, captured, nvtx.tids) if captured else None
    capture.opaque_graph = operations.graph
    capture.threads = threads(nvtx.tids)
    nodes = captured_nodes(db, calls.global_tid, named_calls)
    capture.losses = losses(db, operations, launched, call, named_calls, nodes)
    capture.warnings += nodes_that_never_ran(nodes, operations)
    return capture


@given_back()
def _read_columns(db: Database, lean: bool) -> tuple[Operations, ApiCalls, Calls, Ints, Nvtx]:
    """GPU operations; API calls, also with names; the call of each operation (-1: none); ranges, read beside these."""
    with db.beside(partial(_ranges, lean=lean)) as ranges:
        operations = read_operations(db)
        calls, named_calls = read_calls(db)
        call = calls_of(operations, calls)
        operations.columns.update(launch_columns(call, named_calls))
        return operations, calls, named_calls, call, ranges()


def _ranges(db: Database, lean: bool) -> Nvtx:
    """The ranges; ``lean``: those on which a row can depend."""
    nvtx = read_ranges(db, launching=launching_threads(db) if lean else None)
    if lean and not any(scope.kind in NAMING for scope in nvtx.scopes):
        nvtx = read_ranges(db)  # needed for the warning that says whether the capture has ops at all
    return nvtx


def threads(tids: Iterable[int]) -> list[tuple[int, int]]:
    """Process and thread number of each globalTid."""
    return [(tables.process_of(tid), tables.thread_of(tid)) for tid in tids]


def losses(
    db: Database, operations: Operations, launched: Launches, call: Ints, calls: Calls, nodes: CapturedNodes
) -> list[Loss]:
    """What nsys says that it lost, and what the records show. ``call``: the index of each operation's call."""
    messages = [str(text) for _, text in db.records(tables.DIAGNOSTICS, "severity", "text")]
    uncalled = launched.reason_code == launched.reason.index(NO_CALL)
    columns = {**operations.columns, "pid": operations.pid}
    last = int(calls.start.max(initial=NULL))
    launched_nodes = nodes.pid[nodes.kind == KERNEL], nodes.node[nodes.kind == KERNEL]
    joined = Joined(
        calls, call, columns, lambda: last, lambda: db.read(tables.API, "error")["error"] > 0, launched_nodes
    )
    lost = lost_records(joined, uncalled, "nsys")
    return [*untimed(operations.untimed), *reported_losses(messages, "nsys"), *lost]


def _measured(nvtx: Nvtx, calls: ApiCalls) -> tuple[tuple[MeasuredStep, ...], list[str]]:
    """The steps that pyprof timed before nsys recorded, and warnings.

    They come as NVTX ranges when recording begins, and again when it ends; of several threads, the first one's count.
    If nsys recorded while they ran, it slowed them, and they are left out: then the first call of CUDA is older than
    the ranges by half of their time or more.
    """
    ranges = nvtx.ranges
    carrying = [code for code, scope in enumerate(nvtx.scopes) if scope.name.startswith(NAME)]
    found = np.flatnonzero(np.isin(ranges.scope, carrying))
    if not len(found):
        return (), []
    first = found[ranges.start[found].argmin()]
    own = found[ranges.thread[found] == ranges.thread[first]]
    steps, warnings = of_markers([nvtx.scopes[code].name for code in np.unique(ranges.scope[own]).tolist()])
    began = min(int(calls.start.min(initial=OPEN)), int(ranges.start.min(initial=OPEN)))
    slowed = steps and 2 * (int(ranges.start[first]) - began) >= sum(step.host_ns for step in steps)
    return ((), []) if slowed else (steps, warnings)


def assemble(db: Database, operations: Operations, nvtx: Nvtx, launched: Launches, messages: list[Payload]) -> Capture:
    """The capture of operations, ranges and launches; ``messages`` are NCCL's payloads."""
    rank = _rank_column(db, messages, operations.pid)
    properties = dict(db.records(tables.PROPERTIES, "name", "value"))
    return Capture(
        file=str(db.file),
        profiler=f"nsys {properties.get('EXPORT_PRODUCT_VERSION', '')}".strip(),
        threads=threads(nvtx.tids),
        scopes=nvtx.scopes,
        ranges=nvtx.ranges,
        spans=nvtx.spans,
        rows=operations.rows,
        columns={**operations.columns, "pid": operations.pid, "rank": rank},
        outs=nvtx.outs,
        warnings=_warnings(db, operations, messages),
        **launched._asdict(),
    )


def _rank_column(db: Database, messages: list[Payload], pid: Ints) -> Ints:
    """The rank of each row's process, where the capture says it.

    Three things say it, and the first that does counts: the table MPI_RANKS (``nsys profile -t mpi``); a thread named
    `MPI Rank 3`, as nsys names the one that called MPI_Init (seen in 2022.2); and NCCL's payload where a communicator
    is made, `{"No. of ranks": 8, "Rank": 3, ..}`, in exports that have payloads (``nccl_payloads``).
    """
    threads = db.records(tables.THREAD_NAMES, "thread", "name")
    names = db.texts(tables.STRINGS) if threads else {}
    matches = ((thread, RANK_NAME.fullmatch(names.get(name, ""))) for thread, name in threads)
    of_threads = _agreed((thread, int(match[1])) for thread, match in matches if match)
    rank_of = {**_ranks_of_nccl(messages), **of_threads, **_agreed(db.records(tables.MPI_RANKS, "process", "rank"))}
    pids, number = distinct(pid)
    return folded(np.array([rank_of.get(owner, NULL) for (owner,) in pids], np.int64)[number])


def _agreed(claims: Iterable[tuple[object, ...]]) -> dict[int, int]:
    """Process number -> rank, from pairs (global process or thread id, rank). Drops processes with several ranks."""
    ranks_of: dict[int, set[int]] = {}
    for owner, rank in claims:
        if isinstance(owner, int) and type(rank) is int and 0 <= rank < MOST_RANKS:
            ranks_of.setdefault(tables.process_of(owner), set()).add(rank)
    return {pid: next(iter(ranks)) for pid, ranks in ranks_of.items() if len(ranks) == 1}


def _ranks_of_nccl(messages: list[Payload]) -> dict[int, int]:
    """By the payloads of ncclCommInitRank and similar calls.

    A process has a communicator for each of its groups (data, tensor, pipeline), and a rank in each: the largest group
    is the job, unless several groups of that size disagree.
    """
    joined = list(memberships(messages))
    largest: dict[int, int] = {}
    for process, _, size, _ in joined:
        largest[process] = max(size, largest.get(process, 0))
    return _agreed((process << 24, rank) for process, _, size, rank in joined if size == largest[process] < MOST_RANKS)


def other_types(db: Database) -> list[str]:
    """Warnings about values of wrong types, in all tables that were read except those of GPU operations."""
    return [*db.wrong_types(but=[source.table for source in (*SOURCES, tables.NVTX)]), *left_out(db)]


def _warnings(db: Database, operations: Operations, messages: list[Payload]) -> list[str]:
    """Warnings about data that the capture lacks, and nsys's own warnings."""
    messages_of_nsys = db.records(tables.DIAGNOSTICS, "severity", "text")
    warnings = [*operations.warnings, *other_types(db)]
    if not operations.rows:
        warnings.append("no GPU activity in the capture: nothing was launched, or nsys ran without -t cuda")
    if np.any(operations.kind == KINDS.index("graph")):
        advice = "profile with --cuda-graph-trace=node to see their kernels"
        warnings.append(f"CUDA graphs are opaque in this capture: {advice}")
    severe = (text for severity, text in messages_of_nsys if severity is not None and severity >= SEVERE)
    warnings += [f"nsys: {without_folders(str(text))}" for text in list(dict.fromkeys(severe))[:MOST_MESSAGES]]
    return warnings + missing_sizes(db, messages)
