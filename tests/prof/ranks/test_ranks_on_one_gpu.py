"""Two ranks that share an H200, one of them late; hosts set the pace, and the profiler doubles it.

tests/golden/ranks/shared has five steps of both ranks by one clock (tests/device/job_programs.py --one-gpu). Without a
profiler, steps of fsdp.data took 62 ms (55.6 to 73.2), of which 6.1 were waiting for data, and those without that
delay 59.8 (48.4 to 71.1); in the captures they take 126 ms.
"""

from functools import cache

import pytest

from pyprof.prof.load import load_table
from pyprof.prof.ranks import pace_of_table
from pyprof.prof.ranks.job_path import job_path
from pyprof.prof.ranks.pace_records import Pace
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN

FOLDER = GOLDEN / "ranks" / "shared"


@cache
def pace(case: str) -> Pace:
    loaded = load_table(FOLDER / f"{case}.pyprof", host=True)
    assert loaded.host is not None
    found = pace_of_table(loaded.table, annotate(loaded.table), job_path(loaded.table, loaded.host, case, 2, 155_000.0))
    assert found is not None
    return found


def test_more_layers_are_the_cause_though_the_other_host_is_slower() -> None:
    """Rank 0 launches 169 kernels more per step (804 and 635). Rank 1's host takes as long for fewer calls."""
    first = pace("tp.layers").slow[0]
    assert (first.rank, first.causes[0].cause, round(first.causes[0].kernels)) == (0, "calls", 169)
    path = pace("tp.layers").path
    assert path is not None
    own, other = path.hosts
    assert own.host_ns < 1.05 * other.host_ns
    assert first.causes[0].ns == pytest.approx((own.operations / other.operations - 1) * other.host_ns, rel=0.1)


def test_late_data_is_what_the_step_would_be_without() -> None:
    """In the capture the other rank waits 90 ms per step, for all that comes late after 6.1 ms of late data."""
    path = pace("fsdp.data").path
    assert path is not None
    [alike] = [each for each in path.like_others if each.saves]
    assert alike.rank == 1
    assert path.step_ns - alike.step_ns == pytest.approx(6.1e6, rel=0.25)
    cause = pace("fsdp.data").slow[0].causes[0]
    assert cause.cause == "data"
    assert cause.ns == pytest.approx(6.1e6, rel=0.05)
