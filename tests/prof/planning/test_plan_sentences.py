"""What a plan says of changes that depend on others."""

import pytest

from pyprof.prof.planning.plan_sentences import depends
from tests.prof.report.test_plan_section import change

STEP_MS = 8.0  # of which 1% is worth a line


@pytest.mark.parametrize(
    ("saved", "alone", "needed_by", "says"),
    [
        (1.0, 0.9, "", ""),
        (0.01, 0.01, "Launch the step as a CUDA graph", "needs it: Launch the step as a CUDA graph."),
        (1.0, 0.9, "Launch the step as a CUDA graph", ""),  # it pays by itself, too
        (1.0, 0.02, "", "It pays only after those above: alone, it would save 0.02 ms."),
        (1.0, -0.3, "", "alone, it would save nothing."),
        (1.0, None, "", ""),
        (0.01, -0.3, "", ""),
    ],
)
def test_a_change_that_pays_only_with_others_says_so(saved, alone, needed_by, says):
    planned = change(saved=saved)
    planned = type(planned)(**{**vars_of(planned), "alone_ms": alone, "needed_by": needed_by})
    text = depends(planned, STEP_MS)
    assert text.endswith(says) and bool(text) == bool(says)


def vars_of(planned):
    return {name: getattr(planned, name) for name in type(planned).__annotations__}
