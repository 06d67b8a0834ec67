"""What the rules propose, and where they abstain, from literal rows and captures of an H200."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from pyprof.prof.changes.effect.edit import Abstained, Edit
from pyprof.prof.changes.effect.finding import Finding
from pyprof.prof.changes.effect.scenario import apply, captured
from pyprof.prof.changes.general_code import GENERAL
from pyprof.prof.changes.rules import EDIT_RULES, RULES
from pyprof.prof.changes.rules.from_findings import DEVIATIONS, edit_of
from pyprof.prof.changes.rules.kernels.parameters import in_loops
from pyprof.prof.changes.rules.products.narrow import Flow
from pyprof.prof.changes.rules.repeats.parameter_loops import behind, reads_of
from tests.parse.kineto.kineto_file import MAIN, call, kernel, op, x
from tests.prof.changes.effect.test_scenario import base, of_rows
from tests.prof.changes.rules import advice_rows, test_layout
from tools.plan_pairs import GOLDEN, base_of


def proposals(rule, scenario):
    return list(EDIT_RULES[rule](scenario))


def reason(rule, scenario):
    (only,) = proposals(rule, scenario)
    assert isinstance(only, Abstained)
    return only.why


CHANGED = [
    ("mixed", "amp"), ("full_precision", "tf32"), ("attention", "attention"), ("lm_head", "alignment"),
    ("checked", "item"), ("pageable", "pageable_copy"), ("slow_loader", "data_loader"), ("held_cell", "cuda_graph"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "rule"), CHANGED)
def test_a_change_is_proposed_once(case, rule):
    """The rules read the run after the edit, and say it no more."""
    scenario = captured(base_of(GOLDEN / f"{case}.before.json.gz"))
    first = next(each for each in proposals(rule, scenario) if isinstance(each, Edit))
    after = apply(first, scenario)
    assert first.title not in {e.title for e in proposals(rule, after) if isinstance(e, Edit) and len(e.rows)} or (
        rule == "pageable_copy"  # copies stay copies; the plan takes each change once
    )


def test_tf32_is_of_no_use_after_mixed_precision():
    scenario = captured(base_of(GOLDEN / "mixed.before.json.gz"))
    (amp,) = proposals("amp", scenario)
    assert reason("tf32", apply(amp, scenario)).startswith("no product in fp32")


def test_alignment_matters_after_mixed_precision():
    """A product over 50257 columns in fp32 is as slow as others; in bf16 it is not, and padding is worth it then."""
    scenario = captured(base_of(GOLDEN / "lm_head.before.json.gz"))
    assert isinstance(proposals("alignment", scenario)[0], Edit)  # it is bf16 already
    assert reason("amp", scenario) == "the run has products in half precision already"


def test_fused_attention_in_float32_with_large_heads_is_not_proposed(tmp_path):
    """Heads of 72 took 167 ms fused, in place of 124 (a diffusion transformer on an H200)."""
    scenario = captured(base(tmp_path, *attention_events(72)))
    assert "heads of 72" in reason("attention", scenario)


def attention_events(head):
    """µs: product, softmax, product over 16 × 512 × 512 scores in float32."""
    tokens, batch = 512, 16
    q, k, s = [batch, tokens, head], [batch, head, tokens], [batch, tokens, tokens]
    events = []
    for number, (name, dims) in enumerate([("bmm", [q, k]), ("_softmax", [s, [], []]), ("bmm", [s, q])]):
        types = ["float" if d else "" for d in dims]
        at = 100 * (number + 1)
        events += [
            op(f"aten::{name}", at, 20, Input_Dims=dims, Input_type=types, Sequence_number=number),
            call(at + 5, number + 1),
            kernel(at + 12, 60, number + 1, name="void sgemm" if name == "bmm" else "void softmax_warp_forward"),
        ]
    return events


@pytest.mark.parametrize(("sums", "ns", "rows"), [([], 92_930, 3), (["sum"], 107_730, 3)])
def test_a_mask_with_a_gradient_leaves_a_slower_kernel_and_its_sums(sums, ns, rows):
    """Backward in float32 over 8 × 8 heads of 256 × 64: 4 × 2.5 × 8 × 8 × 256² × 64 FLOP at 0.0634 × 256 / (256 + 16) ×
    494.7 TFLOP/s are 90.9 µs, and at 0.86 of this rate 105.7; 2 µs besides."""
    q, k, s = [64, 256, 64], [64, 64, 256], [64, 256, 256]
    four = [8, 8, 256, 256]
    calls = [
        ("bmm", [q, k]),
        ("_softmax_backward_data", [four, four]),
        *((name, [four]) for name in sums),
        ("bmm", [s, q]),
    ]
    run = advice_rows.run(*(
        {"aten": f"aten::{name}", "sizes": dims, "dtypes": ["float32"] * len(dims), "ns": 900_000, "phase": "backward",
         "dir": "bprop", "kShortName": "reduce_kernel" if name == "sum" else "sgemm" if name == "bmm" else "softmax"}
        for name, dims in calls
    ))  # fmt: skip
    (only,) = proposals("attention", SimpleNamespace(run=run))
    assert only.ns.sum() == pytest.approx(ns, rel=0.001)
    assert len(only.rows) == rows


@pytest.mark.parametrize(("dtype", "ns"), [("float32", 47_490), ("bfloat16", 9_588)])
def test_dropout_takes_a_fused_kernel_longer(dtype, ns):
    """Forward over 64 × 256² scores at heads of 64: 1.0737e9 FLOP at 0.0667 × 256 / (256 + 16) × 0.76 × 494.7e12/s are
    45.49 µs, at 0.443 × 256 / (256 + 85) × 0.43 × 989.4e12/s 7.588 µs; 2 µs besides."""
    q, k, s = [64, 256, 64], [64, 64, 256], [64, 256, 256]
    calls = [("bmm", [q, k]), ("_softmax", [s]), ("native_dropout", [s]), ("bmm", [s, q])]
    run = advice_rows.run(*(
        {"aten": f"aten::{name}", "sizes": dims, "dtypes": [dtype] * len(dims), "ns": 900_000, "phase": "forward",
         "dir": "fprop", "kShortName": {"bmm": "sgemm"}.get(name, "elementwise_kernel")}
        for name, dims in calls
    ))  # fmt: skip
    (only,) = proposals("attention", SimpleNamespace(run=run))
    assert only.ns.sum() == pytest.approx(ns, rel=0.001)


def test_copies_of_the_same_pass_go_with_attention():
    """A copy of an operand before the products goes; the same copy after them is one of the backward pass and stays."""
    q, k, s = [64, 256, 64], [64, 64, 256], [64, 256, 256]
    calls = [("copy_", [q, q]), ("bmm", [q, k]), ("_softmax", [s]), ("bmm", [s, q]), ("copy_", [q, q])]
    rows = [
        {"aten": f"aten::{name}", "sizes": dims, "dtypes": ["float32"] * len(dims), "ns": 900_000, "dir": "fprop",
         "kShortName": {"bmm": "sgemm"}.get(name, "elementwise_kernel"), "phase": "forward"}
        for name, dims in calls
    ]  # fmt: skip
    rows[-1].update(phase="backward", dir="bprop")
    (only,) = proposals("attention", SimpleNamespace(run=advice_rows.run(*rows)))
    assert only.rows.tolist() == [0, 1, 2, 3]


def test_expected_durations_are_off_by_less_than_a_factor():
    """As standard deviations of logarithms: with half, two of three lie between 0.6 and 1.65 times what is expected."""
    assert all(0.05 <= deviation <= 0.5 for deviation in DEVIATIONS.values())


@pytest.mark.parametrize(("launches", "left", "added"), [(1, 0.75, 0), (4, 0, 0), (9, 0, 0), (-2, 1, 0.5)])
def test_the_launches_of_a_finding_are_spread_over_its_kernels(launches, left, added):
    """One launch fewer of four leaves three quarters of each; two more are a half for each."""
    finding = Finding(np.arange(5), np.array([9.0, 9, 9, 9, 0]), "", "Change it.", launches=launches)
    edit = edit_of(advice_rows.run(*[{"aten": "aten::fill_", "ns": 10}] * 5), "zero_grad", finding, 0.1)
    assert edit.rows.tolist() == [0, 1, 2, 3]  # the last one is only mentioned
    assert (edit.ns.tolist(), edit.left.tolist(), edit.added.tolist()) == ([1] * 4, [left] * 4, [added] * 4)


def test_a_step_that_reads_values_cannot_be_a_graph_before_they_go():
    scenario = captured(base_of(GOLDEN / "checked.before.json.gz"))
    (only,) = proposals("cuda_graph", scenario)
    assert isinstance(only, Abstained) and only.needs == "item"


def test_memory_given_back_in_each_step(tmp_path):
    """µs: cudaFree waits for the kernel until 510, cudaMalloc takes 90. Without both, the host is far ahead."""
    free = x("cuda_runtime", "cudaFree", 20, 493, MAIN, correlation=2)
    taken = x("cuda_runtime", "cudaMalloc", 520, 90, MAIN, correlation=3)
    events = call(0, 1), kernel(10, 500, 1), free, taken, call(620, 4), kernel(630, 7, 4)
    scenario = captured(base(tmp_path, *events, x("user_annotation", "ProfilerStep#1", -5, 700, MAIN)))
    (only,) = proposals("allocator", scenario)
    after = apply(only, scenario)
    assert scenario.step_ns(1.0, np.zeros(0)) == 627_000
    # the second kernel follows the first one: 500, a gap of 1.1, 7
    assert after.step_ns(1.0, np.ones(1)) == 508_100


def test_without_steps_memory_may_be_taken_for_the_first_time(tmp_path):
    """A program that begins frees and allocates as well: cuDNN's autotuning, the first batch."""
    free, taken = (x("cuda_runtime", f"cuda{name}", at, 90, MAIN) for name, at in (("Free", 20), ("Malloc", 120)))
    (only,) = proposals("allocator", captured(base(tmp_path, call(0, 1), kernel(10, 500, 1), free, taken)))
    assert isinstance(only, Abstained) and "without marked steps" in only.why


def test_a_copy_that_the_program_makes_is_no_op_with_a_size_that_depends_on_data(tmp_path):
    """tensor.cpu() of 8 bytes: no mask is to blame."""
    copy = x("cuda_runtime", "cudaMemcpyAsync", 20, 497, MAIN, correlation=2)
    moved = kernel(511, 2, 2, name="Memcpy DtoH (Device -> Pageable)", bytes=8) | {"cat": "gpu_memcpy"}
    run = base(tmp_path, op("aten::_to_copy", 12, 515), op("aten::copy_", 15, 510), call(0, 1), kernel(10, 500, 1),
               copy, moved, call(540, 3), kernel(550, 7, 3))  # fmt: skip
    (only,) = proposals("size_sync", captured(run))
    assert only.title == "Do not wait for small copies to the host within the step"
    form = next(form for form in GENERAL if form.rule == "size_sync")
    assert only.change.startswith(form.words) and form.before.startswith("values = tensor.cpu()")


def test_sizes_that_the_host_asks_for(tmp_path):
    """µs: a copy of 8 bytes waits for a kernel until 510 and ends at 515; the next launch is at 540.

    Without the copy and its wait, the second kernel follows the first one, which begins at 10: 500, a gap of 1.1, 7.
    """
    copy = x("cuda_runtime", "cudaMemcpyAsync", 20, 497, MAIN, correlation=2)
    moved = kernel(511, 2, 2, name="Memcpy DtoH (Device -> Pageable)", bytes=8)
    moved["cat"] = "gpu_memcpy"
    ops = [op("aten::nonzero", 15, 510), op("aten::mul", 535, 20)]
    run = base(tmp_path, *ops, call(0, 1), kernel(10, 500, 1), copy, moved, call(540, 3), kernel(550, 7, 3))
    scenario = captured(run)
    assert scenario.step_ns(1.0, np.zeros(0)) == pytest.approx(547_000, abs=200)
    (only,) = proposals("size_sync", scenario)
    assert "nonzero" in only.why
    assert apply(only, scenario).step_ns(1.0, np.ones(1)) == 508_100


def test_pytorchs_own_function_in_place_of_its_formula_compiles_nothing():
    """GPT-2 has GELU as a formula: F.gelu is one kernel of PyTorch's. Other chains need a compiler."""
    found = proposals("fusion", captured(base_of(GOLDEN.parent / "h200_gpt2_bf16.json.gz")))
    compiled = {
        each.title.startswith("Call F.gelu"): "to compile" in each.cost for each in found if isinstance(each, Edit)
    }
    assert compiled == {True: False, False: True}


@pytest.mark.parametrize("fill", ["masked_fill_", "masked_fill"])
def test_a_decoder_s_masked_attention_is_one_launch_and_what_the_mask_costs(fill, tmp_path):
    """128 queries of one place over 136: too few scores for a card, but eight launches."""
    q, k, s, mask = [128, 1, 64], [128, 64, 136], [8, 16, 1, 136], [1, 136]
    calls = [
        ("bmm", [q, k]), ("div", [s, []]), ("bitwise_not", [mask]), (fill, [s, mask, []]), ("add", [s, s]),
        ("_softmax", [s, [], []]), ("bmm", [[128, 1, 136], [128, 136, 64]]),
    ]  # fmt: skip
    events = []
    for number, (name, dims) in enumerate(calls):
        types = ["float" if d else "" for d in dims]
        at = 100 * (number + 1)
        kind = {"bmm": "void sgemm", "_softmax": "void softmax_warp_forward"}.get(name, "void elementwise_kernel")
        events.append(op(f"aten::{name}", at, 20, Input_Dims=dims, Input_type=types, Sequence_number=number))
        events += [call(at + 5, number + 1), kernel(at + 12, 30, number + 1, name=kind, device=0)]
    gpu = {"id": 0, "name": advice_rows.H200, "computeMajor": 9, "computeMinor": 0}
    (only,) = proposals("attention", captured(base(tmp_path, *events, deviceProperties=[gpu])))
    assert isinstance(only, Edit)
    assert len(only.rows) == 7 and only.left.sum() == 1 and only.added.sum() == 3


def test_a_removed_bias_takes_its_part_of_loops_over_parameters_along():
    """Three tensors of 64: a bias, and a norm's weight and bias. Of each line's three ops, one goes."""
    loop = [
        {"aten": f"aten::{name}", "sizes": [[64], []], "dtypes": ["float32", ""], "ns": 2_000, "phase": phase,
         "kShortName": "elementwise_kernel", "trace": [f"train.py:{line}"], "step": 1}
        for name, phase, line in (("zero_", "forward", 5), ("add_", "backward", 0), ("mul_", "optimizer", 9))
        for _ in range(3)
    ]  # fmt: skip
    rows = [{**row, "step": 1} for row in (test_layout.conv(), test_layout.bias(), test_layout.NORM, test_layout.SUM)]
    run = advice_rows.run(*rows, *loop)
    (whole,) = RULES["conv_bias"](run)
    assert len(whole.rows) == 2 + 3
    assert sorted(str(run.aten[row]) for row in whole.rows[2:]) == ["add_", "mul_", "zero_"]
    assert whole.saved_ns[2:].tolist() == [2_000] * 3 and whole.launches == 5


def test_a_convolution_s_bias_is_cast_as_its_weight_is():
    conv = {
        "aten": "aten::cudnn_convolution",
        "op": ["conv2d"],
        "ns": 100_000,
        "phase": "forward",
        "sizes": [[32, 64, 56, 56], [64, 64, 3, 3]],
        "dtypes": ["float32"] * 2,
        "kShortName": "implicit_sgemm",
    }
    bias = {"aten": "aten::add_", "op": ["conv2d"], "ns": 20_000, "phase": "forward", "dtypes": ["float32"] * 2,
            "sizes": [[32, 64, 56, 56], [1, 64, 1, 1]], "kShortName": "elementwise_kernel"}  # fmt: skip
    run = advice_rows.run(conv, bias)
    narrowed = np.array([True, False])
    assert Flow(run, narrowed).casts[0] == 3  # the input, the weight, the bias
    assert Flow(advice_rows.run(conv, {**bias, "op": ["add_"]}), narrowed).casts[0] == 2


def test_a_weight_is_cast_anew_after_each_backward_pass():
    """Autocast keeps its casts until it ends, and the backward pass runs outside of it."""
    forward = {
        "aten": "aten::addmm", "op": ["linear"], "ns": 100_000, "phase": "forward", "dtypes": ["float32"] * 3,
        "sizes": [[512], [4096, 256], [256, 512]], "kShortName": "sgemm", "layer": ["Net", "head"],
        "nodes": ["aten::linear", "aten::addmm"],
    }  # fmt: skip
    back = {**forward, "aten": "aten::mm", "phase": "backward", "dir": "bprop", "sizes": [[4096, 512], [512, 256]]}
    narrowed = np.array([True] * 3)
    twice = Flow(advice_rows.run(forward, forward, forward), narrowed)
    assert twice.casts.tolist() == [3, 0, 0]  # the input, the weight and the bias, all three kept
    again = Flow(advice_rows.run(forward, back, forward), narrowed)
    assert again.casts[2] == 2  # the weight and the bias


def test_convolutions_of_odd_channels_are_cast_as_well():
    """They gain nothing by it, but autocast does not know that."""
    image = {
        "aten": "aten::cudnn_convolution", "op": ["conv2d"], "ns": 100_000, "phase": "forward",
        "sizes": [[32, 3, 224, 224], [64, 3, 7, 7]], "dtypes": ["float32"] * 2, "kShortName": "implicit_sgemm",
    }  # fmt: skip
    flow = Flow(advice_rows.run(image), np.array([True]))
    assert flow.casts[0] == 2


def test_parameters_of_layers_that_become_one():
    """Three weights of one shape in an optimizer's loop: three kernels become one, as long as they were together."""
    made = advice_rows.run(*[updated([512, 512]) for _ in range(4)], updated([512]))
    counts = Counter({(int(made.table.ints("step")[0]), (512, 512)): 3})
    assert in_loops(made, counts) == [[0, 1, 2]]
    assert in_loops(made, Counter({(int(made.table.ints("step")[0]), (512, 512)): 5})) == []


def updated(shape):
    return {
        "aten": "aten::mul_", "op": ["AdamW.step", "mul_"], "ns": 3_000, "phase": "optimizer", "sizes": [shape, []],
        "dtypes": ["float32", ""], "kShortName": "elementwise_kernel", "trace": ["net.py:9"],
    }  # fmt: skip


def test_a_loop_that_reads_a_value_of_each_tensor_reads_none_afterwards():
    """A norm and .item() for each of 20 gradients: as one op on lists, the reads and their waits go."""
    each = [
        {"aten": "aten::linalg_vector_norm", "op": ["norm"], "ns": 5_000, "phase": "optimizer",
         "sizes": [[512, 512], []], "dtypes": ["float32", ""], "kShortName": "reduce_kernel", "trace": ["net.py:9"]},
        {"kind": "memcpy", "aten": "aten::_local_scalar_dense", "op": ["item"], "ns": 1_000, "phase": "optimizer",
         "sizes": [[]], "dtypes": ["float32"], "kShortName": "Memcpy DtoH", "trace": ["net.py:9"], "bytes": 4},
    ]  # fmt: skip
    made = advice_rows.run(*(each * 20))
    norms = np.arange(0, 40, 2)
    assert reads_of(made, norms).tolist() == list(range(1, 40, 2))
    assert reads_of(advice_rows.run(*(each * 10)), np.arange(0, 20, 2)).tolist() == []  # too few to be a loop


def test_a_loop_after_the_backward_pass_is_one_over_tensors_too():
    """Averages of the weights, which no optimizer makes: outside of layers, after the step's last gradient."""
    kept = {**updated([512, 512]), "op": ["mul"], "aten": "aten::mul", "phase": "forward", "layer": []}
    gradient = {**updated([512, 512]), "phase": "backward", "dir": "bprop"}
    assert behind(advice_rows.run(kept, gradient, kept, {**kept, "layer": ["Net", "head"]})).tolist() == [
        False, False, True, False
    ]  # fmt: skip


def test_a_loop_over_tensors_that_begins_a_step_ends_the_one_before():
    """Steps end with the optimizer's: averages of the weights come next, before the first layer. Inputs of one shape,
    which are worked on there, too, are no parameters."""
    kept = [{**updated([512, size]), "op": ["mul"], "aten": "aten::mul", "phase": "forward", "layer": []}
            for size in (1, 2, 3, 4)]  # fmt: skip
    picture = {**updated([3, 8, 8]), "op": ["mul"], "aten": "aten::mul", "phase": "forward", "trace": ["data.py:3"]}
    layer = {**kept[0], "layer": ["Net", "head"]}
    gradient = {**updated([512, 512]), "phase": "backward", "dir": "bprop"}
    found = behind(advice_rows.run(*kept, *([picture] * 4), layer, kept[0], gradient)).tolist()
    assert found == [True] * 4 + [False] * 7
    assert behind(advice_rows.run(*kept[:3], layer, gradient)).tolist() == [False] * 5


def test_a_loop_over_tensors_between_two_updates_of_a_step_is_behind_the_first():
    """Several updates make a step: target networks follow after each optimizer, before the next update's layers. What
    follows these layers, a gradient, or works on tensors of one shape is no such loop."""
    kept = [{**updated([512, size]), "op": ["mul"], "aten": "aten::mul", "phase": "forward", "layer": []}
            for size in (1, 2, 3, 4)]  # fmt: skip
    layer = {**kept[0], "layer": ["Net", "head"]}
    gradient = {**updated([512, 512]), "phase": "backward", "dir": "bprop"}
    update = [layer, gradient, updated([512, 512])]
    found = behind(advice_rows.run(*update, *kept, layer, *kept, gradient)).tolist()
    assert found == [False] * 3 + [True] * 4 + [False] * 6
    assert not behind(advice_rows.run(*update, *([kept[0]] * 4), layer, gradient)).any()  # metrics of one shape
    assert not behind(advice_rows.run(*update[:2], *kept, layer, gradient)).any()


AGAIN = {"phase": "backward", "dir": "fprop"}


def test_what_checkpointing_runs_again_goes_with_its_launches():
    """Two products forward, one of them again in the backward pass, and the gradients: 50 µs go."""
    forward = advice_rows.mm(64, 64, 64, 50_000), advice_rows.mm(64, 128, 64, 70_000)
    gradient = advice_rows.mm(64, 64, 64, 90_000, phase="backward", dir="bprop")
    (edit,) = proposals("kept_activations", of_rows(*forward, {**forward[0], **AGAIN}, gradient))
    assert (edit.rows.tolist(), edit.ns.tolist(), edit.left.tolist()) == ([2], [0], [0])


def test_gradients_of_gradients_are_nothing_that_runs_again():
    """Their ops are recorded for autograd in the backward pass, as those of checkpointing are, but are others."""
    forward, other = advice_rows.mm(64, 64, 64, 50_000), advice_rows.mm(64, 32, 64, 50_000)
    why = reason("kept_activations", of_rows(forward, {**other, **AGAIN}))
    assert why == "forward ops in the backward pass are not those of the forward pass"
    assert reason("kept_activations", of_rows(forward)) == "nothing runs again in the backward pass"


def test_a_large_copy_to_pageable_memory_of_the_host():
    """100 MB in 70 ms; pinned memory takes 2 ms at 50 GB/s, and 2 µs. Small copies and those to pinned memory stay."""
    copy = {"kind": "memcpy", "kShortName": "Memcpy DtoH (Device -> Pageable)", "bytes": 100_000_000, "ns": 70_000_000}
    small, pinned = {**copy, "bytes": 1000}, {**copy, "kShortName": "Memcpy DtoH (Device -> Pinned)"}
    (edit,) = proposals("copy_to_host", of_rows(copy, small, pinned))
    assert (edit.rows.tolist(), edit.ns.tolist(), edit.left.tolist()) == ([0], [2_002_000], [1])


def test_without_shapes_names_tell_with_half_of_the_gain():
    """TF32 by the kernels' names: test_precision has the arithmetic."""
    rows = [advice_rows.mm(4096, 4096, 4096, 2_678_000, "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n", "float32")]
    bare = {**rows[0], "sizes": None, "dtypes": None, "strides": None}
    scenario = SimpleNamespace(run=advice_rows.run(bare), edits=())
    (edit,) = proposals("tf32", scenario)
    assert edit.ns[0] == pytest.approx(672_300, rel=0.001) and edit.deviation == 0.5 and edit.left.tolist() == [1]
    assert "no shapes" in reason("attention", scenario)
