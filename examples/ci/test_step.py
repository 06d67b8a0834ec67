"""A test that fails when a training step gets slower than it was: pytest examples/ci/test_step.py

The baseline is a capture of the same step on the same kind of machine. Where there is none, the test makes it, and
passes; keep it as your CI keeps caches. PYPROF_BASELINE names it.
"""

import os
import shutil
from pathlib import Path

import torch

import pyprof
from pyprof.testing import assert_no_regression

BASELINE = Path(os.environ.get("PYPROF_BASELINE", "baseline.json.gz"))
WARM_UP, STEPS = 5, 20


def train(steps):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, targets = torch.randn(64, 256, device=device), torch.randint(10, (64,), device=device)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        pyprof.step()


def test_the_step_is_no_slower(tmp_path):
    capture = tmp_path / "net.json.gz"
    with pyprof.profile(capture, warmup=WARM_UP, steps=STEPS):
        train(WARM_UP + STEPS)
    if BASELINE.exists():
        assert_no_regression(BASELINE, capture, "step > 20%", "kernels > 0", "tc_lost > 0")
    else:
        shutil.copy(capture, BASELINE)
