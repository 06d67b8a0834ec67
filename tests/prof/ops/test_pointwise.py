"""Element-wise ops and activations, counted by hand."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import ModelError, ShapeError
from pyprof.prof.ops.evaluation import evaluate, find
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from pyprof.prof.ops.result_types import promoted, result_dtype
from tests.prof.ops.op_cases import NAN, Row, t, worked

ONE = (t(2, 3),)  # 6 elements, 24 bytes
TWO = (t(2, 3), t(2, 3))
COMPLEX = t(2, 3, dtype="complex64")  # 48 bytes
INT = tuple(t(2, 3, dtype="int64") for _ in range(2))  # 48 bytes each

KINDS_OF_POLYNOMIALS = (
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
)  # fmt: skip
POLYNOMIALS = " ".join(f"special_{name}{end}" for name in KINDS_OF_POLYNOMIALS for end in ("", "_"))

ROWS: list[Row] = [  # names, arguments, work
    (
        "abs absolute neg negative sign sgn ceil floor round trunc fix nan_to_num _conj_physical relu relu6 hardtanh "
        "threshold hardshrink angle",
        ONE,
        Work(0, 24, 24),
    ),
    ("isnan isinf isfinite isposinf isneginf isreal logical_not signbit", ONE, Work(0, 24, 6)),  # a byte each
    ("bitwise_not", INT[:1], Work(0, 48, 48)),
    (
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan arcsin arccos arctan sinh cosh "
        "asinh acosh atanh arcsinh arccosh arctanh erf erfc erfinv digamma lgamma i0 special_i0 special_i0e "
        "special_i1 special_i1e special_erf special_erfc special_erfcx special_erfinv special_ndtr special_ndtri "
        "special_log_ndtr special_digamma special_psi special_gammaln special_expm1 special_exp2 special_log1p "
        "special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_modified_bessel_i0 "
        "special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_entr mvlgamma "
        "special_airy_ai special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 "
        "special_spherical_bessel_j0 reciprocal deg2rad rad2deg frac square tanh leaky_relu softshrink rrelu",
        ONE,
        Work(6, 24, 24),
    ),
    ("hardsigmoid tanhshrink softsign softplus", ONE, Work(12, 24, 24)),
    (
        "sinc special_sinc logit special_logit sigmoid special_expit silu log_sigmoid log_sigmoid_forward elu "
        "hardswish",
        ONE,
        Work(18, 24, 24),
    ),
    ("selu mish", ONE, Work(24, 24, 24)),
    ("celu", ONE, Work(18, 24, 24)),  # exp, sub, mul
    ("celu", (*ONE, 2.0), Work(24, 24, 24)),  # and div
    ("elu", (*ONE, 1.67, 1.05), Work(24, 24, 24)),  # selu's form: a second product
    ("elu", (*ONE, 2.0, 1, 0.5), Work(24, 24, 24)),  # celu's form
    ("gelu", ONE, Work(30, 24, 24)),  # 5 an element
    ("gelu", (t(2, 3), "tanh"), Work(54, 24, 24)),  # 9 an element
    ("gelu", (t(2, 3), UNKNOWN), Work(30, 24, 24)),
    ("softplus", (t(2, 3), 2.0), Work(24, 24, 24)),
    ("polygamma polygamma_", (2, t(2, 3)), Work(6, 24, 24)),
    (
        "add sub subtract rsub add_ sub_ subtract_ mul multiply mul_ multiply_ div divide true_divide div_ divide_ "
        "true_divide_ atan2 arctan2 atan2_ arctan2_ igamma igamma_ igammac igammac_ special_gammainc "
        "special_gammainc_ special_gammaincc special_gammaincc_ special_zeta special_zeta_ floor_divide floor_divide_ "
        "pow pow_ float_power_ prelu _prelu_kernel",
        TWO,
        Work(6, 48, 24),
    ),
    # one library function of two operands or three, 6 elements of 24 bytes each
    ("_standard_gamma_grad _standard_gamma_grad_", TWO, Work(6, 48, 24)),
    ("_dirichlet_grad _dirichlet_grad_", (*TWO, t(2, 3)), Work(6, 72, 24)),
    (POLYNOMIALS, (t(2, 3), t(3, dtype="int64")), Work(6, 24 + 24, 24)),  # the degrees are broadcast
    ("remainder fmod remainder_ fmod_", TWO, Work(18, 48, 24)),
    ("hypot logaddexp logaddexp2 hypot_ logaddexp_ logaddexp2_", TWO, Work(24, 48, 24)),
    ("xlogy special_xlogy special_xlog1py xlogy_ special_xlogy_ special_xlog1py_ ldexp ldexp_", TWO, Work(12, 48, 24)),
    (
        "maximum minimum fmax fmin copysign nextafter heaviside maximum_ minimum_ fmax_ fmin_ copysign_ nextafter_ "
        "heaviside_ clamp_min clamp_max clamp_min_ clamp_max_",
        TWO,
        Work(0, 48, 24),
    ),
    (
        "gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd_ lcm_ bitwise_and_ "
        "bitwise_or_ bitwise_xor_ bitwise_left_shift_ bitwise_right_shift_ __and__ __or__ __xor__ __lshift__ "
        "__rshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__ add mul sub add_ maximum",
        INT,
        Work(0, 96, 48),
    ),
    (  # only integers have these ops: they are free also where the capture does not tell the type
        "gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift bitwise_not gcd_ lcm_ "
        "bitwise_and_ bitwise_or_ bitwise_xor_ bitwise_left_shift_ bitwise_right_shift_ __and__ __or__ __xor__ "
        "__lshift__ __rshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__",
        (Tensor((2, 3)), Tensor((2, 3))),
        Work(0, NAN, NAN),
    ),
    (
        "eq ne lt le gt ge greater greater_equal less less_equal not_equal logical_and logical_or logical_xor",
        TWO,
        Work(0, 48, 6),
    ),
    (
        "eq_ ne_ lt_ le_ gt_ ge_ greater_ greater_equal_ less_ less_equal_ not_equal_ logical_and_ logical_or_ "
        "logical_xor_",
        TWO,
        Work(0, 48, 24),
    ),  # in place: self's type
    ("clamp clip clamp_ clip_", (t(2, 3), 0.0, 1.0), Work(0, 24, 24)),
    ("clamp", (t(2, 3), t(3), None), Work(0, 36, 24)),
    ("div", (*TWO, "floor"), Work(6, 48, 24)),
    ("div", INT, Work(6, 96, 24)),  # integers divide as float32
    ("div", (*INT, "floor"), Work(0, 96, 48)),
    ("exp", INT[:1], Work(6, 48, 24)),
    ("relu", INT[:1], Work(0, 48, 48)),
    ("add", (*TWO, 2), Work(12, 48, 24)),  # alpha: a product more
    ("add", (*TWO, UNKNOWN), Work(6, 48, 24)),
    ("add", (t(2, 3), 1.5), Work(6, 24, 24)),
    ("add", (t(64, 1000), t(1000)), Work(64000, 260000, 256000)),
    ("add", (t(2, 3, dtype="float16"), t(2, 3)), Work(6, 36, 24)),
    ("add_", (t(2, 3, dtype="float16"), t(2, 3)), Work(6, 36, 12)),  # stays float16
    ("mul", (t(2, 3, dtype="complex64"), t(2, 3, dtype="complex64")), Work(36, 96, 48)),
    ("add", (t(2, 3, dtype="complex64"), t(2, 3, dtype="complex64")), Work(12, 96, 48)),
    ("abs", (t(2, 3, dtype="complex64"),), Work(24, 48, 24)),
    # log(i z + sqrt(1 - z z)): a product 6, 1, a root 9, a sum 2, a logarithm 6
    ("asin acos asinh acosh arcsin arccos arcsinh arccosh", (COMPLEX,), Work(6 * 24, 48, 48)),
    # half of log(1 - i z) - log(1 + i z): 2 sums with 1, 2 logarithms of 6, a difference 2, 2 products
    ("atan atanh arctan arctanh", (COMPLEX,), Work(6 * 18, 48, 48)),
    ("log1p special_log1p", (COMPLEX,), Work(6 * 7, 48, 48)),
    ("expm1 special_expm1", (COMPLEX,), Work(6 * 6, 48, 48)),
    ("sinc", (COMPLEX,), Work(6 * 19, 48, 48)),  # 2 products by pi, sin 6, a division 11
    ("logaddexp", (COMPLEX, COMPLEX), Work(6 * 16, 96, 48)),  # a difference 2, exp 5, log1p 7, a sum 2
    ("ldexp", (COMPLEX, t(2, 3, dtype="int32")), Work(6 * 3, 48 + 24, 48)),  # 2^b, two products
    ("pow", (t(2, 3), 2), Work(6, 24, 24)),  # x x
    ("pow", (t(2, 3), 3), Work(12, 24, 24)),  # x x x
    ("pow", (t(2, 3), 1), Work(0, 24, 24)),
    ("pow", (t(2, 3), 2.7), Work(6, 24, 24)),
    ("pow", (2, t(2, 3)), Work(6, 24, 24)),
    ("addcmul addcdiv", (*TWO, t(2, 3)), Work(12, 72, 24)),
    ("addcmul addcdiv", (*TWO, t(2, 3), 0.5), Work(18, 72, 24)),
    # complex: a product 6, a sum 2; a division 11, a sum 2; the value's product 6 more
    ("addcmul", (t(2, 3, dtype="complex64"),) * 3, Work(48, 144, 48)),
    ("addcmul", (*(t(2, 3, dtype="complex64"),) * 3, 0.5), Work(84, 144, 48)),
    ("addcdiv", (t(2, 3, dtype="complex64"),) * 3, Work(78, 144, 48)),
    # complex: exp e^a, cos b, sin b and 2 products = 5; log |z| 4, log, atan2 = 6; the root |z| 4 and 5 more = 9
    ("exp", (COMPLEX,), Work(30, 48, 48)),
    ("exp2 special_exp2", (COMPLEX,), Work(42, 48, 48)),  # z ln 2 takes 2 products: 7
    ("log", (COMPLEX,), Work(36, 48, 48)),
    ("log2 log10", (COMPLEX,), Work(48, 48, 48)),  # the logarithm and 2 products: 8
    ("sqrt", (COMPLEX,), Work(54, 48, 48)),
    ("rsqrt", (COMPLEX,), Work(120, 48, 48)),  # the root 9, a division 11
    ("sin cos sinh cosh", (COMPLEX,), Work(36, 48, 48)),  # 4 functions, 2 products
    ("tan tanh", (COMPLEX,), Work(54, 48, 48)),  # 2 doublings, 4 functions, a sum, 2 divisions
    ("sigmoid special_expit silu", (COMPLEX,), Work(102, 48, 48)),  # exp 5, 1 +, a division 11
    ("sigmoid_backward tanh_backward", (COMPLEX, COMPLEX), Work(78, 96, 48)),  # 1 -, two products of 6
    ("conj_physical _conj_physical", (COMPLEX,), Work(0, 48, 48)),
    ("conj_physical", ONE, Work()),  # a real tensor is its own conjugate
    ("isclose", TWO, Work(18, 48, 6)),  # |a - b| <= atol + rtol |b|: 3
    ("isclose_", TWO, Work(18, 48, 24)),
    ("isclose", (COMPLEX, COMPLEX), Work(72, 96, 6)),
    ("float_power", TWO, Work(6, 48, 48)),  # float64
    ("float_power", INT, Work(6, 96, 48)),
    ("float_power", (2, t(2, 3)), Work(6, 24, 48)),
    ("sgn", (COMPLEX,), Work(36, 48, 48)),  # |z| 4, 2 divisions
    ("pow pow_", (COMPLEX, 2), Work(36, 48, 48)),
    ("pow pow_", (COMPLEX, 3), Work(72, 48, 48)),
    ("pow pow_", (COMPLEX, -1), Work(66, 48, 48)),
    ("pow pow_", (COMPLEX, 2.5), Work(102, 48, 48)),  # exp(w log z): 5 + 6 + 6
    ("pow pow_", (COMPLEX, COMPLEX), Work(102, 96, 48)),
    # in place, the result keeps self's type: 12 bytes of bfloat16, where out of place float32 has 24, a bool 6
    ("logical_not_", ONE, Work(0, 24, 24)),
    ("addcmul_ addcdiv_", (t(2, 3, dtype="bfloat16"), *TWO), Work(12, 12 + 48, 12)),
    ("lerp_", (*TWO, t(2, 3)), Work(18, 72, 24)),
    ("div", (*INT, "floor"), Work(0, 96, 48)),  # integers, rounded
    ("div", (*INT, None), Work(0, 96, 48)),  # Kineto records no strings: the third argument is a mode
    ("div", (*INT, None), (t(2, 3),), Work(6, 96, 24)),  # the outputs show that it does not round
    ("div", (*TWO, None), Work(6, 48, 24)),
    ("lerp", (*TWO, 0.1), Work(18, 48, 24)),
    ("lerp", (*TWO, t(2, 3)), Work(18, 72, 24)),
    ("where _s_where", (t(2, 3, dtype="bool"), *TWO), Work(0, 54, 24)),
    ("where", (t(3, dtype="bool"), t(2, 1), 0.0), Work(0, 3 + 8, 24)),
    ("complex", TWO, Work(0, 48, 48)),
    ("polar", TWO, Work(24, 48, 48)),  # cos, sin, two products
    # x * x: one tensor read once
    ("mul", (t(2, 3, ident=1), t(2, 3, ident=1)), Work(6, 24, 24)),
    # a broadcast operand is stored once: 3 elements, though the shape has 6
    ("add", (Tensor((2, 3), "float32", (0, 1)), t(2, 3)), Work(6, 12 + 24, 24)),
    ("threshold_backward hardtanh_backward hardshrink_backward softshrink_backward", TWO, Work(0, 48, 24)),
    ("leaky_relu_backward hardsigmoid_backward", TWO, Work(6, 48, 24)),
    ("tanh_backward sigmoid_backward elu_backward hardswish_backward logit_backward", TWO, Work(18, 48, 24)),
    ("elu_backward", (t(2, 3), 1.0, 1, 1, False, t(2, 3)), Work(18, 48, 24)),  # the schema's order
    ("softplus_backward", TWO, Work(24, 48, 24)),
    ("softplus_backward", (*TWO, 2.0), Work(30, 48, 24)),
    ("log_sigmoid_backward", TWO, Work(30, 48, 24)),
    ("silu_backward", TWO, Work(48, 48, 24)),
    ("gelu_backward", TWO, Work(66, 48, 24)),
    ("gelu_backward", (*TWO, "tanh"), Work(108, 48, 24)),
    ("mish_backward", TWO, Work(72, 48, 24)),
    ("glu", (t(2, 6), -1), Work(24, 48, 24)),  # 6 results, 4 each
    ("glu_backward", (t(2, 3), t(2, 6), -1), Work(48, 72, 48)),
    ("_prelu_kernel_backward", (*TWO, t(3)), Work(12, 60, 48)),  # dx and dw
    ("rrelu_with_noise rrelu_with_noise_functional", TWO, Work(6, 24, 48)),
    ("rrelu_with_noise_backward", (*TWO, t(2, 3), 0.1, 0.3, True), Work(6, 48, 24)),
    # backward as a whole, from the forward's arguments
    ("mul.backward multiply.backward", TWO, Work(12, 96, 48)),
    ("mul.backward", (t(2, 3), 2.0), Work(6, 24, 24)),
    ("mul.backward", (t(2, 3), t(2, 1)), Work(6 + 6 + 4, 32 + 48, 24 + 8)),  # and 6 - 2 sums
    ("div.backward divide.backward true_divide.backward", TWO, Work(24, 48 + 72, 48)),  # 1 + 3 each; g b, g a b
    ("div.backward", (t(2, 3), 2.0), Work(6, 24, 24)),
    ("div.backward", (t(2, 3), t(3)), Work(6 + 18 + 3, 36 + 60, 24 + 12)),  # and 6 - 3 sums
    ("abs.backward absolute.backward", ONE, Work(6, 48, 24)),
    (
        "sqrt.backward reciprocal.backward square.backward sin.backward cos.backward sinh.backward cosh.backward "
        "log2.backward log10.backward log1p.backward expm1.backward exp2.backward special_log1p.backward "
        "special_expm1.backward special_exp2.backward lgamma.backward special_gammaln.backward digamma.backward "
        "special_digamma.backward special_psi.backward i0.backward special_i0.backward",
        ONE,
        Work(12, 48, 24),
    ),
    ("nan_to_num.backward", ONE, Work(0, 48, 24)),
    ("sinc.backward special_sinc.backward", ONE, Work(48, 48, 24)),  # 3 products of z, cos, sin, sub, div, g
    ("mish.backward", ONE, Work(72, 48, 24)),
    ("tan.backward atan.backward atanh.backward arctan.backward arctanh.backward", ONE, Work(18, 48, 24)),
    (
        "rsqrt.backward asin.backward acos.backward asinh.backward acosh.backward erf.backward erfc.backward "
        "erfinv.backward special_erf.backward special_erfc.backward special_erfinv.backward arcsin.backward "
        "arccos.backward arcsinh.backward arccosh.backward",
        ONE,
        Work(24, 48, 24),
    ),
    ("clamp.backward clip.backward clamp_min.backward clamp_max.backward", (t(2, 3), 0.0), Work(0, 48, 24)),
    ("maximum.backward minimum.backward fmax.backward fmin.backward", TWO, Work(0, 144, 48)),
    ("maximum.backward", (t(2, 3), t(3)), Work(3, 2 * 60, 36)),  # 6 - 3 sums for the broadcast one
    ("where.backward", (t(2, 3, dtype="bool"), *TWO), Work(0, 60, 48)),  # g and 6 bytes of condition, twice
    ("where.backward", (t(2, 3, dtype="bool"), t(2, 3), 0.0), Work(0, 30, 24)),
    ("pow.backward", (t(2, 3), 2), Work(12, 48, 24)),  # 2 x g
    ("pow.backward", (t(2, 3), 3), Work(18, 48, 24)),  # 3 x x g
    ("div.backward", (*TWO, "floor"), Work(0, 0, 48)),  # zeros
    ("pow.backward", (COMPLEX, 0.5), Work(174, 96, 48)),  # two products of 6, a power of 17
    ("pow.backward", (t(2, 3, dtype="complex64"), 3), Work(108, 96, 48)),  # three complex products of 6 each
    ("pow.backward", (2, t(2, 3)), Work(18, 48, 24)),  # g y log(2)
    # g n x^(n-1), 4 an element, reads g, x, n; g y log(x), 3 an element, reads g, y, x
    ("pow.backward", TWO, Work(24 + 18, 72 + 72, 48)),
    ("addcmul.backward", (*TWO, t(2, 3)), Work(12, 96, 48)),
    ("addcmul.backward", (t(3), t(2, 3), t(2, 3)), Work(12 + 3, 96 + 24, 48 + 12)),  # self was broadcast
    ("addcdiv.backward", (*TWO, t(2, 3)), Work(24, 48 + 72, 48)),
    # quantisation
    (
        "quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic",
        (t(2, 3), 0.1, 0, "qint8"),
        Work(12, 24, 6),
    ),
    ("dequantize", (t(2, 3, dtype="qint8"),), Work(6, 6, 24)),
    (
        "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        (t(2, 3), 0.1, 0),
        Work(24, 24, 30),
    ),
    (
        "_fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine",
        (t(2, 3), t(1), t(1)),
        Work(24, 32, 24),
    ),
    (
        "_fake_quantize_learnable_per_tensor_affine_backward _fake_quantize_learnable_per_channel_affine_backward",
        (t(2, 3), t(2, 3), t(1), t(1)),
        Work(36, 56, 32),  # 4 for the scale's gradient, 2 for the zero point's
    ),
    (
        "_fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional",
        (t(2, 3), t(1), t(1), t(1), t(1), t(1), t(1, dtype="int32"), 0.01, 0, 255, -1),
        Work(24, 24 + 16, 24 + 6 + 16),  # four averages of 4 bytes are read and written
    ),
    (
        "fake_quantize_per_tensor_affine_cachemask_backward fake_quantize_per_channel_affine_cachemask_backward",
        (t(2, 3), t(2, 3, dtype="bool")),
        Work(0, 30, 24),
    ),
    (
        "_C::static_scaled_fp8_quant _C::dynamic_scaled_fp8_quant",
        (t(2, 3, dtype="float8_e4m3fn"), t(2, 3), t()),
        Work(6, 28, 6),
    ),
    (
        "_C::silu_and_mul _C::gelu_and_mul _C::gelu_tanh_and_mul sgl_kernel::silu_and_mul sgl_kernel::gelu_and_mul "
        "sgl_kernel::gelu_tanh_and_mul aiter::silu_and_mul aiter::gelu_and_mul aiter::gelu_tanh_and_mul "
        "flashinfer::silu_and_mul flashinfer::gelu_and_mul flashinfer::gelu_tanh_and_mul",
        (t(2, 3), t(2, 6)),
        Work(24, 48, 24),
    ),
    # 5 positions, 2 + 1 heads of 8, the first 4 of each turned: 60 elements; angles 5 * 4
    (
        "_C::rotary_embedding sgl_kernel::rotary_embedding",
        (t(5, dtype="int64"), t(5, 16), t(5, 8), 8, t(99, 4), True),
        Work(180, 40 + 240 + 80, 240),
    ),
]
test_worked_by_hand = worked(ROWS)


def test_types_that_are_not_told_leave_bytes_unknown_and_flop_exact() -> None:
    work = total(evaluate("add", (Tensor((2, 3)), UNKNOWN, UNKNOWN)))
    assert work.flop == 6
    assert math.isnan(work.nbytes)


def test_an_empty_size_list_of_a_required_tensor_is_a_zero_dimensional_one() -> None:
    assert total(evaluate("sqrt", (UNKNOWN,))).flop == 1


def test_outputs_that_are_told_decide_shape_and_type() -> None:
    assert evaluate("add", (t(2, 3), UNKNOWN), (t(4, 2, 3, dtype="float64"),)) == Work(24, 24, 192)


def test_an_out_tensor_behind_the_arguments_is_no_operand() -> None:
    assert evaluate("mul", (*TWO, t(2, 3))) == Work(6, 48, 24)


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(2,\)"):
        evaluate("add", (t(2, 3), t(2)))


def test_complex_numbers_without_a_price_stay_uncounted() -> None:
    with pytest.raises(ModelError, match="no price for complex"):
        evaluate("erf", (t(2, dtype="complex64"),))


@pytest.mark.parametrize(("op", "more"), [("sin", ()), ("abs", ()), ("reciprocal", ())])
def test_gradients_of_complex_functions_count_by_the_ops_that_run(op: str, more: tuple[Any, ...]) -> None:
    with pytest.raises(ModelError, match="complex"):
        evaluate(f"{op}.backward", (COMPLEX, *more))


def test_gradients_of_limits_count_by_the_ops_that_run() -> None:
    with pytest.raises(ModelError, match="limits"):
        evaluate("clamp.backward", (t(2, 3), t(3)))
    assert total(evaluate("clamp.backward", (t(2, 3), t(3, grad=False)))) == Work(0, 24 + 12 + 24, 24)


def test_gradients_that_nobody_wants_cost_nothing() -> None:
    constant = Tensor((2, 3), "float32", needs_grad=False)
    assert total(evaluate("div.backward", (t(2, 3), constant))) == Work(6, 48, 24)
    assert total(evaluate("addcmul.backward", (t(2, 3), constant, constant))) == Work()


def test_in_place_ops_find_their_models() -> None:
    assert find("aten::exp_") == "exp"
    assert find("aten::add_.Tensor") == "add_"


PROMOTED = [  # from torch.promote_types
    ("float16", "bfloat16", "float32"),
    ("uint8", "int8", "int16"),
    ("int64", "float16", "float16"),
    ("bool", "uint8", "uint8"),
    ("float64", "complex64", "complex128"),
    ("float32", "complex64", "complex64"),
    ("uint8", "int32", "int32"),
    ("int8", "int16", "int16"),
    ("bfloat16", "complex64", "complex64"),
    ("uint16", "int16", "int32"),
    ("float32", "", ""),
]


@pytest.mark.parametrize(("a", "b", "result"), PROMOTED)
def test_promotion(a: str, b: str, result: str) -> None:
    assert promoted(a, b) == promoted(b, a) == result


RESULTS = [  # from torch.result_type
    ((t(2, dtype="float16"), t()), "float16"),  # a 0-d tensor raises the category only
    ((t(2, dtype="int32"), t(dtype="float64")), "float64"),
    ((t(2, dtype="int32"), 2.5), "float32"),
    ((t(2, dtype="uint8"), -1), "uint8"),
    ((t(2, dtype="bool"), 1), "int64"),
    ((t(2, dtype="float16"), 1j), "complex32"),
    ((t(2, dtype="float64"), 1j), "complex128"),
    ((t(dtype="int32"), 2.5), "float32"),
    ((t(2, dtype="float16"), UNKNOWN), "float16"),
]


@pytest.mark.parametrize(("operands", "result"), RESULTS)
def test_result_type(operands: tuple[Any, ...], result: str) -> None:
    assert result_dtype(*operands) == result


SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@given(shape=SHAPES, cut=st.integers(0, 4), ones=st.sets(st.integers(0, 3)))
def test_broadcasting_is_symmetric(shape: tuple[int, ...], cut: int, ones: set[int]) -> None:
    small = tuple(1 if i in ones else n for i, n in enumerate(shape))[cut:]
    assert evaluate("add", (t(*shape), t(*small))) == evaluate("add", (t(*small), t(*shape)))


@given(n=st.integers(0, 50), m=st.integers(0, 50))
def test_work_adds_up_over_a_split(n: int, m: int) -> None:
    whole, first, second = (total(evaluate("gelu", (t(size, 3),))) for size in (n + m, n, m))
    assert whole == first + second
