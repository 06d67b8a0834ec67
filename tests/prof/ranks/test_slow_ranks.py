"""Which rank others wait for, in jobs whose captures do not begin or end together."""

import numpy as np
import pytest

from pyprof.prof.ranks.joint_run import joint_run
from pyprof.prof.ranks.merged_ranks import Ranks, ranks_of
from pyprof.prof.ranks.rank_tables import rank_tables
from pyprof.prof.ranks.slow_ranks import slow_ranks
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Bools, Coded, Table
from tests.prof.ranks.test_job_path import MS, Rank, made

LATE = 10 * MS


def job_of(table: Table) -> Ranks:
    named = table.with_column("op", Coded.of(f'["{op}"]' for op in table.coded("op").texts()))
    return ranks_of(rank_tables(named, annotate(named)))


def waiting(table: Table, rank: int, steps: list[int]) -> Table:
    """The table where this rank waits 10 ms longer for the others in these steps."""
    chosen = (table.ints("rank") == rank) & np.isin(table.ints("step"), steps)
    chosen &= table.coded("op").among("all_reduce")
    return table.with_column("kDuration", table.ints("kDuration") + np.where(chosen, LATE, 0))


def without(table: Table, chosen: Bools) -> Table:
    return table.take(np.flatnonzero(~chosen))


def test_waits_in_the_first_step_of_the_rank_that_came_last_do_not_count() -> None:
    """Rank 1's capture begins with step 1, in which rank 0 waits for it, as its profiler then starts."""
    table = waiting(made(Rank(), Rank())[0], 0, [1])
    begun = without(table, (table.ints("rank") == 1) & (table.ints("step") == 0))
    assert slow_ranks(job_of(begun)) == []
    (slow,) = slow_ranks(job_of(table))
    assert (slow.rank, slow.times, slow.wait_ns) == (1, 1, pytest.approx(LATE / 3))  # per step, of 1 to 3


def test_three_ranks_that_claim_to_be_two_are_not_joined() -> None:
    """Transfers of a communicator of two, of which three ranks of a damaged capture say that they are in it."""
    table, host = made(Rank(), Rank(), Rank())
    send = '[{"op": "send", "in": 8, "out": 8, "group": "1", "ranks": 2, "peer": 1}]'
    comm = [send if op == "all_reduce" else "" for op in ("linear", "all_reduce")] * (len(table) // 2)
    damaged = table.with_column("comm", Coded.of(comm))
    run = joint_run(damaged, annotate(damaged), host, "made up")
    assert not run.met.any()
