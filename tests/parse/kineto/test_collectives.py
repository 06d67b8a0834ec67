"""What a trace records of the data that its collectives send."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Table
from tests.parse.kineto.kineto_file import Event, begin, call, kernel, op, write, x

META = {"Group_size": 4, "dtype": "BFloat16", "Process_Group_Name": "1"}


def record(ts: float, dur: float, name: str, inward: Any = 8, outward: Any = 8, **args: Any) -> Event:
    meta = {**META, "Collective_name": name, "In_msg_nelems": inward, "Out_msg_nelems": outward, **args}
    return op("record_param_comms", ts, dur, **meta)


def captured(path: Path, *events: Event) -> Table:
    return correlate(read(write(path / "net.json", begin(0), *events)))


def told(table: Table) -> list[Any]:
    return [json.loads(text) if text else None for text in table.coded("comm").texts()]


def test_the_record_around_a_launch_counts(tmp_path: Path) -> None:
    table = captured(tmp_path, record(10, 20, "_allgather_base", 8, 32), call(15, 1), kernel(50, 5, 1))
    assert told(table) == [[{"op": "all_gather", "ranks": 4, "in": 16, "out": 64, "group": "1"}]]


def test_a_kernels_own_record_counts_without_any_op(tmp_path: Path) -> None:
    meta = {key.replace("_", " "): value for key, value in META.items()}
    own = kernel(50, 5, 1, "ncclDevKernel_Broadcast", **meta)
    own["args"].update({"Collective name": "broadcast", "In msg nelems": 3, "Out msg nelems": 3})
    assert told(captured(tmp_path, own)) == [[{"op": "broadcast", "ranks": 4, "in": 6, "out": 6, "group": "1"}]]


def test_an_op_inside_a_record_is_its_own(tmp_path: Path) -> None:
    events = [record(10, 20, "allreduce"), op("aten::copy_", 14, 5), call(15, 1), kernel(50, 5, 1)]
    assert told(captured(tmp_path, *events)) == [None]


def test_sends_and_receives_name_their_peers(tmp_path: Path) -> None:
    events = [record(10, 20, "send", Dst_Rank=3), record(40, 20, "recv", Src_Rank=2), call(15, 1), call(45, 2)]
    table = captured(tmp_path, *events, kernel(50, 5, 1), kernel(60, 5, 2))
    assert told(table) == [
        [{"op": "send", "ranks": 4, "in": 16, "out": 0, "peer": 3, "group": "1"}],
        [{"op": "recv", "ranks": 4, "in": 0, "out": 16, "peer": 2, "group": "1"}],
    ]


@pytest.mark.parametrize(("dims", "types"), [([[], [], []], ["TensorList", "Scalar", ""]), ([[], []], [[], ""])])
def test_a_record_without_sizes_leaves_them_to_its_annotation(tmp_path: Path, dims: Any, types: Any) -> None:
    """Traces of 2023: the record's list of tensors has no sizes, the annotation within it has them."""
    sizes = {"Input_Dims": [[366336]], "Input_type": ["float"]}
    events = [
        *(op("c10d::allreduce_", 8, 30), op("record_param_comms", 10, 25, Input_Dims=dims, Input_type=types)),
        *(x("user_annotation", "nccl:all_reduce", 14, 10, **sizes), call(15, 1), kernel(50, 5, 1)),
    ]
    table = captured(tmp_path, *events)
    assert table.coded("aten").texts() == ["nccl:all_reduce"]
    assert json.loads(table.coded("sizes").texts()[0]) == [[366336]]
    assert annotate(table).bytes.tolist() == [2 * 4 * 366336]
    without = captured(tmp_path, *events[:2], *events[3:])
    assert annotate(without).bytes.tolist() == [NULL]  # not 0


def described(
    outer: str, dims: Any, inner: str, *, types: Any = None, annotated: Any = (), **record: Any
) -> list[Event]:
    """A collective's op, the record in it (with the first tensor) and the annotation in that one, all float32."""
    types = types or ["float" if shape else "" for shape in dims]
    sizes = {"Input_Dims": list(annotated), "Input_type": ["float"] * len(annotated)}
    return [
        op(outer, 8, 30, Input_Dims=dims, Input_type=types),
        op("record_param_comms", 10, 25, Input_Dims=[*annotated[:1], []], Input_type=["float", "Scalar"], **record),
        *(x("user_annotation", inner, 14, 10, **sizes), call(15, 1), kernel(50, 5, 1)),
    ]


A, B = [3, 100], [1200]  # 300 and 1,200 float32
IN_TENSORS = ["TensorList", ""]  # in 2023 without sizes, later with sizes, never with types
DESCRIBED = [  # read + written bytes
    # The op lists outputs and inputs; record and annotation the inputs only
    ("c10d::alltoall_base_", [B, A, [], []], "nccl:all_to_all", [A], None, 4 * 300 + 4 * 1200),
    ("c10d::_reduce_scatter_base_", [A, B, [], []], "nccl:_reduce_scatter_base", [B], None, 4 * 1200 + 4 * 300),
    ("c10d::_allgather_base_", [B, A, []], "nccl:_all_gather_base", [A], None, 4 * 300 + 4 * 1200),
    # In place: the annotation has the type, which the op's list lacks
    ("c10d::allreduce_", [[], []], "nccl:all_reduce", [A], IN_TENSORS, 2 * 4 * 300),
    ("c10d::allreduce_", [[A], []], "nccl:all_reduce", [A], IN_TENSORS, 2 * 4 * 300),
    ("c10d::allreduce_coalesced_", [[A, B], []], "nccl:allreduce_coalesced", [A, B], IN_TENSORS, 2 * 4 * 1500),
    ("c10d::broadcast_", [[A], []], "nccl:broadcast", [A], IN_TENSORS, 2 * 4 * 300),
    ("c10d::reduce_", [[A], []], "nccl:reduce", [A], IN_TENSORS, 2 * 4 * 300),
    ("c10d::send", [[A], []], "nccl:send 0->1", [A], IN_TENSORS, 4 * 300),
    ("c10d::recv_", [[A], []], "nccl:recv 1<-0", [A], IN_TENSORS, 4 * 300),
    # The outputs stand nowhere: unknown, not the inputs' alone
    ("c10d::allgather_", [[], [A]], "nccl:all_gather", [A], ["GenericList", "TensorList"], NULL),
    ("c10d::gather_", [[], [A]], "nccl:gather", [A], ["GenericList", "TensorList"], NULL),
    ("c10d::scatter_", [[A], []], "nccl:scatter", [A], ["TensorList", "GenericList"], NULL),
    ("c10d::reduce_scatter_", [[A], []], "nccl:reduce_scatter", [A], ["TensorList", "GenericList"], NULL),
]


@pytest.mark.parametrize(("outer", "dims", "inner", "annotated", "types", "expected"), DESCRIBED)
def test_the_range_that_tells_most_of_a_collective_counts(
    tmp_path: Path, outer: str, dims: Any, inner: str, annotated: Any, types: Any, expected: int
) -> None:
    table = captured(tmp_path, *described(outer, dims, inner, types=types, annotated=annotated))
    notes = annotate(table)
    assert (notes.bytes.tolist(), notes.flops.tolist()) == ([expected], [0])
    assert notes.family.texts() == ["collective"]


def test_a_record_of_the_message_has_precedence(tmp_path: Path) -> None:
    """Since 2024 the record has the message: 600 bytes in and 2,400 out, in bfloat16."""
    meta = {**META, "Collective_name": "all_to_allv", "In_msg_nelems": 300, "Out_msg_nelems": 1200}
    events = described("c10d::alltoall_base_", [B, A, [], []], "nccl:all_to_all", annotated=[A], **meta)
    table = captured(tmp_path, *events)
    assert annotate(table).bytes.tolist() == [3000]
    assert table.coded("aten").texts() == ["record_param_comms"]


def test_a_functional_collective_is_named_and_not_its_record(tmp_path: Path) -> None:
    """Op, record and annotation each list the same tensor; the op, outermost, names what it does: 300 in, 300 out."""
    table = captured(
        tmp_path, *described("_c10d_functional::all_reduce", [A, [], []], "nccl:all_reduce", annotated=[A])
    )
    assert table.coded("aten").texts() == ["_c10d_functional::all_reduce"]
    assert annotate(table).bytes.tolist() == [2 * 4 * 300]


def test_a_copy_inside_a_collective_keeps_its_operands(tmp_path: Path) -> None:
    events = described("c10d::alltoall_base_", [B, A, [], []], "nccl:all_to_all", annotated=[A])
    copy = op("aten::copy_", 14.5, 2, Input_Dims=[[7], [7], []], Input_type=["float", "float", "Scalar"])
    table = captured(tmp_path, *events[:3], copy, *events[3:])
    assert table.coded("aten").texts() == ["aten::copy_"]


def test_coalesced_collectives_are_launched_where_they_end(tmp_path: Path) -> None:
    events = [
        *(record(1, 4, "allreduce", 100, 100), call(2, 1), kernel(200, 5, 1)),  # launches: no part of what comes later
        *(record(10, 4, "allreduce"), record(20, 4, "allreduce", 5, 5)),
        *(x("user_annotation", "nccl:coalesced", 30, 10), call(35, 2), kernel(210, 5, 2)),
        *(x("user_annotation", "nccl:coalesced", 50, 10), call(55, 3), kernel(220, 5, 3)),  # nothing was recorded
    ]
    first, second, third = told(captured(tmp_path, *events))
    assert [m["in"] for m in first] == [200]
    assert [m["in"] for m in second] == [16, 10]
    assert third is None


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"inward": "x", "outward": -1}, {"op": "all_reduce", "ranks": 4, "group": "1"}),
        ({"inward": True, "outward": 1 << 70}, {"op": "all_reduce", "ranks": 4, "group": "1"}),
        ({"dtype": ["Float"], "Group_size": 2.5}, {"op": "all_reduce", "group": "1"}),
        ({"Process_Group_Name": {"a": 1}}, {"op": "all_reduce", "ranks": 4, "in": 16, "out": 16}),
    ],
)
def test_other_values_than_numbers_are_left_out(tmp_path: Path, args: dict[str, Any], expected: dict[str, Any]) -> None:
    table = captured(tmp_path, record(10, 20, "allreduce", **args), call(15, 1), kernel(50, 5, 1))
    assert told(table) == [[expected]]


def test_waits_are_no_collectives(tmp_path: Path) -> None:
    assert told(captured(tmp_path, record(10, 20, "wait"), call(15, 1), kernel(50, 5, 1))) == [None]
