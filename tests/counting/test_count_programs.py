"""pyprof.count in programs that are more than calls of layers: transforms, compiled code, subclasses of Tensor, errors.

Each counts what the same work done by hand would: the amounts are in the comments.
"""

import re
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import pyprof  # noqa: E402
from pyprof.prof.ops.model import Work  # noqa: E402

func = torch.func
pytestmark = pytest.mark.filterwarnings("ignore")  # torch's, about its own prototypes


def N(*shape: int, **more: Any) -> Any:
    return torch.randn(*shape, **more)


def R(*shape: int) -> Any:
    return torch.randn(*shape, requires_grad=True)


# torch.func


@pytest.mark.parametrize(
    ("function", "places", "shapes", "work"),
    [
        (torch.mm, (0, 0), ((3, 4, 5), (3, 5, 6)), Work(720, 600, 288)),  # 3 * 2*4*5*6; (60 + 90) * 4; 72 * 4
        (torch.mm, (0, None), ((3, 4, 5), (5, 6)), Work(720, 360, 288)),  # the second once: (60 + 30) * 4
        (torch.matmul, (0, 0), ((3, 4, 5), (3, 5, 6)), Work(720, 600, 288)),
        (F.linear, (0, 0), ((3, 4, 5), (3, 6, 5)), Work(720, 600, 288)),
        (torch.tanh, (0,), ((3, 4),), Work(12, 48, 48)),
    ],
)
def test_vmap_counts_the_dimension_that_it_maps(function: Any, places: Any, shapes: Any, work: Work) -> None:
    inputs = [N(*shape) for shape in shapes]
    assert pyprof.count(func.vmap(function, in_dims=places), *inputs).forward == work


def test_gradients_of_each_sample() -> None:
    loss = func.grad(lambda w, x: (x @ w).sum())
    work = pyprof.count(func.vmap(loss, (None, 0)), N(5, 6), N(4, 5))
    assert work.ops["matmul"].forward.flop == 240  # 4 * 2*5*6
    assert work.ops["matmul"].backward.flop == 240  # 4 outer products of 5 by 6, of K = 1: 2 each
    assert not work.unknown


def test_forward_mode_counts_the_tangents() -> None:
    work = pyprof.count(lambda: func.jvp(torch.tanh, (N(4, 5),), (N(4, 5),)))
    assert work.forward.flop == 20 + 60  # 1 of each of 20 elements, and 3 of each tangent: t * (1 - y * y)
    assert not work.unknown


@pytest.mark.parametrize("way", ["jvp", "dual numbers"])
def test_the_tangent_of_a_product_is_a_product(way: str) -> None:
    x, t, w = N(10, 64), N(10, 64), N(32, 64)

    def dual() -> None:
        with torch.autograd.forward_ad.dual_level():
            torch.autograd.forward_ad.make_dual(x, t) @ w.T

    work = pyprof.count(dual if way == "dual numbers" else lambda: func.jvp(lambda x: x @ w.T, (x,), (t,)))
    assert work.flops == 2 * 40_960  # 2*10*64*32 for the value, and the same for the tangent; w's tangent is zero
    assert not work.unknown


def test_both_factors_of_a_product_have_tangents() -> None:
    x, w = N(10, 64), N(64, 32)
    work = pyprof.count(lambda: func.jvp(torch.mm, (x, w), (torch.ones_like(x), torch.ones_like(w))))
    assert work.flops == 3 * 40_960 + 320  # x @ w, dx @ w, x @ dw, and the sum of 10*32


@pytest.mark.parametrize(
    ("transform", "flop"),
    [
        (func.jacrev, 135_168),  # 2*32*64 for the value, and 32 products of W' with a vector, 2*64*32 each
        (func.jacfwd, 266_240),  # 4096 for the value, and 64 products of W with a vector
        (lambda f: func.vjp(f, N(64))[1], 4096),  # the value; nobody asks for the gradient
    ],
)
def test_jacobians(transform: Any, flop: int) -> None:
    w, x = N(32, 64), N(64)
    function = transform(lambda x: w @ x) if transform in (func.jacrev, func.jacfwd) else None
    work = pyprof.count(lambda: function(x) if function else transform(lambda x: w @ x))
    assert work.flops == flop
    assert not work.unknown


@pytest.mark.parametrize("way", ["is_grads_batched", "jacobian"])
def test_many_gradients_at_once(way: str) -> None:
    x, w = R(5), N(5, 6)
    with pyprof.count() as work:
        if way == "jacobian":
            torch.autograd.functional.jacobian(lambda x: x @ w, x, vectorize=True)
        else:
            torch.autograd.grad(x @ w, x, torch.eye(6), is_grads_batched=True)
    assert work.ops["matmul"].backward.flop == 360  # 6 of 2*5*6


# code that is compiled


@pytest.mark.parametrize("when", ["before", "inside"])
def test_compiled_code_may_ask_for_a_full_graph(when: str) -> None:
    def layer(x: Any, w: Any) -> Any:
        return F.linear(x, w).relu()

    compiled = torch.compile(layer, backend="eager", fullgraph=True) if when == "before" else None
    with pyprof.count() as work:
        compiled = compiled or torch.compile(layer, backend="eager", fullgraph=True)
        compiled(R(4, 5), R(6, 5)).sum().backward()
    assert (work.ops["linear"].forward.flop, work.ops["linear"].backward.flop) == (240, 480)
    compiled(R(4, 5), R(6, 5))  # and compiles after


def test_scripted_code() -> None:
    layer = torch.jit.trace(nn.Linear(5, 6), N(4, 5))
    assert pyprof.count(layer, N(4, 5), backward=True).forward == Work(240, 224, 96)


@pytest.mark.parametrize("make", [lambda: nn.Linear(8, 4), lambda: nn.Conv2d(3, 8, 3)])
def test_code_that_is_traced_during_a_count(make: Any) -> None:
    net, x = make(), N(1, 3, 8, 8)
    plain = torch.jit.trace(net, x)
    with pyprof.count() as work:
        traced = torch.jit.trace(net, x, check_trace=False)
        assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 1
    graphs = [re.sub(r"___torch_mangle_\d+\.", "", str(each.graph)) for each in (plain, traced)]
    assert graphs[0] == graphs[1]
    assert work.unknown == {"torch.jit.trace": 1}
    assert torch.equal(traced(2 * x), net(2 * x))


# blocks of attention


def flex(*shape: int, heads: int | None = None, mask: Any = None, batch: int | None = None) -> Any:
    flex_attention = pytest.importorskip("torch.nn.attention.flex_attention")
    length, keys = shape[2], (shape[0], heads or shape[1], *shape[2:])
    blocks = None
    if mask is not None:
        blocks = flex_attention.create_block_mask(mask, batch, None, length, length, device="cpu", BLOCK_SIZE=32)
    with pyprof.count() as work:
        flex_attention.flex_attention(N(*shape), N(*keys), N(*keys), block_mask=blocks, enable_gqa=heads is not None)
    return work


def test_flex_attention_without_a_mask() -> None:
    work = flex(2, 4, 100, 16)
    assert work.ops["flex_attention"].forward.flop == 5_120_000  # 2*(16 + 16) * 8 * 100*100
    assert work.ops["flex_attention"].forward.write == 51_200 + 3200  # O, and a float32 of each query
    assert not work.unknown


def test_flex_attention_counts_the_blocks_that_it_computes() -> None:
    # rows of 32, 32, 32, 4: the diagonal 3*1024 + 16, below it 32*32 + 32*64 + 4*96: 6544 pairs; * 8 heads * 64
    work = flex(2, 4, 100, 16, mask=lambda b, h, q, k: q >= k)
    assert work.ops["flex_attention"].forward.flop == 3_350_528
    # the second sample's mask leaves 0, 1, 2 and 2 blocks: 1024 + 2048 + 4*64 = 3328; each for 4 heads
    work = flex(2, 4, 100, 16, mask=lambda b, h, q, k: q >= k + 60 * b, batch=2, heads=2)
    assert work.ops["flex_attention"].forward.flop == (6544 + 3328) * 4 * 64


# subclasses of Tensor


def jagged() -> Any:
    rows = [N(3, 8), N(5, 8)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)


def test_nested_tensors_count_their_rows() -> None:
    x, w = jagged(), N(6, 8)
    work = pyprof.count(lambda: F.linear(x, w).values(), backward=True)
    assert work.ops["linear"].forward == Work(768, 448, 192)  # 2*8*8*6; (64 + 48) * 4; 48 * 4
    assert work.ops["linear"].backward.flop == 768
    work = pyprof.count(lambda: torch.softmax(x, -1).values(), backward=True)
    assert work.ops["softmax"].forward == Work(248, 256, 256)  # 4*64 - 8
    assert work.ops["softmax"].backward == Work(248, 512, 256)
    assert not work.unknown


def test_attention_of_nested_tensors_counts_each_sequence() -> None:
    q, k, v = (jagged_heads() for _ in range(3))
    attend = F.scaled_dot_product_attention
    work = pyprof.count(lambda: attend(q, k, v).values(), backward=True)
    # 2 heads of 3*3 and 5*5 pairs: 68
    assert work.ops["scaled_dot_product_attention"].forward.flop == 2 * 68 * 16
    assert work.ops["scaled_dot_product_attention"].backward.flop == 2 * 68 * 40
    assert not work.unknown


def jagged_heads() -> Any:
    rows = [N(3, 2, 8), N(5, 2, 8)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True).transpose(1, 2)


def test_nested_tensors_of_the_older_kind_stay_unknown() -> None:
    x = torch.nested.nested_tensor([N(3, 8), N(5, 8)])
    with pyprof.count() as work:
        F.linear(x, N(6, 8)).relu()
    assert set(work.unknown) == {"linear", "relu"}
    assert "a tensor without a shape" in work.reasons["relu"]


def test_parameters_that_the_first_call_makes() -> None:
    work = pyprof.count(lambda: nn.LazyLinear(6)(N(4, 5)), backward=True)
    assert (work.ops["linear"].forward.flop, work.ops["linear"].backward.flop) == (240, 240 + 18)
    assert not work.unknown


def test_fake_tensors_leave_nothing_unknown() -> None:
    with FakeTensorMode(), pyprof.count() as work:
        F.linear(R(4, 5), R(6, 5)).sum().backward()
    assert (work.ops["linear"].forward.flop, work.ops["linear"].backward.flop) == (240, 480)
    assert not work.unknown


# errors, one counter in another


def test_an_error_ends_the_count_and_leaves_nothing_behind() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), pyprof.count() as work:
        N(3, 4) @ N(4, 5)
        N(3, 4) @ N(3, 4)
    assert work.flops == 120
    assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0
    assert pyprof.count(torch.mm, N(3, 4), N(4, 5)).flops == 120


def test_an_op_that_ran_before_an_error_counts() -> None:
    # the checkpoint ends the recomputation by an error as soon as it has tanh's result
    w = R(8, 8)
    with pyprof.count() as work:
        checkpoint(lambda x: F.linear(x, w).tanh(), R(4, 8), use_reentrant=False).sum().backward()
    assert work.ops["tanh"].backward.flop == 3 * 32 + 32


def test_counters_in_each_other() -> None:
    with pyprof.count() as outer:
        N(3, 4) @ N(4, 5)
        with pyprof.count() as inner:
            N(3, 4) @ N(4, 5)
    assert (outer.flops, inner.flops) == (240, 120)


def test_weight_norm_and_its_gradient() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(5, 6, bias=False))  # 30 elements in 6 rows
    work = pyprof.count(layer, N(4, 5), backward=True)
    norm = work.ops["_weight_norm"]
    assert norm.forward == Work(96, 144, 144)  # 3*30 + 6; (30 + 6) * 4; w and the norms
    assert norm.backward == Work(168, 288, 144)  # 5*30 + 3*6; dw, v, g and the norms; dv and dg
    assert not work.unknown


# gradients that meet


def rms(x: Any) -> Any:
    return F.rms_norm(x, (8,))  # runs as its parts on a CPU, which use x twice


@pytest.mark.parametrize(
    "layer",
    [
        lambda x: F.linear(x, torch.ones(8, 8)),
        lambda x: F.layer_norm(x, (8,)),
        rms,
        lambda x: torch.matmul(x.view(2, 2, 8), torch.ones(1, 8, 8)).view(4, 8),  # several nodes
        lambda x: torch.matmul(x.view(2, 1, 2, 8), torch.ones(2, 1, 8, 8)).view(4, 8),  # one of which has nothing to do
        lambda x: F.scaled_dot_product_attention(x, torch.ones(4, 8), torch.ones(4, 8)),
        torch.sin,
        torch.tanh,
    ],
)
@pytest.mark.parametrize("residual_first", [True, False])
def test_the_gradients_of_both_branches_are_added(layer: Any, residual_first: bool) -> None:
    def branch() -> Any:
        x = R(4, 8).neg()
        return x + layer(x) if residual_first else layer(x) + x

    with_sum = pyprof.count(branch, backward=True).backward
    alone = pyprof.count(lambda: layer(R(4, 8).neg()), backward=True).backward
    assert (with_sum.flop - alone.flop, with_sum.nbytes - alone.nbytes) == (32, 384)  # two of 4*8 read, one written


def test_a_gradient_that_is_passed_on_is_added() -> None:
    def branch() -> Any:
        x = R(4, 8).neg()
        return x + torch.addmm(x, torch.ones(4, 5), torch.ones(5, 8))

    work = pyprof.count(branch, backward=True)
    assert work.ops["addmm"].backward == Work(32, 128, 128)  # g + g, read once


def test_the_gradients_of_a_shared_weight_are_added() -> None:
    w = R(8, 8)
    work = pyprof.count(lambda: F.linear(F.linear(R(4, 8), w), w), backward=True)
    assert work.backward.flop == 4 * 512 + 64
    assert [(row.flops, row.bytes) for row in work.rows if row.model == "add"] == [(64, 768)]


def test_gradients_meet_anew_in_each_pass() -> None:
    x = R(4, 8)
    y = x.neg()
    with pyprof.count() as work:
        z = y + F.layer_norm(y, (8,))
        for _ in range(2):
            torch.autograd.grad(z, x, torch.ones(4, 8), retain_graph=True)
    assert [(row.calls, row.flops) for row in work.rows if row.model == "add" and row.direction == "backward"] == [
        (2, 64)
    ]


@pytest.mark.parametrize(
    ("call", "flop"),
    [  # values of a 5 x 5 matrix: 4*125 - 4*125/3 = 333; of a symmetric one 4*125/3 = 167
        (torch.linalg.cond, 333 + 1),  # and a division
        (lambda a: torch.linalg.matrix_norm(a, "nuc"), 333 + 4),  # and a sum
        (lambda a: torch.linalg.matrix_rank(a, hermitian=True), 167 + 1),  # and a tolerance
    ],
)
def test_values_alone_are_computed_as_without_us(call, flop):
    """PyTorch would compute vectors, too, because a dispatch mode is on; with them the values differ in their bits."""
    torch.manual_seed(0)
    a = torch.randn(5, 5)
    counted = pyprof.count(call, a)
    assert counted.flops == flop
    assert torch.equal(counted.result, call(a))


def test_what_control_flow_runs_counts():
    """A product of [8, 64] and [64, 64] is 2*8*64*64 = 65,536; of ``cond`` one branch runs, of loops each trip."""
    control = pytest.importorskip("torch._higher_order_ops")
    x, w = torch.ones(8, 64), torch.ones(64, 64) / 64
    branch = lambda yes: torch.cond(torch.tensor(yes), lambda x: x @ w, lambda x: x @ w @ w, (x,))  # noqa: E731
    start = torch.tensor(0), x
    loop = lambda: control.while_loop(lambda i, _: i < 5, lambda i, x: (i + 1, x @ w), start)  # noqa: E731
    for call, products in ((lambda: branch(True), 1), (lambda: branch(False), 2), (loop, 5)):
        counted = pyprof.count(call)
        assert (counted.products.flop, counted.unknown) == (products * 65_536, {})


MASK = torch.arange(8)[:, None].expand(8, 6) < 3  # 3 rows of 6
Z = torch.ones(6, 3, dtype=torch.complex64)


@pytest.mark.parametrize(
    ("call", "nbytes"),
    [
        (lambda: torch.nonzero(MASK), 336),  # 48 truths, and 18 places of two int64 each
        (lambda: torch.ones(8, 6)[MASK], 192 + 192),  # ones; 48 truths, 18 of 48 numbers read, and written
        (lambda: torch.ones(8, 6)[MASK[:, 0]], 192 + 152),  # ones; 8 truths, 3 rows of 24 bytes read, and written
        (lambda: torch.cat([Z[:4], Z[4:]]), 288),  # 18 complex numbers of 8 bytes read, and written
    ],
)
def test_bytes_that_depend_on_values_and_on_lists(call: Any, nbytes: int) -> None:
    work = pyprof.count(call)
    assert work.bytes == nbytes and not work.unknown
