"""How fast an H200's L2 cache feeds a kernel: element-wise kernels whose operands stay in it.

    python tests/device/l2_rate.py          on the GPU: 15 seconds

Prints for each case the bytes that are read and written, and the best and the median rate of 60 launches. Measured on
an H200 with torch 2.11: 6.68 TB/s at best (neg of 16 MiB to another 16 MiB), 4.1 to 4.4 TB/s beyond 96 MiB.
"""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

MIB = 2**20


def rate(name: str, call: Callable[[], object], nbytes: int) -> None:
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(60):
            call()
        torch.cuda.synchronize()
    times = sorted(event.device_time for event in profiled.events() if "elementwise" in event.name)  # us
    best, median = (nbytes / time / 1e6 for time in (times[0], times[len(times) // 2]))
    print(f"{name:22} {nbytes / MIB:8.1f} MiB  best {best:6.3f} TB/s  median {median:6.3f} TB/s")


for size in (1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 1024):
    x = torch.ones(size * MIB // 4, device="cuda")
    half = torch.ones(size * MIB // 2, device="cuda", dtype=torch.bfloat16)
    source, target = x[: len(x) // 2], torch.empty(len(x) // 2, device="cuda")
    rate("mul_ fp32", lambda x=x: x.mul_(1.0001), 2 * size * MIB)
    rate("mul_ bf16", lambda half=half: half.mul_(1.001), 2 * size * MIB)
    rate("neg fp32", lambda source=source, target=target: torch.neg(source, out=target), size * MIB)
