"""Counters of the bytes in use and in reserve on each device, of a capture with allocations."""

import numpy as np

from pyprof.prof.memory.timeline import Timeline, timelines
from pyprof.prof.perfetto.tracks import Counter, Trace
from pyprof.table.columns import NULL, Ints, MemoryTable


def add_memory(trace: Trace, memory: MemoryTable) -> None:
    """Add the counters of each device to its process."""
    for line in timelines(memory):
        process = trace.process(*(NULL if number is None else number for number in (line.rank, line.pid)))
        device = line.kind if line.device is None else f"{line.kind} {line.device}"
        in_use, about = _meaning(line)
        _add(trace, process, f"{device}: {in_use}", about, line.time, line.total)
        if line.reserved is not None:
            about = "reserved by PyTorch's caching allocator, in use or not"
            _add(trace, process, f"{device}: memory reserved", about, line.time, line.reserved)


def _meaning(line: Timeline) -> tuple[str, str]:
    """The name of the total's counter, and what it counts."""
    if line.level == "driver":
        return "memory from the driver", "cudaMalloc and the like; counts from the first event on"
    return "memory in use", "in blocks" if line.initial is not None else "in blocks; counts from the first event on"


def _add(trace: Trace, process: int, name: str, about: str, time: Ints, value: Ints) -> None:
    last = np.append(time[1:] != time[:-1], True)
    track = trace.child(process, name, about, "counter", "bytes")
    trace.counters.append(Counter(track, time[last], value[last]))
