"""Captures whose times cannot be true, and waits for work that is not on record, in traces made by hand. Times are µs.

The opposite matters as much: what a GPU or a profiler does in order must not be called wrong.
"""

import pytest

from pyprof.parse.kineto.reader import read
from pyprof.table.losses import WRONG_TIMES, times_are_wrong
from tests.parse.kineto import kineto_file as kineto

DAY = 86_400_000_000


def losses(tmp_path, kernels, *calls):
    """Of kernels, each with start, duration and what else there is, that were launched in this order."""
    launches = [kineto.call(1000 + 10 * number, number) for number in range(len(kernels))]
    rows = [
        kineto.kernel(start, took, i, **(more[0] if more else {})) for i, (start, took, *more) in enumerate(kernels)
    ]
    file = kineto.write(tmp_path / "net.json", kineto.begin(900), *launches, *rows, *calls)
    return read(file).losses


def wrong(tmp_path, *kernels):
    """Why the times are wrong."""
    found = losses(tmp_path, kernels)
    assert times_are_wrong(found) == bool(found)
    assert {loss.remedy for loss in found} <= {WRONG_TIMES}
    return [loss.why for loss in found]


BEHIND = [(2000 + 10 * number, 5) for number in range(1, 5)]  # from 2010 to 2045


def test_a_kernel_that_lasts_over_the_next_ones_of_its_stream(tmp_path):
    assert wrong(tmp_path, (2000, 1600), *BEHIND) == [
        "an operation of 1.6 ms lasts over the next 4 of its stream, which run one after the other"
    ]


def test_two_kernels_in_the_time_of_another_may_be_launched_programmatically(tmp_path):
    assert wrong(tmp_path, (2000, 1600), *BEHIND[:2], (4000, 5)) == []


def test_kernels_of_other_streams_run_beside_a_long_one(tmp_path):
    assert wrong(tmp_path, (2000, 1600), *((start, took, {"stream": 8}) for start, took in BEHIND)) == []


def test_kernels_of_other_devices_do_too(tmp_path):
    assert wrong(tmp_path, (2000, 1600), *((start, took, {"device": 1}) for start, took in BEHIND)) == []


def test_a_kernel_that_is_launched_programmatically_begins_early(tmp_path):
    """Each of ten kernels of 50 begins 8 before the one before it ends."""
    assert wrong(tmp_path, *((2000 + 42 * number, 50) for number in range(10))) == []


def test_small_kernels_behind_the_end_of_a_long_one_do_not_count(tmp_path):
    """They begin 90 to 60 before its end: less than 100, which is ten times what launching early brings."""
    assert wrong(tmp_path, (2000, 1600), *((3510 + 10 * number, 5) for number in range(4))) == []


def test_the_branches_of_a_cuda_graph_run_side_by_side_on_one_stream(tmp_path):
    graph = [(2000, 1600), *BEHIND]
    assert wrong(tmp_path, *((*times, {"graph_node_id": node}) for node, times in enumerate(graph, 1))) == []


def test_a_profiler_of_whole_microseconds_has_kernels_of_0(tmp_path):
    """Two kernels of less than 0.5 each, behind one another, as in traces of Kineto of 2021."""
    assert wrong(tmp_path, (2000, 0), (2000, 0), (2001, 3), (2005, 0), (2005, 0)) == []


def test_three_that_begin_together_and_take_no_time(tmp_path):
    assert wrong(tmp_path, (2000, 0), (2000, 0), (2000, 0), (2001, 3)) == [
        "3 GPU operations of a stream begin together and take no time"
    ]


def test_on_several_streams_they_may(tmp_path):
    assert wrong(tmp_path, *((2000, 0, {"stream": stream}) for stream in (7, 8, 9))) == []


def test_days_between_two_operations(tmp_path):
    assert wrong(tmp_path, (2000, 5), (2000 + 51 * DAY, 5)) == [
        "51 days pass between two GPU operations, so some of their times are wrong"
    ]
    assert wrong(tmp_path, (2000, 5), (2000 + DAY - 10, 5)) == []


def sync(name, ts, dur, tid=kineto.MAIN):
    return kineto.x("cuda_runtime", name, ts, dur, tid, correlation=90 + tid)


APART = (2000, 10), (7000, 10)  # 5010 from the first operation's start to the last one's end


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "cudaDeviceSynchronize", "hipEventSynchronize"])
def test_the_host_waits_while_nothing_is_on_record(tmp_path, name):
    """From 2020 to 6900: 4880."""
    (loss,) = losses(tmp_path, APART, sync(name, 2020, 4880))
    assert loss.why == (
        "for 4.88 of 5.01 ms the host waits for the GPU while no operation is on record, so that the GPU runs "
        "something that the capture lacks"
    )
    assert not times_are_wrong([loss])


def test_the_waits_of_two_threads_count_once(tmp_path):
    """From 2020 to 4020 and from 3020 to 5020: 3000 of 5010."""
    calls = [sync("cudaStreamSynchronize", 2020, 2000), sync("cudaStreamSynchronize", 3020, 2000, kineto.AUTOGRAD)]
    (loss,) = losses(tmp_path, APART, *calls)
    assert loss.why.startswith("for 3 of 5.01 ms the host waits")


@pytest.mark.parametrize(("kernels", "call"), [
    (((2000, 4990), (7000, 10)), ("cudaStreamSynchronize", 2020, 4980)),  # for a kernel
    (APART, ("cudaStreamSynchronize", 2020, 990)),  # less than 1 ms: the system may have run the thread late
    (APART, ("cudaLaunchKernel", 2020, 4880)),  # no wait
    (APART, ("cudaStreamSynchronize", 7005, 9000)),  # after the last operation: what follows may not be recorded
    (((2000, 10), (9000, 10)), ("cudaStreamSynchronize", 2020, 1400)),  # 1400 of 7010 is less than a fifth
])  # fmt: skip
def test_waits_that_show_nothing(tmp_path, kernels, call):
    assert losses(tmp_path, kernels, sync(*call)) == []
