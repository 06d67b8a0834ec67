"""``--nvml`` on a GPU: python tests/device/clocks.py rates|energy|capture [--out FOLDER]

* rates: how long a reading takes, and how often NVML's values change;
* energy: 100 steps of GPT-2: power integrated from the readings, against NVML's energy counter read before and after
  exactly these steps;
* capture: a small trace with readings, for tests/golden.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import gpt2
import torch

import pyprof
from pyprof.clock_sampler import ClockSampler, _uuid
from pyprof.nvml import Nvml

STEPS = 100


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("rates", "energy", "capture"), nargs="+")
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args()
    say(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}")
    for what in options.what:
        started = time.perf_counter()
        {"rates": rates, "energy": energy, "capture": capture}[what](options.out)
        say(f"[{what}: {time.perf_counter() - started:.1f} s]")


def rates(_: Path) -> None:
    """The time of each sensor, and between two of its values, while the GPU works."""
    gpu = Nvml().gpu(_uuid(0))
    product = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for name, read in gpu._sensors.items():
        if read is None:
            say(f"{name}: not given")
            continue
        times, changes, before, last = [], [], None, 0
        end = time.perf_counter_ns() + 1_500_000_000
        while (now := time.perf_counter_ns()) < end:
            if not len(times) % 50:
                torch.mm(product, product)
            value = read()
            times.append(time.perf_counter_ns() - now)
            if value != before:
                changes += [now - last] if before is not None else []
                before, last = value, now
        torch.cuda.synchronize()
        every = f"{median(changes) / 1e6:.1f} ms" if changes else "never"
        a_call = f"{median(times) / 1e3:.1f} µs a call, at most {max(times) / 1e3:.0f}"
        say(f"{name}: {a_call}; changes every {every}, {len(changes)} times in 1.5 s")
    say(f"power is {gpu.power}; limits {gpu.sm_limit_mhz} MHz, {gpu.memory_limit_mhz} MHz, {gpu.power_limit_mw} mW")


def energy(folder: Path) -> None:
    step = gpt2.training("cuda", gpt2.Config(), 4)
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    counter = Nvml().gpu(_uuid(0))._sensors["energy_mj"]
    assert counter is not None
    for period in (0.02, 0.05, 0.1):
        sampler = ClockSampler(period)
        sampler.begin()
        time.sleep(0.3)
        begin, first = time.time_ns(), counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        end, last = time.time_ns(), counter()
        time.sleep(0.3)
        record = sampler.end()
        assert record is not None
        gpu = record["gpus"][0]
        told = joules(gpu, begin, end)
        direct = (last - first) / 1e3
        off = [f"{value:.1f} J ({100 * (value / direct - 1):+.2f}%)" for value in told]
        lasted = f"{STEPS} steps in {(end - begin) / 1e9:.2f} s, {len(gpu['time_us'])} readings"
        say(
            f"{1e3 * period:.0f} ms: {lasted}: counter {direct:.1f} J, integrated power {off[0]}, interpolated {off[1]}"
        )
        (folder / f"readings_{period * 1e3:.0f}ms.json").write_text(json.dumps({**record, "window": [begin, end]}))


def joules(gpu: dict[str, Any], begin: int, end: int) -> tuple[float, float]:
    """Integrated power, and the counter, between two Unix times, computed apart from pyprof's own code."""
    import numpy as np

    at = gpu["begin_unix_ns"] + 1000 * np.array(gpu["time_us"], np.int64)
    edges = np.linspace(begin, end, 1_000_001)
    power = np.interp((edges[1:] + edges[:-1]) / 2 - begin, at - begin, gpu["power_mw"])
    counted = np.array([np.nan if value is None else value for value in gpu["energy_mj"]])
    known = ~np.isnan(counted)
    low, high = np.interp([0, end - begin], at[known] - begin, counted[known])
    return float(power.mean() * (end - begin) / 1e12), float(high - low) / 1e3


def capture(folder: Path) -> None:
    """Large products until the GPU meets its power limit, in few kernels: 60 steps of two linear layers."""
    torch.manual_seed(0)
    width = 12288
    layers = [torch.nn.Linear(width, width, device="cuda", dtype=torch.bfloat16, bias=False) for _ in range(2)]
    model = torch.nn.Sequential(*layers)
    x = torch.randn(width, width, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        model(x).sum().backward()
        model.zero_grad()

    step()
    torch.cuda.synchronize()
    time.sleep(0.5)
    with pyprof.profile(folder / "h200_clocks.json.gz", force=True, nvml=True):
        for _ in range(40):
            step()
            pyprof.step()
        torch.cuda.synchronize()
    say(f"{(folder / 'h200_clocks.json.gz').stat().st_size} bytes")


if __name__ == "__main__":
    main()
