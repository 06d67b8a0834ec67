"""The numbers of a sample of a GPU, recomputed from the raw trace of an H200."""

import gzip
import json
from dataclasses import replace

import pytest

from pyprof.prof.load import load_table
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.timing.profiler_cost import Unprofiled
from pyprof.prof.work.annotate import annotate
from pyprof.sampling.digest import digest, numbers, op_times
from tests.paths import GOLDEN

TRACE = GOLDEN / "h200_gpt2_training_eager.json.gz"
GPU = ("kernel", "gpu_memcpy", "gpu_memset")


@pytest.fixture(scope="module")
def events():
    with gzip.open(TRACE) as file:
        found = json.load(file)["traceEvents"]
    return sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in found if e.get("cat") in GPU)


@pytest.fixture(scope="module")
def summary():
    table = load_table(TRACE).table
    return summarise(table, annotate(table))


def covered_us(events):
    """The time with at least one operation."""
    total, until = 0.0, events[0][0]
    for start, end, _ in events:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def test_idle_time_is_that_of_the_recorded_step_without_a_timed_one(events, summary):
    span = max(end for _, end, _ in events) - events[0][0]
    found = numbers(replace(summary, unprofiled=None))
    assert found["step_ms"] is None
    assert found["gpu_idle_percent"] == pytest.approx(100 * (1 - covered_us(events) / span), abs=0.01)
    assert found["worker"] == "GPU"
    assert found["busy_ms"] == pytest.approx(sum(end - start for start, end, _ in events) / 1e3, rel=1e-4)


def test_idle_time_and_mfu_are_of_the_step_without_the_profiler(events, summary):
    """A step of twice the busy time is half idle, and MFU follows the same time."""
    busy_us = covered_us(events)
    timed = Unprofiled(5, 2e3 * busy_us, 0, 0, 2e3 * busy_us, None, False)
    found = numbers(replace(summary, unprofiled=timed))
    assert found["step_ms"] == pytest.approx(2 * busy_us / 1e3)
    assert found["gpu_idle_percent"] == pytest.approx(50, abs=0.01)
    (device,) = summary.devices
    assert found["mfu_percent"] == pytest.approx(100 * device.matrix_ns / (2e3 * busy_us))
    longer = numbers(replace(summary, unprofiled=replace(timed, step_ns=4e3 * busy_us)))
    assert longer["mfu_percent"] == pytest.approx(found["mfu_percent"] / 2)
    shorter = numbers(replace(summary, unprofiled=replace(timed, step_ns=0.5e3 * busy_us)))
    assert shorter["gpu_idle_percent"] == 0  # the clocks differ a little: never below 0


def test_shares_of_tensor_cores_are_of_the_operations_time(events, summary):
    """These kernels' names say that they are on tensor cores: cuBLAS's nvjet and flash attention."""
    on = sum(end - start for start, end, name in events if "nvjet" in name or "flash" in name)
    total = sum(end - start for start, end, _ in events)
    found = numbers(summary)
    assert found["tensor_core_percent"] == pytest.approx(100 * on / total, rel=0.05)
    assert found["tensor_core_unknown_percent"] < 5


def test_ops_sum_to_the_time_of_their_rows(events):
    table = load_table(TRACE).table
    found = op_times(table, annotate(table))
    assert len(found) == 10
    assert [op.ms for op in found] == sorted((op.ms for op in found), reverse=True)
    total = sum(end - start for start, end, _ in events) / 1e3
    assert found[0].percent == pytest.approx(100 * found[0].ms / total, rel=1e-3)
    assert sum(op.ms for op in found) <= total * 1.0001


def test_an_incomplete_capture_has_no_idle_time(summary):
    from pyprof.table.losses import Loss

    found = numbers(replace(summary, incomplete=(Loss("kernels were lost", "record it again"),)))
    assert found["gpu_idle_percent"] is None and found["mfu_percent"] is None
    assert "kernels were lost" in found["incomplete"]


def test_an_iteration_of_several_optimizer_steps_counts_as_a_whole(tmp_path):
    """The five steps of a capture, as if they were one iteration: idle time is that between its first and last row."""
    five = json.loads(gzip.decompress((GOLDEN / "h200_diff_eager.json.gz").read_bytes()))
    (tmp_path / "raw.json").write_text(json.dumps(five))
    found = digest(tmp_path / "raw.json", {}, {})
    rows = sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in five["traceEvents"] if e.get("cat") in GPU)
    span = max(end for _, end, _ in rows) - rows[0][0]
    assert found["gpu_idle_percent"] == pytest.approx(100 * (1 - covered_us(rows) / span), abs=0.01)
