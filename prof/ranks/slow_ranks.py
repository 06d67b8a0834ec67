"""Which rank the others wait for, for how long per step, and what it does longer than they.

A rank that comes last to a collective has taken longer since the collectives before. Its steps are compared with those
of the other ranks of the same communicator: the time in which its GPU worked, and its idle time by cause. A difference
says what took longer. The waiting itself is in neither, because a waiting rank's GPU runs the collective's kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.prof.ranks.merged_ranks import Ranks
from pyprof.prof.ranks.pace_records import IDLE_CAUSES, MORE, Cause, Excess, ExcessPlace, SlowRank, Waits
from pyprof.prof.ranks.rank_tables import IDLE, PLACE_KEY, WORK_KEY
from pyprof.prof.work.kinds import COPIES, NCCL

LEAST_SHARE = 0.02  # of a step: a rank for which the others wait less is not named
OF_WAIT = 0.2  # causes that explain less of the wait are left out, unless none explains so much
EXPLAINED = 0.5  # of a host's longer work: if more kernels explain so much, they are the first cause
MOST_PEERS = 16  # whose tables by place are read for a comparison


def steps_of(job: Ranks) -> int:
    """The number of steps of the job's captures; 1 where none are marked."""
    return max(len(pc.unique(job.tables.steps["step"].drop_null())), 1)


def steps_counted(job: Ranks) -> int:
    """The steps without the first, in which a capture begins; 1 where there is only one."""
    return max(steps_of(job) - 1, 1)


def mean_step_ns(job: Ranks) -> float:
    """The mean step of all ranks, without each one's first."""
    return float(pc.mean(later_steps(job)["span_ns"]).as_py() or 0.0)


def unprofiled_step_ns(job: Ranks) -> float | None:
    """The mean of the ranks' steps without the profiler, where they were timed before it started."""
    found = pc.mean(job.tables.steps["unprofiled_ns"]).as_py()
    return None if found is None else float(found)


def later_steps(job: Ranks) -> pa.Table:
    """Each rank's steps but its first, in which a capture begins, on each rank at another time."""
    return job.tables.steps.filter(later(job, job.tables.steps))


def later_collectives(job: Ranks) -> pa.Table:
    """The collectives of the counted steps."""
    table = job.tables.collectives
    if steps_of(job) == 1:
        return table
    first = pc.min(job.tables.steps["step"]).as_py()
    return table.filter(pc.greater(pc.fill_null(table["step"], first), first))


def later(job: Ranks, table: pa.Table, column: str = "rank") -> pa.Array:
    """The rows of a table with a column of ranks and one of steps that are not of the rank's first step; all if there
    is one."""
    steps = job.tables.steps
    if steps_of(job) == 1:
        return pa.array(np.ones(len(table), bool))
    ranks, place = np.unique(np.asarray(steps["rank"]), return_inverse=True)
    first = np.full(len(ranks), np.iinfo(np.int64).max)
    np.minimum.at(first, place, np.asarray(pc.fill_null(steps["step"], 0)))
    of_rows = np.searchsorted(ranks, np.asarray(table[column]))
    return pa.array(np.asarray(pc.fill_null(table["step"], 0)) > first[of_rows])


class HostWork(NamedTuple):
    """What a rank's host does per step."""

    ns: float  # without waits for the GPU
    pace: float  # time for the same calls as a multiple of the fastest rank's, without pauses
    operations: float  # that it gives the GPU


def slow_ranks(job: Ranks, hosts: Mapping[int, HostWork] | None = None) -> list[SlowRank]:
    """The ranks that others wait for, the most waited for first; those below 2% of a step are left out.

    ``hosts``: of the ranks of which it is known.
    """
    return [
        SlowRank(
            rank=late.rank,
            file=job.files.get(late.rank, ""),
            group=max(late.held).group[0],
            peers=len(late.peers),
            times=late.times,
            held_ns=late.held_ns,
            wait_ns=sum(each.wait_ns for each in late.held),
            causes=_causes(job, late.rank, late.peers, late.held_ns, hosts or {}),
        )
        for late in late_ranks(job)
    ]


class _Held(NamedTuple):
    held_ns: float
    wait_ns: float
    group: tuple[str, int]


class LateRank(NamedTuple):
    """A rank that others wait for, without what it takes longer for, which needs the tables of many ranks."""

    rank: int
    times: int  # collectives to which it came last
    held: list[_Held]  # by communicator, per step and other rank
    peers: list[int]  # the other ranks of the communicator in which most of the wait is

    @property
    def held_ns(self) -> float:
        return sum(each.held_ns for each in self.held)


def late_ranks(job: Ranks) -> list[LateRank]:
    """The ranks of ``slow_ranks``, in the same order."""
    steps, least = steps_counted(job), LEAST_SHARE * mean_step_ns(job)
    together = job.waits.filter(pc.invert(job.waits["two"]))
    waited = together.filter(pc.and_(later(job, together), later(job, together, "last")))
    by_group = together.group_by(["group", "ranks"]).aggregate([("rank", "distinct")])
    members = {(row["group"], row["ranks"]): sorted(row["rank_distinct"]) for row in by_group.to_pylist()}
    sums = waited.group_by(["last", "group", "ranks"]).aggregate([("held_ns", "sum"), ("wait_ns", "sum")])
    calls = waited.filter(pc.equal(waited["rank"], waited["last"]))
    times = {row["last"]: row["calls_sum"] for row in calls.group_by("last").aggregate([("calls", "sum")]).to_pylist()}
    groups: dict[int, list[_Held]] = {}
    for row in sums.to_pylist():
        group = (row["group"], row["ranks"])
        share = steps * (len(members[group]) - 1)
        groups.setdefault(row["last"], []).append(_Held(row["held_ns_sum"] / share, row["wait_ns_sum"] / share, group))
    found = [
        LateRank(rank, times[rank], held, [each for each in members[max(held).group] if each != rank])
        for rank, held in groups.items()
    ]
    kept = (late for late in found if late.held_ns >= least)
    return sorted(kept, key=lambda late: (-late.held_ns, late.rank))


def _causes(job: Ranks, rank: int, peers: Sequence[int], wait: float, hosts: Mapping[int, HostWork]) -> list[Excess]:
    """What the rank takes longer for than the mean of its peers, per step."""
    columns = ("work_ns", "copies_ns", "kernels", "flops", *IDLE)
    means = later_steps(job).group_by("rank").aggregate([(name, "mean") for name in columns])
    number = np.asarray(means["rank"])
    own, other = number == rank, np.isin(number, peers)

    def usual(name: str) -> float:
        return float(np.asarray(means[f"{name}_mean"])[other].mean())

    def excess(name: str) -> float:
        return float(np.asarray(means[f"{name}_mean"])[own].mean()) - usual(name)

    kernels, flops = (excess(name) / usual(name) if usual(name) else None for name in ("kernels", "flops"))
    of_work: Cause = "work"
    if kernels is None or kernels > MORE:
        of_work = "kernels"
    elif flops is not None and flops > MORE:
        of_work = "inputs"
    found: list[tuple[Cause, float]] = [
        (of_work, excess("work_ns")),
        ("copies", excess("copies_ns")),
        *((cause, excess(name)) for cause, name in zip(IDLE_CAUSES, IDLE, strict=True)),
    ]
    longer = _host_works_longer(hosts, rank, peers, excess("idle_data_ns"))
    kept = _kept(found, longer, wait, mean_step_ns(job))
    calls = _for_more_calls(hosts, rank, peers) if of_work == "kernels" else 0.0
    if calls >= OF_WAIT * wait:  # more work is the cause, and what it does to the host the way in which it delays
        first: list[tuple[Cause, float]] = [each for each in kept if each[0] == of_work] or [("calls", calls)]
        kept = [*first, *(each for each in kept if each[0] != of_work)]
    places, more = _Places(job, rank, peers), {"more_kernels": kernels, "more_flops": flops}
    return [
        Excess(cause=cause, ns=ns, kernels=excess("kernels"), places=places.of(cause), **more) for cause, ns in kept
    ]


def _kept(
    found: Sequence[tuple[Cause, float]], longer: Mapping[Cause, float], wait: float, step: float
) -> list[tuple[Cause, float]]:
    """The causes worth a sentence, those first that may explain most.

    While ranks wait, their GPUs are not idle. So idle time in pauses that all hosts make is longer on the rank that is
    waited for, and is a cause only as far as its host works longer. Where hosts set the pace, all launches after a
    delay come later by it, and each is waited for: the delay itself is a small part of the wait. The
    profiler does not make batches late, so late data counts as a cause from 2% of a step on.
    """
    explains = {cause: min(ns, longer.get(cause, math.inf)) for cause, ns in found}
    possible = [each for each in found if longer.get(each[0], math.inf) >= LEAST_SHARE * step]
    enough = {cause: ns for cause, ns in possible if ns >= OF_WAIT * wait}
    least = max((LEAST_SHARE * step, *(explains[cause] for cause in enough)))
    alone = {"data": LEAST_SHARE * step}
    more = {cause: ns for cause, ns in possible if cause not in longer and ns >= alone.get(cause, least)}
    return sorted((enough | more).items(), key=lambda each: (-explains[each[0]], -each[1]))


def _host_works_longer(
    hosts: Mapping[int, HostWork], rank: int, peers: Sequence[int], data: float
) -> dict[Cause, float]:
    """By how much a rank's host works longer than the mean of the others, ns, without its longer waits for data.

    Its launches come late if all its work takes longer. A pause may also be longer if the others' hosts are slower at
    all else. Infinite where the hosts' work is not known.
    """
    others = [hosts[peer] for peer in peers if peer in hosts]
    if rank not in hosts or not others:
        return {"launch": math.inf, "host": math.inf}
    own = hosts[rank]
    work = own.ns - sum(each.ns for each in others) / len(others)
    at_one_pace = own.ns / own.pace - sum(each.ns / each.pace for each in others) / len(others)
    more = max(data, 0.0)
    return {"launch": work - more, "host": max(work, at_one_pace) - more}


def _for_more_calls(hosts: Mapping[int, HostWork], rank: int, peers: Sequence[int]) -> float:
    """What a host works longer than the others for its further operations, ns; 0 unless that explains most of it.

    The others' host says how long one operation takes. Where the rank's own is the faster one, as hosts differ and
    profilers slow them unequally, its work at the others' pace counts.
    """
    others = [hosts[peer] for peer in peers if peer in hosts]
    if rank not in hosts or not others:
        return 0.0
    ns, operations, pace = (
        sum(each) / len(others) for each in zip(*((e.ns, e.operations, e.pace) for e in others), strict=True)
    )
    own = hosts[rank]
    longer = own.ns * max(pace / own.pace, 1.0) - ns
    explained = (own.operations - operations) * ns / max(operations, 1.0)
    return min(explained, longer) if explained >= EXPLAINED * longer else 0.0


class _Places:
    """The places of a rank's excess, from its own tables and those of some peers."""

    def __init__(self, job: Ranks, rank: int, peers: Sequence[int]) -> None:
        step = max(len(peers) // MOST_PEERS, 1)
        self.rank, self.peers = rank, list(peers)[::step][:MOST_PEERS]
        self.tables = job.of([rank, *self.peers])
        self.steps = steps_of(job)

    def of(self, cause: Cause) -> list[ExcessPlace]:
        if cause in IDLE_CAUSES:
            return self._of_idle(cause)
        kind = self.tables.work["kind"]
        left_out = pc.is_in(kind, pa.array([NCCL, COPIES]))
        return self._of_work(pc.equal(kind, COPIES) if cause == "copies" else pc.invert(left_out))

    def _of_idle(self, cause: Cause) -> list[ExcessPlace]:
        rows = self.tables.idle.filter(pc.equal(self.tables.idle["cause"], cause))
        return self._longest(rows, PLACE_KEY, max(self.steps - 1, 1), lambda row: (row["op"], row["trace"]))

    def _of_work(self, chosen: pa.ChunkedArray) -> list[ExcessPlace]:
        rows = self.tables.work.filter(chosen)

        def place(row: dict[str, str]) -> tuple[str, str]:
            return row["op"] or row["kind"], " · ".join(filter(None, (_path(row["layer"]), row["phase"])))

        return self._longest(rows, WORK_KEY, self.steps, place)

    def _longest(
        self, rows: pa.Table, key: Sequence[str], steps: int, place: Callable[[dict[str, str]], tuple[str, str]]
    ) -> list[ExcessPlace]:
        own = pc.equal(rows["rank"], self.rank)
        mine, theirs = (
            {
                tuple(row[name] for name in key): (row["ns_sum"], row)
                for row in rows.filter(chosen).group_by(list(key)).aggregate([("ns", "sum")]).to_pylist()
            }
            for chosen in (own, pc.invert(own))
        )
        sums: dict[tuple[str, str], float] = {}
        for each, (ns, row) in mine.items():
            usual = theirs[each][0] / len(self.peers) if each in theirs else 0.0
            where = place(row)
            sums[where] = sums.get(where, 0.0) + (ns - usual) / steps
        longest = sorted(sums.items(), key=lambda item: -item[1])[:3]
        return [ExcessPlace(op=op, where=where, ns=ns) for (op, where), ns in longest if ns > 0]


def _path(layer: str) -> str:
    from pyprof.table.schema import list_texts

    return ".".join(list_texts(layer)) if layer else ""


def waits(job: Ranks) -> Waits:
    """The time that each rank was held up in each step, from collectives of which all ranks are present."""
    sums = job.waits.group_by(["rank", "step"]).aggregate([("held_ns", "sum")]).to_pylist()
    held = {(row["rank"], row["step"]): row["held_ns_sum"] for row in sums}
    numbers = sorted({step for _, step in held}, key=lambda step: -1 if step is None else step)
    return Waits(
        ranks=job.numbers, steps=numbers, held_ns=[[held.get((rank, step)) for step in numbers] for rank in job.numbers]
    )
