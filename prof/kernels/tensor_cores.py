"""Whether a kernel used tensor cores, and in which precision. Its name is the only evidence in a capture.

The names, and where each was seen, are in ``family_tables``. A kernel that matches none is unknown; an
answer that rests on the op's dtype alone (Triton) is marked as a guess.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from pyprof.prof.kernels.name_patterns import Product, find_helper, find_product
from pyprof.prof.kernels.precision import PRECISION_OF_DTYPE, PRECISION_OF_WORD
from pyprof.prof.ops.model import MATRIX


@dataclass(frozen=True, slots=True)
class TensorCore:
    """``tc``: 1, 0 or None (unknown). ``precision``: of the multiplied values; empty if unknown or if there are none.

    ``guess``: the answer rests on the op's dtype, not on the kernel's name.
    """

    tc: int | None
    precision: str = ""
    guess: bool = False


NONE = TensorCore(0)
UNKNOWN = TensorCore(None)

# The types of a template, demangled or not. Narrower ones come first: a product accumulates and writes wider ones.
SCAN = (
    (re.compile(r"tfloat32_t"), "tf32"),
    (re.compile(r"float_e2m1_t|ptrf4"), "fp4"),
    (re.compile(r"float_e[23]m[23]_t"), "fp6"),
    (re.compile(r"float_e[45]m[23]_t|__nv_fp8|ptrf8|ck_tile::fp8_t|ck::f8_t"), "fp8"),
    (re.compile(r"bfloat16|bhalf|ptrbf16|bf16|DF16b"), "bf16"),  # DF16b, DF16_: mangled by AMD's compiler
    (re.compile(r"half_t|__half|_Float16|ptrf16|fp16|DF16_"), "fp16"),
)

# Tensile's type letters after the index names, the input's first. F8 and B8 are fp8's two formats, B is bfloat16.
TENSILE = re.compile(r"Cijk_A[a-z]+_B[a-z]+_(?:(F8|B8)|(I8|4xi8)|(B)|(H)|(S|C)|(D|Z))")
TENSILE_WORDS = ("fp8", "int8", "bf16", "fp16", "fp32", "fp64")

# Kernels that never multiply matrices: copies, collectives, compiled element-wise code, and PyTorch's own kernels
# except those in the table of products.
PLAIN = re.compile(
    r"^\[?(?:CUDA )?[mM]em(?:set|cpy)|^__amd_rocclr_|^nccl|^triton_(?:poi|per|red)_|elementwise_kernel"
    r"|at::native::|at_cuda_detail::|\bcub::|softmax_warp|kernelPointwiseApply|kernelReduceAll"
)

# Helper kernels that occur only in products: they get 0 even where the op is unknown.
OF_PRODUCTS = frozenset({"reduce", "fill", "cast", "epilogue", "gates"})


def tensor_core(name: str, family: str, dtype: str = "") -> TensorCore | None:
    """Whether and how a kernel used tensor cores; None where neither op nor name indicates a matrix product.

    ``family`` is that of the innermost op (``model.FAMILY``), empty where unknown. ``dtype`` is that of its first
    operand, as torch names it; it decides where the kernel's name does not. AMD's matrix cores have ``fp32``, too.
    """
    return _tensor_core(name, family in MATRIX, dtype.removeprefix("torch."))


@lru_cache(maxsize=65536)
def _tensor_core(name: str, in_product: bool, dtype: str) -> TensorCore | None:
    helper = find_helper(name)
    if helper:
        return NONE if in_product or helper.kind in OF_PRODUCTS else None
    found = find_product(name)
    plain = PLAIN.search(name)
    if found is None or (found[0].unit == "unknown" and plain):
        other = NONE if plain else UNKNOWN
        return other if in_product else None
    product, match = found
    if product.unit == "fma":
        return NONE
    if product.unit == "unknown":
        return UNKNOWN
    if product.unit == "triton":
        return _guess(dtype, _precision(product, match, name))
    precision = _precision(product, match, name)
    if precision == "fp32" and "p" in match.re.groupindex:  # NVIDIA's f32: no tensor core has it
        return NONE
    return TensorCore(1, precision or PRECISION_OF_DTYPE.get(dtype, ""))


def _guess(dtype: str, named: str) -> TensorCore:
    """Triton's ``tl.dot`` runs narrow types on tensor cores; for float32 that depends on a flag that no name shows."""
    precision = named or PRECISION_OF_DTYPE.get(dtype, "")
    return TensorCore(1, precision, guess=True) if precision else TensorCore(None, guess=True)


def _precision(product: Product, match: re.Match[str], name: str) -> str:
    if product.precision == "tensile":
        letters = TENSILE.search(name)
        return TENSILE_WORDS[letters.lastindex - 1] if letters and letters.lastindex else ""
    if product.precision == "scan":
        return next((word for regex, word in SCAN if regex.search(name)), "")
    text: str = match.groupdict().get("p") or ""
    return product.precision or PRECISION_OF_WORD.get(text.lower(), "")
