"""Edits with measured durations in place of estimated ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

import pyprof.prof.changes.measured.swapped_calls  # noqa: F401 (registers what edits replace)
from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.measured.swaps import SWAPS, RunCalls
from pyprof.prof.changes.measured.timed_call import TimedCall
from pyprof.prof.changes.measured.timings_file import LOST, CallTime, check_device, load_timings
from pyprof.table.columns import Floats, Ints, Table

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

    def __call__(self, edit: Edit, scenario: Scenario) -> Edit:
        """The edit with measured durations, as far as there are any. ``scenario``: for which it was proposed.

        The durations of a swap's rows are scaled so that together they are as measured. The deviation is that of all
        rows, by the time that remains of each.
        """
        run, rule = scenario.run, SWAPS.get(edit.rule)
        if rule is None or edit.timed or not len(edit.rows):
            return edit
        ns, left, added, deviation = run.dur.copy(), np.ones(run.rows), np.zeros(run.rows), np.full(run.rows, np.nan)
        ns[edit.rows], left[edit.rows] = edit.ns, edit.left
        added[edit.rows] = edit.added if len(edit.added) else 0.0
        casts = _casts(edit, run)
        for swap in rule(run.kept(RunCalls), edit):
            after, before = self._ns(swap.after), self._ns(swap.before)
            mine = np.array(swap.rows, np.int64)
            mine = mine[np.isnan(deviation[mine])]
            now = float(run.dur[mine].sum())
            if after is None or not now or (before and not 1 / ALIKE < now / before < ALIKE):
                continue
            expected = ns[mine] - casts[mine]
            share = expected / expected.sum() if expected.sum() > 0 else run.dur[mine] / now
            ns[mine] = after * (now / before if before else 1.0) * share + casts[mine]
            deviation[mine] = ALONE if swap.before and before is None else DEVIATION
        timed = ~np.isnan(deviation)
        if not timed.any():
            return edit
        rows: Ints = np.union1d(edit.rows, np.flatnonzero(timed))
        weight = np.maximum(ns[rows], 0.0)
        weight = weight / ns[rows].sum() if ns[rows].sum() > 0 else np.full(len(rows), 1 / len(rows))
        deviation[~timed] = edit.deviation
        return replace(
            edit,
            rows=rows,
            ns=ns[rows],
            left=left[rows],
            added=added[rows],
            deviation=float(weight @ deviation[rows]),
            timed=float(weight[timed[rows]].sum()),
        )

    def _ns(self, calls: Sequence[TimedCall]) -> float | None:
        """The time of these calls together, ns; None without calls, and if one was not timed."""
        times = [self.times.get(call.text) for call in calls]
        self.missing |= {call.text: call for call, time in zip(calls, times, strict=True) if time is None}
        seconds = [time.seconds for time in times if time is not None and time.seconds is not None]
        return 1e9 * sum(seconds) if seconds and len(seconds) == len(calls) else None


def _casts(edit: Edit, run: Run) -> Floats:
    """Per row, the ns of the casts that mixed precision adds before it, which the edit's duration includes."""
    if edit.rule != "amp":
        return np.zeros(run.rows)
    from pyprof.prof.changes.rules.products.narrow import Flow
    from pyprof.prof.changes.rules.products.reduced_precision import PRODUCTS

    chosen = np.zeros(run.rows, bool)
    chosen[edit.retyped] = True
    flow = Flow(run, chosen & np.isin(run.family, PRODUCTS))
    return np.where(flow.casts, flow.cast_ns, 0.0)


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
            retimer.missing.clear()
            return find()
