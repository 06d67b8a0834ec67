"""Pass, phase, op and layer of measured kernels, by ranges and, without them, by names; and counts of equal layers."""

import pytest

from pyprof.errors import UsageError
from pyprof.parse.ncu.report import Launch
from pyprof.prof.ncu.report_layers import Layers, counts, parse_layers
from pyprof.prof.ncu.report_origins import origins
from pyprof.prof.ncu.report_passes import passes_and_phases

from .measured import GEMM, STEP, launches, ranges

F, B, O = "forward", "backward", "optimizer"  # noqa: E741
EXPECTED = [  # pass, phase, op, layer
    (F, "encoder", "embedding", "tokens"),
    (F, F, "linear", "blocks.0.up"),
    (F, F, "gelu", "blocks.0"),
    (F, "classifier", "linear", "head"),  # the cast of the head's operand: the same call as the product
    (F, "classifier", "linear", "head"),
    (F, "classifier", "cross_entropy", ""),
    (B, "classifier", "cross_entropy", ""),
    (B, "classifier", "linear", "head"),
    (B, B, "gelu", "blocks.0"),
    (B, B, "linear", "blocks.0.up"),
    (B, B, "linear", "blocks.0.up"),  # the bias: in autograd's range around the node, not in the node
    (B, B, "AccumulateGrad", "blocks.0.up"),
    (B, "encoder", "embedding", "tokens"),
    (O, O, "_foreach_norm", ""),  # clipping: in no layer, between the backward pass and the step
    (O, O, "_fused_adamw_", ""),
]


def test_every_kernel_of_a_step_has_its_pass_phase_op_and_layer() -> None:
    found, phases = passes_and_phases(STEP)
    assert [(each.passed, phase, each.op, each.layer) for each, phase in zip(found, phases, strict=True)] == EXPECTED


def test_steps_do_not_mix() -> None:
    """Numbers rise from step to step, and the second step's classifier is its own."""
    later = [launch._replace(ranges=tuple(r._replace(text=_shifted(r.text)) for r in launch.ranges)) for launch in STEP]
    _, phases = passes_and_phases([*STEP, *later])
    assert phases == [phase for _, phase, _, _ in EXPECTED] * 2


def _shifted(text: str) -> str:
    for number in range(15, 9, -1):
        text = text.replace(f"seq = {number}", f"seq = {number + 100}").replace(
            f"= {number + 500}", f"= {number + 900}"
        )
    return text


def test_processes_do_not_mix() -> None:
    """Two ranks have the same sequence numbers and other layers."""
    other = [
        launch._replace(
            process_id=8, ranges=tuple(r._replace(text=r.text.replace("blocks", "stages")) for r in launch.ranges)
        )
        for launch in STEP
    ]
    mixed = [launch for pair in zip(STEP, other, strict=True) for launch in pair]
    found, phases = passes_and_phases(mixed)
    assert phases[::2] == phases[1::2] == [phase for _, phase, _, _ in EXPECTED]
    assert (found[18].layer, found[19].layer) == ("blocks.0.up", "stages.0.up")


def test_a_node_whose_forward_op_was_not_measured_has_the_layer_before_it() -> None:
    kept = [launch for launch in STEP if launch.id not in (2,)]
    gelu = next(at for at, launch in enumerate(kept) if launch.name == "GeluBackwardCUDAKernelImpl")
    assert (origins(kept)[gelu].passed, origins(kept)[gelu].layer) == (B, "blocks.0.up")
    assert origins(kept)[gelu].op == "Gelu"  # the node's own name; the forward op is not known


def test_a_loss_in_a_layer_does_not_begin_the_classifier() -> None:
    """Such as a loss that balances experts, and an embedding of positions in each layer."""
    inside = launches(
        ("loss_kernel", ranges("layer:Net", "layer:blocks.0", "aten::mse_loss, seq = 11, op_id = 50")),
        ("rotary_kernel", ranges("layer:Net", "layer:blocks.0", "mylib::rotary_embedding, seq = 11, op_id = 51")),
    )
    assert passes_and_phases([STEP[0], *inside, *STEP[1:]])[1] == [
        "encoder", F, F, *(phase for _, phase, _, _ in EXPECTED[1:])
    ]  # fmt: skip


def test_without_a_loss_there_is_no_classifier() -> None:
    forward = STEP[:5]
    assert passes_and_phases(forward)[1] == ["encoder", F, F, F, F]


def test_gradients_that_are_accumulated_are_no_optimizer() -> None:
    """Forward, backward, forward, backward, step: what runs in no layer before the second forward pass is forward."""
    clear = launches(("fill_kernel", ranges("aten::zero_, op_id = 40")))
    _, phases = passes_and_phases([*STEP[:13], *clear, *STEP])
    assert phases[13] == F


NAMES = [  # kernels as in a C++ program, without ranges
    ("encoder_forward_kernel3", F, "encoder"),
    ("layernorm_forward_kernel6", F, F),
    ("cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>", F, F),
    ("gelu_forward_kernel2", F, F),
    ("cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>", F, "classifier"),
    ("fused_classifier_kernel5", F, "classifier"),
    ("matmul_backward_bias_kernel9", B, B),
    ("cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>", B, B),
    ("layernorm_backward_kernel10", B, B),
    ("wte_backward_kernel", B, B),
    ("adamw_kernel3", O, O),
    ("encoder_forward_kernel3", F, "encoder"),
]


def test_without_ranges_names_and_order_tell() -> None:
    found, phases = passes_and_phases([Launch(at, name) for at, (name, _, _) in enumerate(NAMES)])
    assert [(each.passed, phase) for each, phase in zip(found, phases, strict=True)] == [
        (passed, phase) for _, passed, phase in NAMES
    ]


def test_names_that_tell_nothing_give_no_pass() -> None:
    found, phases = passes_and_phases([Launch(0, GEMM), Launch(1, "reduce_kernel")])
    assert [each.passed for each in found] == phases == ["", ""]


# Layers

LAYERS = [origin.layer for origin in origins(STEP)]


def test_kernels_of_numbered_layers_count_as_often_as_there_are_layers() -> None:
    assert counts(Layers(12), LAYERS, [""] * 15) == [1, 12, 12, 1, 1, 1, 1, 1, 12, 12, 12, 12, 1, 1, 1]
    assert counts(None, LAYERS, [""] * 15) == [1] * 15


def test_two_profiled_layers_of_twelve_count_six_times() -> None:
    assert counts(Layers(12), ["h.0.mlp", "h.1.mlp", "norm"], [F, F, F]) == [6, 6, 1]
    with pytest.raises(UsageError, match="2 layers of h were profiled, and 5 is not a multiple of that"):
        counts(Layers(5), ["h.0.mlp", "h.1.mlp", "norm"], [F, F, F])


def test_of_several_stacks_one_is_named() -> None:
    layers = ["encoder.0.up", "decoder.0.up", "decoder.0.3.up"]
    assert counts(parse_layers("decoder=6"), layers, [F] * 3) == [1, 6, 6]
    with pytest.raises(UsageError, match=r"one of the stacks of layers: encoder=6 \(1 profiled\), decoder=6 \(1"):
        counts(Layers(6), layers, [F] * 3)
    with pytest.raises(UsageError, match="one of the stacks of layers: encoder=6"):
        counts(parse_layers("middle=6"), layers, [F] * 3)


def test_layers_that_lie_directly_in_the_model_are_named_by_nothing() -> None:
    layers = ["0", "1", "tail.0"]  # of an nn.Sequential, and of a list in another model
    assert counts(parse_layers("=6"), layers, [F] * 3) == [3, 3, 1]
    with pytest.raises(UsageError, match=r"layers: =6 \(2 profiled\), tail=6"):
        counts(parse_layers("6"), layers, [F] * 3)


def test_layers_without_numbers_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no layer of the report has a number in its name"):
        counts(Layers(6), ["up", "down"], [F, F])


def test_without_ranges_the_middle_of_both_passes_counts() -> None:
    phases = ["encoder", F, "classifier", B, O]
    assert counts(Layers(12), [""] * 5, phases) == [1, 12, 1, 12, 1]


@pytest.mark.parametrize("text", ["0", "x", "blocks=", "-1", "1.5", "²"])
def test_layers_must_be_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number of layers"):
        parse_layers(text)
