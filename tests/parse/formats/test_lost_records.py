"""Incomplete captures: what is called a loss, and what is not, in literal traces and databases of a few events."""

from contextlib import suppress
from pathlib import Path

import pytest

from pyprof.errors import InputError
from pyprof.parse.detect import reader
from pyprof.parse.formats.lost_records import reported_losses
from pyprof.parse.kineto.reader import read as read_kineto
from pyprof.parse.nsys.reader import read as read_nsys
from tests.parse.kineto import kineto_file as kineto
from tests.parse.nsys import nsys_file as nsys
from tests.paths import GOLDEN

SYNC = "cudaDeviceSynchronize"


def runtime(name: str, ts: float, corr: int, dur: float = 5, **args: object) -> kineto.Event:
    return kineto.x("cuda_runtime", name, ts, dur, correlation=corr, **args)


def why(tmp_path: Path, *events: kineto.Event, **header: object) -> list[str]:
    file = kineto.write(tmp_path / "net.json", kineto.begin(900), *events, **header)
    return [loss.why for loss in read_kineto(file).losses]


def launches(*numbers: int) -> list[kineto.Event]:
    """Launches at 1000, 1010, ... with these correlation ids."""
    return [kineto.call(1000 + 10 * place, number) for place, number in enumerate(numbers)]


def kernels(*numbers: int) -> list[kineto.Event]:
    return [kineto.kernel(2000 + 10 * place, 5, number) for place, number in enumerate(numbers)]


def test_a_complete_capture_has_lost_nothing(tmp_path):
    assert why(tmp_path, *launches(1, 2, 3), *kernels(1, 2, 3), runtime(SYNC, 1900, 9, 200)) == []


@pytest.mark.parametrize(("lost", "text"), [
    ({2}, "1 of 3 kernel launches has no kernel in the capture"),  # the third, launched later, ran on the only stream
    ({1, 2}, "2 of 3 kernel launches have no kernel in the capture"),
])  # fmt: skip
def test_launches_before_others_that_ran(tmp_path, lost, text):
    assert why(tmp_path, *launches(1, 2, 3), *kernels(*{1, 2, 3} - lost)) == [text]


def test_the_last_launches_may_not_have_run_before_the_end(tmp_path):
    assert why(tmp_path, *launches(1, 2, 3), *kernels(1)) == []


def test_a_call_that_waits_for_the_device_proves_that_they_ran(tmp_path):
    after = runtime("cudaEventRecord", 2200, 10)
    events = [*launches(1, 2, 3), *kernels(1), runtime(SYNC, 1900, 9, 200), after]
    assert why(tmp_path, *events) == ["2 of 3 kernel launches have no kernel in the capture"]
    two_devices = kineto.kernel(2050, 5, 4, device=1)
    assert why(tmp_path, *events, kineto.call(995, 4), two_devices) == []  # it waits for one of them


def test_a_launch_on_another_stream_may_still_wait(tmp_path):
    """The second launch may have gone to stream 9, on which nothing later ran."""
    streams = [kineto.kernel(2000, 5, 1, stream=9), kineto.kernel(2010, 5, 3)]
    assert why(tmp_path, *launches(1, 2, 3), *streams) == []
    assert len(why(tmp_path, *launches(1, 2, 3, 4), *streams, kineto.kernel(2020, 5, 4, stream=9))) == 1


@pytest.mark.parametrize("name", ["cudaLaunchHostFunc", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaGraphAddKernelNode"])
def test_calls_that_launch_no_kernel(tmp_path, name):
    """A copy of no bytes has no record of its own."""
    assert why(tmp_path, *launches(1, 3), runtime(name, 1005, 2, 1), *kernels(1, 3)) == []


def test_launches_that_a_graph_records_run_nothing(tmp_path):
    inside = [
        runtime("cudaStreamBeginCapture", 998, 8, 1),
        *launches(1, 2),
        runtime("cudaStreamEndCapture", 1018, 9, 1),
    ]
    later = [kineto.call(1030, 3), *kernels(3)]
    assert why(tmp_path, *inside, *later) == []
    assert why(tmp_path, *inside[1:], *later) == []  # the capture of the graph began before the profiler
    assert len(why(tmp_path, *inside[1:-1], *later)) == 1


def test_a_runtime_call_and_its_driver_call_are_one_launch(tmp_path):
    inner = kineto.x("cuda_driver", "cuLaunchKernel", 1001, 2, correlation=11)
    assert why(tmp_path, *launches(1, 2), inner, *kernels(1, 2)) == []


def test_a_trace_without_any_work_of_the_gpu_was_recorded_so(tmp_path):
    """ProfilerActivity.CPU alone records the calls, too."""
    assert why(tmp_path, kineto.op("aten::mm", 1000, 50), *launches(1, 2), runtime(SYNC, 1900, 9), *launches(3)) == []


def graph_launches(*nodes_of_each: list[int]) -> list[kineto.Event]:
    """Launches of a graph, each with these nodes, and a kernel after all of them."""
    calls = [runtime("cudaGraphLaunch", 1000 + 10 * place, place + 1) for place in range(len(nodes_of_each))]
    rows = [
        kineto.kernel(2000 + 100 * place + node, 1, place + 1, graph_node_id=node)
        for place, nodes in enumerate(nodes_of_each)
        for node in nodes
    ]
    return [*calls, *rows, kineto.call(1900, 99), kineto.kernel(9000, 5, 99)]


def test_a_graph_launch_with_fewer_nodes_than_another(tmp_path):
    """Of launches with nodes 1, 2, 3 the second lacks one and the fourth two; nodes 8 and 9 are another graph's."""
    found = why(tmp_path, *graph_launches([1, 2, 3], [1, 3], [1, 2, 3], [2], [8, 9]))
    assert found == ["2 of 5 launches of CUDA graphs lack 3 operations that other launches of the same graph have"]
    assert why(tmp_path, *graph_launches([1, 2, 3], [], [1, 2, 3])) == [
        "1 of 3 launches of CUDA graphs has no operation in the capture"
    ]


def test_the_last_graph_launch_may_not_be_done(tmp_path):
    assert why(tmp_path, *graph_launches([1, 2, 3], [1, 2])[:-2]) == []


def test_nodes_of_loops_and_branches_may_run_any_number_of_times(tmp_path):
    assert why(tmp_path, *graph_launches([1, 2, 2, 2], [1, 2], [1])) == []
    branch = runtime("cudaGraphConditionalHandleCreate", 950, 98)
    assert why(tmp_path, branch, *graph_launches([1, 2, 3], [1, 3])) == []


def test_kernels_whose_launch_is_lost(tmp_path):
    """The ids 1 and 9 are on record, so those between them were launched within the capture."""
    found = why(tmp_path, *launches(1, 9), *kernels(1, 4, 5, 9))
    assert found == ["2 kernels have no record of the launch, though other launches of the same kernels have one"]


def test_kernels_that_were_launched_before_the_capture_are_no_loss(tmp_path):
    assert why(tmp_path, *launches(8, 9), *kernels(3, 4, 8, 9)) == []


def test_kernels_whose_launches_the_profiler_never_records(tmp_path):
    """No launch of the Triton kernel is on record: an older PyTorch does not record the driver's calls."""
    triton = kineto.kernel(2005, 1, 4, "triton_poi_fused_add_0")
    assert why(tmp_path, *launches(1, 9), *kernels(1, 9), triton) == []


@pytest.mark.parametrize("cut", [2, 30])  # from 2 characters on, further events may have followed
def test_a_cut_trace(tmp_path, cut):
    file = kineto.write(tmp_path / "net.json", kineto.begin(900), *launches(1, 2), *kernels(1, 2))
    file.write_text(file.read_text()[:-cut])
    (loss,) = read_kineto(file).losses
    assert loss.why == "the file is cut, so that its last events are lost"
    assert loss.remedy.startswith("copy the file again")


def test_a_trace_that_is_cut_behind_its_events(tmp_path):
    file = kineto.write(tmp_path / "net.json", kineto.begin(900), *launches(1, 2), *kernels(1, 2))
    file.write_text(file.read_text()[:-1])
    assert read_kineto(file).losses == []


def test_messages_of_libkineto(tmp_path):
    events = [*launches(1), *kernels(1)]
    dropped = ["Dropped 1200 activity records"]
    assert why(tmp_path, *events, WARNING=dropped) == ["the profiler says: Dropped 1200 activity records"]
    assert why(tmp_path, *events, WARNING=["Profiler is not initialized: skipping step() invocation"]) == []
    assert why(tmp_path, *events, WARNING="no list", ERROR=[1, None]) == []


@pytest.mark.parametrize(("text", "is_loss"), [
    ("Dropped 1200 activity records", True),
    ("Exceeded max GPU buffer count (32 > 32) - terminating tracing", True),
    ("1,024 CUDA events were dropped because of insufficient buffer space.", True),
    ("CUPTI buffers overflowed: some events were lost.", True),
    ("Number of lost CUDA events: 12.", True),
    ("Lost 3 kernel records", True),
    ("Dropped 0 activity records", False),
    ("Number of dropped CUDA events: 0.", False),
    ("Some CUDA events may have been lost.", False),
    # These stand in captures in which every launch has its kernel.
    ("Not all CUDA events might have been collected.", False),
    ("CUDA profiling might have not been started correctly.", False),
    ("Number of CUPTI events produced: 5974, CUPTI buffers: 50.", False),
    ("No CUDA events collected. Does the process use CUDA?", False),
    ("Buffers holding CUDA trace data will be flushed on CudaProfilerStop() call.", False),
    # Neither idle time nor advice rests on these.
    ("12 CPU IP samples were lost.", False),
    ("Dropped 5 OS runtime libraries events.", False),
])  # fmt: skip
def test_what_profilers_report(text, is_loss):
    assert bool(reported_losses([text], "nsys 2025.3")) == is_loss


def nsys_why(tmp_path: Path, rows: list[int], calls: list[int], **tables: list[tuple[object, ...]]) -> list[str]:
    kernels_of = [nsys.kernel(200 + 20 * number, number) for number in rows]
    calls_of = [nsys.call(100 + 5 * number, number) for number in calls]
    file = nsys.write(tmp_path / "net.sqlite", **{nsys.KERNEL: kernels_of, nsys.API: calls_of}, **tables)
    return [loss.why for loss in read_nsys(file).losses]


@pytest.mark.parametrize(("rows", "calls", "expected"), [
    ([1, 2, 3], [1, 2, 3], []),
    ([1, 3], [1, 2, 3], ["1 of 3 kernel launches has no kernel in the capture"]),
    ([1, 2], [1, 2, 3], []),  # the capture may have ended before
    ([1, 2, 3], [1, 3], ["1 kernel has no record of the launch, though other launches of the same kernels have one"]),
    ([1, 2, 3], [2, 3], []),  # launched before the capture
    ([1, 2, 3], [], []),  # recorded without calls
])  # fmt: skip
def test_nsys(tmp_path, rows, calls, expected):
    assert nsys_why(tmp_path, rows, calls) == expected


def test_a_launch_that_failed_has_no_kernel(tmp_path):
    """cudaErrorInvalidConfiguration is 9; 0 is success."""
    calls = [(*nsys.call(100 + 5 * number, number), 9 if number == 2 else 0) for number in (1, 2, 3)]
    rows = [nsys.kernel(200, 1), nsys.kernel(240, 3)]
    file = nsys.write(tmp_path / "net.sqlite", **{nsys.KERNEL: rows, nsys.API: calls})
    assert read_nsys(file).losses == []


def test_messages_of_nsys(tmp_path):
    lost = nsys_why(tmp_path, [1], [1], DIAGNOSTIC_EVENT=[(5, 2, "1,024 CUDA events were dropped.")])
    assert lost == ["the profiler says: 1,024 CUDA events were dropped"]


def test_operations_without_times(tmp_path):
    timeless = (0, 0, 0, 7, 2, nsys.process(7), 101, 1)  # CUPTI writes 0 for both times
    file = nsys.write(
        tmp_path / "net.sqlite",
        **{
            nsys.KERNEL: [nsys.kernel(200, 1), (None, None, *timeless[2:])],
            nsys.API: [nsys.call(100, 1), nsys.call(110, 2)],
        },
    )
    assert [loss.why for loss in read_nsys(file).losses] == ["1 GPU operation has no possible time"]


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("h200*.*.gz") if ".csv" not in path.name))
def test_our_own_captures_are_complete(name):
    assert reader(GOLDEN / name)(GOLDEN / name).losses == []


def test_captures_of_others_are_complete(data):
    """There are slices among them, which end with launches whose kernels ran later, and begin with kernels that
    were launched before. That is no loss of anything that ran in between."""
    files = [path for room in ("nsys", "kineto", "round2") for path in sorted((data / room).glob("*.gz"))]
    found = {}
    for file in files:
        with suppress(InputError):  # some have nothing that ran on a GPU
            found[file.name] = [loss.why for loss in reader(file)(file).losses]
    assert len(found) > 50
    assert {name: why for name, why in found.items() if why} == {}
