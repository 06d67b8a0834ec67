"""The clocks and power of the GPUs that ``pyprof run --nvml`` recorded under a trace's key ``pyprof``.

Their times are Unix times, as are the trace's: its events count from ``baseTimeNanoseconds``, which traces before
PyTorch 2.4 do not have, because their events count from 1970.
"""

from __future__ import annotations

from pyprof.parse.formats.own_record import OwnRecord, own_record
from pyprof.parse.kineto.event_types import Trace
from pyprof.parse.kineto.events import Clock
from pyprof.table.columns import known
from pyprof.table.gpu_samples import GpuSamples, Readings, checked

RECORD_VERSION = 1  # of what pyprof/clock_sampler.py records


class _Gpu(Readings, kw_only=True):
    device: int
    begin_unix_ns: int
    time_us: list[int]


class _Record(OwnRecord):
    pid: int
    period_ns: int
    gpus: list[_Gpu]


def gpu_samples(trace: Trace, clock: Clock, rank: int) -> tuple[list[GpuSamples], list[str]]:
    """The readings of each GPU, with times since the capture began, and warnings."""
    unreadable, versioned = "the clocks that --nvml recorded cannot be read and are", "the clocks of --nvml have"
    record, warnings = own_record(trace.pyprof, "nvml", _Record, RECORD_VERSION, unreadable, versioned)
    if record is None:
        return [], warnings
    base = trace.base if type(trace.base) is int else 0
    try:
        return [_samples(gpu, record, rank, base + clock.begin_ns) for gpu in record.gpus], []
    except ValueError as error:
        return [], [f"{unreadable} left out ({error})"]


def _samples(gpu: _Gpu, record: _Record, rank: int, begin_unix_ns: int) -> GpuSamples:
    """The samples of one GPU. ``begin_unix_ns``: when the capture began. Raises ValueError if they do not fit."""
    first = checked(gpu.begin_unix_ns - begin_unix_ns)
    times = [first + 1000 * checked(at) for at in gpu.time_us]
    return gpu.samples(known(rank), record.pid, gpu.device, record.period_ns, times)
