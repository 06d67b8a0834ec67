"""The advice for a capture through its replay: each card's saving is that of its edit, made alone.

Rules without an edit (communication, small_collectives) keep the sum that they make themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyprof.errors import InputError
from pyprof.prof.advice import Run
from pyprof.prof.advice.advised import (
    INCOMPLETE,
    NOTHING_FOUND,
    TOO_LITTLE,
    AbstainedRule,
    Advised,
    StepTime,
    UnsureChange,
    advised_by_sums,
)
from pyprof.prof.advice.card import RULES, Advice, Confidence
from pyprof.prof.advice.rank import LEAST_NS, LEAST_SHARE, advise, findings, limited
from pyprof.prof.edits.base_run import BaseRun
from pyprof.prof.edits.edit import Abstained, Edit, Proposal, proposals, proposed, proposed_again
from pyprof.prof.edits.forecast import Forecast, Forecaster
from pyprof.prof.edits.rules import EDIT_RULES
from pyprof.prof.edits.scenario import Scenario, apply, captured
from pyprof.prof.edits.sequence import applied_with, following
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.replay.replayed_steps import Window, rows_alike, step_window
from pyprof.prof.timing.stragglers import meetings
from pyprof.prof.work.annotate import Annotation
from pyprof.quantities import share
from pyprof.source_path import NOWHERE, Place
from pyprof.table.columns import HostTable, Ints, Table
from pyprof.table.losses import losses

# Rules that are known by another name in --advise.
CARD_NAMES = {"attention": "unfused_attention", "item": "sync_in_step", "cuda_graph": "launch_bound"}
EDIT_NAMES = {card: edit for edit, card in CARD_NAMES.items()}
FAITHFUL = 0.03  # the most by which a replay may differ from the capture for savings to be read from it
# Rules that read kernels' names where a capture has no shapes, which their edits need.
BY_NAME = ("unfused_attention", "tf32")
LEAST_EXTENT = 0.5  # of a single step: a replay of less says nothing of the step, most of which is before or after it
NO_HOST = "a kernel table has no calls of the host to replay; a profiler's file or net.pyprof has"
# The farthest end of an 80% interval from its saving, as a share of the saving.
SURE: tuple[tuple[float, Confidence], ...] = ((0.25, "high"), (0.75, "medium"))


class Found(NamedTuple):
    """A card, the rows that it concerns, and the edit that it is about; None for a sum."""

    card: Advice
    rows: Ints  # of the run
    edit: Edit | None


def advise_capture(
    table: Table,
    annotation: Annotation,
    host: HostTable | None,
    peaks: Peaks | None = None,
    name: str = "",
    retime: Callable[[Edit, Scenario], Edit] | None = None,
) -> tuple[Advised, Forecaster | None]:
    """The advice for a capture, and the forecaster of its edits; None where the capture cannot be replayed.

    ``host``: the host's calls, if there are any. ``name``: of the file. ``retime``: gives edits measured durations.
    """
    if host is None or losses(table):
        why = NO_HOST if host is None else INCOMPLETE
        return advised_by_sums(Run(table, annotation, peaks), why), None
    window = step_window(table, annotation, host)
    try:
        base = base_of(window, name, peaks)
    except InputError as error:
        why = str(error).removeprefix(f"{error.file}: ")
        return advised_by_sums(Run(table, annotation, peaks), f"the capture cannot be replayed: {why}"), None
    if base.run.unfit:
        return advised_by_sums(Run(table, annotation, peaks), base.run.unfit), None
    base.retime = retime
    whole = len(window.rows) == len(table)
    run = base.run if whole else Run(table, annotation, peaks)
    if why := doubt(base) if run.rows else "no operation of the GPU counts":
        return advised_by_sums(run, why), None
    forecaster = Forecaster(base)
    found = advised(forecaster)
    if whole:
        return found, forecaster
    rows = [rows_alike(table, window.rows[each]) for each in found.rows]
    return replace(found, run=run, rows=rows), forecaster


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
    if base.run.marked < 2 and base.run.extent_ns < LEAST_EXTENT * base.run.step_ns:
        extent = share(base.run.extent_ns, base.run.step_ns)
        return f"the GPU's work extends over {extent} of the step, and no more is replayed"
    return ""


def advised(forecaster: Forecaster) -> Advised:
    """The cards of all rules, the greatest saving first."""
    start, run = captured(forecaster.base), forecaster.base.run
    now, unsure = forecaster.forecast(start), list[UnsureChange]()
    found, silent = [each._replace(card=replace(each.card, step_ms=now.ns / 1e6)) for each in _summed(run)], []
    for rule in EDIT_RULES:
        every = proposals(rule, start)
        edits = [proposal for proposal in every if isinstance(proposal, Edit)]
        judged = [each for edit in edits if (each := _found(forecaster, start, edit, now)) is not None]
        worth = [each for each in judged if isinstance(each, Found)]
        found += worth
        unsure += [each for each in judged if isinstance(each, UnsureChange)]
        unsure += _after_another(forecaster, start, every, now) if not edits else []
        if not worth and name_of(rule) not in {each.card.rule for each in found}:
            whys = [proposal.why for proposal in every if isinstance(proposal, Abstained)]
            silent.append(AbstainedRule(name_of(rule), TOO_LITTLE if edits else (*whys, NOTHING_FOUND)[0]))
    found.sort(key=lambda each: -each.card.saved_ms)
    unsure.sort(key=lambda each: -each.saved_ms)
    said = {each.card.rule for each in found} | {each.rule for each in silent}
    silent += [AbstainedRule(rule, NOTHING_FOUND) for rule in RULES if rule not in said]
    return Advised(
        run=run,
        cards=_with_shares(run, found),
        rows=[run.origin[each.rows] for each in found],
        together_ms=round(_together_ms(forecaster, start, found), 6),
        abstained=silent,
        now=step_time(now),
        measured=forecaster.measured,
        unsure=unsure,
    )


def name_of(rule: str) -> str:
    """The name of an edit's rule in --advise."""
    return CARD_NAMES.get(rule, rule)


def step_time(forecast: Forecast) -> StepTime:
    return StepTime(*(round(ns / 1e6, 6) for ns in (forecast.ns, forecast.low, forecast.high)))


def best_row(edit: Edit, run: Run) -> int:
    """The row that gains most; -1 for a change about all rows, or none."""
    if not len(edit.rows) or len(edit.rows) == run.rows:
        return -1
    return int(edit.rows[(run.dur[edit.rows] - edit.ns).argmax()])


def edit_place(edit: Edit, run: Run) -> Place:
    """The place of the row that gains most, if one does."""
    row = best_row(edit, run)
    return run.place(row) if row >= 0 else NOWHERE


def _summed(run: Run) -> Iterator[Found]:
    """The cards of rules without an edit; without any shapes, also of those that then read kernels' names."""
    with_edit = {name_of(rule) for rule in EDIT_RULES}
    if not run.has_sizes:
        with_edit -= {*BY_NAME}
    found = findings(run)
    for card, (name, finding) in zip(advise(run, found), found, strict=True):
        if name not in with_edit:
            yield Found(card, finding.rows, None)


def _found(forecaster: Forecaster, start: Scenario, edit: Edit, now: Forecast) -> Found | UnsureChange | None:
    """An edit's card, if the edit saves enough, and that in nine of ten cases; without them, an unsure change."""
    after = apply(edit, start)
    least = _least_ns(now)
    if forecaster.most_saved_ns(after) < least:
        return None
    if forecaster.quickly(start) - forecaster.quickly(after) < least / 2:  # far below, as most are
        return None
    saved = forecaster.difference(start, after)
    if saved.ns < least:
        return None
    if saved.low <= 0:
        return UnsureChange(name_of(edit.rule), edit.title, round(saved.ns / 1e6, 6), "")
    applied = applied_with(edit, after)
    return Found(_card(start.run, applied, saved, now, forecaster.measured), applied.rows, applied)


def _least_ns(now: Forecast) -> float:
    return max(LEAST_SHARE * now.ns, LEAST_NS)


def _after_another(
    forecaster: Forecaster, start: Scenario, every: Sequence[Proposal], now: Forecast
) -> Iterator[UnsureChange]:
    """What a rule proposes once the change is made that it needs, if both save enough together in nine of ten cases."""
    for waiting in every:
        if not isinstance(waiting, Abstained) or not waiting.needs:
            continue
        needed = next(proposed(waiting.needs, start), None)
        between = None if needed is None else apply(needed, start)
        edit = None if between is None else next(proposed(waiting.rule, between), None)
        if needed is None or between is None or edit is None:
            continue
        saved = forecaster.difference(start, apply(edit, between))
        if saved.ns >= _least_ns(now) and saved.low > 0:
            yield UnsureChange(name_of(edit.rule), edit.title, round(saved.ns / 1e6, 6), needed.title)


def _card(run: Run, edit: Edit, saved: Forecast, now: Forecast, measured: bool) -> Advice:
    """``measured``: whether the step's time without the profiler is."""
    row = best_row(edit, run)
    gpu = float((run.dur[edit.rows] - edit.ns).sum())
    guessed = not measured and run.ms(gpu) < saved.ns / 2e6  # mostly of the host, whose pace is estimated
    place = edit_place(edit, run)
    return Advice(
        rule=name_of(edit.rule),
        saved_ms=round(saved.ns / 1e6, 6),
        step_ms=round(now.ns / 1e6, 6),
        kernels=round(run.count(len(edit.rows)), 3),
        time_ms=round(run.ms_of(edit.rows), 6),
        op=run.op(row) if row >= 0 else "",
        layer=run.layer(row) if row >= 0 else "",
        trace=place.line,
        why=run.in_makers_words(edit.why) + limited(run, run.ms(gpu), saved.ns / 1e6),
        change=run.in_makers_words(edit.change),
        confidence=_confidence(saved, guessed),
        source="replay",
        low_ms=round(saved.low / 1e6, 6),
        high_ms=round(saved.high / 1e6, 6),
        timed=round(edit.timed, 4),
        library=place.library,
    )


def _confidence(saved: Forecast, guessed: bool) -> Confidence:
    far = max(saved.high - saved.ns, saved.ns - saved.low) / saved.ns
    found: Confidence = next((word for most, word in SURE if far <= most), "low")
    return "medium" if found == "high" and guessed else found


def _with_shares(run: Run, found: Sequence[Found]) -> list[Advice]:
    """The cards, each with the rules of better ones that shorten some of the same kernels."""
    owners: dict[int, list[str]] = {}
    cards = []
    for card, rows, edit in found:
        if edit is not None:  # a graph shortens no kernel
            rows = rows[run.dur[rows] > edit.ns] if not edit.graph else rows[:0]
        shares = sorted({other for row in rows.tolist() for other in owners.get(row, ()) if other != card.rule})
        for row in rows.tolist():
            owners.setdefault(row, []).append(card.rule)
        cards.append(replace(card, shares=tuple(shares)))
    return cards


def _together_ms(forecaster: Forecaster, start: Scenario, found: Sequence[Found]) -> float:
    """What the cards save together: each edit after those before it, if it still shortens the step, and the sums."""
    scenario, time = start, forecaster.quickly(start)
    for each in found:
        if each.edit is None:
            continue
        again = each.edit if scenario is start else proposed_again(each.edit, scenario)
        if again is not None:
            after = following(again, scenario)
            if (shorter := forecaster.quickly(after)) < time:
                scenario, time = after, shorter
    saved = forecaster.gains(start, scenario).mean() / 1e6
    return float(saved + sum(each.card.saved_ms for each in found if each.edit is None))
