"""Phases and steps: copies, gradient clipping, GradScaler, DataLoader; steps marked and inferred."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pyprof.parse.attribute.phase import _of_gradients
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.kineto import reader as kineto
from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL, Table
from tests.parse.kineto import kineto_file
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, process, push, write

Row = tuple[str, str, str]
IN, OUT, INSIDE = 1, 2, 8  # copyKind
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"


@pytest.fixture(name="rows")
def fixture_rows(tmp_path) -> Callable[..., list[Row]]:
    """(op, dir, phase) of a row launched at each of some times, kernels or copies of a kind."""

    def parse(ranges: list[tuple[Any, ...]], *launches: int | tuple[int, int]) -> list[Row]:
        kernels, copies, calls = [], [], []
        for number, launch in enumerate(launches, 1):
            at, way = launch if isinstance(launch, tuple) else (launch, 0)
            calls.append(call(at, number))
            if way:
                copies.append((1000 + number, 1001 + number, 0, 7, number, process(7), 64, way))
            else:
                kernels.append(kernel(1000 + number, number))
        path = write(tmp_path / "net.sqlite", **{KERNEL: kernels, MEMCPY: copies, API: calls, NVTX: ranges})
        table = correlate(read(path))
        texts = [table.coded(key).texts() for key in ("op", "dir", "phase")]
        return [(json.loads(op)[0] if op else "", way, phase) for op, way, phase in zip(*texts, strict=True)]

    return parse


def test_a_batch_copied_to_the_gpu_is_data_and_a_cast_is_forward(rows):
    ranges = [push(10, 20, "aten::to, seq = 3, op_id = 1"), push(11, 19, "aten::copy_, seq = 3, op_id = 2")]
    assert rows(ranges, (12, IN), (13, INSIDE), 14) == [
        ("to", "", "data"),
        ("to", "fprop", "forward"),
        ("to", "fprop", "forward"),
    ]


def test_a_copy_to_the_gpu_within_a_layer_or_an_op_is_forward(rows):
    layer = [push(5, 30, "layer:net"), push(10, 20, "aten::to, op_id = 1")]
    assert rows(layer, (12, IN)) == [("to", "fprop", "forward")]


def test_offloaded_parameters_are_no_data(rows):
    ranges = [push(5, 30, "FSDP::pre_forward (block.3), op_id = 7"), push(10, 20, "aten::to, op_id = 1")]
    assert rows(ranges, (12, IN)) == [("to", "", "other")]


def test_a_value_read_by_python_is_no_forward_op(rows):
    ranges = [
        push(10, 20, "aten::item, op_id = 1"), push(11, 19, "aten::_local_scalar_dense, op_id = 2"),
        push(30, 40, "aten::to, op_id = 3"),
    ]  # fmt: skip
    assert rows(ranges, (12, OUT), (31, OUT)) == [("item", "", "other"), ("to", "", "other")]


def test_what_the_data_loader_runs_is_data(rows):
    ranges = [
        push(5, 30, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__, op_id = 1"),
        push(10, 20, "aten::stack, seq = 5, op_id = 2"),
    ]
    assert rows(ranges, 12) == [("stack", "", "data")]


# forward with loss scaling, backward, unscale and clipping without autograd, the update, a new forward
STEP = [
    push(10, 20, "aten::mm, seq = 1, op_id = 1"),
    push(21, 25, "aten::mul, seq = 2, op_id = 2"),  # scaler.scale(loss)
    push(30, 35, "autograd::engine::evaluate_function: MulBackward0, op_id = 3"),
    push(31, 34, "MulBackward0, seq = 2, op_id = 4"),
    push(40, 45, "aten::_amp_foreach_non_finite_check_and_unscale_, op_id = 5"),
    push(46, 49, "aten::_foreach_norm, op_id = 6"),
    push(50, 52, "aten::linalg_vector_norm, op_id = 7"),
    push(53, 55, "aten::_foreach_mul_, op_id = 8"),
    push(60, 70, "Optimizer.step#AdamW.step, op_id = 9"),
    push(61, 65, "aten::_fused_adamw_, op_id = 10"),
    push(71, 73, "aten::_amp_update_scale_, op_id = 11"),
    push(80, 90, "aten::mm, seq = 3, op_id = 12"),
    push(91, 95, "aten::sum, op_id = 13"),  # under no_grad, with no backward before it: an evaluation
]


def test_clipping_and_unscaling_belong_to_the_update(rows):
    assert rows(STEP, 11, 22, 32, 41, 47, 51, 54, 62, 72, 81, 92) == [
        ("mm", "fprop", "forward"),
        ("mul", "fprop", "forward"),
        ("mul", "bprop", "backward"),
        ("_amp_foreach_non_finite_check_and_unscale_", "", "optimizer"),
        ("_foreach_norm", "", "optimizer"),
        ("linalg_vector_norm", "", "optimizer"),
        ("_foreach_mul_", "", "optimizer"),
        ("AdamW.step", "", "optimizer"),
        ("_amp_update_scale_", "", "optimizer"),
        ("mm", "fprop", "forward"),
        ("sum", "fprop", "forward"),
    ]


def test_clipping_that_is_marked_needs_no_optimizer_step_after_it(rows):
    marker = '{"v":1,"mod":"torch.nn.utils","op":"clip_grad_norm_","args":[]}'
    assert rows([push(10, 20, marker), push(11, 19, "aten::_foreach_norm, op_id = 1")], 12) == [
        ("clip_grad_norm_", "", "optimizer")
    ]


# forward, backward (two parameters), clipping and update by hand without autograd, the next forward
BY_HAND = [
    push(10, 20, "aten::linear, seq = 1, op_id = 1, sizes = [[4, 3], [2, 3], [2]]"),
    push(11, 19, "aten::addmm, seq = 1, op_id = 2, sizes = [[2], [4, 3], [3, 2]]"),
    push(21, 25, "aten::sum, seq = 2, op_id = 3, sizes = [[4, 2]]"),
    push(30, 35, "SumBackward0, seq = 2, op_id = 4, sizes = [[]]"),
    push(36, 40, "AddmmBackward0, seq = 1, op_id = 5, sizes = [[4, 2]]"),
    push(41, 43, "torch::autograd::AccumulateGrad, op_id = 6, sizes = [[2, 3]]"),
    push(44, 46, "torch::autograd::AccumulateGrad, op_id = 7, sizes = [[2]]"),
    push(50, 52, "aten::linalg_vector_norm, op_id = 8, sizes = [[2, 3], [], [], [], []]"),
    push(53, 55, "aten::linalg_vector_norm, op_id = 9, sizes = [[2], [], [], [], []]"),
    push(56, 58, "aten::clamp, op_id = 10, sizes = [[], [], []]"),
    push(60, 62, "aten::sub_, op_id = 11, sizes = [[2, 3], [2, 3], []]"),
    push(63, 65, "aten::sub_, op_id = 12, sizes = [[2], [2], []]"),
    push(66, 68, "aten::argmax, op_id = 13, sizes = [[4, 2], [], []]"),  # a metric after the update
    push(70, 80, "aten::linear, seq = 3, op_id = 14, sizes = [[4, 3], [2, 3], [2]]"),
    push(71, 79, "aten::addmm, seq = 3, op_id = 15, sizes = [[2], [4, 3], [3, 2]]"),
    push(81, 85, "aten::sum, seq = 4, op_id = 16, sizes = [[4, 2]]"),
]
AT = (12, 22, 31, 37, 42, 45, 51, 54, 57, 61, 64, 67, 72)


def test_clipping_and_updates_by_hand_belong_to_the_optimizer(rows):
    found = [phase for *_, phase in rows(BY_HAND, *AT)]
    assert found == [*["forward"] * 2, *["backward"] * 4, *["optimizer"] * 5, *["forward"] * 2]


def test_updates_by_hand_that_show_autograds_number_do_not_end_the_backward(rows):
    """p.data.sub_() without no_grad: the ops have the number of the next recorded op, which they leave as it is."""
    numbered = [
        push(r[0], r[1], r[3].replace(", op_id", ", seq = 3, op_id")) if 50 <= _start(r) < 70 else r for r in BY_HAND
    ]
    found = [phase for *_, phase in rows(numbered, *AT)]
    assert found == [*["forward"] * 2, *["backward"] * 4, *["optimizer"] * 5, *["forward"] * 2]


def test_lists_of_tensors_need_no_shapes(rows):
    lists = [r for r in BY_HAND if not 50 <= _start(r) < 70]
    lists += [push(50, 52, "aten::_foreach_norm, op_id = 20"), push(53, 55, "aten::_foreach_sub_, op_id = 21")]
    assert [phase for *_, phase in rows(lists, 51, 54, 72)] == ["optimizer", "optimizer", "forward"]


def test_a_metric_of_one_parameters_shape_is_no_update(rows):
    metric = [r for r in BY_HAND if not 50 <= _start(r) < 70]
    metric += [push(50, 52, "aten::add_, op_id = 20, sizes = [[2], [2], []]")]
    assert [phase for *_, phase in rows(metric, 51, 72)] == ["forward", "forward"]


def test_a_server_that_copies_lists_has_no_optimizer(rows):
    served = [
        push(10, 20, "aten::_foreach_copy_, op_id = 1"), push(21, 23, "aten::add_, op_id = 2, sizes = [[8], [8], []]"),
        push(24, 26, "aten::_foreach_mul_, op_id = 3"), push(27, 29, "aten::linalg_vector_norm, op_id = 4"),
    ]  # fmt: skip
    assert {phase for *_, phase in rows(served, 11, 22, 25, 28)} == {"forward"}


def test_lists_that_fsdp_copies_before_a_forward_pass_are_no_update(rows):
    trained = [r for r in BY_HAND if not 50 <= _start(r) < 70]
    trained += [push(66, 68, "aten::_foreach_copy_, op_id = 20")]
    assert [phase for *_, phase in rows(trained, 67)] == ["forward"]


def _start(range_: tuple[Any, ...]) -> int:
    return int(range_[0])


def steps(tmp_path, ranges: list[tuple[Any, ...]], *launches: int) -> list[int | None]:
    kernels = [kernel(1000 + at, at) for at in launches]
    path = write(tmp_path / "steps.sqlite", **{KERNEL: kernels, API: [call(at, at) for at in launches], NVTX: ranges})
    return [None if step == NULL else step for step in correlate(read(path)).ints("step").tolist()]


def test_marked_steps_go_by_the_time_of_the_launch(tmp_path):
    marks = [push(10, 20, "ProfilerStep#3"), push(20, 30, "ProfilerStep#4"), push(12, 14, "Optimizer.step#SGD.step")]
    assert steps(tmp_path, marks, 5, 10, 19, 20, 29, 30) == [None, 3, 3, 4, 4, None]


RELU = '{"v":1,"mod":"torch","op":"relu","args":[]}'


ITERATIONS = [push(10, 20, "ProfilerStep#1"), push(20, 30, "ProfilerStep#2"), push(30, 31, "ProfilerStep#3")]


@pytest.mark.parametrize(
    ("ranges", "launches", "expected"),
    [
        ([*ITERATIONS, push(1, 2, RELU)], (1, 5, 11, 15, 21, 25), [0, 0, 1, 1, 2, 2]),
        (ITERATIONS, (1, 5, 11, 15), [None, None, 1, 1]),  # torch.profiler's own marks
        # called before each iteration: what little comes before is no step
        ([*ITERATIONS, push(1, 2, RELU)], (1, 11, 12, 13, 21, 22, 23), [None, 1, 1, 1, 2, 2, 2]),
        # the capture begins later
        ([push(10, 20, "ProfilerStep#5"), push(1, 2, RELU)], (1, 5, 11, 15), [None, None, 5, 5]),
    ],
)
def test_what_comes_before_the_end_of_the_first_iteration_is_step_0(tmp_path, ranges, launches, expected):
    """pyprof.step() after each of three iterations of two launches; nothing follows the last."""
    assert steps(tmp_path, ranges, *launches) == expected


def test_steps_without_marks_end_with_the_optimizers(tmp_path):
    def iteration(at: int) -> list[tuple[Any, ...]]:
        return [push(at + 5, at + 6, "XBackward0, seq = 1", tid=2), push(at + 7, at + 9, "Optimizer.step#SGD.step")]

    twice = [*iteration(0), *iteration(10)]
    assert steps(tmp_path, twice, 1, 8, 9, 18, 19) == [0, 0, 1, 1, 1]  # nothing new begins after the last


def test_with_markers_alone_launches_of_other_threads_separate_steps(tmp_path):
    """Two steps: forward at 1 and 11, backward by autograd's thread at 4 and 14, two updates each."""
    updates = [push(at + i, at + i + 1, "Optimizer.step#SGD.step") for at in (5, 15) for i in (0, 1)]
    launches = [(1, 1), (4, 2), (6, 1), (11, 1), (14, 2), (16, 1)]
    kernels, calls = [kernel(1000 + at, at) for at, _ in launches], [call(at, at, tid=tid) for at, tid in launches]
    path = write(tmp_path / "steps.sqlite", **{KERNEL: kernels, API: calls, NVTX: updates})
    assert correlate(read(path)).ints("step").tolist() == [0, 0, 0, 1, 1, 1]


def test_two_optimizers_in_a_row_end_one_step(tmp_path):
    ranges = [
        push(5, 6, "XBackward0, seq = 1", tid=2),
        push(7, 9, "Optimizer.step#SGD.step"),
        push(9, 11, "Optimizer.step#Adam.step"),
        push(15, 16, "XBackward0, seq = 2", tid=2),
    ]
    assert steps(tmp_path, ranges, 1, 9, 12) == [0, 0, 1]


def test_without_marks_and_optimizer_there_are_no_steps(tmp_path):
    assert steps(tmp_path, [push(5, 6, "aten::mm, seq = 1"), push(7, 8, "Optimizer.zero_grad#SGD.zero_grad")], 5) == [
        None
    ]


def parsed(tmp_path, *events: dict[str, Any]) -> Table:
    return correlate(kineto.read(kineto_file.write(tmp_path / "a.json", *events)))


def test_layers_of_kinetos_modules_and_annotations_are_inherited_by_the_backward(tmp_path):
    frame = {"ph": "X", "cat": "python_function", "pid": kineto_file.PID, "tid": kineto_file.MAIN, "args": {}}
    note = {**frame, "cat": "user_annotation", "name": "layer:block", "ts": 3, "dur": 50}
    node = kineto_file.op("MmBackward0", 60, 10, kineto_file.AUTOGRAD, Sequence_number=5, External_id=2)
    forward = kineto_file.op("aten::mm", 10, 10, Sequence_number=5, External_id=1)
    launches = [kineto_file.call(12, 1), kineto_file.call(62, 2, kineto_file.AUTOGRAD)]
    kernels = [kineto_file.kernel(100, 5, 1), kineto_file.kernel(110, 5, 2)]
    modules = [
        {**frame, "name": "nn.Module: Net_0", "ts": 1, "dur": 40},
        {**frame, "name": "nn.Module: Linear_3", "ts": 5, "dur": 30},
    ]
    table = parsed(tmp_path, forward, node, *modules, *launches, *kernels)
    assert table.coded("layer").texts() == ['["Net_0", "Linear_3"]'] * 2
    assert table.coded("dir").texts() == ["fprop", "bprop"]
    table = parsed(tmp_path, forward, node, *modules, note, *launches, *kernels)  # the user's names go before classes
    assert table.coded("layer").texts() == ['["block"]'] * 2


def test_a_cpu_op_that_starts_in_its_parents_microsecond_has_its_own_row(tmp_path):
    # whole microseconds, as in 2021: conv2d and the op inside it both start at 10, as does the last op inside of both
    table = parsed(
        tmp_path,
        kineto_file.op("aten::conv2d", 10, 20, External_id=1),
        kineto_file.op("aten::mkldnn_convolution", 10, 20, External_id=2),
        kineto_file.op("aten::add_", 10, 0, External_id=3),
    )
    assert sorted(table.coded("aten").texts()) == ["aten::add_", "aten::mkldnn_convolution"]
    names = dict(zip(table.coded("kLongName").texts(), table.coded("aten").texts(), strict=True))
    assert all(name == aten for name, aten in names.items())


@pytest.mark.parametrize(("ops", "updates"), [([], []), ([10], [0]), ([40], [])])
def test_an_update_by_hand_follows_the_backward_pass_of_an_op_that_was_recorded(
    ops: list[int], updates: list[int]
) -> None:
    """The backward node began at 20 and the op on lists of tensors at 50. Without any op, or with one in between, the
    list may be the next forward pass's."""
    tree: Any = SimpleNamespace(
        start=np.array([50]), scope=np.array([0]), scopes=[Scope(Kind.OP, "aten::_foreach_add_")]
    )
    found = _of_gradients(tree, np.array([0]), np.array([20]), np.array(ops, np.int64))
    assert found.tolist() == updates
