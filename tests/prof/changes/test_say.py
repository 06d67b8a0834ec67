"""The sentences that all outputs share: what a change brings, and that some depend on others."""

import msgspec
import pytest

from pyprof.prof.changes.say import amounts, depends, title
from tests.prof.report.test_plan_section import change, document


@pytest.mark.parametrize(
    ("saved", "alone", "needed_by", "says"),
    [  # of 8 ms, of which 0.08 are worth a line
        (1.0, 0.9, "", ""),
        (0.01, 0.01, "Launch the step as a CUDA graph", "more after it: Launch the step as a CUDA graph."),
        (1.0, 0.9, "Launch the step as a CUDA graph", ""),  # it pays by itself, too
        (1.0, 0.02, "", "It pays only after those above: alone, it would save 0.02 ms."),
        (1.0, -0.3, "", "alone, it would save nothing."),
        (1.0, None, "", ""),
        (0.01, -0.3, "", ""),
    ],
)
def test_a_change_that_pays_only_with_others_says_so(saved, alone, needed_by, says):
    planned = msgspec.structs.replace(change(saved=saved), alone_ms=alone, needed_by=needed_by)
    text = depends(planned, document(planned))
    assert text.endswith(says) and bool(text) == bool(says)


def test_a_small_change_is_not_said_to_save_nothing():
    found = document()
    found.now.ms = 78.5
    saves = [title(change(name, saved=saved), found) for name, saved in (("A", 36.3), ("B", 0.162), ("C", -0.2))]
    assert saves == [
        "A: saves 36.3 ms per step (46%)",
        "B: may save 0.162 ms per step (under 1%), or nothing",
        "C: costs 0.2 ms per step (under 1%)",
    ]


def test_a_change_without_a_replay_removes_work_and_saves_nothing_that_is_known():
    bare = msgspec.structs.replace(change(), saved_ms=None, low_ms=None, high_ms=None, host_ms=None, step=None)
    found = msgspec.structs.replace(document(bare), now=None, not_replayed="there are no calls")
    assert title(bare, found) == "Pad it: removes 5 ms of GPU work per step"
    assert amounts(bare, found) == "It removes 5 ms of the GPU's work."


def test_the_amounts_of_a_replayed_change():
    assert amounts(change(), document(change())) == (
        "It removes 5 ms of the GPU's work and 0.5 ms of the host's, and waits of one for the other; the step gets 5.5 "
        "to 6.5 ms shorter in four of five cases; alone, it would save about 6 ms."
    )
