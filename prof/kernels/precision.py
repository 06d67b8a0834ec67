"""The number formats in which matrix products run, in one table, and the units of a GPU that run them.

A precision (``bf16``) is the format of the multiplied numbers. A unit is the hardware that multiplies them: ``fp32`` is
the vector unit, ``tc_bf16`` the tensor cores (AMD: matrix cores). ``pyprof/dtypes.py`` has torch's and C++'s names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Precision:
    """One number format.

    ``stored``: the dtype of a product's operands in memory if the kernel's name has only the precision.
    ``dtypes``: torch's types whose products run only in this precision. ``words``: the libraries' spellings in kernel
    names, in lower case, with the dtype that each word means (empty: unknown).
    """

    bits: int  # bits per stored number
    stored: str
    dtypes: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    vector: bool = False  # whether the vector unit has its own peak for it
    tensor: bool = True  # whether tensor cores have a known peak for it
    since: int | None = None  # NVIDIA's compute capability × 10 of the first tensor cores that support it


_FLOAT16_WORDS = dict.fromkeys(("f16", "fp16", "half_t"), "float16")
_BFLOAT16_WORDS = dict.fromkeys(("bf16", "bfloat16", "bfloat16_t"), "bfloat16")
_FLOAT8_WORDS = dict.fromkeys(("f8", "fp8", "mxe4m3", "mxe2m1mxe4m3"), "") | {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}
_INT8_WORDS = {"i8": "int8", "s8": "int8", "int8": "int8", "u8": "uint8"}
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")

# float32 has no row of its own in ``dtypes``: its products may be rounded to tf32 or not.
PRECISIONS: Mapping[str, Precision] = {
    "fp64": Precision(64, "float64", ("float64",), {"f64": "float64"}, vector=True),
    "fp32": Precision(32, "float32", (), {"f32": "float32"}, vector=True),
    "tf32": Precision(32, "float32", (), {"tf32": "float32"}, since=80),
    "fp16": Precision(16, "float16", ("float16",), _FLOAT16_WORDS, vector=True, since=70),
    "bf16": Precision(16, "bfloat16", ("bfloat16",), _BFLOAT16_WORDS, vector=True, since=80),
    "fp8": Precision(8, "opaque1", _FLOAT8, _FLOAT8_WORDS, since=89),
    "fp6": Precision(6, "", (), dict.fromkeys(("e3m2", "e2m3", "f6"), "")),
    "fp4": Precision(4, "", ("float4_e2m1fn_x2",), dict.fromkeys(("e2m1", "f4", "fp4", "mxe2m1", "mxfp4"), "")),
    "int8": Precision(8, "int8", ("int8", "uint8"), _INT8_WORDS, since=72),
    "int4": Precision(4, "", (), {"i4": ""}, tensor=False),
}

PRECISION_OF_WORD: Mapping[str, str] = {word: name for name, row in PRECISIONS.items() for word in row.words}
PRECISION_OF_DTYPE: Mapping[str, str] = {dtype: name for name, row in PRECISIONS.items() for dtype in row.dtypes}
DTYPE_OF_WORD: Mapping[str, str] = {
    **{word: dtype for row in PRECISIONS.values() for word, dtype in row.words.items() if dtype},
    "i32": "int32",
    "i64": "int64",
    "cf32": "complex64",
    "cf64": "complex128",  # stored, and never multiplied as such
}

# The precision on tensor cores if it is not in the kernel's name: float32 can only be rounded.
_ROUNDED = {"float32": "tf32", "complex64": "tf32", "complex128": "fp64"}
ROUNDED_PRECISION: Mapping[str, str] = {**PRECISION_OF_DTYPE, **_ROUNDED}
# The precision in which a CPU computes these types; it computes all other types in fp32.
_HOST = ("fp64", "fp16", "bf16")
HOST_PRECISION: Mapping[str, str] = {dtype: name for dtype, name in ROUNDED_PRECISION.items() if name in _HOST}

_TENSOR = "tc_"
UNITS = (
    *(name for name, row in PRECISIONS.items() if row.vector),
    *(f"{_TENSOR}{name}" for name, row in PRECISIONS.items() if row.tensor),
)


def tensor_unit(precision: str) -> str:
    """The tensor-core unit of a precision, as a key of ``UNITS``; empty for an empty precision."""
    return f"{_TENSOR}{precision}" if precision else ""


def on_tensor_cores(unit: str) -> bool:
    return unit.startswith(_TENSOR)


def precision_of(unit: str) -> str:
    """The precision in which a unit computes: ``bf16`` for ``tc_bf16``, ``fp32`` for ``fp32``."""
    return unit.removeprefix(_TENSOR)


def unit_name(unit: str) -> str:
    """A unit as every output writes it.

    >>> unit_name("tc_bf16"), unit_name("fp32"), unit_name("unknown")
    ('bf16 tensor cores', 'fp32', 'unknown precision')
    """
    if unit == "unknown":
        return "unknown precision"
    return f"{precision_of(unit)} tensor cores" if on_tensor_cores(unit) else unit
