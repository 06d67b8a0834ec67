"""Sums, rates, efficiency and sentences of a report: each expected number is worked out beside it."""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from pyprof.parse.ncu.reader import read
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.ncu.report_layers import Layers
from pyprof.prof.ncu.report_rows import by_kind, by_phase, kernels, total, without_products
from pyprof.prof.ncu.report_sentences import notes, sentences
from pyprof.quantities import binary_bytes

from .measured import GEMM, STEP, launches, measured, ranges

NAN = math.nan
UP = ranges("layer:Net", "layer:blocks.0", "layer:blocks.0.up", "aten::linear, seq = 1, op_id = 2")
TWO = launches((GEMM, UP), ("gelu_kernel", ranges("layer:Net", "aten::gelu, seq = 2, op_id = 3")))
# 4.8 TB/s on an H200. The product: 1.2 GB in 1 ms is 25% of it, and tensor cores 60%. gelu: 2.4 GB in 1 ms is 50%.
NUMBERS = {
    "time": [1e6, 1e6],
    "read": [0.8e9, 1.6e9],
    "write": [0.4e9, 0.8e9],
    "l2_read": [2e9, 1.6e9],
    "l2_write": [0.5e9, 0.8e9],
    "tensor": [60.0, 0.0],
    "instructions": [3e9, 1e9],
}


def test_efficiency_is_the_greater_share_weighted_by_time() -> None:
    found = kernels(measured(TWO, **NUMBERS))
    assert found.dram_pct.tolist() == pytest.approx([25.0, 50.0])
    assert found.efficiency_pct.tolist() == pytest.approx([60.0, 50.0])
    whole = total(found)
    assert whole.efficiency_pct == pytest.approx(55.0)  # (60 + 50) / 2
    assert whole.tensor_pct == pytest.approx(30.0)
    assert whole.rates["dram_read_bytes"] == pytest.approx(1.2e12)  # 2.4 GB / 2 ms
    assert (whole.kernels, whole.time_ns, whole.incomplete) == (2, 2e6, False)


def test_layers_multiply_time_amounts_and_weights() -> None:
    found = kernels(measured(TWO, **NUMBERS), layers=Layers(3))
    whole = total(found)
    assert (whole.kernels, whole.time_ns) == (4, 4e6)  # 3 x 1 ms + 1 ms
    assert whole.amounts["dram_read_bytes"] == 4e9  # 3 x 0.8 + 1.6
    assert whole.rates["dram_read_bytes"] == pytest.approx(1e12)
    assert whole.efficiency_pct == pytest.approx(57.5)  # (3 x 60 + 50) / 4
    assert [(each.name, each.kernels, each.time_ns) for each in by_kind(found)] == [
        ("GEMM", 3, 3e6), ("element-wise", 1, 1e6)
    ]  # fmt: skip
    assert without_products(found).time_ns == 1e6


def test_sums_by_phase_have_the_order_of_a_step() -> None:
    found = kernels(measured(STEP, time=[1e3] * 15))
    assert [(each.name, each.kernels) for each in by_phase(found)] == [
        ("encoder", 2), ("forward", 2), ("classifier", 5), ("backward", 4), ("optimizer", 2)
    ]  # fmt: skip


def test_unknown_is_not_zero() -> None:
    found = kernels(measured(TWO, time=[1e6, NAN], read=[1e9, 1e9], instructions=[NAN, NAN]))
    whole = total(found)
    assert (whole.time_ns, whole.amounts["dram_read_bytes"], whole.incomplete) == (1e6, 2e9, True)
    assert whole.rates["dram_read_bytes"] == pytest.approx(1e12)  # of the kernel whose time is known
    assert math.isnan(whole.amounts["instructions"]) and math.isnan(whole.amounts["l2_read_bytes"])
    assert not any("instructions" in sentence or "L2" in sentence for sentence in sentences(found))


def test_a_device_without_a_known_bandwidth_has_ncu_s_own_share() -> None:
    name = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
    unknown = tuple(launch._replace(device_name="", cc="") for launch in TWO)
    found = kernels(measured(unknown, **NUMBERS, **{name: [20.0, 40.0]}))
    assert found.dram_pct.tolist() == [20.0, 40.0]
    assert any("the peak that ncu takes for an unknown GPU" in sentence for sentence in sentences(found))
    assert any("bandwidth of DRAM unknown (measure it: pyprof peaks" in note for note in notes(found, 0, None))


def test_measured_peaks_replace_the_data_sheet_s() -> None:
    found = kernels(measured(TWO, **NUMBERS), Peaks("peaks.json", "NVIDIA H200", "sm_90", {}, 2.4e12))
    assert found.dram_pct.tolist() == pytest.approx([50.0, 100.0])
    assert any("bandwidth of DRAM from peaks.json" in note for note in notes(found, 0, None))


def test_the_sentences_are_right_to_the_digit() -> None:
    assert sentences(kernels(measured(TWO, **NUMBERS))) == [
        "The 2 kernels take 2.000 ms, one after the other: forward 2.000 ms (100%).",
        "They read 2.24 GiB from DRAM (1.2 TB/s) and write 1.12 GiB to DRAM (600 GB/s).",  # 2.4e9 / 2^30, 1.2e9 / 2^30
        "They read 3.35 GiB from the L2 cache (1.8 TB/s) and write 1.21 GiB to the L2 cache (650 GB/s).",
        "They execute 4 billion instructions, counted by warp.",
        "The overall efficiency is 55.0%, the share of the time that would suffice if every kernel reached its limit: "
        "DRAM at 4.8 TB/s (NVIDIA H200) or the tensor cores, whichever it uses more.",
        "The most that a kernel reaches is 50.0% of DRAM and 60.0% of the tensor cores.",
        "Without GEMMs, they take 1.000 ms (50.0%).",
    ]


def test_one_kernel_is_singular() -> None:
    said = sentences(kernels(measured(TWO[:1], **{key: values[:1] for key, values in NUMBERS.items()})))
    assert said[0] == "The kernel takes 1.000 ms: forward 1.000 ms (100%)."
    assert said[1].startswith("It reads ") and said[3].startswith("It executes ")


def test_a_locked_clock_is_said() -> None:
    slow = kernels(measured(TWO, **NUMBERS, clock=[1.2e9, 1.4e9], highest=[1.98e6, 1.98e6]))
    (note,) = [note for note in notes(slow, 0, None) if "GHz" in note]
    assert note.startswith(
        "NVIDIA H200: measured at 1.30 GHz (median of the SMs' clocks), 65.7% of its highest, 1.98 GHz"
    )
    assert "ncu locks the base clock" in note
    fast = kernels(measured(TWO, **NUMBERS, clock=[1.9e9, 1.9e9], highest=[1.98e6, 1.98e6]))
    assert [note for note in notes(fast, 0, None) if "base clock" in note] == []


def test_what_names_cannot_tell_is_said() -> None:
    by_names = kernels(measured(launches(("layernorm_forward_kernel", ())), time=[1.0]))
    assert any("guessed from kernel names" in note for note in notes(by_names, 0, None))
    nothing = kernels(measured(launches((GEMM, ())), time=[1.0]))
    assert any("do not show which pass" in note for note in notes(nothing, 0, None))
    assert any("3 kernels without a time" in note for note in notes(nothing, 3, None))


def test_sums_of_several_processes_are_said_to_be_so() -> None:
    two = (TWO[0], TWO[1]._replace(process_id=8))
    assert "the kernels are of 2 processes, and so are all sums" in notes(kernels(measured(two, **NUMBERS)), 0, None)
    assert not any("processes" in note for note in notes(kernels(measured(TWO, **NUMBERS)), 0, None))


def test_gib_has_three_figures() -> None:
    assert [binary_bytes(2**30 * value) for value in (0.5, 12.345, 150)] == ["0.50 GiB", "12.35 GiB", "150 GiB"]
    assert [binary_bytes(value) for value in (96 * 2**20, 2**20, 512, 1)] == [
        "96.00 MiB",
        "1.00 MiB",
        "0.50 KiB",
        "1 B",
    ]


def test_the_real_report_s_sums_are_those_of_its_cells(root: Path) -> None:
    """The table has one column per metric behind the ranges; here it is split at its commas, counted from the end."""
    file = root / "tests" / "golden" / "ncu/h200_gpt2_block.base.csv.gz"
    with gzip.open(file, "rt", encoding="utf-8") as table:
        head, _, *rows = [line.strip('"\n').split('","') for line in table if line.startswith('"')]

    def column(name: str) -> list[float]:
        at = head.index(name) - len(head)
        return [float(row[at].replace(",", "")) for row in rows]

    found = kernels(read(file))
    whole = total(found)
    assert len(found) == len(rows) == 107
    time, read_bytes = column("gpu__time_duration.sum"), column("dram__bytes_read.sum")
    assert whole.time_ns == sum(time) == 11_434_720
    assert whole.amounts["dram_read_bytes"] == sum(read_bytes)
    assert whole.amounts["instructions"] == sum(column("smsp__inst_executed.sum"))
    assert whole.rates["dram_read_bytes"] == pytest.approx(1e9 * sum(read_bytes) / sum(time))
    tensor = column("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active")
    moved = [a + b for a, b in zip(read_bytes, column("dram__bytes_write.sum"), strict=True)]
    share = [max(t, 100 * b / (4800 * ns)) for t, b, ns in zip(tensor, moved, time, strict=True)]  # 4800 bytes per ns
    by_time = sum(s * ns for s, ns in zip(share, time, strict=True)) / sum(time)
    assert whole.efficiency_pct == pytest.approx(by_time) and 35 < by_time < 36
    phases = {each.name: each.time_ns for each in by_phase(found)}
    assert math.fsum(phases.values()) == whole.time_ns
    assert list(phases) == ["encoder", "forward", "classifier", "backward", "optimizer"]
    # The head's three products, 25 to 27 and 36 to 39 of the launches, and all between them: from its cast to its end
    assert phases["classifier"] == sum(time[25:40])
    assert phases["optimizer"] == sum(time[103:])
    assert phases["encoder"] == time[0] + time[2] + sum(time[79:103])


def test_what_pyprof_ncu_measures_is_all_that_the_report_needs(root: Path) -> None:
    """`pyprof ncu -- python3 train_gpt2.py` on an H200: one pass, 107 kernels of the second step.

    The same program was measured with `ncu --set full`, in 38 passes: the counts are the same, DRAM's nearly.
    """
    golden = root / "tests" / "golden"
    ours = kernels(read(golden / "ncu/h200_gpt2_block_pyprof.csv.gz"))
    full = kernels(read(golden / "ncu/h200_gpt2_block.base.csv.gz"))
    for column in (ours.time_ns, ours.tensor_pct, ours.dram_pct, *ours.amounts.values()):
        assert np.isfinite(column).all()
    assert (ours.names, ours.phases, ours.ops, ours.layers) == (full.names, full.phases, full.ops, full.layers)
    mine, theirs = total(ours), total(full)
    assert mine.amounts["instructions"] == pytest.approx(theirs.amounts["instructions"], rel=1e-4)
    for key in ("dram_read_bytes", "dram_write_bytes", "l2_read_bytes", "l2_write_bytes"):
        assert mine.amounts[key] == pytest.approx(theirs.amounts[key], rel=0.02)
    assert mine.time_ns == pytest.approx(theirs.time_ns, rel=0.02)
