"""A linear layer and its loss, called position by position, though their inputs do not depend on each other."""

import pytest

from pyprof.prof.edits.edit import Abstained, Edit
from pyprof.prof.edits.rules import EDIT_RULES
from tests.prof.edits.test_scenario import of_rows

BATCH, WIDTH, WORDS, TIMES = 32, 256, 8192, 10
STATE, WEIGHT, TURNED, LOGITS = [BATCH, WIDTH], [WORDS, WIDTH], [WIDTH, WORDS], [BATCH, WORDS]
HEAD, READ, CELL = ["model.py:9"], ["model.py:10"], ["model.py:5"]


def row(name, number, *dims, ns=5_000, line=HEAD, **more):
    kernel = "ampere_sgemm_128x64_tn" if name in ("mm", "addmm") else f"{name}_kernel"
    return {"aten": f"aten::{name}", "sizes": [list(each) for each in dims], "seqId": [number], "trace": line, "ns": ns,
            "dtypes": ["float32"] * len(dims), "phase": "forward", "dir": "fprop", "kShortName": kernel, "step": 1,
            **more}  # fmt: skip


def forward(place, product="mm"):
    """One position: the recurrence, the layer, its loss, and the loss's value read by the host."""
    first = 100 + 20 * place
    return [
        row(product, first, STATE, [WIDTH, WIDTH], line=CELL), row("tanh", first + 1, STATE, line=CELL),
        row("addmm", first + 10, [WORDS], STATE, TURNED, ns=20_000), row("_log_softmax", first + 11, LOGITS, [], []),
        row("nll_loss_forward", first + 12, LOGITS, [BATCH], []),
        row("_local_scalar_dense", first + 13, [], line=READ, kind="memcpy", phase="other"),
    ]  # fmt: skip


def backward(place, sums=True):
    first, back = 100 + 20 * place, {"phase": "backward", "dir": "bprop"}
    rows = [
        row("nll_loss_backward", first + 12, [], LOGITS, [BATCH], **back),
        row("_log_softmax_backward_data", first + 11, LOGITS, LOGITS, **back),
        row("mm", first + 10, LOGITS, WEIGHT, ns=20_000, **back),
        row("mm", first + 10, [WORDS, BATCH], STATE, ns=20_000, **back),
        row("tanh_backward", first + 1, STATE, STATE, line=CELL, **back),
        row("mm", first, STATE, [WIDTH, WIDTH], line=CELL, **back),
    ]
    if sums and place < TIMES - 1:
        rows.insert(4, row("add_", first + 9, WEIGHT, WEIGHT, nodes=["aten::add_"], **back))
    return rows


def loop(times=TIMES, sums=True):
    passes = [forward(place) for place in range(times)], [backward(place, sums) for place in reversed(range(times))]
    return [each for rows in passes for part in rows for each in part]


def proposal(*rows):
    (only,) = EDIT_RULES["loop_of_products"](of_rows(*rows))
    return only


def test_a_layer_and_its_loss_at_each_position_become_one_call_of_each():
    """Of ten positions one launch of each op remains; the recurrence, forward and backward, stays as it is."""
    run = of_rows(*loop()).run
    edit = proposal(*loop())
    assert isinstance(edit, Edit)
    left = [str(run.aten[row]) for row, left in zip(edit.rows.tolist(), edit.left.tolist(), strict=True) if left]
    assert sorted(left) == sorted([
        "addmm", "_log_softmax", "nll_loss_forward", "_local_scalar_dense", "nll_loss_backward",
        "_log_softmax_backward_data", "mm", "mm", "add_",
    ])  # fmt: skip
    assert len(edit.rows) == 10 * 8 + 9
    assert not {"tanh", "tanh_backward"} & set(run.aten[edit.rows])
    assert "calls _log_softmax" not in edit.why and "10 times, each time on 32 rows" in edit.why


def test_one_product_of_all_positions_takes_as_long_as_its_flops():
    """2 × 320 × 256 × 8192 FLOP at 0.82 × 67 TFLOP/s (fp32 of an H200) are 24.4 µs, and 5 µs besides; ten of 20 µs took
    200. The weight of 8.4 MB is read once: 19 MB in all, 4.7 µs at 0.85 × 4.8e12/s."""
    run, edit = of_rows(*loop()).run, proposal(*loop())
    ns = dict(zip(edit.rows.tolist(), edit.ns.tolist(), strict=True))
    assert sum(ns[row] for row in ns if run.aten[row] == "addmm") == pytest.approx(29_430, rel=0.001)


def changed(find, **more):
    return [{**each, **more} if find(each) else each for each in loop()]


def sampling(name):
    rows = loop()
    rows.insert(6, row(name, 119, LOGITS if name == "softmax" else [BATCH, 1], line=["model.py:11"]))
    return rows


NOT_ONE = "autograd does not add up gradients of one weight, so that the products may be of several layers"
ABSTAINS = {
    "seven positions": (loop(7), "no line computes a loss of classes 8 times or more within a step"),
    "a head for each task, each with a weight of its own": (loop(sums=False), NOT_ONE),
    "heads' gradients that are added to those of the step before": (
        changed(lambda each: each["aten"] == "aten::add_", nodes=["torch::autograd::AccumulateGrad", "aten::add_"]),
        NOT_ONE,
    ),
    "a word sampled for the next position": (
        sampling("multinomial"), "an op of the loop samples (multinomial, model.py:11)",
    ),
    "the likeliest word as the next input": (sampling("argmax"), "an op of the loop samples (argmax, model.py:11)"),
    "probabilities as the next input": (
        sampling("softmax"), "more than the loss may be made of the product's result (softmax, model.py:11)",
    ),
    "a piece of the result as the next input, by its gradient": (
        [*loop()[0:-30], row("fill_", 240, LOGITS, line=CELL, phase="backward", dir="bprop"), *loop()[-30:]],
        "more than the loss may be made of the product's result (fill_, model.py:5)",
    ),
    "a layer that may take its own result": (
        changed(lambda each: each["aten"] == "aten::addmm", sizes=[[WORDS], LOGITS, [WORDS, WORDS]]),
        "more than the loss may be made of the product's result (addmm, model.py:9)",
    ),
    "a loss of amounts": (
        changed(lambda each: each["aten"] == "aten::nll_loss_forward", aten="aten::mse_loss"),
        "no line computes a loss of classes 8 times or more within a step",
    ),
    "unknown sizes": (
        changed(lambda each: True, sizes=None), "the capture does not have the sizes of the losses in a loop",
    ),
    "losses without a layer": (
        [each for each in loop() if each["aten"] != "aten::addmm"],
        "before each loss of a loop, no product of one layer makes what the loss is computed from",
    ),
    "a backward pass for each position": (
        [each for place in range(TIMES) for each in (*forward(place), *backward(place))],
        "no line computes a loss of classes 8 times or more within a step",
    ),
    "one position per step": (
        [{**each, "step": (each["seqId"][0] - 100) // 20} for each in loop()],
        "no line computes a loss of classes 8 times or more within a step",
    ),
    "inference, which has no loss": (
        [each for place in range(TIMES) for each in forward(place)[:3]],
        "no line computes a loss of classes 8 times or more within a step",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ABSTAINS)
def test_it_says_nothing_of(case):
    rows, why = ABSTAINS[case]
    only = proposal(*rows)
    assert isinstance(only, Abstained) and only.why == why
