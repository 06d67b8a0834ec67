"""Backward passes that record a graph (create_graph=True, torch.func.grad), and those that re-run a forward pass.

All ops of a recording node have sequence numbers, as those of a forward pass that checkpointing re-runs. The traces are
literals of the form that Kineto writes. Operands are square, so that sizes tell nothing: batch and width are 256.
"""

import json

import pytest

from pyprof.parse.cli import main as parse
from pyprof.parse.kineto.reader import read
from pyprof.parse.selection import Selection, forward_times, named_spans, select
from pyprof.parse.tables.correlate import correlate
from tests.parse.kineto.kineto_file import AUTOGRAD, MAIN, begin, call, kernel, op, write, x

SQUARE = [[256, 256], [256, 256]]


class Program:
    """Events one after the other: what it is given runs inside of what encloses it."""

    def __init__(self):
        self.events, self.now, self.launched = [begin(1000)], 1000, 0

    def inside(self, event, *parts):
        start = self.now = self.now + 2
        for part in parts:
            part()
        self.now += 2
        event["ts"], event["dur"] = start, self.now - start
        self.events.append(event)

    def op(self, name, seq=None, tid=MAIN, parts=(), runs=True):
        numbers = {} if seq is None else {"Sequence_number": seq, "Fwd_thread_id": 0}
        launch = [lambda: self.launch(tid)] if runs and not parts else []
        self.inside(op(name, 0, 0, tid, Input_Dims=SQUARE, **numbers), *launch, *parts)

    def launch(self, tid):
        self.now, self.launched = self.now + 1, self.launched + 1
        self.events += [call(self.now, self.launched, tid), kernel(self.now + 3, 1, self.launched)]
        self.now += 6

    def layer(self, name, *parts, tid=MAIN):
        self.inside(x("user_annotation", f"layer:{name}", 0, 0, tid), *parts)

    def node(self, name, seq, *parts, tid=AUTOGRAD):
        numbers = {"Sequence_number": seq, "Fwd_thread_id": 1}
        engine = op(f"autograd::engine::evaluate_function: {name}", 0, 0, tid, **numbers)
        node = op(name, 0, 0, tid, **numbers)
        self.inside(engine, lambda: self.inside(node, *parts))

    def rows(self, tmp_path):
        table = correlate(read(write(tmp_path / "net.json", *self.events)))
        layers = [json.loads(text)[-1] if text else "" for text in table.coded("layer").texts()]
        ops = [json.loads(text)[-1] if text else "" for text in table.coded("op").texts()]
        return list(zip(table.coded("dir").texts(), layers, ops, table.coded("phase").texts(), strict=True))


def forward(program, first=1):
    """Two products, numbers ``first`` and ``first`` + 1, in layers up and down."""
    for number, name in ((first, "up"), (first + 1, "down")):
        program.layer(name, lambda number=number: program.op("aten::mm", number))


def test_a_backward_pass_that_records_a_graph_is_bprop(tmp_path):
    """grad(.., create_graph=True) of two products, and the backward pass through it: each has its layer"""
    program = Program()
    forward(program)
    program.node("MmBackward0", 2, lambda: program.op("aten::mm", 3, AUTOGRAD))  # the gradient of down's input
    program.node("MmBackward0", 1, lambda: program.op("aten::mm", 4, AUTOGRAD))
    program.op("aten::pow", 5)
    program.node("PowBackward0", 5, lambda: program.op("aten::mul", None, AUTOGRAD))
    program.node("MmBackward0", 4, *[lambda: program.op("aten::mm", None, AUTOGRAD)] * 2)  # second derivatives
    program.node("MmBackward0", 3, lambda: program.op("aten::mm", None, AUTOGRAD))
    assert program.rows(tmp_path) == [
        ("fprop", "up", "mm", "forward"),
        ("fprop", "down", "mm", "forward"),
        ("bprop", "down", "mm", "backward"),
        ("bprop", "up", "mm", "backward"),
        ("fprop", "", "pow", "forward"),
        ("bprop", "", "pow", "backward"),
        ("bprop", "up", "mm", "backward"),
        ("bprop", "up", "mm", "backward"),
        ("bprop", "down", "mm", "backward"),
    ]


def test_third_derivatives_have_the_layer_of_the_first_op(tmp_path):
    program = Program()
    program.layer("up", lambda: program.op("aten::mm", 1))
    program.node("MmBackward0", 1, lambda: program.op("aten::mm", 2, AUTOGRAD))
    program.node("MmBackward0", 2, lambda: program.op("aten::mm", 3, AUTOGRAD))
    program.node("MmBackward0", 3, lambda: program.op("aten::mm", None, AUTOGRAD))
    assert program.rows(tmp_path)[1:] == [("bprop", "up", "mm", "backward")] * 3


@pytest.mark.parametrize("with_layers", [False, True])
def test_checkpointing_without_reentrance(tmp_path, with_layers):
    """The first node of the part re-runs it when it asks for its tensors, and then computes its gradients."""
    program = Program()
    forward(program)

    def again():
        if with_layers:
            for number, name in ((3, "up"), (4, "down")):
                run = lambda number=number: program.op("aten::mm", number, AUTOGRAD)  # noqa: E731
                program.layer(name, run, tid=AUTOGRAD)
        else:
            program.op("aten::mm", 3, AUTOGRAD)
            program.op("aten::mm", 4, AUTOGRAD)

    program.node("MmBackward0", 2, again, lambda: program.op("aten::mm", None, AUTOGRAD))
    program.node("MmBackward0", 1, lambda: program.op("aten::mm", None, AUTOGRAD))
    up, down = ("up", "down") if with_layers else ("", "")
    assert program.rows(tmp_path)[2:] == [
        ("fprop", up, "mm", "backward"),
        ("fprop", down, "mm", "backward"),
        ("bprop", "down", "mm", "backward"),
        ("bprop", "up", "mm", "backward"),
    ]


def test_reentrant_checkpointing(tmp_path):
    """The checkpoint's own node re-runs the part, and in it run the part's nodes."""
    program = Program()
    program.op("CheckpointFunction", 1, parts=[lambda: program.layer("up", lambda: program.op("aten::mm"))])

    def again():
        program.op("aten::mm", 2, AUTOGRAD)
        program.node("MmBackward0", 2, lambda: program.op("aten::mm", None, AUTOGRAD))

    program.node("CheckpointFunctionBackward", 1, again)
    assert [row[0] for row in program.rows(tmp_path)] == ["fprop", "fprop", "bprop"]


def test_checkpointing_within_a_pass_that_records_a_graph(tmp_path):
    """All ops have numbers. Layers run in a forward pass only, so those in them run again."""
    program = Program()
    forward(program)

    def again():
        program.layer("up", lambda: program.op("aten::mm", 3, AUTOGRAD), tid=AUTOGRAD)
        program.op("aten::mm", 4, AUTOGRAD)

    program.node("MmBackward0", 2, again)
    assert program.rows(tmp_path)[2:] == [("fprop", "up", "mm", "backward"), ("bprop", "down", "mm", "backward")]


def test_a_recorded_training_of_forces_on_a_gpu(data):
    """6 products of 256 x 256 per step: 6 gradients of inputs, of which the first is an expansion, and then 11 more."""
    table = correlate(read(data / "round3" / "cases" / "square_gpu.json.gz"))
    backward = [row for row, phase in enumerate(table.coded("phase").texts()) if phase == "backward"]
    ops, layers, directions = (table.coded(key).texts() for key in ("op", "layer", "dir"))
    assert len(backward) == 42 and {directions[row] for row in backward} == {"bprop"}
    linear = [row for row in backward if "linear" in ops[row]]
    assert len(linear) == 34 and all(layers[row] for row in linear)


def test_the_backward_of_what_ran_in_a_range_belongs_to_it(tmp_path):
    """Two ranges of one product each; their nodes run later, on autograd's thread, in no range of the user's."""
    program = Program()
    for number, name in ((1, "block one"), (2, "block two")):
        run = lambda number=number: program.op("aten::mm", number)  # noqa: E731
        program.inside(x("user_annotation", name, 0, 0), run)
    for number in (2, 1):
        program.node("MmBackward0", number, lambda: program.op("aten::mm", None, AUTOGRAD))
    file = write(tmp_path / "net.json", *program.events)
    found = read(file)
    spans, forward = named_spans(found, "block one"), forward_times(found)
    kept = select(correlate(found), Selection(range_name="block one"), spans, forward)
    assert kept.tolist() == [True, False, False, True]  # forward one and two, backward two and one
    assert parse([str(file), "--range", "block two", "-q", "-o", str(tmp_path / "net.dict")]) == 0
    assert len((tmp_path / "net.dict").read_text().splitlines()) == 2
