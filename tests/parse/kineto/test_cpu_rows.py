"""Traces without a GPU: which CPU ops are rows, and how long each took."""

import json
from pathlib import Path

import numpy as np
import pytest

from pyprof.parse.kineto import cpu_rows
from pyprof.parse.kineto.cpu_rows import Role, op_roles
from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.limits.roofline import roofline
from pyprof.prof.load import load_table
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.work_sentences import rate_sentences
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Table
from tests.parse.kineto.kineto_file import AUTOGRAD, MAIN, PID, Event, begin, op, write, x


def table(tmp_path: Path, *events: Event) -> Table:
    return correlate(read(write(tmp_path / "net.json", begin(1000), *events)))


def rows(found: Table) -> list[tuple[str, int]]:
    return list(zip(found.coded("aten").texts(), found.ints("kDuration").tolist(), strict=True))


def test_the_ops_that_work_are_the_rows(tmp_path):
    found = table(
        tmp_path,
        op("aten::linear", 1010, 100, Input_Dims=[[2, 4], [3, 4], [3]]),
        op("aten::t", 1011, 5),
        op("aten::transpose", 1012, 3),
        op("aten::addmm", 1020, 80, Input_Dims=[[3], [2, 4], [4, 3], [], []]),
        op("aten::expand", 1021, 5),
        op("aten::copy_", 1030, 10),
        op("aten::resolve_conj", 1042, 1),
    )
    # 80 - 10 us for addmm, with its views, and the 20 us that linear itself takes around it
    assert rows(found) == [("aten::addmm", 90_000), ("aten::copy_", 10_000)]
    assert [json.loads(op)[-1] for op in found.coded("op").texts()] == ["linear", "linear"]
    assert found.coded("kind").texts() == ["cpu", "cpu"]
    assert found.coded("kShortName").texts() == ["addmm", "copy_"]
    assert found.ints("start").tolist() == [20_000, 30_000]
    assert found.ints("pid").tolist() == [PID, PID] and found.ints("tid").tolist() == [MAIN, MAIN]
    assert found.ints("device").tolist() == [-1, -1]
    assert found.coded("sizes").texts()[0] == "[[3],[2,4],[4,3],[],[]]"


def test_rows_inside_a_row_take_their_time_at_any_depth(tmp_path):
    found = table(
        tmp_path,
        op("aten::addmm", 1010, 100),
        op("aten::contiguous", 1020, 50),  # no row: hands on what is inside
        op("aten::clone", 1021, 48),
        op("aten::copy_", 1022, 40),
    )
    assert rows(found) == [("aten::addmm", 60_000), ("aten::copy_", 40_000)]
    assert found.ints("kDuration").sum() == 100_000  # no nanosecond twice


def test_a_kernel_that_calls_another_is_no_row_beside_it(tmp_path):
    found = table(
        tmp_path,
        op("aten::relu", 1010, 20),
        op("aten::clamp_min", 1012, 15),
        op("aten::relu", 1040, 9),  # this one works itself
    )
    assert rows(found) == [("aten::clamp_min", 20_000), ("aten::relu", 9000)]  # all of relu's 20 us


def test_an_overload_that_calls_another_is_no_row(tmp_path):
    found = table(tmp_path, op("aten::mul", 1010, 20), op("aten::mul", 1012, 15))  # by a number, by a tensor
    assert rows(found) == [("aten::mul", 20_000)]


def test_a_mode_or_a_device_mesh_that_runs_an_op_again_makes_no_second_row(tmp_path):
    found = table(
        tmp_path,
        op("aten::mm", 1010, 40), op("aten::detach", 1012, 5), op("aten::mm", 1020, 20),  # a dispatch mode
        op("aten::mm", 1110, 40), op("aten::bmm", 1120, 20),  # vmap
        op("aten::mul", 1210, 40), op("prims::mul", 1215, 30), op("aten::mul", 1220, 20),  # a decomposition to prims
        op("aten::adaptive_avg_pool2d", 1310, 40), op("aten::_adaptive_avg_pool2d", 1320, 20),
        op("aten::sum", 1410, 40), op("mylib::sum_of", 1415, 30), op("aten::sum", 1420, 20),
    )  # fmt: skip
    names = ["aten::mm", "aten::bmm", "aten::mul", "aten::_adaptive_avg_pool2d", "aten::sum"]
    assert rows(found) == [(name, 40_000) for name in names]


def fake_run(start: int) -> list[Event]:
    """A product that PyTorch runs on fake tensors: 30 us from ``start`` on."""
    return [
        op("aten::mm", start, 30, Input_Dims=[[64, 64], [64, 64]]), op("PythonDispatchMode", start + 1, 28),
        op("FakeTensorMode", start + 2, 26), op("aten::mm", start + 3, 20), op("aten::empty", start + 4, 5),
    ]  # fmt: skip


def test_ops_on_fake_tensors_are_no_rows(tmp_path):
    found = table(
        tmp_path,
        op("aten::mm", 1010, 100), op("PythonSubclass", 1011, 98), *fake_run(1020), op("aten::mm", 1060, 40),  # DTensor
        *fake_run(1200),  # what another traces
        op("_compile.compile_inner (dynamo_timed)", 1300, 50), op("aten::zero_", 1310, 5),
        op("aten::relu", 1400, 100), op("PythonDispatchMode", 1401, 90), *fake_run(1410),  # a decomposition is traced
        op("aten::tanh", 1600, 20),
    )  # fmt: skip
    assert rows(found) == [("aten::mm", 100_000), ("aten::tanh", 20_000)]


def test_a_program_on_fake_tensors_has_rows(tmp_path):
    assert [name for name, _ in rows(table(tmp_path, *fake_run(1010)))] == ["aten::mm"]


@pytest.mark.parametrize(("inner", "row"), [("slow_conv_transpose2d", 1), ("mkldnn_convolution", 1), ("copy_", 0)])
def test_a_transposed_convolution_works_in_the_convolution_or_in_what_it_calls(tmp_path, inner, row):
    around = op("aten::conv_transpose2d", 1000, 100), op("aten::convolution", 1001, 98)
    found = table(tmp_path, *around, op("aten::_convolution", 1002, 96), op(f"aten::{inner}", 1020, 40))
    right = [("aten::_convolution", 60_000), (f"aten::{inner}", 40_000)]  # and the 4 us around: to the longest
    assert rows(found) == ([(f"aten::{inner}", 100_000)] if row else [(right[0][0], 60_000), right[1]])


def test_a_factorisation_is_a_row_beside_what_checks_and_copies(tmp_path):
    found = table(
        tmp_path, op("aten::linalg_eig", 1010, 100), op("aten::abs", 1020, 10), op("aten::mul", 1040, 10),
        op("aten::linalg_inv_ex", 1210, 100), op("aten::eye", 1220, 10), op("aten::linalg_lu_solve", 1240, 50),
    )  # fmt: skip
    assert rows(found) == [
        ("aten::linalg_eig", 80_000), ("aten::abs", 10_000), ("aten::mul", 10_000),
        ("aten::eye", 10_000), ("aten::linalg_lu_solve", 90_000),  # 50 and the 40 of the inverse around its rows
    ]  # fmt: skip


def test_kernels_that_inductor_records_on_a_cpu_are_rows(tmp_path):
    """The names that torch._inductor.config.cpp.enable_kernel_profile gives them"""
    found = table(tmp_path, op("graph_0_cpp_fused_relu_0", 1010, 30), op("cpp_fused_add_1", 1050, 10))
    assert found.ints("kDuration").tolist() == [30_000, 10_000]


@pytest.mark.parametrize("inner", ["aten::_slow_conv2d_backward", "aten::slow_conv_transpose2d"])
def test_a_convolutions_backward_works_itself_or_calls_who_does(tmp_path, inner):
    direct = [op("aten::convolution_backward", 1010, 50), op("aten::copy_", 1012, 10)]
    called = [op("aten::convolution_backward", 1110, 50), op(inner, 1112, 40)]
    assert rows(table(tmp_path, *direct, *called)) == [
        ("aten::convolution_backward", 40_000), ("aten::copy_", 10_000), (inner, 50_000)
    ]  # fmt: skip


def test_unknown_ops_are_rows_where_none_is_inside(tmp_path):
    found = table(
        tmp_path,
        op("mylib::fused", 1010, 20),
        op("mylib::outer", 1040, 30),
        op("aten::mm", 1045, 20),
        op("detach", 1080, 5),  # no op's name
        op("TorchDynamo Cache Lookup", 1090, 5),
    )
    assert rows(found) == [("mylib::fused", 20_000), ("aten::mm", 30_000)]


def test_backward_nodes_and_annotations_are_no_rows(tmp_path):
    found = table(
        tmp_path,
        x("user_annotation", "layer:net", 1005, 60),
        op("aten::mm", 1010, 20, Sequence_number=4, Fwd_thread_id=0),
        op("autograd::engine::evaluate_function: MmBackward0", 1110, 60, AUTOGRAD, Sequence_number=4, Fwd_thread_id=1),
        op("MmBackward0", 1112, 50, AUTOGRAD, Sequence_number=4, Fwd_thread_id=1),
        op("aten::mm", 1120, 30, AUTOGRAD),
    )
    assert rows(found) == [("aten::mm", 20_000), ("aten::mm", 30_000)]
    assert found.coded("dir").texts() == ["fprop", "bprop"]
    assert [json.loads(text) for text in found.coded("layer").texts()] == [["net"], ["net"]]


def test_calls_that_launch_nothing_leave_the_cpu_ops_as_rows(tmp_path):
    query, wait = x("cuda_runtime", "cudaGetDeviceCount", 1040, 2), x("cuda_runtime", "cudaDeviceSynchronize", 1050, 2)
    node = x("cuda_runtime", "cudaGraphAddMemcpyNode", 1060, 2)  # part of a graph that nothing launches
    got = read(write(tmp_path / "net.json", begin(1000), op("aten::mm", 1010, 20, Input_Dims=[[1]]), query, wait, node))
    assert (got.rows, got.warnings) == (1, [])


LAUNCHES = [
    ("cuda_runtime", "cudaLaunchKernel"),
    ("cuda_driver", "cuLaunchKernelEx"),
    ("cuda_runtime", "cudaMemsetAsync"),
    ("cuda_runtime", "hipMemcpyWithStream"),
    ("cuda_runtime", "hipExtModuleLaunchKernel"),
    ("xpu_runtime", "zeCommandListAppendLaunchKernel"),
    ("xpu_runtime", "urEnqueueKernelLaunch"),
]


@pytest.mark.parametrize(("category", "name"), LAUNCHES)
def test_work_that_was_launched_but_not_recorded_is_warned_of(tmp_path, category, name):
    events = [begin(1000), op("aten::mm", 1010, 20, Input_Dims=[[1]]), x(category, name, 1012, 2)]
    got = read(write(tmp_path / "net.json", *events))
    assert got.rows == 1
    assert got.warnings == [
        "1 call gave a GPU work that the trace does not have: the rows are CPU ops, and their times are those of "
        "launching (profile with ProfilerActivity.CUDA or .XPU, too)"
    ]


# Of the files themselves: ops, and calls that launch (cudaLaunchKernel 236 + cuLaunchKernel 24 + cudaMemcpyAsync 8)
REAL = [("particle_transformer_cpu", 2752, 0), ("zoology_cpu", 1206, 268)]


@pytest.mark.parametrize(("name", "ops", "launches"), REAL)
def test_real_traces_with_a_few_calls_have_their_cpu_ops(data, name, ops, launches):
    got = read(data / "round2" / f"{name}.json.gz")
    assert len(got.ranges) == ops + (name == "zoology_cpu")  # which has an annotation
    assert 0 < got.rows < ops
    assert got.columns["kind"].texts() == ["cpu"] * got.rows
    spans = list(zip(got.ranges.start.tolist(), got.ranges.end.tolist(), strict=True))
    assert got.columns["kDuration"].sum() <= sum(end - start for start, end in spans)
    said = [warning.split()[0] for warning in got.warnings if "gave a GPU work" in warning]
    assert said == ([str(launches)] if launches else [])


def test_the_table_names_each_op_once_and_knows_what_views():
    lines = (Path(cpu_rows.__file__).parent / "data" / "cpu_ops.txt").read_text().splitlines()
    assert len(op_roles()) == len(lines) - 1  # a comment
    for name in ["addmm", "mm", "bmm", "copy_", "mkldnn_convolution", "convolution_backward", "_softmax", "sum"]:
        assert op_roles()[name] == Role.WORKS
    for name in ["linear", "conv2d", "view", "expand", "t", "empty", "reshape", "matmul", "item", "clone"]:
        assert op_roles()[name] == Role.CALLS


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:with_modules is deprecated:FutureWarning")  # since PyTorch 2.14 or 2.15
def test_what_torch_writes_here(tmp_path):
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile

    layer = torch.nn.Linear(64, 32)
    given = torch.randn(16, 64)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True, with_modules=True) as run:
        torch.relu(layer(given)).sum().backward()
    run.export_chrome_trace(str(tmp_path / "net.json"))
    found = correlate(read(tmp_path / "net.json"))
    done = found.coded("aten").texts()
    assert done.count("aten::addmm") == 1  # forward
    assert done.count("aten::mm") == 1  # the weight's gradient; the input needs none
    assert "aten::linear" not in done and "aten::t" not in done
    sizes = dict(zip(done, found.coded("sizes").texts(), strict=True))
    assert json.loads(sizes["aten::addmm"]) == [[32], [16, 64], [64, 32], [], []]
    directions = dict(zip(done, found.coded("dir").texts(), strict=True))
    assert (directions["aten::addmm"], directions["aten::mm"]) == ("fprop", "bprop")
    # No nanosecond twice: the rows' times are less than the thread's time between first and last.
    events = json.loads((tmp_path / "net.json").read_text())["traceEvents"]
    ops = [event for event in events if event.get("cat") == "cpu_op"]
    span = max(event["ts"] + event["dur"] for event in ops) - min(event["ts"] for event in ops)
    assert 0 < int(np.sum(found.ints("kDuration"))) <= span * 1000


def test_no_rate_follows_from_the_time_of_launching(tmp_path):
    """2·64³ FLOP in 20 us would be 26 GFLOP/s, but the CPU only launched the product."""
    mm = op("aten::mm", 1010, 20, Input_Dims=[[64, 64], [64, 64]], Input_type=["float", "float"])
    launch = x("cuda_runtime", "cudaLaunchKernel", 1012, 2)
    texts, rates = {}, {}
    for name, events in (("computed", [begin(1000), mm]), ("launched", [begin(1000), mm, launch])):
        loaded = load_table(write(tmp_path / f"{name}.json", *events))
        notes = annotate(loaded.table)
        texts[name] = " ".join(rate_sentences(summarise(loaded.table, notes)))
        rates[name] = float(roofline(loaded.table, notes).tflops[0])
    assert "524.3 kFLOP, 26.21 GFLOP/s." in texts["computed"]
    assert rates["computed"] == pytest.approx(2 * 64**3 / 20e-6 / 1e12)
    assert "524.3 kFLOP. Bytes" in texts["launched"] and "FLOP/s" not in texts["launched"]
    assert "launched GPU work that the capture does not have" in texts["launched"]
    assert np.isnan(rates["launched"])
