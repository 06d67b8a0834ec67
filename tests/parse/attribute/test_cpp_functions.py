"""The forward op of a C++ autograd Function's node, and the outputs' shapes that follow from backward nodes."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from pyprof.parse.attribute.cpp_functions import kinship, words
from pyprof.parse.attribute.forward_ops import _last_before
from pyprof.parse.attribute.outputs import _in_backward
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.kineto.reader import read
from pyprof.parse.nsys.reader import read as read_nsys
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL
from tests.parse.kineto.kineto_file import AUTOGRAD, begin, call, kernel, op, write, x
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, push
from tests.parse.nsys.nsys_file import call as launch
from tests.parse.nsys.nsys_file import kernel as gpu
from tests.parse.nsys.nsys_file import write as write_nsys

ENGINE = "autograd::engine::evaluate_function: "
LOOKUP = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"
NODE = "torch::autograd::CppNode<{}SplitLookupFunction_rowwise_adagrad_Op>"


def node(name, ts, seq, corr, dims, **more):
    """A backward node on autograd's thread, with a kernel."""
    told = {"Sequence_number": seq, "Fwd_thread_id": 1}
    return [
        op(ENGINE + name, ts, 20, tid=AUTOGRAD, **told),
        op(name, ts + 1, 18, tid=AUTOGRAD, Input_Dims=dims, Input_type=["float"] * len(dims), **told, **more),
        call(ts + 2, corr, tid=AUTOGRAD),
        kernel(ts + 500, 9, corr, "void work()"),
    ]


def lookup(ts, corr, size, **more):
    """A lookup without a sequence number, with a kernel and an op of its own."""
    return [
        op(LOOKUP, ts, 20, Input_Dims=[[size], []], Input_type=["float", "Scalar"], **more),
        op("aten::empty", ts + 1, 2),
        call(ts + 5, corr),
        kernel(ts + 500, 9, corr, "void look()"),
    ]


def found(tmp_path, *events):
    table = correlate(read(write(tmp_path / "t.json", begin(0), *events)))
    columns = [table.coded(key).texts() for key in ("op", "dir", "aten", "forward", "outs")]
    return dict(zip(table.ints("corr").tolist(), zip(*columns, strict=True), strict=True))


def test_words():
    assert words(NODE.format("(anonymous namespace)::")) == {"split", "lookup", "rowwise", "adagrad"}
    assert words(LOOKUP) == {"split", "embedding", "codegen", "lookup", "rowwise", "adagrad"}
    permute = "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu> >"
    assert words(permute) == {"permute", "pooled", "embs"}


@pytest.mark.parametrize(
    ("op_name", "share"),
    [
        (LOOKUP, 1.0),
        ("fbgemm::split_embedding_codegen_lookup_adagrad_function", 3 / 4),
        ("fbgemm::split_embedding_codegen_forward_unweighted_cuda", 0.0),  # 1 word of 4
        ("fbgemm::bounds_check_indices", 0.0),
        ("aten::split", 0.0),
        ("split_lookup_rowwise_adagrad", 0.0),  # a Function of Python, or a region
    ],
)
def test_kinship(op_name, share):
    assert kinship(NODE.format(""), op_name) == share


@pytest.mark.parametrize("space", ["", "(anonymous namespace)::"])  # the second has a blank in its name
def test_a_forward_op_without_a_number_ran_while_its_nodes_number_was_drawn(tmp_path, space):
    """The op before shows the number that the node gets, as do the ops of a check: they are not the node's."""
    rows = found(
        tmp_path,
        op("aten::view", 10, 2, Sequence_number=4, Fwd_thread_id=0),
        op("fbgemm::bounds_check_indices", 20, 10),
        op("aten::zero_", 22, 5, Sequence_number=4, Fwd_thread_id=0),
        *lookup(40, 1, 100),
        op("aten::view", 70, 2, Sequence_number=5, Fwd_thread_id=0),
        *lookup(80, 2, 200),
        op("aten::cat", 110, 5, Sequence_number=6, Fwd_thread_id=0),
        *node(NODE.format(space), 200, 5, 3, [[8, 20]]),
        *node(NODE.format(space), 230, 4, 4, [[8, 10]]),
    )
    name = NODE.format(space)
    called = [f'{{"aten": "{LOOKUP}", "sizes": [[{n}],[]], "dtypes": ["float32",""]}}' for n in (100, 200)]
    mine = '["split_embedding_codegen_lookup_rowwise_adagrad_function"]'
    assert rows[3] == (mine, "bprop", name, called[1], "")
    assert rows[4] == (mine, "bprop", name, called[0], "")
    # what the backward was given has the shape of what the forward returned
    assert (rows[1][2:], rows[2][2:]) == ((LOOKUP, "", "[[8,10]]"), (LOOKUP, "", "[[8,20]]"))


def test_lookups_without_an_op_between_them_belong_to_their_nodes_in_order(tmp_path):
    rows = found(
        tmp_path,
        op("aten::view", 10, 2, Sequence_number=4, Fwd_thread_id=0),
        *lookup(40, 1, 100),
        *lookup(80, 2, 200),
        op("aten::cat", 110, 5, Sequence_number=6, Fwd_thread_id=0),
        *node(NODE.format(""), 200, 5, 3, [[8, 20]]),
        *node(NODE.format(""), 230, 4, 4, [[8, 10]]),
    )
    sizes = [json.loads(rows[corr][3])["sizes"][0] for corr in (3, 4)]
    assert sizes == [[200], [100]]


def test_a_users_range_with_the_ops_name_is_no_op(tmp_path):
    rows = found(
        tmp_path,
        op("aten::view", 10, 2, Sequence_number=4, Fwd_thread_id=0),
        x("user_annotation", LOOKUP, 38, 30),
        *lookup(40, 1, 100),
        op("aten::cat", 110, 5, Sequence_number=5, Fwd_thread_id=0),
        *node(NODE.format(""), 200, 4, 3, [[8, 20]]),
    )
    assert json.loads(rows[3][3])["sizes"] == [[100], []]


def test_two_lookups_for_one_node_are_none(tmp_path):
    """One of them needed no gradient, and nothing in the capture says which."""
    rows = found(
        tmp_path,
        op("aten::view", 10, 2, Sequence_number=4, Fwd_thread_id=0),
        *lookup(40, 1, 100),
        *lookup(80, 2, 200),
        op("aten::cat", 110, 5, Sequence_number=5, Fwd_thread_id=0),
        *node(NODE.format(""), 200, 4, 3, [[8, 20]]),
    )
    assert (rows[3][1], rows[3][3], rows[1][4], rows[2][4]) == ("bprop", "", "", "")


def test_a_numbered_forward_op_is_found_around_the_ops_that_it_called(tmp_path):
    """Since FBGEMM 0.6: the op is registered with autograd; what it calls before it makes the node has its number."""
    number = {"Sequence_number": 4, "Fwd_thread_id": 0}
    rows = found(
        tmp_path,
        op("aten::view", 10, 2, Sequence_number=4, Fwd_thread_id=0),
        op(LOOKUP + "_pt2", 40, 40, Input_Dims=[[7]], Input_type=["float"], **number),
        op("aten::to", 42, 5, **number),
        op("fbgemm::split_embedding_codegen_forward_unweighted_cuda", 55, 20, Input_Dims=[[7]], Input_type=["float"]),
        call(60, 1),
        kernel(560, 9, 1, "void look()"),
        op("aten::cat", 110, 5, Sequence_number=5, Fwd_thread_id=0),
        *node(NODE.format("").replace("_Op", "_Op_pt2"), 200, 4, 3, [[8, 20]]),
    )
    assert json.loads(rows[3][3]) == {"aten": LOOKUP + "_pt2", "sizes": [[7]], "dtypes": ["float32"]}


def test_a_function_without_kin_has_the_op_of_its_number(tmp_path):
    rows = found(
        tmp_path,
        op("mylib::scaled", 10, 20, Sequence_number=4, Fwd_thread_id=0, Input_Dims=[[3]], Input_type=["float"]),
        *node("torch::autograd::CppNode<Mine>", 200, 4, 3, [[3]]),
    )
    assert rows[3][:3] == ('["scaled"]', "bprop", "torch::autograd::CppNode<Mine>")


def test_nvtx_ranges_of_functions(tmp_path):
    """autograd's own range has no number there, its inner one has; an op below autograd has none."""
    found_ = correlate(
        read_nsys(
            write_nsys(
                tmp_path / "net.sqlite",
                **{
                    KERNEL: [gpu(1000, 1), gpu(1010, 2)],
                    API: [launch(45, 1), launch(205, 2, tid=2)],
                    NVTX: [
                        push(10, 12, "aten::view, seq = 4, op_id = 1, sizes = [[7]]"),
                        push(40, 60, f"{LOOKUP}, op_id = 2, sizes = [[100], []]"),
                        push(70, 72, "aten::view, seq = 5, op_id = 3, sizes = [[7]]"),
                        push(200, 220, ENGINE + NODE.format("") + ", op_id = 4", tid=2),
                        push(201, 219, NODE.format("") + ", seq = 4, op_id = 5, sizes = [[8, 10]]", tid=2),
                    ],
                },
            )
        )
    )
    assert found_.coded("dir").texts() == ["fprop", "bprop"]
    assert found_.coded("outs").texts() == ["[[8, 10]]", ""]
    assert json.loads(found_.coded("forward").texts()[1]) == {"aten": LOOKUP, "sizes": [[100], []]}


CUT = {"Input_Dims": [[], []], "Input_type": ["TensorList", "Scalar"]}


def joined(name, ts, corr, **more):
    return [op(name, ts, 20, **CUT, **more), call(ts + 5, corr), kernel(ts + 500, 9, corr, "void cat()")]


def test_a_cut_list_has_the_size_of_its_gradient(tmp_path):
    rows = found(
        tmp_path,
        *joined("aten::cat", 10, 1, Sequence_number=4, Fwd_thread_id=0),
        *joined("aten::cat", 40, 2, Sequence_number=5, Fwd_thread_id=0),  # its number went to another op's node
        op("aten::t", 70, 5, Sequence_number=5, Fwd_thread_id=0),
        op("TBackward0", 200, 9, tid=AUTOGRAD, Sequence_number=5, Input_Dims=[[6, 2]], Input_type=["float"]),
        op("CatBackward0", 220, 9, tid=AUTOGRAD, Sequence_number=4, Input_Dims=[[8, 20]], Input_type=["float"]),
    )
    assert (rows[1][4], rows[2][4]) == ("[[8,20]]", "")


@pytest.mark.parametrize("name", ["index", "_unsafe_index"])
def test_what_indices_choose_has_the_size_of_its_gradient(tmp_path, name):
    known = {"Input_Dims": [[50, 7], []], "Input_type": ["float", ""]}
    rows = found(
        tmp_path,
        op(f"aten::{name}", 10, 20, Sequence_number=4, Fwd_thread_id=0, **known),
        call(15, 1),
        kernel(510, 9, 1, "void vectorized_gather_kernel()"),
        op("aten::add", 40, 20, Sequence_number=5, Fwd_thread_id=0, **known),
        call(45, 2),
        kernel(540, 9, 2, "void add()"),
        op("AddBackward0", 200, 9, tid=AUTOGRAD, Sequence_number=5, Input_Dims=[[50, 7]], Input_type=["float"]),
        op(
            f"{name.title().replace('_', '')}Backward0",
            220,
            9,
            tid=AUTOGRAD,
            Sequence_number=4,
            Input_Dims=[[90, 7]],
            Input_type=["float"],
        ),
    )
    assert (rows[1][4], rows[2][4]) == ("[[90,7]]", "")  # the other's arguments tell all


def test_the_backward_of_a_split_puts_together_what_was_split(tmp_path):
    inside = {"tid": AUTOGRAD}
    rows = found(
        tmp_path,
        op("aten::split_with_sizes", 10, 20, Sequence_number=4, Input_Dims=[[8, 20], [], []],
           Input_type=["float", "", "Scalar"]),
        op(ENGINE + "SplitWithSizesBackward0", 200, 40, tid=AUTOGRAD, Sequence_number=4, Fwd_thread_id=1),
        op("SplitWithSizesBackward0", 201, 38, tid=AUTOGRAD, Sequence_number=4, Fwd_thread_id=1,
           Input_Dims=[[8, 5], [8, 15]], Input_type=["float", "float"]),
        op("aten::cat", 205, 20, **CUT, **inside), call(210, 1, **inside), kernel(710, 9, 1, "void cat()"),
    )  # fmt: skip
    assert rows[1][4] == "[[8, 20]]"


@pytest.mark.parametrize(("later", "outs"), [(False, "[[8,20]]"), (True, "")])
def test_what_a_function_of_python_ran_last_it_returned(tmp_path, later, outs):
    rows = found(
        tmp_path,
        op("All2All_Pooled_Wait", 10, 60, Sequence_number=4, Input_Dims=[[160]], Input_type=["float"]),
        *joined("aten::cat", 20, 1),
        *([op("aten::mul", 50, 5)] if later else []),
        op("All2All_Pooled_WaitBackward", 220, 9, tid=AUTOGRAD, Sequence_number=4, Input_Dims=[[8, 20]],
           Input_type=["float"]),
    )  # fmt: skip
    assert rows[1][4] == outs


def test_the_last_op_of_a_number_is_one_of_the_same_owner():
    """Thread 1 has ops of number 5 at 10 and 30, thread 2 none. The fourth node has no number."""
    tree = SimpleNamespace(seq=np.array([5, 5]), start=np.array([10, 30]))
    owner, seq, before = (np.array(each) for each in ([1, 1, 2, 1], [5, 5, 5, NULL], [20, 40, 40, 40]))
    assert _last_before(tree, np.array([0, 1]), np.array([1, 1]), owner, seq, before).tolist() == [0, 1, -1, -1]


def test_what_the_engine_does_after_a_node_says_nothing_of_the_nodes_shapes(tmp_path):
    """The range around the node has a sum of another shape, too; the lookup's result has that of the node's input."""
    after = op("aten::add", 219, 1, tid=AUTOGRAD, Input_Dims=[[3, 3], [3, 3]], Input_type=["float", "float"])
    rows = found(
        tmp_path,
        op("aten::view", 10, 2, Sequence_number=4, Fwd_thread_id=0),
        *lookup(40, 1, 100),
        op("aten::cat", 110, 5, Sequence_number=5, Fwd_thread_id=0),
        *node(NODE.format(""), 200, 4, 3, [[8, 20]]),
        after,
    )
    assert rows[1][4] == "[[8,20]]"


@pytest.mark.parametrize(
    ("sizes", "name", "expected"),
    [
        ("[[2,3,8,8],[4,3,5,5]]", "aten::cudnn_convolution_backward_input", [[2, 3, 8, 8]]),
        ("[[2,3,8,8],[4,3,5,5]]", "aten::cudnn_convolution_backward_weight", [[4, 3, 5, 5]]),
        ("[[2,3,8,8]]", "aten::cudnn_convolution_backward_weight", None),
    ],
)
def test_the_gradients_of_a_convolution_have_the_sizes_of_its_input_and_weight(sizes, name, expected):
    scopes = [Scope(Kind.OP, "aten::conv2d", sizes), Scope(Kind.OP, name)]
    tree = SimpleNamespace(scopes=scopes, scope=np.arange(2), name=lambda place: scopes[place].name)
    found = _in_backward(tree, 1, 0)
    assert (json.loads(found) if expected else found) == (expected or "")


@pytest.mark.parametrize(
    ("aten", "function"),
    [
        ("cross_entropy_loss", "cross_entropy"),
        ("nll_loss_nd", "nll_loss"),
        ("_embedding_bag", "embedding_bag"),
        ("native_layer_norm", "layer_norm"),
        ("native_group_norm", "group_norm"),
        ("native_batch_norm", "batch_norm"),
        ("native_dropout", "dropout"),
        ("_log_softmax", "log_softmax"),
        ("_softmax", "softmax"),
        ("convolution", "conv"),
        ("_convolution", "conv"),
        ("_to_copy", "to"),
        ("relu", "relu"),
    ],
)
def test_an_op_has_the_name_of_the_function_that_the_user_called(tmp_path, aten, function):
    """As in torch.nn.functional and on tensors; the ops of libraries other than PyTorch keep theirs."""
    events = [op(f"{lib}::{aten}", ts, 10) for lib, ts in (("aten", 10), ("mylib", 30))]
    calls = [call(12, 1), kernel(50, 5, 1), call(32, 2), kernel(60, 5, 2)]
    table = correlate(read(write(tmp_path / "net.json", begin(0), *events, *calls)))
    assert table.coded("op").texts() == [f'["{function}"]', f'["{aten}"]']
