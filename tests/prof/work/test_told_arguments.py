"""What an op's surroundings tell of it: the user's call, the op around it, the collective's name."""

import json

import pyprof.prof.ops.families  # noqa: F401  (count_call looks models up among those that are registered)
from pyprof.prof.work.count import OpCall, count_call

SIZES = json.dumps([[2, 4, 128, 64]] * 3 + [[]] * 7)
CALL = {
    "v": 1,
    "mod": "torch.nn.functional",
    "op": "scaled_dot_product_attention",
    "args": [
        *(
            {"name": n, "type": "tensor", "shape": [2, 4, 128, 64], "dtype": "bfloat16"}
            for n in ("query", "key", "value")
        ),
        {"name": "is_causal", "type": "bool", "value": True},
    ],
}


IMAGE_AND_WEIGHT = (("input", [1, 3, 8, 8]), ("weight", [4, 3, 3, 3]))


def counted(**told):
    return count_call(OpCall(**told))


def user_call(op, *args):
    marker = {"v": 1, "mod": "torch.nn.functional", "op": op, "args": args}
    return counted(marker=json.dumps([json.dumps(marker, separators=(",", ":"))]), dir="fprop")


def test_an_argument_that_the_call_names_is_no_other_one():
    """As recorded of conv2d(x, w, stride=2), which has no bias: 3 × 3 results of 4 channels, 2 * 27 FLOP each."""
    x, w = ({"name": n, "type": "tensor", "shape": s, "dtype": "float32"} for n, s in IMAGE_AND_WEIGHT)
    stride, bias = {"name": "stride", "type": "int", "value": 2}, {"name": "bias", "type": "NoneType", "value": None}
    for found in (user_call("conv2d", x, w, stride), user_call("conv2d", x, w, bias, stride)):
        assert (found.flop, found.nbytes) == (9 * 4 * 2 * 27, 4 * (192 + 108 + 36))
    assert user_call("conv2d", x, w).flop == 36 * 4 * 2 * 27
    padded = user_call("conv2d", x, w, stride, {"name": "padding", "type": "int", "value": 1})
    assert padded.flop == 16 * 4 * 2 * 27
    depthwise = {**w, "shape": [3, 1, 3, 3]}
    groups = user_call("conv2d", x, depthwise, {"name": "groups", "type": "int", "value": 3})
    assert groups.flop == 36 * 3 * 2 * 9


def test_a_collective_without_sizes_computes_nothing_but_moves_an_unknown_number_of_bytes():
    ranks = json.dumps([{"op": "all_reduce", "ranks": 2}])
    found = counted(aten="c10d::allreduce_", comm=ranks)
    assert (found.name, found.family) == ("c10d::allreduce_", "collective")
    assert (found.flop, found.nbytes) == (0, None) and "how many ranks" in found.why


def test_an_op_that_only_compares_computes_nothing_whatever_its_shapes():
    # relu and its gradient take no complex numbers; abs of a complex number is a root
    for name, flop in (("relu", 0), ("threshold_backward", 0), ("clamp_", 0), ("eq", 0), ("abs", None), ("add", None)):
        assert counted(aten=f"aten::{name}", dir="fprop").flop == flop, name


def test_the_users_call_tells_whether_attention_is_causal():
    # NVTX: shapes alone. 2 * 4 heads, 128 * 129 / 2 = 8,256 pairs, 2 products of 2 * 64 FLOP a pair
    marker = json.dumps([json.dumps(CALL, separators=(",", ":"))])
    aten = "aten::_scaled_dot_product_flash_attention"
    assert counted(aten=aten, sizes=SIZES, marker=marker, dir="fprop").flop == 8 * 8256 * 2 * 128
    assert counted(aten=aten, sizes=SIZES, dir="fprop").flop is None
    # without the op, the call alone; of the backward pass and of no call nothing is known
    assert counted(marker=marker, dir="fprop").flop == 8 * 8256 * 2 * 128
    assert counted(marker=marker, dir="bprop").why == counted(dir="fprop").why == "no op"
    whole = json.dumps(
        [json.dumps({**CALL, "args": CALL["args"][:3]}, separators=(",", ":"))]
    )  # the default: not causal
    assert counted(aten=aten, sizes=SIZES, marker=whole, dir="fprop").flop == 8 * 128 * 128 * 2 * 128


def test_a_convolutions_bias_gradient_is_a_sum_over_all_but_channels():
    # 32 * 16 * 10 * 10 elements to 16: E - O additions
    nodes = json.dumps(["ConvolutionBackward0", "aten::convolution_backward", "aten::sum"])
    sum_ = counted(aten="aten::sum", sizes="[[32, 16, 10, 10], [], [], []]", nodes=nodes)
    assert sum_.flop == 32 * 16 * 100 - 16
    assert counted(aten="aten::sum", sizes="[[32, 16, 10, 10], [], [], []]").flop is None


def test_a_loss_gradients_zeros_are_another_kernels():
    # 4 targets of 10 classes, float32: reads grad_output 4, target 4 * 8, total_weight 4; writes 4 of the 40 elements
    told = {"sizes": "[[],[4,10],[4],[],[],[],[]]", "dtypes": '["float32","float32","int64","","","","float32"]'}
    loss = counted(aten="aten::nll_loss_backward", args='["","","","","1","-100",""]', dir="bprop", **told)
    assert loss.nbytes == 4 + 4 * 8 + 4 + 4 * 4


def test_a_table_gradients_zeros_are_another_kernels():
    # 6 indices into 100 rows of 8 float32: reads 6 rows and 6 indices of 8 bytes, writes 6 rows
    told = {
        "sizes": "[[6,8],[6],[],[],[]]",
        "dtypes": '["float32","int64","","",""]',
        "args": '["","","100","-1","False"]',
    }
    table = counted(aten="aten::embedding_dense_backward", dir="bprop", **told)
    assert table.nbytes == 6 * 8 * 4 + 6 * 8 + 6 * 8 * 4


def test_a_pooling_gradients_zeros_are_another_kernels():
    # 2 x 2 pooling of 1 x 1 x 4 x 4 float32: reads 4 gradients and 4 positions of 8 bytes, writes 4 elements of 16
    told = {"sizes": "[[1,1,1,2,2],[1,1,1,4,4],[],[],[],[],[],[1,1,1,2,2]]"}
    types = '["float32","float32","","","","","","int64"]'
    pool = counted(aten="aten::max_pool3d_with_indices_backward", dtypes=types, dir="bprop", **told)
    assert pool.nbytes == 4 * 4 + 4 * 8 + 4 * 4


def test_max_pool2d_writes_its_whole_gradient() -> None:
    # the same pooling in 2 dimensions: its kernel writes all 16 elements, whatever filled them before
    told = {"sizes": "[[1,1,2,2],[1,1,4,4],[],[],[],[],[],[1,1,2,2]]"}
    types = '["float32","float32","","","","","","int64"]'
    pool = counted(aten="aten::max_pool2d_with_indices_backward", dtypes=types, dir="bprop", **told)
    assert pool.nbytes == 4 * 4 + 4 * 8 + 16 * 4


def call(op, *tensors, **values):
    """A marker of a call on float32 tensors."""
    args = [{"name": "", "type": "tensor", "shape": shape, "dtype": "float32"} for shape in tensors]
    args += [{"name": name, "type": "int", "value": value} for name, value in values.items()]
    return json.dumps([json.dumps({"v": 1, "mod": "torch", "op": op, "args": args}, separators=(",", ":"))])


def test_a_products_gradients_without_shapes_of_their_own():
    # linear [8,4] x [2,4] + [2]: each gradient multiplies 8, 4 and 2 once and touches 8*4, 2*4 and 8*2 elements once
    marker = call("linear", [8, 4], [2, 4], [2])
    for aten in ("mm", "aten::mm"):  # PyTorch 1.x wrote no aten::
        gradient = counted(aten=aten, marker=marker, dir="bprop")
        assert (gradient.flop, gradient.nbytes) == (2 * 8 * 4 * 2, (32 + 8 + 16) * 4)
    assert counted(aten="aten::mm", marker=call("relu", [8, 4]), dir="bprop").flop is None
    batched = counted(aten="bmm", marker=call("baddbmm", [3, 8, 2], [3, 8, 4], [3, 4, 2]), dir="bprop")
    assert batched.flop == 3 * 2 * 8 * 4 * 2


def test_an_activations_gradient_without_shapes_of_its_own():
    # log_softmax of 64 x 1000: exp, mul, sub and a sum to 64 rows (ops.csv); reads two tensors, writes one
    soft = counted(aten="_log_softmax_backward_data", marker=call("log_softmax", [64, 1000], dim=1), dir="bprop")
    assert (soft.flop, soft.nbytes) == (4 * 64_000 - 64, 3 * 256_000)
    relu = counted(aten="threshold_backward", marker=call("relu", [64, 1000]), dir="bprop")
    assert (relu.flop, relu.nbytes) == (0, 3 * 256_000)


def test_a_norms_gradient_without_shapes_of_its_own():
    # E = 8 * 16, R = 8, D = 16: dx 10E with a weight, parameters 3E - 2D; reads dy, x, weight and 2R, writes dx and 2D
    args = [
        {"name": name, "type": "tensor", "shape": shape, "dtype": "float32"}
        for name, shape in (("input", [8, 16]), ("weight", [16]), ("bias", [16]))
    ]
    args.insert(1, {"name": "normalized_shape", "type": "tuple", "items": [{"type": "int", "value": 16}]})
    text = json.dumps({"v": 1, "mod": "torch.nn.functional", "op": "layer_norm", "args": args}, separators=(",", ":"))
    norm = counted(aten="native_layer_norm_backward", marker=json.dumps([text]), dir="bprop")
    assert (norm.flop, norm.nbytes) == (13 * 128 - 32, (128 + 128 + 16 + 16 + 128 + 32) * 4)


def test_an_operators_method_is_its_function():
    # x += y of 8 x 4: an addition each; both read, one written
    added = counted(aten="add_", marker=call("__iadd__", [8, 4], [8, 4]), dir="fprop")
    assert (added.flop, added.nbytes) == (32, 3 * 128)


LOGITS = {"name": "input", "type": "tensor", "shape": [4, 6], "dtype": "float32"}
CLASSES = {"name": "target", "type": "tensor", "shape": [4], "dtype": "int64"}
SCORES = {**LOGITS, "name": "target"}
CLASS_WEIGHTS = {"name": "weight", "type": "tensor", "shape": [6], "dtype": "float32"}


def plain(name, value):
    return {"name": name, "type": type(value).__name__, "value": value}


def legacy(size_average=None, reduce=None, between=()):
    """size_average and reduce, which PyTorch still takes before reduction, as a positional call records them."""
    return plain("size_average", size_average), *between, plain("reduce", reduce)


NO_WEIGHT, IGNORED = plain("weight", None), (plain("ignore_index", -100),)


def test_a_loss_whose_reduction_is_the_seventh_argument():
    """cross_entropy of 4 rows of 6: log_softmax 96 FLOP, and of 4 gathered values the mean 4, the sum 3, none 0.

    It writes 24 logarithms, 1 or 4 results and the total weight; reads 24 scores, 4 gathered values and 4 int64.
    """
    # smoothing: the sums of the rows 20, reduced like the values, and three for each result
    for reduction, flop, results, smoothing in (("mean", 100, 1, 27), ("sum", 99, 1, 26), ("none", 96, 4, 32)):
        args = NO_WEIGHT, *legacy(between=IGNORED), plain("reduction", reduction)
        found = user_call("cross_entropy", LOGITS, CLASSES, *args)
        assert (found.flop, found.nbytes) == (flop, 96 + 16 + 32 + 96 + 4 * (results + 1))
        named = user_call("cross_entropy", LOGITS, CLASSES, plain("reduction", reduction))
        assert (named.flop, named.nbytes) == (found.flop, found.nbytes)
        smooth = user_call("cross_entropy", LOGITS, CLASSES, *args, plain("label_smoothing", 0.1))
        assert smooth.flop == flop + smoothing


def test_nll_loss_with_its_old_arguments():
    """4 gathered values: a mean has 3 additions and a division, a sum 3 additions; class weights 4 products, and
    3 additions for a mean."""
    assert user_call("nll_loss", LOGITS, CLASSES, NO_WEIGHT, plain("size_average", None), *IGNORED).flop == 4
    unused = plain("ignore_index", 2)  # the number of a class, which is the code of "sum"
    assert user_call("nll_loss", LOGITS, CLASSES, NO_WEIGHT, plain("size_average", None), unused).flop == 4
    for reduction, flop in (("mean", 4 + 4 + 3), ("sum", 3 + 4), ("none", 4)):
        args = CLASS_WEIGHTS, *legacy(between=IGNORED), plain("reduction", reduction)
        assert user_call("nll_loss", LOGITS, CLASSES, *args).flop == flop


def test_losses_of_two_tensors_with_their_old_arguments():
    """24 elements: 2 FLOP each for mse_loss, 1 for l1_loss, 4 for smooth_l1_loss, 3 for soft_margin_loss and kl_div,
    7 for binary_cross_entropy; the mean 24 more, a sum 23."""
    for op, each in (("mse_loss", 2), ("l1_loss", 1), ("smooth_l1_loss", 4), ("soft_margin_loss", 3), ("kl_div", 3)):
        for reduction, flop, written in (("mean", 24, 4), ("sum", 23, 4), ("none", 0, 96)):
            found = user_call(op, LOGITS, SCORES, *legacy(), plain("reduction", reduction))
            assert (found.flop, found.nbytes) == (24 * each + flop, 192 + written), op
    assert user_call("smooth_l1_loss", LOGITS, SCORES, plain("beta", 0.5)).flop == 4 * 24 + 24
    assert user_call("huber_loss", LOGITS, SCORES, plain("delta", 2.0)).flop == 4 * 24 + 24
    weights = {**SCORES, "name": "weight"}
    for reduction, flop in (("sum", 23), ("none", 0)):
        bce = user_call("binary_cross_entropy", LOGITS, SCORES, weights, *legacy(), plain("reduction", reduction))
        assert bce.flop == 8 * 24 + flop


def test_a_positive_weight_stands_after_the_reduction():
    """binary_cross_entropy_with_logits: 6 FLOP per element, 1 more with a weight, 3 with a positive weight."""
    positive, weights = {**SCORES, "name": "pos_weight"}, {**SCORES, "name": "weight"}
    name = "binary_cross_entropy_with_logits"
    args = *legacy(), plain("reduction", "sum"), positive
    assert user_call(name, LOGITS, SCORES, weights, *args).flop == (6 + 1 + 3) * 24 + 23
    assert user_call(name, LOGITS, SCORES, NO_WEIGHT, *args).flop == (6 + 3) * 24 + 23


def test_size_average_and_reduce_say_the_reduction():
    """False, any: none is averaged, so a sum; any, False: not reduced; True, True: the mean (torch.nn._reduction)."""
    for size_average, reduce, flop in (
        (False, None, 48 + 23),
        (False, True, 48 + 23),
        (None, False, 48),
        (True, None, 48 + 24),
        (True, False, 48),
    ):
        assert user_call("mse_loss", LOGITS, SCORES, *legacy(size_average, reduce)).flop == flop
    overruled = *legacy(False, None), plain("reduction", "mean")  # as PyTorch does, with a warning
    assert user_call("mse_loss", LOGITS, SCORES, *overruled).flop == 48 + 23


def test_named_arguments_in_another_order_than_the_ops():
    """conv2d(x, w, padding=1, stride=2) of 8 × 8 with 3 × 3: 4 × 4 results, in both orders."""
    x, w = ({"name": n, "type": "tensor", "shape": s, "dtype": "float32"} for n, s in IMAGE_AND_WEIGHT)
    assert user_call("conv2d", x, w, plain("padding", 1), plain("stride", 2)).flop == 16 * 4 * 2 * 27
