"""Every op of PyTorch's own test table, with and without pyprof: same results, same gradients, one good marker."""

import warnings
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's op table needs it")

import pyprof  # noqa: E402
from pyprof.capture.targets import NOT_MARKED, Targets, _public_functions  # noqa: E402
from pyprof.marker import MAX_TEXT, format_marker, parse_marker  # noqa: E402

from .conftest import Recorder, record  # noqa: E402

# PyTorch's own table warns about its own deprecated calls; what they return is what is compared.
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

NO_MARKER = {
    "H": "a property",
    "T": "a property",
    "mH": "a property",
    "mT": "a property",
    "real": "a property",
    "imag": "a property",
}
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)


def cases() -> Iterator[tuple[str, Any, Any, Callable[..., Any], bool]]:
    """(name, OpInfo, dtype, function, in place) for each op of the table and each way to call it."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        dtype = next((dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")), None)
        if dtype is None:
            continue
        for kind, variant in (("", op.op), (".method", op.method_variant), (".inplace", op.inplace_variant)):
            if variant is not None:
                yield f"{op.formatted_name}{kind}", op, dtype, variant, kind == ".inplace"


def outcome(op: Any, dtype: Any, call: Callable[..., Any], inplace: bool) -> tuple[Any, ...]:
    """The result of the first sample, and the gradients of its float results' sum; or the error."""
    torch.manual_seed(0)
    differentiable = op.supports_autograd and dtype.is_floating_point and not inplace
    sample = next(iter(op.sample_inputs("cpu", dtype, requires_grad=differentiable)))
    torch.manual_seed(0)
    try:
        result = call(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:  # noqa: BLE001  (whatever it is, it must be the same with pyprof)
        return type(error), str(error)
    gradients: list[Any] = []
    total = [r.sum() for r in tensors(result) if r.requires_grad and r.dtype.is_floating_point]
    if differentiable and total:
        leaves = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad and t.is_leaf]
        gradients = list(torch.autograd.grad(sum(total), leaves, allow_unused=True))
    return result, gradients


def tensors(value: Any) -> list[Any]:
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def same(a: Any, b: Any) -> bool:
    left, right = tensors(a), tensors(b)
    if len(left) != len(right):
        return False
    if not left:
        return repr(a) == repr(b)
    for x, y in zip(left, right, strict=True):
        if x.shape != y.shape or x.dtype != y.dtype or x.layout != y.layout or type(x) is not type(y):
            return False
        if x.layout == torch.strided and not equal(x, y):
            return False
    return True


def equal(x: Any, y: Any) -> bool:
    """Bit for bit, but for the sign of zero; a NaN equals itself."""
    if x.dtype == torch.complex32:  # has no comparison
        x, y = x.to(torch.complex64), y.to(torch.complex64)
    return torch.equal(x, y) or bool(((x == y) | ((x != x) & (y != y))).all())


UNINITIALISED = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize")


@pytest.mark.slow
def test_every_op_computes_the_same_and_has_one_good_marker() -> None:
    everything = list(cases())
    assert len(everything) > 1000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = [outcome(*case[1:]) for case in everything]
        recorder = record(layers=False)
        marked = [recorded(case, recorder) for case in everything]
        pyprof.deinit()
        assert recorder.depth == 0
        problems = [problem(*case) for case in zip(everything, plain, marked, strict=True)]
    assert [p for p in problems if p] == []


def recorded(case: tuple[Any, ...], recorder: Recorder) -> tuple[tuple[Any, ...], list[str]]:
    """The outcome under pyprof, and the texts of the one call."""
    _, op, dtype, call, inplace = case
    texts: list[str] = []

    def listened(*args: Any, **kwargs: Any) -> Any:
        recorder.clear()  # what made the sample
        try:
            return call(*args, **kwargs)
        finally:
            texts.extend(recorder.texts)

    found = outcome(op, dtype, listened, inplace)
    recorder.clear()
    return found, texts


def problem(case: tuple[Any, ...], expected: tuple[Any, ...], marked: tuple[tuple[Any, ...], list[str]]) -> str:
    name, _, _, call, _ = case
    found, texts = marked
    if isinstance(expected[0], type):
        return "" if found == expected else f"{name}: raised {found}, not {expected}"
    if not name.startswith(UNINITIALISED) and not same(found, expected):
        return f"{name}: another result"
    if not texts and name.split(".")[0] not in NO_MARKER and not isinstance(call, FunctionType):
        return f"{name}: no marker"
    for text in texts:
        marker = parse_marker(text)
        if marker is None or len(text) > MAX_TEXT or format_marker(marker) != text:
            return f"{name}: bad marker {text[:200]}"
    return ""


def test_each_public_function_has_the_name_that_users_write() -> None:
    targets = Targets()
    expected = {
        torch.relu: ("torch", "relu"),
        torch.nn.functional.relu: ("torch.nn.functional", "relu"),
        torch.nn.functional.linear: ("torch.nn.functional", "linear"),
        torch.nn.functional.conv2d: ("torch.nn.functional", "conv2d"),
        torch.nn.functional.scaled_dot_product_attention: ("torch.nn.functional", "scaled_dot_product_attention"),
        torch.Tensor.add_: ("Tensor", "add_"),
        torch.Tensor.__getitem__: ("Tensor", "__getitem__"),
        torch.einsum: ("torch", "einsum"),
        torch.mm: ("torch", "mm"),  # torch.spmm is the same C function
        torch.sspaddmm: ("torch", "sspaddmm"),
        torch.neg: ("torch", "neg"),
        torch.linalg.norm: ("torch.linalg", "norm"),
        torch.fft.fft: ("torch.fft", "fft"),
        torch.special.erf: ("torch.special", "erf"),
        torch._foreach_add: ("torch", "_foreach_add"),
        torch._scaled_mm: ("torch", "_scaled_mm"),
        torch.lstm: ("torch", "lstm"),
        torch.ops.aten.add.Tensor: ("torch.ops.aten", "add.Tensor"),
        torch.ops.aten.add: ("torch.ops.aten", "add"),
        torch.nn.init.normal_: ("torch.nn.init", "normal_"),
    }
    found = {}
    for func in expected:
        target = targets.add(func)
        assert target is not None
        found[func] = target.mod, target.op
    assert found == expected


def test_the_table_has_pytorch_s_overridable_functions() -> None:
    """Nothing that PyTorch lets a mode see is without a name of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names, looked at and not called
        public = {func for _, _, func in _public_functions()}
        overridable = torch.overrides.get_overridable_functions()
    for owner in (torch, torch.nn.functional, torch.linalg, torch.fft, torch.special):
        assert not {f for f in overridable[owner] if f not in public and not isinstance(f, type)}


def test_ignored_names_are_given_once_with_a_reason() -> None:
    names = [name for group in NOT_MARKED.values() for name in group.split()]
    assert len(names) == len(set(names))
    assert all(len(reason) > 10 for reason in NOT_MARKED)


def test_ignored_calls_push_nothing(recorder: Recorder) -> None:
    x = torch.ones(2, 3, requires_grad=True)
    recorder.clear()
    assert (x.shape, x.size(), x.dim(), x.dtype, x.is_contiguous(), len(x)) == (
        torch.Size([2, 3]),
        torch.Size([2, 3]),
        2,
        torch.float32,
        True,
        2,
    )
    repr(x)
    assert recorder.ops == []
