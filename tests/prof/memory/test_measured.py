"""Memory as PyTorch itself tells it: peaks to the byte on an H200, and checkpointing predicted and done on the CPU.

The captures of an H200 are read from the folder that PYPROF_MEMORY names: NAME.json, NAME_cold.json, NAME_first.pickle,
and beside them what torch.cuda.max_memory_allocated() and max_memory_reserved() returned in each step.
"""

import gc
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pyprof.prof.changes.checkpointing_times import with_added_times
from pyprof.prof.load import load_memory
from pyprof.prof.memory.memory_numbers import memory_numbers
from tests.paths import GOLDEN, ROOT

FOLDER = os.environ.get("PYPROF_MEMORY", "")
NAMES = ("gpt2", "resnet50", "lstm")
recorded = pytest.mark.skipif(not FOLDER, reason="PYPROF_MEMORY does not name the folder of captures with memory")


def of_gpu(file: Path):
    return next(each for each in memory_numbers(load_memory(file).memory) if each.kind == "cuda" and each.exact)


@pytest.mark.parametrize("name", NAMES)
def test_the_peaks_of_an_h200_to_the_byte(name):
    """Two steps of GPT-2 (4 layers), ResNet-50 and an LSTM language model with Kineto, PyTorch 2.11."""
    truth = json.loads((GOLDEN / "memory" / "h200_truth.json").read_text())[name]
    found = of_gpu(GOLDEN / "memory" / f"h200_{name}.json.gz")
    assert [(step.peak_bytes, step.reserved_bytes) for step in found.steps] == [
        (step["max_allocated"], step["max_reserved"]) for step in truth
    ]
    assert found.before_bytes == truth[0]["before"] and found.missing == 0
    assert sum(each.nbytes for each in found.content.categories) == found.peak_bytes


@recorded
@pytest.mark.parametrize("name", NAMES)
def test_from_the_first_allocation_on_nothing_is_from_before(name):
    truth = json.loads((Path(FOLDER) / f"{name}_cold_truth.json").read_text())
    found = of_gpu(Path(FOLDER) / f"{name}_cold.json")
    assert found.peak_bytes == max(step["max_allocated"] for step in truth) and found.before_bytes == 0
    categories = {each.name: each.nbytes for each in found.content.categories}
    assert "before the capture" not in categories
    # AdamW and Adam keep two moments of each parameter, SGD with momentum one buffer (and a few counters).
    moments = {"gpt2": 2, "lstm": 2, "resnet50": 1}[name]
    assert categories["optimizer state"] == pytest.approx(moments * categories["parameters"], rel=0.15)


@recorded
@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_of_the_first_steps(name):
    truth = json.loads((Path(FOLDER) / f"{name}_truth.json").read_text())["snapshot_two_first_steps"]
    found = of_gpu(Path(FOLDER) / f"{name}_first.pickle")
    assert [step.reserved_bytes for step in found.steps] == [step["max_reserved"] for step in truth]
    for step, told in zip(found.steps, truth, strict=True):  # requested bytes: the allocator rounds them up
        assert 0.98 * told["max_allocated"] < step.peak_bytes <= told["max_allocated"]


@recorded
@pytest.mark.parametrize("name", NAMES)
def test_nsys_sees_what_is_reserved(name):
    truth = json.loads((Path(FOLDER) / f"{name}_nsys_truth.json").read_text())
    (found,) = [d for d in memory_numbers(load_memory(Path(FOLDER) / f"{name}_nsys.sqlite").memory) if d.kind == "cuda"]
    assert found.level == "driver"
    # libraries call cudaMalloc, too: 135 MB for all three
    assert truth["max_reserved"] <= found.peak_bytes < truth["max_reserved"] + 150e6


# Checkpointing, done on an H200 by tests/device/checkpointing.py, and on this CPU

MEASURED = json.loads((GOLDEN / "memory" / "h200_checkpointing.json").read_text())


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: f"{case['file'].split('_')[-1]} {case['layers']}")
def test_what_checkpointing_frees_and_costs_on_an_h200(case):
    """The bytes within 1%, the ms within 15% of each measurement; of a tiny model, limited by the host, 2% and 25%."""
    memory = load_memory(GOLDEN / "memory" / case["file"], host=True)
    numbers = memory_numbers(memory.memory, memory.kernels, case["layers"])
    (found,) = (each for each in with_added_times(numbers, memory, 1e6 * case["step_ms"]) if each.exact)
    (predicted,) = found.checkpointing
    freed = case["peak_bytes"] - case["checkpointed_peak_bytes"]
    tiny = "tiny" in case["file"]
    assert tiny or found.peak_bytes == case["peak_bytes"]
    assert predicted.freed_bytes == pytest.approx(freed, rel=0.02 if tiny else 0.01)
    for cost_ms in case["cost_ms"]:
        assert predicted.added.ns == pytest.approx(1e6 * cost_ms, rel=0.25 if tiny else 0.15)
    assert predicted.added.low_ns < predicted.added.ns < predicted.added.high_ns
    if not tiny:  # the GPU sets the pace: the kernels that run again and the gaps between them
        assert predicted.cost_ns < predicted.added.ns < 1.1 * predicted.cost_ns
    else:
        assert predicted.added.ns > 40 * predicted.cost_ns


def run(checkpointed, make, file):
    import torch
    from torch.utils.checkpoint import checkpoint

    import pyprof

    torch.manual_seed(0)
    model, layers, loss_of = make()
    if checkpointed:
        for layer in layers(model):
            forward = layer.forward
            layer.forward = lambda *args, f=forward: checkpoint(f, *args, use_reentrant=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()

    step()
    with pyprof.profile(file, force=True, memory=True):
        step()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The captures of each case, plain and checkpointed, by a process of their own: one with other tests frees their
    memory while a peak is measured."""
    folder = tmp_path_factory.mktemp("memory")
    code = f"from tests.prof.memory.test_measured import run_all; run_all({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=300)
    return {name: [folder / f"{number}.{kind}.json.gz" for kind in KINDS] for number, name in enumerate(CASES)}


def run_all(folder):
    for number, make in enumerate(CASES.values()):
        for kind in KINDS:
            gc.collect()  # what is left of the run before it
            run(kind == "checkpointed", make, Path(folder) / f"{number}.{kind}.json.gz")


def transformer():
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.norm(x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.h = nn.ModuleList(Block() for _ in range(5))
            self.head = nn.Linear(64, 100)

        def forward(self, x):
            for block in self.h:
                x = block(x)
            return self.head(x)

    x = torch.randn(16, 64, 64)
    return Net(), lambda model: list(model.h), lambda model: model(x).square().mean()


def residual():
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(32, 8, 1, bias=False), nn.BatchNorm2d(8)
            self.conv2, self.bn2 = nn.Conv2d(8, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            y += x
            return self.relu(y)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 32, 3, padding=1)
            self.stage = nn.Sequential(Block(), Block(), Block())
            self.head = nn.Linear(32, 10)

        def forward(self, x):
            return self.head(self.stage(self.stem(x)).mean((2, 3)))

    x = torch.randn(8, 3, 32, 32)
    return Net(), lambda model: list(model.stage), lambda model: model(x).square().mean()


def stage():
    net, _, loss_of = residual()
    return net, lambda model: [model.stage], loss_of


KINDS = ("plain", "checkpointed")
CASES = {"Net:h.*": transformer, "Net:stage:*": residual, "Net:stage": stage}


@pytest.mark.parametrize("pattern", CASES)
def test_the_peak_and_the_kernels_that_run_again(pattern, files):
    """Within 10% of the bytes that checkpointing frees (25% are asked for), and exactly the ops that it repeats."""
    plain, done = map(load_memory, files[pattern])
    (before,), (after,) = (memory_numbers(run.memory, run.kernels, pattern) for run in (plain, done))
    found = before.checkpointing[0]
    measured = before.peak_bytes - after.peak_bytes
    assert found.freed_bytes == pytest.approx(measured, rel=0.1, abs=0.005 * before.peak_bytes)
    rows = done.kernels
    again = np.flatnonzero(rows.coded("phase").among("backward") & rows.coded("dir").among("fprop"))
    assert repeated(plain, found.names) == Counter(rows.coded("aten").take(again).texts())


def repeated(plain, names):
    """The aten ops that are predicted to run again."""
    from pyprof.prof.memory.categories import blocks_of
    from pyprof.prof.memory.checkpointing import layer_of
    from pyprof.prof.memory.step_window import Kernels, Window
    from pyprof.prof.memory.timeline import timelines

    (line,) = timelines(plain.memory)
    kernels = Kernels.of(plain.kernels)
    window = Window(plain.memory, line, blocks_of(plain.memory, line), 0, len(line.rows), kernels)
    found = Counter()
    for name in names:
        rows = kernels.places.within(name)
        rows = rows[kernels.is_forward[rows] & (kernels.launched[rows] < layer_of(window, name).last_saved_ns)]
        found += Counter(kernels.table.coded("aten").take(rows).texts())
    return found
