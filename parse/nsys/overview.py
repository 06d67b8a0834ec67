"""The summary of an nsys export, without reading all of it.

Rows, times, names, steps and warnings come from the numbers of GPU operations and API calls, and are exact. The share
of the time that has an op needs the texts of the ranges, which are nearly all of a long file: there only the ranges
around a sample of the operations are read, and the share is an estimate.

The GPU time is cut into many equal parts, and a random moment is drawn from each. The sample is the operations that ran
at these moments. An operation's chance grows with its duration, every part of the capture is sampled, and a periodic
training loop cannot bias the sample. So the share of the moments estimates the share of the time.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from pyprof.gc_pause import uncollected
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.contents import Attribution, Contents, Estimate, attribution_of
from pyprof.parse.attribute.notes import CaptureNotes, no_ops
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import NAMING
from pyprof.parse.attribute.steps import Nodes, marks, nodes_of, steps, updates_of
from pyprof.parse.databases.database import Database
from pyprof.parse.databases.parquet_folder import opened
from pyprof.parse.nsys.api_launches import calls_of, launches, read_calls
from pyprof.parse.nsys.graph_nodes import captured_nodes
from pyprof.parse.nsys.nccl_payloads import payloads
from pyprof.parse.nsys.nvtx_ranges import distinct_scopes, read_ranges
from pyprof.parse.nsys.nvtx_sql import count_ranges, last_nodes
from pyprof.parse.nsys.operations import outline_operations
from pyprof.parse.nsys.reader import assemble, check, losses
from pyprof.parse.nsys.tables import CAPTURE
from pyprof.parse.tables.correlate import attribute
from pyprof.table.columns import NULL, Ints

FEW = 100_000  # up to this number, all ranges are read, which takes a fifth of a second
MOMENTS = 4_096  # moments drawn from the GPU time: a share of 50% is known to within 2.4%, of 100% to within 0.16%

# The chance, on each side, that the true share lies outside the bounds. It is the chance for three standard deviations,
# so 99.7 of 100 intervals contain the true share.
BEYOND = 0.00135


class Sample(NamedTuple):
    """The operations that ran at the drawn moments, and the number of these moments for each operation."""

    rows: Ints
    moments: Ints


def draw(duration: Ints, moments: int, seed: int = 0) -> Sample:
    """Draw moments from the time of operations, whose durations (ns) must not all be 0; the same moments each time."""
    until = np.cumsum(np.maximum(duration, 0))
    places = (np.arange(moments) + np.random.default_rng(seed).random(moments)) * (until[-1] / moments)
    row = np.searchsorted(until, np.minimum(places.astype(np.int64), until[-1] - 1), "right")
    return Sample(*np.unique(row, return_counts=True))


def bounds(hits: int, moments: int) -> tuple[float, float]:
    """The interval of the true share if ``hits`` of ``moments`` moments have the property.

    This is the exact interval of C. J. Clopper and E. S. Pearson, The use of confidence or fiducial limits, 1934: for a
    share below (above) it, the chance of at least (at most) this many hits is at most ``BEYOND``. It assumes
    independent moments; moments spread evenly over the capture are a little more exact. If all of 4,096 moments have
    the property, 0.16% remain uncertain:

    >>> [round(100 * share, 2) for share in bounds(4096, 4096)]
    [99.84, 100.0]
    """
    numbers = np.arange(moments + 1)
    logs = np.cumsum(np.log(np.maximum(numbers, 1)))  # logarithms of the factorials
    ways = logs[-1] - logs - logs[::-1]

    def tail(share: float, among: slice) -> float:
        chance = ways[among] + numbers[among] * math.log(share) + (moments - numbers[among]) * math.log1p(-share)
        return float(np.exp(chance).sum())

    low = _root(lambda share: tail(share, slice(hits, None)) > BEYOND) if hits else 0.0
    high = _root(lambda share: tail(share, slice(hits + 1)) < BEYOND) if hits < moments else 1.0
    return low, high


def _root(above: Callable[[float], bool]) -> float:
    """The point between 0 and 1 at which ``above`` becomes true."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return (low + high) / 2


@uncollected()
def brief(file: Path) -> tuple[CaptureNotes, Contents]:
    """The summary of an nsys export; beyond ``FEW`` ranges the share is an estimate. Raises as ``reader.read`` does."""
    with opened(file, CAPTURE) as db:
        check(db)
        capture, sample = _capture(db)
        tree = RangeTree(capture)
        notes = CaptureNotes.of(capture, capture.losses)
        if sample is None:
            step, attribution = steps(capture, tree).number, _attribution(capture, tree)
        else:
            step = steps(capture, tree, nodes=_nodes(db, capture, tree)).number
            attribution = _estimated(capture, tree, sample)
            warning = no_ops(capture.profiler)
            if warning in notes.warnings and any(scope.kind in NAMING for scope in distinct_scopes(db)):
                notes.warnings.remove(warning)
    return notes, Contents.of_columns({**capture.columns, "step": step}, attribution)


def _capture(db: Database) -> tuple[Capture, Sample | None]:
    """A capture of all operations and all ranges. If a sample is drawn, only with the ranges around the sample."""
    operations, tids = outline_operations(db), dict[int, int]()
    calls, named_calls = read_calls(db)
    call = calls_of(operations, calls)
    launched = launches(db, operations, calls, call, tids)
    sample, around = None, None
    if count_ranges(db) > FEW:
        duration = cast("Ints", operations.columns["kDuration"])
        sample = Sample(np.arange(len(duration)), np.ones(len(duration), np.int64))  # all operations
        if len(duration) > MOMENTS and duration.any():
            sample = draw(duration, MOMENTS)
        times = [column for column in (launched.launch_time, launched.origin_time) if column is not None]
        around = np.unique(np.concatenate([column[sample.rows] for column in times]))
    nvtx = read_ranges(db, around, tids)
    capture = assemble(db, operations, nvtx, launched, payloads(db))
    capture.losses = losses(
        db, operations, launched, call, named_calls, captured_nodes(db, calls.global_tid, named_calls)
    )
    return capture, sample


def _attribution(capture: Capture, tree: RangeTree, weight: Ints | None = None) -> Attribution:
    """The part of the rows' time (or of their ``weight``) that has an op."""
    return attribution_of({**capture.columns, **attribute(capture, tree).columns}, weight)


def _estimated(capture: Capture, tree: RangeTree, sample: Sample) -> Attribution:
    """The attribution, estimated from a sample. The sampled rows count exactly; only the other rows are uncertain."""
    if len(sample.rows) == capture.rows:
        return _attribution(capture, tree)
    part = _rows(capture, sample.rows)
    by_moment, seen = _attribution(part, tree, sample.moments), _attribution(part, tree)
    total, moments = int(capture.ints("kDuration").sum()), by_moment.total_ns
    low, high = bounds(by_moment.attributed_ns, moments)
    reasons = {reason: round(total * hits / moments) for reason, hits in by_moment.reasons.items()}
    most = total - (seen.total_ns - seen.attributed_ns)
    edges = max(math.floor(low * total), seen.attributed_ns), min(math.ceil(high * total), most)
    estimate = Estimate(len(sample.rows), seen.total_ns, *edges)
    return Attribution(total, total - sum(reasons.values()), seen.on_cpu, reasons, estimate)


def _rows(capture: Capture, rows: Ints) -> Capture:
    """Some of the rows of a brief capture."""
    columns = {key: c[rows] if isinstance(c, np.ndarray) else c.take(rows) for key, c in capture.columns.items()}
    names = "launch_thread launch_time reason_code origin_thread origin_time".split()
    by_row = {name: getattr(capture, name) for name in names}
    taken = {name: column[rows] for name, column in by_row.items() if column is not None}
    return replace(capture, rows=len(rows), columns=columns, **taken)


def _nodes(db: Database, capture: Capture, tree: RangeTree) -> Nodes:
    """The autograd nodes needed to separate steps: one node between each two updates, and the last node of all.

    The nodes around the sample are usually enough. If none of them follows an update that is followed by a launch, the
    file is searched for all later nodes.
    """
    nodes, without_node = nodes_of(tree), []
    updates = updates_of(tree)
    for pid in set(tree.pid[updates].tolist()) - set(marks(capture, tree).pid.tolist()):
        of_process = updates[tree.pid[updates] == pid]
        begun, node_starts = np.sort(tree.start[of_process]), np.sort(nodes.start[nodes.pid == pid])
        without_node += begun[:-1][np.diff(np.searchsorted(node_starts, begun)) == 0].tolist()
        last = tree.whole_end[of_process].max()
        if node_starts[-1:].max(initial=NULL) < last <= capture.launch_time.max(initial=NULL):
            without_node.append(int(begun[-1]))
    if not without_node:
        return nodes
    more = last_nodes(db, tree.start[updates], min(without_node))
    return Nodes(*(np.concatenate(pair) for pair in zip(nodes, more, strict=True)))
