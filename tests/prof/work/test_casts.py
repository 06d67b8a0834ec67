"""Types behind casts: forward and backward calls that tell each other's, on literal rows."""

import numpy as np

from pyprof.prof.kernels.type_names import Dtypes
from pyprof.prof.work.calls import call_numbers, dtypes_by_name, kernel_names
from pyprof.table.columns import Coded, Ragged, Table

DOWN = (  # bfloat16 <- float32
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda(float)#1}, std::array<char*, 2ul> >(int)"
)
UP = (  # float32 <- ?
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda(float)#1}, std::array<char*, 2ul>, 4, at::native::memory::LoadWithCast<1> >(int)"
)
ADD, MUL = (  # float32 <- ?, ?
    f"void at::native::unrolled_elementwise_kernel<at::native::{functor}, std::array<char*, 3ul>, 4,"
    " at::native::memory::LoadWithCast<2> >(int)"
    for functor in ("CUDAFunctor_add<float>", "BinaryFunctor<float, float, float, MulFunctor<float> >")
)
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, F, unsigned int, float, 4> >(int)"
COPY = ["aten::to", "aten::_to_copy", "aten::copy_"]
PAIR = "[[4, 8], [4, 8], []]"
B, F, UNKNOWN = "bfloat16", "float32", ""


def told(*rows: tuple[str, str, str, str, list[int], list[str], str]) -> list[Dtypes]:
    """What is known of each row: (kernel, aten, sizes, dir, seq, nodes, op)."""
    name, aten, sizes, direction, seq, nodes, op = zip(*rows, strict=True)
    table = Table(
        len(rows),
        {
            "kLongName": Coded.of(name),
            "aten": Coded.of(f"aten::{a}" for a in aten),
            "sizes": Coded.of(sizes),
            "dir": Coded.of(direction),
            "seqId": Ragged.of(seq),
            "pid": np.ones(len(rows), np.int64),
            "nodes": Coded.of(str(list(n)).replace("'", '"') for n in nodes),
            "op": Coded.of(f'["{o}"]' for o in op),
            "opId": np.arange(len(rows)),
            "kind": Coded.of(["kernel"] * len(rows)),
        },
    )
    codes, hints = dtypes_by_name(table, kernel_names(table), call_numbers(table), Coded.empty(len(table)))
    return [hints[code] for code in codes.tolist()]


def operands(hint: Dtypes) -> tuple[str, str]:
    return hint.of(0), hint.of(1)


def test_a_cast_and_its_backward_tell_each_other() -> None:
    backward = ["ToCopyBackward0", *COPY]
    rows = told(
        (DOWN, "copy_", PAIR, "fprop", [3, 7], COPY, "linear"),
        (UP, "copy_", PAIR, "bprop", [7], backward, "linear"),
        (UP, "copy_", PAIR, "fprop", [9], COPY, "to"),
        (DOWN, "copy_", PAIR, "bprop", [9], backward, "to"),
    )
    assert [operands(row) for row in rows] == [(B, F), (F, B), (F, B), (B, F)]


def test_a_cast_without_its_one_counterpart_stays_hidden() -> None:
    backward = ["ToCopyBackward0", *COPY]
    rows = told(
        (UP, "copy_", PAIR, "fprop", [1], COPY, "to"),  # no backward
        (DOWN, "copy_", PAIR, "fprop", [7], COPY, "to"),
        (UP, "copy_", PAIR, "fprop", [7], COPY, "to"),  # two forward casts of one number and shape
        (UP, "copy_", PAIR, "bprop", [7], backward, "to"),
        (DOWN, "copy_", "[[2, 8], [2, 8], []]", "fprop", [8], COPY, "to"),
        (UP, "copy_", PAIR, "bprop", [8], backward, "to"),  # another shape
    )
    assert [operands(row) for row in rows] == [(F, UNKNOWN), (B, F), (F, UNKNOWN), (F, UNKNOWN), (B, F), (F, UNKNOWN)]


def test_as_many_casts_of_gradients_as_mixed_calls() -> None:
    product = (MUL, "mul", "[[4, 8], [4, 8]]")
    rows = told(
        (*product, "fprop", [5], ["aten::mul"], "mul"),
        (*product, "bprop", [5], ["MulBackward0", "aten::mul"], "mul"),
        (DOWN, "copy_", PAIR, "bprop", [], COPY, "mul"),
        (ADD, "add", PAIR, "fprop", [6], ["aten::add"], "add"),
    )
    assert [sorted(operands(row)) for row in rows] == [[B, F], [B, F], [B, F], [UNKNOWN, UNKNOWN]]
    assert operands(rows[1]) == (F, B)  # the gradient has the product's type


def test_fewer_casts_than_mixed_calls_tell_nothing() -> None:
    call = (ADD, "add", PAIR, "fprop", [6], ["aten::add"], "add")
    rows = told(call, call, (DOWN, "copy_", PAIR, "bprop", [], COPY, "add"))
    assert [operands(row) for row in rows] == [(UNKNOWN, UNKNOWN), (UNKNOWN, UNKNOWN), (B, F)]


def test_a_reduction_that_converts_is_not_sure() -> None:
    plain = (SUM, "sum", "[[4, 8], [], []]", "fprop", [], ["aten::sum"], "sum")
    assert [row.of(0) for row in told(plain)] == [F]
    cast = (UP, "copy_", PAIR, "fprop", [], ["aten::sum", *COPY], "sum")
    assert [row.of(0) for row in told(plain, cast)] == [UNKNOWN, F]


def test_a_reduction_that_converts_casts_doubt_on_its_own_type_alone() -> None:
    """The sum of a mask makes int64 of it: sums of float32, such as a bias's gradient, have nothing to do with it."""
    mask = UP.replace("lambda(float)", "lambda(long)")  # int64 <- ?
    counted = (SUM.replace("ReduceOp<float", "ReduceOp<long"), "sum", "[[24], []]", "fprop", [], ["aten::sum"], "sum")
    cast = (mask, "copy_", "[[24], [24], []]", "fprop", [], ["aten::sum", *COPY], "sum")
    plain = (SUM, "sum", "[[4, 8], [], []]", "bprop", [], ["aten::sum"], "linear")
    assert [row.of(0) for row in told(cast, counted, plain)] == ["int64", UNKNOWN, F]
