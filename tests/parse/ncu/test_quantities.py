"""Quantities by any generation's metric names, worked out by hand or measured."""

import re

import numpy as np
import pytest

from pyprof.parse.ncu.quantities import (
    BY_KEY,
    QUANTITIES,
    executed_flops,
    quantity,
    tensor_ops,
    tensor_ops_by_precision,
)
from pyprof.parse.ncu.reader import read
from pyprof.parse.ncu.report import Launch, Report
from pyprof.parse.ncu.stalls import stall_shares, top_texts
from tests.paths import GOLDEN

LENET, GPT2 = GOLDEN / "ncu" / "h200_lenet.raw.csv.gz", GOLDEN / "ncu" / "h200_gpt2_block.base.csv.gz"
NAN = float("nan")


def report(cc: str = "9.0", **metrics: float) -> Report:
    """One launch, with metrics whose names have ``_`` for a dot before sum, avg, per and pct."""
    named = {re.sub(r"_(sum|avg|max|pct|ratio|per_second|per_cycle_elapsed|pct_of_\w+)(?=_|$)", r".\1", name): value
             for name, value in metrics.items()}  # fmt: skip
    return Report("r.csv", (Launch(0, "k", cc=cc),), {name: np.array([float(v)]) for name, v in named.items()}, {})


def of(key: str, metrics: dict[str, float], cc: str = "9.0") -> float:
    one = Report("r.csv", (Launch(0, "k", cc=cc),), {name: np.array([float(v)]) for name, v in metrics.items()}, {})
    found = {"tensor_ops": tensor_ops, "executed": executed_flops}.get(key, lambda each: quantity(each, key))(one)
    return float(found[0])


TIME = {"gpu__time_duration.sum": 2000}  # 2 us
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on"
FADD, FMUL = FFMA.replace("ffma", "fadd"), FFMA.replace("ffma", "fmul")
BF16 = "sm__ops_path_tensor_src_bf16_dst_fp32"


@pytest.mark.parametrize(
    ("key", "metrics", "value"),
    [
        ("duration_ns", TIME, 2000),
        ("dram_read_bytes", {"dram__bytes_read.sum": 64}, 64),
        ("dram_read_bytes", {"dram__sectors_read.sum": 3}, 96),  # of 32 bytes
        ("dram_read_bytes", TIME | {"dram__bytes_read.sum.per_second": 1e9}, 2000),  # 1 GB/s for 2 us
        ("dram_read_bytes", {"dram__bytes.sum": 64}, NAN),  # reads and writes are not told apart
        ("dram_bytes", {"dram__bytes_read.sum": 64, "dram__bytes_write.sum": 32}, 96),
        ("dram_bytes", {"dram__bytes_read.sum": 64}, NAN),
        ("dram_bytes", TIME | {"dram__bytes.sum.per_second": 5e9}, 10_000),
        # 50% of the cycles at 2 GHz, two transfers of 5,120 bits each: 0.5 * 2e9 * 2 * 640 B/s for 2 us
        ("dram_bytes", TIME | {"dram__cycles_active.avg.pct_of_peak_sustained_elapsed": 50,
                               "device__attribute_global_memory_bus_width": 5120,
                               "dram__cycles_elapsed.avg.per_second": 2e9}, 2_560_000),
        ("l2_read_bytes", {"lts__t_sectors_op_read.sum": 2, "lts__t_sectors_srcunit_tex_op_read.sum": 1}, 64),
        ("l2_read_bytes", {"lts__t_sectors_srcunit_tex_op_read.sum": 1}, 32),
        ("dram_pct", {"dram__bytes_read.sum.pct_of_peak_sustained_elapsed": 30,
                      "dram__bytes_write.sum.pct_of_peak_sustained_elapsed": 12}, 42),
        ("tensor_pct", {"sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active": 3,
                        "sm__inst_executed_pipe_tensor_op_imma.avg.pct_of_peak_sustained_active": 7}, 7),
        ("tensor_pct", {"sm__pipe_tensor_subpipe_hmma_cycles_active.avg.pct_of_peak_sustained_active": 40}, 40),
        ("tensor_pct", {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": 12,
                        "sm__pipe_tensor_op_imma_cycles_active.avg.pct_of_peak_sustained_active": 40}, 12),
        ("tensor_instructions", {"sm__inst_executed_pipe_tensor_op_hmma.sum": 5,
                                 "sm__inst_executed_pipe_tensor_op_imma.sum": 6}, 11),
        # 2 * 100 of FMAs, and 7 + 5
        ("fp32_flops", {f"{FFMA}.sum": 100, f"{FADD}.sum": 7, f"{FMUL}.sum": 5}, 212),
        ("fp32_flops", {f"{FFMA}.sum": 100}, 200),  # a lower bound
        ("fp32_flops", {f"{FFMA}.sum.per_cycle_elapsed": 4, f"{FADD}.sum.per_cycle_elapsed": 1,
                        f"{FMUL}.sum.per_cycle_elapsed": 0, "smsp__cycles_elapsed.avg": 1000}, 9000),
        ("fp32_flops", {"derived__smsp__sass_thread_inst_executed_op_ffma_pred_on_x2": 8,
                        f"{FADD}.sum.per_cycle_elapsed": 1, f"{FMUL}.sum.per_cycle_elapsed": 0,
                        "smsp__cycles_elapsed.avg": 1000}, 9000),
        # HFMA2: two lanes, each 2; HADD2 and HMUL2: two lanes, each 1
        ("fp16_flops", {f"{FFMA.replace('ffma', 'hfma')}.sum": 10, f"{FADD.replace('fadd', 'hadd')}.sum": 3,
                        f"{FMUL.replace('fmul', 'hmul')}.sum": 1}, 48),
        ("fp64_flops", {f"sm__{FFMA.partition('__')[2].replace('ffma', 'dfma')}.sum": 10}, 20),
        ("tensor_ops", {f"{BF16}.sum": 1000}, 1000),
        ("tensor_ops", {f"{BF16}.sum": 1000, f"{BF16}_sparsity_off.sum": 1000, f"{BF16}_sparsity_on.sum": 0}, 1000),
        ("tensor_ops", {f"{BF16}_sparsity_off.sum": 900, f"{BF16}_sparsity_on.sum": 100}, 1000),
        # by result and as a whole
        ("tensor_ops", {"sm__ops_path_tensor_src_fp16.sum": 30, "sm__ops_path_tensor_src_fp16_dst_fp16.sum": 10,
                        "sm__ops_path_tensor_src_fp16_dst_fp32.sum": 20}, 30),
        # Hopper: the counter by instruction misses warpgroup MMA
        ("tensor_ops", {f"{BF16}.sum": 1000, "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32.sum": 0}, 1000),
        # Blackwell has no others
        ("tensor_ops", {"sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32.sum": 70,
                        "sm__ops_path_tensor_op_utcqmma_src_fp4_fp6_fp8_dst_fp32.sum": 30}, 100),
        ("tensor_ops", {f"{BF16}.sum.per_cycle_elapsed": 2, "smsp__cycles_elapsed.avg": 50}, 100),
        ("tensor_ops", {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": 0}, 0),
        ("tensor_ops", {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": 50}, NAN),
        ("tensor_ops", {}, NAN),
        ("executed", {f"{FFMA}.sum": 100, f"{FADD}.sum": 0, f"{FMUL}.sum": 0, f"{BF16}.sum": 1000}, 1200),
        ("executed", {f"{FFMA}.sum": 100}, NAN),  # nothing is known of the tensor cores
        ("executed", {f"{BF16}.sum": 0}, NAN),  # nothing is known of the CUDA cores
        ("executed", {f"{BF16}.sum": 8}, 8),
        ("shared_bytes", {"launch__shared_mem_per_block_static": 16, "launch__shared_mem_per_block_dynamic": 8}, 24),
        ("sm_clock_hz", TIME | {"gpc__cycles_elapsed.max": 3000}, 1.5e9),  # 3,000 cycles in 2 us
    ],
)  # fmt: skip
def test_quantities(key, metrics, value):
    assert of(key, metrics) == pytest.approx(value, nan_ok=True)


def test_voltas_one_tensor_instruction_is_512_operations():
    """HMMA.884: 8 * 8 * 4 multiply-adds = 512; on later GPUs its size depends on the instruction."""
    metrics = {"sm__inst_executed_pipe_tensor.sum": 10}
    assert of("tensor_ops", metrics, cc="7.0") == 5120
    assert np.isnan(of("tensor_ops", metrics, cc="7.5"))


def test_every_quantity_is_known_of_an_h200():
    """But for those that --set full does not collect: bytes and instructions in these forms."""
    found = read(GPT2)
    unknown = {each.key for each in QUANTITIES if np.isnan(quantity(found, each.key)).any()}
    assert unknown == {"l1_bytes", "tensor_instructions"}


def test_tensor_operations_of_gpt2s_first_product():
    """4,096 tokens * 768 * 2,304 in tiles of 192 * 192: 22 * 12 tiles of 192 * 192 * 768 * 2 = 14,948,499,456."""
    found = read(GPT2)
    first = next(row for row, one in enumerate(found.launches) if one.name.startswith("nvjet"))
    assert {name: values[first] for name, values in tensor_ops_by_precision(found).items() if values[first]} == {
        "bf16": 22 * 12 * 192 * 192 * 768 * 2
    }
    assert tensor_ops(found)[first] == 14_948_499_456
    assert 14_948_499_456 < executed_flops(found)[first] < 1.001 * 14_948_499_456  # and the bias
    assert tensor_ops(found)[0] == 0  # an embedding


def test_stalls():
    """Shares of all warps' time, in which issuing is no stall: 6, 3 and 1 of 10."""
    form = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    metrics = {form.format("long_scoreboard"): 6, form.format("wait"): 3, form.format("selected"): 1}
    one = Report("r", (Launch(0, "k"),), {name: np.array([float(value)]) for name, value in metrics.items()}, {})
    assert {name: values[0] for name, values in stall_shares(one).items()} == {"long_scoreboard": 60, "wait": 30}
    assert top_texts(stall_shares(one), 1) == ["long_scoreboard 60%, wait 30%"]
    assert top_texts({}, 1) == [""]


def test_sampled_stalls_leave_out_those_that_were_counted_apart():
    names = {"smsp__pcsamp_warps_issue_stalled_wait": 3, "smsp__pcsamp_warps_issue_stalled_barrier": 1,
             "smsp__pcsamp_warps_issue_stalled_wait_not_issued": 2}  # fmt: skip
    one = Report("r", (Launch(0, "k"),), {name: np.array([float(value)]) for name, value in names.items()}, {})
    assert top_texts(stall_shares(one), 1) == ["wait 75%, barrier 25%"]


def test_four_products_use_tensor_cores_in_bf16_and_tf32_only(data):
    """The single-precision product has 4,096 instructions in the tensor pipe, one per warp: 0.00% of its time."""
    found = read(data / "ncu" / "h200_four_gemms.raw.csv")
    assert quantity(found, "tensor_pct").tolist() == [95.06, 0, 91.98, 0]
    assert tensor_ops(found)[[1, 3]].tolist() == [0, 0]
    assert np.isnan(tensor_ops(found)[[0, 2]]).all()  # used, and not counted
    assert quantity(found, "fp32_flops")[1] == 2 * 68_736_253_952  # 2 * 4096^3 = 137.44e9, and 0.02% more
    assert quantity(found, "dram_bytes").tolist() == [106537728, 343727872, 279469056, 109679360]
    assert quantity(found, "l2_read_bytes")[3] == 67108864  # relu reads 4096 * 4096 * 4


def test_the_sources_name_metrics_and_not_sentences():
    assert len(BY_KEY) == len(QUANTITIES)
    for each in QUANTITIES:
        for source in each.sources:
            assert re.fullmatch(r"(max|sum):\S+|[\w.]+( [*/+] [\w.\-]+)*", source), source
