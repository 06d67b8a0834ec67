"""The critical path across ranks: jobs made up with the machine of the replay's tests, whose answers follow by hand.

In each step, every rank launches a kernel and an all-reduce, which ends ``MOVING`` ns after the last rank's has begun,
and waits for it. The hosts take 10 µs and the calls; the kernel and the pause before it differ from rank to rank.
"""

import json
from typing import NamedTuple

import numpy as np
import pytest

from pyprof.prof.ranks.job_path import job_path
from pyprof.prof.ranks.joint_run import joint_run, paces
from pyprof.prof.ranks.pace_records import JobPath
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Coded, HostTable, Table
from tests.prof.replay.machine import CALL, GAP, LATENCY, WAKE, Machine

MOVING, KERNEL, STEPS, US, MS = 500_000, 2_000_000, 4, 1_000, 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
RECORD = [{"op": "all_reduce", "in": 1 << 20, "out": 1 << 20, "group": "0"}]


class Rank(NamedTuple):
    kernel: int = KERNEL
    pause: int = 0  # of the host before the kernel's launch
    data: bool = False  # whether the kernel is of the phase "data"
    pace: float = 1.0  # of the host's work


def made(*ranks: Rank) -> tuple[Table, HostTable]:
    """The tables of the ranks by one clock."""
    machines = [Machine().run([]) for _ in ranks]
    for _ in range(STEPS):
        begins = []
        for machine, rank in zip(machines, ranks, strict=True):
            machine.number = len(machine.calls)
            machine.now += round(10 * US * rank.pace) + rank.pause
            machine.launch(1, rank.kernel)
            machine.now += round(2 * US * rank.pace)
            ready = machine.now + CALL + LATENCY
            begins.append(max(ready, machine.ends[1][-1] + GAP))
        for machine, begin in zip(machines, begins, strict=True):
            machine.number = len(machine.calls)
            machine.launch(1, max(begins) + MOVING - begin)
            machine.number = len(machine.calls)
            machine.sync(1)
    tables, hosts = zip(*(machine.tables() for machine in machines), strict=True)
    kernels = [
        _kernels(table, number, rank, len(ranks))
        for number, (table, rank) in enumerate(zip(tables, ranks, strict=True))
    ]
    calls = [
        host.with_column("pid", np.full(len(host), 7 + number)).with_column("ranges", np.ones(len(host), np.int64))
        for number, host in enumerate(hosts)
    ]
    return Table.concat(kernels), HostTable.concat(calls)


def _kernels(table: Table, number: int, rank: Rank, ranks: int) -> Table:
    place = np.arange(len(table))
    comm = json.dumps([{**RECORD[0], "ranks": ranks}])
    names = Coded.of(NCCL if each % 2 else "gemm" for each in place.tolist())
    columns = {
        "pid": np.full(len(table), 7 + number),
        "rank": np.full(len(table), number),
        "step": place // 2,
        "kShortName": names,
        "kLongName": names,
        "comm": Coded.of(comm if each % 2 else "" for each in place.tolist()),
        "op": Coded.of("all_reduce" if each % 2 else "linear" for each in place.tolist()),
        "phase": Coded.of("data" if rank.data and not each % 2 else "forward" for each in place.tolist()),
    }
    for key, values in columns.items():
        table = table.with_column(key, values)
    return table


def path_of(*ranks: Rank) -> JobPath:
    table, host = made(*ranks)
    found = job_path(table, host, "made up", len(ranks), 0.0)
    assert found is not None
    return found


LAUNCHED = 10 * US + CALL + LATENCY + WAKE  # the host's work, the call and its latency, and the return from the wait


def test_the_path_goes_through_the_rank_whose_kernel_is_longest() -> None:
    """A step is what the host needs until the kernel begins, rank 1's kernel, a gap and the transfer."""
    path = path_of(Rank(), Rank(kernel=5 * MS), Rank())
    step = LAUNCHED + 5 * MS + GAP + MOVING
    assert path.recorded_ns == path.replayed_ns
    captured = {each.rank: each for each in path.captured}
    assert sum(each.ns for each in path.captured) == pytest.approx(step)
    assert captured[1].kernels == 5 * MS
    assert captured[None].communication == MOVING
    assert captured[1].latency == LATENCY + GAP
    assert captured[1].host + sum(each.host for rank, each in captured.items() if rank != 1) == 10 * US + CALL + WAKE
    assert path.steps == [0, 1, 2, 3]


def test_the_step_without_the_longer_kernel_is_that_of_the_others() -> None:
    path = path_of(Rank(), Rank(kernel=5 * MS), Rank())
    [alike] = [each for each in path.like_others if each.rank == 1]
    assert alike.step_ns == pytest.approx(LAUNCHED + KERNEL + GAP + MOVING, rel=0.01)
    assert alike.low_ns < alike.step_ns < alike.high_ns
    assert alike.saves
    assert not any(each.saves for each in path.like_others if each.rank != 1)


@pytest.mark.parametrize(("data", "kind"), [(False, "host"), (True, "data")])
def test_a_pause_of_one_host_is_on_the_path(data: bool, kind: str) -> None:
    """3 ms before rank 0's launch: of the host, or before input data."""
    path = path_of(Rank(pause=3 * MS, data=data), Rank(), Rank())
    on = path.on[0]
    assert on.rank == 0
    [captured] = [each for each in path.captured if each.rank == 0]
    assert 3 * MS <= getattr(captured, kind) <= 3 * MS + LAUNCHED
    assert getattr(on, kind) == pytest.approx(getattr(captured, kind), rel=0.02)  # a range costs at most 25 µs
    assert on.kernels == KERNEL
    assert path.like_others[0].rank == 0
    assert path.like_others[0].step_ns == pytest.approx(LAUNCHED + KERNEL + GAP + MOVING, rel=0.01)


def test_equal_ranks_save_nothing() -> None:
    path = path_of(Rank(), Rank())
    assert not any(each.saves for each in path.like_others)


def test_a_slower_host_is_told_from_a_pause() -> None:
    """Rank 1's host takes twice as long for the same calls' surroundings; rank 0's pauses count for no pace."""
    table, host = made(Rank(pause=MS), Rank(pace=2.0))
    found = paces(joint_run(table, annotate(table), host, "made up"))
    own, slower = 2 * US + CALL, 4 * US + CALL  # around the all-reduce's launch, whose place both have
    assert found[0] == 1.0
    assert found[1] == pytest.approx(slower / own, rel=0.1)


def test_ranks_without_a_common_collective_have_no_path() -> None:
    table, host = made(Rank(), Rank())
    alone = table.with_column("comm", Coded.of([""] * len(table))).with_column(
        "kShortName", Coded.of(["k"] * len(table))
    )
    alone = alone.with_column("kLongName", Coded.of(["k"] * len(table)))
    assert job_path(alone, host, "made up", 2, None) is None
