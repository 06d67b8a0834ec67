"""What checkpointing layers adds to a step's time, by the replay of a capture that has its launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyprof.errors import InputError
from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.effect.recomputation import checkpointing
from pyprof.prof.changes.effect.scenario import apply, captured
from pyprof.prof.load import LoadedMemory
from pyprof.prof.memory.checkpointing import AddedTime, Checkpointing
from pyprof.prof.memory.memory_numbers import DeviceMemory
from pyprof.prof.work.annotate import annotate

MOST = 10  # groups of layers that are replayed, those that free most; each takes a second per million tasks and draw


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
    if len(found.again_shares) != len(found.names):
        return None
    edit = checkpointing(forecaster.base, found.layers, found.names, found.again_shares)
    if edit is None:
        return None
    time = forecaster.added(apply(edit, captured(forecaster.base)))
    return AddedTime(round(time.ns), round(time.low), round(time.high))
