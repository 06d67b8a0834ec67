"""The run as captured, ready to be edited and replayed: its tasks, which call belongs to which launch, its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof.prof.changes.effect.run import Run
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.replay.recorded_run import Recorded, ranges_before
from pyprof.prof.replay.replayed_run import Replayed, replay
from pyprof.prof.replay.stretches import Stretches, stretches
from pyprof.prof.replay.tasks import CALL, DEPENDS, GAP, HOST, LAUNCH, SYNC, WORK, Tasks
from pyprof.prof.replay.timed_calls import TimedShares, timed_shares
from pyprof.prof.replay.without_profiler import MOST_NS
from pyprof.prof.timing.gpus import TO_DEVICE, named_rows
from pyprof.prof.timing.profiler_cost import OwnShare, estimated_share
from pyprof.prof.timing.timeline import alone
from pyprof.prof.timing.waiting import loader_calls
from pyprof.prof.work.annotate import Annotation
from pyprof.table.api_kinds import GIVING
from pyprof.table.columns import NULL, Bools, Floats, HostTable, Ints, Table

if TYPE_CHECKING:
    from pyprof.prof.changes.effect.edit import Edit
    from pyprof.prof.changes.effect.scenario import Scenario

SLOWED = ("launch", "set", "copy", "graph", "record", "wait")  # kinds of calls that a profiler makes slower
LIST_NS = 40_000  # an op on lists of 16 to 28 tensors, whose descriptions take a profiler longest (40 to 55 µs without)
LONG_NS = 500_000  # a long gap between launches; an op takes the host 5 to 50 µs, or up to 200 under a profiler
FEW = 50  # launches per step, of which each may take long
# Of the estimated share, four of five steps of so few launches, of eleven in which the host is the limit, need this
# (tests/golden/advice: 0.36 to 0.70 where 0.5 is estimated).
OF_FEW = (0.72, 1.4)
# An op that a change adds, such as a cast with its dispatch by autocast, takes the host this much longer than the mean
# launch: 2,260 casts of decoding took 20 µs each where the mean was 22 (docs/explanation/advice.md), and casts of a
# residual network 20 where it was 16.
ADDED, ADDED_NS = 1.2, (6_000.0, 30_000.0)
# Ops on single tensors of which there are forms for lists (torch._foreach_*)
LISTS = frozenset(
    "add add_ sub sub_ mul mul_ div div_ addcmul addcmul_ addcdiv addcdiv_ lerp lerp_ sqrt sqrt_ neg neg_ copy_ zero_ "
    "maximum minimum clamp_min clamp_max clamp_min_ clamp_max_ pow abs exp sign linalg_vector_norm norm".split()
)
# Before a launch of loops over single tensors, as torch.optim, zero_grad and users' own optimizers run them. Without a
# profiler, such a loop takes 5 to 9 µs for one on an H200's host, its launch included (AdamW and SGD over 200 tensors,
# AdamW in two programs, SGD by hand over 161); the profiler makes it 40 to 60.
STEPPING_NS = 8_000
ELEMENTS = LISTS - {"linalg_vector_norm", "norm"}
LONGEST_CALL_NS = 20_000.0  # a launch that takes longer does something else as well, such as loading a kernel


class Pace(NamedTuple):
    """What the host takes without the profiler, ns: a line for each share of its captured time that is its own."""

    before: Floats  # per call: the work before it
    own: Floats  # per call: its own duration
    added: Floats  # a small op that a change adds


class BaseRun:
    """A capture and its replay. Raises InputError if there is nothing to replay."""

    def __init__(
        self,
        table: Table,
        annotation: Annotation,
        host: HostTable,
        name: str,
        meetings: Sequence[Ints] = (),
        peaks: Peaks | None = None,
    ) -> None:
        self.table, self.annotation = annotation.with_arguments(table), replace(annotation, completed=None)
        self.host, self.peaks = host, peaks
        self.retime: Callable[[Edit, Scenario], Edit] | None = (
            None  # gives edits measured durations (prof/changes/measured)
        )
        self.captured: Scenario | None = None  # the run without any edit (scenario.captured)
        self._paces: dict[tuple[float, ...], Pace] = {}
        self.replayed: Replayed = replay(table, host, name, meetings)
        self.recorded: Recorded = self.replayed.run
        self.tasks: Tasks = self.replayed.tasks
        self.run = Run(self.table, self.annotation, peaks)
        self.place = np.full(len(self.table), -1, np.int64)  # of each row of the table among the replay's operations
        self.place[self.recorded.work.row] = np.arange(len(self.recorded.work))
        self.host_task = self._tasks(HOST, len(self.recorded.calls))
        self.call_task = self._tasks(CALL, len(self.recorded.calls))
        self.work_task = self._tasks(WORK, len(self.recorded.work))
        target = np.repeat(np.arange(len(self.tasks)), np.diff(self.tasks.first))
        self.edge_item = self.tasks.item[target]
        kind, cause = self.tasks.kind[target], self.tasks.cause
        self.handed = np.flatnonzero((kind == HOST) & (cause == DEPENDS) & (self.tasks.lag < 0))
        self.waits = np.flatnonzero((kind == CALL) & (cause == SYNC))
        self.launches = np.flatnonzero((kind == WORK) & (cause == LAUNCH))
        self.gaps = np.flatnonzero((kind == WORK) & (cause == GAP))
        self.from_begin = self.tasks.kind[self.tasks.source[self.launches]] == HOST  # timed from the call's begin

    def _tasks(self, kind: int, items: int) -> Ints:
        found = np.empty(items, np.int64)
        chosen = np.flatnonzero(self.tasks.kind == kind)
        found[self.tasks.item[chosen]] = chosen
        return found

    @cached_property
    def stretches(self) -> Stretches:
        return stretches(self.tasks)

    @cached_property
    def unit(self) -> Ints:
        """Per call: the call that gives the GPU work for which the host makes it, itself or a later one; -1: none.

        Calls that wait or manage memory are on their own.
        """
        calls = self.recorded.calls
        giving = self.recorded.launching(np.ones(len(self.table), bool))
        found = np.full(len(calls), -1, np.int64)
        for thread in np.unique(calls.thread).tolist():
            mine = np.flatnonzero(calls.thread == thread)
            following = np.where(giving[mine], mine, np.iinfo(np.int64).max)
            following = np.minimum.accumulate(following[::-1])[::-1]
            known = following < np.iinfo(np.int64).max
            found[mine[known]] = following[known]
        helping = (calls.kind < 0) & ~calls_of_memory(self)
        return np.where(giving | helping | calls.among("record", "wait"), found, -1)

    @cached_property
    def segment(self) -> Floats:
        """Per call: the host's work before it, as captured, ns; before an op on lists, or in a loop over parameters of
        PyTorch's own, at most what that takes."""
        found = self.tasks.duration[self.host_task].astype(np.float64)
        share = estimated_share(self.table).share
        lists = self._calls_of("aten", lambda op: "_foreach_" in op or "_fused_" in op)
        updated = self._calls_of("aten", lambda op: op.removeprefix("aten::") in ELEMENTS)
        single = self._calls_of("phase", "optimizer".__eq__) & updated
        stepping = (self._calls_of("op", lambda op: '.step"' in op or op.endswith('"zero_"]')) | single) & ~lists
        lists, stepping = lists & ~self.is_timed, stepping & ~self.is_timed
        found[lists] = np.minimum(found[lists], LIST_NS / share)
        found[stepping] = np.minimum(found[stepping], STEPPING_NS / share)
        return found

    def _calls_of(self, key: str, chosen: Callable[[str], bool]) -> Bools:
        """Per call: whether it launches an operation whose value in a column is chosen."""
        return self.recorded.launching(self.table.coded(key).where(chosen))

    @cached_property
    def ranges(self) -> Floats:
        """Per call: the ranges (ops, markers, layers) that the process began in the work before it."""
        return ranges_before(self.host, self.recorded.calls).astype(np.float64)

    @cached_property
    def most_of_profiler(self) -> Floats:
        """Per call: the most of the work before it that is the profiler's, ns, by the ranges in it."""
        found: Floats = MOST_NS * (1.0 + self.ranges)
        return found

    @cached_property
    def loading(self) -> Floats:
        """Per call: how long of the host's work before it the process was in a DataLoader's call, ns."""
        every = [(begin, end) for begin, end, _ in loader_calls(self.table).values()]
        until = self.recorded.calls.start
        since = until - self.tasks.duration[self.host_task]
        if not every:
            return np.zeros(len(until))
        begin, end = (np.concatenate(times) for times in zip(*every, strict=True))
        return (until - since - alone(since, until, begin, end)).astype(np.float64)

    @cached_property
    def pauses(self) -> Bools:
        """Per call: whether the host's work before it is too long for that of launches: the user's own code."""
        found: Bools = self._before(self._of_calls(self.own_share)) > LONG_NS
        return found

    @cached_property
    def timed(self) -> TimedShares | None:
        """The shares of the host's captured time that were measured call by call; None if none were."""
        return timed_shares(self.replayed)

    @cached_property
    def is_timed(self) -> Bools:
        """Per call: whether the share of its captured time was measured."""
        return np.zeros(len(self.recorded.calls), bool) if self.timed is None else ~np.isnan(self.timed.of_call)

    def pace(self, shares: Floats) -> Pace:
        """The host's pace if each of these shares of what the profiler slows is the program's."""
        found = self._paces.get(key := tuple(shares.tolist()))
        if found is None:
            found = self._paces[key] = self._pace(shares[:, None])
        return found

    def _pace(self, share: Floats) -> Pace:
        """``share``: a line for each."""
        of_call = self._of_calls(share)
        before, own = self._before(of_call), np.where(self.slowed, self.own * of_call, self.own)
        return Pace(before, own, self._added_ns(before, own))

    def _of_calls(self, share: float | Floats) -> Floats:
        """Per call: the share of its captured time that is the program's, if it is this one of all of the host's."""
        return share + np.zeros(len(self.recorded.calls)) if self.timed is None else self.timed.at(share)

    def _before(self, of_call: Floats) -> Floats:
        """Per call: the host's work before it without the profiler."""
        most = np.where(self.is_timed, np.inf, self.most_of_profiler)
        found: Floats = self.segment - np.minimum((1 - of_call) * self.segment, most)
        return found

    def _added_ns(self, before: Floats, own: Floats) -> Floats:
        """What a small op that a change adds takes the host, without the profiler: a little more than launches do."""
        giving = self.recorded.calls.among(*GIVING)
        launching = np.where(self.slowed, own, 0.0) + np.where(self.pauses, 0.0, before)
        found: Floats = np.clip(ADDED * launching.sum(axis=1) / max(int(giving.sum()), 1), *ADDED_NS)
        return found[:, None]

    @cached_property
    def own(self) -> Floats:
        """Per call: its own duration as captured, without waiting and without what long launches do besides, ns."""
        found = self._whole
        launches = self.recorded.calls.among(*GIVING) & ~self.staged
        return np.where(launches, np.minimum(found, LONGEST_CALL_NS), found)

    @property
    def _whole(self) -> Floats:
        return self.tasks.duration[self.call_task].astype(np.float64)

    @cached_property
    def besides(self) -> Ints:
        """Per call: what a long launch does besides, such as loading a kernel, ns. No later step has it."""
        found: Ints = (self._whole - self.own).astype(np.int64)
        return found

    @cached_property
    def sooner(self) -> Ints:
        """Per dependency on a launch, how much sooner its operation begins without what the call does besides, ns."""
        besides = self.besides[self.recorded.work.call[self.edge_item[self.launches]]]
        lag = self.tasks.lag[self.launches]
        found: Ints = np.where(self.from_begin, np.minimum(besides, np.maximum(lag, 0)), 0)
        return found

    @cached_property
    def staged(self) -> Bools:
        """Per call: whether it copies pageable memory to the GPU, for which the host itself moves the bytes first."""
        return self.recorded.launching(named_rows(self.table, *TO_DEVICE) & named_rows(self.table, "Pageable"))

    @cached_property
    def slowed(self) -> Bools:
        """Per call: whether the profiler makes it slower."""
        launches = self.recorded.calls.among(*SLOWED) | ((self.recorded.calls.kind < 0) & ~calls_of_memory(self))
        return launches & ~self.staged

    @cached_property
    def host_share(self) -> OwnShare:
        """The share of the host's captured time that is not the profiler's, with its interval.

        As calls were measured one by one, or else by what it was in other programs.
        """
        own, launches = estimated_share(self.table), len(np.unique(self.recorded.work.call))
        if self.timed is not None:
            return self.timed.interval()
        if launches < FEW * self.step_count:
            return OwnShare(own.share, own.share * OF_FEW[0], min(own.share * OF_FEW[1], 1.0), measured=False)
        return own

    @property
    def own_share(self) -> float:
        return self.host_share.share

    @cached_property
    def counted(self) -> Ints:
        """The operations of the one step, or of a capture without steps, that its time is measured by.

        Copies that load the model do not count, nor does what a step launches while the GPU still works on what was
        launched before it.
        """
        return self.place[self.run.origin[self.run.of_extent]]

    @cached_property
    def steps(self) -> tuple[Ints, Ints, int]:
        """(the operations of marked steps, the index of each one's step, the index of the first step that counts)."""
        number = self.table.ints("step")[self.recorded.work.row]
        marked = np.flatnonzero(number != NULL)
        steps, index = np.unique(number[marked], return_inverse=True)
        counted = np.unique(self.run.table.ints("step"))
        first = int(np.searchsorted(steps, counted[counted != NULL].min())) if len(steps) and self.run.rows else 0
        return marked, index, first

    @property
    def step_count(self) -> int:
        """The number of marked steps; 1 if no step is marked."""
        return int(self.steps[1].max(initial=0)) + 1


def calls_of_memory(base: BaseRun) -> Bools:
    """Per call: whether it allocates or frees memory of the GPU."""
    rows = base.recorded.calls.row
    return base.host.coded("kind").take(rows).among("allocate", "free")
