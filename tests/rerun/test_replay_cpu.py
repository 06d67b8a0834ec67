"""Calls of a captured CPU run, made again: what torch's profiler records of them is what the capture recorded."""

import gzip
import json
import math

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import pyprof  # noqa: E402
from pyprof.prof.load import load_table  # noqa: E402
from pyprof.rerun.recorded_calls import recorded_calls  # noqa: E402
from pyprof.rerun.recreate import recreate  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]
CPU = torch.device("cpu")
RECORDED = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


def step():
    """Ops of most kinds: products, a convolution, norms, attention, indices, a loss, lists, masks, an optimizer."""
    torch.manual_seed(0)
    emb, conv, lin, norm = nn.Embedding(50, 16), nn.Conv2d(3, 8, 3, padding=1), nn.Linear(16, 7), nn.LayerNorm(16)
    ids, images, target = torch.randint(50, (4, 6)), torch.randn(2, 3, 8, 8), torch.randint(7, (24,))
    optimizer = torch.optim.AdamW([p for m in (emb, conv, lin, norm) for p in m.parameters()], fused=True)

    def run():
        optimizer.zero_grad()
        x = F.gelu(norm(emb(ids)), approximate="tanh") * 2.0
        q = x.view(4, 6, 2, 8).transpose(1, 2)
        a = F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).reshape(24, 16)
        loss = F.cross_entropy(lin(a), target) + F.max_pool2d(F.relu(conv(images)), 2).mean()
        loss = loss + torch.cat([x, x], -1).softmax(-1).sum(dtype=torch.float64).float()
        loss = (
            loss + x.gather(1, ids[:, :3, None].clamp(max=5).expand(4, 3, 16)).sum() + (x[ids[0, :2] % 4] ** 2).mean()
        )
        loss = loss + torch.where(x > 0, x, x * 0.5).masked_fill(x > 1, 0.0).cumsum(1).mean()
        loss.backward()
        optimizer.step()

    return run


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    file = tmp_path_factory.mktemp("replay") / "step.json.gz"
    run = step()
    pyprof.init()
    try:
        run()
        with pyprof.profile(file):
            run()
    finally:
        pyprof.deinit()
    return file


def events(file):
    """The ops of a trace, with what the profiler recorded of them."""
    data = file.read_bytes()
    trace = json.loads(gzip.decompress(data) if file.suffix == ".gz" else data)["traceEvents"]
    return [event for event in trace if event.get("cat") == "cpu_op"]


def form(event):
    """What the profiler recorded of a call. Numbers are compared as numbers."""
    args = event["args"]
    return (event["name"], *(json.dumps(args.get(key)) for key in RECORDED))


def test_every_call_is_made_again_with_the_arguments_that_the_capture_recorded(capture, tmp_path):
    calls = recorded_calls(load_table(capture).table)
    recorded = {form(event) for event in events(capture)}
    assert len(calls) > 50
    for number, call in enumerate(calls):
        made = recreate(call, CPU, 1 << 30)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiled:
            made.function(*made.args, **made.kwargs)
        file = tmp_path / f"{number}.json"
        profiled.export_chrome_trace(str(file))
        again = next(event for event in events(file) if event["name"] == call.op)
        assert form(again) in recorded, call


def test_the_calls_have_all_the_capture_s_time(capture):
    table = load_table(capture).table
    assert sum(call.ns for call in recorded_calls(table)) == int(table.ints("kDuration").sum())


def test_results_are_numbers(capture):
    """Random inputs that no op chokes on: indices within bounds, and no integer divided by zero."""
    for call in recorded_calls(load_table(capture).table):
        made = recreate(call, CPU, 1 << 30)
        result = made.function(*made.args, **made.kwargs)
        if call.op in ("aten::addmm", "aten::native_layer_norm", "aten::_softmax", "aten::gelu"):
            first = result[0] if isinstance(result, tuple) else result
            assert math.isfinite(float(first.float().sum())), call.op
