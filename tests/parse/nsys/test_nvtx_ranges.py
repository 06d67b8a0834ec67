"""NVTX ranges of nsys exports, each a few literal rows: ops, directions, numbers, shapes and markers of kernels."""

import json

import pytest

from pyprof.marker import Marker, format_marker
from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, read_table, texts, write

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
    return read_table(tmp_path, **{KERNEL: kernels, API: [call(at, at, tid=tid) for at, tid in LAUNCHES], NVTX: STEP})


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
    found = read_table(
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
    found = read_table(
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
    found = read_table(
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
    found = read_table(
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
    found = read_table(
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
    found = read_table(
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
    found = read_table(
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


@pytest.mark.parametrize("text", ["mine, op_id = yours", "mine, seq = x, op_id = 3", "mine, op_id = 3x, sizes = []"])
def test_a_users_text_with_autograds_words_is_the_users(tmp_path, text):
    path = write(tmp_path / "a.sqlite", **{KERNEL: [kernel(9, 1)], API: [call(3, 1)], NVTX: [push(1, 5, text)]})
    found = correlate(read(path))
    assert found.rows == 1
    assert "mine" in texts(found, "reason")[0] + json.dumps(texts(found, "op")[0])


def test_markers_that_pyprof_never_closed_are_no_ops(tmp_path):
    leaked = "{'mod': 'torch', 'op': '__getattr__', 'args': []}"
    cat = "{'mod': 'torch', 'op': 'cat', 'args': []}"
    found = read_table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 1), kernel(120, 2)],
            API: [call(15, 1), call(35, 2)],
            NVTX: [push(0, None, leaked), push(1, None, leaked), push(10, 20, cat)],
        },
    )
    assert texts(found, "op") == [["cat"], ""]


def test_a_repeated_nest_has_its_own_numbers(tmp_path):
    # two steps of the same nest, and a third whose numbers stand otherwise to each other
    found = read_table(
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


def test_an_outermost_op_with_the_smallest_number_keeps_it(tmp_path):
    """The first range of all is an op's, and those in it were numbered after it."""
    ranges = [
        push(10, 30, "aten::linear, seq = 41, op_id = 1"), push(11, 29, "aten::addmm, seq = 42, op_id = 2"),
        push(40, 60, "aten::linear, seq = 51, op_id = 3"), push(41, 59, "aten::addmm, seq = 53, op_id = 4"),
    ]  # fmt: skip
    kernels, calls = [kernel(1000, 1), kernel(1100, 2)], [call(12, 1), call(42, 2)]
    found = correlate(read(write(tmp_path / "net.sqlite", **{KERNEL: kernels, API: calls, NVTX: ranges})))
    assert texts(found, "seqMarker") == [
        ["aten::linear, seq = 41", "aten::addmm, seq = 42"],
        ["aten::linear, seq = 51", "aten::addmm, seq = 53"],
    ]


def test_calls_without_ops_are_numbered_by_their_markers(tmp_path):
    """Without PyTorch's own ranges: two calls, the first with two kernels, and one kernel of no call."""
    relu, add = (format_marker(Marker("torch", op)) for op in ("relu", "add"))
    ranges = [push(5, 90, "layer:net"), push(10, 30, relu), push(40, 60, add)]
    launches = (12, 20, 42, 70)
    kernels = [kernel(1000 + 100 * number, number) for number in range(1, 5)]
    calls = [call(at, number) for number, at in enumerate(launches, 1)]
    found = correlate(read(write(tmp_path / "net.sqlite", **{KERNEL: kernels, API: calls, NVTX: ranges})))
    assert found.ints("opId").tolist() == [0, 0, 1, NULL]
