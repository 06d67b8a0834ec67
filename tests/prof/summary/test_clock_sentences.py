"""What the summary says of clocks, power and energy, and what it leaves unsaid."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyprof.prof.limits.devices import find_device, peak_at
from pyprof.prof.load import load_table
from pyprof.prof.summary.capture_numbers import Summary, summarise
from pyprof.prof.summary.clock_sentences import NO_COUNTER
from pyprof.prof.summary.json_document import summary_of
from pyprof.prof.summary.sentences import sentences
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Table
from pyprof.table.gpu_samples import GpuSamples

MS = 1_000_000


@pytest.fixture(scope="module")
def table(root) -> Table:
    return load_table(root / "tests/golden/h200_diff_eager.json.gz").table


def samples(table: Table, **changes: Any) -> GpuSamples:
    """Readings each 10 ms: 1,980 MHz and 400 W in the first half of the capture, 1,410 MHz and 700 W after it."""
    start, end = int(table.ints("start").min()), int((table.ints("start") + table.ints("kDuration")).max())
    time = np.arange(start - 20 * MS, end + 20 * MS, 10 * MS)
    late = time > (start + end) / 2
    power = np.where(late, 700_000, 400_000)
    series = {
        "sm_mhz": np.where(late, 1410, 1980),
        "memory_mhz": np.full(len(time), 3201),
        "power_mw": power,
        "temperature_c": np.where(late, 61, 45),
        "reasons": np.where(late, 0x4, 0),
        "energy_mj": np.cumsum(power * 10 // 1000),  # W × ms
    }
    known = [int(table.ints(key)[0]) for key in ("rank", "pid", "device")]
    found = GpuSamples(*known, "instant", 10 * MS, 1980, 3201, 700_000, time, **series)
    return replace(found, **changes)


def summary(table: Table, *gpus: GpuSamples) -> Summary:
    with_samples = Table(len(table), table.columns, gpus)
    return summarise(with_samples, annotate(with_samples))


def said(found: Summary) -> list[str]:
    return [text for text in sentences(found) if any(word in text for word in ("clock", "MHz", "drew", " J "))]


def test_without_readings_nothing_is_said(table):
    assert said(summary(table)) == [] and summary(table).clocks == ()


def test_clocks_falls_peaks_power_and_energy_have_a_sentence_each(table):
    found = summary(table, samples(table))
    clock, fall, peak, power, energy = said(found)
    (gpu,) = found.clocks
    assert clock == (
        f"The SM clock was {gpu.sm_mhz:,.0f} MHz on average while the GPU worked (lowest 1,410 MHz, highest 1,980 MHz, "
        "of at most 1,980 MHz); the memory clock was 3,201 MHz."
    )
    assert fall.startswith("The SM clock was more than 2% below its limit for ")
    assert "NVML names as reasons, by their share of the work: power cap (software) " in fall
    # 4,096 FLOP per clock and SM × 132 SMs
    reached = 4096 * 132 * gpu.sm_mhz * 1e6 / 1e12
    assert peak == (
        f"At {gpu.sm_mhz:,.0f} MHz, this GPU's bf16 tensor cores reach at most {reached:.4g} TFLOP/s; "
        "limits and MFU refer to 989.4 TFLOP/s."
    )
    assert power.endswith("on average while it worked, of at most 700 W, and was at most 61 °C hot.")
    assert energy == (
        f"A step takes about {gpu.energy_j / gpu.steps:.3g} J by NVML's energy counter, "
        f"{gpu.integrated_j / gpu.steps:.3g} J by integrated power (mean of {gpu.steps} steps, idle time included; an "
        f"estimate, for NVML's values changed {gpu.updates} times meanwhile)."
    )
    assert gpu.steps == len(found.steps) > 0
    assert 1410 < gpu.sm_mhz < 1980 and 400 < gpu.power_w < 700
    # the counter grew by the power's own sum, so both energies agree up to the one step of power
    assert gpu.integrated_j == pytest.approx(gpu.energy_j, rel=0.05)


def test_sol_does_not_depend_on_the_clock(table):
    with_clocks, without = summary(table, samples(table)), summary(table)
    assert with_clocks.limits == without.limits
    assert [device.mfu for device in with_clocks.devices] == [device.mfu for device in without.devices]


def test_a_gpu_without_counter_or_clock_says_so_or_nothing(table):
    none = np.full(len(samples(table)), NULL)
    by_power = said(summary(table, samples(table, energy_mj=none)))[-1]
    assert f"by integrated power ({NO_COUNTER}; mean of " in by_power
    assert not [text for text in said(summary(table, samples(table, sm_mhz=none))) if "SM clock" in text]


def test_steady_clocks_say_no_fall(table):
    steady = np.full(len(samples(table)), 1965)
    texts = said(summary(table, samples(table, sm_mhz=steady)))
    assert not [text for text in texts if "below its limit" in text]


def test_readings_of_another_process_are_not_this_gpus(table):
    assert summary(table, samples(table, pid=1)).clocks == ()


def test_the_json_document_has_the_numbers(table):
    found = json.loads(json.dumps(summary_of(summary(table, samples(table))).numbers, default=str))
    (gpu,) = found["clocks"]
    assert gpu["sm_limit_mhz"] == 1980 and gpu["falls"][0]["reasons"] == ["power cap (software)"]
    assert found["clock_peaks"][0]["unit"] == "tc_bf16"


def test_a_peak_at_a_clock_needs_a_rate_that_the_part_has():
    h200, h20 = find_device("NVIDIA H200"), find_device("NVIDIA H20")
    assert peak_at(h200, "tc_bf16", 1.5e9, 1.98e9) == 4096 * 132 * 1.5e9
    assert np.isnan(peak_at(h20, "tc_bf16", 1.5e9, 1.98e9))  # its tensor cores are cut
    geforce = find_device("NVIDIA GeForce RTX 4080")
    assert peak_at(geforce, "tc_bf16", 2e9, 2.505e9) == 512 * 76 * 2e9  # half the rate when accumulating in fp32
    assert np.isnan(peak_at(h200, "nothing", 1.5e9, 1.98e9)) and np.isnan(peak_at(h200, "fp32", 1.5e9, 0))
