"""What the profiler added: measured from the steps before it, or estimated."""

import numpy as np
import pytest

from pyprof.prof.timing.profiler_cost import KINETO, PLAIN, estimated_share, own_share, unprofiled
from pyprof.table.columns import Coded, Table
from pyprof.table.measured_steps import MeasuredStep

MS = 1_000_000


def table(steps=(), occupancy=50.0):
    columns = {"kShortName": Coded.of(["gemm"]), "kDuration": np.array([MS]), "occupancy": np.array([occupancy])}
    return Table(1, columns, measured=[MeasuredStep(n, host * MS, gpu and gpu * MS) for n, host, gpu in steps])


def test_the_later_half_counts_and_of_each_step_the_longer_time():
    """Six steps; the last three take 12, 10 and 11 ms: their median is 11. The first three were still warming up."""
    found = unprofiled(table([(1, 90, 1), (2, 30, 1), (3, 20, 1), (4, 12, 11), (5, 3, 10), (6, 11, 8)]).measured)
    assert (found.count, found.step_ns, found.low_ns, found.high_ns) == (6, 11 * MS, 10 * MS, 12 * MS)
    assert (found.host_ns, found.gpu_ns, found.marked) == (11 * MS, 10 * MS, False)


def test_a_step_that_began_on_an_idle_gpu_tells_the_host_s_time():
    """The GPU takes 20 ms and holds the host up; on an idle GPU the host was done after 8: 4 of pauses, 4 of 40."""
    steps = [MeasuredStep(n, 20 * MS, 20 * MS) for n in (1, 2, 3, 4)] + [MeasuredStep(5, 8 * MS, 21 * MS, alone=True)]
    found = unprofiled(steps)
    assert (found.count, found.step_ns, found.host_alone_ns) == (4, 20 * MS, 8 * MS)
    run = table()
    share = own_share(Table(1, run.columns, measured=steps), 40.0 * MS, 4.0 * MS, 19 * MS)
    assert share.share == pytest.approx(0.1) and share.measured


def test_nothing_measured():
    assert unprofiled(()) is None
    assert estimated_share(table()).share == KINETO and estimated_share(table(occupancy=np.nan)).share == PLAIN
    found = own_share(table(), 10.0, 0.0, 1.0)
    assert found == estimated_share(table()) and found.low < 0.36 and found.high > 0.6 and not found.measured


@pytest.mark.parametrize(
    ("host", "gpu", "busy", "share"),
    [
        (20, 20, 5, 0.4),  # the GPU works 5 of 20 ms, so the host takes 20; 4 of pauses, 16 of the captured 40
        (8, 20, 19, 0.1),  # the host is 12 ms ahead of the GPU at the end of a step: it takes 8
        (20, 20, 19, 0.4),  # the GPU limits the step: the host takes 20 at most, which is less than estimated
        (30, 30, 29, KINETO),  # at most 26 of 40, which is more than estimated
    ],
)
def test_the_share_of_the_host(host, gpu, busy, share):
    found = own_share(table([(1, host, gpu)]), 40.0 * MS, 4.0 * MS, busy * MS)
    assert found.share == pytest.approx(share)
    assert found.measured == (busy == 5 or host < gpu)
