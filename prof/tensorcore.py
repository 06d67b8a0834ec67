"""Did a kernel use tensor cores, and what precision entered them: from its name, the only witness in a capture.

The names and where each was seen are the tables of ``kernels``. What they cannot tell is said to be unknown; what the
op's dtype suggests (Triton) is marked a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from pyprof.prof.kernels import Product, find_helper, find_product
from pyprof.prof.model import MATRIX

__all__ = ["TensorCore", "tensor_core"]


@dataclass(frozen=True, slots=True)
class TensorCore:
    """``tc``: 1, 0 or None (unknown). ``precision``: what was multiplied, empty where unknown or nothing was.

    ``guess``: the answer rests on the op's dtype, not on the kernel's name.
    """

    tc: int | None
    precision: str = ""
    guess: bool = False


NONE = TensorCore(0)
UNKNOWN = TensorCore(None)

# A type as libraries spell it in kernel names -> our word for it.
PRECISION = {
    "bf16": "bf16", "bfloat16": "bf16", "bfloat16_t": "bf16", "nv_bfloat16": "bf16", "t": "bf16",
    "f16": "fp16", "fp16": "fp16", "half": "fp16", "half_t": "fp16", "h": "fp16",
    "tf32": "tf32", "tfloat32_t": "tf32", "s": "tf32",
    "e4m3": "fp8", "e5m2": "fp8", "f8": "fp8", "fp8": "fp8", "q": "fp8", "r": "fp8", "mxe4m3": "fp8", "mxe2m1mxe4m3": "fp8",
    "e2m1": "fp4", "f4": "fp4", "o": "fp4", "mxe2m1": "fp4",
    "i8": "int8", "u8": "int8", "s8": "int8", "int8": "int8", "i4": "int4",
    "f64": "fp64", "f32": "fp32", "fp32": "fp32",
}  # fmt: skip

# torch's dtypes -> what enters the tensor cores. float32 tells nothing: it may be rounded to tf32 or not.
OF_DTYPE = {
    "bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "float8_e4m3fnuz": "fp8",
    "float8_e5m2fnuz": "fp8", "float4_e2m1fn_x2": "fp4", "int8": "int8", "uint8": "int8", "float64": "fp64",
}  # fmt: skip

# The types of a template's operands, the narrow before the wide: a bf16 product writes through f32 and not the reverse.
SCAN = (
    (re.compile(r"tfloat32_t"), "tf32"),
    (re.compile(r"float_e2m1_t|e2m1|ptrf4"), "fp4"),
    (re.compile(r"float_e[45]m[23]_t|__nv_fp8|ptrf8"), "fp8"),
    (re.compile(r"bfloat16|bhalf|ptrbf16"), "bf16"),
    (re.compile(r"half_t|__half|_Float16|ptrf16"), "fp16"),
    (re.compile(r"\bint8_t|signed char"), "int8"),
)

# Tensile's type letters, after the index names: input first. F8 and B8 are the two fp8 formats, B alone is bfloat16.
TENSILE = ((r"F8|B8", "fp8"), (r"I8|4xi8", "int8"), (r"B", "bf16"), (r"H", "fp16"), (r"S|C", "fp32"), (r"D|Z", "fp64"))


def tensor_core(name: str, family: str, dtype: str = "") -> TensorCore | None:
    """What a kernel did with tensor cores; None where neither its op's family nor its name has a matrix product.

    ``family`` is the innermost op's (``model.FAMILY``), empty where unknown; ``dtype`` the op's first floating input's,
    as torch names it, for the kernels whose name does not tell.
    """
    return _tensor_core(name, family in MATRIX, dtype.removeprefix("torch."))


@lru_cache(maxsize=65536)
def _tensor_core(name: str, in_product: bool, dtype: str) -> TensorCore | None:
    if find_helper(name) or _CHORE.search(name):
        return NONE if in_product or find_product(name) else None
    found = find_product(name)
    if found is None:
        return UNKNOWN if in_product else None
    product, match = found
    if product.unit == "fma":
        return NONE
    if product.unit == "triton":
        return _guess(dtype)
    precision = _precision(product, match, name)
    if product.unit == "types" and precision == "fp32":
        return NONE
    return TensorCore(1, precision or OF_DTYPE.get(dtype, ""))


# Kernels of PyTorch's own and copies: never a product.
_CHORE = re.compile(r"^\[?(?:CUDA )?[mM]em(?:set|cpy)|^__amd_rocclr_|elementwise_kernel|^triton_(?:poi|per|red|for)_|^nccl")


def _guess(dtype: str) -> TensorCore:
    """Triton's ``tl.dot`` runs narrow types on tensor cores; f32 depends on a flag that no name carries."""
    precision = OF_DTYPE.get(dtype, "")
    return TensorCore(1, precision, guess=True) if precision else TensorCore(None, guess=True)


def _precision(product: Product, match: re.Match[str], name: str) -> str:
    if product.precision:
        return product.precision
    if product.scan:
        return next((word for regex, word in SCAN if regex.search(name)), "")
    groups = match.groupdict()
    text = groups.get("p") or groups.get("q") or ""
    if "Cijk_" in product.pattern:
        return next((word for letters, word in TENSILE if re.match(letters, text)), "")
    return PRECISION.get(text.lower(), "")
