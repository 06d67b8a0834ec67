"""The tables of pyprof stats that are about NVTX ranges, worked by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse.stats.nvtx_sums import enclosing
from pyprof.parse.stats.recording import Calls, Spans
from pyprof.table.columns import NULL, Coded
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, startend, thread
from tests.parse.stats.stats_rows import NESTED, lasting, report


def test_nvtx_sum_names_domain_and_style(tmp_path):
    rows = [
        (0, None, 75, "NCCL", None, thread(7, 1), 3),  # creates domain 3 of process 7
        push(10, 20, "step"),
        push(40, 60, "step"),
        startend(0, 30, "step"),
        push(10, 50, 90, domain=3),
        push(0, 10, "x", pid=8, domain=3),
        (5, None, 34, "mark", None, thread(7, 1), 0),
    ]
    assert report(tmp_path, "nvtx_sum", **{NVTX: rows}) == [
        ["36.4", 40, 1, "40.0", "40.0", 40, 40, "0.0", "PushPop", "NCCL:registered"],
        ["27.3", 30, 2, "15.0", "15.0", 10, 20, "7.1", "PushPop", ":step"],
        ["27.3", 30, 1, "30.0", "30.0", 30, 30, "0.0", "StartEnd", ":step"],
        ["9.1", 10, 1, "10.0", "10.0", 10, 10, "0.0", "PushPop", "domain 3:x"],  # another process's domain 3
    ]
    pushed = report(tmp_path, "nvtx_pushpop_sum", **{NVTX: rows})
    assert [[row[0], row[-1]] for row in pushed] == [
        ["50.0", "NCCL:registered"],
        ["37.5", ":step"],
        ["12.5", "domain 3:x"],
    ]
    started = report(tmp_path, "nvtx_startend_sum", **{NVTX: rows})
    assert started == [["100.0", 30, 1, "30.0", "30.0", 30, 30, "0.0", ":step"]]


def test_an_open_range_lasts_to_the_last_timestamp(tmp_path):
    rows = [push(10, None, "open"), push(20, 30, "closed"), (110, None, 34, "mark", None, thread(7, 1), 0)]
    found = report(tmp_path, "nvtx_sum", **{NVTX: rows})
    assert [(row[1], row[-1]) for row in found] == [(100, ":open"), (10, ":closed")]


def test_nvtx_kern_sum_counts_a_kernel_in_every_enclosing_range_of_its_thread(tmp_path):
    found = report(tmp_path, "nvtx_kern_sum:base", **NESTED)
    # launched: 1 in step and op, 2 in step and op, 3 in step, 4 in the second op, 5 on thread 2, 6 nowhere
    assert found == [
        [None, None, 7, 1, 0, 1, 10, "10.0", "10.0", 10, 10, "0.0", "gemm"],
        [":op", "PushPop", 7, 1, 2, 2, 40, "20.0", "20.0", 10, 30, "14.1", "gemm"],
        [":op", "PushPop", 7, 1, 1, 1, 10, "10.0", "10.0", 10, 10, "0.0", "relu"],
        [":step", "PushPop", 7, 1, 1, 2, 20, "10.0", "10.0", 10, 10, "0.0", "gemm"],
        [":step", "PushPop", 7, 1, 1, 1, 10, "10.0", "10.0", 10, 10, "0.0", "relu"],
        [":step", "PushPop", 7, 2, 1, 1, 10, "10.0", "10.0", 10, 10, "0.0", "gemm"],
    ]


def test_nvtx_kern_sum_of_kernels_outside_every_range(tmp_path):
    tables = {
        NVTX: [push(500, 600, "Z"), push(700, 800, "a")],
        API: [call(10, 1), call(20, 2), call(30, 3), call(40, 4, tid=2), call(510, 5), call(710, 6)],
        KERNEL: [
            kernel(1000, 1),
            lasting(kernel(1020, 2, name=2), 30),
            kernel(1060, 3),
            kernel(1080, 4),
            kernel(1100, 5),
            lasting(kernel(1120, 6), 99),
            kernel(1300, 9),
        ],
    }
    # by thread, the largest first, 9 of no known call before all; then by the range's text, whatever their totals
    found = report(tmp_path, "nvtx_kern_sum:base", **tables)
    assert [[*row[:7], row[-1]] for row in found] == [
        [None, None, None, None, 0, 1, 10, "gemm"],
        [None, None, 7, 1, 0, 1, 30, "relu"],
        [None, None, 7, 1, 0, 2, 20, "gemm"],
        [None, None, 7, 2, 0, 1, 10, "gemm"],
        [":Z", "PushPop", 7, 1, 1, 1, 10, "gemm"],
        [":a", "PushPop", 7, 1, 1, 1, 99, "gemm"],
    ]
    assert report(tmp_path, "nvtx_kern_sum", **{**tables, NVTX: []}) == []  # a file without ranges has no such table


def test_processes_with_the_same_correlation_ids_keep_to_themselves(tmp_path):
    tables = {
        NVTX: [push(0, 100, "seven"), push(0, 100, "eight", pid=8)],
        API: [call(10, 1), call(10, 1, pid=8)],
        KERNEL: [kernel(20, 1), lasting(kernel(20, 1, pid=8), 30)],
    }
    found = report(tmp_path, "nvtx_kern_sum", **tables)
    assert [(row[0], row[2], row[6]) for row in found] == [(":eight", 8, 30), (":seven", 7, 10)]


def test_a_call_that_outlives_its_range_is_not_inside(tmp_path):
    found = report(tmp_path, "nvtx_kern_sum", **{NVTX: [push(0, 12, "a")], API: [call(10, 1)], KERNEL: [kernel(20, 1)]})
    assert [(row[0], row[4]) for row in found] == [(None, 0)]


def test_nvtx_gpu_proj_trace(tmp_path):
    columns = [
        "Name",
        "start",
        "dur",
        "orig",
        "orig dur",
        "style",
        "pid",
        "tid",
        "ops",
        "lvl",
        "child",
        "id",
        "in",
        "stack",
    ]
    found = report(tmp_path, "nvtx_gpu_proj_trace", **NESTED)
    assert found == [
        [":step", 1000, 50, 0, 100, "PushPop", 7, 1, 3, 0, 1, 1, None, ":1"],  # kernels 1, 2, 3: 1000 .. 1050
        [":op", 1000, 30, 10, 50, "PushPop", 7, 1, 2, 1, 0, 2, 1, ":1:2"],
        [":op", 1100, 30, 120, 40, "PushPop", 7, 1, 1, 0, 0, 3, None, ":3"],
        [":step", 1060, 10, 0, 200, "PushPop", 7, 2, 1, 0, 0, 4, None, ":4"],
    ]
    assert all(len(row) == len(columns) for row in found)


def test_ids_are_the_numbers_of_the_tables_rows(tmp_path):
    """Marks, domains and ranges without GPU work have numbers too; rows need not be in order of time."""
    rows = [
        (0, None, 75, "NCCL", None, thread(7, 1), 3),
        push(10, 60, "inner"),
        (5, None, 34, "mark", None, thread(7, 1)),
        push(200, 300, "idle"),
        push(0, 100, "outer"),
        push(0, 90, "shorter"),
    ]
    found = report(tmp_path, "nvtx_gpu_proj_trace", **{NVTX: rows, API: [call(20, 1)], KERNEL: [kernel(50, 1)]})
    assert [[row[0], *row[9:]] for row in found] == [
        [":inner", 2, 0, 2, 6, ":5:6:2"],
        [":outer", 0, 1, 5, None, ":5"],
        [":shorter", 1, 1, 6, 5, ":5:6"],
    ]


def test_nvtx_gpu_proj_sum(tmp_path):
    found = report(tmp_path, "nvtx_gpu_proj_sum", **NESTED)
    # steps: 50 and 10, ranges 100 + 200, 3 + 1 operations, children 1 and 0; ops: 30 and 30, 50 + 40, levels 1 and 0
    assert found == [
        [":op", "PushPop", 60, 90, 2, "30.0", "30.0", 30, 30, "0.0", 3, "1.5", "0.5", "0.0"],
        [":step", "PushPop", 60, 300, 2, "30.0", "30.0", 10, 50, "28.3", 4, "2.0", "0.0", "0.5"],
    ]


def test_start_end_ranges_count_where_no_other_thread_is_named_to_end_them(tmp_path):
    here = startend(0, 50, "here")[:-1]  # nsys writes an endGlobalTid only for another thread
    tables = {
        NVTX: [here, startend(5, 60, "elsewhere", end_tid=2), startend(6, 61, "named")],
        API: [call(10, 1)],
        KERNEL: [kernel(20, 1)],
    }
    assert [row[0] for row in report(tmp_path, "nvtx_gpu_proj_trace", **tables)] == [":here"]
    assert [row[:2] for row in report(tmp_path, "nvtx_kern_sum", **tables)] == [[":here", "StartEnd"]]
    assert len(report(tmp_path, "nvtx_sum", **tables)) == 3


def test_a_range_that_merely_overlaps_is_no_parent(tmp_path):
    tables = {
        NVTX: [startend(0, 50, "a")[:-1], startend(5, 60, "b")[:-1], startend(6, 40, "c")[:-1]],
        API: [call(10, 1)],
        KERNEL: [kernel(20, 1)],
    }
    found = report(tmp_path, "nvtx_gpu_proj_trace", **tables)
    assert [(row[0], row[9], row[12]) for row in found] == [(":a", 0, None), (":b", 0, None), (":c", 1, 2)]


ANY_RANGE = st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(1, 2), st.booleans())
ANY_CALL = st.tuples(st.integers(0, 30), st.integers(0, 4), st.integers(0, 2))


@given(st.lists(ANY_RANGE, max_size=8), st.lists(ANY_CALL, max_size=6))
def test_enclosing_ranges_are_those_around_the_whole_call(ranges, calls):
    start, length, tid, startend = (np.array([r[i] for r in ranges], np.int64) for i in range(4))
    spans = Spans(start, start + 1 + length, tid * 0, tid, Coded.empty(len(tid)), startend == 1, startend < 2, tid)
    begin, took, caller = (np.array([c[i] for c in calls], np.int64) for i in range(3))
    begin = np.where(caller == 0, NULL, begin)  # no call
    launch = Calls(begin, np.where(caller == 0, NULL, begin + took), caller * 0, caller, Coded.empty(len(caller)))
    row, span = enclosing(spans, launch)
    assert sorted(zip(row.tolist(), span.tolist(), strict=True)) == [
        (c, r)
        for c, (at, lasted, thread_) in enumerate(calls)
        for r, (first, room, owner, _) in enumerate(ranges)
        if thread_ == owner and first <= at < first + 1 + room and at + lasted <= first + 1 + room
    ]


def test_a_text_whose_id_stands_twice_gives_a_range_one_row(tmp_path):
    """Found by the fuzzer."""
    strings = [(60, "one"), (60, "other"), (1, "gemm"), (101, "gemm"), (50, "cudaLaunchKernel")]
    found = report(tmp_path, "nvtx_sum", **{NVTX: [push(10, 20, 60), push(30, 50, "x")], "StringIds": strings})
    assert [row[1:3] for row in found] == [[20, 1], [10, 1]]
