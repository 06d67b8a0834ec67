"""FBGEMM's embedding tables, worked by hand, with arguments as several versions record them."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pyprof.errors import ModelError, UnknownArgument
from pyprof.parse.kineto.ranges import op_scope
from pyprof.prof.ops.embedding_call import Lookup, place_of_indices, understand
from pyprof.prof.ops.evaluation import assumption, evaluate, find
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from pyprof.prof.work.count import OpCall, count_call
from tests.prof.ops.op_cases import NAN, Row, declare_tested, i, i32, t, worked

LOOKUP, ROWS = "fbgemm::split_embedding_codegen_lookup", "fbgemm::split_embedding_nobag_codegen_forward"
QUANTIZED = "fbgemm::int_nbit_split_embedding_codegen_lookup"
FACTORS = "fbgemm::split_embedding_codegen_grad_indice_weights"
BACKWARD, NODE = "fbgemm::split_embedding_backward_codegen_", "SplitLookupFunction_"


# Two tables: 10 rows of 4 elements and 5 rows of 8; 80 elements, 15 rows, total_D 12. Batches of 3: 6 bags. 9 indices:
# 72 bytes. A lookup's mean width is 12 / 2 = 6, so 54 elements are gathered: 216 bytes.
U = UNKNOWN


A_ROW, TABLES = t(15), t(80)


def of_2022(count: int = 9, weighted: Any = None, state: Any = A_ROW, weights: Any = TABLES) -> Row:
    """The arguments of rowwise_adagrad's function as a trace of 2022 has them: no values of numbers."""
    tables = (t(0), weights, t(0), t(0, 0), i32(2), i(2), i32(3), U, U, i(3), U)
    return (*tables, i(count), i(7), U, weighted, None, i32(0), U, U, U, state, t(0), i32(2), i(2), U, U, U, U, U)


def pt2(count: int = 9, pooling: int = 0, weighted: Any = None, widest: int = 8) -> Row:
    """The arguments since 2024: weights and state are lists of buffers, numbers have their values."""
    buffers = (t(80, dtype=""), t(0, dtype=""), i32(2), i(2), t(0, 8, dtype=""))
    tables = (t(0), buffers, i32(3), 12, widest, i(3), 4)
    options = (
        0,
        (),
        [0, 30],
        [0.0, 1.0],
        [False],
        (t(15, dtype=""), t(0, dtype="")),
        t(),
        [0],
        [1e-8],
        -1,
        -1,
        -1,
        None,
    )
    return (*tables, i(count), i(7), pooling, weighted, None, *options)


def exact(grad: Tensor, count: int = 9, pooling: int = 0, weighted: Any = None, state: Any = A_ROW) -> Row:
    """The arguments of the op that the backward of 2023 calls."""
    tables = (grad, t(80), t(0), t(0, 8), i32(2), i(2), i32(3), 8, True, i(3), 4)
    options = (i32(0), 32, 32, True, 26, 67108863, False, False, state, t(0), i32(2), i(2), 1e-8, 0.1)
    return (*tables, i(count), i(7), pooling, weighted, *options)


def with_numbers(pooling: int) -> Row:
    """As ``of_2022``, with total_D 12, max_D 8 and the pooling mode."""
    arguments = of_2022()
    return (*arguments[:7], 12, 8, *arguments[9:13], pooling, *arguments[14:])


WITHOUT_TYPES = tuple(Tensor(a.shape) if isinstance(a, Tensor) else U for a in of_2022())
# 15 rows of 90 elements, a batch of 3
ONE_TABLE = (
    t(0),
    t(90),
    t(0),
    t(0, 0),
    i32(1),
    i(1),
    i32(2),
    U,
    U,
    i(2),
    U,
    i(9),
    i(4),
    0,
    None,
    None,
    i32(0),
    U,
    U,
    U,
)
# hash_size_cumsum right before the indices; the type of the output among the numbers: float16
FORWARD_OP = (
    t(80),
    t(0),
    t(0),
    t(0, 8),
    i32(2),
    i(2),
    i32(3),
    12,
    8,
    i(3),
    i(9),
    i(7),
    0,
    None,
    i32(0),
    i32(0),
    False,
    1,
)
# rows of 6 4-bit elements, 3 bytes and 4 more: 63 bytes
BYTES = (t(105, dtype="uint8"), t(0, dtype="uint8"), i32(2), i(2), t(2, dtype="uint8"), i32(3))
FOUR_BITS = (*BYTES, 12, 0, 8, 0, 0, 0, i32(9), i32(7), 0, None, 1)

SUMS, ROWS_OUT = (t(3, 12),), (t(9, 8),)
FORWARD: list[Row] = [
    # (9 - 6) bags' additions of 6 elements; 216 + 72 read, 3 * 12 sums written
    (LOOKUP, of_2022(), SUMS, Work(18, 288, 144)),
    (LOOKUP, of_2022(weighted=t(9)), SUMS, Work(18 + 54, 288 + 36, 144)),
    (LOOKUP, of_2022(weights=t(80, dtype="float16")), SUMS, Work(18, 108 + 72, 144)),  # sums in float32
    (LOOKUP, of_2022(), (t(3, 12, dtype="float16"),), Work(18, 288, 72)),
    (LOOKUP, of_2022(count=4), SUMS, Work(0, 96 + 32, 144)),  # some bags are empty
    # no bags: 9 rows of 8 elements; the result says so
    (LOOKUP, of_2022(), ROWS_OUT, Work(0, 9 * 8 * 4 + 72, 288)),
    # 3 sequences of batches of different sizes in one row: 36 sums for 6 bags
    (LOOKUP, of_2022(), (t(36),), Work(18, 288, 144)),
    # total_D / T = 12 / 2; mean: 36 divisions
    (LOOKUP, with_numbers(pooling=0), Work(18, 288, 144)),
    (LOOKUP, with_numbers(pooling=1), Work(18 + 36, 288, 144)),
    # only the sizes give the width, 90 elements in 15 rows: 6
    (LOOKUP, (*ONE_TABLE, t(15)), Work((9 - 3) * 6, 288, 72)),
    (LOOKUP, FORWARD_OP, Work(18, 288, 72)),
    # NVTX has no types: the sizes and their order are enough for the FLOPs; the sums are taken for float32
    (LOOKUP, WITHOUT_TYPES, (Tensor((3, 12)),), Work(18, NAN, 144)),
    # 9 rows of D = 8
    (ROWS, (t(80), t(0), t(0, 8), i32(2), i(2), 8, i(9), i(7), i32(0), 0, False), Work(0, 288 + 72, 288)),
    # 54 products, 54 sums beside the 18; float16 is the default
    (QUANTIZED, FOUR_BITS, Work(18 + 108, 63 + 36, 72)),
]


GRAD = t(3, 12)  # 144 bytes
# 54 elements of 9 rows are updated, 216 bytes: read are gradient, indices, rows and state; rows and state are written.
# Additions: 54. Then FLOPs an element, 54 of them, and a row, 9; state of 4 bytes an element and a row.
OPTIMIZERS = {
    "sgd": (54 + 2 * 54, 0),
    "approx_sgd": (162, 0),
    "adagrad": (54 + 7 * 54, 216),
    "rowwise_adagrad": (54 + 4 * 54 + 5 * 9, 36),
    "approx_rowwise_adagrad": (315, 36),
    "rowwise_adagrad_with_weight_decay": (315, 36),
    "approx_rowwise_adagrad_with_weight_decay": (315, 36),
    "rowwise_adagrad_with_counter": (54 + 4 * 54 + 7 * 9, 3 * 36),
    "approx_rowwise_adagrad_with_counter": (333, 108),
    "rowwise_weighted_adagrad": (54 + 4 * 54 + 7 * 9, 36),
    "rowwise_rmsprop_ar": (54 + 5 * 54 + 11 * 9, 2 * 36),
    "adam": (54 + 13 * 54, 432),
    "partial_rowwise_adam": (54 + 7 * 54 + 8 * 9, 216 + 36),
    "lamb": (54 + 18 * 54 + 4 * 9, 432),
    "partial_rowwise_lamb": (54 + 12 * 54 + 12 * 9, 216 + 36),
    "lars_sgd": (54 + 8 * 54 + 5 * 9, 216),
}


def backward_rows() -> Iterator[Row]:
    for optimizer, (flop, state) in OPTIMIZERS.items():
        arguments = exact(GRAD, state=t(15) if state <= 108 else t(80))  # a number a row, or an element
        yield f"{BACKWARD}{optimizer} {NODE}{optimizer}", arguments, Work(flop, 144 + 72 + 216 + state, 216 + state)
    for optimizer in ("none", "dense"):  # the rows' gradients are written, not the tables
        yield f"{BACKWARD}{optimizer} {NODE}{optimizer}", exact(GRAD, state=None), Work(54, 216, 216)


test_worked_by_hand = worked(FORWARD, backward_rows())
declare_tested(FACTORS)


def test_no_more_rows_are_updated_than_there_are() -> None:
    """40 indices, 240 elements to add; 80 elements and 15 rows there are: 240 + 4 * 80 + 5 * 15."""
    work = total(evaluate(NODE + "rowwise_adagrad", (GRAD, *of_2022(count=40))))
    assert work == Work(635, 144 + 320 + 320 + 60, 320 + 60)


def test_of_a_mean_the_gradient_is_divided_first() -> None:
    assert total(evaluate(BACKWARD + "sgd", exact(GRAD, pooling=1))).flop == 162 + 36


def test_weights_have_a_gradient_of_their_own() -> None:
    """9 dot products of 6 elements, 11 each; the weighted sum has 54 products more."""
    dots = Work(99, 144 + 216 + 72, 36)
    update = Work(315 + 54, 468 + 36, 252)
    arguments = (GRAD, *of_2022(weighted=t(9)))
    assert evaluate(NODE + "rowwise_adagrad", arguments) == {"indice_weights": dots, "update": update}
    assert evaluate(BACKWARD + "rowwise_adagrad", exact(GRAD, weighted=t(9))) == update  # which has an op for the dots
    inside = (GRAD, t(80), t(0), t(0, 8), i32(2), i(2), i32(3), 8, i(9), i(7), i32(0), None)
    assert evaluate(FACTORS, inside) == dots


def test_what_is_not_told_is_not_guessed() -> None:
    with pytest.raises(UnknownArgument, match="summed"):  # no output, no pooling mode
        evaluate(LOOKUP, of_2022())
    with pytest.raises(UnknownArgument, match="widths"):  # adagrad's state has a number an element: no rows
        evaluate(LOOKUP, (*of_2022(state=t(80))[:13], 0, *of_2022(state=t(80))[14:]))
    with pytest.raises(UnknownArgument, match="forward call"):  # its forward op is not in the capture
        evaluate(NODE + "rowwise_adagrad", (GRAD,))
    with pytest.raises(UnknownArgument, match="precision"):  # tables of 4 and of 8 bits
        evaluate(QUANTIZED, (*FOUR_BITS[:8], 8, 8, *FOUR_BITS[10:]))
    with pytest.raises(ModelError):
        evaluate(LOOKUP, (t(3), t(4)))


def test_what_is_inferred_is_said() -> None:
    assert assumption(LOOKUP, of_2022()) == (
        "each lookup has the mean width of its 2 tables: which one it is in, is not recorded"
    )
    assert assumption(LOOKUP, pt2(widest=6)) == ""  # 2 tables of at most 6 elements, 12 in all: both have 6
    assert assumption(NODE + "sgd", (GRAD, *pt2(widest=6))) == (
        "rows updated: one per index, at most the 80 elements there are"
    )


NAMES = [
    ("fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", LOOKUP),
    ("fb::split_embedding_codegen_lookup_adam_function_cpu", LOOKUP),
    ("fbgemm::split_embedding_codegen_lookup_sgd_function_pt2", LOOKUP),
    ("fbgemm::dense_embedding_codegen_lookup_function", LOOKUP),
    ("fbgemm::ssd_embedding_codegen_lookup_rowwise_adagrad_function", LOOKUP),
    ("fbgemm::split_embedding_codegen_forward_weighted_vbe_cuda", LOOKUP),
    ("fbgemm::split_embedding_nobag_codegen_forward_unweighted_cuda", ROWS),
    ("fbgemm::int_nbit_split_embedding_codegen_lookup_function", QUANTIZED),
    ("fbgemm::int_nbit_split_embedding_uvm_caching_codegen_lookup_function", QUANTIZED),
    ("fbgemm::split_embedding_codegen_grad_indice_weights_vbe_cuda", FACTORS),
    ("fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted_exact_cuda", BACKWARD + "rowwise_adagrad"),
    (
        "fbgemm::split_embedding_backward_codegen_rowwise_adagrad_with_counter_weighted_vbe_pt2_wrapper",
        BACKWARD + "rowwise_adagrad_with_counter",
    ),
    ("fbgemm::split_embedding_nobag_backward_codegen_adam_unweighted_exact_cuda", BACKWARD + "adam"),
    ("fbgemm::split_embedding_backward_codegen_dense_cpu", BACKWARD + "dense"),
    ("torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>", NODE + "rowwise_adagrad"),
    ("torch::autograd::CppNode<(anonymous namespace)::SplitNoBagLookupFunction_adam_Op>", NODE + "adam"),
    ("torch::autograd::CppNode<SplitVBELookupFunction_partial_rowwise_adam_Op_pt2>", NODE + "partial_rowwise_adam"),
    ("torch::autograd::CppNode<SplitLookupFunction_Dense_Op>", NODE + "dense"),
    ("torch::autograd::CppNode<SplitLookupFunction_of_my_own_Op>", None),
    (
        "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu> >",
        "fbgemm::permute_pooled_embs",
    ),
    ("fb::asynchronous_complete_cumsum", "fbgemm::asynchronous_complete_cumsum"),
    ("fb::unheard_of", None),
]


@pytest.mark.parametrize(("name", "model"), NAMES)
def test_names_of_all_versions(name: str, model: str | None) -> None:
    assert find(name) == model


# --- FBGEMM 1.8 on PyTorch 2.13, as its profiler recorded it ---------------------------------------------------------

# op: tables, total_D, indices, bags, elements of all tables, weighted
RECORDED = {
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function_pt2": (3, 28, 689, 192, 5200, False),
    "fbgemm::split_embedding_codegen_forward_unweighted_pt2_wrapper": (3, 28, 689, 192, 5200, False),
    "fbgemm::split_embedding_codegen_forward_cpu": (3, 28, 689, 192, 5200, False),
    "fbgemm::split_embedding_codegen_lookup_adagrad_function_pt2": (1, 12, 240, 64, 1200, True),
    "fbgemm::split_embedding_codegen_forward_weighted_pt2_wrapper": (1, 12, 240, 64, 1200, True),
    "fbgemm::split_embedding_codegen_lookup_sgd_function_pt2": (2, 16, 439, 128, 2400, False),
    "fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted_pt2_wrapper": (2, None, 449, 128, 2400, False),
    "fbgemm::split_embedding_backward_codegen_rowwise_adagrad_cpu": (2, None, 449, 128, 2400, False),
    "fbgemm::split_embedding_backward_codegen_sgd_unweighted_pt2_wrapper": (2, None, 439, 128, 2400, False),
    "fbgemm::split_embedding_backward_codegen_sgd_cpu": (2, None, 439, 128, 2400, False),
    "fbgemm::split_embedding_codegen_grad_indice_weights_pt2_wrapper": (1, None, 240, 64, 1200, False),
    "fbgemm::split_embedding_codegen_grad_indice_weights_cpu": (None, None, 240, 64, 1200, False),
    "fbgemm::split_embedding_backward_codegen_adagrad_weighted_pt2_wrapper": (1, None, 240, 64, 1200, True),
    "fbgemm::split_embedding_backward_codegen_adagrad_cpu": (1, None, 240, 64, 1200, True),
}


def recorded(root: Any) -> dict[str, dict[str, str]]:
    calls = {}
    for call in json.loads((root / "tests" / "golden" / "fbgemm_calls.json").read_text()):
        texts = (json.dumps(call[key]).encode() for key in ("Input Dims", "Input type"))
        scope = op_scope(call["name"], *texts, b"", json.dumps(call["Concrete Inputs"]).encode())
        calls[call["name"]] = {key: getattr(scope, key) for key in ("sizes", "dtypes", "strides", "args")}
    return calls


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_arguments_are_understood(name: str, root: Any) -> None:
    tables, wide, count, bags, elements, weighted = RECORDED[name]
    arguments = count_call(OpCall(aten=name, **recorded(root)[name])).arguments
    backward = "backward" in name or "grad_indice" in name
    call = understand(arguments[1:] if backward else arguments, updates=backward)
    assert (call.tables, call.count, call.bags, call.weights.numel) == (tables, count, bags, elements)
    assert (call.total, call.weighted is not None) == (wide, weighted)
    assert arguments[place_of_indices(arguments)].shape == (count,)


def test_recorded_calls_are_counted(root: Any) -> None:
    """Three tables of 8, 16 and 4: (689 - 192) * 28 / 3; one of 12, 240 weighted indices: (240 - 64 + 240) * 12."""
    assert set(RECORDED) == set(recorded(root))
    flops = {name: count_call(OpCall(aten=name, **call)).flop for name, call in recorded(root).items()}
    assert flops["fbgemm::split_embedding_codegen_forward_unweighted_pt2_wrapper"] == 4639  # 4638.67
    assert flops["fbgemm::split_embedding_codegen_forward_weighted_pt2_wrapper"] == 4992
    assert flops["fbgemm::split_embedding_codegen_grad_indice_weights_pt2_wrapper"] == 240 * 23
    # 439 * 8 added, then 2 for each of min(439 * 8, 2400) elements
    assert flops["fbgemm::split_embedding_backward_codegen_sgd_unweighted_pt2_wrapper"] == 3512 + 2 * 2400
    # 449 * 8 added, 64 * 16 divided (mean), 4 * 2400, 5 for each of min(449, 300) rows
    rowwise = "fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted_pt2_wrapper"
    assert flops[rowwise] == 3592 + 1024 + 9600 + 1500


@pytest.mark.parametrize(
    ("tables", "total_width", "widest", "even"),
    [(1, None, None, True), (2, None, None, False), (None, 8, 4, False), (2, 8, 4, True), (2, 7, 4, False)],
)
def test_tables_are_of_one_width_if_that_is_known(
    tables: int | None, total_width: int | None, widest: int | None, even: bool
) -> None:
    call: Any = SimpleNamespace(tables=tables, total=total_width, widest=widest)
    assert Lookup.is_even.fget(call) is even  # type: ignore[attr-defined]
