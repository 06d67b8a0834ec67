"""Several ranks replayed as one run: a collective's transfer begins when the last of its ranks has arrived.

The tables hold the ranks by one clock. Each rank's host and GPU are tasks of their own, joined by the collectives that
they have in common (``prof/replay/tasks.py``). In a transfer between two ranks, the receiver waits for the sender. The
sender waits for the receiver only if it is seen to: NCCL takes messages of many megabytes into buffers of the receiver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pyprof.prof.ranks.merged_ranks import WAITED
from pyprof.prof.ranks.rank_tables import TWO, collective_rows
from pyprof.prof.replay.recorded_run import ROW_KINDS
from pyprof.prof.replay.replayed_run import Replayed, replay
from pyprof.prof.replay.tasks import ARRIVAL, CALL, HOST, MEETING, WORK
from pyprof.prof.replay.without_profiler import with_hosts_at
from pyprof.prof.timing.blocking_copies import call_places
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.collective_records import Message, messages
from pyprof.table.columns import NULL, Bools, Floats, HostTable, Ints, Table, distinct, offsets_of

LEAST_CALLS = 4  # of a place on each rank, whose medians are compared
ROUNDS = 2  # of lengthening kernels beside waits, which moves the waits
MOST_OCCUPIED = 0.5  # of a GPU by a waiting collective: NCCL takes at most 64 blocks


@dataclass(frozen=True)
class JointRun:
    """The replay of some ranks together. ``rank`` columns are those of the run's threads and of its operations."""

    replayed: Replayed
    rank_of_call: Ints
    rank_of_work: Ints
    meetings: list[Ints]  # the operations of each collective whose ranks wait for each other
    met: Bools  # per operation: whether it is a collective or transfer that was joined with those of other ranks
    symmetric: Bools  # per operation: whether that is a collective from all ranks to all ranks
    crowding: Floats  # per operation: ns that ``uncrowded`` has taken from it
    free_of: int = NULL  # a rank that nobody waits for

    def with_tasks(self, replayed: Replayed) -> JointRun:
        return replace(self, replayed=replayed)


def joint_run(table: Table, annotation: Annotation, host: HostTable, name: str) -> JointRun:
    """Replay the ranks of a table together. Raises InputError or PyprofError if they cannot be replayed."""
    meetings, handed = _meetings(table, annotation)
    replayed = replay(table, host, name, meetings, handed)
    run = replayed.run
    pids, first = np.unique(table.ints("pid"), return_index=True)
    rank = dict(zip(pids.tolist(), table.ints("rank")[first].tolist(), strict=True))
    of_threads = np.array([rank.get(pid, NULL) for pid, _ in run.threads], np.int64)
    place = np.full(len(table), -1, np.int64)
    place[run.work.row] = np.arange(len(run.work))
    joined, symmetric = np.zeros((2, len(run.work)), bool)
    for rows in (*meetings, *handed):
        joined[place[rows]] = True
        symmetric[place[rows]] = not _is_transfer(table, int(rows[0]))
    of_work = table.ints("rank")[run.work.row]
    places = [place[rows] for rows in meetings]
    none = np.zeros(len(run.work))
    return JointRun(replayed, of_threads[run.calls.thread], of_work, places, joined, symmetric, none)


def _meetings(table: Table, annotation: Annotation) -> tuple[list[Ints], list[Ints]]:
    """The rows of collectives that two or more ranks have, and of transfers whose sender did not wait."""
    start, duration = table.ints("start"), np.maximum(table.ints("kDuration"), 0)
    meetings, handed = [], []
    for collective, found in collective_rows(table, annotation).items():
        rows = np.array(list(found.values()), np.int64)
        together = start[rows].max() < (start[rows] + duration[rows]).min()
        if len(rows) < 2 or len(set(table.ints("pid")[rows].tolist())) < 2:
            continue
        if collective[-1] != TWO:
            meetings += [rows] if together else []  # only of damaged files, or of clocks that are not known
        elif together and len(rows) == 2:  # more only in damaged files
            short, long = rows[np.argsort(duration[rows], kind="stable")]
            if _receives(table, int(long)):
                handed.append(np.array([long, short]))
            elif duration[long] >= WAITED * duration[short]:  # of two that take about as long, none waited
                meetings.append(rows)
    return meetings, handed


def _is_transfer(table: Table, row: int) -> bool:
    return bool({message.op for message in _messages(table, row)} & {"send", "recv"})


def _receives(table: Table, row: int) -> bool:
    return any(message.op == "recv" for message in _messages(table, row))


def _messages(table: Table, row: int) -> tuple[Message, ...]:
    comm = table.coded("comm")
    return messages(comm.values[comm.codes[row]]) if comm.codes[row] >= 0 else ()


def step_ends(joint: JointRun, ranks: Sequence[int]) -> Floats:
    """When each step that the capture marks ends in the replay, on these ranks together; ns."""
    replayed = joint.replayed
    number = replayed.table.ints("step")[replayed.run.work.row]
    chosen = np.isin(joint.rank_of_work, list(ranks)) & (number != NULL)
    steps, group = np.unique(number[chosen], return_inverse=True)
    finish = np.full(len(steps), np.iinfo(np.int64).min)
    np.maximum.at(finish, group, replayed.work_end[chosen])
    return np.maximum.accumulate(finish).astype(np.float64)


def mean_step(joint: JointRun, ranks: Sequence[int]) -> float:
    """The mean step of these ranks after the first one, which may begin in the middle; of a single one, their run."""
    finish = step_ends(joint, ranks)
    if len(finish) > 1:
        return float(np.diff(finish).mean())
    ends = joint.replayed.work_end[np.isin(joint.rank_of_work, list(ranks))]
    return float(ends.max(initial=joint.replayed.run.begin()) - joint.replayed.run.begin())


def unwaited(joint: JointRun, rank: int) -> JointRun:
    """The run in which nobody waits for one rank: it comes to each collective no later than the last of the others.

    So it would be if that rank were like the median of the others, who wait for each other as before. Transfers between
    two ranks stay: their waits are the schedule of a pipeline.
    """
    tasks = joint.replayed.tasks
    arrives = np.full(len(tasks), NULL, np.int64)
    of_work = np.isin(tasks.kind, (ARRIVAL, WORK))
    arrives[of_work] = joint.rank_of_work[tasks.item[of_work]]
    target = np.repeat(np.arange(len(tasks)), np.diff(tasks.first))
    together = np.zeros(len(tasks), bool)
    together[of_work] = joint.symmetric[tasks.item[of_work]]
    met = (tasks.cause == MEETING) & together[target]
    kept = ~met | (arrives[tasks.source] != rank) | (arrives[target] == rank)
    first = offsets_of(np.bincount(target[kept], minlength=len(tasks)))
    columns = {name: getattr(tasks, name)[kept] for name in ("source", "lag", "cause")}
    cut = joint.replayed.with_tasks(replace(tasks, first=first, **columns))
    return replace(joint, replayed=cut, free_of=rank)


def uncrowded(joint: JointRun) -> JointRun:
    """The run with the durations that kernels would have if no collective's kernel waited beside them.

    A collective's kernel occupies a multiprocessor per block from its begin, also while it waits, and others have only
    the rest: with 24 blocks on the 132 of an H200 they should take 132 / 108 = 1.22 times as long. Beside waits in six
    jobs of two H200 (docs/explanation/replay.md), kernels took 1.20 to 1.28 times as long as on the rank that was late.
    """
    work = joint.replayed.run.work
    waited = [(rows, work.start[rows]) for rows in joint.meetings]
    crowding = _beside(joint, waited, work.start, work.end, lambda share: share)
    return replace(_with_longer(joint, -crowding), crowding=crowding)


def as_crowded(joint: JointRun, share: float) -> JointRun:
    """The run with this share of what ``uncrowded`` has taken from the kernels."""
    return _with_longer(joint, share * joint.crowding)


def crowded(joint: JointRun) -> JointRun:
    """The run with kernels that take longer beside collectives that wait in it, where ``uncrowded`` began it."""
    found = joint
    for _ in range(ROUNDS):
        replayed = found.replayed
        start = replayed.work_start
        waited = [(rows, start[rows]) for rows in joint.meetings]
        longer = _beside(joint, waited, start, replayed.work_end, lambda share: share / (1 - share))
        found = _with_longer(joint, longer)
    return found


def _beside(
    joint: JointRun,
    waited: Sequence[tuple[Ints, Ints]],
    start: Ints,
    end: Ints,
    weight: Callable[[Floats], Floats],
) -> Floats:
    """Per operation, the time beside waiting collectives of its rank, weighted by what they occupy of the GPU.

    ``waited``: the operations of each collective and when they arrive.
    """
    share = weight(np.minimum(_occupied(joint.replayed.table), MOST_OCCUPIED))[joint.replayed.run.work.row]
    spans: dict[int, list[tuple[int, int, float]]] = {}
    for rows, arrives in waited:
        waiting = joint.rank_of_work[rows] != joint.free_of
        last = int(arrives[waiting].max(initial=NULL))
        for row, arrived in zip(rows[waiting].tolist(), arrives[waiting].tolist(), strict=True):
            if arrived < last:
                spans.setdefault(int(joint.rank_of_work[row]), []).append((arrived, last, float(share[row])))
    found = np.zeros(len(start))
    kernel = ~joint.met & (joint.replayed.run.work.kind == ROW_KINDS.index("kernel"))
    for rank, own in spans.items():
        beside = kernel & (joint.rank_of_work == rank)
        found[beside] = _shares_between(own, start[beside], end[beside])
    return found


def _with_longer(joint: JointRun, longer: Floats) -> JointRun:
    """The run with operations that take so much longer, ns."""
    tasks = joint.replayed.tasks
    more = np.where(tasks.kind == WORK, longer[np.where(tasks.kind == WORK, tasks.item, 0)], 0.0).astype(np.int64)
    return joint.with_tasks(joint.replayed.with_tasks(replace(tasks, duration=np.maximum(tasks.duration + more, 0))))


def _shares_between(spans: Sequence[tuple[int, int, float]], start: Ints, end: Ints) -> Floats:
    """For each time, the sum of what the spans occupy in it: ns times share."""
    since, until, share = (np.array(column) for column in zip(*spans, strict=True))
    times, change = np.concatenate([since, until]), np.concatenate([share, -share])
    order = np.argsort(times, kind="stable")
    level = np.cumsum(change[order])[:-1]
    total = np.concatenate([[0.0], np.cumsum(level * np.diff(times[order]))])
    until_end, until_start = (np.interp(each, times[order], total) for each in (end, start))
    between: Floats = until_end - until_start
    return between


def _occupied(table: Table) -> Floats:
    """The share of its GPU's multiprocessors that each row's kernel has a block on; 0 where either is not recorded."""
    grid, info = table.coded("grid"), table.coded("gpuInfo")
    blocks = np.array([*map(_blocks, grid.values), 0.0])[grid.codes]
    units = np.array([*map(_multiprocessors, info.values), np.inf])[info.codes]
    share: Floats = np.minimum(blocks / units, 1.0)
    return share


def _blocks(grid: str) -> float:
    sizes = [int(size) for size in re.findall(r"\d{1,10}", grid)]
    return float(np.prod(sizes[:3], dtype=np.float64)) if sizes else 0.0


def _multiprocessors(info: str) -> float:
    found = re.search(r'"smCount": (\d{1,6})', info)
    return float(found[1]) if found and int(found[1]) else np.inf


def paces(joint: JointRun) -> dict[int, float]:
    """How fast each rank's host makes the same calls at the same places: its time as a multiple of the fastest one's.

    Medians per place leave out pauses, which a few calls have. Of the places' ratios the middle one by time is taken.
    """
    replayed = joint.replayed
    took = host_times(joint)
    _, place = call_places(replayed.host, replayed.run.calls.row)
    api = replayed.host.coded("name").take(replayed.run.calls.row).codes.astype(np.int64)
    keys, group = distinct(place, api)
    ranks = sorted(set(joint.rank_of_call.tolist()) - {NULL})
    medians, calls = np.zeros((2, len(ranks), len(keys)))
    for number, rank in enumerate(ranks):
        rows = np.flatnonzero(joint.rank_of_call == rank)
        medians[number], calls[number] = _medians(took[rows], group[rows], len(keys))
    known = (calls.min(axis=0) >= LEAST_CALLS) & (medians.min(axis=0) > 0)
    if not known.any():
        return dict.fromkeys(ranks, 1.0)
    least = medians[:, known].min(axis=0)  # not their mean: a pause of one rank would weigh more than all calls
    weight = calls[:, known].min(axis=0) * least
    found = [_weighted_median(medians[number, known] / least, weight) for number in range(len(ranks))]
    return {rank: pace / min(found) for rank, pace in zip(ranks, found, strict=True)}


def host_times(joint: JointRun) -> Floats:
    """Per call, the host's work before it and in it, ns."""
    tasks = joint.replayed.tasks
    return (tasks.duration[tasks.of(HOST)] + tasks.duration[tasks.of(CALL)]).astype(np.float64)


def _medians(values: Floats, group: Ints, groups: int) -> tuple[Floats, Ints]:
    """The median of each group's values, 0 for none, and their number."""
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=groups)
    first = offsets_of(count)[:-1]
    at = np.minimum(first + count // 2, max(len(values) - 1, 0))
    return np.where(count > 0, values[order][at] if len(values) else 0.0, 0.0), count


def _weighted_median(values: Floats, weight: Floats) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def with_even_hosts(joint: JointRun, pace: dict[int, float]) -> JointRun:
    """The run with the hosts of all ranks as fast as the fastest one; pauses of the host stay."""
    share = np.array([1 / pace.get(rank, 1.0) for rank in joint.rank_of_call.tolist()])
    return joint.with_tasks(with_hosts_at(joint.replayed, share))
