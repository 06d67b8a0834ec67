"""GPU operations of nsys exports, each a few literal rows: names, GPUs, graphs, and the call that launched each."""

import sqlite3
from contextlib import closing

import pytest

from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, process, push, read_table, texts, thread, write


def test_a_kernel_with_its_launch(tmp_path):
    found = read_table(tmp_path, **{KERNEL: [kernel(100, 5)], API: [call(90, 5)]})
    assert found.rows == 1
    assert texts(found, "kShortName") == ["gemm"]
    assert texts(found, "kLongName") == ["void gemm<float>(int)"]
    assert texts(found, "grid") == [[4, 5, 6]]
    assert texts(found, "block") == [[128, 1, 1]]
    assert texts(found, "api") == ["cudaLaunchKernel_v7000"]
    assert texts(found, "reason") == ["no range around the launch"]
    numbers = {key: found.ints(key).tolist() for key in ("kDuration", "start", "pid", "tid", "corr", "apiStart")}
    assert numbers == {"kDuration": [10], "start": [100], "pid": [7], "tid": [1], "corr": [5], "apiStart": [90]}
    assert found.ints("apiDuration").tolist() == [4]


def test_correlation_ids_count_per_process(tmp_path):
    found = read_table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 5, pid=7), kernel(101, 5, pid=8)],
            API: [call(90, 5, pid=8, tid=2), call(95, 5, pid=7, tid=1)],
            NVTX: [push(80, 99, "aten::relu, op_id = 1", pid=7, tid=1), push(80, 99, "aten::tanh, op_id = 1", 8, 2)],
        },
    )
    assert found.ints("pid").tolist() == [7, 8]
    assert found.ints("apiStart").tolist() == [95, 90]
    assert texts(found, "aten") == ["aten::relu", "aten::tanh"]


def test_backtrace_rows_repeat_correlation_ids_and_launch_nothing(tmp_path):
    found = read_table(tmp_path, **{KERNEL: [kernel(100, 5)], API: [call(10, 5, tid=9, event_class=67), call(90, 5)]})
    assert found.ints("apiStart").tolist() == [90]
    assert found.ints("tid").tolist() == [1]


def test_kernels_launched_before_the_capture_keep_their_rows(tmp_path):
    found = read_table(tmp_path, **{KERNEL: [kernel(-20, 1), kernel(100, 5), kernel(300, 9)], API: [call(90, 5)]})
    assert found.ints("start").tolist() == [-20, 100, 300]
    assert texts(found, "reason") == ["launched before the capture", "no range around the launch", "no API row"]
    assert found.ints("apiStart").tolist() == [NULL, 90, NULL]


def test_a_smaller_correlation_id_than_any_calls_was_launched_before_the_capture(tmp_path):
    # the GPU was a second behind: its kernel of the slice's middle has no API row in the slice
    found = read_table(tmp_path, **{KERNEL: [kernel(100, 3), kernel(110, 6)], API: [call(90, 5), call(95, 7)]})
    assert texts(found, "reason") == ["launched before the capture", "no API row"]


# One step of linear -> relu and its backward, as emit_nvtx(record_shapes=True) writes it. The outer op shows the number
# that the *next* node gets: linear 41, its t 41, addmm 42; backward runs on thread 2.


def test_graph_nodes_belong_to_the_op_that_was_captured(tmp_path):
    # node 31 was cloned from 30, captured inside relu; node 99 was captured before the ranges began
    found = read_table(
        tmp_path,
        **{
            KERNEL: [kernel(500, 9, node=31), kernel(520, 9, node=99)],
            API: [call(400, 9)],
            NVTX: [push(10, 20, "aten::relu, op_id = 1"), push(390, 420, "CompiledFunction, op_id = 2")],
            "CUDA_GRAPH_NODE_EVENTS": [
                (12, 12, thread(7, 1), 30, None),
                (299, 299, thread(7, 1), 31, None),  # nsys 2025.3: the clone's creation, then where it came from
                (300, 300, thread(7, 1), 31, 30),
                (-5, -5, thread(7, 1), 99, None),
            ],
        },
    )
    assert texts(found, "op") == [["relu"], ["CompiledFunction"]]
    assert texts(found, "reason") == ["", "op of the graph's launch, not of its capture"]


def test_an_opaque_graph_counts_as_a_row(tmp_path):
    graph = (500, 900, 0, 7, 9, process(7), 3)
    found = read_table(
        tmp_path, **{KERNEL: [kernel(100, 1)], API: [call(90, 1)], "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [graph]}
    )
    assert texts(found, "kind") == ["kernel", "graph"]
    assert found.ints("kDuration").tolist() == [10, 400]
    assert texts(found, "kShortName") == ["gemm", "[CUDA graph 3]"]


def test_copies_and_memsets_are_rows_with_bytes(tmp_path):
    found = read_table(
        tmp_path,
        **{
            "CUPTI_ACTIVITY_KIND_MEMCPY": [(10, 30, 0, 7, 1, process(7), 4096, 1)],
            "CUPTI_ACTIVITY_KIND_MEMSET": [(40, 45, 0, 7, 2, process(7), 64, 0)],
            API: [call(5, 1), call(6, 2)],
        },
    )
    assert texts(found, "kShortName") == ["[CUDA memcpy Host-to-Device]", "[CUDA memset]"]
    assert found.ints("bytes").tolist() == [4096, 64]
    assert texts(found, "grid") == ["", ""]


def test_gpu_names_go_by_the_processs_own_device_number(tmp_path):
    found = read_table(
        tmp_path,
        **{
            KERNEL: [kernel(100, 1, pid=7), kernel(110, 1, pid=8)],
            API: [call(90, 1, pid=7), call(91, 1, pid=8)],
            "TARGET_INFO_GPU": [(0, 1, "B", 9), (1, 0, "A", 9)],
            "TARGET_INFO_CUDA_DEVICE": [(8, 0, 0)],
        },
    )
    assert texts(found, "gpu") == ["A", "B"]


@pytest.mark.parametrize(
    ("change", "short", "long"),
    [
        ("shortName = NULL", "gemm", "void gemm<float>(int)"),
        ("demangledName = NULL", "gemm", "gemm"),
        ("demangledName = NULL, shortName = NULL, mangledName = 201", "gemm", "void gemm<float>(int)"),
    ],
)
def test_a_name_that_is_lost_is_made_of_the_others(tmp_path, change, short, long):
    names = [(1, "gemm"), (101, "void gemm<float>(int)"), (50, "cudaLaunchKernel"), (201, "_Z4gemmIfEvi")]
    file = write(tmp_path / "net.sqlite", StringIds=names, **{KERNEL: [kernel(100, 5)], API: [call(20, 5)]})
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"UPDATE {KERNEL} SET {change}")
        db.commit()
    found = correlate(read(file))
    assert (texts(found, "kShortName"), texts(found, "kLongName")) == ([short], [long])
