"""Whose word on a dtype counts: the order of trust of ``arguments``, and calls that NVTX tells in part."""

import json
from typing import Any

import pytest

import pyprof.prof.ops.families  # noqa: F401  (fills the registry)
from pyprof.marker import Marker, format_marker
from pyprof.prof.kernels.type_names import NOTHING, Dtypes
from pyprof.prof.ops.marker_arguments import subscript, with_flags
from pyprof.prof.ops.model import UNKNOWN, Tensor
from pyprof.prof.work.arguments import Known, _tensor_list, known_dtypes
from pyprof.prof.work.count import Counted, OpCall, count_call

B, F = "bfloat16", "float32"
Q = [2, 3, 16, 8]  # 768 elements


def marker(op: str, *tensors: tuple[list[int], str], autocast: str | None = None) -> Marker:
    args: list[dict[str, Any]] = [
        {"name": f"a{i}", "type": "tensor", "shape": shape, "dtype": dtype} for i, (shape, dtype) in enumerate(tensors)
    ]
    return Marker("torch", op, args, autocast)


def counted(
    op: str, sizes: list[Any], kernel: Dtypes, *markers: Marker, nodes: tuple[str, ...] = (), way: str = "fprop"
) -> Counted:
    texts = json.dumps([format_marker(one) for one in markers]) if markers else ""
    return count_call(
        OpCall(
            aten=f"aten::{op}",
            sizes=json.dumps(sizes),
            dtypes="",
            marker=texts,
            dir=way,
            nodes=json.dumps(nodes) if nodes else "",
            kernel=kernel,
        )
    )


def test_the_kernel_is_believed_before_the_marker() -> None:
    known = known_dtypes([marker("mul", ([4], F), ([4], F))], Dtypes(B), "mul", "[[4], [4]]", False, True)
    assert [known.dtype(i, (4,)) for i in range(2)] == [B, B]


def test_a_marker_tells_the_type_of_what_a_kernel_gives_the_size_of() -> None:
    """cuDNN's attention writes f16 for both 16-bit types."""
    opaque = Dtypes("opaque2")
    known = known_dtypes([marker("attention", ([4], B))], opaque, "_cudnn_attention_forward", "[[4], [5]]", True, True)
    assert [known.dtype(0, (4,)), known.dtype(1, (5,))] == [B, B]
    wide = known_dtypes([marker("attention", ([4], F))], opaque, "_cudnn_attention_forward", "[[4], [5]]", True, True)
    assert wide.dtype(0, (4,)) == "opaque2"


def test_the_ops_own_marker_tells_by_position() -> None:
    mixed = marker("add", ([4], F), ([4], B))
    hidden = Dtypes(at=((0, ""), (1, "")), out=F)
    known = known_dtypes([mixed], hidden, "add", "[[4], [4], []]", False, True)
    assert [known.dtype(i, (4,)) for i in range(2)] == [F, B]
    backward = known_dtypes([mixed], hidden, "add", "[[4], [4], []]", False, False)
    assert [backward.dtype(i, (4,)) for i in range(2)] == ["", ""]


def test_markers_around_tell_by_shape_but_not_what_is_hidden_or_two_things_at_once() -> None:
    around = marker("layer_norm", ([4], F), ([5], "float64"))
    known = known_dtypes([around], Dtypes(at=((1, ""),)), "mul", "[[4], [5]]", False, True)
    assert (known.dtype(0, (4,)), known.dtype(1, (5,))) == (F, "")
    both = known_dtypes([marker("cat", ([4], F), ([4], B))], NOTHING, "mul", "[[4], [4]]", False, True)
    assert both.dtype(0, (4,)) == ""


def test_under_autocast_a_products_operands_are_autocasts() -> None:
    known = known_dtypes([marker("linear", ([4, 4], F), autocast=B)], NOTHING, "mm", "[[4, 4], [4, 4]]", True, True)
    assert known.dtype(0, (4, 4)) == B


@pytest.mark.parametrize(
    ("op", "sizes", "kernel", "flop", "nbytes"),
    [
        ("mm", [[4, 5], [5, 6]], Dtypes(B, (), B), 240, 148),  # 2*4*5*6; (20+30+24)*2
        ("mm", [[4, 5], [5, 6]], NOTHING, 240, None),
        ("copy_", [[4], [4], []], Dtypes(at=((0, F), (1, B))), 0, 24),  # 4*2 read, 4*4 written
        ("_softmax", [[4, 8], [], []], Dtypes(B, (), F), None, 192),  # 32*2 read, 32*4 written
        ("_foreach_add_", [[4], [6], []], Dtypes(F, lists=1), 10, 80),  # a number to each: 10*4 read and written
        ("cat", [[2, 4], [3, 4], []], Dtypes("opaque2"), 0, 80),  # 20*2 read and written
        ("gather", [[4, 6], [], [4, 2], []], Dtypes(F), 0, 128),  # 8*4 and 8 positions of 8 bytes read, 8*4 written
        ("index_select", [[40], [], [5]], Dtypes(F), 0, 80),  # 5*4 and 5*8 read, 5*4 written
    ],
)
def test_bytes_where_the_kernel_tells(
    op: str, sizes: list[Any], kernel: Dtypes, flop: int | None, nbytes: int | None
) -> None:
    found = counted(op, sizes, kernel)
    assert found.nbytes == nbytes, found.why
    assert flop is None or found.flop == flop


def test_adams_lists_are_told_apart_by_the_kernel() -> None:
    lists = [[10], [4]] * 4 + [[], []] + [[]] * 9
    assert counted("_fused_adamw_", lists, Dtypes(F, lists=4)).nbytes == 14 * 28  # p, g, m, v read; p, m, v written


def test_bytes_do_not_wait_for_the_causal_flag() -> None:
    silent = counted("_cudnn_attention_forward", [Q, Q, Q] + [[]] * 10, Dtypes("opaque2"))
    assert (silent.flop, silent.nbytes) == (None, 4 * 768 * 2 + 2 * 3 * 16 * 4)  # q, k, v, out; log-sum-exp
    told = counted("_flash_attention_forward", [[2, 16, 3, 8]] * 3 + [[]] * 12, Dtypes(B, flags=((8, True),)))
    assert told.flop == 2 * 2 * 2 * 3 * 8 * (16 * 17 // 2)  # two products over 136 pairs of each of 6 heads


@pytest.mark.parametrize(
    ("op", "sizes", "dtypes"),
    [
        ("mm", [[[2], [3]], [[3], [4]]], ""),  # lists of shapes where NVTX has a shape
        ("cat", [[2, [3]], [2, [3]]], ""),
        ("mm", [[[2], [3]], [3, 4]], '["float32", "float32"]'),
        ("cat", [[2, 3], []], '[["", ""], "Scalar"]'),  # a shape where a list of shapes belongs
        ("no_such_op", [[[2], [3]]], '["float32"]'),
    ],
)
def test_shapes_that_make_no_sense_are_unknown(op: str, sizes: list[Any], dtypes: str) -> None:
    found = count_call(OpCall(aten=f"aten::{op}", sizes=json.dumps(sizes), dtypes=dtypes, dir="fprop"))
    assert (found.flop, found.nbytes) == (0 if op == "cat" else None, None)  # a copy computes nothing, of any shape
    assert found.why


def test_less_work_than_none_is_unknown() -> None:
    """A damaged trace: a window of -3 elements."""
    args = json.dumps(["-3", "6", "0", "", "False"])
    sizes, dtypes = json.dumps([[]] * 5), json.dumps(["Scalar"] * 5)
    found = count_call(OpCall(aten="aten::hann_window", sizes=sizes, dtypes=dtypes, args=args, dir="fprop"))
    assert (found.flop, found.nbytes) == (None, None)


@pytest.mark.parametrize(
    ("op", "sizes", "args"),
    [  # of damaged traces
        ("aten::nll_loss_backward", [[], [8, 5], [8]], ""),  # no argument for the weights
        ("_c10d_functional::all_gather_into_tensor", [[2, 3], []], '["", "[0, 1]"]'),  # a list for a number
        ("aten::one_hot", [[8], []], '["", "inf"]'),
    ],
)
def test_arguments_that_no_model_was_written_for_are_unknown(op: str, sizes: list[Any], args: str) -> None:
    dtypes = json.dumps([F if size else "Scalar" for size in sizes])
    found = count_call(OpCall(aten=op, sizes=json.dumps(sizes), dtypes=dtypes, args=args, dir="fprop"))
    assert found.nbytes is None


def test_more_work_than_any_computer_does_is_unknown() -> None:
    size = 1 << 21
    fits, beyond = (counted("mm", [[n, n], [n, n]], Dtypes(B)) for n in (1 << 19, size))
    assert (fits.flop, beyond.flop) == (1 << 58, None)  # 2 * 2**(3 * 19); 2 * 2**63
    assert beyond.nbytes == 3 * size * size * 2


def test_the_norms_of_a_list_under_nvtx() -> None:
    """NVTX writes the list's tensors, then order and dtype: 2 FLOP an element, 6 + 10 of them."""
    work = counted("_foreach_norm", [[2, 3], [10], [], []], Dtypes(F))
    assert work.parts == {"": (32, (16 + 2) * 4)}


SELF = {"name": "self", "type": "tensor", "shape": [8, 9, 10], "dtype": F}


def item(kind: str, *shape: int, **more: Any) -> dict[str, Any]:
    return {"name": "key", "type": kind, **({"shape": list(shape), "dtype": "int64"} if shape else {}), **more}


def key(*items: dict[str, Any]) -> dict[str, Any]:
    return item("tuple", items=list(items))


ALL = item("slice", value="::")
LONG = Tensor((3, 1), "int64"), Tensor((4,), "int64")
TWO = item("tensor", 3, 1), item("tensor", 4)


@pytest.mark.parametrize(
    ("given", "view", "expected"),
    [
        (TWO[1], (8, 9, 10), (LONG[1],)),
        (key(*TWO), (8, 9, 10), LONG),
        (key(ALL, *TWO), (8, 9, 10), (None, *LONG)),
        (key(item("ellipsis", value="Ellipsis"), TWO[1]), (8, 9, 10), (None, None, LONG[1])),
        (key(item("int", value=2), TWO[1]), (9, 10), (LONG[1],)),
        (key(item("slice", value="1:-1:2"), TWO[1]), (3, 9, 10), (None, LONG[1])),
        (key(item("none", value=None), TWO[1]), (1, 8, 9, 10), (None, LONG[1])),
        (item("tensor", 8, 9, dtype="bool"), (8, 9, 10), (Tensor((8, 9), "bool"),)),
        # not told: another view, a list, no index at all, more items than dimensions, a slice by tensors
        (key(*TWO), (8, 9), UNKNOWN),
        (item("list", items=[{"type": "int", "value": 1}]), (8, 9, 10), UNKNOWN),
        (key(ALL, ALL), (8, 9, 10), UNKNOWN),
        (key(*[TWO[1]] * 4), (8, 9, 10), UNKNOWN),
        (key(item("slice", value="?::"), TWO[1]), (8, 9, 10), UNKNOWN),
        (key(item("slice", value="9" * 5000 + "::"), TWO[1]), (8, 9, 10), UNKNOWN),
    ],
)
def test_what_brackets_give_to_aten_index(given: dict[str, Any], view: tuple[int, ...], expected: Any) -> None:
    assert subscript(Marker("Tensor", "__getitem__", [SELF, given]), Tensor(view, F)) == expected


@pytest.mark.parametrize(
    "args",
    [[], [SELF], [{**SELF, "shape": [10**30, 9, 10]}, key(ALL, TWO[1])], [SELF, {**key(ALL), "items": []}]],
)
def test_brackets_that_make_no_sense_tell_nothing(args: list[dict[str, Any]]) -> None:
    assert subscript(Marker("Tensor", "__getitem__", args), Tensor((8, 9, 10), F)) is UNKNOWN


def test_indices_come_from_the_marker_of_the_brackets() -> None:
    """8 x 3 x 4 numbers of 4 bytes read and written, 3 and 4 indices of 8 bytes."""
    text = json.dumps([format_marker(Marker("Tensor", "__getitem__", [SELF, key(ALL, *TWO)]))])
    found = count_call(
        OpCall(
            aten="aten::index",
            sizes="[[8, 9, 10], []]",
            dtypes='["float32", ""]',
            args='["", ""]',
            marker=text,
            dir="fprop",
        )
    )
    assert (found.flop, found.nbytes) == (0, 2 * 96 * 4 + 7 * 8)


@pytest.mark.parametrize(
    ("types", "nbytes"),
    [((F, "float16"), 4 * 6 + 2 * 8 + 4 * 14), (("float16", F), 2 * 6 + 4 * 8 + 4 * 14)],
)
def test_a_list_of_two_types_has_its_own_marker_s(types: tuple[str, str], nbytes: int) -> None:
    """cat of [2, 3] and [2, 4] to float32: one copy kernel tells a cast, the marker which of the two."""
    tensors = [{"type": "tensor", "shape": [2, n], "dtype": d} for n, d in zip((3, 4), types, strict=True)]
    made = Marker("torch", "cat", [{"name": "tensors", "type": "list", "items": tensors}], "float16")
    found = count_call(
        OpCall(
            aten="aten::cat",
            sizes="[[[2, 3], [2, 4]], []]",
            dtypes='[["", ""], ""]',
            marker=json.dumps([format_marker(made)]),
            dir="fprop",
            kernel=Dtypes(at=((0, ""),), out=F),
        )
    )
    assert (found.flop, found.nbytes) == (0, nbytes)


def test_nvtx_writes_a_list_of_indices_one_after_the_other() -> None:
    """8 x 200 rows of 512 added to at most 448: values and these rows read, these written, 1,600 indices of 8 bytes."""
    sorted_sum = Dtypes(at=((0, B), (2, B)), flags=((3, True),))
    found = counted("_index_put_impl_", [[448, 512], [8, 200], [8, 200, 512], [], []], sorted_sum)
    assert (found.flop, found.nbytes) == (819_200, (819_200 + 2 * 229_376) * 2 + 1_600 * 8)
    two = counted("index_put_", [[8, 9, 10], [], [3, 1], [4], [8, 3, 4], []], Dtypes(at=((0, F), (2, F))))
    assert (two.flop, two.nbytes) == (0, 2 * 96 * 4 + 7 * 8)
    read = counted("index", [[8, 9, 10], [3, 1], [4]], Dtypes(at=((0, F),)))
    assert (read.flop, read.nbytes) == (0, 2 * 120 * 4 + 7 * 8)


def test_an_index_of_the_shape_of_what_it_indexes_may_be_a_mask() -> None:
    """Its values tell how many there are; neither 20 bytes of a mask nor 160 of indices are counted."""
    found = counted("_index_put_impl_", [[4, 5], [4, 5], [7], [], []], Dtypes(at=((0, F), (2, F))))
    assert (found.flop, found.nbytes) == (0, 2 * 28)
    assert counted("index", [[4, 5], [4, 5]], Dtypes(at=((0, F),))).nbytes is None


@pytest.mark.parametrize(("causal", "pairs"), [(False, 16 * 16), (True, 16 * 17 // 2)])
def test_a_marker_tells_the_mask_type_of_efficient_attention(causal: bool, pairs: int) -> None:
    flags = [{"name": "is_causal", "type": "bool", "value": True}] if causal else []
    call = marker("scaled_dot_product_attention", *[([2, 3, 16, 8], B)] * 3)
    call = Marker(call.mod, call.op, [*call.args, *flags])
    sizes = [[2, 16, 3, 8]] * 3 + [[]] * 11
    found = counted("_efficient_attention_forward", sizes, Dtypes(B, (), B), call)
    assert found.flop == 4 * 2 * 3 * pairs * 8


def test_the_source_of_a_cast_has_the_type_of_what_was_cast() -> None:
    hidden = Dtypes(at=((0, F), (1, "")), out=F)
    for cast in ("to", "float"):
        found = counted("copy_", [[6, 7], [6, 7], []], hidden, marker(cast, ([6, 7], B)))
        assert (found.flop, found.nbytes) == (0, 42 * (2 + 4))
    # another shape, another op, the backward: not its word
    assert counted("copy_", [[6, 7], [6, 7], []], hidden, marker("to", ([42], B))).nbytes is None
    assert counted("copy_", [[6, 7], [6, 7], []], hidden, marker("linear", ([6, 7], B))).nbytes is None
    assert counted("copy_", [[6, 7], [6, 7], []], hidden, marker("to", ([6, 7], B)), way="bprop").nbytes is None


def numbers(op: str, shape: list[int], **more: int) -> Marker:
    called = marker(op, (shape, F))
    given = [{"name": name, "type": "int", "value": value} for name, value in more.items()]
    return Marker(called.mod, op, [*called.args, *given])


@pytest.mark.parametrize(
    ("op", "entries", "call", "expected"),
    [
        ("sum", 4, numbers("sum", [4, 5, 6], dim=1), (120 - 24, (120 + 24) * 4)),
        ("sum", 4, numbers("sum", [4, 5, 6]), (119, 121 * 4)),
        ("topk", 5, numbers("topk", [8, 100], k=3), (0, 8 * 100 * 4 + 8 * 3 * (4 + 8))),
        ("cumsum", 3, numbers("cumsum", [4, 5, 6], dim=2), (120 - 20, 2 * 120 * 4)),
        ("argmax", 3, numbers("argmax", [4, 5, 6], dim=-1), (0, 120 * 4 + 20 * 8)),
        ("sum", 4, numbers("sum", [4, 5, 6], axis=1), (120 - 24, (120 + 24) * 4)),  # numpy's name for it
        ("sum", 4, numbers("sum", [4, 5, 6], **{"": 1}), (None, None)),  # which argument it is, is not sure
        ("topk", 5, numbers("topk", [8, 100]), (0, None)),  # k is not told
        ("sum", 4, numbers("norm", [4, 5, 6], dim=1), (None, None)),  # another op's dimension
        ("sum", 4, numbers("sum", [4, 30], dim=1), (None, None)),  # of another tensor
    ],
)
def test_an_op_s_own_marker_tells_its_numbers(
    op: str, entries: int, call: Marker, expected: tuple[int | None, int | None]
) -> None:
    shape = [8, 100] if op == "topk" else [4, 5, 6]
    found = counted(op, [shape, *[[]] * (entries - 1)], Dtypes(F), call)
    assert (found.flop, found.nbytes) == expected


def test_both_sides_of_where_are_tensors() -> None:
    """20 bytes of a mask, 40 written, two numbers of 2 bytes."""
    sides = Dtypes(at=((0, "bool"), (1, "float16"), (2, "float16")), out="float16")
    assert counted("where", [[4, 5], [], []], sides).nbytes == 20 + 40 + 2 * 2


def mha(**more: Any) -> Marker:
    called = marker("multi_head_attention_forward", ([16, 2, 24], B))
    given = [{"name": name, "type": type(value).__name__, "value": value} for name, value in more.items()]
    return Marker(called.mod, called.op, [*called.args, *given])


@pytest.mark.parametrize(
    ("call", "pairs"),
    [
        (mha(need_weights=False), 256),
        (mha(need_weights=False, is_causal=True), 136),
        (mha(is_causal=True), 256),  # weights are wanted: the mask is added
    ],
)
def test_attention_of_nn_multiheadattention(call: Marker, pairs: int) -> None:
    found = counted("_cudnn_attention_forward", [Q, Q, Q] + [[]] * 10, Dtypes("opaque2"), call)
    assert found.flop == 2 * 2 * 2 * 3 * 8 * pairs


def test_sums_of_biases_gradients_have_a_number_a_channel() -> None:
    linear = marker("linear", ([30, 5], F), ([7, 5], F), ([7], F))
    untold = [[30, 7], [], [], []]
    assert counted("sum", [], Dtypes(F), linear, nodes=("AddmmBackward0", "aten::sum"), way="bprop").nbytes is None
    for nodes, call, told in (
        (("AddmmBackward0", "aten::sum"), linear, True),
        (("AddmmBackward0", "aten::sum"), marker("linear", ([30, 5], F), ([7, 5], F)), False),
        (("NativeLayerNormBackward0", "aten::native_layer_norm_backward", "aten::sum"), linear, True),
        (("MulBackward0", "aten::sum"), linear, False),
    ):
        found = counted("sum", untold, Dtypes(F), call, nodes=nodes, way="bprop")
        assert (found.flop, found.nbytes) == ((210 - 7, 217 * 4) if told else (None, None))


def test_the_backward_of_a_bag_by_its_kernels() -> None:
    """Gradient of 8 bags of 6 numbers, 40 places: the table's rows are not told, so bytes are not."""
    bags = [[8, 6], [40], [40], [8], [0], *[[]] * 5]
    found = counted("_embedding_bag_dense_backward", bags, Dtypes(at=((0, F),)), nodes=("x",), way="bprop")
    assert (found.flop, found.nbytes) == (40 * 6, None)
    assert [tensor.dtype for tensor in found.arguments[:5]] == [F, *["int64"] * 4]


def test_types_of_a_list_that_the_kernel_hides_are_those_of_the_ops_marker() -> None:
    """If it has as many tensors; otherwise they are not known."""
    known = Known(kernel=Dtypes(at=((0, ""),)), lists={0: ("bfloat16", "float16")})
    two, three = (_tensor_list(0, known, shapes, [""] * len(shapes), None) for shapes in ([[2], [3]], [[2], [3], [4]]))
    assert [tensor.dtype for tensor in two] == ["bfloat16", "float16"]
    assert [tensor.dtype for tensor in three] == ["", "", ""]


@pytest.mark.parametrize(("told", "mask_type", "causal"), [(True, 1, True), (False, 0, False)])
def test_a_flag_of_the_call_is_the_kernels(told: bool, mask_type: int, causal: bool) -> None:
    call = Marker(
        "torch.nn.functional", "scaled_dot_product_attention", [item("bool", value=told) | {"name": "is_causal"}]
    )
    found = with_flags((UNKNOWN, UNKNOWN), ["mask_type", "causal"], call)
    assert found == (mask_type, causal) and type(found[0]) is int and type(found[1]) is bool


def test_a_flag_whose_value_is_not_told_stays_unknown() -> None:
    call = Marker("torch.nn.functional", "scaled_dot_product_attention", [{"name": "is_causal", "type": "SymBool"}])
    assert with_flags((UNKNOWN, UNKNOWN), ["mask_type", "causal"], call) == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize(("training", "dropout"), [(True, 0.1), (False, 0.0)])
def test_attention_of_a_module_drops_nothing_out_unless_it_trains(training: bool, dropout: float) -> None:
    args = [
        {"name": "dropout_p", "type": "float", "value": 0.1},
        {"name": "training", "type": "bool", "value": training},
    ]
    call = Marker("torch.nn.functional", "multi_head_attention_forward", args)
    assert with_flags((UNKNOWN, UNKNOWN), ["dropout", "causal"], call) == (dropout, False)


def of_trace(op: str, *tensors: tuple[list[int], list[int]]) -> OpCall:
    """A call as Kineto records it, on float32 tensors of these (sizes, strides)."""
    sizes, strides = zip(*tensors, strict=True)
    types = json.dumps([F] * len(tensors))
    return OpCall(op, sizes=json.dumps(sizes), dtypes=types, strides=json.dumps(strides))


@pytest.mark.parametrize("op", ["aten::mm", "aten::_sparse_mm", "aten::linear"])
def test_a_sparse_tensor_of_a_trace_has_no_strides_and_does_not_count_as_dense(op: str) -> None:
    """Sizes and strides of ``torch.mm(csr, b)`` in a trace of torch 2.13."""
    dense = count_call(of_trace("aten::mm", ([6, 5], [5, 1]), ([5, 7], [7, 1])))
    assert (dense.flop, dense.nbytes) == (420, 428)  # 2 * 6 * 7 * 5; (30 + 35 + 42) * 4
    second = ([7, 5], [5, 1]) if op == "aten::linear" else ([5, 7], [7, 1])
    counted = count_call(of_trace(op, ([6, 5], []), second))
    assert (counted.flop, counted.nbytes) == (None, None)
    assert counted.why == "a sparse operand: the capture does not record how many elements it stores"


def test_a_packed_weight_of_onednn_has_no_strides_but_is_dense() -> None:
    counted = count_call(of_trace("mkldnn::_linear_pointwise", ([6, 5], [5, 1]), ([7, 5], [])))
    assert (counted.flop, counted.nbytes) == (420, 428)


def test_a_copy_of_a_sparse_tensor_computes_nothing_but_its_bytes_are_unknown() -> None:
    counted = count_call(of_trace("aten::copy_", ([6, 5], []), ([6, 5], [])))
    assert (counted.flop, counted.nbytes) == (0, None)


def test_a_marker_says_that_a_tensor_is_sparse() -> None:
    call = Marker("torch", "mm", [item("tensor", 6, 5, layout="sparse_csr"), item("tensor", 5, 7)], None)
    counted = count_call(OpCall(marker=json.dumps([format_marker(call)]), dir="fprop"))
    assert (counted.flop, counted.nbytes) == (None, None)
    assert counted.why == "a sparse operand: the capture does not record how many elements it stores"
