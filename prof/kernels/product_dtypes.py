"""The dtypes of the operands of matrix products, read from the kernel names."""

import re

from pyprof.dtypes import OF_CPP
from pyprof.prof.kernels.precision import DTYPE_OF_WORD, PRECISIONS
from pyprof.prof.kernels.tensor_cores import tensor_core
from pyprof.prof.kernels.type_names import NOTHING, Dtypes, parameters

# One letter per type. BLAS has one for all; nvjet has one each for A and B, the accumulator and the output (five
# letters where A, B and C are spelled separately).
BLAS = {"h": "float16", "s": "float32", "d": "float64", "c": "complex64", "z": "complex128"}
NVJET = {"t": "bfloat16", "h": "float16", "s": "float32", "d": "float64", "q": "float8_e4m3fn", "r": "float8_e5m2"}
_NVJET = re.compile(r"nvjet_(?:sm\d+_)?([a-z]{3}|[a-z]{5})_")
_XWORD = r"(c?(?:bf16|f16|f32|f64|e4m3|e5m2|i8|u8|i32))"
_XMMA = re.compile(rf"xmma_\w*?_{_XWORD}{_XWORD}_c?(?:bf16|tf32|f16|f32|f64|i8|u8|e4m3|e5m2){_XWORD}_")
_WORD = r"(?:bf16|fp16|f16|tf32|s8|u8|f64)"
# CUTLASS's procedural names: [C_]accumulator, instruction, [A]; a type that equals the accumulator's is left out.
_PROCEDURAL = re.compile(
    rf"(?:tensorop|ampere|volta|turing)_(?:({_WORD})_)?([shdi])\d{{3,6}}({_WORD})?(?:gemm|cudnn|[fdw]prop|[dw]grad)"
    rf"(?:_(?:relu|optimized|analytic|fixed_channels|few_channels|forwardCompat))*(?:_({_WORD})(?=_|$))?"
)
_PLAIN = re.compile(r"(?:simt|maxwell|pascal|volta|turing|ampere)_([sdhcz])(?:gemm|cudnn)|^void (s)gemm_largek")
# Vendors' templates: the floating-point parameters count only where they all have the same type.
_UNIFORM = re.compile(
    r"(?:\b|_)(?:implicit_convolve_sgemm|explicit_convolve_sgemm|dgrad2d_\w+|dgrad_\w*engine|wgrad\w*_engine\w*"
    r"|conv2d_\w+|conv_depthwise\w+|gemv\w*|gemvNSP_kernel|gemmk1_kernel|gemmSN_\w+|dot_kernel|winogradForwardOutput\w*)<"
)
# Operands of fused attention whose type differs from the data's: log-sum-exp, cumulative lengths.
ATTENTION = {
    "_flash_attention_forward": {3: "int32", 4: "int32"},
    "_efficient_attention_forward": {4: "int32", 5: "int32"},
    "_cudnn_attention_forward": {4: "int32", 5: "int32"},
    "_flash_attention_backward": {5: "float32", 6: "int32", 7: "int32"},
    "_scaled_dot_product_flash_attention_backward": {5: "float32", 6: "int32", 7: "int32"},
    "_efficient_attention_backward": {6: "int32", 7: "int32", 10: "float32"},
    "_scaled_dot_product_efficient_attention_backward": {6: "float32"},
    "_cudnn_attention_backward": {5: "float32", 9: "int32", 10: "int32"},
    "_scaled_dot_product_cudnn_attention_backward": {5: "float32", 9: "int32", 10: "int32"},
}

# Types of the operands alone: results, scales and biases are of wider ones.
ONE_BYTE = frozenset({"int8", "uint8", "float8_e4m3fn", "float8_e5m2", "opaque1"})


def product(text: str, name: str, op: str, family: str) -> Dtypes:
    """The operand dtypes that the name of a matrix-product kernel reveals; ``text`` is the name in CUPTI's spelling."""
    if family == "attention":
        dtype = _attention(text, name, family)
        if dtype in ONE_BYTE:
            # A paged kernel reads k and v from the cache; those of the op are the new tokens', before their cast.
            operands = 1 if re.search("paged|unified_attention", text + op, re.IGNORECASE) else 3
            return Dtypes(at=tuple((position, dtype) for position in range(operands)))
        return Dtypes(dtype, tuple(ATTENTION.get(op, {}).items()), dtype, _causal(text, op)) if dtype else NOTHING
    if family not in ("gemm", "conv"):
        return NOTHING  # each kernel of a recurrent op works on a part of its operands
    source, out = _operands(text, name, family)
    if source in ONE_BYTE:
        return Dtypes(at=((0, source), (1, source)), out=out)
    if out and out != source and op in ("addmm", "baddbmm", "addmv", "addbmm"):
        return Dtypes(source, ((0, ""),), out)  # self may be of either type
    return Dtypes(source, (), out)


def _attention(text: str, name: str, family: str) -> str:
    if "_sdpa_" in text and re.search(r"_f16_", text):
        return "opaque2"  # cuDNN writes f16 for bfloat16 too (H200, cuDNN 9)
    found = re.search(r"fmha_cutlass[FB]_(f32|f16|bf16)_", text)
    if found:
        return DTYPE_OF_WORD[found[1]]
    use = tensor_core(name, family)
    return _stored(use.precision) if use else ""


_FLASH = re.compile(r"\bflash_(?:fwd|bwd)\w*kernel<")
IS_CAUSAL = {"_flash_attention_forward": 8, "_flash_attention_backward": 11}


def _causal(text: str, op: str) -> tuple[tuple[int, bool], ...]:
    """FlashAttention 2: <traits, is_dropout, is_causal, is_local, ..>; both seen on H100 and checked with Kineto."""
    match = _FLASH.search(text)
    words = parameters(text, match) if match else []
    if op not in IS_CAUSAL or len(words) < 4 or words[3] not in ("false", "0"):
        return ()
    return ((IS_CAUSAL[op], words[2] in ("true", "1")),)


def _operands(text: str, name: str, family: str) -> tuple[str, str]:
    """The type of a product's operands and the type of its result."""
    for find in (_nvjet, _xmma, _procedural):
        found = find(text)
        if found is not None:
            return found
    plain = _PLAIN.search(text)
    if plain:
        letter = plain[1] or plain[2]
        return ("", "") if family == "conv" and letter in "cz" else (BLAS[letter], "")  # complex values inside an FFT
    uniform = _UNIFORM.search(text)
    if uniform:
        kinds = {OF_CPP[word] for word in parameters(text, uniform) if "float" in OF_CPP.get(word, "")}
        return (kinds.pop() if len(kinds) == 1 else "", "")
    use = tensor_core(name, family)
    return (_stored(use.precision) if use and not use.guess else "", "")


def _stored(precision: str) -> str:
    return PRECISIONS[precision].stored if precision in PRECISIONS else ""


def _nvjet(text: str) -> tuple[str, str] | None:
    match = _NVJET.search(text)
    if not match:
        return None
    letters = match[1]
    if len(letters) == 5 and letters[0] != letters[1]:
        return "", NVJET.get(letters[-1], "")  # column-major: the operand order is not in the name
    return NVJET.get(letters[0], ""), NVJET.get(letters[-1], "")


def _xmma(text: str) -> tuple[str, str] | None:
    match = _XMMA.search(text)
    return (DTYPE_OF_WORD.get(match[1], ""), DTYPE_OF_WORD.get(match[2], "")) if match else None


def _procedural(text: str) -> tuple[str, str] | None:
    match = _PROCEDURAL.search(text)
    if not match:
        return None
    result, accumulator, rounded, operand = match.groups()
    if rounded:  # s1688tf32gemm, s16816bf16gemm: float32, rounded on its way into the product
        return "float32", ""
    if accumulator == "i":
        return DTYPE_OF_WORD["u8" if operand == "u8" else "i8"], DTYPE_OF_WORD[result or "i32"]
    kind = BLAS[accumulator]
    return DTYPE_OF_WORD.get(operand or "", kind), DTYPE_OF_WORD.get(result or "", kind)
