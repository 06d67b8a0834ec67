"""Element-wise ops: a table of FLOPs per element, and the few ops where these depend on an argument.

flop    per element of the result: add, mul, div, sqrt, exp, log, tanh, erf and every other library function 1 each;
        comparisons, selections, casts, sign changes, rounding and integer or boolean arithmetic 0
read    each distinct operand once at its stored size (a broadcast operand is small, a stride of 0 counts once)
write   the result, with the broadcast shape and the promoted dtype

Convention: docs/explanation/design.md, how work is counted. In-place forms write into ``self`` with its own dtype,
whatever the promoted dtype is.
"""

from dataclasses import dataclass, replace
from typing import Any

from pyprof.errors import ModelError
from pyprof.prof.ops.model import MODELS, Family, Tensor, Work, distinct, total
from pyprof.prof.ops.operands import Out, bool_mask, broadcast, elementwise, number, numel, output, required, tensors
from pyprof.prof.ops.result_types import COMPLEX_OF, REAL_OF, floating, promoted, result_dtype

op = Family("pointwise")


@dataclass(frozen=True, slots=True)
class Price:
    """A row of the table: FLOPs per element of the result, and the rule for the result's dtype."""

    names: str
    operands: int
    flop: int
    result: str = "same"  # promoted. float: integers become float32; real: complex becomes real; real float; bool
    complex_flop: int | None = None  # None: not worked out, so the op is not counted for complex types
    why: str = ""


LIBRARY_FUNCTIONS = """
erf erfc erfinv digamma lgamma i0 special_i0 special_i0e special_i1 special_i1e special_erf special_erfc special_erfcx
special_erfinv special_ndtr special_ndtri special_log_ndtr special_digamma special_psi special_gammaln
special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_modified_bessel_i0
special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_entr mvlgamma special_airy_ai
special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_spherical_bessel_j0
"""
ARC = "asin acos arcsin arccos asinh acosh arcsinh arccosh"
POLYNOMIALS = """
special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
special_chebyshev_polynomial_w special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_hermite_polynomial_h
special_hermite_polynomial_he special_laguerre_polynomial_l special_legendre_polynomial_p
"""
TABLE = (
    Price("abs absolute", 1, 0, "real", 4, "a sign bit; complex: two squares, a sum, a root"),
    Price("neg negative sign ceil floor round trunc fix nan_to_num", 1, 0, "same", 0, "signs and rounding"),
    Price("sgn", 1, 0, "same", 6, "a sign; complex: z / |z|, |z| (4) and two divisions"),
    Price("_conj_physical", 1, 0, "same", 0, "signs"),
    Price("isnan isinf isfinite isposinf isneginf isreal logical_not signbit", 1, 0, "bool", 0, "tests"),
    Price("bitwise_not", 1, 0, "same", None, "bits"),
    Price("exp", 1, 1, "float", 5, "one function; complex: e^a (cos b + i sin b), three and two products"),
    Price("exp2 special_exp2", 1, 1, "float", 7, "one function; complex: two products by ln 2 and exp"),
    Price("log", 1, 1, "float", 6, "one function; complex: |z| (4), its logarithm, atan2"),
    Price("log2 log10", 1, 1, "float", 8, "one function; complex: log (6), two products by a constant"),
    Price("sqrt", 1, 1, "float", 9, "one root; complex: |z| (4), r = sqrt((|z| + a) / 2) (3), b / (2 r) (2)"),
    Price("rsqrt", 1, 1, "float", 20, "one function; complex: sqrt (9) and 1 / z (11)"),
    Price("sin cos sinh cosh", 1, 1, "float", 6, "one function; complex: sin a cosh b, cos a sinh b"),
    Price("tan", 1, 1, "float", 9, "one function; complex: (sin 2a + i sinh 2b) / (cos 2a + cosh 2b)"),
    Price("log1p special_log1p", 1, 1, "float", 7, "one function; complex: a sum with 1, its log (6)"),
    Price("expm1 special_expm1", 1, 1, "float", 6, "one function; complex: exp (5), a difference with 1"),
    Price(ARC, 1, 1, "float", 24, "one function; complex: log(i z + sqrt(1 - z z)): 6, 1, sqrt 9, a sum 2, log 6"),
    Price("atan arctan atanh arctanh", 1, 1, "float", 18, "one function; complex: (log(1 - i z) - log(1 + i z)) / 2"),
    Price(LIBRARY_FUNCTIONS, 1, 1, "float", None, "one library function"),
    Price("reciprocal", 1, 1, "float", 11, "one division"),
    Price("deg2rad rad2deg", 1, 1, "float", None, "one product"),
    Price("angle", 1, 0, "real float", 1, "zero or pi; complex: atan2"),
    Price("frac", 1, 1, "same", None, "x - trunc(x)"),
    Price("square", 1, 1, "same", 6, "x * x"),
    Price("sinc special_sinc", 1, 3, "float", 19, "sin(pi x) / (pi x); complex: pi z 2, sin 6, a division 11"),
    Price("logit special_logit", 1, 3, "float", None, "log(x / (1 - x))"),
    Price("polygamma", 2, 1, "float", None, "one library function"),
    Price("mul multiply", 2, 1, "same", 6, "complex: 4 products, 2 sums"),
    Price("atan2 arctan2 igamma igammac special_gammainc special_gammaincc", 2, 1, "float", None, "one function"),
    Price(f"special_zeta _standard_gamma_grad {POLYNOMIALS}", 2, 1, "float", None, "one library function"),
    Price("_dirichlet_grad", 3, 1, "float", None, "one library function"),
    Price("remainder fmod", 2, 3, "same", None, "a - b * round(a / b)"),
    Price("floor_divide", 2, 1, "same", None, "a division; rounding is free"),
    Price("hypot", 2, 4, "float", None, "sqrt(a a + b b)"),
    Price("logaddexp logaddexp2", 2, 4, "float", 16, "max + log1p(exp(-|a - b|)); complex: two sums 2, 5, 7"),
    Price("xlogy special_xlogy special_xlog1py", 2, 2, "float", None, "a * log(b)"),
    Price("ldexp", 2, 2, "float", 3, "a * 2^b; complex: a real function, two products"),
    Price("maximum minimum fmax fmin", 2, 0, "same", None, "comparisons"),
    Price("copysign", 2, 0, "float", None, "a sign bit"),
    Price("nextafter heaviside gcd lcm bitwise_and bitwise_or bitwise_xor", 2, 0, "same", None, "bits and integers"),
    Price("bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__", 2, 0, "same", None, "bits and integers"),
    Price("__lshift__ __rshift__ __iand__ __ior__ __ixor__ __ilshift__", 2, 0, "same", None, "bits and integers"),
    Price("__irshift__", 2, 0, "same", None, "bits and integers"),
    Price("eq ne lt le gt ge greater greater_equal less less_equal not_equal", 2, 0, "bool", 0, "comparisons"),
    Price("logical_and logical_or logical_xor", 2, 0, "bool", 0, "comparisons"),
    Price("isclose", 2, 3, "bool", 12, "|a - b| <= atol + rtol * |b|: sub, mul, add; complex: sub 2, |z| 4 twice, 2"),
    Price("clamp clip", 3, 0, "same", None, "comparisons"),
    Price("clamp_min clamp_max", 2, 0, "same", None, "comparisons"),
)

COMPLEX_ADD, COMPLEX_MUL, COMPLEX_DIV = 2, 6, 11  # div: 6 products, 3 sums, 2 divisions


def typed(dtype: str, result: str) -> str:
    """The result's dtype by a row's rule."""
    if result == "bool":
        return "bool"
    real = REAL_OF.get(dtype, dtype) if result.startswith("real") else dtype
    return "float32" if result.endswith("float") and not floating(real) else real


def priced(op: str, flop: int, complex_flop: int | None, dtype: str) -> int:
    """FLOPs per element for a dtype; integers and booleans count 0."""
    if not dtype.startswith("complex"):
        return flop if floating(dtype) else 0
    if complex_flop is None:
        raise ModelError(f"{op}: no price for complex numbers")
    return complex_flop


def apply(
    op: str,
    operands: tuple[Any, ...],
    flop: int,
    complex_flop: int | None = None,
    *,
    result: str = "same",
    out: Out = None,
    inplace: bool = False,
) -> Work:
    """The work of one element-wise pass over the broadcast shape of the operands."""
    present = [operand for operand in operands if isinstance(operand, Tensor)] or [required(operands[0])]
    dtype = result_dtype(*operands)
    computed = "float32" if result == "float" and dtype and not floating(dtype) else dtype
    shape = broadcast(op, *(tensor.shape for tensor in present))
    written = output(out, present[0] if inplace else Tensor(shape, typed(dtype, result)))
    return elementwise(priced(op, flop, complex_flop, computed) * written.numel, distinct(*present), written)


def _register(row: Price, name: str, inplace: bool) -> None:
    def count(*arguments: Any, out: Out = None) -> Work:
        operands = arguments[: row.operands]
        return apply(name, operands, row.flop, row.complex_flop, result=row.result, out=out, inplace=inplace)

    count.__doc__ = f"{row.flop} flop per element of the result: {row.why}"
    count.__name__ = count.__qualname__ = f"{name}_" if inplace else name
    op(count.__name__)(count)


for _row in TABLE:
    for _name in _row.names.split():
        _register(_row, _name, inplace=False)
        if not _name.endswith("__") and _row.operands > 1:
            _register(_row, _name, inplace=True)


def scaled(factor: Any) -> int:
    """The multiplication that ``alpha`` or ``value`` adds: 1 flop, or 0 if it is 1 (the default) or unknown."""
    return 0 if number(factor, 1) == 1 else 1


@op("add sub subtract rsub")
def add(self: Tensor, other: Any, alpha: Any = 1, *, out: Out = None) -> Work:
    """self + alpha * other: 1 flop per element, 2 if alpha is not 1"""
    times = scaled(alpha) if not isinstance(alpha, Tensor) else 0
    return apply("add", (self, other), 1 + times, COMPLEX_ADD + COMPLEX_MUL * times, out=out)


@op("add_ sub_ subtract_")
def add_(self: Tensor, other: Any, alpha: Any = 1, *, out: Out = None) -> Work:
    """self += alpha * other, in self's dtype"""
    times = scaled(alpha) if not isinstance(alpha, Tensor) else 0
    return apply("add_", (self, other), 1 + times, COMPLEX_ADD + COMPLEX_MUL * times, out=out, inplace=True)


@op("div divide true_divide")
def div(self: Tensor, other: Any, *mode: Any, out: Out = None) -> Work:
    """self / other: 1 flop per element; rounding counts 0. Integers are divided as float32 unless the result is
    rounded. Kineto records no strings: a mode without a value is one that rounds, unless the outputs show otherwise."""
    rounds = "floor" in mode or "trunc" in mode or (mode[:1] == (None,) and not out)
    result = "same" if rounds else "float"
    return apply("div", (self, other), 1, COMPLEX_DIV, result=result, out=out)


@op("div_ divide_ true_divide_")
def div_(self: Tensor, other: Any, *, out: Out = None) -> Work:
    """self /= other, in self's dtype"""
    return apply("div_", (self, other), 1, COMPLEX_DIV, out=out, inplace=True)


POWERS = {0: 0, 1: 0, 2: 1, 3: 2, 0.5: 1, -0.5: 1, -1: 1, -2: 2}  # PowKernel.cu: sqrt, rsqrt, products, divisions
COMPLEX_POWERS: dict[float, int] = {0: 0, 1: 0, 2: 6, 3: 12, -1: 11, -2: 17}  # products of 6, a division of 11
COMPLEX_POWER = 17  # exp(w * log(z)): 5 + 6 + 6


def power(exponent: Any) -> int:
    """FLOPs of x ** exponent: small exponents use products or roots, all others a library function (1)."""
    return POWERS.get(exponent, 1) if isinstance(exponent, (int, float)) else 1


def complex_power(exponent: Any) -> int:
    """FLOPs of x ** exponent for complex numbers: small exponents use products, all others exp(w * log(z))."""
    return COMPLEX_POWERS.get(exponent, COMPLEX_POWER) if isinstance(exponent, (int, float)) else COMPLEX_POWER


@op("conj_physical")
def conj_physical(self: Tensor, *, out: Out = None) -> Work:
    """Signs; a real tensor is returned as it is"""
    return apply("conj_physical", (self,), 0, 0, out=out) if required(self).is_complex else Work()


@op("pow")
def pow_(self: Any, exponent: Any, *, out: Out = None) -> Work:
    """self ** exponent: x*x is 1 flop, x*x*x 2, a root 1, any other power 1 (complex: 17)"""
    return apply("pow", (self, exponent), power(exponent), complex_power(exponent), out=out)


@op("float_power")
def float_power(self: Any, exponent: Any, *, out: Out = None) -> Work:
    """As ``pow``, in float64 or complex128"""
    operands = tuple(replace(t, dtype=_double(t.dtype)) if isinstance(t, Tensor) else t for t in (self, exponent))
    read = distinct(*tensors((self, exponent)))
    work = pow_(*operands, out=out)
    return Work(work.flop, read, work.write)


def _double(dtype: str) -> str:
    return dtype and ("complex128" if dtype.startswith("complex") else "float64")


@op("pow_ float_power_")
def pow_inplace(self: Any, exponent: Any, *, out: Out = None) -> Work:
    """self **= exponent, in self's dtype"""
    return apply("pow_", (self, exponent), power(exponent), complex_power(exponent), out=out, inplace=True)


@op("addcmul")
def addcmul(self: Tensor, tensor1: Any, tensor2: Any, value: Any = 1, *, out: Out = None) -> Work:
    """self + value * tensor1 * tensor2: 2 flop per element, 3 if value is not 1"""
    times = scaled(value) if not isinstance(value, Tensor) else 0
    return apply("addcmul", (self, tensor1, tensor2), 2 + times, 8 + COMPLEX_MUL * times, out=out)


@op("addcdiv")
def addcdiv(self: Tensor, tensor1: Any, tensor2: Any, value: Any = 1, *, out: Out = None) -> Work:
    """self + value * tensor1 / tensor2: 2 flop per element, 3 if value is not 1"""
    times = scaled(value) if not isinstance(value, Tensor) else 0
    return apply("addcdiv", (self, tensor1, tensor2), 2 + times, 13 + COMPLEX_MUL * times, out=out)


@op("lerp")
def lerp(self: Tensor, end: Any, weight: Any, *, out: Out = None) -> Work:
    """self + weight * (end - self): 3 flop per element"""
    return apply("lerp", (self, end, weight if isinstance(weight, Tensor) else None), 3, 10, out=out)


def _register_inplace(name: str) -> None:
    def count(self: Tensor, *arguments: Any, out: Out = None) -> Work:
        return total(MODELS[name](self, *arguments, out=out or (required(self),)))

    count.__doc__ = f"As ``{name}``, in self's dtype"
    count.__name__ = count.__qualname__ = f"{name}_"
    op(count.__name__)(count)


for _name in ("logical_not", "addcmul", "addcdiv", "lerp"):
    _register_inplace(_name)


@op("where _s_where")
def where(condition: Any, self: Any, other: Any, *, out: Out = None) -> Work:
    """A selection, 0 flop: reads the condition and both operands, writes the result"""
    mask = bool_mask(required(condition))
    sides = tensors((self, other))
    shape = broadcast("where", mask.shape, *(side.shape for side in sides))
    dtype = result_dtype(self, other) if sides else ""
    return elementwise(0, distinct(mask, *sides), output(out, Tensor(shape, dtype)))


@op("polar")
def polar(self: Tensor, angle: Tensor, *, out: Out = None) -> Work:
    """r * cos(angle), r * sin(angle): 4 per element"""
    return complex_(self, angle, out=out) + Work(4 * numel(broadcast("polar", self.shape, angle.shape)))


@op("complex")
def complex_(self: Tensor, other: Tensor, *, out: Out = None) -> Work:
    """Combines two real tensors into a complex one; 0 flop"""
    dtype = COMPLEX_OF.get(promoted(self.dtype, other.dtype), "")
    shape = broadcast("complex", self.shape, other.shape)
    return elementwise(0, distinct(self, other), output(out, Tensor(shape, dtype)))
