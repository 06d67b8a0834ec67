"""The list of changes of a capture: in the order in which they bring most, by replay; where the run cannot be replayed,
what each removes of the GPU's work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyprof.errors import InputError
from pyprof.prof.changes.code_change import code_change
from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import NOTHING_FOUND, Edit, first_sentence
from pyprof.prof.changes.effect.finding import Finding
from pyprof.prof.changes.effect.forecast import Forecast, Forecaster
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario, besides_ns
from pyprof.prof.changes.framework_settings import program_of
from pyprof.prof.changes.records import CPU_UNKNOWN, ON_CPU, AbstainedRule, Change, Changes, NotChosen, StepTime
from pyprof.prof.changes.rules import CPU_RULES, RULES
from pyprof.prof.changes.search import IN_PLAN, LEAST, Plan, PlannedEdit, make_plan
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.replay.cut_to_steps import Window, rows_alike, step_window
from pyprof.prof.step.run_step import RunStep, run_step
from pyprof.prof.timing.stragglers import meetings
from pyprof.prof.work.annotate import Annotation
from pyprof.source_path import NOWHERE
from pyprof.table.columns import Coded, HostTable, Ints, Table
from pyprof.table.losses import losses

FAITHFUL = 0.03  # the most by which a replay may differ from the capture for savings to be read from it
NO_HOST = "a kernel table has no calls of the host to replay; a profiler's file or net.pyprof has"
INCOMPLETE = "the capture has lost records, so changes would be false"
AFTER = "after the changes of the list: "  # why a rule has nothing to propose that had for the run as captured
OF_KNOWN_CPUS = ("cpu_threads", "cpu_bf16", "cpu_data_loader")  # rules that need the number of cores or their kind

Retime = Callable[[Edit, Scenario], Edit]


@dataclass(frozen=True, eq=False)
class FoundChanges:
    """The list, the rows of the kernel table that each change is about, and what forecasts further changes."""

    document: Changes
    rows: list[Ints]
    forecaster: Forecaster | None = None  # None where the run is not replayed

    def of_rows(self, rows: int) -> Coded:
        """The column ``advice`` of a table with this many rows: the rules of the changes about a row, in order."""
        found: list[list[str]] = [[] for _ in range(rows)]
        for change, concerned in zip(self.document.changes, self.rows, strict=True):
            for row in concerned.tolist():
                if change.rule not in found[row]:
                    found[row].append(change.rule)
        return Coded.of([",".join(names) for names in found])


def find_changes(
    table: Table,
    annotation: Annotation,
    host: HostTable | None,
    peaks: Peaks | None = None,
    name: str = "",
    retime: Retime | None = None,
    newest: float = -math.inf,
) -> FoundChanges:
    """The list of a capture's changes.

    ``host``: the host's calls, if there are any. ``name``: of the file. ``retime``: gives edits measured durations.
    ``newest``: the time of the capture; the changes in code are by source files that are not newer (``captured_at``).
    """
    why, step = NO_HOST if host is None else INCOMPLETE if losses(table) else "", run_step(table, annotation)
    if host is None or why:
        return without_replay(Run(table, annotation, peaks), why, step, newest)
    window = step_window(table, annotation, host)
    try:
        base = base_of(window, name, peaks)
    except InputError as error:
        because = str(error).removeprefix(f"{error.file}: ")
        return without_replay(Run(table, annotation, peaks), f"the capture cannot be replayed: {because}", step, newest)
    whole = len(window.rows) == len(table)
    why = base.run.unfit or (doubt(base) if base.run.rows else "no operation of the GPU counts")
    if why:
        return without_replay(base.run if whole else Run(table, annotation, peaks), why, step, newest)
    base.retime = retime
    forecaster = Forecaster(base, captured_ns=None if step is None else step.captured_ns)
    found = planned(forecaster, make_plan(forecaster), step, newest)
    return found if whole else replace(found, rows=[rows_alike(table, window.rows[each]) for each in found.rows])


def base_of(window: Window, name: str, peaks: Peaks | None = None) -> BaseRun:
    """The replayed run of a capture's window. Raises InputError if there is nothing to replay."""
    table, annotation, host, _ = window
    return BaseRun(table, annotation, host, name, meetings(table, annotation), peaks)


def doubt(base: BaseRun) -> str:
    """Why savings should not be read from this replay; empty where it is faithful."""
    if not base.replayed.is_complete:
        return f"{1 - base.replayed.launched_share:.1%} of the GPU's time has no launch in the capture to replay"
    if abs(base.replayed.difference) > FAITHFUL:
        way = "longer" if base.replayed.difference > 0 else "shorter"
        return f"the replay is {abs(base.replayed.difference):.1%} {way} than the capture"
    return ""


def planned(forecaster: Forecaster, plan: Plan, step: RunStep | None = None, newest: float = -math.inf) -> FoundChanges:
    """The list of a replayed run, of its plan. ``step``: the capture's; without it, that of the replayed steps."""
    base = forecaster.base
    before = [plan.now, *(change.forecast for change in plan.changes)]
    later = {each.rule for each in plan.abstained if each.rule in plan.at_first and each.why != IN_PLAN}
    document = _document(
        base.run,
        step or run_step(base.table, base.annotation),
        now=step_time(plan.now),
        measured=forecaster.measured,
        changes=[
            _planned_change(change, then, forecaster, newest)
            for change, then in zip(plan.changes, before, strict=False)
        ],
        not_chosen=[NotChosen(edit.rule, edit.title, _ms(saved)) for edit, saved in plan.others],
        abstained=[
            AbstainedRule(each.rule, f"{AFTER if each.rule in later else ''}{each.why}") for each in plan.abstained
        ],
        doubt=doubt(base),
        besides_ms=_ms(besides_ns(base)),
    )
    rows = [base.run.origin[_rows_of_base(change)] for change in plan.changes]
    return FoundChanges(document, rows, forecaster)


def without_replay(run: Run, why: str, step: RunStep | None = None, newest: float = -math.inf) -> FoundChanges:
    """The changes that each rule finds by itself, with the work that they remove; on a CPU, that is the step's gain.

    ``why``: the reason for which there is no replay; ``step``: the capture's; ``newest``: as of ``find_changes``.
    """
    rules = CPU_RULES if run.on_cpu else RULES
    judged = not (run.incomplete or run.unfit) and bool(run.rows)
    found = [(name, each) for name, rule in rules.items() for each in rule(run)] if judged else []
    least = LEAST * run.step_ns * run.steps * run.lanes
    worth = [pair for pair in found if _removed_ns(run, pair[1]) >= least]
    chosen = sorted(worth, key=lambda pair: -_removed_ns(run, pair[1]))
    said = {name for name, _ in chosen}
    silent = run.unfit or (INCOMPLETE if run.incomplete else NOTHING_FOUND)
    whys = dict.fromkeys(OF_KNOWN_CPUS, CPU_UNKNOWN) if judged and run.table.cpu is None else {}
    document = _document(
        run,
        step,
        not_judged=run.unfit,
        not_replayed=run.unfit or (ON_CPU if run.on_cpu else why),
        changes=[_found_change(run, name, finding, newest) for name, finding in chosen],
        not_chosen=[],
        abstained=[AbstainedRule(name, whys.get(name, silent)) for name in rules if name not in said],
    )
    return FoundChanges(document, [run.origin[finding.rows] for _, finding in chosen])


def captured_at(file: str | Path) -> float:
    """The time of a capture, as that of its file; minus infinity where there is no file, as for standard input."""
    path = Path(file)
    return path.stat().st_mtime if path.exists() else -math.inf


def step_time(forecast: Forecast) -> StepTime:
    return StepTime(*(_ms(ns) for ns in (forecast.ns, forecast.low, forecast.high)))


def best_row(edit: Edit, run: Run) -> int:
    """The row that gains most; -1 for a change about all rows, or none."""
    if not len(edit.rows) or len(edit.rows) == run.rows:
        return -1
    return int(edit.rows[(run.dur[edit.rows] - edit.ns).argmax()])


def _document(run: Run, step: RunStep | None, **found: object) -> Changes:
    """The document with what is known of the run itself."""
    return Changes(
        unit=run.unit,
        steps=run.marked,
        captured_ms=_ms(run.step_ns if step is None else step.captured_ns),
        on_cpu=run.on_cpu,
        incomplete=list(run.incomplete),
        shapes=run.has_sizes,
        **found,  # type: ignore[arg-type]
    )


def _planned_change(change: PlannedEdit, before: Forecast, forecaster: Forecaster, newest: float) -> Change:
    edit, run = change.edit, change.before.run
    gains = forecaster.difference(change.before, change.after)
    work = forecaster.work(change.before) - forecaster.work(change.after)
    return _change(
        run,
        edit.rule,
        edit,
        best_row(edit, run),
        newest,
        gpu_ms=_ms(work[0]),
        host_ms=_ms(work[1]),
        saved_ms=_ms(before.ns - change.forecast.ns),
        low_ms=_ms(gains.low),
        high_ms=_ms(gains.high),
        step=step_time(change.forecast),
        alone_ms=None if math.isnan(change.alone_ns) else _ms(change.alone_ns),
        needed_by=change.needed_by,
        timed=round(edit.timed, 4),
    )


def _found_change(run: Run, rule: str, finding: Finding, newest: float) -> Change:
    """A change by what its rule finds: the work that it removes."""
    known = 0 < len(finding.rows) < run.rows or bool((finding.saved_ns > 0).any())
    best = int(finding.rows[finding.saved_ns.argmax()]) if known else -1
    removed = round(run.ms(_removed_ns(run, finding)), 6)
    return _change(run, rule, finding, best, newest, gpu_ms=removed, saved_ms=removed if run.on_cpu else None)


def _change(run: Run, rule: str, found: Edit | Finding, best: int, newest: float, **amounts: Any) -> Change:
    """The record of a change, which is made where the row ``best`` is, which gains most (-1: none does)."""
    op, layer, place = (run.op(best), run.layer(best), run.place(best)) if best >= 0 else ("", "", NOWHERE)
    source, code = code_change(rule, found.change, place.line, op, newest, program_of(run, found.rows, best))
    return Change(
        rule=rule,
        title=first_sentence(found.change),
        change=run.in_makers_words(found.change),
        why=run.in_makers_words(found.why),
        cost=found.cost or COSTS.get(rule, ""),
        op=op,
        layer=layer,
        trace=place.line,
        library=place.library,
        kernels=round(run.count(len(found.rows)), 3),
        time_ms=round(run.ms_of(found.rows), 6),
        source=source,
        code=code,
        **amounts,
    )


def _removed_ns(run: Run, finding: Finding) -> float:
    """The work that a finding removes, ns; on a CPU with the pauses between ops, which are work of the host, too."""
    return float(finding.saved_ns.sum()) + (finding.idle_ns if run.on_cpu else 0.0)


def _rows_of_base(change: PlannedEdit) -> Ints:
    """The rows of the captured run that a change is about."""
    rows = change.before.origin[change.before.run.origin[change.edit.rows]]
    base = change.before.base.run
    place = np.full(int(base.origin.max(initial=-1)) + 1, -1, np.int64)
    place[base.origin] = np.arange(len(base.origin))
    return place[rows]


def _ms(ns: float) -> float:
    return round(float(ns) / 1e6, 6)
