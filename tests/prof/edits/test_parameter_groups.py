"""Optimizers that run their ops on lists once for each of many groups of parameters."""

import json

import pytest

from pyprof.prof.edits.edit import Abstained, Edit
from pyprof.prof.edits.rules import EDIT_RULES
from tests.prof.edits.test_scenario import of_rows

SIDE = 1024  # each tensor has 1024² float32 values, 4.19 MB


def proposals(*rows):
    return list(EDIT_RULES["parameter_groups"](of_rows(*rows)))


def on_lists(name, number, lists=2, tensors=1, argument="", **more):
    return {
        "aten": f"aten::_foreach_{name}", "op": ["SGD.step", f"_foreach_{name}"], "opId": number, "ns": 20_000,
        "sizes": [[[SIDE, SIDE]] * tensors] * lists + [[]], "dtypes": [["float32"] * tensors] * lists + [""],
        "args": [""] * lists + [argument], "kShortName": "multi_tensor_apply_kernel", "phase": "optimizer", "step": 1,
        "trace": ["train.py:9"], **more,
    }  # fmt: skip


def momentum(groups, rate=lambda group: "-0.1", **more):
    """SGD with momentum: of each group the momentum's decay, the gradient added to it, and it to the parameter."""
    rows = []
    for group in range(groups):
        calls = [("mul_", 1, "0.9"), ("add_", 2, "1"), ("add_", 2, rate(group))]
        rows += [on_lists(name, 3 * group + n, lists, argument=a, **more) for n, (name, lists, a) in enumerate(calls)]
    return rows


def test_ten_groups_of_one_tensor_are_one_group():
    """Ten lists of one tensor of 1024² become one list of ten, 10 × 1024² = 10.5 M of the 21 M elements of a launch.

    mul_ moves 8 bytes per element, each add_ 12: 84, 126 and 126 MB, at 0.85 × 4.8e12/s 20.6, 30.8 and 30.8 µs, and
    2 µs for each launch.
    """
    (edit,) = proposals(*momentum(10))
    assert isinstance(edit, Edit)
    assert edit.left.tolist() == [1.0] * 3 + [0.0] * 27
    assert edit.ns[:3].tolist() == pytest.approx([22_560, 32_840, 32_840], rel=0.001)
    assert edit.ns[3:].sum() == 0
    # what the host does for each of nine more tensors comes before the first op
    assert edit.added.tolist() == [9.0] + [0.0] * 29
    assert edit.why == (
        "The optimizer runs its ops on lists for 10 groups one after the other, 30 launches per step; by the numbers "
        "that the ops get, 1 would do, with 3 launches. What the host does for each tensor remains"
    )


def test_groups_with_other_learning_rates_stay_apart():
    """Two rates, each of five groups: two groups remain, with three launches each."""
    (edit,) = proposals(*momentum(10, lambda group: "-0.1" if group % 2 else "-0.2"))
    assert edit.left.sum() == 6
    assert "2 would do" in edit.why and sorted(edit.added[edit.added > 0]) == [4, 4]


def test_a_learning_rate_for_each_layer_is_no_fault():
    (only,) = proposals(*momentum(10, lambda group: f"-0.{group + 1}"))
    assert isinstance(only, Abstained)
    assert only.why == "the optimizer's groups differ in the numbers that their ops get, such as learning rates"


def test_numbers_of_each_tensor_are_compared_without_their_number():
    """Groups of one and of two tensors: [-0.1] and [-0.1, -0.1] are the same rate."""
    rows = [on_lists("add_", n, tensors=1 + n % 2, argument=json.dumps([-0.1] * (1 + n % 2))) for n in range(8)]
    (edit,) = proposals(*rows)
    assert edit.left.sum() == 1 and edit.added[0] == 11  # 4 × 1 + 4 × 2 tensors, less the first call's one


def test_without_recorded_numbers_the_groups_may_have_options_of_their_own():
    (edit,) = proposals(*({**row, "args": None} for row in momentum(10)))
    assert "; if none has options of its own, which this capture does not tell, 1 would do, with 3" in edit.why


ABSTAINS = {
    "an op that is no list of names": (
        [{**row, "op": {"AdamW.step": 1}} for row in momentum(10)],
        "no optimizer runs its ops on lists for 8 groups or more",
    ),
    "few groups": (momentum(7), "no optimizer runs its ops on lists for 8 groups or more"),
    "clipping group by group": (
        [{**row, "op": ["clip_grad_norm_", "_foreach_mul_"]} for row in momentum(10)],
        "no optimizer runs its ops on lists for 8 groups or more",
    ),
    "a user's own optimizer": (
        [{**row, "op": ["Lamb.step", "_foreach_mul_"]} for row in momentum(10)],
        "no optimizer runs its ops on lists for 8 groups or more",
    ),
    "lists that are left out": (
        [{**row, "sizes": [[], [], []]} for row in momentum(10)],
        "the capture does not have the lists of the optimizer's groups",
    ),
    "ten steps": (
        [{**row, "step": number // 3} for number, row in enumerate(momentum(10))],
        "no optimizer runs its ops on lists for 8 groups or more",
    ),
    "ten optimizers of a program's own lines": (
        [{**row, "trace": [f"train.py:{number // 3}"]} for number, row in enumerate(momentum(10))],
        "no optimizer runs its ops on lists for 8 groups or more",
    ),
}


@pytest.mark.parametrize("case", ABSTAINS)
def test_it_says_nothing_of(case):
    rows, why = ABSTAINS[case]
    (only,) = proposals(*rows)
    assert isinstance(only, Abstained) and only.why == why


def test_one_list_of_many_tensors_is_one_group():
    """A list of 200 tensors has seven launches for each op, and no other group."""
    rows = [on_lists("add_", 0, tensors=30) for _ in range(7)]
    (only,) = proposals(*rows)
    assert isinstance(only, Abstained)


def test_lists_that_need_several_launches_keep_them():
    """Nine lists of 30 tensors of 1024²: 270 tensors in nine launches of 30, 283 M elements in 13 of 21 M."""
    rows = [on_lists("add_", number // 2, tensors=30) for number in range(18)]
    (edit,) = proposals(*rows)
    assert edit.left.sum() == 18  # ceil(270 / 30) + 283,115,520 // 20,971,520 = 9 + 13, but no more than there are
