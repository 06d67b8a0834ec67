"""The summary of an nsys export, without reading all of it.

Rows, times, names, steps and warnings come from the numbers of GPU operations and API calls, and are exact. The share
of the time that has an op needs the texts of the ranges, which are nearly all of a long file: there only the ranges
around a sample of the operations are read, and the share is an estimate.

The GPU time is cut into many equal parts, and a random moment is drawn from each: the sample is the operations that
were running then. The chance of an operation grows with its duration, every part of the capture is sampled, and no
rhythm of a training loop can fall in step with the draw. So the share of the moments is the share of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyprof.gc_pause import uncollected
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.contents import Attribution, Contents, Estimate, attribution_of
from pyprof.parse.attribute.correlate import attribute
from pyprof.parse.attribute.notes import NO_OPS, CaptureNotes
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import NAMING, Kind
from pyprof.parse.attribute.steps import Nodes, is_update, marks, nodes_of, steps
from pyprof.parse.formats.database import Database, database
from pyprof.parse.nsys.api_launches import launches, outline_calls
from pyprof.parse.nsys.nccl_payloads import payloads
from pyprof.parse.nsys.nvtx_ranges import distinct_scopes, read_ranges
from pyprof.parse.nsys.nvtx_sql import count_ranges, last_nodes
from pyprof.parse.nsys.operations import outline_operations
from pyprof.parse.nsys.reader import assemble, check
from pyprof.table.columns import NULL, Data, Ints

FEW = 100_000  # ranges; so many are all read, which takes a fifth of a second
MOMENTS = 4_096  # drawn from the GPU time: a share of 50% is then known to within 2.4%, one of 100% to within 0.16%

# The chance that the true share lies beyond the bounds, on each side: as for three standard deviations, so that 99.7 of
# 100 intervals contain it.
BEYOND = 0.00135


class Sample(NamedTuple):
    """The operations that ran at the moments drawn, and at how many moments each ran."""

    rows: Ints
    moments: Ints


def draw(duration: Ints, moments: int, seed: int = 0) -> Sample:
    """Draw moments from the time of operations, whose durations (ns) must not all be 0; the same moments each time."""
    until = np.cumsum(np.maximum(duration, 0))
    places = (np.arange(moments) + np.random.default_rng(seed).random(moments)) * (until[-1] / moments)
    row = np.searchsorted(until, np.minimum(places.astype(np.int64), until[-1] - 1), "right")
    return Sample(*np.unique(row, return_counts=True))


def bounds(hits: int, moments: int, beyond: float = BEYOND) -> tuple[float, float]:
    """The interval in which the true share lies where ``hits`` of so many moments have the property.

    The exact interval of C. J. Clopper and E. S. Pearson, The use of confidence or fiducial limits, 1934: below (above)
    it at most ``beyond`` of all draws give as many (as few) hits. It assumes independent moments; spread evenly over
    the capture they are a little more exact. Where all of 4,096 moments have it, 0.16% remain uncertain:

    >>> [round(100 * share, 2) for share in bounds(4096, 4096)]
    [99.84, 100.0]
    """
    numbers = np.arange(moments + 1)
    logs = np.cumsum(np.log(np.maximum(numbers, 1)))  # of the factorials
    ways = logs[-1] - logs - logs[::-1]

    def tail(share: float, among: slice) -> float:
        chance = ways[among] + numbers[among] * math.log(share) + (moments - numbers[among]) * math.log1p(-share)
        return float(np.exp(chance).sum())

    low = _root(lambda share: tail(share, slice(hits, None)) > beyond) if hits else 0.0
    high = _root(lambda share: tail(share, slice(hits + 1)) < beyond) if hits < moments else 1.0
    return low, high


def _root(above: Callable[[float], bool]) -> float:
    """Where, between 0 and 1, ``above`` becomes true."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return (low + high) / 2


@uncollected()
def brief(file: Path) -> tuple[CaptureNotes, Contents]:
    """What parse.py's summary shows of an nsys export; with more than ``FEW`` ranges the attributed share is estimated.

    Raises InputError and SchemaError as ``reader.read`` does.
    """
    with database(file) as db:
        check(db)
        capture, sample = _capture(db)
        tree = RangeTree(capture)
        notes = CaptureNotes.of(capture)
        if sample is None:
            step, attribution = steps(capture, tree), _attribution(capture, tree)
        else:
            step = steps(capture, tree, _nodes(db, capture, tree))
            attribution = _estimated(capture, tree, sample)
            if NO_OPS in notes.warnings and any(scope.kind in NAMING for scope in distinct_scopes(db)):
                notes.warnings.remove(NO_OPS)
    return notes, Contents.of_columns({**capture.columns, "step": step}, attribution)


_BY_ROW = "launch_thread launch_time reason_code origin_thread origin_time".split()  # of a Capture


def _capture(db: Database) -> tuple[Capture, Sample | None]:
    """A capture of all operations and all ranges; where a sample is drawn, of the ranges around its operations."""
    operations, tids = outline_operations(db), dict[int, int]()
    _, launched = launches(db, operations, outline_calls(db), tids)
    sample, around = None, None
    if count_ranges(db) > FEW:
        duration = _ints(operations.columns["kDuration"])
        sample = Sample(np.arange(len(duration)), np.ones(len(duration), np.int64))  # all operations
        if len(duration) > MOMENTS and duration.any():
            sample = draw(duration, MOMENTS)
        times = [column for column in (launched.launch_time, launched.origin_time) if column is not None]
        around = np.unique(np.concatenate([column[sample.rows] for column in times]))
    nvtx = read_ranges(db, around, tids)
    return assemble(db, operations, nvtx, launched, payloads(db)), sample


def _ints(column: Data) -> Ints:
    assert isinstance(column, np.ndarray)
    return column.astype(np.int64, copy=False)


def _attribution(capture: Capture, tree: RangeTree, weight: Ints | None = None) -> Attribution:
    """How much of the rows' time, or of another weight of theirs, has an op."""
    return attribution_of({**capture.columns, **attribute(capture, tree).columns}, weight)


def _estimated(capture: Capture, tree: RangeTree, sample: Sample) -> Attribution:
    """The same, estimated from a sample of the rows. The sample itself is exact: only the rest is uncertain."""
    if len(sample.rows) == capture.rows:
        return _attribution(capture, tree)
    part = _rows(capture, sample.rows)
    by_moment, seen = _attribution(part, tree, sample.moments), _attribution(part, tree)
    total, moments = int(_ints(capture.columns["kDuration"]).sum()), by_moment.total_ns
    low, high = bounds(by_moment.attributed_ns, moments)
    reasons = {reason: round(total * hits / moments) for reason, hits in by_moment.reasons.items()}
    estimate = Estimate(
        len(sample.rows),
        seen.total_ns,
        max(math.floor(low * total), seen.attributed_ns),
        min(math.ceil(high * total), total - (seen.total_ns - seen.attributed_ns)),
    )
    return Attribution(total, total - sum(reasons.values()), seen.on_cpu, reasons, estimate)


def _rows(capture: Capture, rows: Ints) -> Capture:
    """Some of the rows of a brief capture."""
    columns = {key: c[rows] if isinstance(c, np.ndarray) else c.take(rows) for key, c in capture.columns.items()}
    by_row = {name: getattr(capture, name) for name in _BY_ROW}
    taken = {name: column[rows] for name, column in by_row.items() if column is not None}
    return replace(capture, rows=len(rows), columns=columns, **taken)


def _nodes(db: Database, capture: Capture, tree: RangeTree) -> Nodes:
    """Autograd's nodes as far as they are needed to separate steps: one between each two updates, and the last of all.

    Those around the sample are mostly enough. Where there is none after an update that a launch follows, the file is
    searched for all that began later.
    """
    nodes, without_node = nodes_of(tree), []
    updates = np.flatnonzero(tree.scopes_where(Kind.OPTIMIZER, is_update)[tree.scope])
    for pid in set(tree.pid[updates].tolist()) - set(marks(capture, tree).pid.tolist()):
        of_process = updates[tree.pid[updates] == pid]
        begun, node_starts = np.sort(tree.start[of_process]), np.sort(nodes.start[nodes.pid == pid])
        without_node += begun[:-1][np.diff(np.searchsorted(node_starts, begun)) == 0].tolist()
        last = tree.end[of_process].max()
        if node_starts[-1:].max(initial=NULL) < last <= capture.launch_time.max(initial=NULL):
            without_node.append(int(begun[-1]))
    if not without_node:
        return nodes
    more = last_nodes(db, tree.start[updates], min(without_node))
    return Nodes(*(np.concatenate(pair) for pair in zip(nodes, more, strict=True)))
