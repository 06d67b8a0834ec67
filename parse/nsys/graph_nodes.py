"""The nodes of CUDA graphs whose creation nsys recorded: the calls that captured them, and those that never ran."""

from typing import NamedTuple

import numpy as np

from pyprof.parse.attribute.capture import GRAPH_KINDS
from pyprof.parse.databases.database import Database
from pyprof.parse.formats.cupti import Calls
from pyprof.parse.formats.graph_capture import node_kinds
from pyprof.parse.nsys.operations import Operations
from pyprof.parse.nsys.tables import GRAPH_NODES, process_of
from pyprof.table.columns import NULL, Ints, lookup

KERNEL = GRAPH_KINDS.index("kernel")
UNKNOWN = -2


def original_events(data: dict[str, Ints], pid: Ints, wanted: Ints) -> Ints:
    """The creation of each wanted node, or of the node that it is a copy of: an index into ``data``, -1: none."""
    # Instantiation records a node twice, as created and as cloned. The row that names the original comes first.
    order = np.argsort(data["original"] == NULL, kind="stable")
    node, original = data["node"][order], data["original"][order]
    processes = process_of(data["thread"][order])
    event = lookup(processes, node, pid, wanted)
    for _ in range(len(node)):  # a chain cannot be longer than the table
        known = np.flatnonzero(event >= 0)
        clones = known[original[event[known]] != NULL]
        further = lookup(processes, node, pid[clones], original[event[clones]])
        moved = (further >= 0) & (further != event[clones])
        if not moved.any():
            break
        event[clones[moved]] = further[moved]
    return np.where(event >= 0, order[event], -1)


class CapturedNodes(NamedTuple):
    """The nodes of instantiated graphs, by the calls that were captured."""

    pid: Ints
    node: Ints
    kind: Ints  # an index into GRAPH_KINDS; -1: a call that runs nothing on the GPU; UNKNOWN: no call is recorded


def captured_nodes(db: Database, thread: Ints, calls: Calls) -> CapturedNodes:
    """The nodes that are copies of captured ones. A call that nsys did not record was before the range it collects.

    ``thread``: the globalTid of each call.
    """
    if not db.has(GRAPH_NODES.table, GRAPH_NODES.column("node")):
        return CapturedNodes(*(np.empty(0, np.int64) for _ in range(3)))
    data = db.read(GRAPH_NODES)
    copies = np.flatnonzero((data["original"] != NULL) & (data["original"] != data["node"]))
    pid, node = process_of(data["thread"][copies]), data["node"][copies]
    event = original_events(data, pid, node)
    call = _calls_around(thread, calls, data["thread"][event], data["start_ns"][event])
    kind, known = np.full(len(node), UNKNOWN, np.int64), (call >= 0) & (event >= 0)
    kind[known] = node_kinds(calls.name)[call[known]]
    return CapturedNodes(pid, node, kind)


def _calls_around(global_tid: Ints, calls: Calls, thread: Ints, time: Ints) -> Ints:
    """The innermost call of a thread during which each time lies; -1: none."""
    found = np.full(len(time), -1, np.int64)
    for own in np.unique(thread).tolist():
        mine, chosen = np.flatnonzero(global_tid == own), np.flatnonzero(thread == own)
        mine = mine[np.argsort(calls.start[mine], kind="stable")]
        last = np.searchsorted(calls.start[mine], time[chosen], "right") - 1
        within = np.flatnonzero(last >= 0)
        within = within[calls.end[mine[last[within]]] >= time[chosen[within]]]
        found[chosen[within]] = mine[last[within]]
    return found


def nodes_that_never_ran(nodes: CapturedNodes, operations: Operations) -> list[str]:
    """A warning that graphs which ran have nodes without an operation, where that may be right.

    A captured launch of a kernel is no such node: that its kernel is missing is a loss. A copy of no bytes has no
    record, and a captured call of the host runs nothing on the GPU; whether a node is one of these is not known where
    nsys did not record the capture's calls.
    """
    seen = operations.graph_node != NULL
    ran = set(zip(operations.pid[seen].tolist(), operations.graph_node[seen].tolist(), strict=True))
    graphs = {(pid, node >> 32) for pid, node in ran}
    unsure = np.flatnonzero((nodes.kind == UNKNOWN) | (nodes.kind > KERNEL))
    silent = {
        key
        for key in zip(nodes.pid[unsure].tolist(), nodes.node[unsure].tolist(), strict=True)
        if key not in ran and (key[0], key[1] >> 32) in graphs
    }
    if not silent:
        return []
    what = f"{len(silent):,} node{'' if len(silent) == 1 else 's'} of CUDA graphs that ran"
    return [
        f"no operation was recorded of {what}: copies of no bytes or calls of the host, which have none, or records "
        "that nsys lost"
    ]
