"""Limits, launch geometry and a run's usage, against Nsight Compute's figures, Kineto's, and by hand."""

import json
import math
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.prof.limits.architectures import SM_LIMITS
from pyprof.prof.limits.devices import find_device
from pyprof.prof.limits.occupancy import block_limits, geometry
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.limits.roofline import roofline
from pyprof.prof.table import cells
from pyprof.prof.table import limit_columns as limits
from pyprof.prof.table.columns import COLUMN, COLUMNS, Limit
from pyprof.prof.timing.usage import usage
from pyprof.prof.work.annotate import Annotation, annotate
from pyprof.table.columns import NULL, Coded, Ragged, Table
from pyprof.table.intervals import covered
from tests.paths import GOLDEN
from tests.tables import parsed

H200 = "NVIDIA H200"


def table(*rows, gpu=H200):
    """A table of kernels, each a dict of its columns."""
    rows = [{"kind": "kernel", "gpu": gpu, "kDuration": 10000, "start": 0, **row} for row in rows]
    data = {}
    for key in {key for row in rows for key in row}:
        values = [row.get(key) for row in rows]
        if isinstance(next((v for v in values if v is not None), None), str):
            data[key] = Coded.of(v or "" for v in values)
        elif key == "occupancy":
            data[key] = np.array([math.nan if v is None else v for v in values])
        else:
            data[key] = np.array([NULL if v is None else v for v in values], np.int64)
    return Table(len(rows), data)


def annotated(*rows):
    """An annotation: (flops, bytes, tc, precision, family) a row."""
    flops, nbytes, tc, precision, family = zip(*rows, strict=True)
    ints = [np.array([NULL if v is None else v for v in column], np.int64) for column in (flops, nbytes)]
    texts = [Coded.of(column) for column in (tc, precision, ["main"] * len(rows), family)]
    return Annotation(*ints, *texts, {})


def test_a_peak_of_0_flop_per_s_is_no_limit():
    """SMs × clock is below what a float holds. Warnings are errors here. The limit of memory: 1e9 B / 1e12 B/s."""
    info = {"computeMajor": 9, "computeMinor": 0, "memoryBandwidth": 1e12, "smCount": 1e-200, "clockRate": 1e-200}
    found = one({"gpu": "another", "gpuInfo": json.dumps(info)}, (10**9, 10**9, "0", "fp32", "gemm"))
    assert [device.peak("fp32") for device in found.devices] == [0.0]
    assert found.memory_ns.tolist() == [1e6]
    assert np.isnan([found.compute_ns[0], found.sol_ns[0], found.sol[0]]).all()


def test_graphs_whose_kernels_are_hidden_have_no_unit():
    """Not one row has a unit: nothing is written into a column that all rows share."""
    file = GOLDEN / "graphs" / "h200_decode_opaque.sqlite.gz"
    whole = parsed(file)
    rows = np.flatnonzero(whole.coded("kind").among("graph"))
    assert roofline(whole.take(rows), annotate(whole).take(rows)).unit.texts() == [""] * len(rows) != []


def one(row, annotation, peaks=None, **more):
    return roofline(table({**row, **more}), annotated(annotation), peaks)


# Nsight Compute on an H200: product of two 4096×4096 matrices in bf16, fp32, tf32, and relu of 4096×4096 fp32.
# 2·4096³ = 137438953472 FLOP; peaks 989.4, 67, 494.7 TFLOP/s; 4.8 TB/s.
CUBE = 137438953472
FOUR = [
    # ns, FLOPs, bytes, tc, precision, family, dtypes -> ai, TFLOP/s, GB/s, sol_ns, sol %, bound, unit
    (
        176896,
        CUBE,
        3 * 2 * 4096**2,
        "1",
        "bf16",
        "gemm",
        '["bfloat16","bfloat16"]',
        1365.333,
        776.948,
        569.05,
        138911.4,
        78.527,
        "compute",
        "tc_bf16",
    ),
    (
        2678368,
        CUBE,
        3 * 4 * 4096**2,
        "0",
        "",
        "gemm",
        '["float32","float32"]',
        682.667,
        51.3144,
        75.1678,
        2051327.7,
        76.589,
        "compute",
        "fp32",
    ),
    (
        345792,
        CUBE,
        3 * 4 * 4096**2,
        "1",
        "tf32",
        "gemm",
        '["float32","float32"]',
        682.667,
        397.461,
        582.22,
        277822.8,
        80.344,
        "compute",
        "tc_tf32",
    ),
    (30976, 0, 2 * 4 * 4096**2, "-", "", "pointwise", '["float32"]', 0, 0, 4332.96, 27962.0, 90.270, "memory", ""),
]


@pytest.mark.parametrize("case", FOUR)
def test_four_kernels_that_ncu_measured(case):
    ns, flops, nbytes, tc, precision, family, dtypes, *expected = case
    found = one(
        {"kDuration": ns, "dtypes": dtypes, "aten": "aten::mm", "grid": "[132, 1, 1]"},
        (flops, nbytes, tc, precision, family),
    )
    numbers = [float(a[0]) for a in (found.ai, found.tflops, found.gbps, found.sol_ns, found.sol)]
    assert numbers == pytest.approx(expected[:5], rel=1e-4)
    assert [found.bound.texts()[0], found.unit.texts()[0]] == expected[5:]


ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<double>, std::array<char*, 3ul> >()"
)
UNITS = [  # tc, precision, family, dtypes, kernel name -> unit
    ("1", "fp8", "gemm", '["float8_e4m3fn","float8_e4m3fn"]', "nvjet", "tc_fp8"),
    ("1", "", "attention", '["bfloat16","bfloat16","bfloat16","",""]', "cudnn_generated_sdpa", "tc_bf16"),
    ("1", "", "gemm", '["float32","float32"]', "some_tensorop", "tc_tf32"),
    ("1", "", "gemm", "", "some_tensorop", ""),
    ("?", "", "gemm", '["float16","float16"]', "my_gemm", ""),  # it may have used them or not
    ("0", "", "gemm", '["float64","float64"]', "dgemm", "fp64"),
    ("0", "", "gemm", '["float16","float16"]', "gemv2T_kernel_val<__half, float>", "fp32"),  # half is stored
    ("0", "", "gemm", '["float16","float16"]', "volta_hgemm_128x64_nn", "fp16"),
    ("-", "", "pointwise", '["bfloat16","float32"]', "vectorized_elementwise_kernel", "fp32"),
    ("-", "", "pointwise", '["float64","float64"]', "vectorized_elementwise_kernel", "fp64"),
    ("-", "", "pointwise", '["float32","float64"]', "vectorized_elementwise_kernel", "fp32"),  # 0-d
    ("-", "", "optimizer", '[["float32","float32"],["float32"]]', "multi_tensor_apply_kernel", "fp32"),
    ("-", "", "pointwise", "", ADD, "fp64"),
    ("-", "", "", "", "my_kernel", ""),  # an op nobody knows
]


@pytest.mark.parametrize(("tc", "precision", "family", "dtypes", "name", "unit"), UNITS)
def test_the_unit_that_did_the_arithmetic(tc, precision, family, dtypes, name, unit):
    row = {"dtypes": dtypes, "kLongName": name, "aten": "aten::add"}
    assert one(row, (1000, 1000, tc, precision, family)).unit.texts() == [unit]


UNKNOWN = [  # what is not known leaves the limit unknown
    ({}, (None, 1000, "-", "", "pointwise")),
    ({}, (1000, None, "-", "", "pointwise")),
    ({"gpu": "a GPU nobody knows"}, (1000, 1000, "-", "", "pointwise")),
    ({"gpu": ""}, (1000, 1000, "-", "", "pointwise")),
    ({}, (1000, 1000, "?", "", "gemm")),
    ({"kind": "memcpy", "kShortName": "[CUDA memcpy Host-to-Device]"}, (0, 1000, "-", "", "")),
    ({"kind": "memcpy", "kShortName": "Memcpy DtoH (Device -> Pageable)"}, (0, 1000, "-", "", "")),
    ({"kShortName": "ncclDevKernel_AllReduce_Sum_f32_RING_LL"}, (0, 1000, "-", "", "")),
    ({}, (0, 1000, "-", "", "collective")),
    # DeepEP's and NVSHMEM's, whose short names (combine, dispatch) say less than the long ones
    (
        {
            "kShortName": "combine",
            "kLongName": "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)",
        },
        (0, 1000, "-", "", ""),
    ),
    (
        {"kShortName": "dispatch", "kLongName": "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)"},
        (0, 1000, "-", "", ""),
    ),
    ({"kShortName": "barrier_on_stream_kernel_threadgroup"}, (0, 1000, "-", "", "")),
    ({"kDuration": None}, (1000, 1000, "-", "", "pointwise")),
]


@pytest.mark.parametrize(("row", "annotation"), UNKNOWN)
def test_unknown_is_not_zero(row, annotation):
    found = one({"dtypes": '["float32"]', "aten": "aten::add", **row}, annotation)
    assert math.isnan(found.sol[0])
    assert found.bound.texts() == [""]


def test_a_copy_within_the_device_has_its_bandwidth():
    row = {"kind": "memcpy", "kShortName": "Memcpy DtoD (Device -> Device)", "kDuration": 2000}
    found = one(row, (0, 4800000, "-", "", ""))
    assert found.sol[0] == pytest.approx(50)  # 4.8 MB at 4.8 TB/s: 1 µs
    assert found.bound.texts() == ["memory"]


BOUND = [  # ns, FLOPs (67e12/s), bytes (4.8e12/s), blocks -> bound
    (4000, 0, 4800000, 1000, "memory"),  # 1 µs of 4: explained by a quarter
    (4000, 0, 4320000, 1000, "latency"),  # 0.9 µs of 4, and short
    (5001, 0, 4320000, 1000, "memory"),  # slow, and long enough: no excuse
    (50000, 0, 4320000, 131, "latency"),  # long, but one of 132 SMs has no block
    (50000, 0, 4320000, 132, "memory"),
    (50000, 67000000 * 20, 4800000, 1000, "compute"),  # 20 µs of arithmetic, 1 of memory
    (2000, 0, 0, 1, "latency"),
    (50000, 0, 0, 1000, ""),  # nothing to do, and time for it: nothing known holds it back
]


@pytest.mark.parametrize(("ns", "flops", "nbytes", "blocks", "bound"), BOUND)
def test_what_holds_a_kernel_back(ns, flops, nbytes, blocks, bound):
    row = {"kDuration": ns, "grid": f"[{blocks}, 1, 1]", "dtypes": '["float32"]', "aten": "aten::add"}
    assert one(row, (flops, nbytes, "-", "", "pointwise")).bound.texts() == [bound]


def test_peaks_from_a_file_are_used():
    row = {"kDuration": 176896, "aten": "aten::mm"}
    peaks = Peaks("peaks.json", "NVIDIA H200", "sm_90", {"tc_bf16": 811e12}, 4.25e12)
    found = one(row, (CUBE, 3 * 2 * 4096**2, "1", "bf16", "gemm"), peaks)
    assert found.sol_ns[0] == pytest.approx(169468.5)  # 137.44e9 / 811e12
    assert found.sol[0] == pytest.approx(95.80, abs=0.01)
    assert found.notes() == [
        "NVIDIA H200: peaks and bandwidth from peaks.json, measured on NVIDIA H200; the rest: NVIDIA H200 datasheet; "
        "L2 as the device reports it (62,914,560 bytes)"
    ]


def test_a_cpus_peaks_are_not_a_gpus():
    host = Peaks("cpu.json", "a CPU", "cpu", {"fp32": 1e11, "bf16": 2e11}, 2e10)
    row = {"dtypes": '["bfloat16","bfloat16"]', "aten": "aten::mm", "kDuration": 2000000}
    on_gpu = one(row, (200000000, 1000, "1", "bf16", "gemm"), host)
    assert on_gpu.devices[0].peak("tc_bf16") == pytest.approx(989.4e12)
    on_cpu = one({**row, "kind": "cpu", "gpu": ""}, (200000000, 1000, "0", "", "gemm"), host)
    assert on_cpu.sol_ns[0] == pytest.approx(1000000)  # 2e8 / 2e11
    assert on_cpu.unit.texts() == ["bf16"]


def test_notes_say_what_is_unknown():
    found = roofline(table({}, {"gpu": ""}, gpu="a GPU"), annotated(*[(1, 1, "-", "", "pointwise")] * 2))
    assert found.notes() == [
        "a GPU: peaks and bandwidth unknown (measure them: pyprof peaks -o peaks.json)",
        "the capture does not name the GPU of some rows: no limits there (give --peaks peaks.json)",
    ]


def test_rows_of_a_cpu_are_no_gpus():
    found = roofline(table({"kind": "cpu"}, gpu=""), annotated((1, 1, "-", "", "pointwise")))
    words = "no limits: what this CPU reaches is not known (measure it: pyprof peaks -o peaks.json)"
    assert found.notes() == [words]


# Launch geometry

# Nsight Compute's reports: H200, H800, A10G, RTX 3060 Ti, T4.
# arch, SMs, blocks, threads, registers, shared bytes -> block limits by warps, registers; occupancy %, waves
NCU = [
    ("sm_90", 132, 132, 384, 168, 213188, 5, 1, 18.75, 1),
    ("sm_90", 132, 512, 256, 254, 67584, 8, 1, 12.5, 3.88),
    ("sm_90", 132, 132, 384, 168, 231424, 5, 1, 18.75, 1),
    ("sm_90", 132, 16384, 128, 28, 0, 16, 16, 100, 7.76),
    ("sm_90", 132, 1056, 256, 40, 0, 8, 6, 75, 1.33),
    ("sm_90", 132, 8, 256, 40, 0, 8, 6, 75, 0.01),
    ("sm_86", 80, 1024, 1024, 36, 0, 1, 1, 66.67, 12.8),
    ("sm_86", 80, 1024, 1024, 40, 0, 1, 1, 66.67, 12.8),
    ("sm_86", 80, 1024, 1024, 36, 8192, 1, 1, 66.67, 12.8),
    ("sm_86", 80, 256, 512, 51, 4096, 3, 2, 66.67, 1.6),
    ("sm_86", 80, 64, 256, 150, 8192, 6, 1, 16.67, 0.8),
    ("sm_86", 38, 2048, 512, 26, 8192, 3, 4, 100, 17.96),
    ("sm_75", 40, 1024, 256, 32, 0, 4, 8, 100, 6.4),
]


@pytest.mark.parametrize("case", NCU)
def test_occupancy_is_ncus(case):
    arch, sms, blocks, threads, registers, smem, by_warps, by_registers, occupancy, waves = case
    limits = block_limits(SM_LIMITS[arch], *(np.array([float(x)]) for x in (threads, registers, smem)))
    assert (limits[0][0], limits[1][0]) == (by_warps, by_registers)
    major, minor = divmod(int(arch[3:]), 10)
    launch = geometry(
        table(
            {
                "grid": f"[{blocks}, 1, 1]",
                "block": f"[{threads}, 1, 1]",
                "registers": registers,
                "staticSmem": 0,
                "dynamicSmem": smem,
            }
        ),
        np.zeros(1, np.int64),
        [find_device("GPU", {"computeMajor": major, "computeMinor": minor, "smCount": sms})],
    )
    assert launch.occupancy[0] == pytest.approx(occupancy, abs=0.005)
    assert launch.waves[0] == pytest.approx(waves, abs=0.005)


def launch(**row):
    usual = {"grid": "[264, 1, 1]", "block": "[256, 1, 1]", "registers": 32, "staticSmem": 0, "dynamicSmem": 0}
    return one({**usual, **row}, (0, 0, "-", "", "pointwise")).geometry


LIMITER = [  # block, registers, shared bytes -> resident blocks, limiter, on an H200
    ("[256, 1, 1]", 32, 0, 8, "threads"),  # 2048 / 256
    ("[256, 1, 1]", 40, 0, 6, "registers"),  # 40·32 = 1280 a warp, 12 a partition, 48 warps
    ("[128, 1, 1]", 32, 60000, 3, "shared memory"),  # 60000 + 1024 -> 61056; 233472 // 61056
    ("[32, 1, 1]", 32, 0, 32, "blocks"),
    ("[16, 2, 4]", 32, 0, 16, "threads"),
    ("[100, 1, 1]", 32, 0, 16, "threads"),  # 4 warps, the last of 4 threads
]


@pytest.mark.parametrize(("block", "registers", "smem", "resident", "limiter"), LIMITER)
def test_what_limits_occupancy(block, registers, smem, resident, limiter):
    found = launch(block=block, registers=registers, dynamicSmem=smem)
    assert (found.resident[0], found.limiter.texts()[0]) == (resident, limiter)


def test_waves_tail_and_sm_efficiency():
    found = launch(grid="[1320, 1, 1]")  # 1320 / (132 · 8) = 1.25: the second wave has a quarter
    assert (found.waves[0], found.tail[0], found.sm_efficiency[0]) == (1.25, 0.375, 100)
    found = launch(grid="[33, 2, 1]")  # 66 of 132 SMs
    assert (found.waves[0], found.sm_efficiency[0]) == (66 / 1056, 50)
    assert found.achieved[0] == pytest.approx(100 * 0.5 * 256 / 2048)


@pytest.mark.parametrize(("told", "achieved"), [(94.0, 94.0), (0.0, 25.0), (None, 25.0)])
def test_achieved_occupancy_is_the_captures_unless_it_is_none_or_0(told, achieved):
    found = launch(occupancy=told, grid="[264, 1, 1]")  # two blocks an SM: 2 · 256 / 2048
    assert found.achieved[0] == achieved


NOTHING = [
    {"registers": None},
    {"block": "[0, 1, 1]"},
    {"block": "nonsense"},
    {"gpu": ""},
    {"staticSmem": None, "dynamicSmem": None},
    {"registers": 255, "block": "[2048, 1, 1]"},
    {"dynamicSmem": 300000},
    {"kind": "memset"},
]


@pytest.mark.parametrize("row", NOTHING)
def test_no_occupancy_where_something_is_not_known(row):
    found = launch(**row)
    assert math.isnan(found.occupancy[0])
    assert math.isnan(found.waves[0])
    assert found.limiter.texts() == [""]


def test_occupancy_needs_no_grid():
    found = launch(grid="")
    assert (found.occupancy[0], math.isnan(found.waves[0]), math.isnan(found.achieved[0])) == (100, True, True)


# A run


def run(*kernels):
    """Usage of kernels (start, end, blocks) on one H200."""
    rows = [{"start": a, "kDuration": b - a, "grid": f"[{n}, 1, 1]", "pid": 1, "device": 0} for a, b, n in kernels]
    data, notes = table(*rows), annotated(*[(0, 0, "-", "", "pointwise")] * len(rows))
    (found,) = usage(data, notes, roofline(data, notes))
    return found


def test_a_runs_usage_by_hand():
    found = run((0, 100, 66), (50, 150, 33), (200, 300, 1320))
    # busy 150 of 300 and 100; efficiency 50 · 0.5 + 50 · (0.5 + 0.25) + 50 · 0.25 + 100 · 1
    assert (found.span_ns, found.busy_ns, found.kernel_ns) == (300, 250, 250)
    assert found.utilisation == pytest.approx(250 / 3)
    assert found.sm_efficiency == pytest.approx(100 * (25 + 37.5 + 12.5 + 100) / 300)


def test_operations_too_short_for_the_clock_are_operations_too():
    """A trace in whole µs (Kineto of 2021) gives a memset of 0.3 µs no duration."""
    assert run((0, 100, 132), (100, 100, 1), (200, 300, 132)).operations == 3


def test_mfu_weighs_each_product_by_the_unit_it_ran_on():
    rows = [{"start": 0, "kDuration": 176896, "dtypes": "", "aten": "aten::mm"}] * 3
    data = table(*[{**row, "start": 200000 * i} for i, row in enumerate(rows)])
    notes = annotated((CUBE, 1, "1", "bf16", "gemm"), (CUBE, 1, "1", "bf16", "gemm"), (CUBE, 1, "0", "", "gemm"))
    (found,) = usage(data, notes, roofline(data, notes))
    assert (found.unit, found.peak_flop_per_s, found.span_ns) == ("tc_bf16", pytest.approx(989.4e12), 576896)
    needed = 2 * CUBE / 989.4e12 + CUBE / 67e12  # two on bf16 tensor cores, one on the fp32 vector unit
    assert found.mfu == pytest.approx(100 * needed / 576896e-9)
    assert found.tflops == pytest.approx(3 * CUBE / 576896e-9 / 1e12)
    assert (found.name, found.busy, found.utilisation) == (
        "NVIDIA H200",
        pytest.approx(91.99, abs=0.01),  # 3 × 176896 of 576896
        pytest.approx(91.99, abs=0.01),
    )


def test_products_that_only_a_kernels_name_tells_of_count_for_mfu():
    """A mixture of experts has no op of a product; its kernel is one on fp8 tensor cores (1978.9 TFLOP/s)."""
    data = table({"start": 0, "kDuration": 176896, "dtypes": "", "aten": "vllm::moe_forward"})
    notes = annotated((CUBE, 1, "1", "fp8", ""))
    (found,) = usage(data, notes, roofline(data, notes))
    assert found.mfu == pytest.approx(100 * CUBE / 1978.9e12 / 176896e-9)


def test_devices_and_ranks_are_told_apart():
    rows = [{"start": 0, "pid": pid, "device": device, "rank": pid} for pid, device in ((1, 0), (0, 0), (0, 1), (1, 0))]
    data, notes = table(*rows), annotated(*[(1, 1, "-", "", "pointwise")] * 4)
    found = usage(data, notes, roofline(data, notes))
    assert [(u.rank, u.ordinal, u.operations) for u in found] == [(0, 0, 1), (0, 1, 1), (1, 0, 2)]


def test_a_run_without_anything():
    data, notes = Table(0, {}), Annotation(*[np.zeros(0, np.int64)] * 2, *[Coded.empty(0)] * 4, {})
    found = roofline(data, notes)
    assert (len(found.sol), found.notes(), usage(data, notes, found)) == (0, [], [])


intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(1, 300)), min_size=1, max_size=12)


@given(intervals)
def test_unions_and_efficiency_equal_their_definitions(kernels):
    kernels = [(start, start + length, blocks) for start, length, blocks in kernels]
    low, high = min(k[0] for k in kernels), max(k[1] for k in kernels)
    running = [[Fraction(n, 132) for a, b, n in kernels if a <= t < b] for t in range(low, high)]
    starts, ends = (np.array([k[i] for k in kernels]) for i in range(2))
    assert covered(starts, ends) == sum(map(bool, running))
    if high > low:
        found = run(*kernels)
        expected = 100 * sum(min(Fraction(1), sum(now, Fraction(0))) for now in running) / (high - low)
        assert (0 if math.isnan(found.sm_efficiency) else found.sm_efficiency) == pytest.approx(float(expected))


def test_a_union_longer_than_64_bits_tell_is_exact() -> None:
    """5 ns and 1 ns, 2 ** 63 - 1 ns apart: what a stranger's table may say."""
    far = 1 << 62
    assert covered(np.array([-far, far]), np.array([-far + 1, far + 5])) == 6


# Columns


LIMITS = [column for column in COLUMNS if isinstance(column.get, Limit)]


def test_columns_of_limits_are_computed_once(monkeypatch):
    data, notes = table({}, {}), annotated(*[(1, 1, "-", "", "pointwise")] * 2)
    calls = []
    monkeypatch.setattr(limits, "roofline", lambda *args: calls.append(args) or roofline(*args))
    columns, said = limits.with_limits([COLUMN["kernel"], *LIMITS], data, notes)
    assert len(calls) == 1
    assert said == roofline(data, notes).notes()
    assert columns[0] is COLUMN["kernel"]
    for column, alone in zip(columns[1:], LIMITS, strict=True):
        here, there = column.get(data, notes), alone.get(data, notes)
        assert len(here) == 2
        assert here.texts() == there.texts() if isinstance(here, Coded) else np.array_equal(here, there, equal_nan=True)


def test_without_columns_of_limits_nothing_is_computed(monkeypatch):
    monkeypatch.setattr(limits, "roofline", lambda *_: pytest.fail("computed"))
    assert limits.with_limits([COLUMN["kernel"]], table({}), None) == ([COLUMN["kernel"]], [])


def test_cells_of_limits():
    row = {
        "kDuration": 176896,
        "aten": "aten::mm",
        "grid": "[132, 1, 1]",
        "block": "[384, 1, 1]",
        "registers": 168,
        "dynamicSmem": 213188,
    }
    found = limits.limit_cells(one(row, (CUBE, 3 * 2 * 4096**2, "1", "bf16", "gemm")))
    texts = {name: cells.shown(data) if cells.is_float(data) else data for name, data in found.items()}
    assert {name: data.texts()[0] if isinstance(data, Coded) else data[0] for name, data in texts.items()} == {
        "ai": "1365",
        "tflops": "776.9",
        "gbps": "569.1",
        "unit": "tc_bf16",
        "sol_ns": 138911,
        "sol": "78.53",
        "bound": "compute",
        "occ": "18.75",
        "occ_limit": "registers",
        "occ_est": "18.75",
        "waves": "1",
        "tail": "0",
        "sm_eff": "100",
    }
    assert found.keys() == {column.name for column in LIMITS}


@given(st.lists(st.floats(0, 1e9), max_size=5))
def test_shown_numbers_keep_four_digits(numbers):
    for number, text in zip(numbers, cells.shown(np.array(numbers, float)).texts(), strict=True):
        assert "e" not in text
        assert float(text) == pytest.approx(number, rel=1e-3, abs=1e-8)


@pytest.mark.slow
def test_a_million_rows_take_about_a_second():
    rows = 1_100_000
    source = np.random.default_rng(0)
    data = Table(
        rows,
        {
            "kind": Coded(np.zeros(rows, np.int32), ["kernel"]),
            "gpu": Coded(np.zeros(rows, np.int32), [H200]),
            "kDuration": source.integers(1000, 100000, rows),
            "start": np.arange(rows, dtype=np.int64) * 50000,
            "grid": Coded(source.integers(0, 500, rows).astype(np.int32), [f"[{i + 1}, 1, 1]" for i in range(500)]),
            "block": Coded(
                source.integers(0, 8, rows).astype(np.int32), [f"[{128 * (i + 1)}, 1, 1]" for i in range(8)]
            ),
            "registers": source.integers(16, 64, rows),
            "dynamicSmem": source.integers(0, 40000, rows),
            "dtypes": Coded(source.integers(-1, 50, rows).astype(np.int32), [f'["float32","{i}"]' for i in range(50)]),
            "aten": Coded(source.integers(0, 30, rows).astype(np.int32), [f"aten::op{i}" for i in range(30)]),
            "kLongName": Coded(source.integers(0, 300, rows).astype(np.int32), [f"kernel{i}" for i in range(300)]),
            "seqId": Ragged.empty(rows),
        },
    )
    zeros = np.zeros(rows, np.int32)
    notes = Annotation(
        source.integers(0, 10**9, rows),
        source.integers(0, 10**8, rows),
        Coded(zeros, ["-"]),
        Coded(zeros - 1, []),
        Coded(zeros, ["main"]),
        Coded(zeros, ["pointwise"]),
        {},
    )
    began = time.perf_counter()
    usage(data, notes, roofline(data, notes))
    assert time.perf_counter() - began < 6  # 1 s on an idle core; the margin is for a busy machine
