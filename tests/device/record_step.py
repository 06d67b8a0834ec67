"""One marked training step, for nsys to record: the captures h200_*_init of tests/golden are made with it.

nsys profile -t cuda,nvtx -s none --cpuctxsw=none --capture-range=cudaProfilerApi --capture-range-end=stop \
    --export=sqlite -o gpt2 python3 tests/device/record_step.py gpt2
"""

import sys

import gpt2
import resnet50
import torch

import pyprof

WARM_UP_STEPS = 3
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS = {
    "gpt2": lambda: gpt2.training(DEVICE, gpt2.Config(layers=2), batch=4),
    "resnet50": lambda: resnet50.training(DEVICE, batch=32),
}


def main() -> None:
    step = STEPS[sys.argv[1]]()
    pyprof.init(trace=True)
    for _ in range(WARM_UP_STEPS):
        step()
    with torch.autograd.profiler.emit_nvtx(record_shapes=True):
        pyprof.start()
        loss = step()
        pyprof.stop()
    sys.stdout.write(f"loss {loss.item():.4f}\n")


if __name__ == "__main__":
    main()
