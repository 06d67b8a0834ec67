"""The ranges around captures of CUDA graphs that lie before nsys's range, as pyprof recorded them itself.

``pyprof/captured_record.py`` says how the record gets into a report. Its times are of another clock. The ranges that
carry the time give the difference of the clocks within microseconds, which is not enough: an op may be as short. The
nodes of the graphs, whose creation nsys timed, give it exactly: calls of one op with the same sizes make the same
number of nodes. Of two captures measured on an H200 (188 and 906 nodes), both have one stretch of 3.5 us in which all
calls agree and each node lies in a range; a microsecond beside it, 8 and 80 calls do not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from pyprof.captured_record import CAPTURED_RANGE, FIRST_OP_ID, CapturedRange, CapturedRecord, clock_ns, unpacked
from pyprof.parse.attribute.capture import Ranges
from pyprof.parse.attribute.nesting import Nesting, innermost, nest
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.databases.database import Database
from pyprof.parse.nsys.nvtx_ranges import Nvtx, scope_of_text
from pyprof.parse.nsys.tables import GRAPH_NODES
from pyprof.range_pieces import piece_in
from pyprof.table.columns import NULL, Bools, Ints

FAR_NS, STEP_NS = 100_000, 500  # how far and how closely the difference of the clocks is searched
EXPECTED_NS = -2_500  # a range is pushed about so long after its time was read (H200's host)
MARGIN_NS = 1_000  # to the end of a stretch in which all calls agree, where it is long enough
TOLERATED = 0.01  # of the nodes
NOT_READ = "pyprof's record of captures of CUDA graphs is not complete, and is left out"
NOT_ALIGNED = "pyprof's record of the capture of a CUDA graph does not fit the graph's nodes, and is left out"


def with_captured_ranges(db: Database, nvtx: Nvtx) -> tuple[Nvtx, list[str]]:
    """The ranges with those of the record, if the report has one, and warnings."""
    pieces, clocks = {}, []
    for code, scope in enumerate(nvtx.scopes):
        found, clock = piece_in(scope.name, CAPTURED_RANGE), clock_ns(scope.name)
        if found is not None:
            pieces[code] = found
        if clock is not None:
            clocks.append(int(nvtx.ranges.start[nvtx.ranges.scope == code].min()) - clock)
    if not pieces or not db.has(GRAPH_NODES.table, GRAPH_NODES.column("node")):
        return nvtx, []
    record = unpacked(pieces.values())
    if record is None or not clocks:
        return nvtx, [NOT_READ]
    thread = int(nvtx.ranges.thread[nvtx.ranges.scope == next(iter(pieces))][0])
    process = next(tid for tid, number in nvtx.tids.items() if number == thread) >> 24 << 24
    captures = list(_ranges(record, process, min(clocks), nvtx))
    return _joined(db, nvtx, record, captures)


def _ranges(record: CapturedRecord, process: int, clock: int, nvtx: Nvtx) -> Iterator[Ranges]:
    """The ranges of each capture on nsys's clock, so far as that is known; ``scope``: indices of texts."""
    most = len(record.texts)
    for capture in record.captures:
        known = [each for each in map(CapturedRange._make, capture) if 0 <= each.text < most and each.duration >= 0]
        tids = [process | (each.thread & 0xFFFFFF) for each in known]
        thread = np.array([nvtx.tids.setdefault(tid, len(nvtx.tids)) for tid in tids], np.int64)
        start = np.array([each.start + clock for each in known], np.int64)
        duration, text = (np.array([getattr(each, key) for each in known], np.int64) for key in ("duration", "text"))
        none = np.full(len(known), NULL, np.int64)
        yield Ranges(thread, start, start + duration, text, none, none)


def _joined(db: Database, nvtx: Nvtx, record: CapturedRecord, captures: list[Ranges]) -> tuple[Nvtx, list[str]]:
    scopes, seqs = _scopes(record)
    kinds: dict[tuple[str, str], int] = {}
    kind = np.array([kinds.setdefault((scope.name, scope.sizes), len(kinds)) for scope in scopes], np.int64)
    nodes, left_out, added = _made_nodes(db, nvtx), 0, []
    for ranges in captures:
        if not len(ranges) or np.any(nvtx.ranges.start < ranges.end.max()):
            continue  # nsys collected at that time, and has the ranges itself
        shift = difference(ranges, kind[ranges.scope], nodes)
        left_out += shift is None and bool(_near(ranges, nodes).any())  # torch.compile's first capture has no nodes
        if shift is not None:
            moved = replace(ranges, start=ranges.start + shift, end=ranges.end + shift)
            added.append(
                replace(moved, seq=np.array(seqs, np.int64)[ranges.scope], scope=ranges.scope + len(nvtx.scopes))
            )
    if not added:
        return nvtx, [NOT_ALIGNED] * (left_out > 0)
    whole = [nvtx.ranges, *added]
    names = [field.name for field in fields(Ranges) if getattr(nvtx.ranges, field.name) is not None]
    ranges = Ranges(**{name: np.concatenate([getattr(each, name) for each in whole]) for name in names})
    own = len(nvtx.ranges)
    ranges.op_id[own:] = FIRST_OP_ID + np.arange(len(ranges) - own)
    return nvtx._replace(ranges=ranges, scopes=[*nvtx.scopes, *scopes]), [NOT_ALIGNED] * (left_out > 0)


def _scopes(record: CapturedRecord) -> tuple[list[Scope], list[int]]:
    """The scope and the sequence number of each text, with the op's lists of numbers."""
    both = [scope_of_text(text) for text in record.texts]
    known = record.lists if len(record.lists) == len(both) else ((),) * len(both)
    scopes = [
        scope._replace(args=json.dumps(lists)) if lists and scope.kind == Kind.OP else scope
        for (scope, _), lists in zip(both, known, strict=True)
    ]
    return scopes, [seq for _, seq in both]


class Nodes(NamedTuple):
    """The creation of nodes."""

    graph: Ints  # nsys's number of the graph
    thread: Ints  # number of the thread
    time: Ints


def _made_nodes(db: Database, nvtx: Nvtx) -> Nodes:
    """All nodes, clones left out."""
    data = db.read(GRAPH_NODES)
    own = data["original"] == NULL
    thread = [nvtx.tids.setdefault(tid, len(nvtx.tids)) for tid in data["thread"][own].tolist()]
    return Nodes(data["node"][own] >> 32, np.array(thread, np.int64), data["start_ns"][own])


def difference(ranges: Ranges, kind: Ints, nodes: Nodes) -> int | None:
    """What to add to the times of a capture's ranges, so that its nodes were made in the calls that launch; in ns.

    ``kind``: of each range; those of one kind, in ranges of one kind, make as many nodes. None if no difference fits.
    """
    near = _near(ranges, nodes)
    _, graph = np.unique(nodes.graph, return_inverse=True)
    captured = 2 * np.bincount(graph[near], minlength=len(graph)) > np.bincount(graph, minlength=len(graph))
    own = captured[graph]  # all nodes of a graph; that of its instantiation, made at once, begins near the end
    thread, time = nodes.thread[own], nodes.time[own]
    if not len(time):
        return None
    nesting = nest(ranges.thread, ranges.start, ranges.end)
    call = _calls(nesting, kind)
    tried = np.arange(-FAR_NS, FAR_NS + 1, STEP_NS)
    odd = []
    for shift in tried.tolist():
        inner = innermost(nesting, thread, time - shift)
        made = np.bincount(nesting.source[inner[inner >= 0]], minlength=len(ranges))
        odd.append(int((inner < 0).sum()) + _disagreeing(call, made))
    fitting = np.flatnonzero(np.array(odd) == min(odd))
    if min(odd) > TOLERATED * len(time):
        return None
    stretches = np.split(tried[fitting], np.flatnonzero(np.diff(fitting) > 1) + 1)
    nearest = min(stretches, key=lambda stretch: int(np.abs(stretch - EXPECTED_NS).min()))
    margin = min(MARGIN_NS, int(nearest[-1] - nearest[0]) // 2)
    return int(np.clip(EXPECTED_NS, nearest[0] + margin, nearest[-1] - margin))


def _near(ranges: Ranges, nodes: Nodes) -> Bools:
    """The nodes that may have been made in a capture."""
    found: Bools = (nodes.time >= ranges.start.min() - FAR_NS) & (nodes.time <= ranges.end.max() + FAR_NS)
    return found


def _calls(nesting: Nesting, kind: Ints) -> Ints:
    """A number per range: equal for equal kinds in equal kinds of range, since an op may call one of its own name."""
    own = kind[nesting.source]
    around = np.where(nesting.parent >= 0, own[nesting.parent], -1)
    call = np.zeros(len(kind), np.int64)
    call[nesting.source] = np.unique(np.stack([own, around]), axis=1, return_inverse=True)[1].ravel()
    return call


def _disagreeing(kind: Ints, made: Ints) -> int:
    """How many calls made another number of nodes than most of their kind."""
    pairs, counts = np.unique(np.stack([kind, made]), axis=1, return_counts=True)
    most = np.zeros(int(kind.max()) + 1, np.int64)
    np.maximum.at(most, pairs[0], counts)
    return int(len(kind) - most.sum())
