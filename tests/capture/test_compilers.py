"""What compiles, traces or transforms programs does the same as without pyprof."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import pyprof  # noqa: E402
from pyprof.capture import session  # noqa: E402
from pyprof.provenance import dynamo_modes  # noqa: E402

from .conftest import Recorder, record  # noqa: E402

# torch.jit and parts of torch.export announce their own end; torch.compile warns of what it finds in its imports.
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="inductor needs a C++ compiler"
)
MODES_ARE_GUARDED = torch.__version__ >= (2, 5)  # dynamo compiles anew when a torch function mode comes or goes


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # torch.jit.script reads the annotations
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x).view(-1, 4) + 1, dim=-1)


def net_and_input() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return Net(), torch.randn(3, 8)


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_compile_captures_the_whole_graph(when: str) -> None:
    from torch._dynamo.utils import counters

    net, x = net_and_input()
    expected = net(x)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    if when == "before":
        compiled(x)
    recorder = record(trace=True)
    counters.clear()
    for _ in range(3):
        result = compiled(x)
        result.sum().backward()
    assert torch.equal(result, expected)
    again = 1 if MODES_ARE_GUARDED or when == "after" else 0
    assert counters["stats"]["unique_graphs"] == again  # once for the mode's guard, and never again
    assert not counters["graph_break"]
    assert recorder.depth == 0
    assert not any(layer in recorder.layers for layer in ("fc1", "fc2"))
    pyprof.deinit()
    assert torch.equal(compiled(x), expected)


ARITHMETIC: dict[str, Callable[[Any], Any]] = {
    "1 - x": lambda x: 1 - x,
    "1 / x": lambda x: 1 / x,
    "x ** 2": lambda x: x**2,
    "2.0 ** x": lambda x: 2.0**x,
    "x // 2": lambda x: x // 2,
    "unflatten": lambda x: x.unflatten(0, (2, -1)),
    "rows": lambda x: sum(part.exp() for part in x),
}


@pytest.mark.slow
@pytest.mark.skipif(not MODES_ARE_GUARDED, reason="dynamo traces the mode's calls before 2.5")
@pytest.mark.parametrize("formula", ARITHMETIC)
def test_operators_that_call_python_functions_break_no_graph(formula: str) -> None:
    """With fullgraph=True, a graph break is an error."""
    function, x = ARITHMETIC[formula], torch.rand(4, 3) + 1
    expected = function(x)
    record()
    assert torch.equal(torch.compile(function, backend="eager", fullgraph=True)(x), expected)
    pyprof.deinit()
    assert torch.equal(torch.compile(function, backend="eager", fullgraph=True)(x), expected)


@pytest.mark.slow
@pytest.mark.skipif(not MODES_ARE_GUARDED, reason="dynamo traces the mode's calls before 2.5")
def test_modules_that_ask_for_torch_functions_break_no_graph() -> None:
    """A transformer's layer asks ``torch.overrides.has_torch_function``, which pyprof replaces."""
    layer, x = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), torch.rand(2, 4, 16)
    with torch.no_grad():
        expected = layer(x)
        record()
        for _ in range(2):
            torch.testing.assert_close(torch.compile(layer, backend="eager", fullgraph=True)(x), expected)
            torch._dynamo.reset()
            pyprof.deinit()


@pytest.mark.slow
def test_a_mode_of_the_program_is_traced() -> None:
    from torch.overrides import TorchFunctionMode

    class Doubling(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.sin else result

    def run() -> Any:
        with Doubling():
            return torch.compile(lambda x: torch.sin(x) + 1, backend="aot_eager", fullgraph=True)(torch.ones(3))

    expected = run()
    assert not torch.equal(expected, torch.ones(3).sin() + 1)
    record()
    assert torch.equal(run(), expected)


@pytest.mark.slow
@needs_compiler
def test_inductor_s_code_computes_the_same() -> None:
    net, x = net_and_input()
    compiled = torch.compile(net)
    expected = compiled(x)
    recorder = record()
    assert torch.equal(compiled(x), expected)
    assert torch.equal(torch.compile(net)(x), expected)
    assert recorder.depth == 0


@pytest.mark.slow
def test_a_compiled_part_of_a_model_has_its_layer(recorder: Recorder) -> None:
    net, x = net_and_input()
    net.fc1 = torch.compile(net.fc1, backend="eager")
    net(x)
    recorder.clear()
    net(x)
    assert recorder.layers[:2] == ["Net", "fc1"] and "fc2" in recorder.layers


@pytest.mark.slow
def test_a_compiled_function_with_annotations_works(recorder: Recorder) -> None:
    @torch.compile(backend="eager")
    def step(x: Any) -> Any:
        with pyprof.annotate("inside"):
            return torch.relu(x) * 2

    assert torch.equal(step(torch.ones(3)), torch.full((3,), 2.0))
    assert recorder.depth == 0


def test_jit_script_compiles_functions_and_modules(recorder: Recorder) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.relu(torch.mm(x, x.t())) + 1

    net, x = net_and_input()
    scripted = torch.jit.script(net)
    assert torch.equal(scripted(x), net(x))
    assert torch.equal(torch.jit.script(function)(x), function(x))
    assert recorder.depth == 0


def test_jit_trace_has_the_same_graph() -> None:
    net, x = net_and_input()
    plain = graph(torch.jit.trace(net, x))
    recorder = record(trace=True)
    recorder.clear()
    traced = torch.jit.trace(net, x, check_trace=False)
    assert graph(traced) == plain
    assert recorder.ops == []
    assert torch.equal(traced(x), net(x))


def graph(traced: Any) -> list[tuple[str, list[str], list[str]]]:
    """The nodes with their types. The names of values are left out: the tracer takes them from Python's frames."""
    return [
        (node.kind(), [str(i.type()) for i in node.inputs()][1:], [str(o.type()) for o in node.outputs()])
        for node in traced.inlined_graph.nodes()
        if node.kind() != "prim::GetAttr"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_export_has_the_same_graph(strict: bool) -> None:
    if strict and not MODES_ARE_GUARDED:
        pytest.skip("2.4's strict export names parameters after the module that it is called through")
    net, x = net_and_input()
    plain = str(torch.export.export(net, (x,), strict=strict).graph)
    record(trace=True)
    assert str(torch.export.export(net, (x,), strict=strict).graph) == plain


def test_fx_traces_the_same_graph(recorder: Recorder) -> None:
    net, x = net_and_input()
    traced = torch.fx.symbolic_trace(net)
    pyprof.deinit()
    assert str(traced.graph) == str(torch.fx.symbolic_trace(net).graph)
    assert torch.equal(traced(x), net(x))


def test_make_fx_traces_the_same_graph(recorder: Recorder) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    net, x = net_and_input()
    marked = make_fx(net)(x).code
    pyprof.deinit()
    assert marked == make_fx(net)(x).code


def test_func_transforms_compute_the_same() -> None:
    x = torch.randn(4, 3)

    def loss(t: Any) -> Any:
        return (torch.sin(t) * t).sum()

    transforms = [
        lambda: torch.func.grad(loss)(x),
        lambda: torch.func.vmap(lambda row: torch.dot(row, row) + row[0])(x),
        lambda: torch.func.vmap(torch.func.grad(loss))(x),
        lambda: torch.func.jacrev(torch.sin)(x[0]),
        lambda: torch.func.jvp(torch.sin, (x,), (x,))[1],
        lambda: torch.func.hessian(loss)(x[0]),
    ]
    plain = [transform() for transform in transforms]
    recorder = record()
    marked = [transform() for transform in transforms]
    assert all(torch.equal(a, b) for a, b in zip(plain, marked, strict=True))
    assert recorder.depth == 0 and "torch.sin" in recorder.ops
    from pyprof.capture import session

    assert session.current().mode.failures == []  # type: ignore[union-attr]


def test_functional_call_parametrize_and_optimizers_work(recorder: Recorder) -> None:
    net, x = net_and_input()
    torch.nn.utils.parametrizations.weight_norm(net.fc1)
    optimizers = [
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=True),
        torch.optim.AdamW(net.parameters(), foreach=True),
        torch.optim.AdamW(net.parameters(), fused=True),
    ]
    for optimizer in optimizers:
        optimizer.zero_grad()
        net(x).sum().backward()
        recorder.clear()
        optimizer.step()
        assert any("_foreach" in op or "_fused" in op for op in recorder.ops)
    torch.func.functional_call(net, dict(net.named_parameters()), (x,))


def test_flex_attention_runs(recorder: Recorder) -> None:
    flex_attention = pytest.importorskip("torch.nn.attention.flex_attention").flex_attention  # since 2.5
    q = torch.randn(1, 2, 16, 8)
    recorder.clear()
    flex_attention(q, q, q)
    assert recorder.depth == 0


def test_amp_with_a_scaler_computes_the_same() -> None:
    def train() -> Any:
        net, x = net_and_input()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = net(x).float().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return loss.detach()

    plain = train()
    recorder = record(trace=True)
    assert torch.equal(train(), plain)
    assert any(marker.autocast == "bfloat16" for marker in recorder.markers)


def test_dynamo_imported_meanwhile_keeps_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo import utils

    import pyprof

    if not hasattr(utils, "unpatched_nn_module_call"):
        pytest.skip("dynamo keeps no call of its own before 2.5")
    original = torch.nn.Module.__call__
    pyprof.init(sink="nvtx")
    monkeypatch.setattr(utils, "unpatched_nn_module_call", torch.nn.Module.__call__)  # its first import does this
    pyprof.deinit()
    assert torch.nn.Module.__call__ is original
    assert utils.unpatched_nn_module_call is original


def test_only_our_own_mode_is_kept_from_dynamo(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Callable[[Any], bool]] = []
    unseen = dynamo_modes.unseen

    def noted(set_: Any, is_ours: Callable[[Any], bool]) -> Any:
        given.append(is_ours)
        return unseen(set_, is_ours)

    monkeypatch.setattr(dynamo_modes, "unseen", noted)
    pyprof.init()
    active = session.current()
    assert active is not None
    (is_ours,) = given
    assert is_ours(active.mode) and not is_ours(object())
