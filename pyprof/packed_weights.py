"""The sizes of packed weights: of PyTorch's int8 modules, whose ops take an object in place of a weight."""

import re
import weakref
from typing import Any

_PACKED = re.compile(r"__torch__\.torch\.classes\.quantized\.(?:Linear|Conv(?P<rank>[123])d)PackedParamsBase")
_MOVES = ("stride", "padding", "dilation", "groups", "transpose", "output_padding")
# What was found about each object, by its id: to unpack a weight copies it, and the sizes of an object never change.
# These objects cannot be compared, so they cannot be the keys of a WeakKeyDictionary.
_known: dict[int, tuple[Any, ...] | None] = {}


def unpacked(value: Any) -> tuple[Any, ...] | None:
    """The weight's shape and dtype (``qint8``), and of a convolution also stride, padding, dilation, groups, whether it
    is transposed, and output padding. None for a ``torch.ScriptObject`` that is no packed weight.

    A running profiler records nothing of it. Torch's modes must be off.
    """
    key = id(value)
    if key not in _known:
        _known[key] = _unpacked(value)
        weakref.finalize(value, _known.pop, key, None)
    return _known[key]


def _unpacked(value: Any) -> tuple[Any, ...] | None:
    import torch

    kind = _PACKED.match(value._type().qualified_name())
    if kind is None:
        return None
    form, names = ("linear", ()) if kind["rank"] is None else (f"conv{kind['rank']}d", _MOVES)
    torch._C._autograd._enable_record_function(False)
    try:
        weight = getattr(torch.ops.quantized, f"{form}_unpack")(value)[0]
        moves = [getattr(torch.ops.quantized, f"{form}_{name}")(value) for name in names]
    finally:
        torch._C._autograd._enable_record_function(True)
    shape, dtype = tuple(weight.shape), str(weight.dtype).removeprefix("torch.")
    return shape, dtype, *(tuple(each) if isinstance(each, list) else each for each in moves)
