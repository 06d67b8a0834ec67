"""The steps of a long capture that are replayed, and what belongs to them."""

import numpy as np
import pytest

from pyprof.prof.replay import cut_to_steps as module
from pyprof.prof.replay.cut_to_steps import step_window
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, HostTable
from tests.prof.changes.rules.advice_rows import table


def test_rows_of_no_step_belong_to_the_window_in_which_they_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five steps of 8 to 17.4 µs from start to start; the third lasts as long as the mean, 12.6 µs.

    Within each a kernel of no step is launched; one more comes before all. Only that of the third step belongs to it.
    """
    monkeypatch.setattr(module, "LEAST_STEPS", 1)
    monkeypatch.setattr(module, "MOST_ROWS", 2)
    launches, begin = [(0, None)], 20_000
    for step, lasts in enumerate([8_000, 10_000, 12_600, 15_000, 17_400]):
        launches += [(begin, step), (begin + 5_000, None), (begin + lasts - 100, step)]
        begin += lasts
    rows = [
        {"kShortName": "k", "ns": 50, "start": at + 50, "apiStart": at, "apiDuration": 10, "step": step}
        for at, step in launches
    ]
    made = table(*rows)
    found = step_window(made, annotate(made), HostTable(0, {}))
    assert made.take(found.rows).ints("step").tolist() == [2, NULL, 2]
    assert np.array_equal(found.rows, [7, 8, 9])
