"""torch.profiler traces of a few literal events: rows, launches, ranges, forward and backward, all eras."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyprof.errors import InputError
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.scope import Kind
from pyprof.parse.kineto.ranges import dtype, op_scope
from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL, Table
from tests.parse.kineto.kineto_file import AUTOGRAD, MAIN, PID, begin, call, kernel, op, write, x


def capture(tmp_path: Path, *events: dict[str, Any], **header: Any) -> Capture:
    return read(write(tmp_path / "net.json", begin(1000), *events, **header))


def table(tmp_path: Path, *events: dict[str, Any], **header: Any) -> Table:
    return correlate(capture(tmp_path, *events, **header))


def ints(found: Table, *keys: str) -> list[list[int]]:
    return [found.ints(key).tolist() for key in keys]


def test_an_op_without_a_library_is_a_function_of_autograd(tmp_path):
    """PyTorch's profiler names the forward pass of a torch.autograd.Function by its class."""
    found = table(tmp_path, op("MyFunction", 1010, 50), call(1020, 5), kernel(1100, 2, 5))
    assert [found.coded(key).texts() for key in ("mod", "op")] == [['["autograd"]'], ['["MyFunction"]']]


def test_a_backward_node_without_its_forward_op_gives_its_own_name(tmp_path):
    found = table(tmp_path, op("MmBackward0", 1010, 50, AUTOGRAD), call(1020, 5, AUTOGRAD), kernel(1100, 2, 5))
    assert [found.coded(key).texts() for key in ("mod", "op")] == [['["autograd"]'], ['["Mm"]']]


def test_a_kernel_with_its_launch(tmp_path):
    found = table(
        tmp_path,
        op("aten::mm", 1010, 50, External_id=3),
        call(1020, 5, External_id=3),
        kernel(1100.25, 2.5, 5, registers_per_thread=32, shared_memory=400, bytes=None)
        | {"args": {"device": 0, "stream": 7, "correlation": 5, "grid": [4, 5, 6], "block": [128, 1, 1],
                    "registers per thread": 32, "shared memory": 400, "est. achieved occupancy %": 25}},
        deviceProperties=[{"id": 0, "name": "NVIDIA H200"}],
        distributedInfo={"rank": 3},
    )  # fmt: skip
    assert found.rows == 1
    assert ints(found, "start", "kDuration", "pid", "tid", "corr") == [[100_250], [2500], [PID], [MAIN], [5]]
    assert ints(found, "apiStart", "apiDuration", "device", "stream") == [[20_000], [5000], [0], [7]]
    assert ints(found, "registers", "dynamicSmem", "staticSmem", "rank") == [[32], [400], [NULL], [3]]
    texts = {key: found.coded(key).texts()[0] for key in ("kind", "kShortName", "kLongName", "api", "gpu", "aten")}
    assert texts == {"kind": "kernel", "kShortName": "gemm", "kLongName": "void gemm<float>(int)",
                     "api": "cudaLaunchKernel", "gpu": "NVIDIA H200", "aten": "aten::mm"}  # fmt: skip
    assert json.loads(found.coded("grid").texts()[0]) == [4, 5, 6]
    assert json.loads(found.coded("block").texts()[0]) == [128, 1, 1]
    occupancy = found.columns["occupancy"]
    assert isinstance(occupancy, np.ndarray) and occupancy.tolist() == [25.0]


@pytest.mark.parametrize(
    ("ts", "since", "ns"),
    [
        ("4372429826938.361", "4372429815941.953", 10_996_408),  # 50 days: 26938361 - 15941953
        ("4450000000000.001", "4450000000000.000", 1),  # here a product by 1000 of floats has steps of 0.5
        ("1689180449563354.789", "1689180449563354.001", 788),  # since 1970 with a fraction: no float holds it
        ("1661203463063998", "1661203463000000", 63_998_000),  # whole microseconds
        ("999.5", "1000", -500),
    ],
)
def test_times_are_exact(tmp_path, ts, since, ns):
    text = json.dumps({"traceEvents": [begin(-1), kernel(-2, 0.768, 5)]})
    text = text.replace('"ts": -1', f'"ts": {since}').replace('"ts": -2', f'"ts": {ts}')
    path = tmp_path / "net.json"
    path.write_text(text)
    found = read(path)
    assert found.columns["start"].tolist() == [ns]
    assert found.columns["kDuration"].tolist() == [768]


def test_rows_come_in_order_of_start(tmp_path):
    found = table(tmp_path, kernel(1300, 1, 8), kernel(1100, 1, 9), kernel(1200, 1, 7))
    assert ints(found, "corr") == [[9, 7, 8]]


def test_copies_and_memsets_keep_their_bytes(tmp_path):
    copy = x(
        "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1100, 2, 7, 0, device=0, stream=7, correlation=1, bytes=64
    )
    fill = x("gpu_memset", "Memset (Device)", 1200, 1, 7, 0, device=0, stream=7, correlation=2, bytes=8)
    found = table(tmp_path, copy, fill)
    assert found.coded("kind").texts() == ["memcpy", "memset"]
    assert found.coded("kShortName").texts() == ["Memcpy HtoD (Pageable -> Device)", "Memset (Device)"]
    assert ints(found, "bytes", "registers") == [[64, 8], [NULL, NULL]]
    assert found.coded("grid").texts() == ["", ""]


def test_kernels_launched_before_the_capture_stay(tmp_path):
    found = table(tmp_path, call(1020, 5), kernel(1100, 1, 3), kernel(1200, 1, 5), kernel(1300, 1, 9))
    assert ints(found, "apiStart") == [[NULL, 20_000, NULL]]
    reasons = found.coded("reason").texts()
    assert (reasons[0], reasons[2]) == ("launched before the capture", "no API row")


def test_external_ids_stand_in_for_a_missing_call(tmp_path):
    found = table(
        tmp_path,
        op("aten::mm", 1010, 50, External_id=3),
        op("aten::relu", 1070, 50, External_id=4),
        call(1075, 6),
        kernel(1100, 1, 5, External_id=3),
        kernel(1200, 1, 6),
    )
    assert found.coded("aten").texts() == ["aten::mm", "aten::relu"]


def test_a_call_on_a_thread_without_ops_finds_its_op_by_external_id(tmp_path):
    found = table(
        tmp_path,
        op("aten::mm", 1010, 50, External_id=3),
        call(1020, 5, tid=-549452224, External_id=3),  # as 32-bit pthread ids are written
        kernel(1100, 1, 5),
    )
    assert found.coded("aten").texts() == ["aten::mm"]


def test_external_ids_that_name_unrelated_ops_are_not_believed(tmp_path):
    events = [op("aten::mm", 1010, 50, External_id=3), op("aten::t", 1070, 5, External_id=4)]
    wrong = [event for i in range(10) for event in (call(1020 + i, i), kernel(1200 + i, 1, i, External_id=4))]
    found = table(tmp_path, *events, *wrong, kernel(1300, 1, 99, External_id=4))
    assert found.coded("aten").texts() == ["aten::mm"] * 10 + [""]


def test_an_external_id_equal_to_the_calls_correlation_names_nothing(tmp_path):
    found = table(tmp_path, op("aten::mm", 1010, 5, External_id=5), call(1020, 5, External_id=5), kernel(1100, 1, 5))
    assert found.coded("aten").texts() == [""]


def test_merged_processes_do_not_mix(tmp_path):
    found = table(
        tmp_path,
        op("aten::mm", 1010, 50),
        call(1020, 5),
        x("cpu_op", "aten::relu", 2010, 50, 80, 8),
        x("cuda_runtime", "cudaLaunchKernel", 2020, 5, 80, 8, correlation=5),
        kernel(1100, 1, 5),
        kernel(2100, 1, 5),
    )
    assert ints(found, "pid", "apiStart") == [[PID, 8], [20_000, 1_020_000]]
    assert found.coded("aten").texts() == ["aten::mm", "aten::relu"]


def test_backward_goes_to_its_forward_op_by_flows(tmp_path):
    events = [
        op("aten::linear", 1010, 50, Sequence_number=8, Fwd_thread_id=0, External_id=1),
        op(
            "aten::addmm", 1020, 30, Sequence_number=8, Fwd_thread_id=0, External_id=2, Input_Dims=[[3], [2, 4], [4, 3]]
        ),
        {"ph": "s", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", "pid": PID, "tid": MAIN, "ts": 1020},
        op(
            "autograd::engine::evaluate_function: AddmmBackward0",
            1100,
            60,
            AUTOGRAD,
            Sequence_number=8,
            Fwd_thread_id=1,
        ),
        op("AddmmBackward0", 1110, 40, AUTOGRAD, Sequence_number=8, Fwd_thread_id=1),
        {"ph": "f", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", "pid": PID, "tid": AUTOGRAD, "ts": 1110, "bp": "e"},
        op("aten::mm", 1120, 20, AUTOGRAD, Fwd_thread_id=0),
        call(1125, 5, AUTOGRAD),
        kernel(1200, 1, 5),
    ]
    got = capture(tmp_path, *events)
    assert got.ranges.forward_range is not None and got.ranges.forward_thread is not None
    assert got.ranges.forward_range.tolist() == [-1, -1, -1, 1, -1]
    assert got.ranges.forward_thread.tolist() == [-1, -1, 0, 0, -1]  # PyTorch's thread 1 is the main thread
    found = correlate(got)
    assert found.coded("dir").texts() == ["bprop"]
    assert json.loads(found.coded("op").texts()[0]) == ["linear"]
    assert found.ragged("seqId").lists() == [[8]]


def test_sizes_types_strides_and_values_stand_in_schema_order(tmp_path):
    found = table(
        tmp_path,
        op("aten::cat", 1010, 50, Input_Dims=[[[2, 3], [4, 3]], []], Input_type=["TensorList", "Scalar"],
           Input_Strides=[[[3, 1], [3, 1]], []], Concrete_Inputs=["", "-1"]),
        call(1020, 5),
        kernel(1100, 1, 5),
    )  # fmt: skip
    assert [found.coded(key).texts()[0] for key in ("sizes", "dtypes", "strides", "args")] == [
        "[[[2,3],[4,3]],[]]", '[["",""],""]', "[[[3,1],[3,1]],[]]", '["","-1"]'
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("float", "float32"), ("double", "float64"), ("c10::Half", "float16"), ("c10::BFloat16", "bfloat16"),
        ("long int", "int64"), ("long", "int64"), ("int", "int32"), ("short", "int16"), ("signed char", "int8"),
        ("unsigned char", "uint8"), ("bool", "bool"), ("c10::complex<float>", "complex64"),
        ("c10::Float8_e4m3fn", "float8_e4m3fn"), ("c10::Float8_e5m2fnuz", "float8_e5m2fnuz"),
        ("Scalar", ""), ("ScalarList", ""), ("GenericList", ""), ("", ""), (None, ""),
    ],
)  # fmt: skip
def test_dtypes_have_torchs_names(written, name):
    assert dtype(written, []) == name


def test_one_scope_for_calls_that_look_alike(tmp_path):
    events = [op("aten::relu", 1010 + 10 * i, 5, Input_Dims=[[2, 3 + i % 2]], External_id=i) for i in range(6)]
    got = capture(tmp_path, *events, call(1, 1), kernel(2000, 1, 1))
    assert [scope.sizes for scope in got.scopes] == ["[[2,3]]", "[[2,4]]"]
    assert got.ranges.scope.tolist() == [0, 1, 0, 1, 0, 1]
    assert got.ranges.op_id.tolist() == [0, 1, 2, 3, 4, 5]


def test_an_op_whose_inputs_are_no_list_has_none():
    assert op_scope("aten::relu", b'{"a":1}', b'"float"', b"", b"null").sizes == ""


def test_annotations_are_markers_layers_steps_and_collectives(tmp_path):
    marker = '{"v":1,"mod":"torch","op":"relu","args":[],"trace":["net.py:3"]}'
    names = [marker, "layer:encoder.3", "ProfilerStep#4", "Optimizer.step#SGD.step", "nccl:all_reduce", "mine"]
    events = [x("user_annotation", name, 1010 + i, 100 - 2 * i) for i, name in enumerate(names)]
    got = capture(tmp_path, *events, call(1050, 5), kernel(2000, 1, 5))
    kinds = [Kind.MARKER, Kind.LAYER, Kind.STEP, Kind.OPTIMIZER, Kind.COMM, Kind.USER]
    assert [scope.kind for scope in got.scopes] == kinds
    assert correlate(got).ints("step").tolist() == [4]


def test_frames_are_the_users_and_modules(tmp_path):
    names = [
        "threading.py(1032): _bootstrap", "/home/me/nets/train.py(88): step", "torch/nn/modules/module.py(1): __call__",
        "nn.Module: Net_0", "nets/net.py(12): forward", "<built-in method linear of type object at 0x7f00>",
        "/usr/lib/python3/dist-packages/pkg/mod.py(5): f", "<frozen importlib._bootstrap>(5): g",
    ]  # fmt: skip
    events = [x("python_function", name, 1010 + i, 100 - 2 * i) for i, name in enumerate(names)]
    got = capture(tmp_path, *events, call(1050, 5), kernel(2000, 1, 5))
    assert [(scope.kind, scope.name) for scope in got.scopes] == [
        (Kind.FRAME, "nets/train.py:88"), (Kind.MODULE, "Net_0"), (Kind.FRAME, "nets/net.py:12"),
        (Kind.FRAME, "pkg/mod.py:5"),
    ]  # fmt: skip
    assert json.loads(correlate(got).coded("trace").texts()[0]) == [
        "nets/train.py:88",
        "nets/net.py:12",
        "pkg/mod.py:5",
    ]
    assert json.loads(correlate(got).coded("functions").texts()[0]) == ["step", "forward", "f"]


def test_the_names_of_2021(tmp_path):
    tid = "1441273664"  # a text on events, a number on flows
    path = write(
        tmp_path / "net.json",
        {"ph": "X", "cat": "Operator", "name": "aten::addmm", "pid": 5, "tid": tid, "ts": 1610366387140599, "dur": 40,
         "args": {"Input dims": [[3], [2, 4], [4, 3]], "Input type": [], "Device": 0, "External id": 12}},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": tid, "ts": 1610366387140610,
         "dur": 4, "args": {"cbid": 211, "correlation": 627, "external id": 12, "external ts": 1610366387140599}},
        {"ph": "X", "cat": "Kernel", "name": "volta_sgemm_128x64_nn", "pid": 0, "tid": "stream 7",
         "ts": 1610366387140700, "dur": 9, "args": {"device": 0, "stream": 7, "correlation": 627, "external id": 12,
         "registers per thread": 80, "shared memory": 2304, "grid": [3, 2, 1], "block": [8, 8, 1]}},
        {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "pid": 0, "tid": "stream 7", "ts": 1610366387140800,
         "dur": 1, "args": {"device": 0, "stream": 7, "correlation": 628, "external id": 12, "bytes": 8}},
    )  # fmt: skip
    found = correlate(read(path))
    assert ints(found, "start", "kDuration", "tid") == [[101_000, 201_000], [9000, 1000], [1441273664, NULL]]
    assert found.coded("aten").texts() == ["aten::addmm", "aten::addmm"]  # the second by its external id alone
    assert found.coded("sizes").texts()[0] == "[[3],[2,4],[4,3]]"


def test_hip_events(tmp_path):
    launch = x("cuda_runtime", "hipLaunchKernel", 1020, 5, correlation=6, stream="0x0", kernel="foo", grid=[1, 1, 1])
    found = table(
        tmp_path, launch, kernel(1100, 3, 6, "void foo<1>(int) [clone .kd]", device=2, kind="Dispatch Kernel"),
        deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X"}],
    )  # fmt: skip
    assert found.coded("kShortName").texts() == ["foo"]
    assert found.coded("gpu").texts() == ["AMD Instinct MI300X"]  # the only GPU, though it is numbered otherwise
    assert ints(found, "device", "registers") == [[2], [NULL]]


def test_graph_nodes_share_their_graphs_launch(tmp_path):
    found = table(tmp_path, call(1020, 5), kernel(1100, 1, 5, graph_node_id=11), kernel(1200, 1, 5, graph_node_id=12))
    assert ints(found, "graphNode", "apiStart") == [[11, 12], [20_000, 20_000]]


def test_a_bare_list_and_gzip_under_any_name(tmp_path):
    path = tmp_path / "trace.bin"
    path.write_bytes(gzip.compress(json.dumps([begin(1000), kernel(1100, 1, 5)]).encode()))
    assert read(path).columns["start"].tolist() == [100_000]


def test_without_the_profilers_span_times_count_from_the_first_event(tmp_path):
    got = read(write(tmp_path / "net.json", op("aten::mm", 50, 10), kernel(60.5, 1, 5)))
    assert got.columns["start"].tolist() == [10_500]


def test_warns_of_missing_shapes(tmp_path):
    got = capture(tmp_path, op("aten::mm", 1010, 50), call(1020, 5), kernel(1100, 1, 5))
    assert got.warnings == ["the trace has no shapes: profile with record_shapes=True to have FLOPs and bytes"]


def test_a_trace_of_another_program_is_refused(tmp_path):
    path = write(tmp_path / "net.json", {"ph": "X", "cat": "gc", "name": "mark", "ts": 1, "dur": 1, "pid": 1, "tid": 1})
    with pytest.raises(InputError, match=r"net\.json: expected a torch.profiler .* not torch's: gc"):
        read(path)


@pytest.mark.parametrize("odd", [2**70, -(2**63), "x", "", 1.5e30, True, None])
def test_odd_numbers_are_unknown_not_fatal(tmp_path, odd):
    event = kernel(1100, 1, 5)
    event["args"] |= {"stream": odd, "registers per thread": odd, "grid": [odd, 1, 1], "bytes": odd}
    found = table(tmp_path, event, x("cpu_op", "aten::mm", 1, 1, tid=odd, External_id=odd, Sequence_number=odd))
    assert found.rows == 1


def test_impossible_times_are_counted(tmp_path):
    got = capture(tmp_path, kernel(1100, 1, 5), kernel(1e300, 1, 6), kernel(1200, 1e300, 7), op("aten::mm", 1e300, 1))
    durations = got.columns["kDuration"]
    assert isinstance(durations, np.ndarray)
    assert sorted(durations.tolist()) == [0, 1_000, 1_000]
    assert got.warnings[:3] == [
        "1 events with impossible times are left out",  # a range without times is around nothing
        "1 GPU operations have impossible times (none, or an end before the start): they count as 0 ns",
        "1 GPU operations, which took 1,000 ns, have no possible start: they stand where the first one starts",
    ]


def test_kernels_without_any_call_in_a_trace_of_two_processes(tmp_path):
    found = table(
        tmp_path, op("aten::mm", 1010, 50), x("cpu_op", "aten::mm", 1010, 50, 80, 8), kernel(1100, 1, 5)
    )  # fmt: skip
    assert found.ints("pid").tolist() == [NULL]
    assert found.coded("reason").texts() == ["the capture has no API rows of its process"]


def test_flows_between_ranges_without_numbers_lead_nowhere(tmp_path):
    flow = {"id": 1, "cat": "fwdbwd", "name": "fwdbwd", "pid": PID, "tid": MAIN}
    got = capture(tmp_path, op("aten::mm", 1010, 50), {**flow, "ph": "s", "ts": 1010}, {**flow, "ph": "f", "ts": 1010})
    assert got.ranges.forward_range is None


def test_a_row_without_a_correlation_id_says_so(tmp_path):
    """CUPTI's unknown id is 0. Ids 5 and 7 are calls; 3 is from before them, 6 is lost; the row at 1 began before."""
    rows = [kernel(at, 5, corr) for at, corr in ((100, 0), (110, 3), (120, 6), (1, 0))]
    found = table(tmp_path, call(50, 5), call(60, 7), *rows)
    assert found.coded("reason").texts() == [
        "launched before the capture",
        "no correlation id, so its launch is unknown",
        "launched before the capture",
        "no API row",
    ]


def test_a_launch_on_a_thread_without_ops_says_so_where_other_threads_have_ops(tmp_path):
    """And it names no remedy that was taken: the program may well have called pyprof.init() or torch.profiler."""
    kernels = [kernel(at, 5, corr) for at, corr in ((100, 1), (110, 2), (120, 3))]
    calls = [call(50, 1), call(60, 2, tid=MAIN + 1), call(70, 3)]
    on_each = [x("user_annotation", "mine", 58, 10, MAIN + 1)]
    of_one = [op("aten::mm", 45, 12), *calls, *kernels]
    assert table(tmp_path, *of_one).coded("reason").texts() == [
        "",
        "launched by a thread whose ops were not recorded",
        "no range around the launch",
    ]
    assert table(tmp_path, *of_one, *on_each).coded("reason").texts()[1] == "only user ranges around the launch: mine"
    assert table(tmp_path, *calls, *kernels).coded("reason").texts() == ["no range around the launch"] * 3


def test_a_recording_of_one_thread_says_so_of_the_kernels_of_another(data):
    """The thread whose op was recorded launches nothing; the other one launches six products."""
    found = correlate(read(data / "round3" / "cases" / "thread_gpu.json.gz"))
    assert found.coded("reason").texts() == ["launched by a thread whose ops were not recorded"] * 6
