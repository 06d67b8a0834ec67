"""The clocks, power, temperature and energy of a GPU over time, as ``pyprof run --nvml`` reads them.

A kernel table carries them beside its columns, and a Parquet file in its metadata; net.dict has no place for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec
import numpy as np

from pyprof.table.columns import NULL, Ints

SERIES = ("sm_mhz", "memory_mhz", "power_mw", "temperature_c", "reasons", "energy_mj")
LARGEST = 1 << 53  # no time, limit or reading is greater: 104 days in ns, 9 TJ in mJ


@dataclass(frozen=True, slots=True, eq=False)
class GpuSamples:
    """The readings of one GPU, in order of time. ``NULL`` is unknown."""

    rank: int
    pid: int
    device: int  # rank, process and device as in the table's rows
    power: str  # what a power reading is of: "instant", or "mean of a second"
    period_ns: int
    sm_limit_mhz: int
    memory_limit_mhz: int
    power_limit_mw: int
    time_ns: Ints  # since the capture began, as the column start
    sm_mhz: Ints
    memory_mhz: Ints
    power_mw: Ints
    temperature_c: Ints
    reasons: Ints  # bits of NVML's clocks event reasons: what holds the clocks back (pyprof.nvml.REASONS)
    energy_mj: Ints  # a counter

    def __len__(self) -> int:
        return len(self.time_ns)


class Readings(msgspec.Struct, kw_only=True):
    """What every record of a GPU has, as JSON: null is unknown."""

    power: str = ""
    sm_limit_mhz: int | None = None
    memory_limit_mhz: int | None = None
    power_limit_mw: int | None = None
    sm_mhz: list[int | None] = []
    memory_mhz: list[int | None] = []
    power_mw: list[int | None] = []
    temperature_c: list[int | None] = []
    reasons: list[int | None] = []
    energy_mj: list[int | None] = []

    def samples(
        self, rank: int | None, pid: int | None, device: int | None, period_ns: int, time_ns: Sequence[int]
    ) -> GpuSamples:
        """The samples of one GPU. Raises ValueError if they do not fit each other, or a number is impossible."""
        return GpuSamples(
            rank=_known(rank),
            pid=_known(pid),
            device=_known(device),
            power=self.power,
            period_ns=checked(period_ns),
            sm_limit_mhz=_known(self.sm_limit_mhz),
            memory_limit_mhz=_known(self.memory_limit_mhz),
            power_limit_mw=_known(self.power_limit_mw),
            time_ns=_ordered([checked(at) for at in time_ns]),
            **{name: _series(getattr(self, name), len(time_ns)) for name in SERIES},
        )


class _Text(Readings, kw_only=True):
    """The samples of one GPU as ``to_json`` writes them."""

    rank: int | None
    pid: int | None
    device: int | None
    period_ns: int
    time_ns: list[int]


def to_json(samples: Sequence[GpuSamples]) -> bytes:
    return msgspec.json.encode([{f.name: _plain(getattr(gpu, f.name)) for f in fields(gpu)} for gpu in samples])


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [None if number == NULL else number for number in value.tolist()]
    return None if value == NULL else value


def from_json(text: bytes) -> tuple[GpuSamples, ...]:
    """The samples that ``to_json`` wrote. Raises ValueError for another text."""
    found = msgspec.json.decode(text, type=list[_Text])
    return tuple(gpu.samples(gpu.rank, gpu.pid, gpu.device, gpu.period_ns, gpu.time_ns) for gpu in found)


def _known(number: int | None) -> int:
    """The number, or NULL. Raises ValueError as ``checked``."""
    return NULL if number is None else checked(number)


def checked(number: int) -> int:
    """The number. Raises ValueError if it can be no time and no reading."""
    if abs(number) > LARGEST:
        raise ValueError(f"expected a number up to 2**53, found {number}")
    return number


def _ordered(times: Sequence[int]) -> Ints:
    """Times as a column. Raises ValueError unless each is later than the one before."""
    found = np.array(times, np.int64)
    if not len(found) or bool((np.diff(found) <= 0).any()):
        raise ValueError("expected times in ascending order")
    return found


def _series(values: Sequence[int | None], count: int) -> Ints:
    """Readings as a column; all unknown where the capture has none. Raises ValueError for another number of them."""
    if not values:
        return np.full(count, NULL, np.int64)
    if len(values) != count:
        raise ValueError(f"expected {count} readings, found {len(values)}")
    return np.array([NULL if value is None else checked(value) for value in values], np.int64)
