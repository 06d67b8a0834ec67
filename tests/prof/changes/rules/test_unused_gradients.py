"""Gradients that nothing uses, from literal rows: which of them go, and where nothing is said."""

from typing import Any

import pytest

from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal
from pyprof.prof.changes.rules import EDIT_RULES
from tests.prof.changes.effect.test_scenario import of_rows
from tests.prof.changes.rules.advice_rows import mm

BATCH, WIDTH = 64, 128
Row = dict[str, Any]


def gradient(layer: str, number: int, leaves: bool = True, aten: str = "") -> list[Row]:
    """The backward rows of a linear layer: its input's gradient, if that is needed, and its weight's."""
    more = {"nodes": ["AddmmBackward0", "aten::mm"], "phase": "backward", "dir": "bprop"}
    more |= {"seqId": [number], "layer": ["Net", layer]}
    inputs = [mm(BATCH, WIDTH, WIDTH, 5_000, **more)] if leaves else []
    return [*inputs, mm(WIDTH, BATCH, WIDTH, 7_000, **more)]


def activation(number: int) -> Row:
    return {
        "aten": "aten::threshold_backward", "sizes": [[BATCH, WIDTH], [BATCH, WIDTH], []], "ns": 2_000,
        "nodes": ["ReluBackward0", "aten::threshold_backward"], "phase": "backward", "dir": "bprop", "seqId": [number],
        "layer": ["Net"],
    }  # fmt: skip


def added(outer: str = "torch::autograd::AccumulateGrad") -> Row:
    """A weight's gradient is added: to one that is there, or, by autograd itself, to that of another call."""
    shape = [WIDTH, WIDTH]
    nodes = [outer, "aten::add_"] if outer else ["aten::add_"]
    return {"aten": "aten::add_", "sizes": [shape, shape, []], "ns": 1_000, "nodes": nodes, "phase": "backward"}


def step(number: int, *rows: Row | list[Row], end: bool = True) -> list[Row]:
    flat = [row for part in rows for row in (part if isinstance(part, list) else [part])]
    update = {"aten": "aten::_fused_adamw_", "sizes": [[]], "ns": 3_000, "phase": "optimizer"}
    return [{**row, "step": number} for row in ([*flat, update] if end else flat)]


def two(*rows: Row | list[Row], first: int = 0) -> list[Row]:
    return [*step(first, *rows), *step(first + 1, *rows)]


def only(*rows: Row) -> Proposal:
    (found,) = EDIT_RULES["unused_gradients"](of_rows(*rows))
    return found


def removed(found: Proposal) -> list[int]:
    assert isinstance(found, Edit)
    assert not found.ns.any() and not found.left.any()
    return [int(row) for row in found.rows]


def test_a_teacher_whose_input_needs_no_gradient_goes_as_a_whole() -> None:
    """Backward: loss, teacher's second and first layer, then the student's, whose gradients are set and not added."""
    rows = [activation(9), gradient("late", 8), added(), activation(7), gradient("early", 6, leaves=False), added()]
    student = [*gradient("two", 4), activation(3), *gradient("one", 2, leaves=False)]
    # of 11 rows and the optimizer's per step: 1 to 6, all but the loss and the student
    assert removed(only(*two(*rows, student))) == [1, 2, 3, 4, 5, 6, 13, 14, 15, 16, 17, 18]


def test_where_gradients_pass_through_only_those_of_weights_go() -> None:
    """A frozen network that judges what a trained one makes: both layers hand gradients on."""
    rows = [gradient("late", 8), added(), activation(7), gradient("early", 6), added(), gradient("own", 2, False)]
    # per step: input, weight, add, activation, input, weight, add, the trained weight, the optimizer
    assert removed(only(*two(*rows))) == [1, 2, 5, 6, 10, 11, 14, 15]


def test_a_second_call_of_the_same_layers_is_known_by_autograds_sums() -> None:
    """The weight's gradients of both calls are summed, then added. The call with the higher number passes through."""
    again, sums = gradient("judge", 8), added("")
    rows = [again, gradient("judge", 6, leaves=False), sums, added(), gradient("own", 2, leaves=False)]
    # per step: input and weight of the one, weight of the other, the sum, the addition, own weight, optimizer
    assert removed(only(*two(*rows))) == [1, 2, 4, 8, 9, 11]


def test_two_networks_of_one_class_are_not_one() -> None:
    """Student and teacher have equal layers, but no gradient of theirs is summed."""
    rows = [gradient("head", 8, leaves=False), added(), gradient("head", 2, leaves=False)]
    assert removed(only(*two(*rows))) == [0, 1, 4, 5]


def test_what_a_norm_had_before_in_the_step_is_accumulated() -> None:
    """A trained norm gets gradients in both backward passes; a frozen judge in the second one alone."""
    norm = {
        "aten": "aten::native_layer_norm_backward", "sizes": [[BATCH, WIDTH]], "ns": 2_000, "phase": "backward",
        "nodes": ["NativeLayerNormBackward0"], "seqId": [4], "layer": ["Net", "norm"],
    }  # fmt: skip
    forward = {"aten": "aten::mm", "phase": "forward", "sizes": [[2, 2]], "ns": 9}
    judge = gradient("judge", 8, leaves=False)
    rows = [gradient("own", 2, False), norm, forward, judge, added(), norm, added()]
    assert removed(only(*two(*rows))) == [3, 4, 11, 12]


def _marked_between(number: int) -> list[Row]:
    """A mark between two parts of a batch: a gradient is added, the optimizer steps, and the next one is set."""
    one, two_ = gradient("one", 2, leaves=False), gradient("two", 6, leaves=False)
    return [*step(number, one, added(), two_), *step(number, one, two_, end=False)]


ACCUMULATED = [gradient("one", 2, leaves=False), {"aten": "aten::mm", "phase": "forward", "sizes": [[2, 2]], "ns": 9}]
FILL = {"aten": "aten::zero_", "sizes": [[WIDTH, WIDTH]], "ns": 1_000, "phase": "optimizer"}
FROZEN = [gradient("late", 8, leaves=False), added(), gradient("own", 2, leaves=False)]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (two(gradient("one", 2, leaves=False)), "no gradient is added"),
        (two(*ACCUMULATED, gradient("one", 6, leaves=False), added()), "they are accumulated"),
        (two(FILL, *FROZEN), "filled with zeros"),
        (step(0, *FROZEN), "fewer than two steps"),
        (two(gradient("one", 2, leaves=False), added()), "as if none was ever cleared"),
        ([*step(0, *FROZEN), *step(1, *FROZEN), *step(2, *FROZEN, end=False)], "no optimizer"),
        ([row for number in range(3) for row in _marked_between(number)], "in some steps"),
        ([*step(0, *FROZEN), *step(1, gradient("own", 2, leaves=False))], "in some steps"),
    ],
)
def test_it_abstains_where_it_is_not_known(rows: list[Row], why: str) -> None:
    found = only(*rows)
    assert isinstance(found, Abstained)
    assert why in found.why
