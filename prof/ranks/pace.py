"""How a job's ranks keep pace: which one the others wait for, and the waits by rank, step and the rank waited for."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import pyarrow.compute as pc

from pyprof.command.json_schema import Record, doc
from pyprof.prof.ranks.collective_kinds import CollectiveKind, collective_kinds
from pyprof.prof.ranks.expert_load import ExpertLoad, expert_load
from pyprof.prof.ranks.job_path import JobPath
from pyprof.prof.ranks.merged_ranks import Ranks, ranks_of
from pyprof.prof.ranks.rank_clocks import Clock, clocks
from pyprof.prof.ranks.rank_tables import rank_tables
from pyprof.prof.ranks.slow_ranks import (
    HostWork,
    SlowRank,
    Waits,
    later,
    later_steps,
    mean_step_ns,
    slow_ranks,
    steps_counted,
    steps_of,
    unprofiled_step_ns,
    waits,
)
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Table


class Wait(Record):
    """How long one rank waits for another."""

    rank: Annotated[int, doc("the one that waits")]
    last: Annotated[int, doc("the one that comes last")]
    held_ns: Annotated[float, doc("time per step in which its GPU does nothing else")]


class Communication(Record):
    """The time of communication, per step and rank."""

    ns: Annotated[float, doc("in which communication ran, each instant counted once")]
    exposed_ns: Annotated[float, doc("of that, the time in which nothing else ran on the GPU")]
    held_ns: Annotated[float | None, doc("of exposed_ns, the wait for other ranks; null: not known")]


class Bubble(Record):
    """How long a rank of a pipeline waits for its neighbours' data."""

    rank: Annotated[int, doc("its number")]
    ns: Annotated[float, doc("time per step in sends and receives, while its GPU does nothing else")]
    work_ns: Annotated[float, doc("time per step in which its GPU works")]


class Pace(Record):
    """The ranks of a job, and who waits for whom."""

    ranks: Annotated[list[int], doc("numbers of the ranks")]
    steps: Annotated[int, doc("steps per capture; 0: none are marked, and amounts per step are those per capture")]
    step_ns: Annotated[float, doc("the mean step of all ranks, without each one's first")]
    unprofiled_ns: Annotated[float | None, doc("the mean step without the profiler, where it was timed before")]
    known: Annotated[bool, doc("whether all ranks of some communicator are here with the same calls")]
    slow: Annotated[list[SlowRank], doc("ranks that others wait for, the most waited for first")]
    waits: Annotated[Waits, doc("how long each rank waited for others in each step")]
    pairs: Annotated[list[Wait], doc("who waits for whom, the longest first")]
    clocks: Annotated[list[Clock], doc("each rank's clock against the first rank's, by the ends of collectives")]
    communication: Annotated[Communication | None, doc("null: no communication in the capture")]
    bubbles: Annotated[list[Bubble], doc("of the ranks that send to each other and receive, the longest first")]
    collectives: Annotated[list[CollectiveKind], doc("by kind, the longest first")]
    experts: Annotated[ExpertLoad | None, doc("load of the ranks of a mixture of experts; null: none, or not known")]
    path: Annotated[JobPath | None, doc("the critical path across ranks; null: they were not replayed together")]


def pace(job: Ranks, path: JobPath | None = None) -> Pace:
    """The pace of a job's ranks. ``path``: across them, where they were replayed."""
    marked = bool(job.tables.steps["step"].null_count < len(job.tables.steps))
    return Pace(
        ranks=job.numbers,
        steps=steps_of(job) if marked else 0,
        step_ns=mean_step_ns(job),
        unprofiled_ns=unprofiled_step_ns(job),
        known=len(job.waits) > 0,
        slow=slow_ranks(job, None if path is None else host_work(path)),
        waits=waits(job),
        pairs=_pairs(job),
        clocks=clocks(job.clocks, job.numbers),
        communication=_communication(job),
        bubbles=_bubbles(job),
        collectives=collective_kinds(job),
        experts=expert_load(job),
        path=path,
    )


def pace_of_table(table: Table, annotation: Annotation, path: JobPath | None = None) -> Pace | None:
    """The pace of the ranks in a kernel table; None if it has fewer than two."""
    rank = table.ints("rank")
    if len(np.unique(rank[rank != NULL])) < 2:
        return None
    return pace(ranks_of(rank_tables(table, annotation)), path)


def host_work(path: JobPath) -> dict[int, HostWork]:
    return {host.rank: HostWork(host.host_ns, host.pace, host.operations) for host in path.hosts}


def _pairs(job: Ranks) -> list[Wait]:
    rows = job.waits.filter(later(job, job.waits))
    sums = rows.group_by(["rank", "last"]).aggregate([("held_ns", "sum")]).to_pylist()
    steps = steps_counted(job)
    found = [Wait(rank=row["rank"], last=row["last"], held_ns=row["held_ns_sum"] / steps) for row in sums]
    return sorted((each for each in found if each.held_ns > 0), key=lambda each: (-each.held_ns, each.rank, each.last))


def _communication(job: Ranks) -> Communication | None:
    steps = later_steps(job)
    ns, exposed = (float(pc.mean(steps[name]).as_py() or 0.0) for name in ("comm_ns", "exposed_ns"))
    waited = pc.sum(job.waits.filter(later(job, job.waits))["held_ns"]).as_py()
    each = max(len(steps), 1)
    return Communication(ns=ns, exposed_ns=exposed, held_ns=None if waited is None else waited / each) if ns else None


def _bubbles(job: Ranks) -> list[Bubble]:
    rows = job.waits.filter(pc.and_(later(job, job.waits), job.waits["two"]))
    held = rows.group_by("rank").aggregate([("held_ns", "sum")]).to_pylist()
    works = later_steps(job).group_by("rank").aggregate([("work_ns", "mean")]).to_pylist()
    work = {row["rank"]: row["work_ns_mean"] for row in works}
    found = [
        Bubble(rank=row["rank"], ns=row["held_ns_sum"] / steps_counted(job), work_ns=work[row["rank"]]) for row in held
    ]
    return sorted(found, key=lambda each: (-each.ns, each.rank))
