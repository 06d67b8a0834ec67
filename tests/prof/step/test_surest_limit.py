"""The limit of a step among several causes, by shares of 100."""

import pytest

from pyprof.prof.step.device_shares import SHARES
from pyprof.prof.step.run_step import Share, _limit


@pytest.mark.parametrize(
    ("of_step", "limit"),
    [
        ({"gpu": 2, "communication": 26, "unknown": 72}, "unknown"),  # 26 is a quarter, and less than half of 72
        ({"gpu": 2, "communication": 40, "unknown": 58}, "communication"),  # 40 is more than half of 58
        ({"gpu": 10, "data": 26, "host": 64}, "host"),
        ({"gpu": 10, "data": 35, "host": 55}, "data"),
    ],
)
def test_a_cause_with_sure_evidence_counts_if_it_takes_half_of_what_the_greatest_takes(of_step, limit):
    assert _limit(tuple(Share(name, of_step.get(name, 0), 0) for name in SHARES), 100) == limit
