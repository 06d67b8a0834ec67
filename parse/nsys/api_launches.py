"""The CUDA API calls of an nsys export, and which of them launched each GPU operation."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.gc_pause import given_back
from pyprof.parse.attribute.capture import GraphLaunches
from pyprof.parse.attribute.reasons import BEFORE_CAPTURE, NO_CALL, NO_CALLS, NO_CORRELATION
from pyprof.parse.databases.database import Database
from pyprof.parse.formats.cupti import Calls, texts_of
from pyprof.parse.formats.graph_capture import graph_launches
from pyprof.parse.nsys.graph_nodes import original_events
from pyprof.parse.nsys.operations import Operations
from pyprof.parse.nsys.tables import API, GRAPH_NODES, GRAPHS, STRINGS, process_of, thread_of
from pyprof.table.columns import NULL, Coded, Ints, distinct, folded, lookup, value_at


class ApiCalls(NamedTuple):
    """CUDA API calls, runtime and driver, with the columns needed for finding launches."""

    pid: Ints
    corr: Ints
    global_tid: Ints
    start: Ints  # ns


@given_back()
def read_calls(db: Database) -> tuple[ApiCalls, Calls]:
    """All calls, and the same with ends and names. Raises SchemaError if the table lacks a required column."""
    data = db.read(API, "thread", "corr", "start_ns", "end_ns", "name")
    names, thread = texts_of(data["name"], db.texts(STRINGS, data["name"])), data["thread"]
    calls = ApiCalls(folded(process_of(thread)), data["corr"], thread, data["start_ns"])
    return calls, Calls(calls.start, data["end_ns"], calls.pid, thread_of(thread), names, calls.corr)


def launching_threads(db: Database) -> list[int]:
    """The globalTids of threads that call CUDA or capture graphs."""
    threads: list[int] = []
    for source in (API, GRAPH_NODES):
        if db.has(source.table, source.column("thread")):
            thread = source.column("thread")
            query = f'SELECT DISTINCT "{thread}" FROM "{source.table}" WHERE "{thread}" IS NOT NULL'  # noqa: S608 (our own text)
            threads += [tid for (tid,) in db.rows(query) if type(tid) is int]
    return threads


class Launches(NamedTuple):
    """The thread and time of each GPU operation's launch, as fields of ``Capture``."""

    launch_thread: Ints
    launch_time: Ints
    reason: list[str]
    reason_code: Ints
    origin_thread: Ints | None
    origin_time: Ints | None


@given_back()
def calls_of(operations: Operations, calls: ApiCalls) -> Ints:
    """The index of each operation's call, -1: none."""
    return lookup(calls.pid, calls.corr, operations.pid, operations.corr)


def launches(db: Database, operations: Operations, calls: ApiCalls, call: Ints, tids: dict[int, int]) -> Launches:
    """Each operation's launch. ``call``: ``calls_of`` them; ``tids``: as for ``threads_of``."""
    thread, time = value_at(threads_of(calls.global_tid, tids), call, -1), value_at(calls.start, call)
    reasons = _reasons(calls, operations, call >= 0)
    return Launches(thread, time, *reasons, *_graph_origins(db, tids, operations))


def captured_launches(calls: ApiCalls, named: Calls, call: Ints, tids: dict[int, int]) -> GraphLaunches | None:
    """The calls that graphs captured. ``call``: of each GPU operation; ``tids``: as for ``_threads``.

    They serve the replays of nodes whose creation nsys did not record (``_graph_origins``).
    """
    if not named.name.where(lambda name: "BeginCapture" in name).any():
        return None
    ran = np.zeros(len(calls.start), bool)
    ran[call[call >= 0]] = True
    return graph_launches(named, threads_of(calls.global_tid, tids), ran, Coded.empty(len(ran)))


def with_graph_numbers(db: Database, launches: GraphLaunches, tids: dict[int, int]) -> GraphLaunches:
    """The launches with nsys's number of each graph: that of the first graph made on its thread during the capture."""
    if not db.has_all(GRAPHS):
        return launches
    data = db.read(GRAPHS)
    order = np.argsort(data["start_ns"], kind="stable")
    graph, start = data["graph"][order], data["start_ns"][order]
    thread = threads_of(data["thread"][order], tids)
    number = launches.number.copy()
    for place, (own, began, ended) in enumerate(
        zip(launches.began_thread, launches.began, launches.ended, strict=True)
    ):
        made = np.flatnonzero((thread == own) & (start >= began) & (start <= ended))
        number[place] = graph[made[0]] if len(made) else NULL
    return replace(launches, number=number)


def threads_of(global_tids: Ints, tids: dict[int, int]) -> Ints:
    """The thread number of each globalTid. New threads are added to ``tids``: globalTid -> thread number."""
    used, inverse = distinct(global_tids)
    numbers = [tids.setdefault(tid, len(tids)) for (tid,) in used]
    return np.array(numbers, np.int64)[inverse]


def _graph_origins(db: Database, tids: dict[int, int], operations: Operations) -> tuple[Ints | None, Ints | None]:
    """Thread and time of each CUDA graph node's capture, from the creation event of the node or its original."""
    if not db.has(GRAPH_NODES.table, GRAPH_NODES.column("node")) or not np.any(operations.graph_node != NULL):
        return None, None
    data = db.read(GRAPH_NODES)
    if not len(data["node"]):
        return None, None
    event = original_events(data, operations.pid, operations.graph_node)
    return value_at(threads_of(data["thread"], tids), event, -1), value_at(data["start_ns"], event)


def _reasons(calls: ApiCalls, operations: Operations, known: NDArray[np.bool_]) -> tuple[list[str], Ints]:
    """The reasons why an operation has no launch, and the index of each operation's reason; -1: it has a launch.

    The first reason is for operations launched before their process's first recorded API call. Either their time or
    their correlation id is smaller than the first call's, since ids ascend. In a slice of a run of FSDP with
    offloading, some kernels ran a second after the slice began but were launched before it.
    """
    code = np.where(known, -1, 1)
    for pid in np.unique(operations.pid[~known]).tolist():
        called, lost = calls.pid == pid, ~known & (operations.pid == pid)
        if called.any():
            first_start, first_corr = calls.start[called].min(), calls.corr[called].min()
            code[lost & (operations.corr <= 0)] = 3  # CUPTI's unknown id is 0
            early = (operations.corr > 0) & (operations.corr < first_corr)
            code[lost & (early | (operations.start < first_start))] = 0
        else:
            code[lost] = 2
    return [BEFORE_CAPTURE, NO_CALL, NO_CALLS, NO_CORRELATION], code
