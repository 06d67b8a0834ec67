"""The page's section about memory: bytes over time with the peak, and the tables of `pyprof memory`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from pyprof.prof.memory.memory_numbers import DeviceMemory
from pyprof.prof.memory.timeline import Timeline, timelines
from pyprof.prof.summary.memory_sentences import further_sentences, main_device
from pyprof.prof.summary.memory_tables import memory_tables
from pyprof.table.columns import Ints, MemoryTable

POINTS = 1500  # of a line of the chart; each keeps the highest and the lowest total of its time


def memory_section(memory: MemoryTable, devices: Sequence[DeviceMemory]) -> dict[str, Any] | None:
    """The section as JSON-compatible values: of the main device; None if there is none."""
    main = main_device(devices)
    if main is None:
        return None
    line = next(line for line in timelines(memory) if _is_of(line, main))
    kept = thinned(line.total, POINTS)
    return {
        "title": f"{main.kind} {main.device}" if main.device is not None else main.kind,
        "level": main.level,
        "time": line.time[kept].tolist(),
        "in_use": line.total[kept].tolist(),
        "reserved": None if line.reserved is None else line.reserved[kept].tolist(),
        "peak": {"time": main.at.time_ns, "bytes": main.peak_bytes, "step": main.at.step},
        "sentences": list(further_sentences(main)),
        "tables": [asdict(table) for table in memory_tables(main)],
        "others": len(devices) - 1,
    }


def _is_of(line: Timeline, device: DeviceMemory) -> bool:
    mine = (line.rank, line.pid, line.kind, line.device, line.level)
    return mine == (device.rank, device.pid, device.kind, device.device, device.level)


def thinned(total: Ints, points: int) -> Ints:
    """The places to show of a line: all, or of each of ``points`` parts the first, the lowest, the highest, the last.

    >>> thinned(np.array([1, 5, 2, 3, 9, 4]), 1).tolist()
    [0, 4, 5]
    """
    if len(total) <= 4 * points:
        return np.arange(len(total))
    edges = np.linspace(0, len(total), points + 1).astype(np.int64)
    kept = {0, len(total) - 1}
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = total[begin:end]
        kept |= {begin, end - 1, begin + int(part.argmin()), begin + int(part.argmax())}
    return np.array(sorted(kept), np.int64)
