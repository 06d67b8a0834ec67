"""Times by another clock."""

import numpy as np

from pyprof.table.clock_shift import moved
from pyprof.table.columns import NULL, Coded, Table


def test_points_in_time_move_and_durations_and_unknown_times_stay() -> None:
    columns = {
        "kShortName": Coded.of(["a", "b"]),
        "kDuration": np.array([5, 6]),
        "start": np.array([100, 200]),
        "apiStart": np.array([90, NULL]),
        "emptySteps": Coded.of(["[[3, 250, 260]]", ""]),
        "batches": Coded.of(["[[1,60,80],[0,81,90]]", ""]),
    }
    found = moved(Table(2, columns), -50)
    assert found.ints("start").tolist() == [50, 150]
    assert found.ints("apiStart").tolist() == [40, NULL]
    assert found.ints("kDuration").tolist() == [5, 6]
    assert found.coded("emptySteps").texts()[0] == "[[3, 200, 210]]"
    assert found.coded("batches").texts() == ["[[1, 10, 30], [0, 31, 40]]", ""]  # the first number is a kind
