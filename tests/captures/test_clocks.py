"""A run of an H200 at its power limit, recorded with ``pyprof.profile(nvml=True)`` (tests/device/clocks.py capture):
forty steps of two linear layers of 12,288, whose readings lie in the trace. The numbers were counted in the raw file.
"""

import gzip
import json
import math

import numpy as np
import pytest

from pyprof.parse.cli import main as parse
from pyprof.prof.cli import main as prof
from pyprof.prof.load import load_table
from pyprof.prof.summary.capture_numbers import Summary, summarise
from pyprof.prof.work.annotate import annotate


@pytest.fixture(scope="module")
def file(root):
    return root / "tests" / "golden" / "h200_clocks.json.gz"


@pytest.fixture(scope="module")
def raw(file):
    return json.loads(gzip.decompress(file.read_bytes()))


@pytest.fixture(scope="module")
def summary(file) -> Summary:
    table = load_table(file).table
    return summarise(table, annotate(table))


def test_the_mean_clock_is_that_of_the_readings_while_kernels_ran(raw, summary):
    """Again from the raw file, on a grid of 10 µs: the nearest reading at each moment at which a kernel runs."""
    (gpu,), (found,) = raw["pyprof"]["nvml"]["gpus"], summary.clocks
    zero = gpu["begin_unix_ns"] / 1e3 - raw["baseTimeNanoseconds"] / 1e3  # µs on the trace's clock
    at = zero + np.array(gpu["time_us"])
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    work = [(e["ts"], e["ts"] + e["dur"]) for e in raw["traceEvents"] if e.get("cat") in kinds]
    grid = np.arange(min(start for start, _ in work), max(end for _, end in work), 10.0)
    busy = np.zeros(len(grid), bool)
    for start, end in work:
        busy[np.searchsorted(grid, start) : np.searchsorted(grid, end)] = True
    nearest = np.abs(grid[busy][:, None] - at[None, :]).argmin(axis=1)
    clock, power = np.array(gpu["sm_mhz"])[nearest], np.array(gpu["power_mw"])[nearest]
    assert found.sm_mhz == pytest.approx(clock.mean(), rel=1e-3)
    assert found.power_w == pytest.approx(power.mean() / 1e3, rel=2e-3)
    assert found.fallen_ns / found.work_ns == pytest.approx((clock < 0.98 * 1980).mean(), abs=2e-3)
    assert (found.lowest_sm_mhz, found.highest_sm_mhz) == (clock.min(), clock.max())


def test_it_fell_by_the_power_cap(summary):
    (gpu,) = summary.clocks
    (fall,) = gpu.falls  # from 1,980 to 1,215 MHz, and not back before the work was done
    assert (fall.lowest_mhz, fall.reasons) == (1215, ("power cap (software)",))
    assert [reason.name for reason in gpu.reasons] == ["power cap (software)"]
    assert gpu.power_limit_w == 700


def test_energy_of_the_steps_by_both_ways(raw, summary):
    """The counter, from before the first step to after the last, bounds the energy of the steps."""
    (gpu,), (found,) = raw["pyprof"]["nvml"]["gpus"], summary.clocks
    whole = (gpu["energy_mj"][-1] - gpu["energy_mj"][0]) / 1e3
    assert found.steps == 40 == len(summary.steps)
    assert 0.9 * whole < found.energy_j < whole
    # 1.06 s are ten of NVML's updates: that is the tolerance, and the sentence says that it is an estimate
    assert found.integrated_j == pytest.approx(found.energy_j, rel=0.1)
    assert found.updates <= 12


def test_parquet_keeps_the_readings_and_net_dict_says_that_it_does_not(file, tmp_path, capsys):
    assert parse(["-q", "-o", str(tmp_path / "net.parquet"), str(file)]) == 0
    kept = load_table(tmp_path / "net.parquet").table
    original = load_table(file).table
    assert kept.samples[0].sm_mhz.tolist() == original.samples[0].sm_mhz.tolist()
    assert summarise(kept, annotate(kept)).clocks == summarise(original, annotate(original)).clocks
    assert parse(["-o", str(tmp_path / "net.dict"), str(file)]) == 0
    assert "the clocks and power of --nvml are left out" in capsys.readouterr().err
    assert load_table(tmp_path / "net.dict").table.samples == ()


def test_the_terminal_and_json_say_it(file, capsys):
    assert prof(["--summary", str(file)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "The SM clock was 1,574 MHz on average while the GPU worked (lowest 1,215 MHz, highest 1,980 MHz" in text
    assert "power cap (software) 87.5%" in text and "An H200" not in text
    assert prof(["--summary", "--json", str(file)]) == 0
    numbers = json.loads(capsys.readouterr().out)["numbers"]
    assert round(numbers["clocks"][0]["sm_mhz"]) == 1574
    # 4,096 FLOP per clock and SM × 132 SMs × the mean clock, and not the data sheet's 989.4
    reached = numbers["clock_peaks"][0]["flop_per_s"]
    assert math.isclose(reached, 4096 * 132 * numbers["clocks"][0]["sm_mhz"] * 1e6, rel_tol=1e-9)
