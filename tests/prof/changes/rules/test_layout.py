"""Convolutions' layouts and biases, and casts of weights in inference."""

import pytest

from tests.prof.changes.rules.advice_rows import changes, run

X = [32, 64, 56, 56]
CONV = {"aten": "aten::cudnn_convolution", "sizes": [X, [64, 64, 3, 3], [], [], [], [], [], [], []], "phase": "forward",
        "dtypes": ["float16"] * 2 + [""] * 7}  # fmt: skip


def conv(name="sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", ns=100_000, **more):
    return {**CONV, "kShortName": name, "ns": ns, **more}


LAYOUT = "void cudnn::ops::nchwToNhwcKernel"


def test_layouts_by_hand():
    (change,) = changes(conv(LAYOUT, 30_000), conv(), conv("nhwcToNchwKernel", 20_000), rule="channels_last")
    assert (change.kernels, change.gpu_ms) == (2, pytest.approx(0.050))


LAYOUTS = {"none": [conv()], "padding of three channels": [conv("nhwcAddPaddingKernel", 30_000), conv()],
           "names only": [{"kShortName": LAYOUT, "ns": 30_000}]}  # fmt: skip


@pytest.mark.parametrize("why", LAYOUTS)
def test_no_word_on_layouts(why):
    assert changes(*LAYOUTS[why], rule="channels_last") == []


VIDEO = [4, 64, 16, 56, 56]
IN_3D = {"sizes": [VIDEO, [64, 64, 3, 3, 3]], "nodes": ["aten::conv3d", "aten::convolution", "aten::cudnn_convolution"]}
IN_1D = {"sizes": [[32, 64, 1, 3136], [64, 64, 1, 3]], "nodes": ["aten::conv1d", "aten::convolution",
                                                                 "aten::cudnn_convolution"]}  # fmt: skip


def test_each_rank_has_its_format():
    rows = [conv(LAYOUT, 30_000, **IN_3D), conv(**IN_3D)]
    (change,) = changes(*rows, rule="channels_last")
    assert change.gpu_ms == pytest.approx(0.030) and "NCDHW to NDHWC" in change.why
    assert change.change.startswith("Use channels last 3d: model.to(memory_format=torch.channels_last_3d), ")
    three, two = changes(*rows, conv(LAYOUT, 20_000), conv(), rule="channels_last")
    assert (three.kernels, two.kernels) == (1, 1)
    assert three.change.startswith(
        "Use channels last 3d: each nn.Conv3d.to(memory_format=torch.channels_last_3d) (it refuses the whole model"
    )
    assert two.change.startswith("Use channels last: each nn.Conv2d.to(memory_format=torch.channels_last) (")


BACKWARD_1D = {"aten": "aten::convolution_backward", "sizes": [[32, 64, 3134], [32, 64, 3136], [64, 64, 3]],
               "nodes": ["ConvolutionBackward0", "aten::convolution_backward"], "phase": "backward"}  # fmt: skip
WITH_BIAS = [[32, 64, 1, 3136], [64, 64, 1, 3], [64]]
GROUP_NORM = {"aten": "aten::native_group_norm", "sizes": [X, [64], [64]], "kShortName": "RowwiseMomentsCUDAKernel",
              "nodes": ["aten::group_norm", "aten::native_group_norm"], "ns": 50_000, "phase": "forward"}  # fmt: skip
NO_FORMAT = {
    "1-d, which PyTorch runs as 2-d": [conv(LAYOUT, 30_000, **IN_1D), conv(**IN_1D)],
    "1-d, backward": [conv(LAYOUT, 30_000, **BACKWARD_1D), conv(**BACKWARD_1D)],
    "1-d as its shapes tell": [conv(LAYOUT, 30_000, sizes=IN_1D["sizes"]), conv(sizes=IN_1D["sizes"])],
    "1-d with a bias": [conv(LAYOUT, 30_000, sizes=WITH_BIAS), conv(sizes=WITH_BIAS)],
    "a group norm, which takes NCHW alone": [conv(LAYOUT, 30_000), conv(), GROUP_NORM],
    "an instance norm": [conv(LAYOUT, 30_000), conv(), {**GROUP_NORM, "aten": "aten::cudnn_batch_norm",
        "nodes": ["aten::instance_norm", "aten::batch_norm", "aten::cudnn_batch_norm"]}],
}  # fmt: skip


@pytest.mark.parametrize("why", NO_FORMAT)
def test_no_format_helps(why):
    assert changes(*NO_FORMAT[why], rule="channels_last") == []


def test_a_group_norm_of_another_rank_does_not_matter():
    assert (
        len(changes(conv(LAYOUT, 30_000), conv(), {**GROUP_NORM, "sizes": [[32, 64], [64]]}, rule="channels_last")) == 1
    )


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


IMAGES = [32, 128, 56, 56]  # 12.8 M elements, bf16
AFTER = {"aten": "aten::native_batch_norm", "sizes": [IMAGES, [128], [128], [128], [128], [], [], []], "ns": 75_000,
         "dtypes": ["bfloat16"] * 5 + ["", "", ""], "args": ["", "", "", "", "", "True", "0.1", "1e-05"],
         "phase": "forward", "dir": "fprop", "kShortName": "batch_norm_collect_statistics_kernel"}  # fmt: skip


def test_batch_norms_of_a_run_that_changes_layouts_get_faster_too():
    """Read and write 2 × 25.7 MB (and read once more, as PyTorch's norm does, or not): at 0.18 × 4.8e12 bytes/s."""
    (change,) = changes(conv(LAYOUT, 30_000), conv(), AFTER, rule="channels_last")
    assert change.kernels == 2 and "1 batch norm by kernels for NCHW" in change.why
    assert 0.0311 < change.gpu_ms < 0.0311 + 0.075 - 2 * 25.69e6 / (0.18 * 4.8e12) * 1e3 + 0.001
    assert changes(conv(), AFTER, rule="channels_last") == []  # nothing says that the convolutions want NHWC


def test_the_backward_pass_of_a_batch_norm_in_nhwc():
    """Read the gradient and the input, write the input's gradient: 3 × 25.69 MB at 0.31 × 4.8e12 bytes/s, 51.8 µs."""
    back = {**AFTER, "aten": "aten::native_batch_norm_backward", "phase": "backward", "dir": "bprop", "ns": 150_000,
            "sizes": [IMAGES, IMAGES, *[[128]] * 5, [], [], []], "dtypes": ["bfloat16"] * 7 + [""] * 3,
            "args": [""] * 7 + ["True", "1e-05", "[True, True, True]"],
            "kShortName": "batch_norm_backward_reduce_kernel"}  # fmt: skip
    (change,) = changes(conv(LAYOUT, 30_000), conv(), back, rule="channels_last")
    (alone,) = changes(conv(LAYOUT, 30_000), conv(), rule="channels_last")
    assert change.gpu_ms - alone.gpu_ms == pytest.approx(0.150 - 0.0518, abs=0.001)


DEPTHWISE = {"aten": "aten::_conv_depthwise2d", "sizes": [[64, 256, 56, 56], [256, 1, 3, 3], [], []], "ns": 500_000,
             "phase": "forward", "kShortName": "conv_depthwise2d_forward_kernel"}  # fmt: skip


def test_depthwise_convolutions_in_half_precision():
    # 102.8 MB and, without padding, 95.6 at 0.3 × 4.8e12 bytes/s: 137.7 µs, and 5. Measured on an H200: 499 µs (with
    # padding), by cuDNN in NHWC 90
    (change,) = changes({**DEPTHWISE, "dtypes": ["bfloat16"] * 2 + ["", ""]}, rule="channels_last")
    assert change.gpu_ms == pytest.approx(0.5 - 0.1427, abs=0.001)
    assert changes({**DEPTHWISE, "dtypes": ["float32"] * 2 + ["", ""]}, rule="channels_last") == []


def test_a_column_of_texts_is_decoded_once():
    """Rules ask for it row by row: 16,000 convolutions took 3 s, and four times as many sixteen times as long."""
    made = run({"aten": "aten::conv2d", "nodes": ["aten::conv2d"], "ns": 1})
    assert made.texts("nodes") is made.texts("nodes")
    with pytest.raises(ValueError, match="read-only"):
        made.texts("nodes")[0] = ""
