"""The tables of pyprof stats on files of a few literal rows, worked by hand."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from pyprof.parse.nsys import reader as nsys
from pyprof.parse.stats.cuda_sums import without_version
from pyprof.parse.stats.from_capture import CaptureRecording, copy_name
from pyprof.parse.stats.group_statistics import THOUSANDTH, rounded, statistics
from pyprof.parse.stats.recording import recording
from pyprof.parse.stats.reports import REPORTS, wanted
from tests.parse.kineto import kineto_file
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, process, push, startend, thread, write
from tests.parse.stats.stats_rows import MEMCPY, MEMSET, NESTED, OSRT, STRINGS, lasting, nvprof_file, plain, report

# --- statistics and rounding


def test_statistics_of_a_group():
    # 1 2 3 10: sum 16, mean 4, median (2+3)/2; deviations -3 -2 -1 6, squares 9+4+1+36 = 50, sqrt(50/3) = 4.0825
    found = statistics(np.array([5, 5, 8, 5, 5]), np.array([3, 10, 7, 1, 2]))
    columns = (found.group, found.rows, found.total, found.mean, found.median, found.low, found.high)
    assert [column[0] for column in columns] == [5, 4, 16, 4.0, 2.5, 1, 10]
    four, one = zip(*([cells.values[code] for code in cells.codes] for cells in found.times()), strict=True)
    assert four == (Decimal("4.0"), Decimal("2.5"), 1, 10, Decimal("4.1"))
    assert one == (Decimal("7.0"), Decimal("7.0"), 7, 7, Decimal("0.0"))  # one value deviates by nothing
    assert not len(statistics(np.zeros(0, np.int64), np.zeros(0, np.int64)).group)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (86953.25, "86953.3"),  # exact in binary: away from zero; round() gives 86953.2
        (841.15, "841.1"),  # 841.14999999999997726: SQLite's round() gives 841.2
        (0.25, "0.3"),
        (-0.25, "-0.3"),
        (1738.0, "1738.0"),
        (16422014166.449999, "16422014166.4"),
    ],
)
def test_halves_are_rounded_away_from_zero_on_the_binary_value(value, text):
    assert str(rounded(value)) == text


def test_three_places():
    assert str(rounded(0.0625, THOUSANDTH)) == "0.063"
    assert str(rounded(1e-9, THOUSANDTH)) == "0.000"


# --- calls


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaMemcpyAsync_v3020", "cudaMemcpyAsync"),
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch_v10000"),
        ("cudaGetDeviceProperties_v2_v12000", "cudaGetDeviceProperties_v2_v12000"),
        ("cuGetProcAddress_v2", "cuGetProcAddress_v2"),
        ("_v7", "_v7"),
        ("", ""),
    ],
)
def test_only_a_version_of_four_digits_is_stripped(name, shown):
    assert without_version(name) == shown


def test_cuda_api_sum(tmp_path):
    def api(name: int, start: int, ns: int, event_class: int = 0) -> tuple[Any, ...]:
        return (start, start + ns, event_class, thread(7, 1), start, name)

    found = report(
        tmp_path, "cuda_api_sum", **{API: [api(50, 10, 4), api(50, 20, 8), api(51, 40, 36), api(50, 40, 99, 67)]}
    )  # class 67 is a backtrace
    # 48 ns in all: 36 are 75 %; 4 and 8: mean 6, deviation sqrt(4+4) = 2.83
    assert found == [
        ["75.0", 36, 1, "36.0", "36.0", 36, 36, "0.0", "cudaGraphLaunch_v10000"],
        ["25.0", 12, 2, "6.0", "6.0", 4, 8, "2.8", "cudaLaunchKernel"],
    ]


def test_osrt_sum_takes_the_runtimes_class_only(tmp_path):
    rows = [
        (0, 10, 27, thread(7, 1), 60),
        (5, 35, 27, thread(7, 2), 60),
        (0, 60, 27, thread(7, 1), 61),
        (0, 9, 107, thread(7, 1), 61),
    ]
    assert report(tmp_path, "osrt_sum", **{OSRT: rows}) == [
        ["60.0", 60, 1, "60.0", "60.0", 60, 60, "0.0", "read"],
        ["40.0", 40, 2, "20.0", "20.0", 10, 30, "14.1", "poll"],  # sqrt(100 + 100) = 14.14
    ]


# --- GPU operations


def test_cuda_gpu_kern_sum_by_each_kind_of_name(tmp_path):
    rows = [(*kernel(0, 1), 201), lasting((*kernel(20, 2), 201), 20), lasting(kernel(50, 3, name=2), 10)]
    assert report(tmp_path, "cuda_gpu_kern_sum", **{KERNEL: rows}) == [
        ["75.0", 30, 2, "15.0", "15.0", 10, 20, "7.1", "void gemm<float>(int)"],  # sqrt(25 + 25) = 7.07
        ["25.0", 10, 1, "10.0", "10.0", 10, 10, "0.0", "void relu<float>(float*)"],
    ]
    base = report(tmp_path, "cuda_gpu_kern_sum:base", **{KERNEL: rows})
    assert [row[-1] for row in base] == ["gemm", "relu"]
    # where a file has no mangled name the demangled one stands in
    mangled = report(tmp_path, "cuda_gpu_kern_sum:mangled", **{KERNEL: rows})
    assert [row[-1] for row in mangled] == ["_Z4gemmIfEvi", "void relu<float>(float*)"]


def test_equal_totals_come_by_name(tmp_path):
    rows = report(tmp_path, "cuda_gpu_kern_sum:base", **{KERNEL: [kernel(0, 1, name=2), kernel(20, 2, name=1)]})
    assert [row[-1] for row in rows] == ["gemm", "relu"]


def test_cuda_gpu_kern_gb_sum_parts_by_grid_and_block(tmp_path):
    other = list(kernel(50, 3))
    other[9] = 12288  # gridX
    found = report(tmp_path, "cuda_gpu_kern_gb_sum", **{KERNEL: [kernel(0, 1), kernel(20, 2), tuple(other)]})
    name = "void gemm<float>(int)"
    assert found == [
        ["66.7", 20, 2, "10.0", "10.0", 10, 10, "0.0", "   4    5    6", " 128    1    1", name],
        ["33.3", 10, 1, "10.0", "10.0", 10, 10, "0.0", "12288    5    6", " 128    1    1", name],
    ]


COPIES = {
    MEMCPY: [(0, 10, 0, 7, 1, process(7), 3_000_000, 1), (20, 40, 0, 7, 2, process(7), 1_000_500, 1)],
    MEMSET: [(50, 60, 0, 7, 3, process(7), 500, 0)],
}


def test_cuda_gpu_mem_time_sum(tmp_path):
    assert report(tmp_path, "cuda_gpu_mem_time_sum", **COPIES) == [
        ["75.0", 30, 2, "15.0", "15.0", 10, 20, "7.1", "[CUDA memcpy Host-to-Device]"],
        ["25.0", 10, 1, "10.0", "10.0", 10, 10, "0.0", "[CUDA memset]"],
    ]


def test_cuda_gpu_mem_size_sum_in_decimal_megabytes(tmp_path):
    # 3.000000 and 1.000500: mean 2.000250, deviation 1.9995/sqrt(2) = 1.41386.
    # In binary 1.0005 is 1.00049999.., 4.0005 is 4.00049999.. and 0.0005 is 0.00050000000000000001
    assert report(tmp_path, "cuda_gpu_mem_size_sum", **COPIES) == [
        ["4.000", 2, "2.000", "2.000", "1.000", "3.000", "1.414", "[CUDA memcpy Host-to-Device]"],
        ["0.001", 1, "0.001", "0.001", "0.001", "0.001", "0.000", "[CUDA memset]"],
    ]


def test_cuda_gpu_sum_has_both_kinds(tmp_path):
    found = report(tmp_path, "cuda_gpu_sum:base", **{KERNEL: [lasting(kernel(100, 9), 60)], **COPIES})
    assert [[row[0], row[1], row[-2], row[-1]] for row in found] == [
        ["60.0", 60, "CUDA_KERNEL", "gemm"],
        ["30.0", 30, "MEMORY_OPER", "[CUDA memcpy Host-to-Device]"],
        ["10.0", 10, "MEMORY_OPER", "[CUDA memset]"],
    ]


def test_cuda_kern_exec_sum(tmp_path):
    # calls last 4: 0..4 and 100..104. The first kernel, 10..30, waits 6; the second, 102..112, starts in its call
    tables = {KERNEL: [lasting(kernel(10, 1), 20), kernel(102, 2)], API: [call(0, 1), call(100, 2)]}
    total = ["21.0", "21.0", 12, 30, "12.7"]  # 0..30 and 100..112; 18/sqrt(2) = 12.73
    api, queue, kernels = ["4.0", "4.0", 4, 4, "0.0"], ["6.0", "6.0", 6, 6, "0.0"], ["15.0", "15.0", 10, 20, "7.1"]
    assert report(tmp_path, "cuda_kern_exec_sum:base", **tables) == [
        [7, 1, 0, 2, 1, *total, *api, *queue, *kernels, "cudaLaunchKernel", "gemm"]
    ]


def test_cuda_kern_exec_sum_without_a_wait_or_a_call(tmp_path):
    # a kernel that ended before its call did: T is the call's own 4 ns. Correlation 9 has no call: no row.
    found = report(
        tmp_path, "cuda_kern_exec_sum", **{KERNEL: [lasting(kernel(1, 1), 2), kernel(50, 9)], API: [call(0, 1)]}
    )
    (row,) = found
    assert row[:7] == [7, 1, 0, 1, 0, "4.0", "4.0"]
    assert row[15:20] == [None, None, None, None, "0.0"]  # as nsys prints it


def test_cuda_kern_exec_sum_is_in_order_of_the_mean(tmp_path):
    # T: gemm 0..20 twice, relu 0..30 once
    tables = {
        KERNEL: [kernel(10, 1), kernel(110, 2), kernel(220, 3, name=2)],
        API: [call(0, 1), call(100, 2), call(200, 3)],
    }
    found = report(tmp_path, "cuda_kern_exec_sum:base", **tables)
    assert [(row[3], row[5], row[-1]) for row in found] == [(1, "30.0", "relu"), (2, "20.0", "gemm")]


# --- other formats, and files that lack things


def test_a_file_with_nothing_has_no_rows_in_any_report(tmp_path):
    assert [report(tmp_path, each.name) for each in REPORTS] == [[]] * len(REPORTS)


def test_every_row_has_every_column(tmp_path):
    tables = {**NESTED, **COPIES, OSRT: [(0, 10, 27, thread(7, 1), 60)]}
    tables[NVTX] = [*NESTED[NVTX], startend(0, 9, "s")]
    for each in REPORTS:
        rows = report(tmp_path, each.name, **tables)
        assert rows, each.name
        assert {len(row) for row in rows} == {len(each.columns)}, each.name


def test_an_old_schema_without_domains_and_registered_texts(tmp_path):
    with recording(
        write(tmp_path / "a.sqlite", drop={NVTX: "domainId", KERNEL: "mangledName"}, StringIds=STRINGS, **NESTED)
    ) as found:
        assert [row[-1] for row in wanted("nvtx_sum").rows(found)] == [":step", ":op"]
        assert wanted("cuda_gpu_kern_sum:mangled").rows(found)[0][-1] == "void gemm<float>(int)"


def test_a_torch_profiler_trace(tmp_path):
    file = kineto_file.write(
        tmp_path / "net.json",
        kineto_file.begin(0),
        kineto_file.op("aten::mm", 10, 30),
        kineto_file.call(20, 1),
        kineto_file.kernel(50, 7, 1),
        kineto_file.x("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 60, 2, tid=7, pid=0, bytes=8, correlation=2),
    )
    with recording(file) as found:
        (api,) = plain(wanted("cuda_api_sum").rows(found))
        (row,) = plain(wanted("nvtx_kern_sum:base").rows(found))
        both = plain(wanted("cuda_gpu_sum").rows(found))
        assert wanted("osrt_sum").rows(found) == []
    assert api == ["100.0", 5000, 1, "5000.0", "5000.0", 5000, 5000, "0.0", "cudaLaunchKernel"]
    assert row[:7] == [":aten::mm", "PushPop", 7, 70, 1, 1, 7000]
    assert [(row[1], row[-2], row[-1]) for row in both] == [
        (7000, "CUDA_KERNEL", "void gemm<float>(int)"),
        (2000, "MEMORY_OPER", "[CUDA memcpy Host-to-Device]"),
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Memcpy DtoH (Device -> Pageable)", "[CUDA memcpy Device-to-Host]"),
        ("Memcpy PtoP (Device -> Device)", "[CUDA memcpy Peer-to-Peer]"),
        ("Memset (Device)", "[CUDA memset]"),
        ("Memcpy QtoR", "Memcpy QtoR"),
        ("gemm", "gemm"),
    ],
)
def test_copies_have_nsyss_names(name, shown):
    assert copy_name(name) == shown


def test_unknown_reports_are_refused_by_name():
    with pytest.raises(ValueError, match="there is no report 'nvtx'; there are: nvtx_sum, "):
        wanted("nvtx")
    with pytest.raises(ValueError, match="there is no 'nvtx_sum:base'; there are: no variants of it"):
        wanted("nvtx_sum:base")
    with pytest.raises(ValueError, match="there are: cuda_gpu_sum:base, cuda_gpu_sum:mangled"):
        wanted("cuda_gpu_sum:short")


@pytest.mark.parametrize("place", [0, 1, 5, 6, 7])
def test_a_range_whose_numbers_are_none_is_said_and_the_others_stay(tmp_path, place):
    row = [*push(0, 9, "step"), thread(7, 1)]
    row[place] = "soon"
    found = report(tmp_path, "nvtx_sum", **{NVTX: [tuple(row), push(2, 5, "other")]})
    assert [cells[-1] for cells in found if cells[-1] == ":other"] == [":other"]
    assert len(found) == (1 if place in (0, 1, 5) else 2)  # a range without a time or a thread is no range


def test_a_domain_row_without_numbers_names_nothing(tmp_path):
    rows = [(0, None, 75, "NCCL", None, "soon", 3), push(0, 9, "x", domain=3)]
    with recording(write(tmp_path / "a.sqlite", StringIds=STRINGS, **{NVTX: rows})) as found:
        assert wanted("nvtx_pushpop_sum").rows(found)[0][-1] == "domain 3:x"


def test_an_nvprof_database(tmp_path):
    with recording(nvprof_file(tmp_path / "net.sql")) as found:
        api, kernels, in_ranges, ranges = (
            plain(wanted(name).rows(found))
            for name in ("cuda_api_sum", "cuda_gpu_kern_sum:mangled", "nvtx_kern_sum:base", "nvtx_sum")
        )
    assert [(row[1], row[-1]) for row in api] == [(10, "runtime call 4242"), (4, "cudaLaunchKernel")]
    assert [(row[1], row[-1]) for row in kernels] == [(10, "_Z4gemmIfEvi")]
    assert [(row[0], row[2], row[3], row[-1]) for row in in_ranges] == [
        (":inner", 7, 1, "gemm"),
        (":outer", 7, 1, "gemm"),
    ]
    assert [(row[1], row[-1]) for row in ranges] == [(100, ":outer"), (20, ":open"), (15, ":inner")]


def test_a_format_that_has_only_a_reader(tmp_path):
    """What correlation is given serves: GPU operations with their launches, and ranges; not the other calls."""
    file = write(tmp_path / "net.sqlite", StringIds=STRINGS, **NESTED)
    with recording(file) as own:
        other = CaptureRecording(nsys.read(file))
        for name in (
            "nvtx_kern_sum",
            "nvtx_gpu_proj_sum",
            "cuda_kern_exec_sum:base",
            "nvtx_sum",
            "cuda_gpu_kern_sum",
        ):
            assert wanted(name).rows(other) == wanted(name).rows(own), name
    assert wanted("cuda_api_sum").rows(other) == []
    # its ranges have no numbers: they count in order of start
    assert [(row[0], row[3], *row[11:]) for row in wanted("nvtx_gpu_proj_trace").rows(other)] == [
        (":step", 0, 1, None, ":1"),
        (":step", 0, 2, None, ":2"),
        (":op", 10, 3, 2, ":2:3"),
        (":op", 120, 4, None, ":4"),
    ]
