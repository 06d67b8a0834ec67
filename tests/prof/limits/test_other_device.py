"""Kernels of an H200 on other GPUs, worked out by hand from the data sheets' peaks.

H200: 989.4 TFLOP/s in bf16, 4.8 TB/s. A100-80GB-SXM4: 312 and 2.039. V100-SXM2: no bf16, fp32 15.7 TFLOP/s.
"""

import pytest

from pyprof.errors import UsageError
from pyprof.prof.limits.other_device import DEVIATIONS, OTHER_VENDOR, device_names, named_device, on_device
from tests.prof.limits.test_roofline import CUBE, annotated, table

PRODUCT = ({"kDuration": 200_000, "dtypes": '["bfloat16"]'}, (CUBE, 100_663_296, "1", "bf16", "gemm"))
RELU = ({"kDuration": 34_000, "dtypes": '["float32"]'}, (16_777_216, 134_217_728, "-", "", "pointwise"))
SMALL = ({"kDuration": 2_000, "dtypes": '["float32"]'}, (100, 800, "-", "", "pointwise"))
COPY = (
    {"kDuration": 101_500, "kind": "memcpy", "kShortName": "Memcpy HtoD (Pinned -> Device)"},
    (None, None, "-", "", ""),
)
TALK = ({"kDuration": 90_000, "kShortName": "ncclDevKernel_AllReduce_Sum"}, (None, None, "-", "", "collective"))
STRANGE = ({"kDuration": 51_500, "kShortName": "mine"}, (None, None, "?", "", ""))


def moved(name, *rows):
    texts = {"kShortName": "kernel"}
    return on_device(
        table(*({**texts, **row} for row, _ in rows)), annotated(*(a for _, a in rows)), named_device(name)
    )


@pytest.mark.parametrize(
    ("row", "name", "kind", "ns"),
    [
        (PRODUCT, "A100-80GB-SXM4", "compute", 1500 + 198_500 * 989.4 / 312),
        (PRODUCT, "V100-SXM2", "compute", 1500 + 198_500 * 989.4 / 15.7),
        (RELU, "A100-80GB-SXM4", "memory", 1500 + 32_500 * 4.8 / 2.039),
        (SMALL, "A100-80GB-SXM4", "latency", 2000),
        (COPY, "A100-80GB-SXM4", "link", 1500 + 100_000 * 50 / 20),  # PCIe 5 to PCIe 4
        (COPY, "V100-SXM2", "link", 1500 + 100_000 * 50 / 12),  # to PCIe 3
        (RELU, "MI300X", "memory", 3500 + 32_500 * 4.8 / 5.3),
        (SMALL, "MI300X", "latency", 3500 + 500),  # the shortest kernels take 2 µs more there
        (TALK, "A100-80GB-SXM4", "communication", 90_000),
        (STRANGE, "A100-80GB-SXM4", "unknown", 1500 + 50_000 * 4.8 / 2.039),
        (PRODUCT, "H200-SXM", "compute", 200_000),
    ],
)
def test_a_kernel_on_another_gpu(row, name, kind, ns):
    found = moved(name, row)
    assert list(found.kind.values)[found.kind.codes[0]] == kind
    assert found.ns[0] == pytest.approx(ns, rel=1e-3)
    kinds = ("compute", "memory", "latency", "link", "communication", "unknown")
    vendor = OTHER_VENDOR if name == "MI300X" else 1.0
    assert found.deviation == pytest.approx(vendor * DEVIATIONS[kinds.index(kind)])


def test_a_product_may_become_limited_by_memory():
    """10 GFLOP and 100 MB: 20.8 µs of memory on the H200 (10.1 of compute); on an H20, 25 µs (67.6)."""
    row = ({"kDuration": 41_500, "dtypes": '["bfloat16"]'}, (10_000_000_000, 100_000_000, "1", "bf16", "gemm"))
    found = moved("H20", row)
    assert found.ns[0] == pytest.approx(1500 + 40_000 * (10e9 / 148e12) / (1e8 / 4.8e12), rel=0.01)


def test_a_missing_unit_is_told():
    assert moved("V100-SXM2", PRODUCT).missing.tolist() == [True]
    assert moved("A100-80GB-SXM4", PRODUCT).missing.tolist() == [False]
    eight = ({"kDuration": 200_000, "dtypes": '["float8_e4m3fn"]'}, (CUBE, 100_663_296, "1", "fp8", "gemm"))
    assert moved("A100-80GB-SXM4", eight).impossible.tolist() == [True]


def test_another_vendors_libraries_make_it_less_sure():
    assert moved("MI300X", RELU).deviation == pytest.approx(OTHER_VENDOR * DEVIATIONS[1])


def test_names():
    assert named_device("nvidia a100-sxm4-80gb").part == "A100-80GB-SXM4"
    assert named_device("A100-80GB-SXM4").byte_per_s == 2.039e12
    assert "H200-SXM" in device_names()
    for wrong in ("A100", "nothing", "\x1b[31m"):
        with pytest.raises(UsageError, match="--device: expected"):
            named_device(wrong)


def test_an_unknown_gpu_of_the_capture_is_refused():
    rows = [{"kShortName": "kernel", "kDuration": 5}]
    with pytest.raises(UsageError, match="expected a capture of a GPU whose peaks are known"):
        on_device(table(*rows, gpu="Unheard of"), annotated((1, 1, "-", "", "")), named_device("H200-SXM"))


def test_every_name_of_the_table_is_found():
    assert all(named_device(name).part == name for name in device_names())
