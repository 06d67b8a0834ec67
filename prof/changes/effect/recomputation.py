"""Activation checkpointing as an edit of the replay: layers' forward launches are repeated in the backward pass.

``torch.utils.checkpoint`` takes the host time of its own, too: to save and set the states of random numbers and
autocast for each call, and for each tensor that autograd saves, whose place a hook takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.edit import Edit, RepeatedCalls
from pyprof.prof.replay.repeated_tasks import Repeat
from pyprof.prof.work.layer_path import layer_texts
from pyprof.table.columns import Bools, Ints

# What a checkpointed call takes the host of an H200's machine beside a plain one, without a profiler (PyTorch 2.11,
# tests/device/checkpointing.py; four fits over functions of 1 to 64 ops that save one tensor each).
ENTER_NS = 250_000.0  # in the forward pass: 200 to 308 µs
AGAIN_NS = 300_000.0  # in the backward pass: 211 to 405 µs
SAVE_NS = 6_800.0  # per saved tensor, in the forward pass and again where it is repeated: 5.3 to 9.6 µs
LOAD_NS = 2_000.0  # per saved tensor, where the backward pass asks for it
SAVED = 2.0  # tensors that autograd saves, per op of the user's: a block of GPT-2 has 26 with 13 such ops
DEVIATION = 0.25  # of the logarithm of these times, as they differ between fits


def checkpointing(base: BaseRun, layers: str, names: Sequence[str], shares: Sequence[float]) -> Edit | None:
    """The edit that checkpoints each of these layers; None if no forward pass and its backward pass were found.

    ``shares``: of each layer's forward launches, the share that runs again.
    """
    repeats = [made for name, share in zip(names, shares, strict=True) for made in _of_layer(base, name, share)]
    if not repeats:
        return None
    return Edit(
        rule="checkpointing",
        change=f"Checkpoint {layers}: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).",
        why="Less memory at the peak; the forward passes of these layers run again in the backward pass",
        cost="time: the layers' forward passes run again",
        deviation=DEVIATION,
        repeats=tuple(repeats),
    )


def _of_layer(base: BaseRun, name: str, share: float) -> list[RepeatedCalls]:
    """For each forward pass of a layer that a backward pass follows: what is made again, and before which call."""
    work = base.recorded.work
    paths = layer_texts(base.table.coded("layer")).take(work.row)
    inside = paths.where(lambda path: path == name or path.startswith(f"{name}:"))
    phase = base.table.coded("phase").take(work.row)
    forward = inside & phase.among("forward") & base.table.coded("dir").take(work.row).among("fprop") & (work.call >= 0)
    backward = inside & phase.among("backward") & (work.call >= 0)
    other = phase.among("forward") & ~inside & paths.where(bool)
    found = []
    for pid in np.unique(work.pid[forward]).tolist():  # each rank runs its own layer
        mine = work.pid == pid
        for passes, before in _paired(forward & mine, backward & mine, other & mine):
            again = passes[: round(share * len(passes))]
            if len(again):
                ops = len(np.unique(base.table.ints("opId")[work.row[again]]))
                found.append(_repeated(base, work.call[again], int(work.call[before]), ops))
    return found


def _paired(forward: Bools, backward: Bools, other: Bools) -> list[tuple[Ints, int]]:
    """The operations of each forward pass, and the first one of its backward pass: the last pass goes back first.

    A forward pass ends where another layer's begins, or with a backward pass of the layer. Where a layer runs several
    times, each operation that goes back takes the last pass that is left, so that only their order is certain.

    >>> passes = _paired(*(np.array([mark == kind for mark in "ffofbb"]) for kind in "fbo"))
    >>> [(forward.tolist(), before) for forward, before in passes]
    [([3], 4), ([0, 1], 5)]

    What has not gone back when the layer runs forward again never does:

    >>> passes = _paired(*(np.array([mark == kind for mark in "fofbfbb"]) for kind in "fbo"))
    >>> [(forward.tolist(), before) for forward, before in passes]
    [([2], 3), ([4], 5)]
    """
    found, waiting, running = [], list[list[int]](), list[int]()
    went_back = False
    for operation in np.flatnonzero(forward | backward | other).tolist():
        if forward[operation]:
            if went_back:
                waiting, went_back = [], False
            running.append(operation)
            continue
        if running:
            waiting.append(running)
            running = []
        if backward[operation]:
            went_back = True
            if waiting:
                found.append((np.array(waiting.pop(), np.int64), operation))
    return found


def _repeated(base: BaseRun, launching: Ints, before: int, ops: int) -> RepeatedCalls:
    """All calls of the thread between the first and the last launch, with those made for the first one."""
    calls, first, last = base.recorded.calls, int(launching.min()), int(launching.max())
    between = np.arange(_begin(base, first), last + 1)
    saved = SAVED * ops
    return RepeatedCalls(
        Repeat(between[calls.thread[between] == calls.thread[first]], _begin(base, before)),
        enter_ns=ENTER_NS + SAVE_NS * saved,
        again_ns=AGAIN_NS + (SAVE_NS + LOAD_NS) * saved,
    )


def _begin(base: BaseRun, call: int) -> int:
    """The first of the calls that are made for this one, itself or those directly before it."""
    calls, unit = base.recorded.calls, base.unit
    while calls.before[call] >= 0 and unit[calls.before[call]] == unit[call] >= 0:
        call = int(calls.before[call])
    return call
