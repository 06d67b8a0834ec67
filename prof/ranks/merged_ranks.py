"""The ranks' tables as those of a job. What is kept hardly grows with the number of ranks.

In a collective from all ranks to all ranks the kernels end together, so the rank whose kernel takes least came last,
and the others' waiting time is the difference (``prof/timing/stragglers.py``). Only durations are needed: the clocks of
several machines need not agree. Collectives of two ranks are the same one if group, step, position and op agree, and if
the ranks called the same sequence of ops in this group and step.

``job_tables`` makes a job's tables of some ranks, ``merged`` those of several: in any order, and in a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import pyarrow as pa
import pyarrow.compute as pc

from pyprof.prof.ranks.rank_clocks import compared
from pyprof.prof.ranks.rank_tables import COLLECTIVE, COLLECTIVES, PLACE_KEY, TWO, WORK_KEY, RankTables

# A kernel that takes so many times as long as its partner's waited for it. On two H200, transfers of 16 MiB take 34 to
# 56 µs with neither waiting; of those that waited 2 ms or longer, both kernels end within 14 µs.
WAITED = 4
Aggregates = tuple[tuple[str, str], ...]
_COLLECTIVE: Aggregates = (
    ("arrived", "sum"),  # ranks that have it
    ("total_ns", "sum"),
    ("last", "first"),  # the rank that came last
    ("least_ns", "first"),
    ("last_end_ns", "first"),  # when it ended, by that rank's clock
    ("longest_ns", "max"),
    ("alone_ns", "sum"),
    ("within", "max"),
    ("size", "max"),
    ("wire", "max"),
    ("read", "sum"),
    ("most_read", "max"),
    ("written", "sum"),
    ("most_written", "max"),
)
_WORK: Aggregates = (
    ("present", "sum"),  # ranks that have it
    ("kernels", "sum"),
    ("ns", "sum"),
    ("flops", "sum"),
    ("bytes", "sum"),
    ("most_ns", "first"),
    ("most_rank", "first"),
)
_IDLE: Aggregates = (
    ("present", "sum"),
    ("gaps", "sum"),
    ("ns", "sum"),
    ("most_ns", "first"),
    ("most_rank", "first"),
)


@dataclass(frozen=True)
class JobTables:
    """The tables of some ranks of a job."""

    steps: pa.Table  # a row per rank and step, as in RankTables
    collectives: pa.Table  # a row per collective
    work: pa.Table  # a row per op, layer, phase and kind, and the rank that spent most on it
    idle: pa.Table  # a row per place in the program, and the rank that idled most before it


@dataclass(frozen=True)
class Ranks:
    """The ranks of a job: their merged tables, who waited for whom, and the tables of each on request."""

    numbers: list[int]  # of the ranks, ascending
    tables: JobTables
    waits: pa.Table  # as WAITS
    clocks: pa.Table  # as rank_clocks.CLOCKS
    of: Callable[[Sequence[int]], RankTables]  # the tables of some ranks
    files: Mapping[int, str] = field(default_factory=dict)  # the capture of each rank, where each has its own


def job_tables(ranks: RankTables) -> JobTables:
    """The job's tables of some ranks."""
    ns = {name: getattr(ranks, name)["ns"] for name in ("collectives", "work", "idle")}
    one = {name: pa.array([1] * len(values), pa.int64()) for name, values in ns.items()}
    collectives = ranks.collectives.drop_columns(["rank", "ns", "end_ns"])
    for name, values in {
        "arrived": one["collectives"],
        "total_ns": ns["collectives"],
        "last": ranks.collectives["rank"],
        "least_ns": ns["collectives"],
        "last_end_ns": ranks.collectives["end_ns"],
        "longest_ns": ns["collectives"],
        "most_read": ranks.collectives["read"],
        "most_written": ranks.collectives["written"],
    }.items():
        collectives = collectives.append_column(name, values)
    by_place = {}
    for name in ("work", "idle"):
        table = getattr(ranks, name)
        by_place[name] = (
            table.drop_columns(["rank"])
            .append_column("present", one[name])
            .append_column("most_ns", ns[name])
            .append_column("most_rank", table["rank"])
        )
    return merged([JobTables(ranks.steps, collectives, **by_place)])


def merged(parts: Sequence[JobTables]) -> JobTables:
    """The tables of several sets of ranks as one; of equal ranks the one of the lowest number is named."""
    whole = {each.name: pa.concat_tables([getattr(part, each.name) for part in parts]) for each in fields(JobTables)}
    most: list[tuple[str, str]] = [("most_ns", "descending"), ("most_rank", "ascending")]
    return JobTables(
        steps=whole["steps"],
        collectives=_by(
            whole["collectives"], COLLECTIVE, _COLLECTIVE, [("least_ns", "ascending"), ("last", "ascending")]
        ),
        work=_by(whole["work"], WORK_KEY, _WORK, most),
        idle=_by(whole["idle"], PLACE_KEY, _IDLE, most),
    )


def _by(table: pa.Table, key: Sequence[str], wanted: Aggregates, order: list[tuple[str, str]]) -> pa.Table:
    """One row per key. ``order`` says which row's values "first" keeps."""
    ordered = table.take(pc.sort_indices(table, order))
    found = ordered.group_by(list(key), use_threads=False).aggregate(list(wanted))  # threads would lose the order
    named = {f"{name}_{how}": name for name, how in wanted}
    found = found.rename_columns([named.get(name, name) for name in found.column_names])
    return found.select([*key, *(name for name, _ in wanted)])


def complete(collectives: pa.Table, job_ranks: int) -> pa.Table:
    """The collectives in which all ranks of their group are present; a group of unknown size has all of the job."""
    expected = pc.if_else(pc.equal(collectives["ranks"], 0), job_ranks, collectives["ranks"])
    together = pc.and_(pc.equal(collectives["arrived"], expected), pc.greater(collectives["arrived"], 1))
    return collectives.filter(together)


WAITS = pa.schema(
    [
        *(COLLECTIVES.field(name) for name in ("rank", "group", "ranks", "step")),
        ("two", pa.bool_()),  # a transfer between two ranks: the wait for a stage of a pipeline, for example
        ("last", pa.int64()),  # the rank that came last
        ("calls", pa.int64()),  # collectives to which it came last
        ("wait_ns", pa.int64()),  # how long `rank` waited for it there
        ("held_ns", pa.int64()),  # of that, the time in which nothing else ran on the GPU of `rank`
    ]
)


def matched(ranks: RankTables, together: pa.Table) -> pa.Table:
    """The collectives of these ranks that are complete, beside what the job says of each.

    ``together``: the job's complete collectives.
    """
    # of a job of many communicators, few concern these ranks
    together = together.filter(pc.is_in(together["group"], pc.unique(ranks.collectives["group"])))
    # a join drops rows whose key is null, so unmarked steps are -1 meanwhile
    own, job = (table.set_column(*_without_null(table)) for table in (ranks.collectives, together))
    job = job.select([*COLLECTIVE, "last", "least_ns", "last_end_ns"])
    return own.join(job, keys=list(COLLECTIVE), join_type="inner")


def clocks_of(found: pa.Table) -> pa.Table:
    """CLOCKS of matched collectives.

    A transfer between two ranks ends on each at another time, unless one waited for the other.
    """
    waited = pc.greater_equal(found["ns"], pc.multiply(found["least_ns"], WAITED))
    return compared(found.filter(pc.or_(pc.not_equal(found["op"], TWO), waited)))


def waits_of(found: pa.Table) -> pa.Table:
    """Which ranks these ranks waited for, by communicator and step, from their matched collectives.

    A kernel waits first and moves data then. Where it has run beside other work for a part of its time, the wait counts
    as held up only as far as the time without such work goes: an upper bound.
    """
    wait = pc.subtract(found["ns"], found["least_ns"])
    held = pc.min_element_wise(wait, found["alone_ns"])
    table = found.append_column("wait_ns", wait).append_column("held_ns", held)
    table = table.append_column("two", pc.equal(table["op"], TWO))
    sums = [("ns", "count"), ("wait_ns", "sum"), ("held_ns", "sum")]
    key = ["rank", "group", "ranks", "step", "two", "last"]
    summed = table.group_by(key).aggregate(sums).rename_columns([*key, "calls", "wait_ns", "held_ns"])
    step = pc.if_else(pc.equal(summed["step"], _UNMARKED), pa.scalar(None, pa.int64()), summed["step"])
    return summed.set_column(summed.column_names.index("step"), "step", step).cast(WAITS)


def ranks_of(own: RankTables) -> Ranks:
    """Ranks whose tables are all in memory."""
    numbers = sorted(pc.unique(own.steps["rank"]).to_pylist())
    tables = job_tables(own)
    found = matched(own, complete(tables.collectives, len(numbers)))
    return Ranks(numbers, tables, waits_of(found), clocks_of(found), own.of)


_UNMARKED = -(1 << 62)


def _without_null(table: pa.Table) -> tuple[int, str, pa.ChunkedArray]:
    return table.column_names.index("step"), "step", pc.fill_null(table["step"], _UNMARKED)
