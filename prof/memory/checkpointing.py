"""What activation checkpointing would change: the peak of a step in bytes, and its time in ms.

A checkpointed layer keeps its input and drops what its forward pass saves. Its backward pass first runs the forward
pass again. This is predicted for ``torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`` of each of the layers,
from a step without it.

Bytes: what a layer drops are the blocks that its forward pass allocates and that are alive when its backward pass
begins, without its output, which is the next layer's input and stays. They are gone from the end of the layer's forward
pass to the begin of its backward pass. There the forward pass runs again, and needs at most what it needed above its
begin. The new peak is the greatest total that is left at any time of the step.

Time: the kernels that the forward pass launches run once more. PyTorch stops as soon as all that the backward pass
needs is there again, so what the layer launches after its last saved activation does not count. Which kernels these are
was compared with checkpointed runs on a CPU: the same 48 and 92 (GPT-2 in float32 and bfloat16), and 39 of 39 (three
residual blocks). What a step gets longer by launching them again is found by a replay
(prof/changes/checkpointing_times.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.memory.categories import ACTIVATIONS
from pyprof.prof.memory.layer_groups import patterns
from pyprof.prof.memory.step_window import Kernels, Window

# c10/cuda/CUDACachingAllocator.cpp, should_split: the rest of a block of up to kSmallSize is not split off.
SLACK = 1 << 20
COPIES = ("aten::copy_", "aten::_to_copy", "aten::to")  # what a cast runs
MOST = 48  # patterns of layers that are predicted, those that save the most


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of one step, as checkpointing sees it. Places are those of the window's events."""

    name: str
    ends: int  # the last event of its forward pass
    begins: int  # the first event of its backward pass
    saved: int  # bytes that its forward pass leaves for the backward pass, its output included
    dropped: int  # bytes of these that checkpointing drops until ``begins``
    extra: int  # the most bytes that its forward pass needs above what is in use at its begin
    last_saved_ns: int  # from this time on, nothing of its forward pass would run again


@dataclass(frozen=True, slots=True)
class AddedTime:
    """What checkpointing adds to a step without a profiler, by a replay, and an 80% interval."""

    ns: Annotated[float, doc("mean over what is not known: the host's pace, and what checkpointing costs it", "ns")]
    low_ns: Annotated[float, doc("one case in ten is below", "ns")]
    high_ns: Annotated[float, doc("one case in ten is above", "ns")]


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """What checkpointing some layers, each on its own, would change in a step."""

    layers: Annotated[str, doc("the layers, as a pattern: GPT:h.*")]
    names: Annotated[list[str], doc("their names")]
    saved_bytes: Annotated[int, doc("what their forward passes save, their outputs included", "bytes")]
    dropped_bytes: Annotated[int, doc("of these, what checkpointing drops until the backward pass", "bytes")]
    peak_bytes: Annotated[int, doc("the step's peak now", "bytes")]
    new_peak_bytes: Annotated[int, doc("the step's peak with checkpointing", "bytes")]
    freed_bytes: Annotated[int, doc("how much the peak falls", "bytes")]
    cost_ns: Annotated[
        int | None, doc("GPU time of the kernels that run again; null where the capture has no kernels", "ns")
    ]
    cost_span_ns: Annotated[
        int | None,
        doc("the same with the idle time between them, per layer, under the profiler", "ns"),
    ]
    again_shares: Annotated[list[float], doc("of each layer's forward kernels, the share that runs again")]
    added: Annotated[
        AddedTime | None,
        doc("what a step gets longer; null: not replayed, as the capture has no launches or others free more"),
    ] = None


def candidates(window: Window, least: int = 1) -> list[Checkpointing]:
    """Each pattern of layers that can be checkpointed, that whose peak falls most first.

    A layer counts if it runs forward and then backward in the step.
    """
    weight = np.zeros(len(window.paths.values) + 1, np.int64)
    saved = window.saved_blocks()
    np.add.at(weight, window.paths.codes[window.begin_of[saved]], window.nbytes[saved])
    sizes = dict(zip(window.paths.values, weight.tolist(), strict=False))
    found = patterns([path for path, size in sizes.items() if path and size])
    heaviest = sorted(found, key=lambda pattern: -sum(sizes[path] for path in found[pattern].paths))[:MOST]
    made = (predict(window, pattern, found[pattern].members) for pattern in heaviest)
    kept = [each for each in made if each is not None and each.dropped_bytes >= least]
    return sorted(kept, key=lambda each: (-each.freed_bytes, each.cost_ns or 0, each.layers))


def predict(window: Window, pattern: str, names: Sequence[str]) -> Checkpointing | None:
    """What checkpointing these layers, each on its own, would change; None if none of them can be."""
    found = [layer for name in names if (layer := layer_of(window, name)) is not None and layer.dropped > 0]
    if not found:
        return None
    kernels, peak = window.kernels, window.peak
    new_peak = min(_new_peak(window, found), peak)
    again = [] if kernels is None else [_cost(kernels, layer) for layer in found]
    return Checkpointing(
        layers=pattern,
        names=[layer.name for layer in found],
        saved_bytes=sum(layer.saved for layer in found),
        dropped_bytes=sum(layer.dropped for layer in found),
        peak_bytes=peak,
        new_peak_bytes=new_peak,
        freed_bytes=peak - new_peak,
        cost_ns=None if kernels is None else sum(ns for ns, *_ in again),
        cost_span_ns=None if kernels is None else sum(span for _, span, _ in again),
        again_shares=[round(share, 6) for *_, share in again],
    )


def layer_of(window: Window, name: str) -> Layer | None:
    """One layer's forward and backward pass in the step; None if it does not have both."""
    here = window.places.within(name)
    backward = here[window.is_backward[here]]
    before = here[: int(np.searchsorted(here, backward.min(initial=window.events)))]
    allocating = before[window.is_forward[before]]
    if not len(backward) or not len(allocating):
        return None
    first, last, begins = int(allocating[0]), int(before[-1]), int(backward[0])
    made = window.block_at[allocating]
    made = made[window.category.among(ACTIVATIONS)[made]]
    saved = made[window.end_of[made] > max(last, window.first_backward - 1)]
    output = _output(window, name, saved, int(window.time[last]))
    dropped = saved[(window.end_of[saved] >= begins) & (saved != output)]
    base = int(window.total[first - 1]) if first else window.before
    # What is still there of the output is saved by the layer itself, so that the layer has to run to its end.
    whole = output >= 0 and window.end_of[output] >= begins
    later = allocating[allocating > window.begin_of[dropped].max(initial=-1)] if not whole else allocating[:0]
    return Layer(
        name=name,
        ends=last,
        begins=begins,
        saved=int(window.nbytes[saved].sum()),
        dropped=int(window.nbytes[dropped].sum()),
        extra=int(window.total[first : last + 1].max()) - base,
        last_saved_ns=int(window.time[later[0]]) if len(later) else int(np.iinfo(np.int64).max),
    )


def _output(window: Window, name: str, saved: Any, end_ns: int) -> int:
    """The block of the layer's output: the last saved one of the size of a tensor that the next op takes; -1: none.

    In a capture without kernels it is the last one whose free belongs to another layer.
    """
    nbytes = window.nbytes[saved]
    if window.kernels is None:
        inside = np.isin(window.end_of[saved], window.places.within(name))
        return int(saved[~inside][-1]) if not inside.all() else -1
    for size in _following_inputs(window.kernels, name, end_ns):
        fits = (nbytes >= size) & (nbytes < size + SLACK)
        if fits.any():
            return int(saved[fits][-1])
    return -1


def _following_inputs(kernels: Kernels, name: str, end_ns: int) -> list[int]:
    """The bytes of the tensors that the next op of the forward pass after a layer takes, the largest first.

    Under autocast, casts come before the op: of the layer's output, or only of the next layer's weight. So the tensors
    of all copies up to the first other kernel count, and that kernel's.
    """
    of_layer = kernels.places.within(name)
    launched = kernels.launched[of_layer[kernels.is_forward[of_layer]]]
    after = max(end_ns, int(launched.max(initial=-1)))
    first = int(np.searchsorted(kernels.launched, after, "right"))
    following = np.flatnonzero(kernels.is_forward[first : first + 64]) + first
    next_rows = kernels.table.take(following)
    sizes, dtypes, atens = (next_rows.coded(key).texts() for key in ("sizes", "dtypes", "aten"))
    found: list[int] = []
    for row, aten in enumerate(atens):
        taken = tensor_bytes(sizes[row], dtypes[row])
        found += taken
        if taken and aten not in COPIES:
            break
    return sorted(found, reverse=True)


def tensor_bytes(sizes: str, dtypes: str) -> list[int]:
    """The bytes of each tensor of an op's arguments.

    >>> tensor_bytes("[[2, 3], [], [4]]", '["float32", "", "bfloat16"]')
    [24, 8]
    """
    shapes: list[Any] = json.loads(sizes) if sizes else []
    kinds: list[Any] = json.loads(dtypes) if dtypes else []
    found = []
    for shape, kind in zip(shapes, kinds, strict=False):
        if shape and all(type(n) is int for n in shape) and isinstance(kind, str) and kind in ITEM_BYTES:
            found.append(int(np.prod(np.array(shape, object))) * ITEM_BYTES[kind])
    return found


def _new_peak(window: Window, layers: Sequence[Layer]) -> int:
    """The greatest total of the step without what the layers drop, and with what they need to run again."""
    change = np.zeros(window.events + 1, np.int64)
    for layer in layers:
        change[layer.ends] -= layer.dropped
        change[layer.begins] += layer.dropped
    left = window.total + np.cumsum(change)[:-1]
    again = [int(left[layer.begins - 1]) + layer.extra for layer in layers]
    return max(window.before, int(left.max()), *again)


def _cost(kernels: Kernels, layer: Layer) -> tuple[int, int, float]:
    """Of the kernels that run again: GPU time, time from first start to last end, and share of the forward pass's."""
    forward = kernels.places.within(layer.name)
    forward = forward[kernels.is_forward[forward]]
    rows = forward[kernels.launched[forward] < layer.last_saved_ns]
    start, duration = (kernels.table.ints(key)[rows] for key in ("start", "kDuration"))
    if not len(rows):
        return 0, 0, 0.0
    return int(duration.sum()), int((start + duration).max() - start.min()), len(rows) / len(forward)
