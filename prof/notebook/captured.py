"""A whole capture, and what is computed from it: each value once, when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from pyprof.prof.advice import Advice, Run, advise, row_rules
from pyprof.prof.advice.rank import findings
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.limits.roofline import Roofline, roofline
from pyprof.prof.table.cells import Data
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.table.limit_columns import limit_cells
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.calls import call_numbers
from pyprof.table.columns import Coded, Ints, Table

__all__ = ["Captured"]


class Captured:
    """A capture: its table, and what ``Profile`` needs of the whole run."""

    def __init__(
        self,
        inputs: tuple[tuple[str, str | None], ...],
        warnings: tuple[str, ...],
        table: Table,
        annotation: Annotation,
        peaks: Peaks | None,
    ) -> None:
        self.inputs, self.warnings = inputs, warnings
        self.table, self.annotation, self.peaks = table, annotation, peaks
        self._columns: dict[str, Data] = {}

    @cached_property
    def name(self) -> str:
        first = self.inputs[0][0]
        more = f" and {len(self.inputs) - 1} more" if len(self.inputs) > 1 else ""
        return ("standard input" if first == "-" else Path(first).name) + more

    @cached_property
    def limits(self) -> Roofline:
        return roofline(self.table, self.annotation, self.peaks)

    @cached_property
    def run(self) -> Run:
        return Run(self.table, self.annotation, self.peaks)

    @cached_property
    def cards(self) -> list[tuple[Advice, Ints]]:
        """The advice, and the rows of the table that each card is about."""
        rows = [self.run.origin[finding.rows] for _, finding in findings(self.run)]
        return list(zip(advise(self.run), rows, strict=True))

    @cached_property
    def call(self) -> Ints:
        """A number per row, the same for the kernels of one call of an op."""
        return call_numbers(self.table)

    @cached_property
    def limit_cells(self) -> Mapping[str, Data]:
        return limit_cells(self.limits)

    def column(self, name: str) -> Data:
        """A column of ``prof.py -c``, of all rows."""
        if name not in self._columns:
            self._columns[name] = self._made(name)
        return self._columns[name]

    def _made(self, name: str) -> Data:
        if name == "advice":
            return Coded.of(row_rules(self.run, len(self.table)))
        return self.limit_cells[name] if name in self.limit_cells else COLUMN[name].get(self.table, self.annotation)
