"""Element-wise chains, the loss over a vocabulary, small products in a row."""

import pytest

from pyprof.prof.changes.rules import RULES
from tests.prof.changes.rules.advice_rows import changes, run

N = 12_582_912  # elements, fp32: 50.33 MB


def ew(op, ns=25_000, full=1, **more):
    return {"aten": f"aten::{op}", "sizes": [[4, 1024, 3072]] * full + [[]], "dtypes": ["float32"] * full + [""],
            "kShortName": "vectorized_elementwise_kernel", "phase": "forward", "dir": "fprop", "ns": ns,
            **more}  # fmt: skip


def test_a_chain_by_hand():
    # read, write, half of a second operand: 2.5 × 50.33e6 bytes at 4.08e12/s: 30.8 µs, and 3; now 135
    (change,) = changes(ew("pow"), ew("mul"), ew("add", 35_000, full=2), ew("tanh"), ew("mul"))
    assert (change.rule, change.kernels) == ("fusion", 5)
    assert change.gpu_ms == pytest.approx(0.135 - 0.0338, abs=0.0001)
    assert change.change.startswith('Call F.gelu(x, approximate="tanh") in place of its formula. ')
    (change,) = changes(ew("pow"), ew("mul"), ew("add", 35_000, full=2), ew("sin"), ew("mul"))
    assert (
        change.change == "Fuse the element-wise kernels (pow, mul, add, ...): torch.compile the module that holds them."
    )


@pytest.mark.parametrize("name", ["copy_", "_to_copy"])
def test_a_cast_is_part_of_a_chain(name):
    (change,) = changes(ew("pow"), ew(name, full=2), ew("mul"), rule="fusion")
    assert change.kernels == 3


def test_a_norm_by_hand_is_one_chain():
    """RMSNorm in fp32: the mean and what is done with it stand between; 6 kernels over the whole, 3 over the rows."""
    mean = {**ew("mean", 15_000), "args": ["", "[-1]", "True", ""], "sizes": [[4, 1024, 3072], [], [], []],
            "dtypes": ["float32", "", "", ""], "kShortName": "reduce_kernel"}  # fmt: skip
    small = [ew(op, 1_000, sizes=[[4, 1024, 1], []]) for op in ("add", "rsqrt")]
    (change,) = changes(ew("pow"), mean, *small, ew("mul"), ew("mul"), ew("add", 35_000, full=2))
    assert change.kernels == 7 and change.change.startswith("Call F.rms_norm (")
    # 2.5 tensors as above; 127 µs now
    assert change.gpu_ms == pytest.approx(0.127 - 0.0338, abs=0.0001)


def token_norm(square="pow", statistics=("add", "rsqrt"), last="mul", layer="norm"):
    """RMSNorm of one token of 4 sequences in bf16, in the order of the Llama's reference code: 8 kernels."""
    one, mean_of, each = {"sizes": [[4, 1, 2048], []]}, {"sizes": [[4, 1, 2048], [], [], []]}, {"sizes": [[4, 1, 1]]}
    rows = [
        ew("copy_", 2_000, **one), ew(square, 1_000, **one),
        ew("mean", 2_000, **mean_of, args=["", "[-1]", "True", ""], kShortName="reduce_kernel"),
        *(ew(op, 1_000, **each) for op in statistics),
        ew(last, 2_000, **one), ew("copy_", 1_000, **one), ew("mul", 2_000, **one),
    ]  # fmt: skip
    return [{**row, "layer": ["model", layer]} for row in rows]


def add_before():
    return {**ew("add", 1_000, full=2, sizes=[[4, 1, 2048]] * 2), "layer": ["model"]}


@pytest.mark.parametrize(
    "formula",
    [{}, {"square": "mul"}, {"statistics": ("add", "sqrt"), "last": "div"}],
    ids=["mean of squares", "mean of x * x", "division by the root"],
)
def test_a_norm_of_a_small_tensor_is_a_call_as_well(formula):
    """Of 2 × 8 launches, 14 go; the sum before a norm is no part of it."""
    rows = [add_before(), *token_norm(**formula), add_before(), *token_norm(**formula, layer="norm2")]
    (found,) = RULES["fusion"](run(*rows))
    assert found.change.startswith("Call F.rms_norm (") and found.launches == 14
    assert found.rows.tolist() == [*range(1, 9), *range(10, 18)]


def small_backward(*ops):
    return [ew(op, 2_000, sizes=[[32, 640], []], phase="backward", dir="bprop") for op in ops]


def test_a_small_swish_is_known_by_its_gradient_which_is_a_sum_of_two():
    (found,) = RULES["fusion"](run(*small_backward("mul", "mul", "sigmoid_backward", "add")))
    assert found.change.startswith("Call F.silu(x) in place of x * sigmoid(x). ")


def test_the_gates_of_a_recurrent_cell_are_no_swish():
    """Their gradients are summed up before."""
    gates = ("mul", "mul", "neg", "add", "sigmoid_backward", "tanh_backward", "mul", "sigmoid_backward")
    assert list(RULES["fusion"](run(*small_backward(*gates)))) == []


def test_a_norm_that_subtracts_the_mean_is_a_layer_norm():
    centered = {**ew("sub", 1_000, sizes=[[4, 1, 2048], [4, 1, 1]]), "layer": ["model", "norm"]}
    (found,) = RULES["fusion"](run(centered, *token_norm()[1:]))
    assert found.change.startswith("Call F.layer_norm in place of its formula. ")


def test_of_small_tensors_the_backward_pass_of_a_formula_belongs_to_it():
    """Of two chains backward, the one of the norm's layer."""
    back = [
        {**ew(op, 2_000, sizes=[[4, 1, 2048], []]), "layer": ["model", layer], "phase": "backward", "dir": "bprop"}
        for layer in ("norm", "other")
        for op in ("mul", "div", "mul")
    ]
    (found,) = RULES["fusion"](run(*token_norm(), *back))
    assert found.rows.tolist() == [*range(8), 8, 9, 10]


def test_one_formula_over_tensors_of_two_sizes_is_one_change():
    """As a norm that an encoder and a decoder share. 2 tensors of 50.33 MB, and of half as many: 24.7 µs and 12.3 at
    4.08e12/s, and 3 each; now 75 and 45 µs. Other chains have a change per size."""
    half = {"sizes": [[4, 512, 3072], []]}
    chain = [ew("pow"), ew("tanh"), ew("mul"), *(ew(op, 15_000, **half) for op in ("pow", "tanh", "mul"))]
    (change,) = changes(*chain)
    assert (change.rule, change.kernels) == ("fusion", 6)
    assert change.gpu_ms == pytest.approx(0.120 - 0.0247 - 0.0123 - 0.006, abs=0.0001)
    assert "over 12582912 and 6291456 elements" in change.why
    apart = [{**row, "aten": row["aten"].replace("tanh", "sin")} for row in chain]
    assert [change.kernels for change in changes(*apart, rule="fusion")] == [3, 3]


def test_a_sum_over_columns_ends_a_chain():
    bias = {**ew("sum", 15_000), "args": ["", "[0, 1]", "True", ""], "kShortName": "reduce_kernel"}
    assert changes(ew("pow"), ew("mul"), bias, ew("tanh"), ew("mul"), rule="fusion") == []


OTHER = {"aten": "aten::native_layer_norm", "sizes": [[4, 1024, 3072]], "kShortName": "norm", "ns": 10_000}
STRIDED = ew("copy_", full=2, kShortName="elementwise_kernel")
SAYS_NOTHING = {
    "a pair": [ew("pow"), ew("mul")],
    "another op between": [ew("pow"), ew("mul"), OTHER, ew("tanh"), ew("mul")],
    "a change of layout between": [ew("pow"), ew("mul"), STRIDED, ew("tanh"), ew("mul")],
    "other sizes": [ew("pow"), ew("mul", sizes=[[4, 1024, 768], []]), ew("tanh")],
    "streams": [ew("pow", stream=7), ew("mul", stream=8), ew("tanh", stream=7)],
    "the optimizer": [ew(op, phase="optimizer") for op in ("mul", "add", "sqrt", "div")],
    "gradients that add up": [ew("add_", full=2, nodes=["torch::autograd::AccumulateGrad"])] * 4,
    "small": [ew(op, 2000, sizes=[[64, 64], []]) for op in ("sin", "mul", "exp", "mul")],
    "no shapes": [ew(op, sizes=None, dtypes=None) for op in ("pow", "mul", "tanh", "mul")],
    "as fast as one": [ew(op, 8_000) for op in ("pow", "mul", "tanh")],
}


@pytest.mark.parametrize("why", SAYS_NOTHING)
def test_no_chain(why):
    assert changes(*SAYS_NOTHING[why], rule="fusion") == []


def logits(op, ns, dtypes=("float32",), **more):
    return {"aten": f"aten::{op}", "sizes": [[4096, 50304]] * len(dtypes) + [[]], "dtypes": [*dtypes, ""], "ns": ns,
            "kShortName": "kernel", **more}  # fmt: skip


def loss():
    """As an H200 ran GPT-2's (h200_gpt2_bf16)."""
    return [
        logits("copy_", 598_600, ("float32", "bfloat16")), logits("_log_softmax", 796_900),
        logits("fill_", 176_400), logits("_log_softmax_backward_data", 874_000, ("float32", "float32")),
        logits("copy_", 279_800, ("bfloat16", "float32")),
    ]  # fmt: skip


def test_the_loss_against_what_compile_was_measured_to_take():
    # compiled on the same GPU (h200_gpt2_compiled): 286.2 + 6.8 + 282.0 µs
    (change,) = changes(*loss(), rule="cross_entropy")
    assert change.gpu_ms == pytest.approx(2.7257 - 0.575, rel=0.01)
    assert change.kernels == 5 and change.why.startswith("5 kernels (2 of them casts) went over logits of 4096 × 50304")
    # logits of four bytes, which nothing casts
    (change,) = changes(*[row for row in loss() if row["aten"] != "aten::copy_"], rule="cross_entropy")
    assert change.gpu_ms == pytest.approx(1.8473 - 2 * 0.575, rel=0.02)
    assert change.why.startswith("3 kernels went over")


LOSS_SAYS_NOTHING = {
    "few classes": [{**row, "sizes": [[4096, 1000], []]} for row in loss()],
    "forward only": loss()[:2],
    "no shapes": [{**row, "sizes": None, "dtypes": None} for row in loss()],
    "compiled": [{**row, "aten": "triton_red_fused__log_softmax", "ns": 280_000} for row in loss()[:2]],
}


@pytest.mark.parametrize("why", LOSS_SAYS_NOTHING)
def test_no_word_on_the_loss(why):
    assert changes(*LOSS_SAYS_NOTHING[why], rule="cross_entropy") == []
