"""Optimizers, gradient clipping and scaling, counted by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import evaluate, find
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from tests.prof.ops.op_cases import Row, t, worked

P = (t(2, 3), t(4))  # 10 parameters, 40 bytes
S = (t(), t())  # step counters
UNARY = (
    "acos asin atan cos cosh erf erfc exp expm1 frac lgamma log log10 log1p log2 reciprocal rsqrt sin sinh sqrt "
    "tan tanh"
)
ROWS: list[Row] = [
    (" ".join(f"_foreach_{name}" for name in UNARY.split()), (P,), Work(10, 40, 40)),
    (
        "_foreach_abs _foreach_ceil _foreach_floor _foreach_neg _foreach_round _foreach_sign _foreach_trunc",
        (P,),
        Work(0, 40, 40),
    ),
    ("_foreach_sigmoid", (P,), Work(30, 40, 40)),
    (
        "_foreach_add _foreach_add_ _foreach_sub _foreach_sub_ _foreach_mul _foreach_mul_ _foreach_div _foreach_div_ "
        "_foreach_pow _foreach_pow_",
        (P, P),
        Work(10, 80, 40),
    ),
    ("_foreach_add_", (P, P, -0.1), Work(20, 80, 40)),  # alpha
    ("_foreach_add_", (P, 1e-8), Work(10, 40, 40)),
    ("_foreach_add_", (S, 1), Work()),  # step counters are left out
    ("_foreach_div_", (P, [2.0, 3.0]), Work(10, 40, 40)),  # a number for each
    ("_foreach_mul_", (P, t()), Work(10, 40 + 4, 40)),  # a coefficient of all, read once
    ("_foreach_pow", (2.0, P), Work(10, 40, 40)),  # 2 to the power of each
    ("_foreach_clone", (P,), Work(0, 40, 40)),
    ("_foreach_mm", ((t(2, 3), t(4, 5)), (t(3, 6), t(5, 1))), Work(72 + 40, 24 + 72 + 80 + 20, 48 + 16)),
    ("_foreach_powsum", (P, 2), Work(11 + 7, 40, 8)),  # squares, and sums without a root
    (
        "_foreach_clamp_min _foreach_clamp_min_ _foreach_clamp_max _foreach_clamp_max_ _foreach_maximum "
        "_foreach_maximum_ _foreach_minimum _foreach_minimum_",
        (P, P),
        Work(0, 80, 40),
    ),
    ("_foreach_lerp _foreach_lerp_", (P, P, 0.1), Work(30, 80, 40)),
    ("_foreach_addcdiv _foreach_addcdiv_", (P, P, P), Work(20, 120, 40)),
    ("_foreach_addcdiv", (P, P, P, [-0.1, -0.2]), Work(30, 120, 40)),
    ("_foreach_addcmul", (P, P, P, 0.5), Work(30, 80, 40)),  # v + 0.5 g g: g is read once
    ("_foreach_copy", (P, P), Work(0, 40, 40)),
    ("_foreach_zero", (P,), Work(0, 0, 40)),
    ("_foreach_norm", (P, 2), Work(20, 40, 8)),
    ("_foreach_max", (P,), Work(0, 40, 8)),
    ("clip_grad_norm_ clip_grad_norm", (P, 1.0), Work(30, 80, 40)),
    ("clip_grad_norm_", (P, 1.0, math.inf), Work(10, 80, 40)),  # the largest takes comparisons
    ("_amp_foreach_non_finite_check_and_unscale_", (P, t(), t()), Work(10, 48, 44)),
    ("_amp_update_scale_", (t(), t(dtype="int32"), t(), 2.0, 0.5, 2000), Work(1, 12, 8)),
    (
        "_fused_adam _fused_adam_ _fused_adamw _fused_adamw_",
        (P, P, P, P, (), S, 1e-3, 0.9, 0.999, 0.0, 1e-8, False, False, None, None),
        Work(130, 160, 120),
    ),
    (
        "_fused_adam_ _fused_adamw_",
        (P, P, P, P, (), S, 1e-3, 0.9, 0.999, 0.01, 1e-8, False, False, None, None),
        Work(150, 160, 120),
    ),  # weight decay
    (
        "_fused_adam_",
        (P, P, P, P, P, S, 1e-3, 0.9, 0.999, 0.0, 1e-8, True, False, None, None),
        Work(130, 200, 160),
    ),  # AMSGrad's maximum
    (
        "_fused_adam_",
        (P, P, P, P, (), S, 1e-3, 0.9, 0.999, 0.0, 1e-8, False, False, t(), t()),
        Work(140, 160, 160),
    ),  # gradients unscaled and written back
    ("_fused_sgd _fused_sgd_", (P, P, P, 0.0, 0.9, 0.1, 0.0, False, False, False), Work(40, 120, 80)),
    ("_fused_sgd_", (P, P, (), 0.0, 0.0, 0.1, 0.0, False, False, False), Work(20, 80, 40)),
    ("_fused_sgd_", (P, P, P, 0.0, 0.9, 0.1, 0.0, False, False, True), Work(20, 80, 80)),  # the first step
    ("_fused_sgd_", (P, P, P, 0.1, 0.9, 0.1, 0.5, True, False, False), Work(90, 120, 80)),  # 2 + 2 + 3 + 2
    ("_fused_adagrad _fused_adagrad_", (P, P, P, S, 0.1, 0.0, 0.0, 1e-10, False), Work(70, 120, 80)),
    ("_fused_adagrad", (P, P, P, S, 0.1), Work(70, 120, 80)),  # without weight decay, as by default
    ("_fused_adagrad", (P, P, P, S, 0.1, 0.0, 0.5, 1e-10, False), Work(90, 120, 80)),
]
test_worked_by_hand = worked(ROWS)


@pytest.mark.parametrize("op", ["_fused_adamw_", "_foreach_add_", "_foreach_norm", "clip_grad_norm_", "_foreach_copy_"])
def test_a_list_that_the_capture_cut_stays_uncounted(op: str) -> None:
    with pytest.raises(UnknownArgument):
        evaluate(find(op) or "", (UNKNOWN,) * 4)


def test_squares_of_one_tensor_read_it_once_whether_told_by_its_number_or_not() -> None:
    told = (Tensor((4,), "float32", ident=1),)
    assert evaluate("_foreach_addcmul", ((t(4),), told, told)) == evaluate("_foreach_addcmul", ((t(4),),) * 3)
    other = (Tensor((4,), "float32", ident=2),)
    assert total(evaluate("_foreach_addcmul", ((t(4),), told, other))).read == 48


def test_types_that_are_not_told_leave_bytes_unknown_and_flop_exact() -> None:
    lists = ((Tensor((2, 3)),),) * 4
    work = total(evaluate("_fused_adamw_", (*lists, *[UNKNOWN] * 11)))
    assert work.flop == 78
    assert math.isnan(work.nbytes)


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=5), cut=st.integers(0, 5))
def test_work_adds_up_over_a_split_of_the_list(sizes: list[int], cut: int) -> None:
    lists = [tuple(t(n) for n in part) for part in (sizes, sizes[:cut], sizes[cut:])]
    whole, *parts = (total(evaluate("_foreach_mul", (part, 2.0))) if part else Work() for part in lists)
    assert whole == sum(parts, Work())
