"""The clocks of --nvml under a trace's key ``pyprof``: read, placed on the trace's clock, or refused in one line."""

from pathlib import Path
from typing import Any

import pytest

from pyprof.parse.kineto.reader import read
from pyprof.table.columns import NULL

from .kineto_file import begin, call, kernel, op, write

BASE = 1_790_000_000_000_000_000  # Unix ns
EVENTS = (begin(1000.0), op("aten::mm", 1010, 50), call(1020, 1), kernel(1030, 20, 1))


def record(**changes: Any) -> dict[str, Any]:
    gpu = {
        "device": 0,
        "power": "instant",
        "sm_limit_mhz": 1980,
        "memory_limit_mhz": None,
        "power_limit_mw": 700_000,
        "begin_unix_ns": BASE + 1_005_000,  # 5 µs after the capture began
        "time_us": [0, 20, 41],
        "sm_mhz": [1980, None, 1410],
        "power_mw": [100_000, 200_000, 300_000],
        **changes,
    }
    return {"version": 1, "pid": 7, "period_ns": 20_000, "gpus": [gpu]}


def test_times_count_from_the_beginning_of_the_capture(tmp_path: Path) -> None:
    file = write(tmp_path / "net.json", *EVENTS, baseTimeNanoseconds=BASE, pyprof={"nvml": record()})
    capture = read(file)
    (gpu,) = capture.samples
    assert gpu.time_ns.tolist() == [5000, 25_000, 46_000]
    assert gpu.sm_mhz.tolist() == [1980, NULL, 1410]
    assert gpu.memory_mhz.tolist() == [NULL] * 3  # the GPU does not give it
    assert (gpu.pid, gpu.device, gpu.sm_limit_mhz, gpu.memory_limit_mhz) == (7, 0, 1980, NULL)
    assert capture.warnings == read(write(tmp_path / "without.json", *EVENTS)).warnings


def test_before_pytorch_2_4_a_trace_counts_from_1970(tmp_path: Path) -> None:
    at = 1_700_000_000_000_000  # µs
    events = (begin(at), call(at + 20, 1), kernel(at + 30, 20, 1))
    gpu = record(begin_unix_ns=1000 * at + 7000)
    assert read(write(tmp_path / "net.json", *events, pyprof={"nvml": gpu})).samples[0].time_ns[0] == 7000


def test_other_parts_of_the_key_are_left_alone(tmp_path: Path) -> None:
    capture = read(write(tmp_path / "net.json", *EVENTS, pyprof={"memory": {"version": 1, "storages": []}}))
    assert capture.samples == []


WRONG = [
    (record(time_us=[0, 20]), "expected 2 readings, found 3"),
    (record(time_us=[0, 20, 20]), "expected times in ascending order"),
    (record(time_us=[], sm_mhz=[], power_mw=[]), "expected times in ascending order"),
    (record(sm_mhz=[1980, "fast", 1410]), "Expected `int | null`, got `str`"),
    (record(power_mw=[1, 2, 1 << 60]), "expected a number up to 2**53"),
    (record(begin_unix_ns=1 << 62), "expected a number up to 2**53"),
    (7, "Expected `object | null`, got `int`"),
    ({**record(), "version": 2}, "have version 2, not 1: left out"),
]


@pytest.mark.parametrize(("nvml", "why"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_records_cost_the_clocks_and_nothing_else(tmp_path: Path, nvml: Any, why: str) -> None:
    capture = read(write(tmp_path / "net.json", *EVENTS, baseTimeNanoseconds=BASE, pyprof={"nvml": nvml}))
    assert (capture.rows, capture.samples) == (1, [])
    (warning,) = [text for text in capture.warnings if "--nvml" in text]
    assert why in warning


def test_a_trace_that_needs_mending_keeps_its_clocks(tmp_path: Path) -> None:
    file = write(tmp_path / "net.json", *EVENTS, baseTimeNanoseconds=BASE, pyprof={"nvml": record()})
    text = file.read_text().replace('"aten::mm"', '"aten::m"m"')
    file.write_text(text)
    assert read(file).samples[0].time_ns.tolist() == [5000, 25_000, 46_000]
