"""Replays of CUDA graphs that have fewer kernels than the graph, where the profiler does not number its nodes.

Where it numbers them (CUPTI), the readers compare the launches by these numbers (``parse/formats/lost_records.py``).
Elsewhere a graph that pyprof marked with a number has as many kernels as its capture, if that is on record, or as the
replay of that number that has most. Without numbers, two replays are of one graph only if the files have the capture of
a single graph. The names of kernels alone prove nothing: a server cuts its model into graphs, and the
kernels of the last piece are among those of every other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.parse.attribute.capture import GRAPH_KINDS, Capture
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.graphs.graph_replays import Replay, marked_graphs, replays
from pyprof.table.columns import Bools, Coded
from pyprof.table.losses import Loss

REMEDY = "record fewer replays at a time, and let the GPU finish before the profiler stops (torch.cuda.synchronize())"
NEVER = (
    "no operation was recorded of {} that a CUDA graph captured: copies and memsets of no bytes, which have none, or "
    "records that the profiler lost"
)
_SINGLE = -1  # stands for the number of the only captured graph, whose replays are not marked
Names = Counter[str]


def lost_nodes(capture: Capture, tree: RangeTree, replayed: Bools) -> list[Loss]:
    """The loss of operations of the rows that CUDA graphs ``replayed``; none where no replay is known to lack any.

    Appends to the capture's warnings if all replays of a graph lack copies or memsets that its capture called: one of
    no bytes has no record.
    """
    if capture.is_host or not replayed.any():
        return []
    names, kernel = capture.coded("kLongName"), capture.coded("kind").among("kernel")
    found = [replay for replay in replays(capture, tree, replayed) if replay.launched]
    kernels = [_counted(names.take(replay.rows[kernel[replay.rows]])) for replay in found]
    whole, captured = _whole_graphs(capture, found, kernels), _captured_operations(capture, tree)
    lacking, lost_kernels = {}, True
    copies = _copies(found, kernels)
    for number, (replay, own) in enumerate(zip(found, kernels, strict=True)):
        lacks = captured.get(replay.graph, NO_CAPTURE).kernels - own.total()
        if lacks <= 0 and own < whole.get(replay.graph, own):
            lacks = (whole[replay.graph] - own).total()
        if lacks <= 0 and replay.graph >= 0:
            lacks = copies[_same(replay, own)] - (len(replay.rows) - own.total())
            lost_kernels &= lacks <= 0
        if lacks > 0 and _finished(capture, replay):
            lacking[number] = lacks
    silent = sum(
        max(captured[graph].copies - most, 0)
        for (graph, own), most in copies.items()
        if graph in captured and captured[graph].kernels == sum(count for _, count in own)
    )
    if silent:
        capture.warnings.append(NEVER.format(f"{silent:,} cop{'y' if silent == 1 else 'ies'}"))
    if not lacking:
        return []
    lack, count = "lacks" if len(lacking) == 1 else "lack", sum(lacking.values())
    noun = "kernel" if lost_kernels else "operation"
    what = f"{count:,} {noun}{'' if count == 1 else 's'} of their graphs"
    return [Loss(f"{len(lacking):,} of {len(found):,} launches of CUDA graphs {lack} {what}", REMEDY)]


def _same(replay: Replay, kernels: Names) -> tuple[int, frozenset[tuple[str, int]]]:
    """Equal for replays of one graph: its number and its kernels, since a graph may be captured again."""
    return replay.graph, frozenset(kernels.items())


def _copies(found: Sequence[Replay], kernels: Sequence[Names]) -> dict[tuple[int, frozenset[tuple[str, int]]], int]:
    """The copies and memsets of each marked graph: those of its replay that has most of them."""
    most: dict[tuple[int, frozenset[tuple[str, int]]], int] = {}
    for replay, own in zip(found, kernels, strict=True):
        if replay.graph >= 0:
            key = _same(replay, own)
            most[key] = max(len(replay.rows) - own.total(), most.get(key, 0))
    return most


def _counted(names: Coded) -> Names:
    codes, counts = np.unique(names.codes, return_counts=True)
    texts = [*names.values, ""]  # code -1 selects the last item
    return Counter({texts[code]: count for code, count in zip(codes.tolist(), counts.tolist(), strict=True)})


def _whole_graphs(capture: Capture, found: Iterable[Replay], kernels: Iterable[Names]) -> dict[int, Names]:
    """The kernels of each graph by its number: those of its replay that has most of them, or of its capture."""
    pairs = list(zip(found, kernels, strict=True))
    whole: dict[int, Names] = {}
    for replay, own in pairs:
        if replay.graph >= 0 and own.total() > whole.get(replay.graph, Counter[str]()).total():
            whole[replay.graph] = own
    launches = capture.graph_launches
    if launches is None or len(launches.began) != 1 or whole:
        return whole
    kernel = launches.kind == GRAPH_KINDS.index("kernel")
    captured = _counted(launches.kernel.take(np.flatnonzero(kernel)))
    if "" not in captured:  # HIP, which names the kernel of each captured launch
        return {_SINGLE: captured}
    same = (own for _, own in pairs if own.total() == captured.total())
    return {_SINGLE: next(same, Counter[str]())}


class Operations(NamedTuple):
    """How many kernels, and how many copies and memsets, the capture of a graph called."""

    kernels: int
    copies: int


NO_CAPTURE = Operations(0, 0)


def _captured_operations(capture: Capture, tree: RangeTree) -> dict[int, Operations]:
    """What the capture of each graph called, by pyprof's number of the graph.

    Not of a number that captures of several processes have.
    """
    launches = capture.graph_launches
    if launches is None:
        return {}
    marked = marked_graphs(tree, launches.began_thread, launches.began, np.arange(len(launches.began)))
    kernel = launches.kind == GRAPH_KINDS.index("kernel")
    kernels, copies = (np.bincount(launches.graph[of], minlength=len(marked)) for of in (kernel, ~kernel))
    several = Counter(marked.tolist())
    return {
        number: Operations(*counts)
        for number, *counts in zip(marked.tolist(), kernels.tolist(), copies.tolist(), strict=True)
        if number >= 0 and several[number] == 1
    }


def _finished(capture: Capture, replay: Replay) -> bool:
    """Whether something that was launched later ran on each stream of a replay, so that all of it had run."""
    stream, device, pid = map(capture.ints, ("stream", "device", "pid"))
    later = (capture.launch_time > replay.time) & (pid == pid[replay.rows[0]])
    places = set(zip(device[replay.rows].tolist(), stream[replay.rows].tolist(), strict=True))
    return places <= set(zip(device[later].tolist(), stream[later].tolist(), strict=True))
