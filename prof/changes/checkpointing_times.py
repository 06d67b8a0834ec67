"""What checkpointing layers adds to a step's time, by the launches in a capture and the pace of its host.

A layer's forward launches are repeated in its backward pass. In the replay, the call with which the backward pass
begins takes longer by what the host needs for them, and the operation that it launches by what they take the GPU.
``torch.utils.checkpoint`` takes the host time of its own, too: to save and set the states of random numbers and
autocast for each call, and for each tensor that autograd saves, whose place a hook takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pyprof.errors import InputError
from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.load import LoadedMemory
from pyprof.prof.memory.checkpointing import AddedTime, Checkpointing
from pyprof.prof.memory.memory_numbers import DeviceMemory
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.layer_path import layer_texts
from pyprof.table.columns import Bools, Floats, Ints

# What a checkpointed call takes the host of an H200's machine beside a plain one, without a profiler (PyTorch 2.11,
# tests/device/checkpointing.py; four fits over functions of 1 to 64 ops that save one tensor each).
ENTER_NS = 250_000.0  # in the forward pass: 200 to 308 µs
AGAIN_NS = 300_000.0  # in the backward pass: 211 to 405 µs
SAVE_NS = 6_800.0  # per saved tensor, in the forward pass and again where it is repeated: 5.3 to 9.6 µs
LOAD_NS = 2_000.0  # per saved tensor, where the backward pass asks for it
SAVED = 2.0  # tensors that autograd saves, per op of the user's: a block of GPT-2 has 26 with 13 such ops
MOST = 10  # groups of layers that are replayed, those that free most; each takes a second per million tasks and draw
DEVIATION = 0.25  # of the logarithm of these times, as they differ between fits


class Again(NamedTuple):
    """What one backward pass of a checkpointed layer makes once more."""

    operations: Ints
    calls: Ints
    ops: int  # of PyTorch
    before: int  # the operation with which the backward pass begins


def with_added_times(
    devices: Sequence[DeviceMemory], loaded: LoadedMemory, step_ns: float | None = None
) -> list[DeviceMemory]:
    """The devices with what checkpointing adds to a step of each GPU, where the capture has the launches.

    ``step_ns``: a step without a profiler, where it was measured.
    """
    wanted = any(device.is_gpu and device.checkpointing for device in devices)
    if not wanted or loaded.kernels is None or loaded.host is None or not len(loaded.host):
        return list(devices)
    try:
        base = BaseRun(loaded.kernels, annotate(loaded.kernels), loaded.host, loaded.name)
    except InputError:  # nothing to replay, or times of a damaged file: what checkpointing adds stays unknown
        return list(devices)
    forecaster = Forecaster(base, step_ns)
    return [replace(device, checkpointing=_timed(forecaster, device)) for device in devices]


def _timed(forecaster: Forecaster, device: DeviceMemory) -> list[Checkpointing]:
    if not device.is_gpu:
        return device.checkpointing
    replayed = [replace(each, added=_added(forecaster, each)) for each in device.checkpointing[:MOST]]
    return replayed + device.checkpointing[MOST:]


def _added(forecaster: Forecaster, found: Checkpointing) -> AddedTime | None:
    """None if no forward pass and its backward pass were found."""
    if len(found.again_shares) != len(found.names):
        return None
    named = zip(found.names, found.again_shares, strict=True)
    again = [each for name, share in named for each in made_again(forecaster.base, name, share)]
    if not again:
        return None
    error = forecaster.errors(f"checkpointing Checkpoint {found.layers}", DEVIATION)
    time = forecaster.lengthened(longer_tasks(forecaster.base, forecaster.shares, again, error))
    return AddedTime(round(time.ns), round(time.low), round(time.high))


def longer_tasks(base: BaseRun, shares: Floats, again: Sequence[Again], error: Floats) -> Ints:
    """What each task takes longer, ns, a line for each share: what is made again counts with what it comes before."""
    pace, work = base.pace(shares), base.recorded.work
    took = (work.end - work.start).astype(np.float64)
    took[base.edge_item[base.gaps]] += base.tasks.lag[base.gaps]
    found = np.zeros((len(error), len(base.tasks)))
    for each in again:
        tensors = SAVED * each.ops
        call = base.host_task[work.call[each.before]]
        found[:, base.host_task[each.calls[0]]] += (ENTER_NS + SAVE_NS * tensors) * error
        found[:, call] += (AGAIN_NS + (SAVE_NS + LOAD_NS) * tensors) * error
        found[:, call] += (pace.before + pace.own)[:, each.calls].sum(axis=1)
        found[:, base.work_task[each.before]] += took[each.operations].sum()
    return np.round(found).astype(np.int64)


def made_again(base: BaseRun, name: str, share: float) -> Iterator[Again]:
    """For each forward pass of a layer that a backward pass follows: what is made again.

    ``share``: of the forward launches, those that run again.
    """
    work = base.recorded.work
    paths = layer_texts(base.table.coded("layer")).take(work.row)
    inside = paths.where(lambda path: path == name or path.startswith(f"{name}:"))
    phase = base.table.coded("phase").take(work.row)
    forward = inside & phase.among("forward") & base.table.coded("dir").take(work.row).among("fprop") & (work.call >= 0)
    backward = inside & phase.among("backward") & (work.call >= 0)
    other = phase.among("forward") & ~inside & paths.where(bool)
    for pid in np.unique(work.pid[forward]).tolist():  # each rank runs its own layer
        mine = work.pid == pid
        for passed, before in passes(forward & mine, backward & mine, other & mine):
            operations = passed[: round(share * len(passed))]
            if len(operations):
                ops = len(np.unique(base.table.ints("opId")[work.row[operations]]))
                yield Again(operations, _calls(base, work.call[operations]), ops, before)


def passes(forward: Bools, backward: Bools, other: Bools) -> list[tuple[Ints, int]]:
    """The operations of each forward pass, and the first one of its backward pass: the last pass goes back first.

    A forward pass ends where another layer's begins, or with a backward pass of the layer. Where a layer runs several
    times, each operation that goes back takes the last pass that is left, so that only their order is certain.

    >>> found = passes(*(np.array([mark == kind for mark in "ffofbb"]) for kind in "fbo"))
    >>> [(forward.tolist(), before) for forward, before in found]
    [([3], 4), ([0, 1], 5)]

    What has not gone back when the layer runs forward again never does:

    >>> found = passes(*(np.array([mark == kind for mark in "fofbfbb"]) for kind in "fbo"))
    >>> [(forward.tolist(), before) for forward, before in found]
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


def _calls(base: BaseRun, launching: Ints) -> Ints:
    """The calls of the thread that are made for the first launch, and those from there to the last launch."""
    calls, unit, first = base.recorded.calls, base.unit, int(launching.min())
    begin = first
    while calls.before[begin] >= 0 and unit[calls.before[begin]] == unit[begin] >= 0:
        begin = int(calls.before[begin])
    between = np.arange(begin, int(launching.max()) + 1)
    found: Ints = between[calls.thread[between] == calls.thread[first]]
    return found
