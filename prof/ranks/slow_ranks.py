"""Which rank the others wait for, for how long per step, and what it does longer than they.

A rank that comes last to a collective has taken longer since the collectives before. Its steps are compared with those
of the other ranks of the same communicator: the time in which its GPU worked, and its idle time by cause. A difference
says what took longer. The waiting itself is in neither, because a waiting rank's GPU runs the collective's kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.command.json_schema import Record, doc
from pyprof.prof.ranks.merged_ranks import Ranks
from pyprof.prof.ranks.rank_tables import IDLE, PLACE_KEY, WORK_KEY
from pyprof.prof.timing.waiting import CAUSES

Cause = Literal["work", "kernels", "launch", "sync", "data", "copy", "host", "queued"]
IDLE_CAUSES: tuple[Cause, ...] = ("launch", "sync", "data", "copy", "host", "queued")
assert IDLE_CAUSES == CAUSES
LEAST_SHARE = 0.02  # of a step: a rank for which the others wait less is not named
OF_WAIT = 0.2  # causes that explain less of the wait are left out
MORE_KERNELS = 0.02  # a rank that launches so many more does more work; otherwise its kernels are slower
MOST_PEERS = 16  # whose tables by place are read for a comparison


class ExcessPlace(Record):
    """Where a rank takes longer than the others."""

    op: Annotated[str, doc("what the user called; empty: unknown")]
    where: Annotated[str, doc("line of the user's code that ends the idle time, or layer and phase of the work")]
    ns: Annotated[float, doc("time per step beyond the mean of the other ranks")]


class Excess(Record):
    """One thing that a rank takes longer for."""

    cause: Annotated[
        Cause, doc('"kernels": more work on the GPU, "work": the same work in more time; others: causes of idle time')
    ]
    ns: Annotated[float, doc("time per step beyond the mean of the other ranks")]
    kernels: Annotated[float, doc("kernels per step beyond the mean of the others")]
    places: Annotated[list[ExcessPlace], doc("where, the longest first")]


class SlowRank(Record):
    """A rank that others wait for."""

    rank: Annotated[int, doc("its number")]
    group: Annotated[str, doc("the communicator in which most of this wait is")]
    peers: Annotated[int, doc("other ranks of that communicator, with which it is compared")]
    times: Annotated[int, doc("collectives to which it came last")]
    held_ns: Annotated[
        float, doc("time per step that each of the others waits for it while its own GPU does nothing else, on average")
    ]
    wait_ns: Annotated[float, doc("the same with the waits that run beside other work")]
    causes: Annotated[list[Excess], doc("what it takes longer for, the most first")]


def steps_of(job: Ranks) -> int:
    """The number of steps of the job's captures; 1 where none are marked."""
    return max(len(pc.unique(job.tables.steps["step"].drop_null())), 1)


def mean_step_ns(job: Ranks) -> float:
    """The mean step of all ranks."""
    return float(pc.mean(job.tables.steps["span_ns"]).as_py() or 0.0)


def slow_ranks(job: Ranks) -> list[SlowRank]:
    """The ranks that others wait for, the most waited for first; those below 2% of a step are left out."""
    steps, least = steps_of(job), LEAST_SHARE * mean_step_ns(job)
    by_group = job.waits.group_by(["group", "ranks"]).aggregate([("rank", "distinct")])
    members = {(row["group"], row["ranks"]): sorted(row["rank_distinct"]) for row in by_group.to_pylist()}
    sums = job.waits.group_by(["last", "group", "ranks"]).aggregate([("held_ns", "sum"), ("wait_ns", "sum")])
    calls = job.waits.filter(pc.equal(job.waits["rank"], job.waits["last"]))
    times = {row["last"]: row["calls_sum"] for row in calls.group_by("last").aggregate([("calls", "sum")]).to_pylist()}
    groups: dict[int, list[_Held]] = {}
    for row in sums.to_pylist():
        group = (row["group"], row["ranks"])
        share = steps * (len(members[group]) - 1)
        groups.setdefault(row["last"], []).append(_Held(row["held_ns_sum"] / share, row["wait_ns_sum"] / share, group))
    found = [
        _slow_rank(job, rank, times[rank], held, [each for each in members[max(held).group] if each != rank])
        for rank, held in groups.items()
        if sum(each.held_ns for each in held) >= least
    ]
    return sorted(found, key=lambda slow: (-slow.held_ns, slow.rank))


class _Held(NamedTuple):
    held_ns: float
    wait_ns: float
    group: tuple[str, int]


def _slow_rank(job: Ranks, rank: int, times: int, held: Sequence[_Held], peers: Sequence[int]) -> SlowRank:
    held_ns = sum(each.held_ns for each in held)
    return SlowRank(
        rank=rank,
        group=max(held).group[0],
        peers=len(peers),
        times=times,
        held_ns=held_ns,
        wait_ns=sum(each.wait_ns for each in held),
        causes=_causes(job, rank, peers, held_ns),
    )


def _causes(job: Ranks, rank: int, peers: Sequence[int], wait: float) -> list[Excess]:
    """What the rank takes longer for than the mean of its peers, per step."""
    columns = ("work_ns", "kernels", *IDLE)
    means = _later_steps(job).group_by("rank").aggregate([(name, "mean") for name in columns])
    number = np.asarray(means["rank"])
    own, other = number == rank, np.isin(number, peers)

    def excess(name: str) -> float:
        values = np.asarray(means[f"{name}_mean"])
        return float(values[own].mean() - values[other].mean())

    kernels = excess("kernels")
    usual = float(np.asarray(means["kernels_mean"])[other].mean())
    of_work: Cause = "kernels" if kernels > MORE_KERNELS * usual else "work"
    found = [
        (of_work, excess("work_ns")),
        *((cause, excess(name)) for cause, name in zip(IDLE_CAUSES, IDLE, strict=True)),
    ]
    kept = sorted((each for each in found if each[1] >= OF_WAIT * wait), key=lambda each: -each[1])
    places = _Places(job, rank, peers)
    return [Excess(cause=cause, ns=ns, kernels=kernels, places=places.of(cause)) for cause, ns in kept]


def _later_steps(job: Ranks) -> pa.Table:
    """Each rank's steps but its first: a capture may begin within that, or miss the idle time before it."""
    steps = job.tables.steps
    if steps_of(job) == 1:
        return steps
    number = np.asarray(pc.fill_null(steps["step"], 0))
    _, rank = np.unique(np.asarray(steps["rank"]), return_inverse=True)
    first = np.full(rank.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, rank, number)
    return steps.filter(pa.array(number > first[rank]))


class _Places:
    """The places of a rank's excess, from its own tables and those of some peers."""

    def __init__(self, job: Ranks, rank: int, peers: Sequence[int]) -> None:
        step = max(len(peers) // MOST_PEERS, 1)
        self.rank, self.peers = rank, list(peers)[::step][:MOST_PEERS]
        self.tables = job.of([rank, *self.peers])
        self.steps = steps_of(job)

    def of(self, cause: Cause) -> list[ExcessPlace]:
        return self._of_work() if cause in ("work", "kernels") else self._of_idle(cause)

    def _of_idle(self, cause: Cause) -> list[ExcessPlace]:
        rows = self.tables.idle.filter(pc.equal(self.tables.idle["cause"], cause))
        return self._longest(rows, PLACE_KEY, max(self.steps - 1, 1), lambda row: (row["op"], row["trace"]))

    def _of_work(self) -> list[ExcessPlace]:
        rows = self.tables.work.filter(pc.not_equal(self.tables.work["kind"], "communication"))

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


class Waits(Record):
    """How long each rank was held up by others in each step."""

    ranks: Annotated[list[int], doc("numbers of the ranks")]
    steps: Annotated[list[int | None], doc("numbers of the steps; null: the capture marks none")]
    held_ns: Annotated[list[list[int | None]], doc("a list per rank with a value per step; null: not known")]


def waits(job: Ranks) -> Waits:
    """The time that each rank was held up in each step, from collectives of which all ranks are present."""
    sums = job.waits.group_by(["rank", "step"]).aggregate([("held_ns", "sum")]).to_pylist()
    held = {(row["rank"], row["step"]): row["held_ns_sum"] for row in sums}
    numbers = sorted({step for _, step in held}, key=lambda step: -1 if step is None else step)
    return Waits(
        ranks=job.numbers, steps=numbers, held_ns=[[held.get((rank, step)) for step in numbers] for rank in job.numbers]
    )
