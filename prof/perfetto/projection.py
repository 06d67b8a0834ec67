"""The program on the GPU's clock: phases, layers and ops as slices over the operations that they launched.

The operations of a stream are taken in order of their start. Neighbours of the same phase are one slice of that phase,
within it neighbours of the same layer are one slice, and so on down to the call of an op. A slice begins with its first
operation. It ends with its last, or where the next slice of its level begins if operations of the stream overlap. Time
in which a layer waits belongs to its slice. nsys calls such slices "NVTX projected to the GPU".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyprof.prof.limits.roofline import Roofline
from pyprof.prof.perfetto.tracks import Arg
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.layer_path import layer_parts
from pyprof.table.attribution import launched_alone
from pyprof.table.columns import NULL, Coded, Ints, Table, distinct
from pyprof.table.graph_replays import replay_numbers
from pyprof.table.schema import first_text

PHASE, LAYER, OP = LEVELS = ("phase", "layer", "op")


@dataclass(frozen=True, slots=True)
class Projection:
    """Slices of one stream, outer ones before the inner ones of the same start."""

    start: Ints
    end: Ints
    name: Coded
    level: Coded  # one of LEVELS
    first: Ints  # slice i covers rows[first[i]:last[i]]
    last: Ints
    rows: Ints  # the rows of the stream in order of start


def project(table: Table, rows: Ints) -> Projection:
    """The slices over the rows of one stream, which all have a start."""
    rows = rows[np.lexsort((rows, table.ints("start")[rows]))]
    names: dict[tuple[str, str], int] = {}
    paths, path = _paths(table, rows, names)
    label_of_node, call, depth_of_call = _calls(table, rows, paths, path, names)
    start = table.ints("start")[rows]
    end = start + np.maximum(table.ints("kDuration")[rows], 0)
    following = np.append(start[1:], np.iinfo(np.int64).max)
    levels = [_runs(nodes, start, end, following) for nodes in _levels(paths, path, call, depth_of_call)]
    first, last, begin, finish, node = (np.concatenate([part[i] for part in levels]) for i in range(5))
    depth = np.repeat(np.arange(len(levels)), [len(part[0]) for part in levels])
    order = np.lexsort((depth, begin))
    label = np.array(label_of_node, np.int64)[node[order]].astype(np.int32)
    level = np.array([LEVELS.index(level) for level, _ in names], np.int32)[label] if len(label) else label
    texts = Coded(label, [name for _, name in names])
    return Projection(begin[order], finish[order], texts, Coded(level, list(LEVELS)), first[order], last[order], rows)


def _paths(table: Table, rows: Ints, names: dict[tuple[str, str], int]) -> tuple[list[list[int]], Ints]:
    """The labels of each distinct (step, phase, layer), and each row's number among them."""
    phase, layer = table.coded("phase"), table.coded("layer")
    keys, path = distinct(table.ints("step")[rows], phase.codes[rows], layer.codes[rows])
    labels = []
    for _, phase_code, layer_code in keys:
        texts = [(PHASE, phase.values[phase_code])] if phase_code >= 0 else []
        texts += [(LAYER, part) for part in layer_parts(layer.values[layer_code] if layer_code >= 0 else "")]
        labels.append([names.setdefault(text, len(names)) for text in texts if text[1]])
    steps = {step: number for number, step in enumerate(dict.fromkeys(key[0] for key in keys))}
    return [[-1 - steps[key[0]], *below] for key, below in zip(keys, labels, strict=True)], path


def _calls(
    table: Table, rows: Ints, paths: list[list[int]], path: Ints, names: dict[tuple[str, str], int]
) -> tuple[list[int], Ints, Ints]:
    """Number the nodes of the tree, each a (parent, label); calls of ops are below their paths. Returns each node's
    label, and for each row the node of its op's call (-1: none) and its depth. In ``paths``, nodes replace labels."""
    label: list[int] = []
    known: dict[tuple[int, int], int] = {}
    for nodes in paths:
        above = -1
        for at, text in enumerate(nodes):
            above = nodes[at] = known.setdefault((above, text), len(known))
            if above == len(label):
                label.append(text)
    op = table.coded("op")
    first = [first_text(text) if text else "" for text in op.values]
    number = np.array([*(names.setdefault((OP, text), len(names)) if text else -1 for text in first), -1])
    name = number[op.codes[rows]]
    keys, call = distinct(path, name, table.ints("opId")[rows], replay_numbers(table)[rows])
    node = len(label) + call
    label += [key[1] for key in keys]
    depth = np.array([len(nodes) for nodes in paths], np.int64)
    return label, np.where(name >= 0, node, -1), depth[path] if len(paths) else path


def _levels(paths: Sequence[Sequence[int]], path: Ints, call: Ints, depth: Ints) -> list[Ints]:
    """For each level below the steps, the node of every row (-1: none). ``call``: the nodes of calls, at ``depth``."""
    deepest = max((len(nodes) for nodes in paths), default=0)
    levels = []
    for level in range(1, deepest + 1):
        of_path = np.array([nodes[level] if level < len(nodes) else -1 for nodes in paths], np.int64)
        levels.append(np.where(depth == level, call, of_path[path]))
    return levels


def _runs(node: Ints, start: Ints, end: Ints, following: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Neighbours of the same node: first row, row after the last, start, end, node."""
    edges = np.flatnonzero(np.diff(node, prepend=-2, append=-2))  # no node is -2
    kept = node[edges[:-1]] >= 0
    first, last = edges[:-1][kept], edges[1:][kept]
    if not len(first):
        return first, last, first, last, first
    bounds = np.stack([first, last], axis=1).reshape(-1)
    latest = np.maximum.reduceat(np.append(end, 0), bounds)[::2]
    return first, last, start[first], np.minimum(latest, following[last - 1]), node[first]


def sums(shown: Projection, table: Table, annotation: Annotation, limits: Roofline) -> list[Arg]:
    """The sums over the operations of each slice. Rates are over the time in which these ran, without waiting."""
    rows, first, last = shown.rows, shown.first, shown.last

    def total(values: Any) -> Any:
        before = np.concatenate([np.zeros(1, values.dtype), np.cumsum(values)])
        return before[last] - before[first]

    flop, nbytes, ns = annotation.flops[rows], annotation.bytes[rows], np.maximum(table.ints("kDuration")[rows], 0)
    limit = limits.sol_ns[rows]
    known, sized, limited = flop != NULL, nbytes != NULL, ~np.isnan(limit)
    time = total(ns)
    launching = total(launched_alone(table.coded("reason"))[rows].astype(np.int64)) > 0  # a launch's time: no rate
    flops, counted = total(np.where(known, flop, 0)), total(known.astype(np.int64))
    size, sizes = total(np.where(sized, nbytes, 0)), total(sized.astype(np.int64))
    with np.errstate(divide="ignore", invalid="ignore"):
        tflops = np.where((counted > 0) & ~launching, flops / total(np.where(known, ns, 0)) / 1e3, np.nan)
        gbps = np.where((sizes > 0) & ~launching, size / total(np.where(sized, ns, 0)), np.nan)
        sol = np.where(launching, np.nan, 100 * total(np.where(limited, limit, 0.0)) / total(np.where(limited, ns, 0)))
    return [
        Arg("operations", last - first),
        Arg("busy_ns", time.astype(np.int64)),
        Arg("flops", np.where(counted > 0, flops, NULL).astype(np.int64)),
        Arg("bytes", np.where(sizes > 0, size, NULL).astype(np.int64)),
        Arg("tflops", tflops),
        Arg("gbps", gbps),
        Arg("sol", sol),
        Arg("uncounted", np.where(counted < last - first, last - first - counted, NULL).astype(np.int64)),
        Arg("bytes_uncounted", np.where(sizes < last - first, last - first - sizes, NULL).astype(np.int64)),
    ]
