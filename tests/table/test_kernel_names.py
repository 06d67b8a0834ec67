"""A wrapper's bare name says nothing, so the whole name is shown, as `pyprof stats` shows it."""

from pathlib import Path

import pytest

from pyprof.parse.read import read_profile
from pyprof.parse.stats.from_capture import gpu_rows
from pyprof.prof.load import load_table
from pyprof.table.columns import Coded, Table
from pyprof.table.kernel_names import WRAPPER, name_wrappers, shown_name
from pyprof.table.measured_steps import MeasuredStep
from tests.paths import GOLDEN

CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_128x64_64x6_nn_align8>(T1::Params)"
FLASH = "void cutlass::device_kernel<flash::FlashAttnFwdSm90<A>>(T1)"
NORM = "void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<A>>(T1)"
GEMV = "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(cublasGemvParams<float>)"

NAMES = [
    ("Kernel2", CUTLASS, CUTLASS),
    ("Kernel", "", "Kernel"),  # there is no other name
    ("kernel", GEMV, GEMV),
    ("device_kernel", FLASH, FLASH),
    ("kentry", NORM, NORM),
    # names that say something
    ("reduce_kernel", "void at::native::reduce_kernel<512, 1, A>(T1)", "reduce_kernel"),
    ("combine", "void deep_ep::internode::combine<false>(T1)", "combine"),
    ("matmul_kernel", "matmul_kernel", "matmul_kernel"),
    ("Kernel2D", "void Kernel2D<float>(float*)", "Kernel2D"),
]  # fmt: skip


@pytest.mark.parametrize(("short", "long", "shown"), NAMES)
def test_the_name_that_is_shown(short: str, long: str, shown: str) -> None:
    assert shown_name(short, long) == shown
    table = Table(1, {"kShortName": Coded.of([short]), "kLongName": Coded.of([long])})
    assert name_wrappers(table).coded("kShortName").texts() == [shown]


@pytest.mark.parametrize("file", ["h200_diff_eager.json.gz", "h200_lenet.sqlite.gz", "h200_resnet50_bf16.json.gz"])
def test_a_wrapper_has_the_name_that_stats_shows(file: str) -> None:
    """The golden captures run CUTLASS's kernels; ``stats`` prints the long name, and ``:base`` nsys's short one."""
    capture, _, table, *_ = read_profile(GOLDEN / file)
    gpu = gpu_rows(capture.columns, capture.rows)
    wrapped = gpu.base.where(WRAPPER.fullmatch)
    assert wrapped.any()
    assert table.coded("kShortName").take(wrapped).texts() == gpu.name.take(wrapped).texts()
    others = ~wrapped & table.coded("kind").among("kernel")
    assert table.coded("kShortName").take(others).texts() == gpu.base.take(others).texts()


def test_a_table_of_pyprofs_gets_whole_names(tmp_path: Path) -> None:
    (tmp_path / "net.dict").write_text(repr({"kShortName": "Kernel2", "kLongName": CUTLASS, "kDuration": 5}) + "\n")
    assert load_table(tmp_path / "net.dict").table.coded("kShortName").texts() == [CUTLASS]


def test_a_wrapper_s_name_keeps_what_the_table_carries():
    """The steps that were timed before the profiler started, and the GPU's clocks."""
    step = MeasuredStep(number=1, host_ns=5, gpu_ns=7)
    columns = {"kShortName": Coded.of(["Kernel2"]), "kLongName": Coded.of([CUTLASS])}
    assert name_wrappers(Table(1, columns, measured=[step])).measured == (step,)
