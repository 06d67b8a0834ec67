"""Sums over a whole table: its rows, their time, and how much of it has an op and a count of FLOPs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyprof.command.terminal_text import cut_to, safe
from pyprof.quantities import share
from pyprof.table.attribution import AttributedTime
from pyprof.table.schema import first_text

if TYPE_CHECKING:
    from pyprof.prof.work.annotate import Annotation
    from pyprof.table.columns import Table

NAMED = 5  # ops without a model named in the sentence


@dataclass(frozen=True, slots=True)
class Totals(AttributedTime):
    """Sums over all rows of the table, printed or not."""

    rows: int
    uncounted: dict[str, int]  # op -> ns of its rows without FLOPs, the longest first

    @property
    def uncounted_ns(self) -> int:
        return sum(self.uncounted.values())

    def line(self) -> str:
        """One line: rows, time, the share of it that has an op, and the ops without a model with their shares."""
        attributed = f"{self.rows} rows; {self.sentence()}"
        if not self.uncounted:
            return f"{attributed}; all counted"
        ops = [f"{_shown(name)} {share(ns, self.total_ns)}" for name, ns in self.uncounted.items()]
        more = f" and {len(ops) - NAMED} more" if len(ops) > NAMED else ""
        whole = share(self.uncounted_ns, self.total_ns)
        return f"{attributed}; not counted: {whole}: {', '.join(ops[:NAMED])}{more}"


def totals(table: Table, annotation: Annotation) -> Totals:
    time = AttributedTime.of(table)
    uncounted: Counter[str] = Counter()
    for name, ns in annotation.uncounted.items():
        uncounted[first_text(name) if name.startswith('["') else name] += ns  # of a list of ops, the outermost
    return Totals(time.total_ns, time.attributed_ns, time.on_cpu, len(table), dict(uncounted.most_common()))


def _shown(name: str) -> str:
    """An op's name as shown on a terminal."""
    return cut_to(safe(name), 40, "middle") or "(no name)"
