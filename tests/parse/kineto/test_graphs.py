"""Kernels that CUDA graphs replay get the op of the launch at capture: traces of a few literal events.

In every trace a graph is captured between 1000 and 2000 µs and replayed later. Expected ops are worked out by hand.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from pyprof.parse.attribute import reasons
from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Table
from tests.parse.kineto.kineto_file import AUTOGRAD, MAIN, PID, Event, begin, kernel, op, write, x

GEMM, RELU = "sm90_xmma_gemm_f32f32_tn_n", "void at::native::vectorized_elementwise_kernel<4, relu>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, add>(int)"


def api(name: str, ts: float, corr: int, tid: int = MAIN, **args: Any) -> Event:
    return x("cuda_runtime", name, ts, 2, tid, correlation=corr, **args)


def captured(ts: float, corr: int, *calls: Event) -> list[Event]:
    """Calls between the begin and the end of a capture, which lasts until 1000 µs after its begin."""
    return [api("cudaStreamBeginCapture", ts, corr), *calls, api("cudaStreamEndCapture", ts + 1000, corr + 99)]


def launched(name: str, ts: float, corr: int, call: str = "cudaLaunchKernel", **args: Any) -> list[Event]:
    """An op and the call that it makes: 10 µs."""
    shapes = {key: args.pop(key) for key in ("Input_Dims", "Input_type") if key in args}
    return [op(name, ts, 10, **shapes), api(call, ts + 2, corr, **args)]


def mm(ts: float, corr: int, rows: int = 4, **args: Any) -> list[Event]:
    """A product [rows, 5] @ [5, 6]: 2 * rows * 5 * 6 FLOPs."""
    return launched("aten::mm", ts, corr, Input_Dims=[[rows, 5], [5, 6]], Input_type=["float", "float"], **args)


def layer(name: str, ts: float, dur: float) -> Event:
    return x("python_function", f"nn.Module: {name}", ts, dur)


def replay(ts: float, corr: int, *names: str, streams: tuple[int, ...] = (), **args: Any) -> list[Event]:
    """A launch of a graph and its kernels, 10 µs apart, of 5 µs each."""
    rows = [
        kernel(ts + 10 * (i + 1), 5, corr, name, stream=streams[i] if streams else 7, **args)
        for i, name in enumerate(names)
    ]
    return [api("cudaGraphLaunch", ts, corr), *rows]


def copy(ts: float, corr: int, cat: str = "gpu_memcpy") -> Event:
    return x(cat, f"{cat[4:]} (Device)", ts, 1, 7, 0, device=0, stream=7, correlation=corr, bytes=64)


def table(tmp_path: Path, *events: Event | list[Event]) -> Table:
    flat = [event for some in events for event in (some if isinstance(some, list) else [some])]
    return correlate(read(write(tmp_path / "net.json", begin(900), *flat)))


def ops(found: Table) -> list[str]:
    return found.coded("aten").texts()


def whys(found: Table) -> set[str]:
    return set(found.coded("reason").texts())


NET = [*mm(1010, 11), *launched("aten::relu", 1030, 12), *launched("aten::add", 1050, 13)]
KERNELS = GEMM, RELU, ADD


def test_each_replay_has_the_ops_of_the_capture(tmp_path):
    found = table(
        tmp_path,
        captured(1000, 10, layer("Linear_0", 1005, 20), *NET),
        replay(3000, 200, *KERNELS),
        replay(4000, 201, *KERNELS),
    )
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add"] * 2
    assert found.coded("layer").texts() == ['["Linear_0"]', "", ""] * 2
    assert whys(found) == {""}
    assert found.ints("apiStart").tolist() == [2_100_000] * 3 + [3_100_000] * 3  # the launches of the graph
    assert found.ints("opId").tolist() == [0, 1, 2] * 2


def test_the_work_of_each_replay_is_counted(tmp_path):
    found = table(tmp_path, captured(1000, 10, *NET), replay(3000, 200, *KERNELS), replay(4000, 201, *KERNELS))
    work = annotate(found)
    assert work.flops[[0, 3]].tolist() == [240, 240]  # 2 * 4 * 5 * 6 in each, not once for both


def test_a_trace_of_the_capture_alone_has_its_cpu_ops(tmp_path):
    found = table(tmp_path, captured(1000, 10, *NET))
    assert found.coded("kind").texts() == ["cpu"] * 3
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add"]


def test_launches_that_run_at_once_are_not_part_of_the_graph(tmp_path):
    other = [*launched("aten::mul", 1070, 14), api("cudaLaunchKernel", 1090, 15, tid=AUTOGRAD)]
    ran = [kernel(1100, 5, 14, "mul"), kernel(1110, 5, 15, "other")]
    found = table(tmp_path, captured(1000, 10, *NET, *other), ran, replay(3000, 200, *KERNELS))
    assert ops(found)[2:] == ["aten::mm", "aten::relu", "aten::add"]


def test_another_thread_may_join_the_capture(tmp_path):
    backward = [op("aten::mm", 1100, 10, AUTOGRAD), api("cudaLaunchKernel", 1102, 14, tid=AUTOGRAD)]
    found = table(tmp_path, captured(1000, 10, *NET, *backward), replay(3000, 200, *KERNELS, GEMM))
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add", "aten::mm"]


def test_a_driver_call_within_a_runtime_call_is_the_same_launch(tmp_path):
    inner = x("cuda_driver", "cuLaunchKernel", 1012.5, 1, MAIN, correlation=14)
    found = table(tmp_path, captured(1000, 10, *NET, inner), replay(3000, 200, *KERNELS))
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add"]


@pytest.mark.parametrize(("number", "known"), [(430, True), (486, False)])
def test_a_call_whose_name_kineto_does_not_know(tmp_path, number, known):
    """430 is cudaLaunchKernelExC; 486 is cudaStreamGetCaptureInfo_v3, which launches nothing."""
    calls = [*mm(1010, 11), *launched("aten::relu", 1030, 12, "INVALID", cbid=number)]
    found = table(
        tmp_path,
        captured(1000, 10, *calls),
        replay(3000, 200, *KERNELS[:2]),
        replay(4000, 201, GEMM),
        replay(5000, 202, ADD),
    )
    assert ops(found) == (["aten::mm", "aten::relu", "", ""] if known else ["", "", "aten::mm", ""])
    assert reasons.GRAPH_COUNT in whys(found)


def test_another_number_of_kernels_fits_no_graph(tmp_path):
    found = table(tmp_path, captured(1000, 10, *NET), replay(3000, 200, GEMM, RELU), replay(4000, 201, GEMM))
    assert ops(found) == [""] * 3
    assert whys(found) == {reasons.GRAPH_COUNT}


def test_a_product_does_not_run_in_an_element_wise_op(tmp_path):
    found = table(tmp_path, captured(1000, 10, *NET), replay(3000, 200, RELU, GEMM, ADD))
    assert ops(found) == [""] * 3
    assert whys(found) == {reasons.GRAPH_KERNELS}


def test_a_graph_that_is_captured_after_the_replay_is_not_meant(tmp_path):
    found = table(tmp_path, replay(920, 9, *KERNELS), captured(1000, 10, *NET))
    assert ops(found) == [""] * 3
    assert whys(found) == {reasons.GRAPH_REPLAY}


def test_two_graphs_are_told_apart_by_count_and_by_kernels(tmp_path):
    found = table(
        tmp_path,
        captured(1000, 10, *NET),
        captured(2000, 110, *launched("aten::add", 2010, 111), *mm(2030, 112), *launched("aten::relu", 2050, 113)),
        captured(3000, 310, *mm(3010, 311)),
        replay(5000, 600, GEMM),
        replay(6000, 601, ADD, GEMM, RELU),
        replay(7000, 602, *KERNELS),
    )
    assert ops(found) == ["aten::mm", "aten::add", "aten::mm", "aten::relu", "aten::mm", "aten::relu", "aten::add"]


def test_where_several_graphs_fit_only_what_they_agree_on_is_known(tmp_path):
    """Batch sizes 4 and 8 run the same kernels: all but the shapes of the product agree."""
    large = [*mm(2010, 111, 8), *launched("aten::relu", 2030, 112), *launched("aten::add", 2050, 113)]
    found = table(tmp_path, captured(1000, 10, *NET), captured(2000, 110, *large), replay(4000, 400, *KERNELS))
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add"]
    assert found.coded("sizes").texts()[0] == ""
    assert found.coded("reason").texts() == [reasons.GRAPH_SHAPES, "", ""]
    assert annotate(found).flops[0] == NULL
    other = [*mm(2010, 111), *launched("aten::gelu", 2030, 112), *launched("aten::add", 2050, 113)]
    found = table(tmp_path, captured(1000, 10, *NET), captured(2000, 110, *other), replay(4000, 400, *KERNELS))
    assert ops(found) == ["aten::mm", "", "aten::add"]
    assert found.coded("reason").texts()[1] == reasons.GRAPH_SEVERAL


def test_a_graph_that_is_captured_again_is_the_same(tmp_path):
    again = [*mm(2010, 111), *launched("aten::relu", 2030, 112), *launched("aten::add", 2050, 113)]
    found = table(tmp_path, captured(1000, 10, *NET), captured(2000, 110, *again), replay(4000, 400, *KERNELS))
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add"]


def test_names_of_kernels_join_them_in_any_order(tmp_path):
    """HIP records the kernel's name with the launch, so branches of a graph may run in any order."""
    calls = [
        *mm(1010, 11, kernel="gemm_a"),
        *launched("aten::relu", 1030, 12, kernel="relu"),
        *mm(1050, 13, 8, kernel="gemm_b"),
        *launched("aten::add", 1070, 14, kernel="relu"),
    ]
    for event in calls:
        event["name"] = event["name"].replace("cudaLaunchKernel", "hipLaunchKernel")
    found = table(tmp_path, captured(1000, 10, *calls), replay(3000, 200, "gemm_b", "relu", "gemm_a", "relu"))
    assert ops(found) == ["aten::mm", "aten::relu", "aten::mm", "aten::add"]
    assert found.coded("sizes").texts()[0] == "[[8,5],[5,6]]"
    other = table(tmp_path, captured(1000, 10, *calls), replay(3000, 200, "gemm_b", "relu", "gemm_c", "relu"))
    assert ops(other) == [""] * 4 and whys(other) == {reasons.GRAPH_KERNELS}


def test_branches_need_the_numbers_of_nodes(tmp_path):
    wait = api("cudaStreamWaitEvent", 1041, 19)
    parts = captured(1000, 10, *NET, wait)
    found = table(tmp_path, parts, replay(3000, 200, *KERNELS))
    assert ops(found) == [""] * 3 and whys(found) == {reasons.GRAPH_BRANCHES}
    rows = replay(3000, 200, ADD, GEMM, RELU)  # the order in which the branches ran
    for event, node in zip(rows[1:], (2, 0, 1), strict=True):
        event["args"]["graph node id"] = (5 << 32) + node  # node 0 was captured first
    assert ops(table(tmp_path, parts, rows)) == ["aten::add", "aten::mm", "aten::relu"]


def test_pytorchs_annotations_of_a_graph_name_its_layers(tmp_path):
    """As torch.cuda._annotate_cuda_graph_trace of PyTorch 2.13 writes them: mark_kernels("attention") becomes "str"."""
    rows = replay(3000, 200, *KERNELS)
    for event, node, label in zip(rows[1:], (0, 1, 2), ("attention", "mlp", ""), strict=True):
        event["args"] |= {"graph node id": (5 << 32) + node, "str": label}
    alone = table(tmp_path, rows)
    assert alone.coded("layer").texts() == ['["attention"]', '["mlp"]', ""]
    assert ops(alone) == [""] * 3
    both = table(tmp_path, captured(1000, 10, layer("Linear_0", 1005, 20), *NET), rows)
    assert both.coded("layer").texts() == ['["Linear_0"]', '["mlp"]', ""]  # the capture knows more
    plain = table(
        tmp_path, *mm(1010, 11), kernel(1100, 5, 11, GEMM) | {"args": {"correlation": 11, "graph node id": 0}}
    )
    assert plain.ints("graphNode").tolist() == [NULL]


def test_kernels_that_overlap_on_two_streams_have_no_certain_order(tmp_path):
    rows = replay(3000, 200, *KERNELS, streams=(7, 8, 7))
    assert ops(table(tmp_path, captured(1000, 10, *NET), rows)) == ["aten::mm", "aten::relu", "aten::add"]
    rows[2]["ts"] = 3012.0  # begins while the first one runs, until 3015
    found = table(tmp_path, captured(1000, 10, *NET), rows)
    assert ops(found) == [""] * 3 and whys(found) == {reasons.GRAPH_BRANCHES}


def test_a_graph_of_memsets_alone(tmp_path: Path) -> None:
    """As one that only clears gradients. Of two such graphs, only the one with as many memsets fits."""
    one = captured(1000, 10, *launched("aten::zero_", 1010, 11, "cudaMemsetAsync"))
    two = captured(
        2100,
        200,
        *launched("aten::fill_", 2110, 211, "cudaMemsetAsync"),
        *launched("aten::zero_", 2130, 212, "cudaMemsetAsync"),
    )
    found = table(tmp_path, one, two, [api("cudaGraphLaunch", 4000, 300), copy(4010, 300, "gpu_memset")])
    assert ops(found) == ["aten::zero_"]
    rows = [copy(4010, 300, "gpu_memset"), copy(4020, 300, "gpu_memset")]
    found = table(tmp_path, one, two, [api("cudaGraphLaunch", 4000, 300), *rows])
    assert ops(found) == ["aten::fill_", "aten::zero_"]
    found = table(tmp_path, one, two, [api("cudaGraphLaunch", 4000, 300), copy(4010, 300)])
    assert ops(found) == [""] and whys(found) == {reasons.GRAPH_COUNT}


def test_copies_and_memsets_are_nodes_too(tmp_path):
    more = [
        *launched("aten::copy_", 1070, 14, "cudaMemcpyAsync"),
        *launched("aten::zero_", 1090, 15, "cudaMemsetAsync"),
        *launched("aten::fill_", 1110, 16, "cudaMemsetAsync"),
    ]
    rows = replay(3000, 200, *KERNELS)
    fill = copy(3070, 200, "gpu_memset")
    found = table(tmp_path, captured(1000, 10, *NET, *more), rows, copy(3060, 200), fill, copy(3080, 200, "gpu_memset"))
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add", "aten::copy_", "aten::zero_", "aten::fill_"]
    less = table(tmp_path, captured(1000, 10, *NET, *more), rows, copy(3060, 200), fill)
    assert ops(less) == ["aten::mm", "aten::relu", "aten::add", "aten::copy_", ""]
    assert less.coded("reason").texts()[-1] == reasons.GRAPH_COPIES


def test_the_drivers_own_kernels_are_the_graphs_copies_and_memsets(tmp_path):
    """Seen on an H200 (driver 580): a copy of 64 bytes, in a graph that was made while no profiler was on."""
    more = [
        *launched("aten::copy_", 1070, 14, "cudaMemcpyAsync"),
        *launched("aten::zero_", 1090, 15, "cudaMemsetAsync"),
        *launched("aten::copy_", 1110, 16, "cudaMemcpyAsync", Input_Dims=[[2], [2]]),
    ]
    rows = replay(3000, 200, *KERNELS, "memcpy32_post", "memset32_post")
    found = table(tmp_path, captured(1000, 10, *NET, *more), rows, copy(3060, 200))
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add", "aten::copy_", "aten::zero_", "aten::copy_"]
    assert [found.coded("sizes").texts()[row] for row in (3, 5)] == ["", "[[2],[2]]"]
    rows = replay(3000, 200, *KERNELS, "my_memcpy32", "memset32_post")  # the program's own
    found = table(tmp_path, captured(1000, 10, *NET, *more), rows, copy(3060, 200))
    assert whys(found) == {reasons.GRAPH_COUNT}


def test_a_replay_that_the_capture_cuts(tmp_path):
    whole = replay(3000, 200, *KERNELS)
    ended = replay(4000, 201, *KERNELS)[:3]  # its last kernel ran after the capture
    begun = [kernel(920, 5, 3, RELU), kernel(940, 5, 3, ADD)]  # its first kernel and its launch were before it
    found = table(tmp_path, begun, captured(1000, 10, *NET), whole, ended)
    assert ops(found) == ["", "", "aten::mm", "aten::relu", "aten::add", "aten::mm", "aten::relu"]
    assert found.coded("reason").texts()[0] == reasons.BEFORE_CAPTURE  # the graph was captured after these ran
    middle = table(tmp_path, captured(1000, 10, *NET), whole, replay(4000, 201, RELU))
    assert ops(middle)[3:] == [""] and reasons.GRAPH_COUNT in whys(middle)
    earlier = table(tmp_path, captured(1000, 10, *NET), ended, replay(5000, 202, *KERNELS))
    assert ops(earlier)[:2] == ["", ""]  # kernels are missing, not cut off


def test_the_replay_that_was_running_when_the_capture_began(tmp_path):
    """Its last two kernels are in the capture, its launch is not; the graph itself is in another file."""
    other = read(write(tmp_path / "graph.json", begin(900), *captured(1000, 10, *NET)))
    running = [kernel(5000, 5, 7, RELU), kernel(5010, 5, 7, ADD)]
    alone = [kernel(5020, 5, 8, ADD)]  # a single row may be any kernel's
    replays = [*running, *alone, *replay(6000, 200, *KERNELS)]
    capture = read(write(tmp_path / "net.json", begin(900), *replays))
    capture.graphs = [other]
    found = correlate(capture)
    assert ops(found) == ["aten::relu", "aten::add", "", "aten::mm", "aten::relu", "aten::add"]


def test_two_threads_that_capture_at_once(tmp_path):
    second = [
        api("cudaStreamBeginCapture", 1020, 50, tid=AUTOGRAD),
        api("cudaStreamEndCapture", 1900, 51, tid=AUTOGRAD),
    ]
    own = [op("aten::mul", 1200, 10, AUTOGRAD), api("cudaLaunchKernel", 1202, 52, tid=AUTOGRAD)]
    found = table(
        tmp_path, captured(1000, 10, *NET, *second, *own), replay(3000, 200, *KERNELS), replay(4000, 201, ADD)
    )
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add", "aten::mul"]
    third = api("cudaLaunchKernel", 1300, 53, tid=AUTOGRAD + 1)  # of either
    found = table(tmp_path, captured(1000, 10, *NET, *second, *own, third), replay(3000, 200, *KERNELS))
    assert ops(found) == [""] * 3


def test_a_capture_that_does_not_end_is_no_graph(tmp_path):
    events = captured(1000, 10, *NET)[:-1]
    found = table(tmp_path, events, replay(3000, 200, *KERNELS))
    assert ops(found) == [""] * 3 and whys(found) == {reasons.GRAPH_REPLAY}


def test_backward_kernels_get_their_forward_ops_layer(tmp_path):
    forward = [
        layer("Linear_0", 1005, 30),
        op("aten::mm", 1010, 10, Sequence_number=5),
        api("cudaLaunchKernel", 1012, 11),
    ]
    node = op("autograd::engine::evaluate_function: MmBackward0", 1100, 40, AUTOGRAD, Sequence_number=5)
    inside = op("MmBackward0", 1102, 36, AUTOGRAD, Sequence_number=5, Fwd_thread_id=1)
    grads = [op("aten::mm", 1110, 10, AUTOGRAD), api("cudaLaunchKernel", 1112, 12, tid=AUTOGRAD)]
    found = table(tmp_path, captured(1000, 10, *forward, node, inside, *grads), replay(3000, 200, GEMM, GEMM))
    assert found.coded("dir").texts() == ["fprop", "bprop"]
    assert found.coded("layer").texts() == ['["Linear_0"]'] * 2


def test_rows_keep_their_step_and_process(tmp_path):
    step = x("user_annotation", "ProfilerStep#4", 2900, 500)
    found = table(tmp_path, captured(1000, 10, *NET), step, replay(3000, 200, *KERNELS))
    assert found.ints("step").tolist() == [4] * 3
    assert found.ints("pid").tolist() == [PID] * 3
    assert found.ints("graphNode").tolist() == [NULL] * 3
    assert json.loads(found.coded("op").texts()[1]) == ["relu"]
