"""Types: which arithmetic is floating point, and which type a result has, by torch.result_type's rules."""

from typing import Any

from pyprof.dtypes import HALF, INTEGERS, ITEM_BYTES, OF_NUMBER
from pyprof.prof.ops.model import Tensor

REAL_OF = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
COMPLEX_OF = {real: name for name, real in REAL_OF.items()}


def dtype_name(argument: Any) -> str | None:
    """A dtype argument in any of the captures' spellings: ``bfloat16``, ``torch.bfloat16``, ``15``. None if absent.

    The argument ``out=``, which overloads have in the dtype's place, has its own dtype.
    """
    if isinstance(argument, Tensor):
        return argument.dtype or None
    if isinstance(argument, str) and argument:
        name = argument.removeprefix("torch.")
        return name if name in ITEM_BYTES else None
    if isinstance(argument, int) and not isinstance(argument, bool):
        return OF_NUMBER.get(argument)
    return None


def floating(dtype: str) -> bool:
    """Whether arithmetic in this dtype is floating point; assumed for an unknown dtype."""
    return dtype != "bool" and dtype not in INTEGERS


def accumulator(dtype: str) -> str:
    """The dtype of saved statistics on CUDA: float32 for half types (at::acc_type), otherwise the dtype itself."""
    return "float32" if dtype in HALF else dtype


def _rank(dtype: str) -> int:
    """The category in torch.result_type: 0 bool, 1 integer, 2 floating point, 3 complex."""
    if dtype == "bool":
        return 0
    if dtype in INTEGERS:
        return 1
    return 3 if dtype.startswith("complex") else 2


def promoted(a: str, b: str) -> str:
    """torch.promote_types: the smallest dtype that holds both; empty if one of them is unknown."""
    if a == b or not a or not b:
        return a if a == b else ""
    low, high = sorted((a, b), key=_rank)
    if _rank(low) != _rank(high):
        return _complex_of(low, high) if _rank(high) == 3 and _rank(low) == 2 else high
    if _rank(a) == 1:
        return _integers(a, b)
    if {a, b} == HALF:
        return "float32"
    return max(a, b, key=lambda name: ITEM_BYTES.get(name, 0))


def _complex_of(real: str, complex_: str) -> str:
    least = {"float64": "complex128", "float32": "complex64", "bfloat16": "complex64"}.get(real, "complex32")
    return max(least, complex_, key=lambda name: ITEM_BYTES[name])


def _integers(a: str, b: str) -> str:
    """A signed and an unsigned type of at least its size give the next larger signed type: uint8 + int8 = int16."""
    if a.startswith("u") == b.startswith("u"):
        return max(a, b, key=lambda name: ITEM_BYTES[name])
    unsigned, signed = sorted((a, b), reverse=True)
    if ITEM_BYTES[signed] > ITEM_BYTES[unsigned]:
        return signed
    return {"uint8": "int16", "uint16": "int32", "uint32": "int64"}.get(unsigned, "float32")


def type_of_number(value: Any) -> str:
    """The dtype of a Python number in an expression; floats have the default dtype, float32."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    return "complex64" if isinstance(value, complex) else "float32"


def result_dtype(*operands: Any) -> str:
    """torch.result_type: tensors with dimensions decide; 0-d tensors, then numbers, only raise the category.

    Source: c10 and aten/src/ATen/native/TypeProperties.cpp, combine_categories. In nearly all programs,
    an unknown operand is a number or a 0-d tensor of the same category, so it is ignored.
    """
    states: list[str | None] = [None, None, None]  # with dimensions, 0-d, numbers
    for operand in operands:
        if isinstance(operand, Tensor):
            place, dtype = (0 if operand.shape else 1), operand.dtype
        elif isinstance(operand, (bool, int, float, complex)):
            place, dtype = 2, type_of_number(operand)
        else:
            continue
        before = states[place]
        states[place] = dtype if before is None else promoted(before, dtype)
    result = states[0]
    for lower in states[1:]:
        result = _combined(result, lower)
    return result or ""


def _combined(higher: str | None, lower: str | None) -> str | None:
    if not higher or not lower:
        return lower if higher is None else higher
    if _rank(lower) <= _rank(higher) and higher != "bool":
        return higher
    if _rank(higher) == 2:  # a complex number and a real tensor: the result keeps the tensor's precision
        return {"float16": "complex32", "float64": "complex128"}.get(higher, "complex64")
    return promoted(higher, lower)


def addition_flop(tensor: Tensor) -> int:
    """FLOPs of one addition: 1, for complex numbers 2, for integers and booleans 0."""
    if not floating(tensor.dtype):
        return 0
    return 2 if tensor.is_complex else 1


def product_flop(tensor: Tensor) -> int:
    """FLOPs of one multiplication: 1, for complex numbers 6 (4 products, 2 sums), for integers and booleans 0."""
    if not floating(tensor.dtype):
        return 0
    return 6 if tensor.is_complex else 1
