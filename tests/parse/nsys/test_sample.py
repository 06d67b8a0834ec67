"""A share from a sample: unbiased, within its bounds, and blind to no rhythm."""

import numpy as np
import pytest

from pyprof.parse.nsys.overview import bounds, draw


def test_moments_meet_operations_by_their_time() -> None:
    sample = draw(np.array([1, 0, 7, 2]), 10_000)
    assert sample.rows.tolist() == [0, 2, 3]  # what takes no time is not met
    assert np.abs(sample.moments / 10_000 - [0.1, 0.7, 0.2]).max() <= 1e-4  # one in each 10,000th part
    assert draw(np.array([1, 0, 7, 2]), 10_000).moments.tolist() == sample.moments.tolist()


def test_an_operation_longer_than_a_part_is_met_for_certain() -> None:
    duration = np.ones(100_000, np.int64)
    duration[[5, 70_000]] = 3_000
    assert set(draw(duration, 100).rows.tolist()) >= {5, 70_000}


def test_the_last_and_the_first_nanosecond_are_rows() -> None:
    for seed in range(50):
        sample = draw(np.array([2**53, 1, 2**53]), 64, seed)
        assert set(sample.rows.tolist()) <= {0, 1, 2}
        assert sample.moments.sum() == 64


@pytest.mark.parametrize(
    ("hits", "moments", "expected"),
    [  # by hand, for 0.00135 on each side
        (1, 2, (0.00067523, 0.99932477)),  # 1 - sqrt(1 - 0.00135); its mirror
        (0, 1000, (0.0, 0.0065859)),  # 1 - 0.00135 ** (1 / 1000)
        (1000, 1000, (0.9934141, 1.0)),
        (2, 3, (0.0213659, 0.9995498)),  # 3 p^2 - 2 p^3 = 0.00135 (0.00136951 - 0.00001951); 1 - p^3 = 0.00135
    ],
)
def test_bounds(hits: int, moments: int, expected: tuple[float, float]) -> None:
    assert bounds(hits, moments) == pytest.approx(expected, abs=1e-6)


RHYTHMS = {
    "one part": lambda n: np.arange(n) // (n // 4) == 2,
    "every second": lambda n: np.arange(n) % 2 == 0,
    "a loop as long as a part": lambda n: np.arange(n) % (n // 512) < (n // 512) // 8,
    "hardly any": lambda n: np.arange(n) % 997 == 0,
    "all": lambda n: np.ones(n, bool),
}


@pytest.mark.parametrize("rhythm", RHYTHMS)
@pytest.mark.parametrize("skew", [0, 2])
def test_the_share_is_within_its_bounds(rhythm: str, skew: int) -> None:
    count, moments = 51_200, 512
    duration = np.rint(np.exp(np.random.default_rng(3).normal(6, skew, count))).astype(np.int64)
    hit = RHYTHMS[rhythm](count)
    share = duration[hit].sum() / duration.sum()
    missed, found = 0, []
    for seed in range(200):
        sample = draw(duration, moments, seed)
        hits = int(sample.moments[hit[sample.rows]].sum())
        low, high = bounds(hits, moments)
        missed += not low <= share <= high
        found.append(hits / moments)
    assert missed <= 2  # 99.7 of 100 were promised
    assert abs(np.mean(found) - share) < 4 * np.sqrt(share * (1 - share) / moments / 200) + 1e-12
