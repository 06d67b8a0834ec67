"""Sums and means of utilisation."""

import numpy as np
import pytest

from pyprof.prof.timing.usage import _mean


def test_a_mean_of_the_largest_numbers_is_one_of_them() -> None:
    """A file may hold any number: its product with a time must not overflow."""
    values, times = np.array([1.5e308, 1.5e308, np.nan]), np.array([3e9, 1e9, 1.0])
    assert _mean(values, times) == pytest.approx(1.5e308)
