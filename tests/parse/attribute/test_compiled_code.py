"""Calls of compiled graphs: which call an op is, its main operation, its layers, and damaged records."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pyprof.compiled_record import COMPILED_RANGE, Call, CompiledRecord, Operation, op_name, range_texts
from pyprof.parse.attribute.capture import Capture, Ranges
from pyprof.parse.attribute.compiled_code import (
    _described,
    called_within,
    match,
    name_origins,
    origin_of,
    with_arguments,
    within_compiled,
)
from pyprof.parse.attribute.facts import facts
from pyprof.parse.attribute.main_operation import main_operation
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind, Origin, Scope, classify
from pyprof.range_pieces import PIECE

GELU = Operation("aten::gelu", layer=("mlp", "mlp.act"), trace=("net.py:3", "net.py:9"), functions=("main", "forward"))
LINEAR = Operation("aten::addmm", "torch.nn.functional", "linear", layer=("mlp", "mlp.fc"))


def calls(*kernels: str) -> list[Call]:
    return [Call(kernel) for kernel in kernels]


class Nest(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.parent)


def test_the_ops_that_a_graphs_code_calls() -> None:
    """Ranges: a graph (0) around two ops (1, 2) and a user's range (3); an op in op 1 (4), and one in 3 (5)."""
    kinds = [Kind.COMPILED, Kind.OP, Kind.OP, Kind.USER, Kind.OP, Kind.OP]
    levels = [np.array(level) for level in ([0], [1, 2, 3], [4, 5])]
    tree: Any = Nest(kind=np.array(kinds), parent=np.array([-1, 0, 0, 0, 1, 3]), levels=levels)
    ((graph, ops),) = called_within(tree, tree.kind == Kind.COMPILED)
    assert (graph, ops.tolist()) == (0, [1, 2, 5])


def test_the_nth_op_of_a_name_is_the_nth_call_of_that_name() -> None:
    code = calls("extern_kernels.mm", "triton_poi_fused_add_0", "extern_kernels.mm", "torch.ops.aten.sort.default")
    ran = ["aten::empty_strided", "aten::mm", "triton_poi_fused_add_0", "aten::sort", "aten::mm"]
    assert match(ran, code) == [None, 0, 1, 3, 2]


def test_kernels_of_a_cpu_have_their_graphs_number_before_the_name() -> None:
    """As torch._inductor.config.cpp.enable_kernel_profile records them"""
    assert match(["graph_3_cpp_fused_tanh_0", "aten::mm"], calls("extern_kernels.mm", "cpp_fused_tanh_0")) == [1, 0]


def test_ops_of_a_name_that_ran_more_or_less_often_than_it_is_called_are_not_matched() -> None:
    code = calls("extern_kernels.mm", "extern_kernels.mm", "triton_poi_fused_add_0")
    assert match(["aten::mm", "triton_poi_fused_add_0"], code) == [None, 2]
    assert match(["aten::mm", "aten::mm", "aten::mm"], code) == [None, None, None]


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("extern_kernels.bias_addmm", "aten::addmm"),
        ("extern_kernels.convolution", "aten::convolution"),
        ("torch.ops.mylib.op.default", "mylib::op"),
        ("my_kernel_0", "my_kernel_0"),
    ],
)
def test_the_name_that_the_profiler_records_for_a_call(kernel: str, name: str) -> None:
    assert op_name(kernel) == name


@pytest.mark.parametrize(
    ("atens", "main"),
    [
        (["aten::gelu", "aten::addmm"], 1),  # a product before other arithmetic
        (["aten::add", "aten::native_layer_norm", "aten::_to_copy"], 1),  # a norm before an add, that before a cast
        (["aten::mul", "aten::add"], 1),  # the last of equals
        (["aten::clone", "aten::cat"], 1),
    ],
)
def test_the_main_operation(atens: Sequence[str], main: int) -> None:
    operations = [Operation(aten, layer=("a",)) for aten in atens]
    assert main_operation(operations) is operations[main]


def test_an_operation_with_a_layer_or_of_this_pass_goes_before_one_without() -> None:
    without, again = Operation("aten::mm"), Operation("aten::native_layer_norm", layer=("b",), again=True)
    assert main_operation([without, GELU, again]) is GELU


def origin(*layer: str, root: str = "Net") -> Origin:
    return Origin(layer, root, (), (), "", "", "")


@pytest.mark.parametrize(
    ("around", "layer", "expected"),
    [
        (
            ["Net"],
            ("h.0", "h.0.fc"),
            ["Net", "h.0", "h.0.fc"],
        ),  # the root is compiled, and has its range
        (["Net", "h.3"], ("mlp", "mlp.fc"), ["Net", "h.3", "h.3.mlp", "h.3.mlp.fc"]),  # a compiled block
        (["Net"], (), ["Net"]),
        ([], ("", "h.0"), ["Net", "h.0"]),  # a compiled function that calls the model
        ([], ("trainer.model", "trainer.model.h.0"), ["Net", "h.0"]),  # a method of an object that holds it
        ([], (), []),
    ],
)
def test_layers_begin_around_the_compiled_graph(around: list[str], layer: tuple[str, ...], expected: list[str]) -> None:
    assert within_compiled(around, origin(*layer)) == expected


def test_a_compiled_method_of_a_module_has_complete_names() -> None:
    """``torch.compile(model.forward)``: its operations are in several modules of the model."""
    assert within_compiled([], origin("h.0", "h.0.fc", root="")) == ["h.0", "h.0.fc"]
    several = CompiledRecord((), (Operation("aten::mm", layer=("h.0",), root="Block"), replace(GELU, root="Block")))
    found = [origin_of(several, Call("x", (at,))) for at in (0, 1)]
    assert [one.root if one else None for one in found] == ["", ""]


def test_a_triton_kernel_under_nvtx_gets_dtypes_and_loops() -> None:
    """Two tensors and the sizes of its loops: 4096 rows of 768."""
    scope = Scope(Kind.OP, "triton_red_fused_add_0", "[[4096, 768], [768], [], []]")
    found = with_arguments(scope, ("bfloat16", "float32", "", ""), (4096, 768))
    assert json.loads(found.dtypes) == ["bfloat16", "float32", "", ""]
    assert json.loads(found.args) == ["", "", "4096", "768"]


def test_an_element_wise_kernel_has_one_loop() -> None:
    scope = Scope(Kind.OP, "triton_poi_fused_add_0", "[[8], []]")
    assert json.loads(with_arguments(scope, ("float32", ""), (8, 1)).args) == ["", "8"]


def test_what_the_profiler_recorded_stays() -> None:
    """Also where the number of arguments is another one than that of the kernel's signature."""
    whole = Scope(Kind.OP, "triton_poi_fused_add_0", "[[8], []]", '["bfloat16", ""]')
    assert with_arguments(whole, ("float32", ""), (8, 1)) is whole
    other = Scope(Kind.OP, "triton_poi_fused_add_0", "[[8], []]")
    assert with_arguments(other, ("float32",), (8, 1)) is other


def capture(texts: list[str], ops: list[str], compiled: dict[str, str]) -> Capture:
    """Ranges within each other, and in the innermost one op after the other."""
    scopes = [*(classify(text, False) for text in texts), *(Scope(Kind.OP, op) for op in ops)]
    outer, count = len(texts), len(scopes)
    start = np.array([*range(outer), *(100 + 10 * i for i in range(len(ops)))])
    end = np.array([*(1000 - i for i in range(outer)), *(105 + 10 * i for i in range(len(ops)))])
    blank = np.full(count, -1)
    ranges = Ranges(np.zeros(count, np.int64), start, end, np.arange(count), blank, blank)
    return Capture("x", "kineto", [(1, 1)], scopes, ranges, 0, {}, np.zeros(0), np.zeros(0), compiled=compiled)


RECORD = CompiledRecord(
    (Call("extern_kernels.addmm", (0,)), Call("triton_poi_fused_gelu_0", (1,), (1,))), (LINEAR, GELU)
)


def encoded(record: CompiledRecord) -> str:
    import msgspec

    return msgspec.json.encode(record).decode()


def origins(made: Capture) -> list[tuple[str, ...] | None]:
    tree = RangeTree(made)
    name_origins(made, tree)
    scopes = [tree.scopes[code] for code in tree.scope.tolist()]
    return [scope.origin.layer if scope.origin else None for scope in scopes if scope.kind == Kind.OP]


OPS = ["aten::addmm", "triton_poi_fused_gelu_0"]


def test_ops_in_a_graphs_range_get_the_layers_of_its_record() -> None:
    assert origins(capture([COMPILED_RANGE + "7.1"], OPS, {"7.1": encoded(RECORD)})) == [LINEAR.layer, GELU.layer]


def test_a_record_in_pieces_is_put_together() -> None:
    texts = range_texts("7.1", encoded(RECORD) + " " * PIECE)
    assert len(texts) == 2 and max(map(len, texts)) < 65_535
    assert origins(capture(texts, OPS, {})) == [LINEAR.layer, GELU.layer]


def test_a_record_with_a_piece_missing_is_left_out() -> None:
    texts = range_texts("7.1", encoded(RECORD) + " " * PIECE)
    assert origins(capture(texts[:1], OPS, {})) == [None, None]


@pytest.mark.parametrize("text", ["{", '{"calls": 3}', "[" * 10_000, '{"calls":[],"operations":[{"aten":1}]}'])
def test_a_damaged_record_is_left_out_with_a_warning(text: str) -> None:
    made = capture([COMPILED_RANGE + "7.1"], OPS, {"7.1": text})
    assert origins(made) == [None, None]
    assert made.warnings == ["the record of the compiled graph 7.1 cannot be read and is left out"]


def test_numbers_of_operations_that_do_not_exist_are_passed_over() -> None:
    wrong = CompiledRecord(
        (Call("extern_kernels.addmm", (5, -1)), Call("triton_poi_fused_gelu_0", (1, 9))), (LINEAR, GELU)
    )
    assert origins(capture([COMPILED_RANGE + "7.1"], OPS, {"7.1": encoded(wrong)})) == [None, GELU.layer]


def test_ops_inside_another_op_are_not_the_graphs_calls() -> None:
    made = capture([COMPILED_RANGE + "7.1"], ["aten::linear"], {"7.1": encoded(RECORD)})
    made.scopes.append(Scope(Kind.OP, "aten::addmm"))
    given = made.ranges
    inner = (0, 101, 104, 2, -1, -1)
    columns = zip((given.thread, given.start, given.end, given.scope, given.seq, given.op_id), inner, strict=True)
    made.ranges = Ranges(*(np.append(column, value) for column, value in columns))
    assert origins(made) == [None, None]


def test_an_item_of_fused_names_the_innermost_layer_and_line() -> None:
    item = {"aten": "aten::gelu", "layer": "mlp.act", "line": "net.py:9"}
    assert _described(GELU, False) == item
    assert _described(GELU, True) == {**item, "done": True}


@pytest.mark.parametrize("is_backward", [False, True])
def test_the_graph_of_compiled_autograd_is_a_backward_pass(is_backward: bool) -> None:
    """Its code runs in no node of autograd, and calls overloads of aten ops, which no user called."""
    operation = Operation("aten::mm", "torch._ops.aten", "mm.default", trace=("net.py:3",), backward=is_backward)
    origin = origin_of(
        CompiledRecord((Call("extern_kernels.mm", (0,)),), (operation,)), Call("extern_kernels.mm", (0,))
    )
    path = (Scope(Kind.COMPILED, f"{COMPILED_RANGE}7"), Scope(Kind.OP, "aten::mm", origin=origin))
    found = facts(path, (), False, "", False, False)
    assert (found.dir, found.phase) == (("bprop", "backward") if is_backward else ("fprop", "forward"))
    assert (found.mod, found.op, found.trace) == ('["aten"]', '["mm"]', '["net.py:3"]')
