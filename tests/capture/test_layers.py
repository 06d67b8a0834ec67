"""Layer names: found from the outermost module called, without touching the model."""

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402

import pyprof  # noqa: E402

from .conftest import Recorder, record  # noqa: E402

pytestmark = pytest.mark.torch
X = torch.randn(2, 4)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.mlp(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_names_are_state_dict_s(recorder: Recorder) -> None:
    net = Net()
    net(X)
    assert recorder.layers == ["Net", "blocks.0", "blocks.0.mlp", "blocks.1", "blocks.1.mlp", "head"]
    depths = [depth for depth, text in recorder.lines if text.startswith("layer:")]
    assert depths == [0, 1, 2, 1, 2, 1]


def test_a_part_called_alone_is_a_root(recorder: Recorder) -> None:
    net = Net()
    net.blocks[0](X)
    assert recorder.layers == ["Block", "mlp"]


def test_a_module_in_two_places_has_both_names(recorder: Recorder) -> None:
    net = Net()
    net.blocks[1].mlp = net.blocks[0].mlp
    net(X)
    assert recorder.layers == ["Net", "blocks.0", "blocks.0.mlp", "blocks.1", "blocks.1.mlp", "head"]


def test_a_module_used_twice_keeps_its_name(recorder: Recorder) -> None:
    relu = nn.ReLU()
    nn.Sequential(relu, nn.Linear(4, 4), relu)(X)
    assert recorder.layers == ["Sequential", "0", "1", "0"]


def test_a_module_outside_the_caller_is_a_root(recorder: Recorder) -> None:
    outside = nn.Linear(4, 4)

    class Calls(nn.Module):
        def forward(self, x: Any) -> Any:
            return outside(x)

    Calls()(X)
    assert recorder.layers == ["Calls", "Linear"]


def test_a_part_added_or_replaced_later_is_named(recorder: Recorder) -> None:
    net = nn.Sequential(nn.Linear(4, 4))
    net(X)
    net.append(nn.ReLU())
    net[0] = nn.Tanh()
    recorder.clear()
    net(X)
    assert recorder.layers == ["Sequential", "0", "1"]


def test_models_that_hold_themselves_end(recorder: Recorder) -> None:
    net = nn.Sequential(nn.Linear(4, 4))
    net[0].owner = net  # a cycle
    net(X)
    assert recorder.layers == ["Sequential", "0"]


def test_wrappers_add_no_part(recorder: Recorder) -> None:
    class DistributedDataParallel(nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            return self.module(x)

    DistributedDataParallel(Net())(X)
    blocks = ["blocks.0", "blocks.0.mlp", "blocks.1", "blocks.1.mlp"]
    assert recorder.layers == ["DistributedDataParallel", "Net", *blocks, "head"]


def test_the_model_is_only_read() -> None:
    net = Net()
    before = {key: value for name, module in net.named_modules() for key, value in vars(module).items()}
    keys = list(net.state_dict())
    recorder = record()
    net(X)
    assert {key: value for name, module in net.named_modules() for key, value in vars(module).items()} == before
    assert list(net.state_dict()) == keys
    assert repr(net) == repr(copy.deepcopy(net))
    pickle.loads(pickle.dumps(net))  # noqa: S301  (our own bytes)
    watch = weakref.ref(net)
    recorder.clear()
    del net, before
    gc.collect()
    assert watch() is None


def test_hooks_run_as_ever(recorder: Recorder) -> None:
    net, seen = Net(), []
    net.head.register_forward_hook(lambda *_: seen.append("hook"))
    net.head.register_full_backward_hook(lambda *_: seen.append("backward"))
    net(X.clone().requires_grad_()).sum().backward()
    assert seen == ["hook", "backward"]


def test_an_exception_leaves_no_layer_open(recorder: Recorder) -> None:
    net = Net()
    with pytest.raises(RuntimeError):
        net(torch.ones(2, 3))
    recorder.clear()
    net(X)
    assert recorder.layers[:2] == ["Net", "blocks.0"]
    assert recorder.lines[0][0] == recorder.depth == 0


def test_layers_can_be_left_out() -> None:
    call = nn.Module.__call__
    recorder = record(layers=False)
    assert nn.Module.__call__ is call
    Net()(X)
    assert recorder.layers == []


def test_annotate_is_a_layer_as_block_and_as_decorator(recorder: Recorder) -> None:
    @pyprof.annotate("outer")
    def work(depth: int = 1) -> int:
        """Doc."""
        with pyprof.annotate("inner"):
            torch.relu(X)
        return work(0) if depth else 3

    assert work() == 3 and work.__doc__ == "Doc."
    assert recorder.layers == ["outer", "inner", "outer", "inner"]
    with pytest.raises(ZeroDivisionError), pyprof.annotate("fails"):
        1 / 0  # noqa: B018
    assert recorder.depth == 0


def test_a_module_s_own_compiled_call_is_the_one_that_runs(recorder: Recorder) -> None:
    module = nn.ReLU()
    module._compiled_call_impl = lambda x: "compiled"  # as module.compile() sets it
    assert module(X) == "compiled"
