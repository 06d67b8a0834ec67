"""How much of the CPU's time other programs take while something is measured.

On a CPU, threads wait for each other at the end of each op. A thread whose core another program takes for some
milliseconds makes all of them wait: on 2 cores, one busy program lets relu of 2^24 floats run at 17 GB/s on average,
where alone it reaches 107 (docs/explanation/performance.md).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

DISTURBED = 0.2  # cores
_IDLE = (3, 4)  # fields of /proc/stat's first line, in ticks: idle, waiting for a disk
_FIELDS = 8  # user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of these


class OtherPrograms:
    """Watches from its making on."""

    def __init__(self) -> None:
        self._begin = _now()

    def cores(self) -> float | None:
        """How many cores other programs, and other guests of the host, used on average; None if that is unknown."""
        end = _now()
        if self._begin is None or end is None:
            return None
        elapsed, busy, own = (b - a for a, b in zip(self._begin, end, strict=True))
        return max(busy - own, 0.0) / elapsed if elapsed > 0 else None

    @property
    def disturb(self) -> bool:
        """Whether they use so much that times are probably too long."""
        cores = self.cores()
        return cores is not None and cores > DISTURBED


def caution(cores: float | None) -> str:
    """What to say about a measurement during which other programs used so many cores; empty if there is nothing."""
    if cores is None or cores <= DISTURBED:
        return ""
    return f"Other programs used {cores:.1f} of {os.cpu_count()} cores meanwhile: the times are probably too long."


def _now() -> tuple[float, float, float] | None:
    """Seconds: on the clock, of all cores' work, of this process's; None where the system does not tell (not Linux)."""
    try:
        line = Path("/proc/stat").read_text(encoding="ascii", errors="replace").partition("\n")[0]
    except OSError:
        return None
    fields = line.split()[1 : 1 + _FIELDS]
    if len(fields) < _FIELDS or not all(field.isdigit() for field in fields):
        return None
    ticks = sum(int(field) for place, field in enumerate(fields) if place not in _IDLE)
    own = os.times()
    return time.perf_counter(), ticks / os.sysconf("SC_CLK_TCK"), own.user + own.system
