"""What a block holds, by phase and lifetime: two training steps on a clock, each rule with the case beside it."""

import pytest

from pyprof.prof.memory.categories import CATEGORIES, RULES, Passes, blocks_of
from pyprof.prof.memory.peak_content import peak_content
from pyprof.prof.memory.timeline import timelines
from tests.prof.memory.memory_rows import event, table

F, B, OPT = "forward", "backward", "optimizer"


def categories(*events, start=0, **every):
    found = table(*events, start=start, **every)
    (line,) = timelines(found)
    blocks = blocks_of(found, line)
    return dict(zip(found.ints("address")[blocks.row].tolist(), blocks.category.texts(), strict=True))


STEPS = (
    event(0, 400, 1, ""),  # the model is made: kept to the end
    event(1, 40, 2, F),  # a weight is initialised by an op
    event(2, 8, 3, F), event(3, -8, 3),  # freed before the backward pass
    event(10, 100, 10, F, "Net:h.0"),
    event(11, 16, 11, F, "Net:h.0"), event(12, -16, 11),
    event(13, 64, 12, F),  # cuBLAS's workspace: stays for ever
    event(20, 30, 20, B), event(21, 7, 21, B), event(22, -7, 21, B), event(23, -100, 10, B),  # the backward pass
    event(24, 32, 26, B),  # its workspace
    event(25, 5, 22, OPT), event(26, -5, 22, OPT), event(27, 60, 23, OPT),  # the optimizer's first step
    event(28, -30, 20, OPT),  # zero_grad
    event(40, 100, 40, F, "Net:h.0"), event(41, 9, 41, F),
    event(50, 30, 50, B), event(51, -100, 40, B), event(52, -30, 50, OPT),
    event(53, 3, 53, OPT), event(54, -3, 53, OPT),
    event(55, 12, 55, ""),
)  # fmt: skip


def test_two_steps_of_training():
    found = categories(*STEPS)
    assert found == {
        1: "parameters", 2: "parameters",  # before the first activation, and alive after the last backward pass
        3: "temporaries", 10: "activations", 11: "temporaries",
        12: "unknown",  # alive through the next forward pass, which no activation is
        20: "gradients", 21: "temporaries",
        26: "unknown",  # the others of its pass are freed by the end of the next one
        22: "temporaries", 23: "optimizer state",
        40: "activations",
        41: "activations",  # the last step's, still alive in the end: its loss, for example
        50: "gradients", 53: "temporaries", 55: "unknown",
    }  # fmt: skip


def test_gradients_that_are_never_freed_are_gradients():
    """zero_grad(set_to_none=False) keeps them."""
    found = categories(event(1, 8, 1, F), event(2, 5, 2, B), event(3, -8, 1, B), event(4, 8, 4, F), event(5, 6, 5, B))
    assert (found[2], found[5]) == ("gradients", "gradients")


def test_what_is_recomputed_in_the_backward_pass_is_an_activation():
    found = categories(event(1, 8, 1, F), event(2, 9, 2, B, dir="fprop"), event(3, -9, 2, B), event(4, -8, 1, B))
    assert found[2] == "activations"


def test_without_a_backward_pass_what_stays_is_unknown():
    found = categories(event(1, 8, 1, F), event(2, -8, 1, F), event(3, 9, 2, F), event(4, 7, 3, ""))
    assert found == {1: "temporaries", 2: "unknown", 3: "unknown"}


def test_an_evaluation_before_a_step_saves_nothing():
    found = categories(event(1, 8, 1, F), event(2, -8, 1), event(3, 8, 2, F), event(9, 1, 9, B), event(10, -8, 2, B))
    assert (found[1], found[2]) == ("temporaries", "activations")


def test_what_the_capture_says_counts():
    found = categories(
        event(0, 99, 7, level="before", category="parameters"),
        event(0, 11, 8, level="before"),
        event(1, 8, 1, F, category="buffers"),
        start=200,
    )
    assert found == {7: "parameters", 8: "before the capture", 1: "buffers"}


def test_the_rest_of_the_total_is_from_before_the_capture():
    found = table(
        event(0, 60, 7, level="before", category="parameters"), event(1, 8, 1, F), event(2, 3, 2, B), start=100
    )
    (line,) = timelines(found)
    content = peak_content(found, line, blocks_of(found, line))
    assert {each.name: (each.nbytes, each.blocks) for each in content.categories} == {
        "parameters": (60, 1), "activations": (8, 1), "gradients": (3, 1),
        "before the capture": (40, None),  # 100 in use before, of which 60 are known
    }  # fmt: skip
    assert sum(each.nbytes for each in content.categories) == 111 == line.peak.nbytes
    assert sum(each.nbytes for each in content.layers) == 111 == sum(each.nbytes for each in content.lines)


def test_blocks_without_addresses_are_unknown():
    from pyprof.table.columns import NULL

    assert set(categories(event(1, 8, NULL, F), event(2, 5, NULL, B), start=None).values()) == {"unknown"}


def test_memory_of_the_driver_has_no_category():
    assert set(categories(event(1, 8, 1, F), event(2, 5, 2, B), level="driver").values()) == {"unknown"}


def test_every_category_has_a_rule():
    assert RULES.keys() == set(CATEGORIES)


@pytest.mark.parametrize(
    ("marks", "start", "end"),
    [("FFBBFB", [2, 5], [3, 5]), ("BBFF", [0], [1]), ("FFFF", [], []), ("B", [0], [0]), ("FBOBFB", [1, 5], [3, 5])],
)
def test_a_backward_pass_ends_before_the_next_forward_pass(marks, start, end):
    import numpy as np

    kinds = np.array(list(marks))
    found = Passes.of(np.arange(len(marks)), kinds == "F", kinds == "B")
    assert (found.start.tolist(), found.end.tolist()) == (start, end)
