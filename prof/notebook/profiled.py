"""``pyprof.load``: a capture as an object for notebooks and scripts.

Everything is computed on first use and kept. A narrowed profile (``where``) shares these results with the whole
profile: FLOPs, limits and advice are computed for the whole run, whichever rows are selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pyprof.errors import PyprofError, packages
from pyprof.prof.captured import CapturedRows, read_capture
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.find_changes import captured_at, planned, without_replay
from pyprof.prof.changes.records import Change, Changes
from pyprof.prof.changes.say import brief
from pyprof.prof.changes.search import make_plan
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.notebook.frame_columns import Columns, advice_columns, frame, group_columns, op_columns, records
from pyprof.prof.notebook.layers_and_steps import layer_columns, step_columns
from pyprof.prof.notebook.notebook_views import SummaryText, profile_html
from pyprof.prof.notebook.plan_view import PlanView
from pyprof.prof.planning.json_document import plan_document
from pyprof.prof.step.run_step import run_step
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.table.group import NEEDED
from pyprof.prof.timing.steps import Step, owners, steps
from pyprof.prof.work.layer_path import layer_texts
from pyprof.table.attribution import AttributedTime
from pyprof.table.columns import NULL

if TYPE_CHECKING:
    import pandas as pd

    from pyprof.prof.plot.style import Picture


def load(
    *files: str | Path,
    peaks: str | Path | Peaks | None = None,
    ncu: str | Path | Sequence[str | Path] = (),
    graphs: str | Path | Sequence[str | Path] = (),
) -> Profile:
    """Read a capture: a profiler's file or a kernel table, as ``pyprof prof`` reads them; gzipped or not.

        p = pyprof.load("net.sqlite")                           # or net.json.gz, net.dict, net.parquet, net.nsys-rep
        p = pyprof.load("rank0.json.gz", "rank1.json.gz")       # the ranks of a job in one profile
        p = pyprof.load("net.sqlite", peaks="peaks.json")       # with the limits that pyprof peaks measured
        p = pyprof.load("net.sqlite", ncu="report.csv")         # with the counters of Nsight Compute, as --ncu
        p = pyprof.load("decode.json.gz", graphs="capture.json.gz")  # with the capture of its CUDA graphs, as --graphs

    Raises InputError where a file has another format, or one of ``graphs`` holds no capture of a graph, and
    MissingPackage where a dependency is not installed.
    """
    if not files:
        raise PyprofError("load(): expected a file, found none")
    return Profile(read_capture(files, peaks, _several(ncu), _several(graphs)))


def _several(files: str | Path | Sequence[str | Path]) -> Sequence[str | Path]:
    return [files] if isinstance(files, (str, Path)) else files


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a profile's rows; None where no row has a known value."""

    rows: int
    time_ns: int  # overlaps count twice
    attributed_ns: int  # of rows with an op
    counted_ns: int  # of rows whose FLOPs are known
    flop: int | None
    nbytes: int | None
    bytes_counted_ns: int  # of rows whose bytes are known

    @property
    def tflops(self) -> float | None:
        """TFLOP/s over the rows whose FLOPs are known, and their time."""
        return None if self.flop is None or not self.counted_ns else self.flop / self.counted_ns / 1e3


class Profile(CapturedRows):
    """A capture or a selection of its rows, as DataFrames, sums, sentences and figures.

    Columns have the names of ``prof.py -c``; each DataFrame's ``attrs["units"]`` and ``attrs["meanings"]`` describe
    them. Times are ns.

        p.kernels, p.ops, p.layers, p.steps, p.advice           DataFrames
        p.where("op == 'linear' and dir == 'bprop'")            a Profile of those rows
        p.group("op,dir"), p.totals                             sums
        p.summary()                                             the run in sentences
        p.plan()                                                what to change, in which order, and what it brings
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
            bytes_counted_ns=int(duration[nbytes != NULL].sum()),
        )

    def group(self, by: str | Sequence[str], layer_depth: int | None = None) -> pd.DataFrame:
        """One row per distinct combination of these columns, longest time first, like ``prof.py --group``.

        ``by``: ``"op,dir"`` or ``["op", "dir"]``. ``layer_depth``: keep only so many outermost parts of layers.
        The result has the columns of ``by`` and ``count``, ``time`` (ns), ``share`` (% of this profile's time),
        ``flops`` and ``bytes`` (of the rows where they are known), ``tflops`` and ``gbps`` (TFLOP/s and GB/s over the
        time of these rows), ``uncounted`` and ``bytes_uncounted`` (% of the time without known FLOPs, and bytes).
        """
        keys = by.split(",") if isinstance(by, str) else list(by)
        for key in keys:
            if key not in COLUMN or COLUMN[key].kind == "float":
                there = ", ".join(column.name for column in COLUMN.values() if column.kind != "float")
                raise PyprofError(f"group(): {key!r} is no column to group by; there are: {there}")
        data = self._columns(*keys, *NEEDED)
        if layer_depth is not None and "layer" in keys:
            data["layer"] = layer_texts(self.table.coded("layer"), layer_depth)
        return frame(group_columns(keys, data))

    # DataFrames

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """One row per GPU operation (or CPU op), with every column of ``prof.py -c all``.

        The most useful ones: ``op``, ``aten``, ``layer``, ``dir``, ``phase``, ``step``, ``kernel``, ``sil`` (its
        duration, ns), ``start`` (ns), ``flops``, ``bytes``, ``tc`` (tensor cores), ``ai`` (FLOP/byte), ``tflops``
        (TFLOP/s), ``gbps`` (GB/s), ``sol`` (% of the limit), ``bound``, ``occ`` (%), ``advice`` (rules about the row).
        """
        return frame([(column, self._column(column.name)) for column in COLUMN.values()])

    @cached_property
    def ops(self) -> pd.DataFrame:
        """One row per op and direction, the longest time first.

        Columns: ``calls``, ``count`` (rows), ``time`` (ns), ``share`` (%), ``flops``, ``bytes``, ``tflops``, ``gbps``,
        ``uncounted`` and ``bytes_uncounted`` (% of the time without FLOPs, and bytes), ``sol`` (% of the limit).
        """
        return frame(self._ops)

    @cached_property
    def _ops(self) -> Columns:
        call = self._capture.call if self._rows is None else self._capture.call[self._rows]
        return op_columns(self._columns("op", "dir", "sol_ns", *NEEDED), call)

    @property
    def op_rows(self) -> list[dict[str, Any]]:
        """``ops`` as a list of dicts without pandas; unknown values are None."""
        return records(self._ops)

    @cached_property
    def layers(self) -> pd.DataFrame:
        """One row per layer; its figures include the layers inside it.

        Columns: ``layer`` (its path), ``depth``, ``count``, ``time``, ``own``, ``forward``, ``backward`` (ns),
        ``share`` (%), ``flops``, ``bytes``, ``tflops``, ``gbps``, ``uncounted``, ``bytes_uncounted`` (%).

        Rows are in the order in which the layers first ran. ``own`` leaves out the layers inside, so it sums to the
        total time; ``time`` does not.
        """
        return frame(layer_columns(self.table, self.annotation))

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per device and step.

        Columns: ``start``, ``time``, each phase, ``idle``, ``mark`` and ``extent`` (ns), ``count``, ``flops``,
        ``bytes``, ``tflops`` (idle time included), ``uncounted``, ``bytes_uncounted`` (%). Phases and idle time sum to
        ``time``.

        ``time`` is from mark to mark, as the GPU reaches the marks; ``mark`` is the same on the host's clock;
        ``extent`` is from the start of the step's first operation to the end of its last one.

        If this profile is a selection of the run's rows, these times are still those of the whole run; ``count``
        and the columns after it are computed from the selection. Empty where the table has no start times (PyProf's own
        net.dict).
        """
        whole = self._capture.table
        owner, names = owners(whole)
        shown = steps(whole, owner)
        if self._rows is not None:
            owner = owner[self._rows]
            present = set(zip(owner.tolist(), self._ints("step").tolist(), strict=True))
            shown = _between(shown, present, set(whole.ints("step").tolist()))
        return frame(step_columns(shown, names, owner, self.table, self.annotation))

    @cached_property
    def advice(self) -> pd.DataFrame:
        """One row per change, in order: ``rule``, ``gpu_ms`` and ``saved_ms`` per step, ``why``, ``change``...

        If this profile is a selection of the run's rows, it has the changes of the whole run that concern any of them.
        """
        return frame(advice_columns(self.cards), plain=("why", "change", "trace"))

    @property
    def found(self) -> Changes:
        """The list of changes with what it rests on, as ``pyprof prof --advise --json`` has it."""
        return self._capture.found.document

    @property
    def cards(self) -> list[Change]:
        """The changes as a list of ``Change`` objects."""
        if self._rows is None:
            return [change for change, _ in self._capture.changes]
        return [change for change, rows in self._capture.changes if bool(np.isin(rows, self._rows).any())]

    # Summary, figures, web page

    def summary(self) -> SummaryText:
        """The run in sentences and tables, to print or to show in a notebook; ``.numbers`` has the numbers.

        A profile that was narrowed by step, start, rank, pid or device is summarized as that part of the run. Any other
        condition raises PyprofError, because the gaps between the remaining ops would wrongly count as idle time.
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
        capture = self._capture
        of_all = (capture.limits, capture.memory, capture.path) if whole else (None, None, None)
        numbers = summarise(self.table, self.annotation, self._capture.peaks, *of_all)
        if len(self) == len(self._capture.table):
            return SummaryText(numbers, self.conditions, brief(self._capture.found.document))
        run = Run(self.table, self.annotation, self._capture.peaks)
        part = without_replay(run, "a part of a run is not replayed", numbers.step)
        return SummaryText(numbers, self.conditions, brief(part.document))

    def plan(
        self, with_: str | Sequence[str] = (), without: str | Sequence[str] = (), step_ms: float | None = None
    ) -> PlanView:
        """What to change, in the order in which it brings most, and what the step takes after each (``pyprof plan``).

        ``with_``: rules whose changes begin the plan (``"amp,alignment"`` or a list); ``without``: rules left out.
        ``step_ms``: what a step takes without a profiler, where it was measured. The result shows itself in a notebook;
        ``str()`` gives its text, ``.changes`` a DataFrame, ``.numbers`` all figures.

        Raises PyprofError for a part of a run, or a capture that cannot be replayed, such as a kernel table.
        """
        if self._rows is not None and len(self) < len(self._capture.table):
            raise PyprofError(f"plan(): expected a whole run, found rows where {' and '.join(self.conditions)}")
        found = self._capture.found
        if found.forecaster is None:
            raise PyprofError(f"plan(): {self.name} cannot be planned: {found.document.not_replayed}")
        step = run_step(self._capture.table, self._capture.annotation)
        forecaster = found.forecaster if step_ms is None else Forecaster(found.forecaster.base, step_ms * 1e6)
        if step_ms is not None or with_ or without:
            plan = make_plan(forecaster, _names(with_), _names(without))
            found = planned(forecaster, plan, step, captured_at(self.inputs[0][0]))
        document = plan_document(found.document)
        return PlanView(document)

    def plot(self, figure: str, **options: Any) -> Picture:
        """A figure: ``"roofline"``, ``"layers"``, ``"phases"`` or ``"timeline"``.

        All figures take the options ``width`` and ``height`` (inches), ``dpi``, ``dark`` (True or False) and ``title``.
        The roofline also takes ``by`` ("op", "kernel" or "layer"), layers ``depth`` (parts of a path), the timeline
        ``step``. Returns a matplotlib ``Figure``: ``.savefig("x.pdf")`` writes it.
        """
        return self.drawn(figure, **options)[1]

    def drawn(self, figure: str, **options: Any) -> tuple[Any, Picture]:
        """The numbers that a figure shows, and the figure as ``plot`` returns it."""
        with packages():
            from pyprof.prof.plot.figures import drawn

            return drawn(figure, self.table, self.annotation, self._capture.peaks, options)

    def roofline(self, by: str = "op", **options: Any) -> Picture:
        """Rate against arithmetic intensity, log-log, with the GPU's roofs; one dot per op, kernel or layer."""
        return self.plot("roofline", by=by, **options)

    def timeline(self, step: int | None = None, **options: Any) -> Picture:
        """One step by phase, stream and launch; by default the step of median length."""
        return self.plot("timeline", step=step, **options)

    def report(self, path: str | Path, title: str = "", force: bool = False) -> Path:
        """Write the web page (``pyprof report``); returns its path. Replaces an existing file only with ``force``."""
        with packages():
            from pyprof.files import check_output, open_output
            from pyprof.prof.report.page_model import page_model
            from pyprof.prof.report.render import render

            check_output(path, force)
            memory, across = (self._capture.memory, self._capture.path) if self._rows is None else (None, None)
            found = msgspec.structs.replace(self.found, changes=self.cards)
            run = self.table, self.annotation, self._capture.peaks, found
            model = page_model(*run, title or self.name, memory=memory, path=across)
            with open_output(path, force) as out:
                render(model, out)
        return Path(path)


def _names(rules: str | Sequence[str]) -> list[str]:
    """Names of rules, given as a list or joined by commas."""
    return [name.strip() for name in rules.split(",") if name.strip()] if isinstance(rules, str) else list(rules)


def _between(shown: Sequence[Step], present: set[tuple[int, int]], launched: set[int]) -> list[Step]:
    """The steps with rows in a selection (``present``: device and number), and those between them that launch nothing.

    ``launched``: the steps of the whole run that launch something.
    """
    keys = [(step.owner, NULL if step.number is None else step.number) for step in shown]
    starts: dict[int, list[int]] = {}
    for key, step in zip(keys, shown, strict=True):
        if key in present:
            starts.setdefault(step.owner, []).append(step.start_ns)
    return [
        step
        for key, step in zip(keys, shown, strict=True)
        if key in present
        or (key[1] not in launched and key[0] in starts and min(starts[key[0]]) < step.start_ns < max(starts[key[0]]))
    ]
