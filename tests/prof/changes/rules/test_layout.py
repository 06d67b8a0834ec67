"""Convolutions' layouts and biases, and casts of weights in inference."""

import numpy as np
import pytest

from tests.prof.changes.rules.advice_rows import changes, run

X = [32, 64, 56, 56]
CONV = {"aten": "aten::cudnn_convolution", "sizes": [X, [64, 64, 3, 3], [], [], [], [], [], [], []], "phase": "forward",
        "dtypes": ["float16"] * 2 + [""] * 7}  # fmt: skip


def conv(name="sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", ns=100_000, **more):
    return {**CONV, "kShortName": name, "ns": ns, **more}


def contiguous(shape):
    return [int(np.prod(shape[place + 1 :])) for place in range(len(shape))]


def in_nchw(x, weight, ns=400_000, **more):
    """A convolution of contiguous operands."""
    ones = str([1] * (len(x) - 2))
    return conv(ns=ns, sizes=[x, weight, *[[]] * 7], strides=[contiguous(x), contiguous(weight), *[[]] * 7],
                args=["", "", "", ones, ones, ones, "False", "[0]", "1"], **more)  # fmt: skip


PICTURES = in_nchw(X, [64, 64, 3, 3])
VIDEO = in_nchw([4, 64, 16, 56, 56], [64, 64, 3, 3, 3], 2_000_000,
                nodes=["aten::conv3d", "aten::convolution", "aten::cudnn_convolution"])  # fmt: skip


def test_each_rank_has_its_format():
    (change,) = changes(PICTURES, rule="channels_last")
    assert change.change.startswith("Use channels last: model.to(memory_format=torch.channels_last), ")
    assert change.gpu_ms == pytest.approx(0.4 - 0.2685, abs=0.001)  # as measured calls of similar sizes have gained
    two, three = sorted(changes(PICTURES, VIDEO, rule="channels_last"), key=lambda each: each.gpu_ms)
    assert three.change.startswith(
        "Use channels last 3d: each nn.Conv3d.to(memory_format=torch.channels_last_3d) (it refuses the whole model"
    )
    assert two.change.startswith("Use channels last: each nn.Conv2d.to(memory_format=torch.channels_last) (")


NO_FORMAT = {
    "an instance norm": [PICTURES, {**PICTURES, "aten": "aten::cudnn_batch_norm",
        "nodes": ["aten::instance_norm", "aten::batch_norm", "aten::cudnn_batch_norm"]}],
    "names only": [conv(sizes=None, dtypes=None)],
}  # fmt: skip


@pytest.mark.parametrize("why", NO_FORMAT)
def test_no_format_helps(why):
    assert changes(*NO_FORMAT[why], rule="channels_last") == []


def bias(**more):
    return {"aten": "aten::add_", "sizes": [X, [1, 64, 1, 1], []], "dtypes": ["float16"] * 2 + [""], "ns": 20_000,
            "kShortName": "elementwise_kernel", "phase": "forward", **more}  # fmt: skip


NORM = {"aten": "aten::native_batch_norm", "sizes": [X, [64], [64], [64], [64], [], [], []], "ns": 30_000,
        "kShortName": "batch_norm_collect_statistics_kernel", "phase": "forward"}  # fmt: skip
SUM = {"aten": "aten::sum", "sizes": [X, [], [], []], "nodes": ["ConvolutionBackward0", "aten::convolution_backward"],
       "ns": 25_000, "kShortName": "reduce_kernel", "phase": "backward"}  # fmt: skip


def test_a_bias_before_a_norm_and_its_gradient():
    (change,) = changes(conv(), bias(), NORM, SUM, rule="conv_bias")
    assert (change.kernels, change.gpu_ms) == (2, pytest.approx(0.045))


@pytest.mark.parametrize("name", ["cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_impl_index"])
def test_a_bias_before_a_norm_of_any_library(name):
    (change,) = changes(conv(), bias(), {**NORM, "aten": f"aten::{name}"}, SUM, rule="conv_bias")
    assert change.kernels == 2


BIASES = {
    "inference, where the norm's mean was recorded with it": [conv(), bias(), NORM],
    "no norm": [conv(), bias(), conv(), SUM],
    "a norm of another tensor": [conv(), bias(), {**NORM, "sizes": [[32, 64, 28, 28], [64]]}, SUM],
    "a residual": [conv(), bias(sizes=[X, X, []]), NORM, SUM],
    "no shapes": [conv(), bias(sizes=None, dtypes=None), NORM, SUM],
}


@pytest.mark.parametrize("why", BIASES)
def test_no_word_on_biases(why):
    assert changes(*BIASES[why], rule="conv_bias") == []


def cast(shape, ns=40_000, **more):
    return {"aten": "aten::copy_", "sizes": [shape, shape, []], "dtypes": ["bfloat16", "float32", ""], "ns": ns,
            "nodes": ["aten::linear", "aten::to", "aten::_to_copy", "aten::copy_"], "phase": "forward",
            "kShortName": "vectorized_elementwise_kernel", **more}  # fmt: skip


PRODUCT = {"aten": "aten::mm", "sizes": [[512, 4096], [4096, 8192]], "dtypes": ["bfloat16"] * 2, "ns": 60_000,
           "strides": [[4096, 1], [1, 4096]], "kShortName": "nvjet_sm90_tst_128x256", "phase": "forward"}  # fmt: skip


def test_weights_cast_in_inference():
    (change,) = changes(cast([8192, 4096]), cast([512, 4096], 3_000), PRODUCT, rule="weight_casts")
    assert (change.kernels, change.gpu_ms) == (1, pytest.approx(0.040))  # the activation's cast stays


CASTS = {
    "training": [cast([8192, 4096]), PRODUCT, {**PRODUCT, "phase": "backward"}],
    "activations": [cast([512, 4096]), PRODUCT],
    "no types": [cast([8192, 4096], dtypes=None), PRODUCT],
    "half already": [cast([8192, 4096], dtypes=["bfloat16", "bfloat16", ""]), PRODUCT],
    "no product": [cast([8192, 4096])],
}


@pytest.mark.parametrize("why", CASTS)
def test_no_word_on_casts(why):
    assert changes(*CASTS[why], rule="weight_casts") == []


def test_a_column_of_texts_is_decoded_once():
    """Rules ask for it row by row: 16,000 convolutions took 3 s, and four times as many sixteen times as long."""
    made = run({"aten": "aten::conv2d", "nodes": ["aten::conv2d"], "ns": 1})
    assert made.texts("nodes") is made.texts("nodes")
    with pytest.raises(ValueError, match="read-only"):
        made.texts("nodes")[0] = ""
