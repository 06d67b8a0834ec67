"""Captures read into one table, whole or narrowed by conditions; each value is computed once, when it is first used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from pyprof.errors import InputError, packages
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.find_changes import FoundChanges, captured_at, find_changes
from pyprof.prof.changes.records import Change
from pyprof.prof.limits.peaks_file import Peaks, load_peaks
from pyprof.prof.limits.roofline import Roofline, roofline
from pyprof.prof.table.cells import Data, ints
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.table.limit_columns import limit_cells
from pyprof.prof.table.where import parse_where, rows_where
from pyprof.prof.work.annotate import Annotation, annotate, uncounted_of
from pyprof.prof.work.calls import call_numbers
from pyprof.table.columns import Coded, HostTable, Ints, MemoryTable, Table

if TYPE_CHECKING:
    from pyprof.prof.ranks.pace_records import JobPath

# Conditions that use only these columns select rows by time or device. The result is still a run, with its idle time.
CUTTING = frozenset({"step", "start", "rank", "pid", "device"})


@dataclass(eq=False)
class Captured:
    """A capture: its table, and the values computed from the whole run."""

    inputs: tuple[tuple[str, str | None], ...]
    warnings: tuple[str, ...]
    table: Table
    annotation: Annotation
    peaks: Peaks | None
    memory: MemoryTable | None = None  # of a single file
    host: HostTable | None = None  # of a single file
    path: "JobPath | None" = None  # of a job's folder
    _columns: dict[str, Data] = field(default_factory=dict, init=False, repr=False)

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
    def found(self) -> FoundChanges:
        """The list of changes, and what forecasts them."""
        return find_changes(
            self.table, self.annotation, self.host, self.peaks, self.name, newest=captured_at(self.inputs[0][0])
        )

    @property
    def changes(self) -> list[tuple[Change, Ints]]:
        """The changes in order, and the rows of the table that each is about."""
        return list(zip(self.found.document.changes, self.found.rows, strict=True))

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
            if name == "advice":
                self._columns[name] = self.found.of_rows(len(self.table))
            elif name in self.limit_cells:
                self._columns[name] = self.limit_cells[name]
            else:
                self._columns[name] = COLUMN[name].get(self.table, self.annotation)
        return self._columns[name]


def read_capture(
    files: Sequence[str | Path],
    peaks: str | Path | Peaks | None = None,
    ncu: Sequence[str | Path] = (),
    graphs: Sequence[str | Path] = (),
) -> Captured:
    """The files as one annotated table: a single capture, or the captures of a job's ranks.

    ``ncu``: reports of Nsight Compute, whose counters are joined to the kernels.
    ``graphs``: traces of the capture of the CUDA graphs that the files replay.
    Raises InputError if a file is not a capture, and MissingPackage if a dependency is not installed.
    """
    with packages():
        from pyprof.parse.merge import apart
        from pyprof.prof.load import load_table

        read = [load_table(file, graphs=[*map(str, graphs)], host=len(files) == 1) for file in files]
        table = Table.concat(apart([each.table for each in read]))
        if not len(table):
            raise InputError(read[0].name, "expected kernels, found none")
        several = len(read) > 1
        annotation = annotate(table)
        if ncu:
            from pyprof.prof.counters.measured import read_counters

            annotation = replace(annotation, counters=read_counters([*map(Path, ncu)], table))
        return Captured(
            inputs=tuple((each.name, each.profiler) for each in read),
            warnings=tuple(f"{each.name}: {text}" if several else text for each in read for text in each.warnings),
            table=table,
            annotation=annotation,
            peaks=load_peaks(peaks) if isinstance(peaks, (str, Path)) else peaks,
            memory=None if several else read[0].memory,
            host=None if several else read[0].host,
            path=None if several else read[0].path,
        )


R = TypeVar("R", bound="CapturedRows")


class CapturedRows:
    """A capture, or some of its rows. FLOPs, limits and advice are always computed from the whole run."""

    def __init__(self, capture: Captured, rows: Ints | None = None, conditions: tuple[str, ...] = (), cut: bool = True):
        self._capture, self._rows, self.conditions, self._cut = capture, rows, conditions, cut

    @property
    def inputs(self) -> tuple[tuple[str, str | None], ...]:
        """The files read, and the profiler that recorded each, if known: ("net.sqlite", "nsys 2025.3.1")."""
        return self._capture.inputs

    @property
    def name(self) -> str:
        """The file's name, or the first one's."""
        return self._capture.name

    @property
    def is_run(self) -> bool:
        """Whether these rows are a whole run, or its part for a time or device. ``summary()`` works only for these."""
        return self._cut

    @property
    def warnings(self) -> tuple[str, ...]:
        """The readers' warnings, as parse.py prints them."""
        return self._capture.warnings

    def __len__(self) -> int:
        """Rows: GPU operations, or CPU ops where there was no GPU."""
        return len(self._capture.table) if self._rows is None else len(self._rows)

    @cached_property
    def table(self) -> Table:
        """The kernel table's rows (``pyprof.table.schema.KERNELS`` has its columns)."""
        if self._rows is None:
            return self._capture.table
        taken = self._capture.table.take(self._rows)
        columns = {key: data.used() if isinstance(data, Coded) else data for key, data in taken.columns.items()}
        # without texts of other rows, which a report would show
        return Table(len(taken), columns, taken.samples, taken.measured, taken.cpu)

    @cached_property
    def annotation(self) -> Annotation:
        """The values that the op models compute for each row."""
        if self._rows is None:
            return self._capture.annotation
        annotation = self._capture.annotation.take(self._rows)
        return replace(annotation, uncounted=uncounted_of(self.table, annotation.flops))

    def where(self: R, condition: str) -> R:
        """The rows for which a condition is true, written as for ``prof.py --where``: ``"bound == 'memory'"``.

        FLOPs, limits and advice are still those of the whole run. Raises ConditionError for an invalid condition.
        """
        wanted = parse_where(condition, COLUMN)
        rows = np.flatnonzero(rows_where(wanted, self._columns(*(column.name for column in wanted.columns))))
        rows = rows if self._rows is None else self._rows[rows]
        cut = self._cut and all(column.name in CUTTING for column in wanted.columns)
        return type(self)(self._capture, rows, (*self.conditions, condition), cut)

    def _column(self, name: str) -> Data:
        data = self._capture.column(name)
        return data if self._rows is None else data.take(self._rows)

    def _columns(self, *names: str) -> dict[str, Data]:
        return {name: self._column(name) for name in names}

    def _ints(self, name: str) -> Ints:
        return ints(self._column(name))
