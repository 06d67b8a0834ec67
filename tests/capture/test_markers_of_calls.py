"""What a call's marker says: one a call, arguments described without touching data, errors passed through."""

import threading
from enum import IntEnum
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from pyprof.capture import session  # noqa: E402
from pyprof.capture.mode import MarkerMode  # noqa: E402
from pyprof.marker import MAX_TEXT, Marker, parse_marker  # noqa: E402

from .conftest import Recorder, record  # noqa: E402

pytestmark = pytest.mark.torch


def only(recorder: Recorder) -> Marker:
    (marker,) = recorder.markers
    return marker


def tensor(name: str, *shape: int, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "tensor", "shape": list(shape), "dtype": dtype, **more}


X = torch.randn(4, 6)
ONE_MARKER = [  # PyProf pushed three for F.relu, and one for each op that these run in their own Python
    ("torch.relu", lambda: torch.relu(X)),
    ("torch.nn.functional.relu", lambda: F.relu(X)),
    ("torch.nn.functional.linear", lambda: F.linear(X, X)),
    ("torch.nn.functional.threshold", lambda: F.threshold(X, 0.1, 0.0)),  # the function's own name is _threshold
    ("torch.nn.functional.cross_entropy", lambda: F.cross_entropy(X, torch.tensor([0, 1, 2, 3]))),
    ("torch.nn.functional.softmax", lambda: F.softmax(X, -1)),
    ("torch.nn.functional.dropout", lambda: F.dropout(X, 0.5)),
    ("torch.nn.functional.layer_norm", lambda: F.layer_norm(X, (6,))),
    ("torch.nn.functional.gelu", lambda: F.gelu(X)),
    ("torch.nn.functional.embedding", lambda: F.embedding(torch.tensor([0, 1]), X)),
    ("torch.nn.functional.scaled_dot_product_attention", lambda: F.scaled_dot_product_attention(X, X, X)),
    ("torch.einsum", lambda: torch.einsum("ij,kj->ik", X, X)),
    ("torch.stack", lambda: torch.stack([X, X])),
    ("Tensor.add", lambda: X + 1),
    ("Tensor.mul_", lambda: X.mul_(1.0)),
    ("Tensor.__rsub__", lambda: 1 - X),
    ("Tensor.matmul", lambda: X @ X.mT),
    ("Tensor.__getitem__", lambda: X[1:, 0]),
    ("Tensor.__setitem__", lambda: X.__setitem__(0, 0.5)),
    ("Tensor.contiguous", X.contiguous),
    ("Tensor.to", lambda: X.to(torch.float64)),
    ("Tensor.float", X.float),
    ("Tensor.norm", X.norm),
    ("torch.linalg.vector_norm", lambda: torch.linalg.vector_norm(X)),
    ("torch.fft.fft", lambda: torch.fft.fft(X)),
    ("torch.special.expit", lambda: torch.special.expit(X)),
    ("torch.nn.init.normal_", lambda: nn.init.normal_(torch.empty(2))),
    ("torch._foreach_add", lambda: torch._foreach_add([X, X], 1)),
    ("torch.ops.aten.relu", lambda: torch.ops.aten.relu(X)),
    ("torch.ops.aten.relu.default", lambda: torch.ops.aten.relu.default(X)),
    ("torch.zeros", lambda: torch.zeros(3)),
]


@pytest.mark.parametrize(("op", "call"), ONE_MARKER, ids=[op for op, _ in ONE_MARKER])
def test_one_call_one_marker(recorder: Recorder, op: str, call: Any) -> None:
    call()
    # what made the arguments comes first
    assert recorder.ops[-1] == op
    assert recorder.ops.count(op) == 1
    assert all(depth == 0 for depth, _ in recorder.lines)
    assert set(recorder.ops[:-1]) <= {"torch.tensor", "torch.empty", "Tensor.__getitem__"}


def test_multi_head_attention_is_one_marker_and_so_is_an_lstm_s_work(recorder: Recorder) -> None:
    x = torch.randn(3, 2, 8)
    attention, lstm = nn.MultiheadAttention(8, 2), nn.LSTM(8, 8)
    recorder.clear()
    attention(x, x, x)
    assert recorder.ops == ["torch.nn.functional.multi_head_attention_forward"]
    recorder.clear()
    lstm(x)
    assert [op for op in recorder.ops if op not in ("torch.zeros", "Tensor.size")] == ["torch.lstm"]


def test_names_that_were_imported_before_init_are_marked(recorder: Recorder) -> None:
    relu, linear = torch.relu, F.linear  # the very objects: nothing of PyTorch's ops is replaced
    linear(relu(X), X)
    assert recorder.ops == ["torch.relu", "torch.nn.functional.linear"]


def test_arguments_have_names_shapes_and_values(recorder: Recorder) -> None:
    x, w = torch.randn(2, 3, 8, 8), torch.randn(6, 3, 3, 3)
    recorder.clear()
    F.conv2d(x, w, None, (2, 1), padding=1)
    assert only(recorder) == Marker(
        "torch.nn.functional",
        "conv2d",
        [
            tensor("input", 2, 3, 8, 8),
            tensor("weight", 6, 3, 3, 3),
            {"name": "bias", "type": "NoneType", "value": None},
            {"name": "stride", "type": "tuple", "value": [2, 1]},
            {"name": "padding", "type": "int", "value": 1},
        ],
    )


def test_strides_are_given_where_not_contiguous_and_zero_tells_a_broadcast(recorder: Recorder) -> None:
    x = torch.randn(4, 1).expand(4, 5)
    y = torch.randn(5, 4).t()
    recorder.clear()
    torch.add(x, y)
    assert only(recorder).args == [tensor("input", 4, 5, stride=[1, 0]), tensor("other", 4, 5, stride=[1, 4])]


class Colour(IntEnum):
    RED = 1


class Opaque:
    def __repr__(self) -> str:
        raise AssertionError("nothing of the user's is printed")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("nothing of the user's is compared")

    __hash__ = None  # type: ignore[assignment]


def test_each_kind_of_value_has_its_form() -> None:
    from pyprof.capture.describe import describe, key_of

    forms = [
        (3, {"type": "int", "value": 3}),
        (True, {"type": "bool", "value": True}),
        (None, {"type": "NoneType", "value": None}),
        ('a\n"b" ü', {"type": "str", "value": 'a\n"b" ü'}),
        (1.5, {"type": "float", "value": 1.5}),
        (float("inf"), {"type": "float", "value": "inf"}),
        (float("-inf"), {"type": "float", "value": "-inf"}),
        (float("nan"), {"type": "float", "value": "nan"}),
        (2j, {"type": "complex", "value": "2j"}),
        (torch.bfloat16, {"type": "dtype", "value": "bfloat16"}),
        (torch.device("cpu"), {"type": "device", "value": "cpu"}),
        (torch.strided, {"type": "layout", "value": "strided"}),
        (torch.channels_last, {"type": "memory_format", "value": "channels_last"}),
        (slice(1, None, 2), {"type": "slice", "value": "1::2"}),
        (..., {"type": "ellipsis", "value": "Ellipsis"}),
        ([1, 2.5, None], {"type": "list", "value": [1, 2.5, None]}),
        (torch.Size([2, 3]), {"type": "Size", "value": [2, 3]}),
        ([], {"type": "list", "value": []}),
        ([[1], [2]], {"type": "list", "items": [{"type": "list", "value": [1]}, {"type": "list", "value": [2]}]}),
        ([X], {"type": "list", "items": [{"type": "tensor", "shape": [4, 6], "dtype": "float32"}]}),
        (list(range(100)), {"type": "list", "len": 100, "value": list(range(64))}),
        (np.zeros((2, 3), np.float32), {"type": "ndarray", "shape": [2, 3], "dtype": "float32"}),
        (Opaque(), {"type": "Opaque"}),
        (Colour.RED, {"type": "Colour"}),
        ({"a": 1}, {"type": "dict"}),
        ((i for i in [1]), {"type": "generator"}),
        (len, {"type": "builtin_function_or_method"}),
    ]
    for value, form in forms:
        assert describe(value, "n") == {"name": "n", **form}
        hash(key_of(value))
    others = [slice(1, None, 3), slice(1, 4, 2), slice(0, None, 2), [1, 2.5], [[1], [3]], np.zeros((2, 4), np.float32)]
    keys = {key_of(value) for value in (*(value for value, _ in forms), *others)}
    assert len(keys) == len(forms) + len(others)  # what is described in another way has another key


def test_true_one_and_one_point_zero_are_told_apart(recorder: Recorder) -> None:
    for value in (1, 1.0, True):
        torch.mul(X, value)
    assert [marker.args[1]["type"] for marker in recorder.markers] == ["int", "float", "bool"]


def test_autocast_s_dtype_is_given_where_it_is_on(recorder: Recorder) -> None:
    F.linear(X, X)
    with torch.autocast("cpu", torch.bfloat16):
        F.linear(X, X)
        with torch.autocast("cpu", enabled=False):
            F.linear(X, X)
    F.linear(X, X)
    assert [marker.autocast for marker in recorder.markers] == [None, "bfloat16", None, None]


KINDS = [  # a tensor of each kind, and what its marker says of it
    ("0-d", lambda: torch.tensor(1.0), tensor("input")),
    ("empty", lambda: torch.empty(0, 3), tensor("input", 0, 3)),
    ("bool", lambda: torch.tensor([True]), tensor("input", 1, dtype="bool")),
    ("complex", lambda: torch.zeros(2, dtype=torch.complex64), tensor("input", 2, dtype="complex64")),
    ("float8", lambda: torch.zeros(2).to(torch.float8_e4m3fn), tensor("input", 2, dtype="float8_e4m3fn")),
    ("meta", lambda: torch.empty(2, 3, device="meta"), tensor("input", 2, 3, device="meta")),
    ("parameter", lambda: nn.Parameter(torch.zeros(2)), tensor("input", 2)),
    ("coo", lambda: torch.eye(3).to_sparse(), tensor("input", 3, 3, layout="sparse_coo")),
    (
        "quantised",
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
        tensor("input", 2, dtype="quint8"),
    ),
]


@pytest.mark.filterwarnings("ignore")  # quantised and sparse tensors warn of their own future
@pytest.mark.parametrize(("make", "form"), [k[1:] for k in KINDS], ids=[k[0] for k in KINDS])
def test_each_kind_of_tensor_is_described(recorder: Recorder, make: Any, form: dict[str, Any]) -> None:
    value = make()
    recorder.clear()
    torch.clone(value)
    assert only(recorder).args == [form]
    assert session.current().mode.failures == []  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore")  # sparse tensors warn of their own future
def test_a_sparse_tensor_and_a_broadcast_one_are_told_apart(recorder: Recorder) -> None:
    zero = torch.zeros(())
    for _ in range(2):
        torch.clone(zero.expand(3, 3))
        torch.clone(torch.eye(3).to_sparse())
        torch.clone(torch.eye(3).to_mkldnn())
    clones = [marker.args[0] for marker in recorder.markers if marker.op == "clone"]
    coo, mkldnn = tensor("input", 3, 3, layout="sparse_coo"), tensor("input", 3, 3, layout="_mkldnn")
    assert clones == [tensor("input", 3, 3, stride=[0, 0]), coo, mkldnn] * 2


@pytest.mark.filterwarnings("ignore")  # "the PyTorch API of nested tensors is in prototype stage"
def test_nested_tensors_are_described(recorder: Recorder) -> None:
    parts = [torch.randn(2, 4), torch.randn(3, 4)]
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor(parts, layout=layout)
        recorder.clear()
        torch.clone(nested)
        assert recorder.markers[0].args[0]["shape"] == ([2, -1, -1] if layout == torch.strided else [2, -1, 4])
    assert session.current().mode.failures == []  # type: ignore[union-attr]


def test_fake_tensors_get_no_marker(recorder: Recorder) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2, 3))
        recorder.clear()
        assert F.linear(fake, fake).shape == (2, 2)
        torch.cat([fake, fake])
    assert recorder.lines == []


class Scaled(torch.Tensor):
    """A subclass as libraries write them: a table of handled functions, made at import."""

    handled: ClassVar[dict[Any, str]] = {
        torch.relu: "relu",
        F.relu: "F.relu",
        torch.Tensor.add: "add",
        F.linear: "linear",
    }
    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in cls.handled:
            cls.seen.append(cls.handled[func])
        if func is torch.Tensor.mul or func is torch.tanh:
            cls.seen.append("is")
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses_get_the_functions_that_they_know(recorder: Recorder) -> None:
    x = torch.ones(2, 2).as_subclass(Scaled)
    Scaled.seen.clear()
    recorder.clear()
    results = [torch.relu(x), F.relu(x), x + 1, F.linear(x, x), x * 2, torch.tanh(x)]
    assert Scaled.seen == ["relu", "F.relu", "add", "linear", "is", "is"]
    assert all(type(result) is Scaled for result in results)
    assert recorder.ops[:2] == ["torch.relu", "torch.nn.functional.relu"]
    assert recorder.markers[0].args == [tensor("input", 2, 2, **{"class": "Scaled"})]


def test_a_subclass_that_cannot_be_described_still_works(recorder: Recorder) -> None:
    class Rude(torch.Tensor):
        @property
        def dtype(self) -> Any:  # type: ignore[override]
            raise ZeroDivisionError

    x = torch.ones(2).as_subclass(Rude)
    recorder.clear()
    assert torch.relu(x).tolist() == [1, 1]
    assert recorder.markers[0] == Marker("torch", "relu")
    assert "ZeroDivisionError" in session.current().mode.failures[0]  # type: ignore[union-attr]


def test_errors_pass_through_and_ranges_are_closed(recorder: Recorder) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            torch.mm(X, X)
        with pytest.raises(TypeError):
            torch.relu("not a tensor")
        with pytest.raises(TypeError, match="unsupported operand"):
            X + "a"
        with pytest.raises(IndexError):
            X[99]
        assert (X == "a") is False
        assert recorder.depth == 0


def test_an_interrupt_closes_the_range(recorder: Recorder) -> None:
    class Stops(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            raise KeyboardInterrupt

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    with pytest.raises(KeyboardInterrupt):
        Stops.apply(X)
    net = nn.Sequential(nn.Linear(6, 2))
    with pytest.raises(RuntimeError):
        net(X.T)
    assert recorder.depth == 0
    recorder.clear()
    net(X)
    assert recorder.layers == ["Sequential", "0"]


def test_long_argument_lists_are_cut_and_the_text_stays_below_nsys_s_limit(recorder: Recorder) -> None:
    parts = [torch.ones(1, 2, 3, 4, 5) for _ in range(2000)]
    recorder.clear()
    torch.cat(parts)
    (text,) = recorder.texts
    assert len(text) <= MAX_TEXT
    marker = parse_marker(text)
    assert marker is not None
    assert (marker.args[0]["len"], len(marker.args[0]["items"])) == (2000, 64)


def test_no_data_is_read_for_a_description(recorder: Recorder) -> None:
    """A tensor on `meta` has no data: whatever looked at it would raise."""
    x = torch.empty(3, device="meta")
    torch.where(x > 0, x, torch.empty((), device="meta"))
    assert session.current().mode.failures == []  # type: ignore[union-attr]


def test_batch_norm_runs_no_item(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> None:
    norm = nn.BatchNorm1d(6)
    seen: list[Any] = []
    real = MarkerMode.__torch_function__

    def spy(self: MarkerMode, func: Any, *rest: Any) -> Any:
        seen.append(func)
        return real(self, func, *rest)

    monkeypatch.setattr(MarkerMode, "__torch_function__", spy)
    norm(X)
    assert torch.Tensor.add_ in seen and torch.Tensor.item not in seen  # num_batches_tracked


def test_threads_are_marked_and_their_layers_do_not_mix() -> None:
    recorder = record()
    nets = [nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(4)]
    wrong: list[Exception] = []

    def work(net: Any) -> None:
        try:
            for _ in range(50):
                net(X)
        except Exception as error:  # noqa: BLE001  (told by the main thread)
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(net,)) for net in nets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sorted(set(recorder.layers)) == ["0", "1", "Sequential"]
    assert recorder.layers.count("0") == 200
    assert recorder.ops.count("torch.nn.functional.linear") == 200


@pytest.mark.filterwarnings("ignore:.*autocast:FutureWarning")  # checkpoint's own, in 2.4
def test_recomputation_in_backward_is_marked(recorder: Recorder) -> None:
    from torch.utils.checkpoint import checkpoint

    net = nn.Linear(6, 6)
    x = X.clone().requires_grad_()
    for reentrant in (False, True):
        y = checkpoint(net, x, use_reentrant=reentrant)
        recorder.clear()
        y.sum().backward()
        assert recorder.ops.count("torch.nn.functional.linear") == 1


def test_autograd_grad_and_custom_functions_are_marked(recorder: Recorder) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return torch.mul(grad, 2)

    x = X.clone().requires_grad_()
    y = Double.apply(x).sum()
    recorder.clear()
    (grad,) = torch.autograd.grad(y, x)
    assert "torch.mul" in recorder.ops
    assert torch.equal(grad, torch.full_like(X, 2))


def test_a_user_s_mode_keeps_working_above_and_below() -> None:
    class Count(torch.overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls += 1
            return func(*args, **kwargs or {})

    outer, inner = Count(), Count()
    with outer:
        recorder = record()
        with inner:
            torch.relu(X)
            F.relu(X)
        torch.relu(X)
    assert (outer.calls, inner.calls) == (3, 2)
    assert recorder.ops == ["torch.relu", "torch.nn.functional.relu", "torch.relu"]
    torch.relu(X)
    assert (outer.calls, len(recorder.ops)) == (3, 4)


def test_default_device_works(recorder: Recorder) -> None:
    with torch.device("meta"):
        assert torch.empty(2).device.type == "meta"
        assert nn.Linear(2, 2).weight.device.type == "meta"
    assert torch.empty(2).device.type == "cpu"


def test_fast_paths_are_taken_as_without_pyprof() -> None:
    """nn.TransformerEncoderLayer leaves its fused path where it thinks that somebody overrides functions."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    with torch.inference_mode():
        plain = layer(x), attention(x, x, x)[0]
        recorder = record()
        marked = layer(x), attention(x, x, x)[0]
    assert recorder.ops == ["torch._transformer_encoder_layer_fwd", "torch._native_multi_head_attention"]
    assert all(torch.equal(a, b) for a, b in zip(plain, marked, strict=True))


def test_what_python_keeps_for_itself_is_no_function_of_pytorch() -> None:
    """Modules have a __getattr__ of their own, and tensors operators, which are functions that people call."""
    from pyprof.capture.targets import _public_functions

    names = {(mod, name) for mod, name, _ in _public_functions()}
    assert [name for mod, name in names if name.startswith("__") and mod != "Tensor"] == []
    assert ("Tensor", "__add__") in names and ("torch.nn.functional", "linear") in names


def test_a_function_without_a_module_is_pytorch_s() -> None:
    from pyprof.capture.targets import _own_name

    bare = SimpleNamespace(__name__="mine", __module__=None)
    reduce = SimpleNamespace(__name__="all_reduce", __module__="torch.distributed.distributed_c10d")
    assert (_own_name(bare), _own_name(reduce)) == (("torch", "mine"), ("torch.distributed", "all_reduce"))
