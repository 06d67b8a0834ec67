"""Edits with measured durations in place of estimated ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

import pyprof.prof.changes.measured.swapped_chains
import pyprof.prof.changes.measured.swapped_products  # noqa: F401 (both register what edits replace)
from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.measured.swaps import SWAPS, RunCalls, Swap
from pyprof.prof.changes.measured.timed_call import TimedCall
from pyprof.prof.changes.measured.timings_file import LOST, CallTime, check_device, load_timings
from pyprof.table.columns import Table

# A measured duration, in logarithms: a call alone and in its program differ by what is in the cache, and by clocks.
DEVIATION = 0.06
# Where only the new calls could be timed, and not those of the capture with which they are compared.
ALONE = 0.08
# If the capture's kernels take longer or less than the same calls alone by more than this, these are other calls.
ALIKE = 2.0


Measure = Callable[[list[TimedCall]], list[CallTime]]


class Retimer:
    """Gives edits the durations that were measured, and collects the calls that are missing.

    ``times``: by the text of the call. It may grow while the object is in use.
    """

    def __init__(self, times: dict[str, CallTime]) -> None:
        self.times = times
        self.missing: dict[str, TimedCall] = {}
        self._runs: list[RunCalls] = []

    def __call__(self, edit: Edit, scenario: Scenario) -> Edit:
        """The edit with measured durations, as far as there are any. ``scenario``: for which it was proposed."""
        rule = SWAPS.get(edit.rule)
        if rule is None or edit.timed or not len(edit.rows):
            return edit
        calls, casts = self._calls(scenario.run), _casts(edit, scenario.run)
        kept = _Kept(edit, scenario.run)
        for swap in rule(calls, edit):
            after, before = self._sum(swap.after), self._sum(swap.before)
            if after is not None:
                kept.take(swap, 1e9 * after, before and 1e9 * before, casts)
        return kept.edit()

    def _calls(self, run: Run) -> RunCalls:
        found = next((calls for calls in self._runs if calls.run is run), None)
        if found is None:
            found = RunCalls(run)
            self._runs = [*self._runs[-1:], found]
        return found

    def _sum(self, calls: Iterable[TimedCall]) -> float | None:
        """The seconds of these calls together; None if one was not timed, or there are none."""
        found = 0.0
        known = False
        for call in calls:
            time = self.times.get(call.text)
            if time is None:
                self.missing.setdefault(call.text, call)
            if time is None or time.seconds is None:
                known, found = False, float("nan")
            else:
                known, found = True, found + time.seconds
        return found if known and found == found else None


def _casts(edit: Edit, run: Run) -> dict[int, float]:
    """Per row, the ns of the casts that mixed precision adds before it, which the edit's duration includes."""
    if edit.rule != "amp":
        return {}
    from pyprof.prof.changes.rules.products.narrow import Flow
    from pyprof.prof.changes.rules.products.reduced_precision import PRODUCTS

    chosen = np.zeros(run.rows, bool)
    chosen[edit.retyped] = True
    chosen &= np.isin(run.family, PRODUCTS)
    flow = Flow(run, chosen)
    return {row: float(flow.cast_ns[row]) for row in np.flatnonzero(flow.casts).tolist()}


def retimer_of(file: str, table: Table) -> Retimer:
    """The durations of a timings file, for a capture of the same GPU. Raises InputError for another file."""
    timings = load_timings(file)
    check_device(timings, file, table.coded("gpu").values, "take a file of that GPU")
    return Retimer(timings.by_call)


Found = TypeVar("Found")


def with_measured(retimer: Retimer, find: Callable[[], Found], measure: Measure) -> Found:
    """What ``find`` returns when all calls that it asks for are timed, or ``measure`` times no further one.

    A plan with other durations may propose other changes, which ask for other calls. So it is made again.
    """
    while True:
        retimer.missing.clear()
        found = find()
        new = measure(list(retimer.missing.values())) if retimer.missing else []
        if not new:
            return found
        retimer.times.update({time.call: time for time in new})
        if any(time.why.startswith(LOST) for time in new):  # the GPU runs nothing more in this process
            measure = _nothing


def _nothing(_: list[TimedCall]) -> list[CallTime]:
    return []


class _Kept:
    """The amounts of an edit, row by row, while measured ones replace them."""

    def __init__(self, edit: Edit, run: Run) -> None:
        self.given, self.run = edit, run
        self.ns = dict(zip(edit.rows.tolist(), edit.ns.tolist(), strict=True))
        self.left = dict(zip(edit.rows.tolist(), edit.left.tolist(), strict=True))
        added = edit.added if len(edit.added) else np.zeros(len(edit.rows))
        self.added = dict(zip(edit.rows.tolist(), added.tolist(), strict=True))
        self.deviation: dict[int, float] = {}  # of measured rows

    def take(self, swap: Swap, after_ns: float, before_ns: float | None, casts: Mapping[int, float]) -> None:
        """Scale the durations of a swap's rows so that together they are as measured."""
        rows = [row for row in swap.rows if row not in self.deviation]
        now = float(self.run.dur[rows].sum())
        if not rows or not now:
            return
        deviation = ALONE if swap.before and before_ns is None else DEVIATION
        if before_ns:
            if not 1 / ALIKE < now / before_ns < ALIKE:
                return
            after_ns *= now / before_ns
        expected = {row: self.ns.get(row, float(self.run.dur[row])) - casts.get(row, 0.0) for row in rows}
        whole = sum(expected.values())
        for row in rows:
            share = expected[row] / whole if whole > 0 else float(self.run.dur[row]) / now
            self.ns[row] = after_ns * share + casts.get(row, 0.0)
            self.left.setdefault(row, 1.0)
            self.added.setdefault(row, 0.0)
            self.deviation[row] = deviation

    def edit(self) -> Edit:
        """The edit with these amounts. Its deviation is that of its rows, by the time that remains of each."""
        if not self.deviation:
            return self.given
        rows = np.array(sorted(self.ns), np.int64)
        ns = np.array([self.ns[row] for row in rows.tolist()])
        deviations = np.array([self.deviation.get(row, self.given.deviation) for row in rows.tolist()])
        timed = np.array([row in self.deviation for row in rows.tolist()])
        left, whole = np.maximum(ns, 0.0), float(ns.sum())
        weight = left / whole if whole > 0 else np.full(len(rows), 1 / len(rows))
        return replace(
            self.given,
            rows=rows,
            ns=ns,
            left=np.array([self.left[row] for row in rows.tolist()]),
            added=np.array([self.added[row] for row in rows.tolist()]),
            deviation=float((weight * deviations).sum()),
            timed=float(weight[timed].sum()),
        )
