"""Steps that were timed before the profiler started, as ``pyprof run --warmup`` and the like record them.

A kernel table carries them beside its columns, and a Parquet file in its metadata; net.dict has no place for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

LARGEST_NS = 1 << 53  # 104 days


@dataclass(frozen=True, slots=True)
class TimedCalls:
    """The PyTorch calls of an iteration that would be marked, in order; times in ns, without what timing them takes."""

    names: tuple[str, ...]
    name: tuple[int, ...]  # per call, its name's index in ``names``
    gap_ns: tuple[int, ...]  # from the end of the call before, or the begin of the iteration, to its own begin
    own_ns: tuple[int, ...]
    end_ns: int  # from the end of the last call to the end of the iteration

    def is_possible(self) -> bool:
        """Whether the columns are equally long, the numbers are those of names, and the times are possible."""
        same = len(self.name) == len(self.gap_ns) == len(self.own_ns)
        named = all(0 <= number < len(self.names) for number in self.name)
        return same and named and all(0 <= ns < LARGEST_NS for ns in (*self.gap_ns, *self.own_ns, self.end_ns))


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """An iteration that no profiler recorded."""

    number: int
    host_ns: int  # from the end of the iteration before to its own end, on the host
    gpu_ns: int | None  # the same on the GPU, by events; None: without a GPU
    marked: bool = False  # whether pyprof's markers were pushed meanwhile
    alone: bool = False  # whether the GPU was idle when it began
    calls: TimedCalls | None = None

    @property
    def ns(self) -> int:
        """The longer of the two: the host may run ahead of the GPU, and the GPU may wait for the host."""
        return max(self.host_ns, self.gpu_ns or 0)


def to_json(steps: Sequence[MeasuredStep]) -> bytes:
    return msgspec.json.encode(list(steps))


def from_json(text: bytes) -> tuple[MeasuredStep, ...]:
    """The steps that ``to_json`` wrote. Raises ValueError for another text."""
    steps = msgspec.json.decode(text, type=list[MeasuredStep])
    if any(not 0 <= ns < LARGEST_NS for step in steps for ns in (step.host_ns, step.gpu_ns or 0)):
        raise ValueError("a step's time is negative or longer than 104 days")
    if any(step.calls is not None and not step.calls.is_possible() for step in steps):
        raise ValueError("the calls of a step are damaged")
    return tuple(steps)
