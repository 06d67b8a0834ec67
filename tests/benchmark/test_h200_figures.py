"""What ``pyprof bench`` measured on an H200 (tests/device/bench_accuracy.py), beside nsys, ``pyprof peaks``, a capture.

``node_us`` is the time of a call in a graph. What pyprof shows is this without an empty node's time.
"""

import json

import pytest

from tests.paths import GOLDEN, ROOT

FOUND = json.loads((GOLDEN / "h200_bench.json").read_text())
EMPTY_US = FOUND["empty_node_us"]
ALONE = {name: (row["nsys_us"], row["node_us"] - EMPTY_US) for name, row in FOUND["nsys"].items()}
ONE_COLD_NODE = [name for name, row in FOUND["nsys"].items() if row["nodes"] == 1 and row["cold"]]


@pytest.mark.parametrize("name", ONE_COLD_NODE)
def test_a_kernel_takes_as_long_as_nsys_shows(name):
    nsys, ours = ALONE[name]
    if nsys < 2:
        assert abs(ours - nsys) < 0.3  # µs
    else:
        assert abs(ours / nsys - 1) < 0.1


def test_there_are_kernels_of_one_and_of_five_microseconds():
    assert sum(1 < ALONE[name][0] < 2 for name in ONE_COLD_NODE) >= 3
    assert sum(4 < ALONE[name][0] < 7 for name in ONE_COLD_NODE) >= 4


@pytest.mark.parametrize("name", FOUND["peaks"]["H200"])
def test_plateaus_are_those_of_peaks(name):
    row = FOUND["peaks"]["H200"][name]
    assert abs(row["bench"] / row["peaks"] - 1) < 0.03


@pytest.mark.parametrize("name", FOUND["peaks"]["CPU"])
def test_plateaus_of_a_cpu_are_nearly_those_of_peaks(name):
    """16 cores of a shared host, the best trial of each: two of the four within 3%."""
    row = FOUND["peaks"]["CPU"][name]
    assert abs(row["bench"] / row["peaks"] - 1) < 0.07


def sums(rows):
    """(in the capture, alone), in µs"""
    in_capture = sum(row["capture_us"] * row["calls"] for row in rows)
    return in_capture, sum((row["node_us"] - EMPTY_US) * row["calls"] for row in rows)


def test_the_products_of_a_replayed_step_take_as_long_as_in_the_capture():
    products = [row for row in FOUND["replay"]["rows"] if row["product"]]
    in_capture, alone = sums(products)
    assert in_capture == pytest.approx(5821.3, abs=0.1) and alone == pytest.approx(5914.9, abs=0.1)
    assert alone / in_capture == pytest.approx(1.016, abs=0.001)


def test_the_heaviest_calls_of_a_replayed_step():
    rows = FOUND["replay"]["rows"]
    in_capture, alone = sums(rows)
    assert in_capture / 1e3 / FOUND["replay"]["total_ms"] > 0.94
    assert alone / in_capture == pytest.approx(1.013, abs=0.001)
    assert len(rows) == 40 and all(row["same_kernels"] for row in rows)


def test_the_page_has_these_figures():
    page = (ROOT / "docs" / "explanation" / "performance.md").read_text(encoding="utf-8")
    for name, row in FOUND["nsys"].items():
        assert f"| {name} | {row['nsys_us']:.2f} | {row['node_us']:.2f} | {row['node_us'] - EMPTY_US:.2f} |" in page
    for machine, rows in FOUND["peaks"].items():
        for name, row in rows.items():
            assert f"| {machine} | {name} | {row['peaks'] / 1e12:.4g} | {row['bench'] / 1e12:.4g} |" in page
