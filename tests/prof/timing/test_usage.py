"""Sums and means of utilisation."""

import numpy as np
import pytest

from pyprof.prof.timing.usage import _mean, usage
from tests.prof.changes.rules.advice_rows import run


def test_a_mean_of_the_largest_numbers_is_one_of_them() -> None:
    """A file may hold any number: its product with a time must not overflow."""
    values, times = np.array([1.5e308, 1.5e308, np.nan]), np.array([3e9, 1e9, 1.0])
    assert _mean(values, times) == pytest.approx(1.5e308)


def kernel(start, ns, **more):
    return {"kShortName": "k", "start": start, "ns": ns, **more}


def test_efficiency_and_occupancy_are_not_stated_where_graphs_hide_most_of_the_kernels():
    """A kernel of 132 blocks on an H200's 132 SMs runs for 1 µs, a graph with unknown kernels for 99."""
    geometry = {"grid": [132, 1, 1], "block": [1024, 1, 1], "registers": 32, "staticSmem": 0, "dynamicSmem": 0}
    alone = run(kernel(0, 1_000, **geometry))
    (found,) = usage(alone.table, alone.annotation, alone.limits)
    assert found.sm_efficiency == 100
    both = run(kernel(0, 1_000, **geometry), kernel(1_000, 99_000, kind="graph"))
    (found,) = usage(both.table, both.annotation, both.limits)
    assert found.utilisation == 100
    assert np.isnan(found.sm_efficiency) and np.isnan(found.occupancy)
