"""Collectives whose ranks are all in the capture: they begin when the last rank arrives, and end together."""

import numpy as np
import pytest

from pyprof.errors import PyprofError
from pyprof.prof.replay.replayed_run import aligned, replay
from pyprof.prof.replay.tasks import HOST, simulate, topological
from pyprof.table.columns import NULL, HostTable, Table
from tests.prof.replay.machine import GAP, Machine

FIRST = [("work", 1000), ("launch", 1, 64_000), ("launch", 1, 5000)]
SECOND = [("work", 1000), ("launch", 1, 5000), ("work", 40_000), ("launch", 1, 20_000), ("launch", 1, 5000)]


def ranks(ahead=0):
    """Rank 0's collective waits from 7.2 µs on for rank 1's, which begins at 51.2; both end at 71.2.

    ``ahead``: by how much rank 1's clock is ahead of rank 0's.
    """
    tables, hosts = zip(*(Machine().run(program).tables() for program in (FIRST, SECOND)), strict=True)
    shifts = (0, ahead)
    moved = [
        table.with_column("pid", np.full(len(table), 7 + rank))
        .with_column("start", table.ints("start") + shifts[rank])
        .with_column("apiStart", table.ints("apiStart") + shifts[rank])
        for rank, table in enumerate(tables)
    ]
    calls = [
        host.with_column("pid", np.full(len(host), 7 + rank)).with_column("start", host.ints("start") + shifts[rank])
        for rank, host in enumerate(hosts)
    ]
    table, host = Table.concat(moved), HostTable.concat(calls)
    assert (host.ints("record") == NULL).all()
    collective = np.array([0, 3])
    ends = table.ints("start")[collective] + table.ints("kDuration")[collective]
    assert ends.tolist() == [71_200, 71_200 + ahead]
    return table, host, [collective]


def test_both_ranks_are_as_recorded():
    found = replay(*ranks()[:2], "net.sqlite", ranks()[2])
    assert sorted(found.work_end.tolist()) == sorted(found.run.work.end.tolist())
    assert found.work_start.min() == 7200  # rank 0's kernel begins when it is launched


def test_a_rank_that_arrives_earlier_shortens_both():
    """Rank 1's host works 20 µs less: both collectives end at 51.2, and what follows begins then."""
    found = replay(*ranks()[:2], "net.sqlite", ranks()[2])
    thread = found.run.calls.thread[np.where(found.tasks.kind == HOST, found.tasks.item, 0)]
    late = (found.tasks.kind == HOST) & (thread == 1) & (found.tasks.duration == 40_000)
    assert late.sum() == 1
    found.tasks.duration[late] = 20_000
    ends = simulate(found.tasks)
    assert ends.max() == 51_200 + GAP + 5000


def test_without_the_meeting_a_rank_waits_as_long_as_recorded():
    found = replay(*ranks()[:2], "net.sqlite")
    thread = found.run.calls.thread[np.where(found.tasks.kind == HOST, found.tasks.item, 0)]
    found.tasks.duration[(found.tasks.kind == HOST) & (thread == 1)] = 0
    assert simulate(found.tasks).max() == 71_200 + GAP + 5000


@pytest.mark.parametrize("ahead", [3_000_000, -2_000_000])
def test_clocks_are_aligned_on_the_ends_of_collectives(ahead):
    table, host, meetings = ranks(ahead)
    moved, calls = aligned(table, host, meetings)
    wanted, wanted_host, _ = ranks()
    assert moved.ints("start").tolist() == wanted.ints("start").tolist()
    assert calls.ints("start").tolist() == wanted_host.ints("start").tolist()
    assert replay(table, host, "net.json", meetings).replayed_ns == pytest.approx(76_300, abs=1000)


def test_ranks_that_wait_for_each_other_in_a_circle():
    with pytest.raises(PyprofError, match="in a circle: replay one rank alone"):
        topological(np.array([0, 1]), np.array([1, 0]), 2)
