"""What a node of an FX graph says of the program, on literal metadata."""

import operator
import sys
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pyprof.provenance import dynamo_modes, inductor_hooks  # noqa: E402
from pyprof.provenance.decomposed_calls import TAG, DecomposedCall, _only_call, marking  # noqa: E402
from pyprof.provenance.graph_calls import _loops  # noqa: E402
from pyprof.provenance.node_facts import function_of, layers_of, lines_of, path_of  # noqa: E402
from pyprof.provenance.operations import joins_unpacked  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("view", ("Tensor", "view")),  # a method, by its name
        (torch._C._nn.linear, ("torch.nn.functional", "linear")),
        (torch.nn.Linear, ("torch.nn.functional", "linear")),  # a class whose function has its name in small letters
        (torch.nn.LayerNorm, ("torch.nn.functional", "layer_norm")),
        (torch.nn.RMSNorm, ("torch.nn.functional", "rms_norm")),
        (torch.nn.CrossEntropyLoss, ("torch.nn", "CrossEntropyLoss")),  # cross_entropy is another name
        (operator.add, ("Tensor", "__add__")),
        (torch.matmul, ("torch", "matmul")),
    ],
)
def test_the_function_that_was_called(function: Any, expected: tuple[str, str]) -> None:
    for key in ("source_fn_stack", "fwd_source_fn_stack"):
        assert function_of({key: [("outer", torch.relu), ("inner", function)]}) == expected


def test_a_node_without_a_function() -> None:
    assert function_of({}) == ("", "") and function_of({"source_fn_stack": []}) == ("", "")


def test_the_modules_around_a_call() -> None:
    stack = {"a": ("L['self']", torch.nn.Sequential), "b": ("L['self']._modules['h']['0']", torch.nn.Linear)}
    for key in ("nn_module_stack", "fwd_nn_module_stack"):
        assert layers_of({key: stack}) == (("", "h.0"), "Sequential")
    assert layers_of({"nn_module_stack": {"a": ("self.up", "mine.blocks.Block"), "b": None}}) == (("up",), "Block")
    assert layers_of({}) == ((), "")


def test_the_path_of_a_module_that_others_wrap() -> None:
    assert path_of("L['model']._orig_mod._fsdp_wrapped_module.blocks[3]._checkpoint_wrapped_module.up") == "blocks.3.up"
    assert path_of("L['self']._inner.up_") == "_inner.up_"  # underscores of the module's own


def test_the_loops_of_a_kernel() -> None:
    sympy = pytest.importorskip("sympy")
    sizes = (sympy.Integer(8), sympy.Symbol("s0"))
    assert _loops(SimpleNamespace(group=("cuda", sizes))) == (8, "s0")
    assert _loops(SimpleNamespace(group=("cpu", ([8], [4])))) == _loops(SimpleNamespace()) == ()


TRACE = """  File "/home/a/train.py", line 9, in step
    y = net(x)
  File "/lib/torch/module.py", line 7, in _call
    return self.forward(x)
  File "/home/a/net.py", line 5, in forward
    return x @ self.w
"""


def test_the_users_lines() -> None:
    own = {"/home/a/train.py": "train.py", "/home/a/net.py": "net.py"}
    assert lines_of({"stack_trace": TRACE}, own.get) == (("train.py:9", "net.py:5"), ("step", "forward"))
    assert lines_of({"stack_trace": None}, own.get) == ((), ())


class Owner:
    """What the hooks of inductor ask of the session."""

    def __init__(self) -> None:
        self.on = True
        self.replaced: list[tuple[Any, str]] = []
        self.ranges: list[str] = []
        self.failures: list[Exception] = []

    def is_on(self) -> bool:
        return self.on

    def set(self, owner: Any, name: str, value: Any) -> None:
        self.replaced.append((owner, name))

    def failed(self, error: Exception) -> None:
        self.failures.append(error)

    @contextmanager
    def range(self, number: str, record: str) -> Any:
        self.ranges.append(record)
        yield


def test_compiled_code_has_a_range_while_pyprof_is_on_and_there_is_a_record() -> None:
    owner = Owner()
    call = inductor_hooks._Hooks(owner)._ranged(lambda compiled, inputs: "ran")  # type: ignore[arg-type]
    code, without = SimpleNamespace(_pyprof_record="{}"), SimpleNamespace()
    assert (call(code, []), call(without, [])) == ("ran", "ran")
    owner.on = False
    assert call(code, []) == "ran"
    assert (owner.ranges, owner.failures) == (["{}"], [])


def test_inductor_is_followed_from_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._inductor.compile_fx", raising=False)
    owner = Owner()
    inductor_hooks.install(owner)  # type: ignore[arg-type]
    assert owner.replaced == [(torch._TorchCompileInductorWrapper, "__call__")]


def test_dynamos_table_is_made_with_pytorchs_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    variable = SimpleNamespace(_get_handlers=lambda: seen.append(torch.overrides.has_torch_function))
    module = SimpleNamespace(TorchInGraphFunctionVariable=variable)
    monkeypatch.setitem(sys.modules, "torch._dynamo.variables.torch", module)
    own = torch.overrides.has_torch_function

    def ours(arguments: Any) -> bool:
        return bool(own(arguments))

    ours.__wrapped__ = own  # type: ignore[attr-defined]
    monkeypatch.setattr(torch.overrides, "has_torch_function", ours)
    dynamo_modes._make_handlers()
    assert seen == [own] and torch.overrides.has_torch_function is ours


def test_a_decomposition_is_the_original_while_pyprof_is_off() -> None:
    marked = marking(lambda mode, op, args, kwargs: (op, args), lambda: False, nullcontext)
    assert marked(None, "aten.gelu", (1,), {}) == ("aten.gelu", (1,))


def test_the_one_call_that_matched_nodes_belong_to() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    erf, mul = (
        graph.call_function(torch.ops.aten.erf.default, (x,)),
        graph.call_function(torch.ops.aten.mul.Tensor, (x, x)),
    )
    call = DecomposedCall(1, ())
    erf.meta[TAG] = mul.meta[TAG] = call
    assert _only_call([x, erf, mul]) is call
    mul.meta[TAG] = DecomposedCall(2, ())
    assert _only_call([x, erf, mul]) is None


@pytest.mark.parametrize(
    ("frame", "joins"),
    [
        ('File "net.py", line 5, in forward\n    q, k = x\n', True),
        ('File "net.py", line 5, in forward\n    y = x[0] * x[1]\n        ~^^^\n', False),
        ('File "mode.py", line 9, in __torch_function__\n    return func(*args)\n', False),
    ],
)
def test_gradients_of_an_unpacked_tensor_are_joined(frame: str, joins: bool) -> None:
    graph = torch.fx.Graph()
    part = graph.call_function(torch.ops.aten.select_backward.default, (graph.placeholder("x"), [2, 3], 0, 0))
    node = graph.call_function(torch.ops.aten.add.Tensor, (part, part))
    node.meta["stack_trace"] = frame + "Gradient addition node due to multiple use of tensor around:"
    assert joins_unpacked(node) is joins
