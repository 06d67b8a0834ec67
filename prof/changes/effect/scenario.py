"""A run with edits applied: what its rules read, and how long its step takes by the replay."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.edit import Edit, Proposal
from pyprof.prof.changes.effect.graph_costs import AFTER_NS
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.limits.other_device import moved_table
from pyprof.prof.replay.stretches import ends_of
from pyprof.prof.replay.tasks import WORK
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import Bools, Coded, Floats, Ints, Table

READY_NS = 200_000.0  # the host takes a batch that is ready from a queue: 0.1 to 0.4 ms
NEVER = -(1 << 50)
# Ranges of one op with all that it consists of: a copy in the backward pass has those of its node (twice), reshape,
# clone, empty_like, empty_strided and copy_, and perhaps a marker. Further ranges before a launch are those of ops that
# launch nothing.
RANGES = 8
ARRAYS = ("ns", "owner", "left", "views", "added", "released", "prompt", "in_graph")  # of a scenario


class EditedRows(NamedTuple):
    """The rows of a run after edits."""

    table: Table  # without the rows that vanished, with the durations and dtypes of the others
    annotation: Annotation
    origin: Ints  # per row: its row in the base's table


class Times(NamedTuple):
    """Of each task its duration, and of each dependency its lag, ns: a line for each share of the host's time."""

    duration: Ints
    lag: Ints


@dataclass(frozen=True, eq=False)
class Scenario:
    """The captured run after a sequence of edits. All arrays are per operation or call of the base's replay."""

    base: BaseRun
    edits: tuple[Edit, ...]
    ns: Floats  # per operation: its duration
    owner: Ints  # per operation: the edit that its duration comes from; -1: the capture
    left: Floats  # per operation: the share of the host's work for its launch that remains
    views: Floats  # per operation: the share of the host's work before its launch that remains even if the launch goes
    added: Floats  # per call: launches that come before it
    released: Bools  # per call
    prompt: Bools  # per call
    in_graph: Bools  # per operation
    before: Scenario | None = None  # the run that the last edit was made to
    # What rules propose, once they were asked, and the runs after edits
    proposals: dict[str, list[Proposal]] = field(default_factory=dict, init=False)
    after: WeakValueDictionary[Edit, Scenario] = field(default_factory=WeakValueDictionary, init=False)

    @cached_property
    def run(self) -> Run:
        """What rules read. Starts are the capture's: their order is that of the program still."""
        return self.base.run if not self.edits else Run(self.rows.table, self.rows.annotation, self.base.peaks)

    @cached_property
    def rows(self) -> EditedRows:
        """What ``run`` is made of."""
        if self.before is None:
            return EditedRows(self.base.table, self.base.annotation, np.arange(len(self.base.table)))
        edit, rows = self.edits[-1], self.before.run.origin[self.edits[-1].rows]
        took = self.before.rows.table.ints("kDuration").copy()
        took[rows] = np.round(edit.ns).astype(np.int64)
        gone = rows[(edit.ns <= 0) & (edit.left <= 0)]
        table, annotation = _retyped(edit, self.before)
        table = table.with_column("kDuration", took)
        table = moved_table(table, edit.device) if edit.device else table
        if not len(gone):
            return EditedRows(table, annotation, self.before.origin)
        kept = np.setdiff1d(np.arange(len(took)), gone)
        return EditedRows(table.take(kept), annotation.take(kept), self.before.origin[kept])

    @property
    def is_compiled(self) -> bool:
        """Whether the model is compiled, in the capture or by a change that the plan has made before."""
        made = any(edit.rule in ("compile", "fp8") for edit in self.edits)
        return made or bool((self.run.family == "compiled").any())

    @property
    def origin(self) -> Ints:
        return self.rows.origin

    def places(self, rows: Ints) -> Ints:
        """The replay's operations that rows of ``run`` stand for."""
        return self.base.place[self.origin[self.run.origin[rows]]]

    def calls(self, rows: Ints) -> Ints:
        """The calls that launched rows of ``run``; -1: unknown."""
        return self.base.recorded.work.call[self.places(rows)]

    def step_ns(self, share: float | Floats, errors: Floats) -> Floats:
        """The time of a step by the replay, for each share.

        ``share``: of the host's captured time that counts. ``errors``: per edit, the factor on the durations that it
        says; for all shares, or a line for each.
        """
        return _step_ns(self.base, *self._simulated(share, errors))

    def lasting_ns(self, shares: Floats, longer: Ints | int = 0) -> Floats:
        """How long the captured work would take among many more of the same, for each share (as of ``step_ns``).

        That is the host's time until its last launch, or the GPU's where everything was launched long before: whichever
        is longer sets the pace. Neither depends on how far the host was ahead when the capture began. ``longer``: what
        is added to the duration of each task, ns.
        """
        base, begin, none = self.base, float(self.base.tasks.release.min()), np.zeros(0)
        launched = base.call_task[base.recorded.work.call[base.recorded.work.call >= 0]]
        ends, _ = self._simulated(shares, none, longer)
        on_host = ends.take(launched, axis=1).max(axis=1, initial=round(begin))
        ends, duration = self._simulated(shares, none, longer, begin=on_host)
        # What ran when the capture began may keep the first operation back for longer still.
        found: Floats = np.maximum(on_host - begin, _extent(base, ends, duration, np.arange(len(base.work_task))))
        return found

    def host_ns(self, shares: Floats) -> Floats:
        """The host's work in a step without waits, ns, for each share (as of ``step_ns``): calls, and between them."""
        base, duration = self.base, self._times(shares, np.ones(len(self.edits))).duration
        found: Floats = duration[:, base.host_task].sum(axis=1) + duration[:, base.call_task].sum(axis=1)
        return found / base.run.lanes / base.step_count

    def gpu_ns(self, errors: Floats) -> Floats:
        """The durations of the GPU's operations in a step, ns, on one device, for each line of errors of the edits."""
        base = self.base
        marked = base.steps[0] if len(base.steps[0]) else base.counted
        factor = np.append(errors, np.ones((len(errors), 1)), axis=1)
        found: Floats = factor.take(self.owner[marked], axis=1) @ self.ns[marked] / base.run.lanes / base.step_count
        return found

    def alone_ns(self, share: float | Floats) -> Floats:
        """How long the host takes for the last step if the GPU is idle when it begins, from the end of the one before.

        That is the host's own work, and waits for what the step itself launched. ``share``: as of ``step_ns``.
        """
        base, begin = self.base, int(self.base.tasks.release.min())
        marked, index, _ = base.steps
        call = base.recorded.work.call[marked]
        known = call >= 0
        last = int(index.max(initial=0))
        longer = np.zeros(len(base.tasks), np.int64)
        if last:  # what the GPU does for the steps before takes no time
            before = np.setdiff1d(np.arange(len(base.work_task)), marked[index == last])
            longer[base.work_task[before]] = -self.ns[before]
        ends, _ = self._simulated(share, np.ones(len(self.edits)), longer)
        returned = ends.take(base.call_task[call[known]] if last else base.call_task, axis=1)
        earlier = returned[:, index[known] < last] if last else returned[:, :0]
        alone: Ints = returned.max(axis=1) - earlier.max(axis=1, initial=begin)
        return alone.astype(np.float64)

    def _simulated(
        self, share: float | Floats, errors: Floats, longer: Ints | int = 0, begin: Ints | None = None
    ) -> tuple[Ints, Ints]:
        """The end of each task of the base, and its duration: a line for each share.

        ``longer``: what is added to durations, ns; ``begin``: before which the GPU does not begin, per share.
        """
        base = self.base
        duration, lag = self._times(np.atleast_1d(share), errors)
        duration += longer
        release = base.tasks.release[None]
        if begin is not None:
            release = np.where(base.tasks.kind == WORK, np.maximum(release, begin[:, None]), release)
        return ends_of(base.tasks, base.stretches, duration, lag, release), duration

    def _times(self, shares: Floats, errors: Floats) -> Times:
        base, pace = self.base, self.base.pace(shares)
        before = np.where(self.prompt, np.minimum(pace.before * self._stays, READY_NS), pace.before * self._stays)
        before = np.maximum(before + self.added * pace.added, 0.0)
        own = pace.own * np.where(self.released & ~base.slowed, 0.0, self._left_of_calls)
        factor = np.append(np.broadcast_to(errors, (len(shares), len(self.edits))), np.ones((len(shares), 1)), axis=1)
        duration = np.tile(base.tasks.duration, (len(shares), 1))
        duration[:, base.host_task], duration[:, base.call_task] = before, own
        duration[:, base.work_task] = self.ns * factor.take(self.owner, axis=1)
        return Times(duration, self._lags(duration))

    @cached_property
    def _stays(self) -> Floats:
        """Per call: the share of the host's work before it that remains."""
        left = self._left_of_calls
        stays = left + (1 - left) * self._of_calls(self.views)
        return np.where(self.base.pauses & ~self._within_graphs, 1.0, stays)

    @cached_property
    def _left_of_calls(self) -> Floats:
        """Per call: the share of the host's work that remains, by what is left of the launch that it is made for."""
        return np.where(self.base.unit >= 0, self._of_calls(self.left), 1.0)

    def _of_calls(self, each: Floats) -> Floats:
        """Per call: the most of an amount per operation of those that it is made for; 0 without any."""
        work, unit = self.base.recorded.work, self.base.unit
        found = np.zeros(len(self.released))
        known = work.call >= 0
        np.maximum.at(found, work.call[known], each[known])
        return np.where(unit >= 0, found[unit], 0.0)

    @cached_property
    def _within_graphs(self) -> Bools:
        """Per call: whether a graph launches its work together with that of a call before it, of the same step.

        A graph holds what lies between its first launch and its last one: where something else is launched between, as
        a copy of input data is, another graph begins.
        """
        base, work = self.base, self.base.recorded.work
        launched = np.flatnonzero(work.call >= 0)
        step, call = base.table.ints("step")[work.row[launched]], work.call[launched]
        inside = self.in_graph[launched]
        found = np.zeros(len(self.released), bool)
        for number in np.unique(step[inside]).tolist():
            calls, first = np.unique(call[step == number], return_index=True)
            held = inside[step == number][first]
            found[calls[1:]] = held[1:] & held[:-1]
        unit = base.unit
        return np.where(unit >= 0, found[unit], False) & (base.loading <= 0)

    def _lags(self, duration: Ints) -> Ints:
        base, lag = self.base, np.tile(self._lag, (len(duration), 1))
        lag[:, base.handed] = -duration.take(base.host_task[base.edge_item[base.handed]], axis=1)
        call = base.edge_item[base.waits]
        task = base.call_task[call]
        never = self.released[call] | (self._left_of_calls[call] <= 0)
        lag[:, base.waits] = np.where(
            never, NEVER, lag[:, base.waits] + base.tasks.duration[task] - duration.take(task, axis=1)
        )
        return lag

    @cached_property
    def _lag(self) -> Ints:
        """Per dependency: its lag, but for those that the host's pace decides."""
        base, lag = self.base, self.base.tasks.lag.copy()
        gone = self.ns <= 0
        lag[base.launches] = np.where(gone[base.edge_item[base.launches]], NEVER, lag[base.launches] - base.sooner)
        item = base.edge_item[base.gaps]
        gap = lag[base.gaps]
        # An edit that shortens many kernels instead of leaving few of them leaves so many gaps as launches.
        shared = (self.owner[item] >= 0) & (self.left[item] > 0)  # 0: the launch goes without its kernel, as in graphs
        fewer = np.where(shared, np.minimum(self.left[item], 1.0), 1.0) * gap
        left = np.where(self.in_graph[item], np.minimum(gap, int(AFTER_NS)), fewer)
        lag[base.gaps] = np.where(gone[item], 0, left)
        return lag


def captured(base: BaseRun) -> Scenario:
    """The run without any edit."""
    if base.captured is None:
        work, calls = base.recorded.work, len(base.recorded.calls)
        base.captured = Scenario(
            base=base,
            edits=(),
            ns=(work.end - work.start).astype(np.float64),
            owner=np.full(len(work), -1, np.int64),
            left=np.ones(len(work)),
            views=np.zeros(len(work)),
            added=np.zeros(calls),
            released=np.zeros(calls, bool),
            prompt=np.zeros(calls, bool),
            in_graph=np.zeros(len(work), bool),
        )
    return base.captured


def besides_ns(base: BaseRun) -> float:
    """How much of the captured step is due to what long launches do besides; no time without the profiler has it."""
    duration, lag = (np.repeat(each, 2, axis=0) for each in captured(base)._times(np.ones(1), np.zeros(0)))
    duration[0, base.call_task] += base.besides
    lag[0, base.launches] += base.sooner
    ends = ends_of(base.tasks, base.stretches, duration, lag, base.tasks.release[None])
    longer, shorter = _step_ns(base, ends, duration)
    return max(float(longer - shorter), 0.0)


def apply(edit: Edit, scenario: Scenario) -> Scenario:
    """The run after one more edit, which a rule proposed for this scenario; with measured durations where there are."""
    edit = scenario.base.retime(edit, scenario) if scenario.base.retime else edit
    if edit not in scenario.after:
        scenario.after[edit] = after = _applied(edit, scenario)
        return after
    return scenario.after[edit]


def _applied(edit: Edit, scenario: Scenario) -> Scenario:
    base, at = scenario.base, scenario.places(edit.rows)
    call = base.recorded.work.call[at]
    known = call >= 0
    after = replace(
        scenario,
        edits=(*scenario.edits, edit),
        before=scenario,
        **{name: getattr(scenario, name).copy() for name in ARRAYS},
    )
    changed = edit.ns != after.ns[at]
    after.ns[at] = edit.ns
    after.left[at] *= edit.left
    after.owner[at[changed]] = len(scenario.edits)
    if edit.keeps_views:
        after.views[at] = _views(base, at)
    after.added[call[known]] *= edit.left[known]  # what was added to a launch goes with it, as into a graph
    if len(edit.added):
        np.add.at(after.added, call[known], (edit.added * scenario.left[at])[known])
    after.released[edit.released] = True
    after.prompt[edit.prompt if edit.loads else edit.prompt[base.loading[edit.prompt] <= 0]] = True
    after.in_graph[at] |= edit.graph
    return after


def _retyped(edit: Edit, scenario: Scenario) -> tuple[Table, Annotation]:
    """Table and annotation with the dtypes and precisions that rows have after the edit."""
    table, annotation, _ = scenario.rows
    rows = scenario.run.origin[edit.retyped]
    if edit.dtype and len(rows):
        dtypes = table.coded("dtypes")
        values = [*dtypes.values, *(text.replace('"float32"', f'"{edit.dtype}"') for text in dtypes.values)]
        codes, nbytes = dtypes.codes.copy(), annotation.bytes.copy()
        codes[rows] += np.where(codes[rows] >= 0, len(dtypes.values), 0)
        nbytes[rows] //= np.where(nbytes[rows] > 0, 2, 1)
        table, annotation = table.with_column("dtypes", Coded(codes, values)), replace(annotation, bytes=nbytes)
    products = rows[annotation.tc.take(rows).among("0", "1")]
    if not len(products):
        return table, annotation
    tc, precision = _set(annotation.tc, products, "1"), _set(annotation.tcprec, products, edit.unit)
    return table, replace(annotation, tc=tc, tcprec=precision)


def _set(column: Coded, rows: Ints, value: str) -> Coded:
    codes = column.codes.copy()
    codes[rows] = len(column.values)
    return Coded(codes, [*column.values, value])


def _views(base: BaseRun, operations: Ints) -> Floats:
    """Per operation: the share of the host's work before its launch that belongs to ops that launch nothing."""
    call = base.recorded.work.call[operations]
    ranges = np.where(call >= 0, base.ranges[call], 0.0)
    found: Floats = 1 - RANGES / np.maximum(ranges, RANGES)
    return found


def _step_ns(base: BaseRun, ends: Ints, duration: Ints) -> Floats:
    """The mean time of the steps; without marks, from the GPU's first operation to the end of its last one.

    A step lasts from when the GPU had finished the step before, or from when the host had launched it, whichever time
    is longer. In the long run both are the same; in a few steps, a GPU that begins late catches up with the host, or a
    host that is ahead gets further ahead.
    """
    marked, index, first_step = base.steps
    before = max(first_step - 1, 0)  # the step from whose end the time counts
    count = int(index.max()) - before if len(marked) else 0
    if not count:
        return _extent(base, ends, duration, base.counted)
    finished = ends.take(base.work_task[marked], axis=1)
    call = base.recorded.work.call[marked]
    launched = np.where(call >= 0, ends.take(base.call_task[call], axis=1), NEVER)
    first = index <= before
    of_gpu, of_host = (each.max(axis=1) - each[:, first].max(axis=1) for each in (finished, launched))
    longer: Ints = np.maximum(of_gpu, of_host)
    return longer / count


def _extent(base: BaseRun, ends: Ints, duration: Ints, operations: Ints) -> Floats:
    """From the beginning of the first of these operations to the end of the last one."""
    tasks = base.work_task[operations]
    took: Ints = ends.take(tasks, axis=1).max(axis=1) - (ends - duration).take(tasks, axis=1).min(axis=1)
    return took.astype(np.float64)
