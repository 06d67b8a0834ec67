"""Two marked steps of an unchanged program of several faults, for nsys to record.

nsys profile -t cuda,nvtx -s none --cpuctxsw=none --capture-range=cudaProfilerApi --capture-range-end=stop \
    --export=sqlite -o NAME python3 tests/device/plan_recorded.py NAME [FOLDER]
"""

import sys
from pathlib import Path

import plan_measured
import torch

WARM_UP_STEPS, STEPS = 3, 2


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else plan_measured.HERE / "plan_programs"
    program = plan_measured.loaded(name, folder, tiny=False)
    import pyprof

    torch.manual_seed(0)
    step = program.make(frozenset())
    pyprof.init(trace=True)
    for _ in range(WARM_UP_STEPS):
        step()
    with torch.autograd.profiler.emit_nvtx(record_shapes=True):
        pyprof.start()
        for _ in range(STEPS):
            step()
            pyprof.step()
        pyprof.stop()


if __name__ == "__main__":
    main()
