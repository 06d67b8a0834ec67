"""Dependencies of tasks as arrays, and what a replay has of a capture."""

import numpy as np

from pyprof.prof.load import load_table
from pyprof.prof.replay.recorded_run import ROW_KINDS
from pyprof.prof.replay.replayed_run import replay
from pyprof.prof.replay.tasks import Tasks, simulate
from tests.paths import GOLDEN


def test_a_task_waits_for_the_last_of_four() -> None:
    """Four tasks end at 10 to 40 ns; the fifth begins 1 to 4 ns after each, or 100 ns after the first, and takes 7."""
    duration, first = np.array([10, 20, 30, 40, 7]), np.array([0, 0, 0, 0, 0, 4])
    zeros, source = np.zeros(5, np.int64), np.arange(4)
    for lag, end in (([1, 2, 3, 4], 51), ([100, 2, 3, 4], 117)):
        tasks = Tasks(zeros, np.arange(5), duration, zeros, first, source, np.array(lag), np.zeros(4, np.int64))
        assert simulate(tasks).tolist() == [10, 20, 30, 40, end]


def test_launches_of_opaque_graphs_are_replayed() -> None:
    """nsys records each of the six as one operation."""
    path = GOLDEN / "graphs" / "h200_decode_opaque.sqlite.gz"
    loaded = load_table(str(path), host=True)
    assert loaded.host is not None
    found = replay(loaded.table, loaded.host, path.name)
    assert (found.run.work.kind == ROW_KINDS.index("graph")).sum() == 6
