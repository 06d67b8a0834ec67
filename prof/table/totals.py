"""Sums over a whole table: its rows, their time, and how much of it has an op, and a count of FLOPs and of bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.work.annotate import uncounted_of
from pyprof.quantities import share
from pyprof.table.attribution import AttributedTime
from pyprof.table.schema import outermost

if TYPE_CHECKING:
    from pyprof.prof.work.annotate import Annotation
    from pyprof.table.columns import Table

NAMED = 5  # ops without a model named in the sentence


@dataclass(frozen=True, slots=True)
class Totals(AttributedTime):
    """Sums over all rows of the table, printed or not."""

    rows: int
    uncounted: dict[str, int]  # op -> ns of its rows without FLOPs, the longest first
    bytes_uncounted: dict[str, int]  # the same for bytes

    @property
    def uncounted_ns(self) -> int:
        return sum(self.uncounted.values())

    @property
    def bytes_uncounted_ns(self) -> int:
        return sum(self.bytes_uncounted.values())

    def line(self) -> str:
        """One line: rows, time, the share of it that has an op, and the ops without FLOPs or bytes, with shares."""
        parts = {"FLOPs": self.uncounted, "bytes": self.bytes_uncounted}
        if self.uncounted == self.bytes_uncounted:
            parts = {"FLOPs and bytes": self.uncounted}
        missing = [f"{what} {self._not_counted(ops)}" for what, ops in parts.items() if ops]
        return "; ".join([f"{self.rows} rows", self.sentence(), *(missing or ["all counted"])])

    def _not_counted(self, uncounted: dict[str, int]) -> str:
        ops = [f"{_shown(name)} {share(ns, self.total_ns)}" for name, ns in uncounted.items()]
        more = f" and {len(ops) - NAMED} more" if len(ops) > NAMED else ""
        whole = share(sum(uncounted.values()), self.total_ns)
        return f"not counted: {whole}: {', '.join(ops[:NAMED])}{more}"


def totals(table: Table, annotation: Annotation) -> Totals:
    time = AttributedTime.of(table)
    flops, nbytes = (_outermost(ops) for ops in (annotation.uncounted, uncounted_of(table, annotation.bytes)))
    return Totals(time.total_ns, time.attributed_ns, time.on_cpu, len(table), flops, nbytes)


def _outermost(uncounted: dict[str, int]) -> dict[str, int]:
    """The same by the outermost op of each list of ops, the longest time first."""
    sums: Counter[str] = Counter()
    for name, ns in uncounted.items():
        sums[outermost(name)] += ns
    return dict(sums.most_common())


def _shown(name: str) -> str:
    """An op's name as shown on a terminal."""
    return cut_to(safe(name), 40, "middle") or "(no name)"
