"""Traces of Intel's GPUs, and of a process that uses several GPUs."""

from pyprof.parse.attribute.contents import Contents
from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from tests.parse.kineto.kineto_file import begin, call, kernel, op, write, x


def test_intels_gpus_have_rows_like_nvidias(tmp_path):
    """Categories and keys as PTI's plugin of Kineto writes them: kernel, gpu_memcpy, xpu_runtime."""
    launch = x("xpu_runtime", "urEnqueueKernelLaunch", 1020, 5, correlation=7, External_id=3)
    work = kernel(1100, 50, 7, name="gemm_kernel", External_id=3)
    copy = {**kernel(1200, 10, 8, name="M2D"), "cat": "gpu_memcpy"}
    events = begin(1000), op("aten::mm", 1010, 30, Input_Dims=[[2, 3], [3, 4]], External_id=3), launch, work, copy
    capture = read(write(tmp_path / "net.json", *events))
    table = correlate(capture)
    assert table.coded("kind").texts() == ["kernel", "memcpy"]
    assert table.coded("op").texts() == ['["mm"]', ""]
    assert table.coded("api").texts() == ["urEnqueueKernelLaunch", ""]
    assert table.coded("reason").texts() == ["", "no API row"]
    assert capture.warnings == []


def test_several_gpus_of_one_process_keep_their_rows_apart(tmp_path):
    names = [{"id": number, "name": f"NVIDIA H{number}00"} for number in (1, 2)]
    events = [begin(1000), op("aten::mm", 1010, 100, Input_Dims=[[1]])]
    for device, corr in ((1, 5), (2, 6)):  # the second begins while the first runs: each GPU has its own time
        events += [call(1020 + device, corr), {**kernel(1100 + device, 50, corr, device=device), "pid": device}]
    table = correlate(read(write(tmp_path / "net.json", *events, deviceProperties=names)))
    assert table.ints("device").tolist() == [1, 2]
    assert table.coded("gpu").texts() == ["NVIDIA H100", "NVIDIA H200"]
    assert table.ints("pid").tolist() == [7, 7]
    assert table.coded("op").texts() == ['["mm"]', '["mm"]']
    spans = Contents.of(table).devices
    assert [(span.pid, span.device, span.busy_ns) for span in spans] == [(7, 1, 50_000), (7, 2, 50_000)]
