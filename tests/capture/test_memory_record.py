"""pyprof.profile(memory=True): the trace has the allocations, and says which tensors are whose."""

import gzip
import json

import pytest
import torch
from torch import nn

import pyprof
from pyprof.capture.run import main as run
from pyprof.memory_record import memory_record
from pyprof.prof.load import load_memory, load_table
from pyprof.prof.memory.memory_numbers import memory_numbers


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.register_buffer("scale", torch.ones(5))
        self.register_buffer("absent", None)

    def forward(self, x):
        return self.first(x) * self.scale[0]


def storages_of(*tensors):
    """The recorded storages of these tensors only: a test's process holds models of other tests."""
    wanted = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    return [each for each in memory_record()["storages"] if each["address"] in wanted]


def test_parameters_gradients_buffers_and_state_are_told_apart():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    weight = net.first.weight
    moments = optimizer.state[weight]
    found = storages_of(weight, weight.grad, net.scale, moments["exp_avg"], moments["step"])
    assert {(each["category"], each["name"], tuple(each["layer"]), each["bytes"]) for each in found} == {
        ("parameters", "first.weight", ("Net", "first"), 8 * 32 * 4),
        ("gradients", "first.weight", ("Net", "first"), 8 * 32 * 4),
        ("buffers", "scale", ("Net",), 5 * 4),
        ("optimizer state", "first.weight.exp_avg", ("Net", "first"), 8 * 32 * 4),
        ("optimizer state", "first.weight.step", ("Net", "first"), 4),
    }
    assert all((each["kind"], each["device"]) == ("cpu", 0) for each in found)


def test_a_shared_tensor_is_listed_once_and_odd_ones_do_no_harm():
    net = Net()
    tied = nn.Linear(8, 32)
    tied.weight = net.first.weight
    both = nn.ModuleList([net, tied])
    assert len(storages_of(net.first.weight)) == 1
    with torch.device("meta"):
        meta = nn.Linear(3, 3)
    sparse = nn.Parameter(torch.eye(3).to_sparse())
    holder = nn.Module()
    holder.weight = sparse
    assert memory_record()["version"] == 1 and meta and both and holder


def test_nothing_of_the_programs_objects_is_run():
    class Proxy:
        @property
        def __class__(self):
            raise AssertionError("run")

    proxy = [Proxy()]
    assert memory_record() and proxy


def test_a_trace_with_memory(tmp_path):
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    file = tmp_path / "net.json.gz"
    with pyprof.profile(file, memory=True):
        net(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    loaded = load_memory(file)
    table = loaded.memory
    mine = set(table.coded("name").texts())
    assert {"first.weight", "first.weight.exp_avg"} <= mine
    rows = zip(table.coded("name").texts(), table.coded("category").texts(), table.coded("level").texts(), strict=True)
    levels = {(category, level) for name, category, level in rows if name.startswith("first.weight")}
    # the parameter is older than the capture; its gradient and the moments were allocated in it
    assert {("parameters", "before"), ("gradients", "allocator"), ("optimizer state", "allocator")} <= levels
    assert memory_numbers(table, loaded.kernels)[0].kind == "cpu"
    assert load_table(file).memory is not None


def test_without_the_option_there_is_none(tmp_path):
    with pyprof.profile(tmp_path / "net.json.gz"):
        torch.ones(4).add(1)
    with gzip.open(tmp_path / "net.json.gz") as file:
        trace = json.load(file)
    assert "memory" not in trace["pyprof"] and not any(
        event.get("name") == "[memory]" for event in trace["traceEvents"]
    )


def test_the_command_records_it(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\ntorch.nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()\n")
    assert run(["--memory", "-q", "-o", "net.json", "train.py"]) == 0
    assert len(load_memory(tmp_path / "net.json").memory)
    capfd.readouterr()


def test_under_another_tool_it_says_what_to_do(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("pyprof.capture.run.output_file", lambda _: None)
    with pytest.raises(SystemExit) as stop:
        run(["--memory", str(tmp_path / "train.py")])
    assert stop.value.code == 2 and "nsys profile --cuda-memory-usage=true" in capfd.readouterr().err
