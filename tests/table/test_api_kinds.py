"""What calls of CUDA and HIP do, by their names."""

import pytest

from pyprof.table.api_kinds import api_kind


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("launch", "cudaLaunchKernel cudaLaunchKernel_v7000 cudaLaunchKernelExC_v11060 cuLaunchKernelEx cudaLaunch"),
        ("launch", "cudaLaunchCooperativeKernel hipLaunchKernel hipExtModuleLaunchKernel hipModuleLaunchKernel"),
        ("graph", "cudaGraphLaunch cudaGraphLaunch_v10000 cuGraphLaunch hipGraphLaunch"),
        ("copy", "cudaMemcpy cudaMemcpyAsync_v3020 cuMemcpyHtoDAsync_v2 hipMemcpyWithStream cudaMemcpy2DAsync"),
        ("set", "cudaMemsetAsync cuMemsetD8Async hipMemsetAsync"),
        ("device sync", "cudaDeviceSynchronize cuCtxSynchronize hipDeviceSynchronize cudaThreadSynchronize"),
        ("stream sync", "cudaStreamSynchronize_v3020 cuStreamSynchronize hipStreamSynchronize"),
        ("event sync", "cudaEventSynchronize"),
        ("query", "cudaEventQuery cudaStreamQuery"),
        ("record", "cudaEventRecord cudaEventRecordWithFlags_v11010 hipEventRecord"),
        ("wait", "cudaStreamWaitEvent cuStreamWaitEvent hipStreamWaitEvent"),
        ("free", "cudaFree cudaFreeHost cuMemFree_v2 hipFree cuMemUnmap"),
        ("allocate", "cudaMalloc cudaHostAlloc hipMalloc cuMemAlloc_v2"),
        ("begin capture", "cudaStreamBeginCapture"),
        ("", "cudaLaunchHostFunc cudaFreeAsync cudaMallocAsync cudaFuncGetAttributes INVALID cudaEventCreateWithFlags"),
        ("", "cudaGetErrorString cudaStreamIsCapturing cuKernelGetName cudaGraphAddMemcpyNode cudaGraphInstantiate"),
    ],
)
def test_kinds(kind, names):
    assert {name: api_kind(name) for name in names.split()} == dict.fromkeys(names.split(), kind)
