"""The limit of a step among several causes, by shares of 100."""

import pytest

from pyprof.prof.step.device_shares import SHARES
from pyprof.prof.step.run_step import Share, _limit


@pytest.mark.parametrize(
    ("of_step", "limit"),
    [
        ({"gpu": 2, "communication": 26, "unknown": 72}, "unknown"),
        ({"gpu": 2, "communication": 48, "unknown": 50}, "communication"),
        ({"gpu": 74, "unknown": 26}, "unknown"),
        ({"gpu": 80, "unknown": 20}, "gpu"),
    ],
)
def test_where_no_record_explains_half_of_the_step_its_limit_is_not_known(of_step, limit):
    assert _limit(tuple(Share(name, of_step.get(name, 0), 0) for name in SHARES), 100) == limit
