"""The allocations of an nsys export: cudaMalloc and cudaFree, with the ranges around the calls."""

from pyprof.parse.nsys.reader import read
from pyprof.parse.read import read_profile
from pyprof.prof.memory.memory_numbers import memory_numbers
from pyprof.table.columns import NULL
from tests.parse.nsys import nsys_file
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, process, push, write

USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
nsys_file.COLUMNS[USAGE] = (
    "start, globalPid, deviceId, contextId, address, pc, bytes, memKind, memoryOperationType, name, correlationId"
)


def usage(start, size, corr=0, address=0x1000, kind=2, free=0, pid=7, device=0):
    return (start, process(pid), device, 1, address, 0, size, kind, free, None, corr)


def test_without_the_table_there_is_no_memory(tmp_path):
    assert read(write(tmp_path / "a.sqlite", **{KERNEL: [kernel(20, 1)], API: [call(10, 1)]})).memory is None


def test_a_cuda_call_tells_the_op(tmp_path):
    file = write(
        tmp_path / "a.sqlite",
        **{
            KERNEL: [kernel(30, 1)],
            API: [call(10, 5), call(25, 1), call(60, 6)],
            NVTX: [push(5, 20, "aten::mm, seq = 3, op_id = 1"), push(50, 80, "layer:net")],
            USAGE: [
                usage(11, 2_097_152, 5),
                usage(61, 2_097_152, 6, free=1),
                usage(0, 4096, kind=5),
                usage(2, 64, kind=1),
            ],
        },
    )
    found = read_profile(file).memory
    assert found.ints("bytes").tolist() == [4096, 64, 2_097_152, -2_097_152]
    assert found.coded("kind").texts() == ["static", "pinned", "cuda", "cuda"]
    assert found.coded("level").texts() == ["driver"] * 4
    assert found.coded("op").texts() == ["", "", '["mm"]', ""]
    assert found.coded("layer").texts() == ["", "", "", '["net"]']
    assert found.ints("peer").tolist() == [NULL, NULL, 3, 2]
    assert found.ints("pid").tolist() == [7] * 4 and found.ints("tid").tolist() == [NULL, NULL, 1, 1]


def test_processes_and_devices_are_kept_apart_and_the_sum_is_the_reserve(tmp_path):
    file = write(
        tmp_path / "a.sqlite",
        **{
            KERNEL: [kernel(30, 1)],
            API: [call(25, 1)],
            USAGE: [
                usage(1, 100),
                usage(2, 50, pid=8),
                usage(3, 30, address=0x2000),
                usage(4, 100, free=1),
                usage(5, 7, device=1),
            ],
        },
    )
    devices = memory_numbers(read_profile(file).memory)
    peaks = {(each.pid, each.device): each.peak_bytes for each in devices}
    assert peaks == {(7, 0): 130, (8, 0): 50, (7, 1): 7}  # 100 + 30 before the free
    assert {each.level for each in devices} == {"driver"} and not devices[0].exact
    assert devices[0].content.categories[0].name == "unknown" and devices[0].checkpointing == []


def test_rows_without_a_size_or_of_another_operation_are_no_allocations(tmp_path):
    rows = [usage(1, 0), usage(2, None), usage(3, 8, free=2), usage(4, 8)]
    file = write(tmp_path / "a.sqlite", **{KERNEL: [kernel(30, 1)], API: [call(25, 1)], USAGE: rows})
    assert read_profile(file).memory.ints("time").tolist() == [4]
