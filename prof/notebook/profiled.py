"""``pyprof.load``: a capture as an object that notebooks and scripts ask.

Nothing is computed before it is asked for, and then once. A narrowed profile (``where``) shares all of that with the
whole: FLOPs, limits and advice are those of the run, whatever rows are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyprof.errors import PyprofError, packages
from pyprof.prof.advice import Advice, Run, advise
from pyprof.prof.advice.report import brief
from pyprof.prof.captured import CapturedRows, read_capture
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.notebook.cell_html import profile_html
from pyprof.prof.notebook.frame_columns import Columns, advice_columns, frame, group_columns, op_columns, records
from pyprof.prof.notebook.layers_and_steps import layer_columns, step_columns
from pyprof.prof.notebook.summary_view import SummaryText
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.timing.steps import owners, steps
from pyprof.prof.work.layer_path import layer_texts
from pyprof.table.attribution import AttributedTime
from pyprof.table.columns import NULL

if TYPE_CHECKING:
    import pandas as pd

    from pyprof.prof.plot.style import Picture


def load(*files: str | Path, peaks: str | Path | Peaks | None = None) -> Profile:
    """Read a capture: a profiler's file or a kernel table, as ``pyprof prof`` reads them; gzipped or not.

        p = pyprof.load("net.sqlite")                           # or net.json.gz, net.dict, net.parquet, net.nsys-rep
        p = pyprof.load("rank0.json.gz", "rank1.json.gz")       # the ranks of a job, as one
        p = pyprof.load("net.sqlite", peaks="peaks.json")       # limits as pyprof peaks measured them

    Raises InputError where a file is none of these, and MissingPackage where a dependency is not installed.
    """
    if not files:
        raise PyprofError("load(): expected a file, found none")
    return Profile(read_capture(files, peaks))


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a profile's rows; None where no row has the amount."""

    rows: int
    time_ns: int  # overlaps count twice
    attributed_ns: int  # of rows with an op
    counted_ns: int  # of rows whose FLOPs are known
    flop: int | None
    nbytes: int | None

    @property
    def tflops(self) -> float | None:
        """TFLOP/s of the rows that are counted, over their own time."""
        return None if self.flop is None or not self.counted_ns else self.flop / self.counted_ns / 1e3


class Profile(CapturedRows):
    """A capture, or some of its rows: DataFrames, sums, sentences and figures.

    Columns have the names of ``prof.py -c``; each DataFrame's ``attrs["units"]`` and ``attrs["meanings"]`` describe
    them. Times are ns.

        p.kernels, p.ops, p.layers, p.steps, p.advice           DataFrames
        p.where("op == 'linear' and dir == 'bprop'")            a Profile of those rows
        p.group("op,dir"), p.totals                             sums
        p.summary()                                             the run in sentences
        p.roofline(), p.timeline(), p.plot("layers")            matplotlib figures
        p.report("report.html")                                 the web page
    """

    def __repr__(self) -> str:
        where = "".join(f", where {condition}" for condition in self.conditions)
        return f"<pyprof.Profile {self._capture.name}{where}: {len(self):,} rows, {self.totals.time_ns / 1e6:.4g} ms>"

    def _repr_html_(self) -> str:
        return profile_html(self)

    # Sums

    @cached_property
    def totals(self) -> Totals:
        """Rows, time, FLOPs and bytes."""
        flops, nbytes, duration = self._ints("flops"), self._ints("bytes"), self._ints("sil")
        time = AttributedTime.of(self.table)
        known = flops != NULL
        return Totals(
            rows=len(self),
            time_ns=time.total_ns,
            attributed_ns=time.attributed_ns,
            counted_ns=int(duration[known].sum()),
            flop=int(flops[known].sum()) if known.any() else None,
            nbytes=int(nbytes[nbytes != NULL].sum()) if (nbytes != NULL).any() else None,
        )

    def group(self, by: str | Sequence[str], layer_depth: int | None = None) -> pd.DataFrame:
        """One row for all rows that agree in these columns, the longest time first, as ``prof.py --group`` has it.

        ``by``: ``"op,dir"`` or ``["op", "dir"]``. ``layer_depth``: the outermost parts of layers only. Columns: those,
        ``count``, ``time`` (ns), ``share`` (% of this profile's time), ``flops``, ``bytes`` (of the rows that are
        counted), ``tflops``, ``gbps`` (TFLOP/s and GB/s over the time of these), ``uncounted`` (% of the time).
        """
        keys = by.split(",") if isinstance(by, str) else list(by)
        for key in keys:
            if key not in COLUMN or COLUMN[key].kind == "float":
                there = ", ".join(column.name for column in COLUMN.values() if column.kind != "float")
                raise PyprofError(f"group(): {key!r} is no column to group by; there are: {there}")
        data = self._columns(*keys, "sil", "flops", "bytes")
        if layer_depth is not None and "layer" in keys:
            data["layer"] = layer_texts(self.table.coded("layer"), layer_depth)
        return frame(group_columns(keys, data))

    # DataFrames

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """One row per GPU operation (or CPU op), with every column of ``prof.py -c all``.

        The ones to know: ``op``, ``aten``, ``layer``, ``dir``, ``phase``, ``step``, ``kernel``, ``sil`` (its duration,
        ns), ``start`` (ns), ``flops``, ``bytes``, ``tc`` (tensor cores), ``ai`` (FLOP/byte), ``tflops`` (TFLOP/s),
        ``gbps`` (GB/s), ``sol`` (% of the limit), ``bound``, ``occ`` (%), ``advice`` (rules that concern it).
        """
        return frame([(column, self._column(column.name)) for column in COLUMN.values()])

    @cached_property
    def ops(self) -> pd.DataFrame:
        """One row per op and direction, the longest time first.

        Columns: ``calls``, ``count`` (rows), ``time`` (ns), ``share`` (%), ``flops``, ``bytes``, ``tflops``, ``gbps``,
        ``uncounted`` (% of the time without FLOPs), ``sol`` (% of the limit).
        """
        return frame(self._ops)

    @cached_property
    def _ops(self) -> Columns:
        call = self._capture.call if self._rows is None else self._capture.call[self._rows]
        return op_columns(self._columns("op", "dir", "sil", "flops", "bytes", "sol_ns"), call)

    @property
    def op_rows(self) -> list[dict[str, Any]]:
        """``ops`` as plain records, unknown None; pandas is not needed."""
        return records(self._ops)

    @cached_property
    def layers(self) -> pd.DataFrame:
        """One row per layer, each with everything inside it.

        Columns: ``layer`` (its path), ``depth``, ``count``, ``time``, ``own``, ``forward``, ``backward`` (ns),
        ``share`` (%), ``flops``, ``bytes``, ``tflops``, ``gbps``, ``uncounted`` (%).

        In the order in which they first ran. ``own`` sums to all time, ``time`` does not: layers contain each other.
        """
        return frame(layer_columns(self.table, self.annotation))

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per device and step.

        Columns: ``start``, ``time``, each phase and ``idle`` (ns), ``count``, ``flops``, ``bytes``, ``tflops`` (idle
        time included), ``uncounted`` (%). Phases and idle time sum to ``time``.

        If this profile has only some of the run's rows, ``time``, the phases and ``idle`` are still those of the whole
        run, and ``count`` and the columns after it are of these rows. Empty where the table has no start times
        (PyProf's own net.dict).
        """
        whole = self._capture.table
        owner, names = owners(whole)
        shown = steps(whole, owner)
        if self._rows is not None:
            owner = owner[self._rows]
            present = set(zip(owner.tolist(), self._ints("step").tolist(), strict=True))
            shown = [step for step in shown if (step.owner, NULL if step.number is None else step.number) in present]
        return frame(step_columns(shown, names, owner, self.table, self.annotation))

    @cached_property
    def advice(self) -> pd.DataFrame:
        """One row per card, the greatest saving first: ``rule``, ``saved_ms`` per step, ``why``, ``change``...

        If this profile has only some of the run's rows: the cards of the whole run that concern any of them.
        """
        made = frame(advice_columns(self.cards), plain=("why", "change", "trace"))
        made["confidence"] = made["confidence"].cat.set_categories(["low", "medium", "high"], ordered=True)
        return made

    @property
    def cards(self) -> list[Advice]:
        """The advice as records."""
        if self._rows is None:
            return [card for card, _ in self._capture.cards]
        return [card for card, rows in self._capture.cards if bool(np.isin(rows, self._rows).any())]

    # Words, figures, page

    def summary(self) -> SummaryText:
        """The run in sentences and tables, to print or to show in a notebook; ``.numbers`` are the numbers behind them.

        Of a profile that was narrowed by step, start, rank, pid or device, that part of the run. Raises PyprofError
        after any other condition: the time between some ops of a run is not idle.
        """
        if not self._cut:
            raise PyprofError(
                "summary(): expected a whole run, or one cut by step, start, rank, pid or device, found rows where "
                f"{' and '.join(self.conditions)} (totals, ops and group() sum over these)"
            )
        if not len(self):
            raise PyprofError(f"summary(): no row is left where {' and '.join(self.conditions)}")
        return self._summary

    @cached_property
    def _summary(self) -> SummaryText:
        whole = self._rows is None
        limits = self._capture.limits if whole else None
        numbers = summarise(self.table, self.annotation, self._capture.peaks, limits)
        if numbers.on_cpu:
            return SummaryText(numbers, self.conditions)
        run = self._capture.run if whole else Run(self.table, self.annotation, self._capture.peaks)
        return SummaryText(numbers, self.conditions, brief(run, self.cards if whole else advise(run)))

    def plot(self, figure: str, **options: Any) -> Picture:
        """A figure: ``"roofline"``, ``"layers"``, ``"phases"`` or ``"timeline"``.

        Options of all: ``width`` and ``height`` (inches), ``dpi``, ``dark`` (True or False), ``title``; of roofline:
        ``by`` ("op", "kernel" or "layer"); of layers: ``depth`` (parts of a path); of timeline: ``step``. What comes
        back is a matplotlib ``Figure``: ``.savefig("x.pdf")`` writes it.
        """
        return self.drawn(figure, **options)[1]

    def drawn(self, figure: str, **options: Any) -> tuple[Any, Picture]:
        """``plot``'s figure, and before it the numbers that it shows."""
        with packages():
            from pyprof.prof.plot.figures import drawn

            return drawn(figure, self.table, self.annotation, self._capture.peaks, options)

    def roofline(self, by: str = "op", **options: Any) -> Picture:
        """Rate against arithmetic intensity, log-log, below the GPU's roofs; a dot an op, kernel or layer."""
        return self.plot("roofline", by=by, **options)

    def timeline(self, step: int | None = None, **options: Any) -> Picture:
        """A step by phase, stream and launch; without a number the step of median length."""
        return self.plot("timeline", step=step, **options)

    def report(self, path: str | Path, title: str = "", force: bool = False) -> Path:
        """Write the web page (``pyprof report``) and return its path; another file there stays unless ``force``."""
        with packages():
            from pyprof.files import check_output, open_output
            from pyprof.prof.report.page_model import page_model
            from pyprof.prof.report.render import render

            check_output(path, force)
            model = page_model(self.table, self.annotation, self._capture.peaks, self.cards, title or self.name)
            with open_output(path, force) as out:
                render(model, out)
        return Path(path)
