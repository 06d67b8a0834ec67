"""A backward pass that compiled autograd traced: its calls get the facts of eager forward ops, by numbers and names."""

import json

import msgspec

from pyprof.compiled_record import COMPILED_RANGE, Call, CompiledRecord, Operation
from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from tests.parse.kineto.kineto_file import begin, op, write, x


def step(at: int, number: int) -> list[dict[str, object]]:
    """A linear layer that runs keys first, whose first node has the number, and the compiled backward pass."""
    forward = [
        op("aten::addmm", at, 10, Sequence_number=number),
        op("aten::addmm", at + 20, 10, Sequence_number=number + 1),
        op("aten::mm", at + 40, 10, Sequence_number=number + 2),
        op("aten::item", at + 60, 5, Sequence_number=number + 3),  # makes no node: the number is the next one's
    ]
    layers = [x("user_annotation", f"layer:{name}", at + 20 * i, 15) for i, name in enumerate(("k", "q", "scores"))]
    calls = [op("aten::mm", at + 110 + 20 * i, 10) for i in range(3)]
    return [*layers, *forward, x("user_annotation", f"{COMPILED_RANGE}7.1", at + 100, 80), *calls]


def rows(tmp_path, *events, nodes=(("MmBackward0", 0), ("AddmmBackward0", 2), ("AddmmBackward0", 1))):
    """(layer, op, direction, phase) of the calls in the compiled backward passes."""
    operations = tuple(Operation("aten::mm", backward=True, node=node, behind=behind) for node, behind in nodes)
    calls = tuple(Call("extern_kernels.mm", (i,), (i,)) for i in range(len(nodes)))
    record = msgspec.json.encode(CompiledRecord(calls, operations)).decode()
    path = write(tmp_path / "net.json", begin(1000), *events)
    trace = json.loads(path.read_text())
    trace["pyprof"] = {"compiled": {"version": 1, "graphs": {"7.1": record}}}
    path.write_text(json.dumps(trace))
    table = correlate(read(path))
    columns = [table.coded(key).texts() for key in ("layer", "op", "dir", "phase")]
    found = list(zip(*columns, strict=True))
    return [
        tuple(json.loads(text)[-1] if text[:1] == "[" else text for text in row) for row in found if row[2] == "bprop"
    ]


def test_each_step_has_its_own_forward_ops(tmp_path):
    """The compiled code runs k before q, as the forward pass did: the order of the calls decides nothing."""
    expected = [
        ("scores", "mm", "bprop", "backward"), ("k", "addmm", "bprop", "backward"), ("q", "addmm", "bprop", "backward"),
    ]  # fmt: skip
    assert rows(tmp_path, *step(1010, 5), *step(2010, 8)) == expected * 2


def test_names_that_do_not_fit_give_no_layer(tmp_path):
    found = rows(tmp_path, *step(1010, 5), nodes=(("MmBackward0", 0), ("TanhBackward0", 2), ("AddmmBackward0", 1)))
    assert found == [("", "mm", "bprop", "backward")] * 3


def test_numbers_that_are_not_known_give_no_layer(tmp_path):
    found = rows(tmp_path, *step(1010, 5), nodes=[("MmBackward0", -1)] * 3)
    assert found == [("", "mm", "bprop", "backward")] * 3


def test_ops_of_a_traced_backward_pass_that_runs_them_one_by_one_are_backward(tmp_path):
    traced = [x("user_annotation", "layer:CompiledAutograd0", 1100, 50), op("aten::mm", 1110, 10)]
    path = write(tmp_path / "net.json", begin(1000), op("aten::mm", 1010, 10), *traced)
    table = correlate(read(path))
    assert table.coded("dir").texts() == ["fprop", "bprop"]
    assert table.coded("phase").texts() == ["forward", "backward"]
