"""Which ranks and steps of a job are replayed together, and their tables: a bounded part of any job.

A replay holds all operations and calls of its ranks, so thousands of ranks are not replayed. The critical path goes to
the rank that comes last to a collective. So the ranks that others wait for are replayed, and some others beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.parse.merge import apart, host_apart
from pyprof.prof.job.partition import Partition
from pyprof.prof.job.workers import Workers, why
from pyprof.prof.ranks.job_path import job_path
from pyprof.prof.ranks.merged_ranks import Ranks
from pyprof.prof.ranks.pace_records import JobPath
from pyprof.prof.ranks.rank_clocks import clocks
from pyprof.prof.ranks.slow_ranks import late_ranks
from pyprof.prof.replay.cut_to_steps import cut_to_steps
from pyprof.table.clock_shift import moved
from pyprof.table.columns import HostTable, MemoryTable, Table
from pyprof.table.container import read_container
from pyprof.table.kernel_names import name_wrappers
from pyprof.table.read_table import kernels_of

MOST_RANKS = 8
MOST_STEPS = 6  # of the first one only the end counts
LEAST_STEPS = 2
MOST_ROWS = 50_000  # operations of all ranks together


class _Cut(NamedTuple):
    """A rank's tables, as ``pyprof.parse.merge`` takes them."""

    table: Table
    memory: MemoryTable | None
    host: HostTable | None


class _Wanted(NamedTuple):
    folder: str
    steps: tuple[int, ...]  # empty: none are marked
    back_ns: int  # by which its clock is ahead


class PathOfJob(NamedTuple):
    path: JobPath | None  # None if fewer than two ranks can be replayed together
    warnings: list[str]  # one of each rank whose operations could not be read again


def path_of_job(pool: Workers, folder: Path, made: Sequence[Partition], ranks: Ranks) -> PathOfJob:
    """The critical path across the ranks of a job.

    Files with several ranks are left out, and ranks whose clocks nothing compares.
    """
    places = {each.ranks[0]: each for each in made if len(each.ranks) == 1}
    known = {clock.rank: clock for clock in clocks(ranks.clocks, ranks.numbers) if clock.ahead_ns is not None}
    slow = [each.rank for each in late_ranks(ranks)]
    candidates = [rank for rank in ranks.numbers if rank in places and rank in known]
    if len(candidates) < 2:
        return PathOfJob(None, [])
    steps = _steps(ranks.tables.steps)
    chosen, window = _bounded(_by_weight(candidates, slow, ranks.waits), places, steps)
    chosen = sorted(chosen)
    wanted = [_Wanted(places[rank].folder, window, round(known[rank].ahead_ns or 0.0)) for rank in chosen]
    found = dict(pool.each(partial(_read_cut, str(folder)), wanted))
    errors = {place: result for place, result in found.items() if isinstance(result, BaseException)}
    cuts = [found[place] for place in range(len(wanted)) if place not in errors]
    warnings = [
        f"{places[chosen[place]].file}: rank {chosen[place]} is not in the critical path: {why(errors[place])}"
        for place in sorted(errors)
    ]
    if len(cuts) < 2:
        return PathOfJob(None, warnings)
    table, host = name_wrappers(Table.concat(apart([each.table for each in cuts]))), host_apart(cuts)
    read = [rank for place, rank in enumerate(chosen) if place not in errors]
    within = max(known[rank].within_ns or 0.0 for rank in read)
    path = None if host is None else job_path(table, host, str(folder), len(ranks.numbers), within, slow)
    return PathOfJob(path, warnings)


def _steps(table: pa.Table) -> list[tuple[int, float]]:
    """The steps that the captures mark, in order, and how long each takes on average."""
    means = table.filter(pc.is_valid(table["step"])).group_by("step").aggregate([("span_ns", "mean")])
    return sorted(zip(means["step"].to_pylist(), means["span_ns_mean"].to_pylist(), strict=True))


def _by_weight(candidates: Sequence[int], slow: Sequence[int], waits: pa.Table) -> list[int]:
    """The ranks in the order in which they are taken: those that others wait for, then some of all parts of the job."""
    sums = waits.group_by("last").aggregate([("wait_ns", "sum")])
    waited = dict(zip(sums["last"].to_pylist(), sums["wait_ns_sum"].to_pylist(), strict=True))
    late = sorted((rank for rank in candidates if waited.get(rank)), key=lambda rank: -waited[rank])
    spread = [candidates[len(candidates) * part // MOST_RANKS] for part in range(MOST_RANKS)]
    first = [rank for rank in slow if rank in set(candidates)][: MOST_RANKS // 2]
    order = [*first, *late[: MOST_RANKS // 2], *spread, *late, *candidates]
    return list(dict.fromkeys(order))


def _bounded(
    order: Sequence[int], places: dict[int, Partition], steps: Sequence[tuple[int, float]]
) -> tuple[list[int], tuple[int, ...]]:
    """As many ranks, and steps in a row of about the mean length, as the bounds allow; at least two of each.

    Captures without steps are taken whole.
    """
    count = min(len(steps), MOST_STEPS)
    ranks = list(order[:MOST_RANKS])

    def rows() -> float:
        share = count / len(steps) if steps else 1.0
        return share * sum(places[rank].rows for rank in ranks)

    while rows() > MOST_ROWS and (len(ranks) > 2 or count > LEAST_STEPS):
        if count > LEAST_STEPS + 1 or len(ranks) == 2:
            count -= 1
        else:
            ranks.pop()
    if len(steps) <= count:
        return ranks, tuple(number for number, _ in steps)
    spans = np.array([ns for _, ns in steps])
    means = np.convolve(spans[1:], np.ones(count - 1) / (count - 1), "valid")  # the first only leads in
    first = int(np.abs(means - spans[1:].mean()).argmin())
    return ranks, tuple(number for number, _ in steps[first : first + count])


def _read_cut(job: str, wanted: _Wanted) -> _Cut:
    """The wanted steps of a rank by the job's clock. Runs on a worker."""
    place = Path(job, f"{wanted.folder}.pyprof")
    container = read_container(place)
    table, host = kernels_of(container, str(place)), container.host
    if host is None:
        return _Cut(table, None, None)
    if wanted.steps:
        found = cut_to_steps(table, host, np.array(wanted.steps, np.int64))
        if found is not None:
            rows, host = found
            table = table.take(rows)
    return _Cut(moved(table, -wanted.back_ns), None, moved(host, -wanted.back_ns))
