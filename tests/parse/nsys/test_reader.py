"""nsys exports, each a few literal rows: launch join, ranges, forward and backward, graphs, broken files."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyprof.errors import InputError, SchemaError
from pyprof.parse.attribute.contexts import Contexts
from pyprof.parse.attribute.correlate import correlate
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.nsys.reader import read
from pyprof.table.columns import NULL, Table
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, process, push, thread, write


def table(tmp_path: Path, **tables: list[tuple[Any, ...]]) -> Table:
    return correlate(read(write(tmp_path / "net.sqlite", **tables)))


def texts(found: Table, key: str) -> list[Any]:
    """A text column; lists read."""
    return [json.loads(text) if text[:1] == "[" and key != "kShortName" else text for text in found.coded(key).texts()]


def test_a_kernel_with_its_launch(tmp_path):
    found = table(tmp_path, **{KERNEL: [kernel(100, 5)], API: [call(90, 5)]})
    assert found.rows == 1
    assert texts(found, "kShortName") == ["gemm"]
    assert texts(found, "kLongName") == ["void gemm<float>(int)"]
    assert texts(found, "grid") == [[4, 5, 6]]
    assert texts(found, "block") == [[128, 1, 1]]
    assert texts(found, "api") == ["cudaLaunchKernel_v7000"]
    assert texts(found, "reason") == ["no range around the launch"]
    numbers = {key: found.ints(key).tolist() for key in ("kDuration", "start", "pid", "tid", "corr", "apiStart")}
    assert numbers == {"kDuration": [10], "start": [100], "pid": [7], "tid": [1], "corr": [5], "apiStart": [90]}
    assert found.ints("apiDuration").tolist() == [4]


def test_correlation_ids_count_per_process(tmp_path):
    found = table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 5, pid=7), kernel(101, 5, pid=8)],
            API: [call(90, 5, pid=8, tid=2), call(95, 5, pid=7, tid=1)],
            NVTX: [push(80, 99, "aten::relu, op_id = 1", pid=7, tid=1), push(80, 99, "aten::tanh, op_id = 1", 8, 2)],
        },
    )
    assert found.ints("pid").tolist() == [7, 8]
    assert found.ints("apiStart").tolist() == [95, 90]
    assert texts(found, "aten") == ["aten::relu", "aten::tanh"]


def test_backtrace_rows_repeat_correlation_ids_and_launch_nothing(tmp_path):
    found = table(tmp_path, **{KERNEL: [kernel(100, 5)], API: [call(10, 5, tid=9, event_class=67), call(90, 5)]})
    assert found.ints("apiStart").tolist() == [90]
    assert found.ints("tid").tolist() == [1]


def test_kernels_launched_before_the_capture_keep_their_rows(tmp_path):
    found = table(tmp_path, **{KERNEL: [kernel(-20, 1), kernel(100, 5), kernel(300, 9)], API: [call(90, 5)]})
    assert found.ints("start").tolist() == [-20, 100, 300]
    assert texts(found, "reason") == ["launched before the capture", "no range around the launch", "no API row"]
    assert found.ints("apiStart").tolist() == [NULL, 90, NULL]


def test_a_smaller_correlation_id_than_any_calls_was_launched_before_the_capture(tmp_path):
    # the GPU was a second behind: its kernel of the slice's middle has no API row in the slice
    found = table(tmp_path, **{KERNEL: [kernel(100, 3), kernel(110, 6)], API: [call(90, 5), call(95, 7)]})
    assert texts(found, "reason") == ["launched before the capture", "no API row"]


# One step of linear -> relu and its backward, as emit_nvtx(record_shapes=True) writes it. The outer op shows the number
# that the *next* node gets: linear 41, its t 41, addmm 42; backward runs on thread 2.
STEP = [
    push(0, 500, "layer:net"),
    push(10, 100, "aten::linear, seq = 41, op_id = 1, sizes = [[8, 4], [2, 4], [2]], input_op_ids = [(0,-1)]"),
    push(11, 20, "aten::t, seq = 41, op_id = 2, sizes = [[2, 4]], input_op_ids = [(0,-1)]"),
    push(30, 90, "aten::addmm, seq = 42, op_id = 3, sizes = [[2], [8, 4], [4, 2]], input_op_ids = [(0,-1)]"),
    push(110, 150, "aten::relu, seq = 43, op_id = 4, sizes = [[8, 2]], input_op_ids = [(1,0)]"),
    push(200, 250, "autograd::engine::evaluate_function: ReluBackward0, op_id = 5", tid=2),
    push(205, 245, "ReluBackward0, seq = 43, op_id = 6, sizes = [[8, 2]], input_op_ids = [(0,-1)]", tid=2),
    push(210, 240, "aten::threshold_backward, op_id = 7, sizes = [[8, 2], [8, 2]], input_op_ids = [(0,-1)]", tid=2),
    push(300, 390, "autograd::engine::evaluate_function: AddmmBackward0, op_id = 8", tid=2),
    push(305, 350, "AddmmBackward0, seq = 42, op_id = 9, sizes = [[8, 2]], input_op_ids = [(7,0)]", tid=2),
    push(310, 340, "aten::mm, op_id = 10, sizes = [[8, 2], [2, 4]], input_op_ids = [(7,0)]", tid=2),
    push(355, 380, "aten::sum, op_id = 11, sizes = [[8, 2]], input_op_ids = [(7,0)]", tid=2),
    push(400, 450, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad, op_id = 12", tid=2),
    push(402, 448, "torch::autograd::AccumulateGrad, op_id = 13", tid=2),
    push(410, 440, "aten::add_, op_id = 14, sizes = [[2, 4], [2, 4]]", tid=2),
    push(460, 490, "Optimizer.step#SGD.step, op_id = 15"),
    push(465, 480, "aten::_foreach_add_, op_id = 16, sizes = [[2, 4], [2], [2, 4], [2], []]"),
]
LAUNCHES = [(40, 1), (120, 1), (220, 2), (320, 2), (360, 2), (420, 2), (470, 1)]


@pytest.fixture(name="step")
def fixture_step(tmp_path):
    kernels = [kernel(1000 + at, at) for at, _ in LAUNCHES]
    return table(tmp_path, **{KERNEL: kernels, API: [call(at, at, tid=tid) for at, tid in LAUNCHES], NVTX: STEP})


def test_op_and_direction_of_forward_and_backward(step):
    rows = list(zip(*(texts(step, key) for key in ("op", "dir", "phase", "aten")), strict=True))
    assert rows == [
        (["linear"], "fprop", "forward", "aten::addmm"),
        (["relu"], "fprop", "forward", "aten::relu"),
        (["relu"], "bprop", "backward", "aten::threshold_backward"),
        (["linear"], "bprop", "backward", "aten::mm"),
        (["linear"], "bprop", "backward", "aten::sum"),  # beside the node, inside autograd's range: still linear's
        (["AccumulateGrad"], "bprop", "backward", "aten::add_"),
        (["SGD.step", "_foreach_add_"], "", "optimizer", "aten::_foreach_add_"),
    ]


def test_backward_inherits_the_forward_ops_layer(step):
    assert texts(step, "layer") == [["net"], ["net"], ["net"], ["net"], ["net"], "", ["net"]]


def test_sequence_numbers(step):
    assert texts(step, "seqMarker")[0] == ["aten::linear, seq = 41", "aten::addmm, seq = 42"]
    assert step.ragged("seqId").lists() == [[41], [43], [43], [42], [42], [], []]
    assert step.ragged("altSeqId").lists() == [[42], [], [], [], [], [], []]
    assert step.ints("subSeqId").tolist() == [0, 0, 0, 0, 1, 0, 0]


def test_shapes_are_the_innermost_ops(step):
    assert texts(step, "sizes")[0] == [[2], [8, 4], [4, 2]]
    assert texts(step, "sizes")[3] == [[8, 2], [2, 4]]


def test_a_kernels_of_one_op_share_its_number(tmp_path):
    found = table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 1), kernel(120, 2), kernel(140, 3)],
            API: [call(11, 1), call(12, 2), call(31, 3)],
            NVTX: [push(10, 20, "aten::sum, op_id = 1"), push(30, 40, "aten::sum, op_id = 2")],
        },
    )
    first, second, third = found.ints("opId").tolist()
    assert first == second != third


def test_the_last_forward_op_before_the_node_made_it(tmp_path):
    # sequence number 5 came twice: in the step before, and again after a restart of the counter
    found = table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 1)],
            API: [call(61, 1, tid=2)],
            NVTX: [
                push(10, 15, "aten::tanh, seq = 5, op_id = 1"),
                push(20, 25, "aten::relu, seq = 5, op_id = 2"),
                push(60, 70, "ReluBackward0, seq = 5, op_id = 3", tid=2),
                push(80, 85, "aten::exp, seq = 5, op_id = 4"),
            ],
        },
    )
    assert texts(found, "op") == [["relu"]]


def test_recomputation_in_backward_is_forward_again(tmp_path):
    # checkpointing: a node runs the forward op again (1st kernel), then its backward as a nested node (2nd kernel)
    found = table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 1), kernel(120, 2)],
            API: [call(62, 1, tid=2), call(82, 2, tid=2)],
            NVTX: [
                push(0, 30, "layer:block"),
                push(5, 25, "CheckpointFunction, seq = 9, op_id = 1"),
                push(10, 15, "aten::relu, seq = 9, op_id = 2"),  # under no_grad: makes no node
                push(50, 95, "CheckpointFunctionBackward, seq = 9, op_id = 3", tid=2),
                push(60, 70, "aten::relu, seq = 20, op_id = 4", tid=2),
                push(80, 90, "ReluBackward0, seq = 20, op_id = 5", tid=2),
            ],
        },
    )
    assert texts(found, "dir") == ["fprop", "bprop"]
    assert texts(found, "phase") == ["backward", "backward"]
    assert texts(found, "op") == [["relu"], ["relu"]]


def test_markers_give_op_args_and_trace(tmp_path):
    ours = (
        '{"v":1,"mod":"torch.nn.functional","op":"linear","args":[{"name":"input","type":"tensor","shape":[8,4],'
        '"dtype":"float32"}],"trace":["train.py:12","net.py:41"]}'
    )
    old = (
        "{'mod': 'torch', 'op': 'relu', 'args': [{'name': '', 'type': 'tensor', 'shape': (8, 2), 'dtype': 'float16'}]}"
    )
    found = table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 1), kernel(120, 2)],
            API: [call(15, 1), call(35, 2)],
            NVTX: [push(10, 20, ours), push(12, 19, "aten::linear, op_id = 1"), push(30, 40, old)],
        },
    )
    assert texts(found, "op") == [["linear"], ["relu"]]
    assert texts(found, "mod") == [["torch.nn.functional"], ["torch"]]
    assert texts(found, "trace") == [["train.py:12", "net.py:41"], ""]
    assert texts(found, "marker") == [[ours], [old]]


def test_regions_and_communication_are_no_forward_ops(tmp_path):
    found = table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 1), kernel(120, 2)],
            API: [call(15, 1), call(62, 2, tid=2)],
            NVTX: [
                push(0, 40, "DistributedDataParallel.forward, op_id = 1"),
                push(10, 20, "aten::relu, seq = 5, op_id = 2"),
                push(50, 90, "ReluBackward0, seq = 5, op_id = 3", tid=2),
                push(60, 80, "c10d::allreduce_, op_id = 4", tid=2),
            ],
        },
    )
    assert texts(found, "op") == [["relu"], ["allreduce_"]]
    assert texts(found, "dir") == ["fprop", ""]


def test_texts_by_id_open_ranges_and_bytes_that_are_not_utf8(tmp_path):
    strings = [(1, "gemm"), (101, "gemm<int>"), (50, "cudaLaunchKernel_v7000"), (60, "aten::relu, op_id = 3")]
    found = table(
        tmp_path,
        StringIds=strings,
        **{
            KERNEL: [kernel(100, 1), kernel(200, 2)],
            API: [call(15, 1), call(190, 2)],
            NVTX: [push(10, 20, 60), push(150, None, b"caf\xe9")],
        },
    )
    assert texts(found, "aten") == ["aten::relu", ""]
    assert texts(found, "reason") == ["", "only user ranges around the launch: caf\N{REPLACEMENT CHARACTER}"]


def test_output_shapes_come_from_the_consumer(tmp_path):
    convolution = "sizes = [[2, 3, 8, 8], [4, 3, 3, 3], [], [], []], input_op_ids = [(0,-1), (0,-1), (0,-1)]"
    found = table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 1)],
            API: [call(15, 1)],
            NVTX: [
                push(10, 30, f"aten::conv2d, seq = 1, op_id = 21, {convolution}"),
                push(11, 29, f"aten::convolution, seq = 1, op_id = 22, {convolution}"),
                push(12, 28, f"aten::cudnn_convolution, op_id = 23, {convolution}"),
                push(40, 50, "aten::relu, seq = 2, op_id = 24, sizes = [[2, 4, 4, 4]], input_op_ids = [(21,0)]"),
            ],
        },
    )
    assert texts(found, "aten") == ["aten::cudnn_convolution"]
    assert texts(found, "outs") == [[[2, 4, 4, 4]]]


def test_graph_nodes_belong_to_the_op_that_was_captured(tmp_path):
    # node 31 was cloned from 30, captured inside relu; node 99 was captured before the ranges began
    found = table(
        tmp_path,
        **{
            KERNEL: [kernel(500, 9, node=31), kernel(520, 9, node=99)],
            API: [call(400, 9)],
            NVTX: [push(10, 20, "aten::relu, op_id = 1"), push(390, 420, "CompiledFunction, op_id = 2")],
            "CUDA_GRAPH_NODE_EVENTS": [
                (12, 12, thread(7, 1), 30, None),
                (299, 299, thread(7, 1), 31, None),  # nsys 2025.3: the clone's creation, then where it came from
                (300, 300, thread(7, 1), 31, 30),
                (-5, -5, thread(7, 1), 99, None),
            ],
        },
    )
    assert texts(found, "op") == [["relu"], ["CompiledFunction"]]
    assert texts(found, "reason") == ["", "op of the graph's launch, not of its capture"]


def test_an_opaque_graph_counts_as_a_row(tmp_path):
    graph = (500, 900, 0, 7, 9, process(7), 3)
    found = table(
        tmp_path, **{KERNEL: [kernel(100, 1)], API: [call(90, 1)], "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [graph]}
    )
    assert texts(found, "kind") == ["kernel", "graph"]
    assert found.ints("kDuration").tolist() == [10, 400]
    assert texts(found, "kShortName") == ["gemm", "[CUDA graph 3]"]


def test_copies_and_memsets_are_rows_with_bytes(tmp_path):
    found = table(
        tmp_path,
        **{
            "CUPTI_ACTIVITY_KIND_MEMCPY": [(10, 30, 0, 7, 1, process(7), 4096, 1)],
            "CUPTI_ACTIVITY_KIND_MEMSET": [(40, 45, 0, 7, 2, process(7), 64, 0)],
            API: [call(5, 1), call(6, 2)],
        },
    )
    assert texts(found, "kShortName") == ["[CUDA memcpy Host-to-Device]", "[CUDA memset]"]
    assert found.ints("bytes").tolist() == [4096, 64]
    assert texts(found, "grid") == ["", ""]


def test_gpu_names_go_by_the_processs_own_device_number(tmp_path):
    found = table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 1, pid=7), kernel(110, 1, pid=8)],
            API: [call(90, 1, pid=7), call(91, 1, pid=8)],
            "TARGET_INFO_GPU": [(0, 1, "B", 9), (1, 0, "A", 9)],
            "TARGET_INFO_CUDA_DEVICE": [(8, 0, 0)],
        },
    )
    assert texts(found, "gpu") == ["A", "B"]


def test_profiler_warnings_are_passed_on(tmp_path):
    events = [(1, 2, "CUDA device 0: Unified Memory trace is off"), (2, 1, "just information")]
    capture = read(write(tmp_path / "a.sqlite", DIAGNOSTIC_EVENT=events, **{API: [call(5, 1)]}))
    assert capture.warnings[-1] == "nsys: CUDA device 0: Unified Memory trace is off"
    assert "no GPU activity" in capture.warnings[0]


def test_schema_error_names_the_column(tmp_path):
    path = write(tmp_path / "a.sqlite", drop={KERNEL: "correlationId"}, **{KERNEL: [kernel(1, 1)], API: [call(0, 1)]})
    with pytest.raises(SchemaError, match=rf"{path}: table {KERNEL} has no column correlationId"):
        read(path)


@pytest.mark.parametrize(("place", "value"), [(0, "soon"), (5, b"x"), (4, "1e400"), (4, float("inf"))])
def test_a_value_that_is_no_number_is_refused(tmp_path, place, value):
    row = [*kernel(1, 1)]
    row[place] = value
    path = write(tmp_path / "a.sqlite", **{KERNEL: [tuple(row)], API: [call(0, 1)]})
    with pytest.raises(SchemaError, match=rf"{path}: expected whole numbers, found another value"):
        read(path)


@pytest.mark.parametrize("place", [0, 1, 5])
def test_a_range_whose_time_is_no_number_is_refused(tmp_path, place):
    row = [*push(1, 5, "aten::mm, op_id = 1")]
    row[place] = "soon"
    path = write(tmp_path / "a.sqlite", **{KERNEL: [kernel(1, 1)], API: [call(0, 1)], NVTX: [tuple(row)]})
    with pytest.raises(SchemaError, match=rf"{path}: "):
        read(path)


@pytest.mark.parametrize("text", ["mine, op_id = yours", "mine, seq = x, op_id = 3", "mine, op_id = 3x, sizes = []"])
def test_a_users_text_with_autograds_words_is_the_users(tmp_path, text):
    path = write(tmp_path / "a.sqlite", **{KERNEL: [kernel(9, 1)], API: [call(3, 1)], NVTX: [push(1, 5, text)]})
    found = correlate(read(path))
    assert found.rows == 1
    assert "mine" in texts(found, "reason")[0] + json.dumps(texts(found, "op")[0])


def test_another_database_is_refused(tmp_path):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name)")
    with pytest.raises(InputError, match="expected an nsys SQLite export, found a database with customers"):
        read(path)


def test_an_export_without_events_says_what_to_record(tmp_path):
    path = write(tmp_path / "a.sqlite", DIAGNOSTIC_EVENT=[(1, 2, "no permission")])
    with pytest.raises(InputError, match="found an nsys export with none \\(profile with -t cuda,nvtx\\)"):
        read(path)


def test_markers_that_pyprof_never_closed_are_no_ops(tmp_path):
    leaked = "{'mod': 'torch', 'op': '__getattr__', 'args': []}"
    cat = "{'mod': 'torch', 'op': 'cat', 'args': []}"
    found = table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 1), kernel(120, 2)],
            API: [call(15, 1), call(35, 2)],
            NVTX: [push(0, None, leaked), push(1, None, leaked), push(10, 20, cat)],
        },
    )
    assert texts(found, "op") == [["cat"], ""]


@pytest.mark.parametrize("size", [20, 5000])
def test_a_cut_database_is_refused(tmp_path, size):
    path = write(tmp_path / "a.sqlite", **{KERNEL: [kernel(i, i) for i in range(500)], API: [call(0, 1)]})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match="expected a whole SQLite database, found an error"):
        read(path)


def test_a_cut_gzip_file_is_refused(tmp_path):
    path = write(tmp_path / "a.sqlite", **{KERNEL: [kernel(1, 1)], API: [call(0, 1)]})
    packed = tmp_path / "a.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert correlate(read(packed)).rows == 1
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(InputError, match="expected a whole gzip file"):
        read(packed)


def test_a_repeated_nest_has_its_own_numbers(tmp_path):
    # two steps of the same nest, and a third whose numbers stand otherwise to each other
    found = table(
        tmp_path,
        **{
            KERNEL: [kernel(1000 + at, at) for at in (15, 115, 215)],
            API: [call(at, at) for at in (15, 115, 215)],
            NVTX: [
                push(10, 20, "aten::linear, seq = 41, op_id = 1"),
                push(11, 19, "aten::addmm, seq = 42, op_id = 2"),
                push(110, 120, "aten::linear, seq = 141, op_id = 3"),
                push(111, 119, "aten::addmm, seq = 142, op_id = 4"),
                push(210, 220, "aten::linear, seq = 241, op_id = 5"),
                push(211, 219, "aten::addmm, seq = 245, op_id = 6"),
            ],
        },
    )
    assert texts(found, "seqMarker") == [
        [f"aten::linear, seq = {first}", f"aten::addmm, seq = {second}"]
        for first, second in ((41, 42), (141, 142), (241, 245))
    ]
    assert found.ragged("seqId").lists() == [[41], [141], [241]]
    assert found.ragged("altSeqId").lists() == [[42], [142], [245]]


def test_ranges_that_are_never_closed_cost_no_more_than_others(tmp_path):
    # pushed without a pop, as after an exception: each is around all that follows, 1,000 deep at the end
    count = 1000
    tables = {
        KERNEL: [kernel(100 + 20 * i, i + 1) for i in range(count)],
        API: [call(50 + 20 * i, i + 1) for i in range(count)],
        NVTX: [
            *(push(40 + 20 * i, None, f"iteration {i}") for i in range(count)),
            push(30, None, "aten::mm, seq = 3, op_id = 4"),
        ],
    }
    tree = RangeTree(capture := read(write(tmp_path / "net.sqlite", **tables)))
    assert int(tree.parent.max()) >= count - 1
    found = correlate(capture)
    contexts = Contexts(tree, tree.innermost_of_rows(capture)[0])
    assert max(map(len, contexts.paths)) == 2  # and not 1,001: the op, and the innermost iteration
    assert set(found.coded("op").texts()) == {'["mm"]'}
    assert set(found.ragged("seqId").lists()[-1]) == {3}


@pytest.mark.parametrize(
    ("change", "short", "long"),
    [
        ("shortName = NULL", "gemm", "void gemm<float>(int)"),
        ("demangledName = NULL", "gemm", "gemm"),
        ("demangledName = NULL, shortName = NULL, mangledName = 201", "gemm", "void gemm<float>(int)"),
    ],
)
def test_a_name_that_is_lost_is_made_of_the_others(tmp_path, change, short, long):
    names = [(1, "gemm"), (101, "void gemm<float>(int)"), (50, "cudaLaunchKernel"), (201, "_Z4gemmIfEvi")]
    file = write(tmp_path / "net.sqlite", StringIds=names, **{KERNEL: [kernel(100, 5)], API: [call(20, 5)]})
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"UPDATE {KERNEL} SET {change}")
        db.commit()
    found = correlate(read(file))
    assert (texts(found, "kShortName"), texts(found, "kLongName")) == ([short], [long])
