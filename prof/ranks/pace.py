"""How a job's ranks keep pace: which one the others wait for, and the waits by rank, step and the rank waited for."""

from __future__ import annotations

import pyarrow.compute as pc

from pyprof.prof.ranks.collective_kinds import collective_kinds
from pyprof.prof.ranks.expert_load import expert_load
from pyprof.prof.ranks.merged_ranks import Ranks
from pyprof.prof.ranks.pace_records import Bubble, Communication, JobPath, Pace, Wait
from pyprof.prof.ranks.rank_clocks import clocks
from pyprof.prof.ranks.slow_ranks import (
    HostWork,
    later,
    later_steps,
    mean_step_ns,
    slow_ranks,
    steps_counted,
    steps_of,
    unprofiled_step_ns,
    waits,
)


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
