"""Calls of one module that could be one call, from literal rows."""

from pathlib import Path

import numpy as np
import pytest

from pyprof.prof.edits.edit import Abstained
from pyprof.prof.edits.rules import EDIT_RULES
from pyprof.prof.edits.scenario import apply, captured
from tests.prof.advice.advice_rows import mm
from tests.prof.edits.test_scenario import of_rows
from tools.plan_pairs import base_of

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "plan"
ROWS, WIDTH = 4096, 1024
WHOLE = [ROWS, WIDTH]


def op(name, *shapes, ns=10_000, layer=(), dtype="bfloat16", **more):
    return {
        "aten": f"aten::{name}", "op": [name], "sizes": [*shapes], "dtypes": [dtype] * len(shapes), "ns": ns,
        "phase": "forward", "dir": "fprop", "kShortName": name, "layer": [*layer], "step": 1, **more,
    }  # fmt: skip


def call(*layer, width=WIDTH, number=None, into=WIDTH):
    """A call of a module: three products, of which the last one's result has this width."""
    layer = layer or ("Net",)
    numbers = [None] * 4 if number is None else [[number + at] for at in range(4)]
    return [
        mm(ROWS, into, WIDTH, 30_000, op=["linear"], layer=[*layer, "a"], step=1, seqId=numbers[0]),
        op("relu", WHOLE, layer=layer, seqId=numbers[1]),
        mm(ROWS, WIDTH, WIDTH, 30_000, op=["linear"], layer=[*layer, "b"], step=1, seqId=numbers[2]),
        mm(ROWS, WIDTH, width, 30_000, op=["linear"], layer=[*layer, "c"], step=1, seqId=numbers[3]),
    ]


GUIDANCE = [op("sub", WHOLE, WHOLE), op("mul", WHOLE, []), op("add", WHOLE, WHOLE)]
SAMPLER = [op("mul", WHOLE, []), op("add", WHOLE, WHOLE)]


def proposed(*rows):
    (only,) = EDIT_RULES["joined_calls"](of_rows(*rows))
    return only


def test_two_calls_for_guidance_are_one():
    """Eight kernels become four. A product of 2 * 4096 * 1024 * 1024 = 8.6 GFLOP takes 30 µs; the formula of a product
    on an H200 gives 5 + 8.6 / (0.82 * 990) = 15.6 µs for one and 26.2 for both, so 30 * 26.2 / 15.6 = 50 µs. The relu
    of 10 µs becomes one of 20 less the 2 µs of a start. The inputs are put side by side in 2 µs, in front of the first
    product.
    """
    edit = proposed(*call(), *call(), *GUIDANCE, *SAMPLER)
    assert edit.rows.tolist() == list(range(8)) and edit.left.tolist() == [1.0] * 4 + [0.0] * 4
    assert edit.ns[4:].tolist() == [0.0] * 4 and edit.ns[1] == 18_000
    assert edit.ns[2] == pytest.approx(50_400, rel=0.03) and edit.ns[0] - edit.ns[2] == pytest.approx(2_000)
    assert edit.added.tolist() == [1.0] + [0.0] * 7
    assert "chunk(2)" in edit.change and "as in guidance" in edit.why


def test_results_may_be_cast_between_and_after_the_calls():
    cast = {**op("copy_", WHOLE, WHOLE), "dtypes": ["float32", "bfloat16"], "op": ["float"]}
    assert len(proposed(*call(), cast, *call(), cast, *GUIDANCE, *SAMPLER).rows) == 8


@pytest.mark.parametrize(
    "rows",
    [
        [*call(), *call()],  # model(model(x))
        [*call(), *SAMPLER, *call(), *SAMPLER],  # a sampler without guidance
        [*call(), *call(), *GUIDANCE],  # x + s * (model(model(x)) - x)
        [*call(), *call(), *GUIDANCE, op("normal_", WHOLE), *SAMPLER],  # the same with noise
        [*call(), *SAMPLER, *call(), *GUIDANCE, *SAMPLER],  # a step of two stages
        [*call(), *call(), *call(), *GUIDANCE, *SAMPLER],  # of three calls
        [*call(), *call(), *GUIDANCE, *call(), *call(), *GUIDANCE, *SAMPLER],  # the sample comes after one pair alone
        [*call(), op("_local_scalar_dense", []), *call(), *GUIDANCE, *SAMPLER],  # a value is read between them
        [*call(), *call(width=512), *GUIDANCE, *SAMPLER],  # other sizes
        [*call()[2:], *call()[2:], *GUIDANCE, *SAMPLER],  # two products: a layer, no model
    ],
)
def test_calls_that_may_need_each_other_stay(rows):
    assert isinstance(proposed(*rows), Abstained)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([*call(width=128), *call(width=128)], "without gradients"),
        ([*call("Twin", "encoder"), *call("Twin", "encoder")], "may take the result"),
        # memory of 16 rows: a part of the result of [4096, 128]
        (
            2 * [*call("Twin", "encoder", width=128), op("relu", [16, 128], layer=["Twin", "encoder"])],
            "may take the result",
        ),
        (5 * call("Twin", "encoder", width=128), "5 times in a row: a loop"),
        (2 * [op("lstm", [9, 9], layer=["Twin", "encoder"]), *call("Twin", "encoder", width=128)], "recurrent"),
        (
            2 * [op("cudnn_batch_norm", [9, 9], layer=["Twin", "encoder"]), *call("Twin", "encoder", width=128)],
            "batch norms in training",
        ),
        (
            2
            * [op("index_copy_", [9, 9], [9], [1, 9], layer=["Twin", "encoder"]), *call("Twin", "encoder", width=128)],
            "writes into a tensor",
        ),
        (
            [*call("Twin", "encoder", width=128), op("argmax", [ROWS, 128]), *call("Twin", "encoder", width=128)],
            "ops that may make the next call's input",
        ),
    ],
)
def test_why_it_abstains(rows, why):
    assert why in proposed(*rows).why


def back(number):
    layer = {"layer": ["Net", "c"], "phase": "backward", "dir": "bprop"}
    nodes = {"nodes": ["MmBackward0", "aten::mm"], "seqId": [number]}
    return op("mm", [WIDTH, ROWS], [ROWS, 128], ns=30_000, kShortName="sm80_xmma_gemm_bf16bf16", **layer, **nodes)


def summed(number):
    layer = {"layer": ["Net", "c"], "phase": "backward", "dir": "bprop"}
    return op("add_", [WIDTH, 128], [WIDTH, 128], seqId=[number], nodes=["aten::add_"], **layer)


SUMS = [summed(13), summed(13)]


def test_sums_of_weights_gradients_say_that_the_module_is_one_and_go():
    """In training, calls with numbers 10 to 13 and 20 to 23; each has one product backward."""
    forward = [*call(width=128, number=10), *call(width=128, number=20)]
    edit = proposed(*forward, back(23), back(13), *SUMS)
    assert edit.rows.tolist() == list(range(12))
    assert edit.left.tolist() == [1.0] * 4 + [0.0] * 4 + [0.0, 1.0, 0.0, 0.0]
    assert np.all(edit.ns[10:] == 0) and edit.ns[9] < 60_000
    assert "several modules" in proposed(*forward, back(23), back(13)).why  # a network and its target, or twins
    assert "different backward" in proposed(*forward, back(23), *SUMS).why  # one of them without gradients
    micro = [*forward[:4], back(13), *forward[4:], back(23)]  # gradients accumulated over two batches
    assert isinstance(proposed(*micro), Abstained)


def test_two_programs_that_call_a_model_twice():
    """Guidance, of which the second call goes: 967 kernels; it is still known after others have taken the formula away.

    The super-resolution looks at the true and at the made picture with one network.
    """
    start = captured(base_of(GOLDEN / "held7" / "dit.pyprof"))
    (edit,) = EDIT_RULES["joined_calls"](start)
    assert edit.left.sum() == 3 * 967 and len(edit.rows) == 2 * 3 * 967
    compiled = apply(next(iter(EDIT_RULES["compile"](start))), start)
    (again,) = EDIT_RULES["joined_calls"](compiled)
    assert again.key == edit.key and len(again.rows) < len(edit.rows)
    assert isinstance(next(iter(EDIT_RULES["joined_calls"](apply(edit, start)))), Abstained)
    (viewer,) = EDIT_RULES["joined_calls"](captured(base_of(GOLDEN / "held6" / "superres.pyprof")))
    assert viewer.change.startswith("Call Sequential once") and "backward passes" in viewer.why


@pytest.mark.parametrize("name", ["held6/policy", "held7/storyteller", "held10/distill", "held10/ppo"])
def test_words_steps_of_a_game_and_a_teacher_are_no_calls_to_be_joined(name):
    assert isinstance(next(iter(EDIT_RULES["joined_calls"](captured(base_of(GOLDEN / f"{name}.pyprof"))))), Abstained)
