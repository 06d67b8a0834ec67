"""What the models say of results, against torch: every result's type and size, from the arguments alone."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import pyprof.prof.ops.families  # noqa: E402, F401  (fills the registry)
from pyprof.prof.ops.evaluation import evaluate, find  # noqa: E402
from pyprof.prof.ops.model import Tensor, total  # noqa: E402
from pyprof.prof.ops.resize import window_taps  # noqa: E402

pytestmark = pytest.mark.torch

TYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
SHAPES = [((3, 4), (4,)), ((3, 4), ()), ((), (3, 4)), ((3, 1), (1, 4)), ((), ())]
# written besides: running statistics; saved on the CPU in the data's type; auxiliary results that are left out
APART = {"native_batch_norm", "native_layer_norm", "log_sigmoid_forward", "_embedding_bag"}


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Tensor(tuple(value.shape), str(value.dtype).removeprefix("torch."), tuple(value.stride()))
    if isinstance(value, (list, tuple)):
        return tuple(described(item) for item in value)
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value


class Compared(TorchDispatchMode):
    """Compares the bytes that each op's model writes with the results' own."""

    def __init__(self) -> None:
        super().__init__()
        self.differences: list[str] = []
        self.compared = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema, named = func._schema, kwargs or {}
        pairs = [(i, a) for i, a in enumerate(schema.arguments) if not a.is_out]
        values = [args[i] if i < len(args) else named.get(a.name, a.default_value) for i, a in pairs]
        arguments = tuple(described(value) for value in values)
        result = func(*args, **named)
        found = [t for t in (result if isinstance(result, (list, tuple)) else [result]) if isinstance(t, torch.Tensor)]
        model = find(schema.name)
        if model and model not in APART and not schema.name.endswith(("view", "expand", "detach")):
            work = total(evaluate(model, arguments))
            wanted = sum(t.numel() * t.element_size() for t in found)
            self.compared += 1
            if work.write not in (wanted, 0):  # 0: views and allocations
                self.differences.append(f"{func}{arguments}: {work.write}, torch {wanted}")
        return result


def make(dtype: Any, *shape: int) -> Any:
    real = dtype.is_floating_point or dtype.is_complex
    return (torch.randn(shape) if real else torch.randint(0, 2, shape)).to(dtype)


def binary() -> Iterator[Callable[[], Any]]:
    ops = (torch.add, torch.mul, torch.div, torch.eq, torch.maximum, torch.pow, torch.atan2, torch.logical_or)
    for op, a, b, (left, right) in itertools.product(ops, TYPES, TYPES, SHAPES):
        yield lambda op=op, a=a, b=b, left=left, right=right: op(make(a, *left), make(b, *right))
    for op, a, number in itertools.product(ops, TYPES, (True, 2, 2.5)):
        yield lambda op=op, a=a, number=number: op(make(a, 3, 4), number)
    for op, a, b in itertools.product((torch.add, torch.mul, torch.div), TYPES, COMPLEX):
        yield lambda op=op, a=a, b=b: op(make(a, 3, 4), make(b, 4))


def unary() -> Iterator[Callable[[], Any]]:
    names = "abs neg sign ceil exp log rsqrt sigmoid erf square isnan logical_not angle signbit round log1p frac"
    for name, a in itertools.product(names.split(), TYPES):
        yield lambda name=name, a=a: getattr(torch, name)(make(a, 3, 4))


def reductions() -> Iterator[Callable[[], Any]]:
    names = "sum mean prod any all amax argmax max var std cumsum cumprod sort aminmax var_mean logsumexp cummax"
    for name, a in itertools.product(names.split(), TYPES):
        op = getattr(torch, name)
        yield lambda op=op, a=a: op(make(a, 3, 4))
        yield lambda op=op, a=a: op(make(a, 3, 4), dim=1)
        yield lambda op=op, a=a: op(make(a, 3, 4), dim=(0, 1), keepdim=True)
        yield lambda op=op, a=a: op(make(a, 3, 4), 1, dtype=torch.float64)


def layers() -> Iterator[Callable[[], Any]]:
    def wants(*shape: int) -> Any:
        return torch.randn(shape, requires_grad=True)

    for n, kind in itertools.product((1, 2, 3), ("max_pool", "avg_pool")):
        for options in ((3, 2, 1), (2,)):
            yield (
                lambda n=n, kind=kind, options=options: (
                    getattr(F, f"{kind}{n}d")(wants(2, 3, *[9] * n), *options).sum().backward()
                )
            )
    for mode in ("nearest", "bilinear", "bicubic"):
        yield lambda mode=mode: F.interpolate(wants(2, 3, 8, 8), scale_factor=1.7, mode=mode).sum().backward()
    for mode in ("reflect", "replicate", "constant"):
        yield lambda mode=mode: F.pad(wants(2, 3, 8, 8), (1, 2, 0, 3), mode=mode).sum().backward()
    for act in (F.relu, F.gelu, F.silu, F.elu, F.mish, F.hardswish, F.glu, F.softplus, F.leaky_relu, F.hardtanh):
        yield lambda act=act: act(wants(4, 6)).sum().backward()
    for loss, reduction in itertools.product(
        (F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss), ("none", "mean", "sum")
    ):
        yield lambda loss=loss, r=reduction: loss(wants(4, 6), torch.rand(4, 6), reduction=r).sum().backward()
    for r in ("none", "mean", "sum"):
        yield lambda r=r: F.cross_entropy(wants(4, 6), torch.randint(6, (4,)), reduction=r).sum().backward()
    yield lambda: F.embedding(torch.randint(9, (3, 4)), wants(10, 6)).sum().backward()
    yield lambda: F.softmax(wants(4, 6), 0).sum().backward()
    yield lambda: F.group_norm(wants(4, 6, 5), 3, wants(6), wants(6)).sum().backward()
    yield lambda: wants(4, 6)[torch.tensor([0, 2])].sum().backward()
    yield lambda: wants(4, 6).gather(1, torch.zeros(4, 2, dtype=torch.long)).sum().backward()
    yield lambda: wants(4, 6).repeat(2, 3).sum().backward()
    yield lambda: (torch.rand(3), torch.randint(5, (3,)), torch.randperm(7), torch.arange(1, 7, 2), torch.eye(4))
    yield lambda: (torch.full((3,), 2), torch.full((3,), 2.0), torch.linspace(0, 1, 5), torch.tril_indices(3, 4))


def algebra() -> Iterator[Callable[[], Any]]:
    """Values without vectors, and batches that broadcast."""
    for a in (torch.float32, torch.complex64):
        for name in ("eigvals", "eigvalsh", "eig", "eigh", "svdvals", "svd", "lu", "qr"):
            yield lambda a=a, name=name: getattr(torch.linalg, name)(torch.randn(2, 3, 3, dtype=a))
        yield lambda a=a: torch.linalg.svd(torch.randn(4, 3, dtype=a), full_matrices=False)
        matrix = torch.eye(3, dtype=a).repeat(2, 1, 1)
        pivots = torch.tensor([[1, 2, 3]] * 2, dtype=torch.int32)
        for b in (torch.ones(3, 4, dtype=a), torch.ones(2, 3, 4, dtype=a)):
            yield lambda m=matrix, b=b: torch.linalg.solve_triangular(m, b, upper=True)
            yield lambda m=matrix, p=pivots, b=b: torch.linalg.ldl_solve(m, p, b)
            yield lambda m=matrix, b=b: torch.cholesky_solve(b, m)
        for order, dim in ((2, None), (1, 1), (float("inf"), (0, 1))):
            yield lambda a=a, order=order, dim=dim: torch.linalg.vector_norm(torch.ones(3, 4, dtype=a), order, dim)
        yield lambda a=a: torch.dist(torch.ones(3, dtype=a), torch.zeros(3, dtype=a))
        yield lambda a=a: torch.block_diag(torch.ones(2, 2), torch.ones(1, 3, dtype=a))


def options() -> Iterator[Callable[[], Any]]:
    """Results whose type or size an argument gives."""
    x, ends = torch.randn(3, 4), torch.arange(5.0)
    for a in (torch.float64, torch.bfloat16):
        yield lambda a=a: (torch.eye(4, dtype=a), torch.eye(4, 2, dtype=a), torch.full((3,), 1, dtype=a))
        yield lambda a=a: (torch.linspace(0, 1, 5, dtype=a), torch.logspace(0, 1, 5, 2.0, dtype=a))
        yield lambda a=a: (torch.randint(9, (3,), dtype=a), torch.randint(1, 9, (3,), dtype=a))
        yield lambda a=a: (torch.randint_like(x, 9, dtype=a), torch.randint_like(x, 1, 9, dtype=a))
        yield lambda a=a: torch.normal(0.0, 1.0, (3,), dtype=a)
        for change in ("addcmul_", "addcdiv_"):
            yield lambda a=a, change=change: getattr(x.to(torch.bfloat16), change)(x.to(a), x.to(a))
    for whether in (False, True):
        yield lambda whether=whether: (torch.bucketize(x, ends, out_int32=whether),)
        yield lambda whether=whether: (torch.searchsorted(ends, x, out_int32=whether),)
    yield lambda: (x.clone().logical_not_(), torch.isclose(x, x), x.masked_scatter(x > 0, x))
    yield lambda: torch.ones(4).masked_scatter(x > 0, x)
    yield lambda: torch.arange(4).repeat_interleave(torch.tensor([1, 2, 0, 3]), output_size=6)
    for reduction in ("none", "mean"):
        yield lambda r=reduction: F.multi_margin_loss(x, torch.tensor([0, 1, 2]), reduction=r)
        yield lambda r=reduction: F.multilabel_margin_loss(x, torch.zeros(3, 4, dtype=torch.int64), reduction=r)
    no_rows = torch.ones(0, 4, requires_grad=True)
    yield lambda: F.layer_norm(no_rows, (4,), torch.ones(4, requires_grad=True)).sum().backward()


def rarer() -> Iterator[Callable[[], Any]]:
    """Segments, histograms, antialiasing, indexing under a mask, dropout of channels, complex functions."""

    def wants(*shape: int) -> Any:
        return torch.randn(shape, requires_grad=True)

    x, mask, where = torch.randn(6, 4), torch.ones(3, 1, dtype=torch.bool), torch.tensor([0, 2, 5])
    for reduce in ("sum", "mean", "max", "min", "prod"):
        yield lambda r=reduce: torch.segment_reduce(wants(6, 4), r, lengths=torch.tensor([2, 4])).sum().backward()
        yield lambda r=reduce: torch.segment_reduce(wants(6, 4), r, offsets=torch.tensor([0, 2, 6])).sum().backward()
    for mode, size in itertools.product(("bilinear", "bicubic"), ((3, 5), (16, 9))):
        yield (
            lambda mode=mode, size=size: (
                F.interpolate(wants(2, 3, 8, 8), size=size, mode=mode, antialias=True).sum().backward()
            )
        )
    yield lambda: (torch.histogram(x, 5), torch.histogram(x, torch.arange(4.0), weight=x), torch.histc(x, 7))
    yield lambda: (torch.histogramdd(x, [2, 3, 4, 5]), torch.histogramdd(x, [torch.arange(3.0)] * 4))
    if hasattr(torch.ops.aten, "_unsafe_masked_index"):  # torch 2.4
        yield lambda: torch.ops.aten._unsafe_masked_index(x, mask, [where], 0.0)
        yield lambda: torch.ops.aten._unsafe_masked_index_put_accumulate(x, mask, [where], torch.ones(3, 4))
    yield lambda: F.group_norm(wants(4, 6, 5).bfloat16(), 3).sum().backward()
    yield lambda: wants(5, 9).unfold(1, 3, 2).sum().backward()
    yield lambda: (torch.rand(3, dtype=torch.float64, generator=torch.Generator()), torch.hann_window(9))
    yield lambda: (torch.hamming_window(9, dtype=torch.float64), torch.kaiser_window(9), torch.blackman_window(9))
    if hasattr(torch, "_foreach_mm"):  # torch 2.13
        yield lambda: (torch._foreach_clone([x, x]), torch._foreach_mm([x], [x.T]), torch._foreach_pow(2.0, [x, x]))
    for name in "asin acos atan asinh acosh atanh log1p expm1 sinc var std".split():
        yield lambda name=name: getattr(torch, name)(make(COMPLEX[0], 3, 4))
    yield lambda: torch.logcumsumexp(make(COMPLEX[0], 3, 4), 1)
    for dtype in (torch.float32, torch.bfloat16):
        yield lambda dtype=dtype: F.dropout(make(dtype, 6, 4)).sum()


def refuses(call: Callable[[], Any]) -> bool:
    """Does torch not do this for this type?"""
    try:
        call()
    except (RuntimeError, TypeError, IndexError):
        return True
    return False


@pytest.mark.parametrize("calls", [binary, unary, reductions, layers, algebra, options, rarer])
@pytest.mark.filterwarnings("ignore")
def test_results_have_the_types_and_sizes_that_torch_gives_them(calls: Any) -> None:
    with Compared() as mode:
        refused = sum(refuses(call) for call in calls())
    assert mode.differences == []
    assert mode.compared > 25
    assert calls not in (layers, algebra, options, rarer) or refused == 0


@pytest.mark.parametrize(("mode", "width"), [("bilinear", 2), ("bicubic", 4)])
@pytest.mark.parametrize(("size", "count"), [(8, 4), (9, 4), (100, 7), (10, 9)])
def test_the_taps_of_antialiasing_are_the_weights_that_torch_uses(mode: str, width: int, size: int, count: int) -> None:
    rows = torch.eye(size, dtype=torch.float64).reshape(size, 1, 1, size)
    weights = F.interpolate(rows, size=(1, count), mode=mode, antialias=True)
    assert window_taps(size, count, width, False, None) == int((weights != 0).sum())
