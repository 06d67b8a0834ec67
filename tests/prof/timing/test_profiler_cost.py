"""What the profiler added: measured from the steps before it, or estimated."""

import numpy as np

from pyprof.prof.timing.profiler_cost import KINETO, PLAIN, estimated_share, unprofiled
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
    """The GPU takes 20 ms and holds the host up; on an idle GPU the host was done after 8."""
    steps = [MeasuredStep(n, 20 * MS, 20 * MS) for n in (1, 2, 3, 4)] + [MeasuredStep(5, 8 * MS, 21 * MS, alone=True)]
    found = unprofiled(steps)
    assert (found.count, found.step_ns, found.host_alone_ns) == (4, 20 * MS, 8 * MS)


def test_nothing_measured():
    assert unprofiled(()) is None
    assert estimated_share(table()).share == KINETO and estimated_share(table(occupancy=np.nan)).share == PLAIN
    found = estimated_share(table())
    assert found.low < 0.36 and found.high > 0.6 and not found.measured
