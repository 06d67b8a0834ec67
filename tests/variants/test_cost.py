"""What `pyprof try` adds to the steps that it times, counted: calls of Python and C functions, which no machine's pace
changes.

On an H200, steps by `pyprof try` and by hand differed by up to a fifth where the host is the limit
(docs/how-to/try.md). What these calls take, some ten microseconds a step, is not the cause.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LAYERS = 60
# A convolutional network of 3 LAYERS + 2 modules; it counts the calls of two steps after the warm-up.
TRAINING = f"""
import collections, contextlib, json, os, sys, torch
from torch import nn
hand = os.environ["HAND"].split(",")
torch.manual_seed(0)
torch.set_num_threads(1)
layers = []
for i in range({LAYERS}):
    layers += [nn.Conv2d(3 if i == 0 else 4, 4, 1), nn.BatchNorm2d(4), nn.ReLU()]
model = nn.Sequential(*layers, nn.Flatten())
images, labels = torch.randn(2, 3, 4, 4), torch.randint(64, (2,))
if "channels_last" in hand:
    model = model.to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
calls = 0
def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
for step in range(14):
    sys.setprofile(count if step in (9, 10) else None)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16) if "amp" in hand else contextlib.nullcontext():
        loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    if step == 11:
        with open(os.environ["CALLS"], "w") as out:
            json.dump(calls / 2, out)
"""


def calls_per_step(folder: Path, words: list[str], hand: str = "") -> float:
    calls = folder / "calls.json"
    settings = {"HAND": hand, "CALLS": str(calls), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-W", "ignore", *words], env={**os.environ, **settings}, check=True, timeout=300)
    return float(json.loads(calls.read_text()))


@pytest.mark.parametrize(("changes", "most"), [("", 70), ("amp,channels_last", 260)])
def test_a_step_has_few_calls_more_whatever_its_number_of_modules(tmp_path: Path, changes: str, most: int) -> None:
    """``most``: counted 52 and 235 (Python 3.11, torch 2.13), of 2,000; other versions walk modules in other ways."""
    script, settings = tmp_path / "train.py", tmp_path / "settings.json"
    script.write_text(TRAINING, encoding="utf-8")
    run = {"args": [], "module": False, "warmup": 4, "steps": 9, "rest_s": 0.0, "workers": 1}
    more = {"script": str(script), "changes": changes.split(",") if changes else [], "record": str(tmp_path / "r.json")}
    settings.write_text(json.dumps({**run, **more}), encoding="utf-8")
    by_hand = calls_per_step(tmp_path, [str(script)], changes)
    tried = calls_per_step(tmp_path, ["-m", "pyprof.variants.variant_script", str(settings)])
    assert by_hand > 3 * LAYERS  # every module is called
    assert 0 < tried - by_hand <= most
