"""pyprof.count counts the gradients that a backward pass computes, not those that its inputs might have had.

Each amount is worked out by hand, for each way in which PyTorch's programs ask for gradients.
"""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import pyprof  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's, about its own prototypes
U = 2 * 8 * 64 * 64  # a product of [8, 64] and [64, 64]: 65,536


def X(*shape: int) -> Any:
    return torch.randn(*(shape or (8, 64)), requires_grad=True)


def net(bias: bool = True) -> Any:
    return nn.Linear(64, 64, bias=bias)


def flops(call: Callable[[], Any]) -> tuple[int, int]:
    """Of the forward and the backward pass, each with the reductions and pointwise ops that the caller adds up."""
    work = pyprof.count(call)
    assert not work.unknown
    return work.forward.flop, work.backward.flop


def test_the_gradient_of_an_input() -> None:
    layer, x = net(), X()
    assert flops(lambda: torch.autograd.grad(layer(x), x, torch.ones(8, 64))) == (U, U) == (65_536, 65_536)
    assert pyprof.count(lambda: torch.autograd.grad(layer(x), x, torch.ones(8, 64))).flops == 131_072


def test_the_gradient_of_a_weight() -> None:
    layer, x = net(), X()
    assert flops(lambda: torch.autograd.grad(layer(x), layer.weight, torch.ones(8, 64))) == (U, U)


def test_the_gradient_of_a_bias() -> None:
    layer, x = net(), X()
    assert flops(lambda: torch.autograd.grad(layer(x), layer.bias, torch.ones(8, 64))) == (U, 7 * 64)


@pytest.mark.parametrize(("wanted", "flop"), [("x", 2 * U), ("inner", U), ("outer", U), ("both", 3 * U)])
def test_backward_to_some_inputs(wanted: str, flop: int) -> None:
    inner, outer, x = net(bias=False), net(bias=False), X()
    # the outer weight needs one product; what lies below needs the gradient of the outer layer's input first
    inputs = {"x": [x], "inner": [inner.weight], "outer": [outer.weight], "both": [x, outer.weight]}[wanted]
    extra = U if wanted == "inner" else 0
    assert flops(lambda: outer(inner(x)).backward(torch.ones(8, 64), inputs=inputs)) == (2 * U, flop + extra)


def test_the_gradient_of_a_hidden_tensor() -> None:
    inner, outer, x = net(bias=False), net(bias=False), X()

    def call() -> None:
        hidden = inner(x)
        torch.autograd.grad(outer(hidden), hidden, torch.ones(8, 64))

    assert flops(call) == (2 * U, U)


def test_the_gradient_in_three_dimensions() -> None:
    """linear runs as views and addmm here, several nodes: 2*3*4*5*7 = 840."""
    a, layer = X(3, 4, 5), nn.Linear(5, 7)

    def call() -> None:
        b = layer(a)
        torch.autograd.grad(b, a, torch.ones_like(b), create_graph=True)

    assert flops(call) == (840, 840)


@pytest.mark.parametrize("wanted", ["q", "k", "v"])
def test_the_gradient_of_one_operand_of_a_batched_product(wanted: str) -> None:
    q, k, v = X(2, 3, 4, 8), X(2, 3, 5, 8), X(2, 3, 5, 6)

    def call() -> None:
        out = torch.matmul(torch.matmul(q, k.transpose(-1, -2)), v)
        torch.autograd.grad(out, {"q": q, "k": k, "v": v}[wanted], torch.ones(2, 3, 4, 6))

    scores, values = 2 * 6 * 4 * 5 * 8, 2 * 6 * 4 * 5 * 6  # 1920 and 1440
    assert flops(call) == (scores + values, values + (0 if wanted == "v" else scores))


@pytest.mark.parametrize(("wanted", "flop"), [("image", 1), ("weight", 1), ("both", 2)])
def test_the_gradients_of_a_convolution(wanted: str, flop: int) -> None:
    image, weight = X(2, 4, 9, 9), X(8, 4, 3, 3)
    inputs = {"image": image, "weight": weight, "both": (image, weight)}[wanted]
    product = 2 * 2 * 8 * 49 * 36  # 56,448
    found = flops(lambda: torch.autograd.grad(F.conv2d(image, weight), inputs, torch.ones(2, 8, 7, 7)))
    assert found == (product, flop * product)


def test_a_mask_of_one_factor() -> None:
    a, b = X(6, 32), X(6, 32)
    found = flops(lambda: torch.autograd.grad(a * b, a, torch.ones(6, 32)))
    assert found == (192, 192)  # grad * b; for both it would be 384


def test_saliency_of_a_deep_net() -> None:
    """Images' gradients need one product for each layer: no weight's gradient, and relu's masks."""
    layers = nn.Sequential(net(), nn.ReLU(), net(), nn.ReLU(), net())
    x = X()
    found = flops(lambda: torch.autograd.grad(layers(x)[:, 3].sum(), x))
    assert found == (3 * U + 7, 3 * U)  # a sum of 8; relu's masks only select


def test_a_force_field_and_its_training_step() -> None:
    """f = -dE/dx with create_graph, and the gradient of a loss of f with respect to the weights."""
    inner, outer, x = nn.Linear(4, 16, bias=False), nn.Linear(16, 1, bias=False), X(8, 4)

    def call() -> None:
        energy = outer(torch.tanh(inner(x))).sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        force.backward(torch.ones(8, 4))

    up, down = 2 * 8 * 4 * 16, 2 * 8 * 16  # 1024, 256
    with pyprof.count() as work:
        call()
    assert work.forward.flop == up + down + 128 + 7  # tanh of 8*16, the energy's sum
    products = sum(row.flops for row in work.rows if row.direction == "backward" and row.model in PRODUCTS)
    # The force: the gradients of both layers' inputs. Its backward: of the product dz @ W, the gradients of dz and W;
    # of g @ V, which dz was made of, V's; and through h = tanh(x @ W), which dz was made of, too, those of W and x.
    assert products == (up + down) + (2 * up + down) + 2 * up
    assert not work.unknown
    assert {row.op for row in work.rows if row.direction == "backward"} == {"linear", "tanh", "sum"}


PRODUCTS = ("linear.backward", "matmul.backward", "mm", "mm.backward", "bmm", "addmm", "mv")


def test_a_second_derivative() -> None:
    x = X(6)

    def call() -> None:
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        torch.autograd.grad(first.sum(), x)

    work = pyprof.count(call)
    assert work.forward.flop == 2 * 6 + 5 + 5  # x*x*x, and two sums of 6
    assert not work.unknown


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_recompute_and_compute_all_gradients(reentrant: bool) -> None:
    layer, x = nn.Sequential(net(bias=False), nn.Tanh(), net(bias=False), nn.Tanh()), X()
    work = pyprof.count(lambda: checkpoint(layer, x, use_reentrant=reentrant).backward(torch.ones(8, 64)))
    assert work.ops["linear"].forward.flop == 2 * U
    products = sum(row.flops for row in work.rows if row.direction == "backward" and row.op == "linear")
    assert products == 2 * U + 4 * U  # both again, then two gradients of each
    assert not work.unknown


def test_a_function_of_the_program() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, w = ctx.saved_tensors
            dx = grad @ w.t() if ctx.needs_input_grad[0] else None
            return dx, x.t() @ grad if ctx.needs_input_grad[1] else None

    x, w = X(), X(64, 64)
    assert flops(lambda: Twice.apply(x, w).backward(torch.ones(8, 64))) == (U, 2 * U)
    assert flops(lambda: Twice.apply(x, w.detach()).backward(torch.ones(8, 64))) == (U, U)


@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_func_grad_computes_what_it_is_asked_for(argnums: Any) -> None:
    x, w = torch.randn(8, 64), torch.randn(64, 64)
    work = pyprof.count(lambda: torch.func.grad(lambda x, w: (x @ w).sum(), argnums)(x, w))
    assert work.forward.flop == U + 511
    assert work.backward.flop == (2 * U if argnums == (0, 1) else U)
    assert not work.unknown


def test_a_hessian_of_a_quadratic_form() -> None:
    """jacfwd of jacrev: 64 tangents of the gradient A x + A' x."""
    a, x = torch.randn(64, 64), torch.randn(64)
    work = pyprof.count(lambda: torch.func.hessian(lambda x: x @ (a @ x))(x))
    assert work.flops > 2 * 64 * 2 * 64 * 64  # two products with A for each of 64 directions
    assert not work.unknown


def test_a_retained_graph_is_counted_in_each_pass_for_what_it_computes() -> None:
    layer, x = net(bias=False), X()
    y = layer(x)
    with pyprof.count() as work:
        y = layer(x)
        torch.autograd.grad(y, x, torch.ones(8, 64), retain_graph=True)
        torch.autograd.grad(y, layer.weight, torch.ones(8, 64), retain_graph=True)
        torch.autograd.grad(y, [x, layer.weight], torch.ones(8, 64))
    assert work.backward.flop == U + U + 2 * U


def test_results_are_the_same_to_the_bit() -> None:
    layers = nn.Sequential(net(), nn.GELU(), net())

    def call() -> Any:
        x = torch.linspace(-1, 1, 512).view(8, 64).requires_grad_()
        (force,) = torch.autograd.grad(layers(x).sum(), x, create_graph=True)
        return force, *torch.autograd.grad(force.pow(2).sum(), list(layers.parameters()), allow_unused=True)

    plain, counted = call(), pyprof.count(call).result
    assert all(a is b or torch.equal(a, b) for a, b in zip(plain, counted, strict=True))


# memory


def test_a_long_count_keeps_nothing_of_finished_steps() -> None:
    layers = nn.Sequential(net(), nn.ReLU(), net())
    graphs: list[Any] = []
    with pyprof.count() as work:
        for _ in range(20):
            y = layers(X())
            graphs.append(weakref.ref(y))
            y.sum().backward()
            del y
            objects = len(gc.get_objects())
            if _ == 5:
                before = objects
    assert objects - before < 200
    assert not any(ref() is not None for ref in graphs)
    assert work.ops["linear"].calls == 40


def test_a_deep_graph_is_deleted_without_recursion() -> None:
    with pyprof.count() as work:
        x = X(4)
        y = x
        for _ in range(20_000):
            y = y * 1.5
        del y
    assert work.ops["mul"].calls == 20_000


def test_a_graph_without_us_has_no_hooks_of_ours_afterwards() -> None:
    layer, x = net(), X()
    calls = []
    with pyprof.count():
        y = layer(x)
    y.grad_fn.register_hook(lambda *_: calls.append("the program's"))
    with pyprof.count() as later:
        pass
    y.sum().backward()
    assert calls == ["the program's"]
    assert later.rows == []
