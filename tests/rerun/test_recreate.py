"""Which recorded calls are made again, with which arguments, and which are refused: a capture may hold anything."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pyprof.marker import parse_marker  # noqa: E402
from pyprof.prof.load import load_table  # noqa: E402
from pyprof.prof.ops.model import UNKNOWN, Tensor  # noqa: E402
from pyprof.rerun.aten_ops import aten_overload  # noqa: E402
from pyprof.rerun.new_inputs import NotRecreated  # noqa: E402
from pyprof.rerun.recorded_calls import RecordedCall, recorded_calls  # noqa: E402
from pyprof.rerun.recreate import recreate  # noqa: E402
from pyprof.rerun.valid_values import api_bounds, index_bounds, is_index, is_positive  # noqa: E402
from pyprof.table.columns import NULL, Coded, Table, blank  # noqa: E402
from pyprof.table.schema import KERNELS  # noqa: E402
from tests.paths import GOLDEN  # noqa: E402

pytestmark = pytest.mark.torch
CPU, GIB = torch.device("cpu"), 1 << 30


def call(op, *arguments, direction="fprop", markers=(), flop=None):
    return RecordedCall(op, direction, arguments, tuple(markers), 1, 1000, ("k",), flop, False)


def marked(mod, op, *args, autocast=None, direction="fprop"):
    text = {"v": 1, "mod": mod, "op": op, "args": list(args)} | ({"autocast": autocast} if autocast else {})
    marker = parse_marker(json.dumps(text, separators=(",", ":")))
    return RecordedCall(f"{mod}.{op}", direction, (), (marker,), 1, 1000, ("k",), None, False, is_api=True)


def t(*shape, dtype="float32", strides=None):
    return Tensor(shape, dtype, strides)


def tensor(name, *shape, dtype="float32", **more):
    return {"name": name, "type": "tensor", "shape": list(shape), "dtype": dtype, **more}


# aten ops

OVERLOADS = [
    ("aten::add", (t(4), t(4), 1), "aten.add.Tensor"),
    ("aten::add", (t(4), 2.5, 1), "aten.add.Scalar"),
    ("aten::sum", (t(4, 5), [0], True, None), "aten.sum.dim_IntList"),
    ("aten::sum", (t(4, 5), [], False, 6, t(dtype="float32")), "aten.sum.IntList_out"),
    ("aten::mm", (t(4, 5), t(5, 6)), "aten.mm.default"),
    ("aten::cat", ((t(4), t(5)), 0), "aten.cat.default"),
    ("aten::div", (t(4), t(4)), "aten.div.Tensor"),
    ("aten::pow", (t(4), 2.0), "aten.pow.Tensor_Scalar"),
    ("aten::_cudnn_attention_backward",  # its attn_bias is an undefined tensor
     (*(t(1, 2, 8, 8, dtype="bfloat16") for _ in range(5)), t(1, 2, 8, 1), t(dtype="int64"), t(dtype="int64"),
      None, None, None, 8, 8, 0.0, True, 0.35), "aten._cudnn_attention_backward.default"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "arguments", "overload"), OVERLOADS)
def test_the_overload_that_takes_the_recorded_arguments(op, arguments, overload):
    assert str(aten_overload(op, arguments)) == overload


def test_arguments_have_the_recorded_form():
    made = recreate(call("aten::addmm", t(6), t(4, 5), t(5, 6, strides=(1, 5)), 1, 0.5), CPU, GIB)
    bias, a, b = made.args
    assert [(x.shape, x.stride(), x.dtype) for x in (bias, a, b)] == [
        ((6,), (1,), torch.float32),
        ((4, 5), (5, 1), torch.float32),
        ((5, 6), (1, 5), torch.float32),
    ]
    assert made.kwargs == {"beta": 1, "alpha": 0.5}
    assert made.nbytes == 4 * (6 + 20 + 30 + 24)  # and the result's
    assert made.function(*made.args, **made.kwargs).shape == (4, 6)


def test_a_number_of_the_program_is_on_the_host():
    """The dispatcher shows 2.0 in x * 2.0 as a tensor without dimensions, which a GPU would have to read."""
    made = recreate(call("aten::mul", t(4, 5), t(dtype="float64")), CPU, GIB)
    assert made.args[1].shape == () and made.args[1].dtype == torch.float64
    assert made.function(*made.args).dtype == torch.float32  # as of a number: not promoted


def test_a_text_is_taken_from_the_user_s_call_or_unknown():
    gelu = marked("torch.nn.functional", "gelu", {"name": "approximate", "type": "str", "value": "tanh"})
    assert recreate(call("aten::gelu", t(4), None, markers=gelu.markers), CPU, GIB).kwargs == {"approximate": "tanh"}
    with pytest.raises(NotRecreated, match="approximate is not recorded"):
        recreate(call("aten::gelu", t(4), None), CPU, GIB)


REFUSED = [
    (
        call("aten::from_file", "/etc/passwd", False, 10),
        "aten::from_file is no op of this torch that pyprof has a model of",
    ),
    (call("aten::__import__", 1), "is no op of this torch"),
    (call("aten::mm.__class__", t(4, 5), t(5, 6)), ""),  # an overload's name is not looked at: this is mm
    (call("aten::_local_scalar_dense.x", "ls"), "no overload|is no op"),
    (call("mylib::fused", t(4)), "mylib::fused is no op of torch's own"),
    (call("nccl:all_reduce", t(4)), "a collective: it needs the other ranks"),
    (call("triton_poi_fused_add_0", t(4)), "a kernel that torch.compile generated"),
    (call("aten::mm", t(4, 5)), "no overload of aten::mm in this torch takes the recorded arguments"),
    (call("aten::relu", t(1 << 40)), "it needs 4.1e\\+03 GiB of memory, and 1 GiB are available"),
    (call("aten::relu", t(1 << 62, 1 << 62, 1 << 62)), "it needs 1e\\+09 GiB of memory"),
    (call("aten::relu", t(4, strides=(1 << 40,))), "it needs 1.23e\\+04 GiB"),
    (call("aten::relu", t(-4)), "no tensor has shape \\[-4\\]"),
    (call("aten::relu", t(4, strides=(-1,))), "no tensor has shape"),
    (call("aten::relu", t(*[1] * 26)), "no tensor has shape"),
    (call("aten::relu", Tensor((4, 4), "float32", nonzero=UNKNOWN)), "the places of a sparse tensor's elements"),
    (call("aten::relu", t(4, dtype="")), "the dtype of a tensor is unknown"),
    (call("aten::relu", t(4, dtype="load")), "the dtype load is unknown"),
    (call("aten::repeat", t(4), [1 << 40]), "it needs"),
    (call("aten::mm", t(4, 5), t(5, 6), flop=10**13), "it takes 1e\\+13 FLOPs"),
    (call("aten::remainder", -1, 0), "no overload of aten::remainder"),  # of numbers: it would end the process
    (call("aten::mul_", [1, 2], 1 << 62), "no overload of aten::mul_"),  # of a list: it would never end
    (call("aten::clone", t(4), 1 << 40), "memory_format=1099511627776 is not understood"),
    (call("aten::sum", t(4), -5), "dtype=-5 is not understood"),
    (
        call("aten::_slow_conv2d_backward", *(t(2, 2, 2, 2) for _ in range(3)), [9, 9], [1, 1], [0, 0], [True] * 3),
        "cannot check its shapes",
    ),
    (call("aten::mm", t(4, 5), t(6, 7)), "a and b must have same reduction dim"),
    (call("aten::index", t(4, 6), UNKNOWN), "indices is not recorded"),
    (call("aten::_embedding_bag", t(50, 8), t(6, dtype="int64"), t(2, dtype="int64")), "what the indices .* point at"),
    (call("aten::sum", t(4), "x"), "no overload|not understood"),
]


@pytest.mark.parametrize(("refused", "reason"), REFUSED, ids=lambda value: getattr(value, "op", None))
def test_what_is_refused_and_why(refused, reason):
    if refused.op == "aten::mm.__class__":
        assert recreate(refused, CPU, GIB).function is torch.ops.aten.mm.default
        return
    with pytest.raises(NotRecreated, match=reason):
        recreate(refused, CPU, GIB)


# the user's calls


def test_a_user_s_call_with_its_options():
    made = recreate(
        marked(
            "torch.nn.functional",
            "gelu",
            tensor("input", 4, 6, stride=[1, 4]),
            {"name": "approximate", "type": "str", "value": "tanh"},
        ),
        CPU,
        GIB,
    )
    assert made.function is torch.nn.functional.gelu
    assert made.args[0].stride() == (1, 4) and made.kwargs == {"approximate": "tanh"}


def test_a_call_under_autocast_runs_under_autocast():
    linear = ("torch.nn.functional", "linear", tensor("input", 4, 8), tensor("weight", 6, 8))
    made = recreate(marked(*linear, autocast="bfloat16"), CPU, GIB)
    assert made.function(*made.args, **made.kwargs).dtype == torch.bfloat16


def test_a_backward_is_that_of_the_forward_call():
    made = recreate(marked("torch", "relu", tensor("input", 4, 8), direction="bprop"), CPU, GIB)
    assert made.backward and made.args[0].requires_grad


def test_indices_of_an_embedding_are_rows_of_its_table():
    made = recreate(
        marked("torch.nn.functional", "embedding", tensor("input", 500, dtype="int64"), tensor("weight", 3, 8)),
        CPU,
        GIB,
    )
    indices = made.args[0]
    assert sorted(indices.unique().tolist()) == [0, 1, 2]


API_REFUSED = [
    (("torch", "load", {"name": "f", "type": "str", "value": "x"}), "is no function of torch that pyprof"),
    (("torch", "save", tensor("", 4), {"name": "f", "type": "str", "value": "x"}), "is no function of torch"),
    (("torch.utils.cpp_extension", "load"), "is no function of torch"),
    (("torch.nn.functional", "__builtins__"), "is no function of torch"),
    (("torch", "hub.load"), "is no function of torch"),
    (("os", "system", {"name": "command", "type": "str", "value": "ls"}), "is no function of torch"),
    (("builtins", "exec", {"name": "", "type": "str", "value": "1"}), "is no function of torch"),
    (("torch", "relu", tensor("input", 4, layout="sparse_coo")), "input is a sparse_coo tensor"),
    (("torch", "relu", {"name": "input", "type": "MyClass"}), r"input \(MyClass\) is not recorded"),
    (("torch", "cat", {"name": "tensors", "type": "list", "len": 99, "items": [tensor("", 4)]}), "was too long"),
]


@pytest.mark.parametrize(("words", "reason"), API_REFUSED, ids=lambda value: value[1] if type(value) is tuple else "")
def test_which_functions_are_refused(words, reason):
    with pytest.raises(NotRecreated, match=reason):
        recreate(marked(*words), CPU, GIB)


# values

BOUNDS = [
    ("embedding", (t(50, 8), t(4, dtype="int64")), {1: 50}),
    ("embedding_dense_backward", (t(4, 8), t(4, dtype="int64"), 50, -1, False), {1: 50}),
    ("gather", (t(4, 6, 16), 1, t(4, 3, 16, dtype="int64"), False), {2: 6}),
    ("scatter_add_", (t(4, 6), -1, t(4, 6, dtype="int64"), t(4, 6)), {2: 6}),
    ("index_select", (t(50, 16), 0, t(24, dtype="int64")), {2: 50}),
    ("nll_loss_forward", (t(24, 7), t(24, dtype="int64"), None, 1, -100), {1: 7}),
    ("nll_loss_forward", (t(7), t(dtype="int64"), None, 1, -100), {1: 7}),
    ("nll_loss_backward", (t(), t(24, 7), t(24, dtype="int64")), {2: 7}),
    ("max_pool2d_with_indices_backward", (t(2, 8, 4, 4), t(2, 8, 9, 8), [2, 2], [], [0, 0], [1, 1], False, t(1)),
     {7: 72}),
    ("gather", (t(4, 6), UNKNOWN, t(4, 3, dtype="int64")), {}),
    ("gather", (t(0, 6), 0, t(0, 3, dtype="int64")), {}),
    ("mm", (t(4, 5), t(5, 6)), {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "arguments", "bounds"), BOUNDS)
def test_what_indices_must_stay_below(op, arguments, bounds):
    assert index_bounds(op, arguments) == bounds


def test_the_api_takes_an_embedding_s_indices_first():
    assert api_bounds("embedding", (t(4, dtype="int64"), t(50, 8))) == {0: 50}
    assert api_bounds("cross_entropy", (t(24, 7), t(24, dtype="int64"))) == {1: 7}


def test_names_of_arguments_that_only_some_values_suit():
    assert all(map(is_index, "index indices offsets target cu_seqlens cum_seq_q batch_sizes".split()))
    assert not any(map(is_index, "self other input weight mask".split()))
    assert all(map(is_positive, "exp_avg_sqs max_exp_avg_sqs state_steps running_var save_invstd rstd var".split()))
    assert not any(map(is_positive, "exp_avgs self variable vary".split()))


# rows of a table


def table_of(*rows):
    columns = {column.key: blank(column.kind, len(rows)) for column in KERNELS}
    for key in {key for each in rows for key in each}:
        values = [each.get(key, "") for each in rows]
        columns[key] = Coded.of(values) if isinstance(values[0], str) else np.array(values, np.int64)
    return Table(len(rows), columns)


def row(op, nodes, call, ns, **more):
    return {"kShortName": f"k_{op}", "kDuration": ns, "aten": f"aten::{op}", "nodes": json.dumps(nodes), "opId": call,
            "pid": 1, "tid": 1, "apiStart": call * 10, "sizes": "[[8]]", "dtypes": '["float32"]', "strides": "[[1]]",
            "args": '[""]', "dir": "bprop", **more}  # fmt: skip


def test_the_fill_inside_an_op_is_its_own_time():
    """embedding_dense_backward fills its result with zeros, by an op of its own; the fill after it stands alone."""
    node = "EmbeddingBackward0"
    op = [node, "aten::embedding_dense_backward"]
    sizes = {"sizes": "[[4,8],[4],[],[],[]]", "dtypes": '["float32","int64","","",""]',
             "strides": "[[8,1],[1],[],[],[]]", "args": '["","","50","-1","False"]'}  # fmt: skip
    table = table_of(
        row("fill_", [*op, "aten::zero_", "aten::fill_"], 1, 300),
        row("embedding_dense_backward", op, 2, 1000, **sizes),
        row("fill_", [*op, "aten::zero_", "aten::fill_"], 3, 320),
        row("embedding_dense_backward", op, 4, 1100, **sizes),
        row("fill_", ["aten::zero_", "aten::fill_"], 5, 50),
    )
    found = {call.op: (call.calls, call.ns) for call in recorded_calls(table)}
    assert found == {"aten::embedding_dense_backward": (2, 300 + 1000 + 320 + 1100), "aten::fill_": (1, 50)}


def test_rows_without_an_op_are_told(tmp_path):
    table = table_of({"kShortName": "mystery", "kDuration": 70, "opId": NULL})
    (found,) = recorded_calls(table)
    assert (found.op, found.calls, found.ns, found.why) == ("mystery", 1, 70, "no op is known")
    with pytest.raises(NotRecreated, match="no op is known"):
        recreate(found, CPU, GIB)


def test_a_step_of_gpt2_that_nsys_recorded():
    """Its ranges have no dtypes, so the user's calls are made again. By hand: 2 layers, each with 4 products."""
    table = load_table(GOLDEN / "h200_gpt2_init.sqlite.gz").table
    calls = recorded_calls(table)
    assert sum(each.ns for each in calls) == int(table.ints("kDuration").sum())
    linear = {(each.direction, each.markers[-1].args[1]["shape"][0]): each.calls
              for each in calls if each.op == "torch.nn.functional.linear"}  # fmt: skip
    # by the weight's rows: qkv, out and down (768 both), up, and the head once
    assert {key: n for key, n in linear.items() if key[0] == "fprop"} == {
        ("fprop", 2304): 2, ("fprop", 768): 2, ("fprop", 3072): 2, ("fprop", 50257): 1,
    }  # fmt: skip
