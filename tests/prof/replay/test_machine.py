"""A replay agrees with a machine: as recorded, and when kernels or the host become faster or slower."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import InputError
from pyprof.prof.replay.critical_path import critical_path
from pyprof.prof.replay.recorded_run import _check_times, _outermost, recorded
from pyprof.prof.replay.replayed_run import replay
from pyprof.prof.replay.tasks import HOST, WORK, simulate
from pyprof.table.columns import HostTable
from tests.prof.replay.machine import Machine

STREAM = st.integers(1, 3)
NS = st.integers(1_000, 400_000)
ACTION = st.one_of(
    st.tuples(st.just("work"), st.integers(500, 60_000)),
    *[st.tuples(st.just("launch"), STREAM, NS)] * 4,
    st.tuples(st.just("sync"), STREAM),
    st.tuples(st.just("device")),
    st.tuples(st.just("fetch"), STREAM, st.integers(2_000, 50_000)),
)
ORDER = st.tuples(STREAM, STREAM).map(lambda pair: [("record", pair, pair[0]), ("wait", pair[1], pair)])
EVENT = STREAM.map(
    lambda stream: [("record", stream, stream), ("work", 3000), ("launch", stream, 9000), ("join", stream)]
)
PROGRAM = st.lists(ACTION.map(lambda action: [action]) | ORDER | EVENT, min_size=2, max_size=40).map(
    lambda parts: [("work", 1000), ("launch", 1, 20_000), *(action for part in parts for action in part)]
)


def near(found, wanted, program):
    """Within 1%, or 3 µs for each action: latencies are the capture's means."""
    return found == pytest.approx(wanted, rel=0.01, abs=3000 * len(program))


def scaled(replayed, kind, factor, rows=None):
    chosen = replayed.tasks.kind == kind
    replayed.tasks.duration[chosen] = replayed.tasks.duration[chosen] * factor
    return int(simulate(replayed.tasks).max()) - replayed.run.begin()


def replayed(machine, streams=True):
    return replay(*machine.tables(streams), "net.sqlite")


@given(PROGRAM)
def test_a_run_as_it_was_recorded(program):
    machine = Machine().run(program)
    assert near(replayed(machine).replayed_ns, machine.length(), program)


@given(PROGRAM)
def test_a_run_of_which_streams_and_events_are_not_recorded(program):
    machine = Machine().run(program)
    assert near(replayed(machine, streams=False).replayed_ns, machine.length(), program)


@given(PROGRAM, st.sampled_from([0.1, 0.5, 3.0]))
def test_a_faster_or_slower_host(program, factor):
    machine = Machine(host_scale=factor).run(program)
    assert near(scaled(replayed(Machine().run(program)), HOST, factor), machine.length(), program)


POLLING = [action for _ in range(3) for action in (("launch", 1, 5_000_000), ("poll", 1, 40_000), ("work", 100_000))]


def by_class(found):
    return critical_path(found, np.zeros(len(found.table), bool)).by_class()


def test_a_host_that_reads_memory_until_a_kernel_has_written_there_waits_for_the_gpu():
    """Three kernels of 5 ms and three of 40 µs, for which the host waits without a call: the GPU is the limit."""
    machine = Machine().run([*POLLING, ("launch", 1, 1000), ("device",)])
    found = replayed(machine)
    assert near(found.replayed_ns, machine.length(), POLLING)
    path = by_class(found)
    assert path.kernels > 15_000_000 and path.host < 500_000
    faster = Machine(kernel_scale=0.5).run([*POLLING, ("launch", 1, 1000), ("device",)])
    assert near(scaled(replayed(machine), WORK, 0.5), faster.length(), POLLING)


def test_two_pauses_that_end_with_a_kernel_are_a_chance():
    machine = Machine().run([*POLLING[:6], ("launch", 1, 1000), ("device",)])
    assert by_class(replayed(machine)).host > 9_000_000


def test_faster_kernels_leave_the_host_as_the_limit():
    """200 launches of 0.3 ms: the GPU takes 60 ms, the host 2.8 ms. A hundred times faster, the host is the limit."""
    program = [action for _ in range(200) for action in (("work", 10_000), ("launch", 1, 300_000))]
    found = replayed(Machine().run(program))
    for factor in (0.1, 0.01):
        machine = Machine(kernel_scale=factor).run(program)
        own = replayed(Machine().run(program))
        assert scaled(own, WORK, factor) == pytest.approx(machine.length(), rel=0.01)
    assert found.replayed_ns == pytest.approx(200 * 301_100, rel=0.001)


@pytest.mark.parametrize("factor", [1.0, 0.1, 3.0])
def test_the_first_operation_of_all_is_waited_for(factor):
    """Without records of events: another stream waits for the run's first kernel of 0.4 ms."""
    program = [("launch", 1, 400_000), ("record", 1, 1), ("wait", 2, 1), ("launch", 2, 50_000)]
    found = replayed(Machine().run(program), streams=False)
    assert near(scaled(found, WORK, factor), Machine(kernel_scale=factor).run(program).length(), program)


@pytest.mark.parametrize("factor", [1.0, 100.0])
def test_an_event_that_the_runs_first_call_records(factor):
    """It is reached before there is any work: the host does not wait for the kernel, however long that takes."""
    program = [
        ("record", 1, 1), ("launch", 1, 5_000), ("work", 50_000), ("join", 1), ("work", 200_000), ("launch", 1, 2_000),
    ]  # fmt: skip
    machine = Machine(kernel_scale=factor).run(program)
    assert near(scaled(replayed(Machine().run(program)), WORK, factor), machine.length(), program)


@pytest.mark.parametrize("factor", [0.1, 3.0])
def test_a_synchronisation_of_the_device_waits_for_its_kernels(factor):
    """The second kernel is launched when the first one, of 0.4 ms, is done, however long that takes."""
    program = [("launch", 1, 400_000), ("device",), ("work", 10_000), ("launch", 1, 50_000)] * 4
    machine = Machine(kernel_scale=factor).run(program)
    assert near(scaled(replayed(Machine().run(program)), WORK, factor), machine.length(), program)


def test_a_synchronisation_that_waits_for_less():
    """Copies to pageable memory after kernels of 1 ms: 50 x (1 ms + copy + host). Kernels of 0.1 ms: 50 x 0.1 ms."""
    part = [("work", 20_000), ("launch", 1, 1_000_000), ("fetch", 1, 5_000)]
    found = replayed(Machine().run(part * 50))
    faster = Machine(kernel_scale=0.1).run(part * 50)
    chosen = (found.tasks.kind == WORK) & (found.run.work.kind[found.tasks.item % len(found.run.work)] == 0)
    found.tasks.duration[chosen] //= 10
    assert int(simulate(found.tasks).max()) == pytest.approx(faster.length(), rel=0.02)


def test_a_call_comes_after_earlier_ones_alone():
    """Of a damaged file, the first call comes after the last one, and the second after itself."""
    table, host = Machine().run([("launch", 1, 5_000)] * 3).tables()
    host = HostTable(3, {**host.columns, "after": np.array([2, 1, 0])})
    assert recorded(table, host, "net.json").calls.after.tolist() == [-1, -1, 0]


def test_calls_within_others():
    """A call within the first; one that begins within it and ends later; one that begins where that one ends, and takes
    no time; on another thread one at the time of the first."""
    start, end = np.array([0, 2, 5, 12, 1]), np.array([10, 4, 12, 12, 3])
    assert _outermost(start, end, np.array([0, 0, 0, 0, 1])).tolist() == [0, 0, 2, 3, 4]


@pytest.mark.parametrize("years", [30, 40])
def test_times_of_which_sums_may_not_fit_are_refused(years):
    """More than 2**60 ns are 36.6 years."""
    table, host = Machine().run([("launch", 1, 5_000)] * 3).tables()
    later = HostTable(3, {**host.columns, "start": host.ints("start") + years * 31_557_600 * 10**9})
    with pytest.raises(InputError, match="add up to more") if years > 36 else nullcontext():
        _check_times(table, later, "net.json")
