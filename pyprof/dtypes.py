"""One table of tensor element types: torch's names, sizes, numbers, and their C++ spellings.

The short names used for matrix products (``bf16``) are in ``prof/kernels/precision.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """One type.

    ``number`` and ``scalar_type`` are from c10/core/ScalarType.h (torch 2.13). A Kineto trace has the number as the
    value of a dtype argument; torch.distributed's records have the name. ``cpp``: the C++ spellings in Kineto's
    "Input type" (torch/csrc/profiler/util.cpp of 1.8 to 2.13) and in the template arguments of kernels.
    """

    nbytes: int  # bytes per element
    number: int | None = None
    scalar_type: str = ""
    cpp: tuple[str, ...] = ()


DTYPES: Mapping[str, DType] = {
    "bool": DType(1, 11, "Bool", ("bool",)),
    "uint8": DType(1, 0, "Byte", ("unsigned char",)),
    "int8": DType(1, 1, "Char", ("signed char",)),
    "int16": DType(2, 2, "Short", ("short", "short int")),
    "uint16": DType(2, 27, "UInt16", ("unsigned short", "short unsigned int")),
    "int32": DType(4, 3, "Int", ("int",)),
    "uint32": DType(4, 28, "UInt32", ("unsigned int",)),
    "int64": DType(8, 4, "Long", ("long", "long int", "long long", "__int64")),
    "uint64": DType(8, 29, "UInt64", ("unsigned long", "long unsigned int")),
    "float16": DType(2, 5, "Half", ("c10::Half", "__half", "half", "cutlass::half_t")),
    "bfloat16": DType(2, 15, "BFloat16", ("c10::BFloat16", "__nv_bfloat16", "nv_bfloat16", "cutlass::bfloat16_t")),
    "float32": DType(4, 6, "Float", ("float",)),
    "float64": DType(8, 7, "Double", ("double",)),
    "complex32": DType(4, 8, "ComplexHalf", ("c10::complex<c10::Half>",)),
    "complex64": DType(8, 9, "ComplexFloat", ("c10::complex<float>", "cuComplex")),
    "complex128": DType(16, 10, "ComplexDouble", ("c10::complex<double>", "cuDoubleComplex")),
    "float8_e4m3fn": DType(1, 24, "Float8_e4m3fn", ("c10::Float8_e4m3fn",)),
    "float8_e5m2": DType(1, 23, "Float8_e5m2", ("c10::Float8_e5m2",)),
    "float8_e4m3fnuz": DType(1, 26, "Float8_e4m3fnuz", ("c10::Float8_e4m3fnuz",)),
    "float8_e5m2fnuz": DType(1, 25, "Float8_e5m2fnuz", ("c10::Float8_e5m2fnuz",)),
    "float8_e8m0fnu": DType(1, 44, "Float8_e8m0fnu", ("c10::Float8_e8m0fnu",)),
    "float4_e2m1fn_x2": DType(1, 45, "Float4_e2m1fn_x2", ("c10::Float4_e2m1fn_x2",)),
    "qint8": DType(1, 12, "QInt8", ("c10::qint8",)),
    "quint8": DType(1, 13, "QUInt8", ("c10::quint8",)),
    "qint32": DType(4, 14, "QInt32", ("c10::qint32",)),
}

# Types with a known size but an unknown meaning: those of kernels that move bytes (prof/kernels/operand_dtypes.py).
OPAQUE: Mapping[int, str] = {size: f"opaque{size}" for size in (1, 2, 4, 8, 16)}

ITEM_BYTES: Mapping[str, int] = {
    **{name: dtype.nbytes for name, dtype in DTYPES.items()},
    **{name: size for size, name in OPAQUE.items()},
}
OF_NUMBER: Mapping[int, str] = {dtype.number: name for name, dtype in DTYPES.items() if dtype.number is not None}
BYTES_OF_SCALAR_TYPE: Mapping[str, int] = {dtype.scalar_type: dtype.nbytes for dtype in DTYPES.values()}
OF_CPP: Mapping[str, str] = {word: name for name, dtype in DTYPES.items() for word in dtype.cpp}

# Triton's names of types (triton/_utils.py, type_canonicalisation_dict of 3.6)
TRITON: Mapping[str, str] = {
    "*fp64": "float64", "*fp32": "float32", "*fp16": "float16", "*bf16": "bfloat16", "*i64": "int64", "*i32": "int32",
    "*i16": "int16", "*i8": "int8", "*u8": "uint8", "*i1": "bool", "*u16": "uint16", "*u32": "uint32", "*u64": "uint64",
    "*fp8e4nv": "float8_e4m3fn", "*fp8e5": "float8_e5m2", "*fp8e4b8": "float8_e4m3fnuz", "*fp8e5b16": "float8_e5m2fnuz",
}  # fmt: skip
INTEGERS = frozenset(name for name in DTYPES if name.startswith(("int", "uint")))
HALF = frozenset({"float16", "bfloat16"})  # torch computes on these types in float32


def cpp_bytes(word: str) -> int | None:
    """Bytes per element of a C++ type; None if the word is not a tensor element type."""
    return ITEM_BYTES[OF_CPP[word]] if word in OF_CPP else None
