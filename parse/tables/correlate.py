"""Turn a capture into the kernel table: find the op, layer, line and direction of each GPU operation.

All readers share this module. Ranges are stored in integer arrays. Their nesting is computed in one pass per thread
(``nesting``); a launch's innermost range is found by binary search (``range_tree``); a backward launch's forward op is
found by its sequence number (``forward_ops``); texts are made once per distinct context (``contexts``, ``facts``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np

from pyprof.gc_pause import given_back, uncollected
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.compiled_code import name_origins
from pyprof.parse.attribute.contexts import Contexts
from pyprof.parse.attribute.facts import Facts, facts, within_replay
from pyprof.parse.attribute.forward_ops import backward_nodes, forward_ops
from pyprof.parse.attribute.loader_calls import loader_calls
from pyprof.parse.attribute.optimizer_lists import gradients
from pyprof.parse.attribute.outputs import outputs
from pyprof.parse.attribute.phase import TRANSFERS, transfers, updating
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.reasons import GRAPH_LAUNCH, GRAPH_SHAPES, UNRECORDED_THREAD
from pyprof.parse.attribute.scope import Kind
from pyprof.parse.attribute.seq_columns import sequence
from pyprof.parse.attribute.serving import ServingRanges, with_serving_phases
from pyprof.parse.attribute.step_times import step_times
from pyprof.parse.attribute.steps import steps
from pyprof.parse.attribute.viewed_tensors import viewed_tensors
from pyprof.parse.graphs.graph_contents import graph_contents
from pyprof.parse.graphs.graph_replays import REASONS as GRAPH_REASONS
from pyprof.parse.graphs.graph_replays import with_graph_origins
from pyprof.parse.graphs.lost_nodes import lost_nodes
from pyprof.parse.graphs.other_captures import with_graphs
from pyprof.table.columns import (
    NULL,
    Bools,
    Coded,
    Data,
    Indices,
    Ints,
    Table,
    blank,
    compact,
    distinct,
    numbered,
    value_at,
)
from pyprof.table.graph_replays import LAUNCH_COLUMNS, in_graphs
from pyprof.table.kernel_names import name_wrappers
from pyprof.table.losses import Loss, losses_column
from pyprof.table.schema import COLUMN

SHAPED = ("marker", "sizes", "dtypes", "strides", "args", "comm", "forward")  # the facts that a call's shapes decide


@given_back()
@uncollected()
def correlate(capture: Capture, brief: bool = False, tree: RangeTree | None = None, last: bool = False) -> Table:
    """The kernel table of a capture: one row per GPU operation, in the capture's order; no row is ever dropped.

    ``brief``: leave out columns that only op models and PyProf's readers need (opId, outs, grads, sequence numbers).
    ``tree``: the capture's ranges, where they have been nested already. ``last``: nobody asks for them afterwards, so
    they are freed before the largest column is made.
    """
    if tree is None:
        capture = with_graphs(capture)
        tree = RangeTree(capture)
        name_origins(capture, tree)
    rows = attribute(capture, tree)
    columns: dict[str, Data] = {**capture.columns, **rows.columns}
    columns["comm"] = _first_known(capture.coded("comm"), rows.columns["comm"])
    if capture.coded("layer").values:
        columns["layer"] = _first_known(rows.columns["layer"], capture.coded("layer"))
    serving = ServingRanges(capture, tree)
    columns["serving"] = texts = serving.texts()
    columns["phase"] = with_serving_phases(rows.columns["phase"], texts)
    columns["incomplete"] = losses_column([*capture.losses, *rows.lost_nodes], capture.rows)
    columns["step"], columns["markStart"], columns["markEnd"], columns["emptySteps"] = steps(capture, tree, serving)
    columns["stepStart"], columns["stepEnd"] = step_times(columns)
    columns["batches"] = loader_calls(capture, tree)
    if brief:
        return name_wrappers(Table(capture.rows, columns, capture.samples, capture.measured, capture.cpu))
    columns = compact(columns)  # before more columns are made: many have one value in all rows
    columns.update(compact(_of_calls(capture, tree, rows)))
    around = rows.inner, rows.node, rows.recomputed
    del rows  # whose contexts have an item per range
    numbers = sequence(tree, *around)
    if last:
        _free(tree, capture)
    columns.update(numbers.columns(columns))
    return name_wrappers(Table(capture.rows, columns, capture.samples, capture.measured, capture.cpu))


@given_back()
def _free(tree: RangeTree, capture: Capture) -> None:
    vars(tree).clear()
    capture.ranges.keep_names()


def _from_zero(given: Indices) -> Ints:
    """The distinct values renumbered from 0 in ascending order; -1 becomes NULL."""
    found = np.full(len(given), NULL, np.int64)
    known = given >= 0
    found[known] = numbered(given[known])[1]
    return found


def _first_known(of_row: Coded, of_range: Coded) -> Coded:
    """Per row, the value of the row's own record, or if unknown, the value of the range around its launch."""
    if not of_row.values:
        return of_range
    return Coded.of(a or b for a, b in zip(of_row.texts(), of_range.texts(), strict=True))


@dataclass(frozen=True, slots=True)
class Attributed:
    """The ranges that each row belongs to, and the columns that they decide."""

    contexts: Contexts
    inner: Ints  # the innermost range around the launch, -1: none
    node: Ints  # the backward node around the launch, -1: none
    forward: Ints  # for a row in a backward node: the forward op's range, -1: none
    shapeless: Bools  # whether only the row's shapes are unknown
    recomputed: Bools  # whether the row re-runs a forward op inside a backward node
    columns: dict[str, Coded]  # one column per field of ``Facts``
    lost_nodes: list[Loss]  # launches of graphs that have fewer operations than the graph


@given_back()
def attribute(capture: Capture, tree: RangeTree) -> Attributed:
    """Find the ranges around each row's launch, and derive the row's columns from them."""
    by_graph = replayed(capture)
    lost = [] if capture.losses else lost_nodes(capture, tree, by_graph)  # the readers may have found them, too
    capture, misfit = with_graph_origins(capture, tree, by_graph)
    inner, captured, launched_in = tree.innermost_of_rows(capture)
    is_update = updating(capture, tree, inner)  # before there are columns of the rows, since it takes much memory
    contexts = Contexts(tree, np.concatenate([inner, launched_in]) if captured.any() else inner)
    node, recomputed = backward_nodes(tree, contexts, inner)
    forward = forward_ops(tree, node, recomputed, inner)
    reason = capture.reason_code if capture.reason_code is not None else np.full(capture.rows, -1, np.int64)
    reasons = [*capture.reason, *GRAPH_REASONS, UNRECORDED_THREAD]
    reason = np.where((inner < 0) | capture.is_host, reason, -1)  # why it is in no range, or what a CPU op is not
    unrecorded = (inner < 0) & (reason < 0) & ~by_graph & on_unrecorded_threads(capture, tree)
    reason = np.where(unrecorded, len(reasons) - 1, reason)
    keys, number = distinct(  # launches with equal keys have equal facts
        contexts.of(inner),
        contexts.of(forward),
        recomputed,
        np.where(misfit >= 0, len(capture.reason) + misfit, reason),
        transfers(capture),
        is_update,
        by_graph & ~captured,
        *(_launch_keys(tree, contexts, launched_in) if captured.any() else ()),
    )
    known = [_facts_of(capture, contexts, reasons, key) for key in keys]
    columns = {
        field.name: Coded.of(getattr(found, field.name) for found in known).spread(number) for field in fields(Facts)
    }
    shapeless = misfit == GRAPH_REASONS.index(GRAPH_SHAPES)
    return Attributed(contexts, inner, node, forward, shapeless, recomputed, columns, lost)


@given_back()
def _of_calls(capture: Capture, tree: RangeTree, rows: Attributed) -> dict[str, Data]:
    """The columns that only op models and PyProf's readers need."""
    found: dict[str, Data] = {}
    with given_back():
        op = rows.contexts.enclosing("op", rows.inner)
        found["opId"] = _from_zero(value_at(tree.number, rows.contexts.enclosing("call", rows.inner), -1))
    outs = outputs(capture, tree, op, rows.node, np.where(rows.node >= 0, rows.forward, -1))
    found["outs"] = Coded(np.where(rows.shapeless, np.int32(-1), outs.codes), outs.values)
    found["grads"] = gradients(capture, tree, op)
    found["graphOps"] = graph_contents(capture, lambda launches: correlate(launches, tree=tree))
    found["views"] = viewed_tensors(tree, op)
    return found


def at_times(capture: Capture, thread: Ints, time: Ints) -> Capture:
    """The capture with other events of its threads in place of its rows: they are attributed as launches are."""
    return replace(
        capture,
        rows=len(time),
        columns={},
        launch_thread=thread,
        launch_time=time,
        launch_range=None,
        reason=[],
        reason_code=None,
        origin_thread=None,
        origin_time=None,
        is_host=False,
    )


def _launch_keys(tree: RangeTree, contexts: Contexts, launched_in: Ints) -> tuple[Ints, Ints, Bools]:
    """Of the launches of graphs whose kernels have the range of their capture: context, forward op's, recomputed."""
    node, recomputed = backward_nodes(tree, contexts, launched_in)
    return contexts.of(launched_in), contexts.of(forward_ops(tree, node, recomputed, launched_in)), recomputed


def on_unrecorded_threads(capture: Capture, tree: RangeTree) -> Bools:
    """A mask of the rows whose launch is on a thread without an op, in a capture that has ops of other threads.

    Of an nsys report, the ops of threads that launch nothing may not have been read (nvtx_sql.py): only others count.
    """
    recorded = np.unique(tree.thread[np.isin(tree.kind, (Kind.OP, Kind.NODE))])
    if capture.profiler.startswith("nsys"):
        recorded = recorded[np.isin(recorded, capture.launch_thread)]
    return (capture.launch_thread >= 0) & ~np.isin(capture.launch_thread, recorded) & bool(len(recorded))


def replayed(capture: Capture) -> Bools:
    """A mask of the rows that a CUDA graph launched: opaque graphs, nodes of graphs, and rows of a graph's launch."""
    columns = (capture.columns.get(key, blank(COLUMN[key].kind, capture.rows)) for key in LAUNCH_COLUMNS)
    return in_graphs(*columns)


def _facts_of(capture: Capture, contexts: Contexts, reasons: Sequence[str], key: tuple[int, ...]) -> Facts:
    """The facts of the launches with a key of ``attribute``."""
    context, forward_context, recomputed, reason, transfer, updating, replayed, *launch = key
    path, forward = contexts.path(context), contexts.path(forward_context)
    captured = partial(facts, path, forward, bool(recomputed), TRANSFERS[transfer], bool(updating), bool(replayed))
    if launch and launch[0] >= 0:
        around, around_forward, again = launch
        graph = facts(contexts.path(around), contexts.path(around_forward), bool(again), "", False, True)
        found = within_replay(captured, path, graph)
    else:
        found = captured()
    if reason >= 0 and reasons[reason] == GRAPH_SHAPES:
        return replace(found, **dict.fromkeys(SHAPED, ""), reason=GRAPH_SHAPES) if found.op else found
    if reason >= 0 and (capture.is_host or not found.op):  # a row without an op keeps its reader's reason
        return replace(found, reason=reasons[reason])
    return replace(found, reason=GRAPH_LAUNCH) if replayed and found.op else found
