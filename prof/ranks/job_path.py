"""On which ranks a job's step time lies, and what the step would be if one rank were like the others.

Both come from the replay of some ranks together (``joint_run``). The critical path goes from rank to rank: from the end
of a collective to the rank that came last to it. The step is taken without the profiler (``without_profiler``), whose
cost may differ between ranks. So it is computed twice, with each host as fast as it was recorded and with all as fast
as the fastest, and the intervals span both. Where ranks are equal, each of them comes last by chance at times. What the
step would gain if another rank did not is the part of the gain that is chance, and the interval has it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyprof.errors import PyprofError
from pyprof.prof.ranks.joint_run import (
    JointRun,
    as_crowded,
    crowded,
    host_times,
    joint_run,
    mean_step,
    paces,
    step_ends,
    uncrowded,
    unwaited,
    with_even_hosts,
)
from pyprof.prof.ranks.pace_records import PATH_KINDS, HostPace, JobPath, LikeOthers, OnRank
from pyprof.prof.replay.critical_path import CLASSES, PathClass, critical_path
from pyprof.prof.replay.replayed_run import Replayed
from pyprof.prof.replay.tasks import CALL, HOST, WORK
from pyprof.prof.replay.without_profiler import ProfilerRemoved, without_profiler
from pyprof.prof.timing.input_data import input_data
from pyprof.prof.timing.profiler_cost import unprofiled
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.kinds import NCCL, kinds
from pyprof.table.columns import NULL, Bools, HostTable, Ints, Table

MOST_ALIKE = 4  # ranks of which it is computed what the step would be without their delays
LEAST_BESIDES = 2  # other ranks of which it is computed, too: what it would gain without them is chance
LEAST_SAVED = 0.02  # of a step: what is less is not worth a sentence
# of the time that kernels are thought to lose beside waiting collectives: six jobs had 20 to 28% where 22% was expected
NOT_CROWDING = 0.25
_KIND_OF: dict[PathClass, str] = {
    "host": "host",
    "kernels": "kernels",
    "copies": "copies",
    "communication": "communication",
    "synchronisation": "host",
    "latency": "latency",
}


class _Run(NamedTuple):
    """One of the two ways to remove the profiler's cost."""

    removed: ProfilerRemoved
    step_ns: float  # with kernels that are longer beside waits
    alike_ns: dict[int, float]  # per rank, the step that the others have without waiting for it
    at_most_ns: dict[int, float]  # the same if kernels beside waits lost less time to them


def job_path(
    table: Table, host: HostTable, name: str, of_ranks: int, within_ns: float | None, slow: Sequence[int] = ()
) -> JobPath | None:
    """The path of the ranks in these tables, which have one clock; None if they cannot be replayed together.

    ``slow``: ranks that others wait for.
    """
    annotation = annotate(table)
    try:
        recorded = joint_run(table, annotation, host, name)
    except PyprofError:  # no launches, lost records, collectives in a circle
        return None
    ranks = sorted(set(recorded.rank_of_work.tolist()) - {NULL})
    if len(ranks) < 2 or not recorded.met.any():
        return None
    pace, free = paces(recorded), uncrowded(recorded)
    removed = [without_profiler(each.replayed) for each in (free, with_even_hosts(free, pace))]
    communicates = kinds(table, annotation).among(NCCL)
    on = _on_ranks(crowded(free.with_tasks(removed[0][0])), communicates, ranks)
    late = [*slow, *(each.rank for each in on if each.rank is not None)]
    runs, alike = _alike(free, removed, late, ranks)
    before, replayed = unprofiled(table.measured), recorded.replayed
    steps = sorted(set(table.ints("step").tolist()) - {NULL})
    return JobPath(
        ranks=ranks,
        of_ranks=of_ranks,
        steps=steps,
        recorded_ns=replayed.recorded_ns,
        replayed_ns=replayed.replayed_ns,
        within_ns=within_ns,
        measured_ns=None if before is None else before.step_ns,
        step_ns=runs[0].step_ns,
        low_ns=min(run.step_ns * run.removed.low_ns / run.removed.step_ns for run in runs),
        high_ns=max(run.step_ns * run.removed.high_ns / run.removed.step_ns for run in runs),
        on=on,
        captured=_on_ranks(recorded, communicates, ranks),
        like_others=alike,
        hosts=[_host(recorded, rank, pace.get(rank, 1.0), max(len(steps), 1)) for rank in ranks],
    )


def _host(joint: JointRun, rank: int, pace: float, steps: int) -> HostPace:
    ns = float(host_times(joint)[joint.rank_of_call == rank].sum()) / steps
    return HostPace(rank=rank, pace=pace, host_ns=ns, operations=float((joint.rank_of_work == rank).sum()) / steps)


def _alike(
    free: JointRun, removed: Sequence[tuple[Replayed, ProfilerRemoved]], late: Sequence[int], ranks: Sequence[int]
) -> tuple[list[_Run], list[LikeOthers]]:
    """The runs, and what the step would be without the delays of the first of the ranks that are ``late``."""
    meet = set(free.rank_of_work[free.symmetric].tolist())
    first = [rank for rank in dict.fromkeys(late) if rank in meet][:MOST_ALIKE]
    besides = [rank for rank in ranks if rank in meet and rank not in first][:LEAST_BESIDES]
    runs = [_run(free.with_tasks(run), figures, ranks, [*first, *besides]) for run, figures in removed]
    return runs, sorted((_like_others(runs, rank) for rank in first), key=lambda each: each.step_ns)


def _run(free: JointRun, removed: ProfilerRemoved, ranks: Sequence[int], without: Sequence[int]) -> _Run:
    """The run without the profiler's cost, and what it is for the others of each rank of ``without``."""
    alike, at_most = {}, {}
    for rank in without:
        others, cut = [each for each in ranks if each != rank], unwaited(free, rank)
        alike[rank] = mean_step(crowded(cut), others)
        at_most[rank] = max(mean_step(as_crowded(cut, NOT_CROWDING), others), alike[rank])
    return _Run(removed, mean_step(crowded(free), ranks), alike, at_most)


def _like_others(runs: Sequence[_Run], rank: int) -> LikeOthers:
    """The step without waits for the rank, for both paces of the hosts, with and without what may be chance."""
    steps, ends = [], []
    for run in runs:
        gains = [run.step_ns - ns for other, ns in run.alike_ns.items() if other != rank]
        chance = max(min(gains, default=0.0), 0.0)
        step = run.alike_ns[rank]
        steps += [step, min(step + chance, run.step_ns)]
        at_most = min(run.at_most_ns[rank] + chance, run.step_ns)
        ends += [step * run.removed.low_ns / run.removed.step_ns, at_most * run.removed.high_ns / run.removed.step_ns]
    return LikeOthers(
        rank=rank,
        step_ns=(min(steps) + max(steps)) / 2,
        low_ns=min(ends),
        high_ns=max(ends),
        saves=max(ends) <= (1 - LEAST_SAVED) * min(run.step_ns for run in runs),
    )


def _on_ranks(joint: JointRun, communicates: Bools, ranks: Sequence[int]) -> list[OnRank]:
    """The path's time on each rank, per step after the first one; of the whole run if there is one."""
    replayed, tasks = joint.replayed, joint.replayed.tasks
    path = critical_path(replayed, communicates)
    begin = float(tasks.release.min())
    finish = step_ends(joint, ranks)
    low, high = (finish[0], finish[-1]) if len(finish) > 1 else (begin, float(replayed.ends.max()))
    ends = np.clip(begin + np.cumsum(np.stack([path.lag, path.own], axis=1).ravel()), low, high)
    took = np.diff(ends, prepend=low).reshape(-1, 2) / max(len(finish) - 1, 1)
    rank, data = _ranks_of(joint, path.task), _before_data(joint)
    on_host = np.isin(tasks.kind[path.task], (HOST, CALL))
    late = on_host & data[np.where(on_host, tasks.item[path.task], 0)]
    found: dict[int, dict[str, float]] = {}
    for column, classes in ((0, path.lag_class), (1, path.own_class)):
        for number, what, ns, waits in zip(
            rank.tolist(), classes.tolist(), took[:, column].tolist(), late, strict=True
        ):
            kind = _KIND_OF[CLASSES[what]]
            sums = found.setdefault(number, dict.fromkeys(PATH_KINDS, 0.0))
            sums["data" if kind == "host" and waits else kind] += ns
    rows = [OnRank(rank=None if number == NULL else number, **sums) for number, sums in found.items()]
    return sorted(rows, key=lambda row: (row.rank is None, -row.ns))


def _ranks_of(joint: JointRun, task: Ints) -> Ints:
    """The rank of each task; NULL for collectives that several have in common."""
    tasks = joint.replayed.tasks
    on_host, item = np.isin(tasks.kind[task], (HOST, CALL)), tasks.item[task]
    of_calls = joint.rank_of_call[np.where(on_host, item, 0)]
    at = np.where(on_host, 0, item)
    together = joint.met[at] & (tasks.kind[task] == WORK)  # the arrival of each is its rank's own
    return np.where(on_host, of_calls, np.where(together, NULL, joint.rank_of_work[at]))


def _before_data(joint: JointRun) -> Bools:
    """The calls that launch copies of input data, and those before them since the thread's last launch."""
    run = joint.replayed.run
    table = joint.replayed.table
    launches = run.launching(np.ones(len(table), bool))
    data = run.launching(input_data(table))
    order = np.argsort(run.calls.thread, kind="stable")
    found = np.zeros(len(order), bool)
    thread, next_data = NULL, False
    for call in order[::-1].tolist():
        if run.calls.thread[call] != thread:
            thread, next_data = int(run.calls.thread[call]), False
        next_data = bool(data[call]) if launches[call] else next_data
        found[call] = next_data
    return found
