"""How much of the time is attributed to an op: which rows count as attributed, the sum, and its wording."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyprof.quantities import ms, share
from pyprof.table.columns import Coded, Ints, Table

# The reason of a CPU op that gave a GPU work, where the capture does not have that work. The op itself is known.
LAUNCH_ALONE = "the GPU work that it launched is not recorded"


def launched_alone(reason: Coded) -> NDArray[np.bool_]:
    """A mask of the CPU ops whose time is that of launching: no rate follows from it."""
    return reason.among(LAUNCH_ALONE)


def attributed_rows(op: Coded) -> NDArray[np.bool_]:
    """A mask of the attributed rows: those whose ``op`` is not empty."""
    return ~op.among("")


def runs_on_cpu(kind: Coded) -> bool:
    """Whether the rows are CPU ops, as in a capture without a GPU."""
    return len(kind) > 0 and bool(kind.among("cpu").all())


@dataclass(frozen=True, slots=True)
class AttributedTime:
    """A sum of durations (rows that overlap count twice), and the part of it that is attributed to an op."""

    total_ns: int
    attributed_ns: int
    on_cpu: bool

    @classmethod
    def of(cls, table: Table) -> AttributedTime:
        return cls.of_columns(table.ints("kDuration"), table.coded("op"), runs_on_cpu(table.coded("kind")))

    @classmethod
    def of_columns(cls, duration: Ints, op: Coded, on_cpu: bool) -> AttributedTime:
        return cls(int(duration.sum()), int(duration[attributed_rows(op)].sum()), on_cpu)

    @property
    def processor(self) -> str:
        return "CPU" if self.on_cpu else "GPU"

    def percent(self, ns: int) -> float | None:
        """A part of the time in percent; None if the time is 0."""
        return 100 * ns / self.total_ns if self.total_ns else None

    @property
    def attributed_percent(self) -> float | None:
        return self.percent(self.attributed_ns)

    def sentence(self) -> str:
        """
        >>> AttributedTime(23_760_000, 23_760_000, on_cpu=False).sentence()
        '100% of 23.76 ms of GPU time is attributed to an op'
        """
        attributed = share(self.attributed_ns, self.total_ns)
        return f"{attributed} of {ms(self.total_ns)} of {self.processor} time is attributed to an op"
