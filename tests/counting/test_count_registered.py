"""Ops of libraries that register a formula with torch.utils.flop_counter."""

import pytest

torch = pytest.importorskip("torch")
flop_counter = pytest.importorskip("torch.utils.flop_counter")
if not hasattr(torch.library, "custom_op"):
    pytest.skip("this torch has no torch.library.custom_op", allow_module_level=True)

import pyprof  # noqa: E402


@torch.library.custom_op("pyproftest::neighbours", mutates_args=())
def neighbours(q: torch.Tensor, k: torch.Tensor, window: int, *, causal: bool = False) -> torch.Tensor:
    return q + 0


@torch.library.custom_op("pyproftest::pair", mutates_args=())
def pair(q: torch.Tensor) -> torch.Tensor:
    return q + 0


@torch.library.custom_op("pyproftest::broken", mutates_args=())
def broken(q: torch.Tensor) -> torch.Tensor:
    return q + 0


@flop_counter.register_flop_formula(torch.ops.pyproftest.neighbours)
def neighbours_flop(q, k, window, *, causal=False, out_shape=None, **kwargs):
    batch, height, width, heads, size = q
    assert tuple(out_shape) == tuple(q) == tuple(k)
    return 4 * batch * height * width * heads * size * window * window // (2 if causal else 1)


@flop_counter.register_flop_formula(torch.ops.pyproftest.pair, get_raw=True)
def pair_flop(q, out_val=None, **kwargs):
    return q.numel() * q.element_size() + out_val.numel()


@flop_counter.register_flop_formula(torch.ops.pyproftest.broken)
def broken_flop(q, **kwargs):
    raise ValueError("no formula after all")


Q = torch.randn(1, 8, 8, 2, 16)


def test_a_formula_of_shapes():
    """4 * 8 * 8 * 2 * 16 * 9 = 73,728; half of them causal"""
    assert pyprof.count(lambda: neighbours(Q, Q, 3)).flops == 73_728
    assert pyprof.count(lambda: neighbours(Q, Q, 3, causal=True)).flops == 36_864
    assert pyprof.count(lambda: neighbours(Q, Q, 3)).unknown == {}


def test_a_formula_of_tensors():
    """2048 numbers of 4 bytes, and 2048"""
    assert pyprof.count(lambda: pair(Q)).flops == 5 * 2048


def test_a_formula_that_fails_leaves_the_op_unknown():
    counted = pyprof.count(lambda: broken(Q))
    assert (counted.flops, counted.unknown) == (0, {"pyproftest::broken": 1})


def test_an_op_without_a_formula_is_unknown():
    @torch.library.custom_op("pyproftest::silent", mutates_args=())
    def silent(q: torch.Tensor) -> torch.Tensor:
        return q + 0

    assert pyprof.count(lambda: silent(Q)).unknown == {"pyproftest::silent": 1}
