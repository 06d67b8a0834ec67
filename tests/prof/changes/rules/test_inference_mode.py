"""Programs without a backward pass that record autograd's graph all the same."""

import numpy as np
import pytest

from pyprof.prof.changes.effect.edit import Abstained, Edit
from pyprof.prof.changes.effect.scenario import apply, captured
from pyprof.prof.changes.rules import EDIT_RULES
from tests.parse.kineto.kineto_file import call, kernel, op, x
from tests.prof.changes.effect.test_scenario import base
from tools.plan_pairs import GOLDEN, base_of

OPS = 20  # per step, one every 50 µs


def proposal(scenario):
    (only,) = EDIT_RULES["inference_mode"](scenario)
    return only


def forward(number, name="add", steps=2, marked=True, around=""):
    """µs: two steps of 20 ops; ``number``: the sequence number of the op with an index, or of the one around it."""
    events = [
        x("user_annotation", f"ProfilerStep#{n}", 50 * OPS * n, 50 * OPS, layer=0)
        for n in range(steps if marked else 0)
    ]
    for index in range(OPS * steps):
        known = {} if number(index) is None else {"Sequence_number": number(index)}
        if around:
            events.append(op(around, 50 * index, 45, **known))
            known = {}
        events.append(op(f"aten::{name}", 50 * index + 1, 40, Input_Dims=[[8, 8]], Input_type=["float"], **known))
        events += [call(50 * index + 30, index + 1), kernel(50 * index + 40, 8, index + 1, name="void add_kernel")]
    return events


def test_the_nodes_that_a_forward_pass_records_are_counted_by_its_numbers(tmp_path):
    """Each op is followed by a view, so that two nodes are made from op to op: 19 × 2 in a step of 20 ops.

    A node takes the host 0.15 of what a small op does.
    """
    edit = proposal(captured(base(tmp_path, *forward(lambda index: 100 + 2 * index))))
    assert isinstance(edit, Edit)
    assert edit.added.tolist() == pytest.approx([-0.3] * 38)
    assert edit.left.tolist() == [1.0] * 38 and edit.ns.tolist() == [8_000.0] * 38
    assert "autograd records 38 nodes per step" in edit.why


def test_the_host_s_time_for_nodes_goes_but_never_more_than_it_took(tmp_path):
    """µs: 20 ops of 50, of which 38 nodes take 38 × 0.15 × 30 = 171 (an added op takes 30 at most)."""
    scenario = captured(base(tmp_path, *forward(lambda index: 100 + 2 * index)))
    edit = proposal(scenario)
    before, after = scenario.step_ns(1.0, np.zeros(0)), apply(edit, scenario).step_ns(1.0, np.ones(1))
    assert before - after == pytest.approx(171_000)


KEPT = "the numbers of autograd do not grow: nothing is recorded"
ABSTAINS = {
    "ops without numbers, as under no_grad": (
        forward(lambda index: None), "no op has a number of autograd's, as where it records none",
    ),
    "one number, as no input needs a gradient": (forward(lambda index: 100), KEPT),
    "numbers of casts, which autocast records of weights under no_grad": (
        forward(lambda index: 100 + index, "copy_"), KEPT,
    ),
    "an autograd.Function of the program, which has a number in any mode": (
        forward(lambda index: 100 + index, around="Scale"), KEPT,
    ),
    "no steps": (
        forward(lambda index: 100 + index, marked=False),
        "a backward pass may lie outside of the capture, which marks no whole steps",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ABSTAINS)
def test_it_says_nothing_of(case, tmp_path):
    events, why = ABSTAINS[case]
    only = proposal(captured(base(tmp_path, *events)))
    assert isinstance(only, Abstained) and only.why == why


def test_a_graph_s_work_may_be_a_backward_pass(tmp_path):
    launch = {**call(501, 99), "name": "cudaGraphLaunch"}
    events = [*forward(lambda index: 100 + index), launch, kernel(520, 8, 99, graph_id=3, graph_node_id=5)]
    only = proposal(captured(base(tmp_path, *events)))
    assert isinstance(only, Abstained) and only.why == "work that a CUDA graph launches may be a backward pass"


@pytest.mark.parametrize("name", ["autograd::engine::evaluate_function: AddBackward0", "Optimizer.step#SGD.step"])
def test_a_run_that_trains_needs_its_graph(name, tmp_path):
    """Even if it trains once, after the last of the steps."""
    at = 50 * OPS * 2 + 10
    cat = "cpu_op" if name.startswith("autograd") else "user_annotation"
    late = [x(cat, name, at, 60), op("aten::mul", at + 1, 40), call(at + 5, 99), kernel(at + 20, 8, 99)]
    only = proposal(captured(base(tmp_path, *forward(lambda index: 100 + index), *late)))
    assert isinstance(only, Abstained) and only.why == "the run has a backward pass or an optimizer"


@pytest.mark.parametrize("case", ["autocast_inference", "held_cell", "left_in_training", "held_norm"])
def test_inference_without_gradients_on_an_h200_is_not_accused(case):
    file = GOLDEN / f"{case}.before.json.gz"
    assert isinstance(proposal(captured(base_of(file))), Abstained)
