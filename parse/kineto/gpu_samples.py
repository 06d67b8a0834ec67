"""The clocks and power of the GPUs that ``pyprof run --nvml`` recorded under a trace's key ``pyprof``.

Their times are Unix times, as are the trace's: its events count from ``baseTimeNanoseconds``, which traces before
PyTorch 2.4 do not have, because their events count from 1970.
"""

from __future__ import annotations

import msgspec

from pyprof.parse.kineto.event_types import Trace
from pyprof.parse.kineto.events import Clock
from pyprof.table.columns import known
from pyprof.table.gpu_samples import GpuSamples, Readings, checked

RECORD_VERSION = 1  # of what pyprof/clock_sampler.py records


class _Gpu(Readings, kw_only=True):
    device: int
    begin_unix_ns: int
    time_us: list[int]


class _Record(msgspec.Struct):
    version: int
    pid: int
    period_ns: int
    gpus: list[_Gpu]


class _Own(msgspec.Struct):
    """The part of the key ``pyprof`` that is read here."""

    nvml: _Record | None = None


def gpu_samples(trace: Trace, clock: Clock, rank: int) -> tuple[list[GpuSamples], list[str]]:
    """The readings of each GPU, with times since the capture began, and warnings."""
    if not trace.pyprof:
        return [], []
    try:
        record = msgspec.json.decode(trace.pyprof, type=_Own).nvml
        if record is None:
            return [], []
        if record.version != RECORD_VERSION:
            return [], [f"the clocks of --nvml have version {record.version}, not {RECORD_VERSION}: left out"]
        base = trace.base if type(trace.base) is int else 0
        return [_samples(gpu, record, rank, base + clock.begin_ns) for gpu in record.gpus], []
    except (ValueError, RecursionError) as error:  # msgspec's errors and those of text are ValueErrors
        return [], [f"the clocks that --nvml recorded cannot be read and are left out ({error})"]


def _samples(gpu: _Gpu, record: _Record, rank: int, begin_unix_ns: int) -> GpuSamples:
    """The samples of one GPU. ``begin_unix_ns``: when the capture began. Raises ValueError if they do not fit."""
    first = checked(gpu.begin_unix_ns - begin_unix_ns)
    times = [first + 1000 * checked(at) for at in gpu.time_us]
    return gpu.samples(known(rank), record.pid, gpu.device, record.period_ns, times)
