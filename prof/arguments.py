"""An op's arguments, as the capture tells them, for its model.

Where they come from, most trusted first:

1. Kineto's cpu_op: shapes, dtypes, strides and the values of scalars;
2. NVTX ranges: shapes only, in schema order. `[]` may be a scalar, a 0-d tensor or None, so it is ``UNKNOWN``; dtypes
   come from the marker around the op (by shape, or its autocast dtype for products), else from the kernel's name;
3. no ranges of the dispatcher, only a marker: the API call's own arguments.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pyprof.marker import Marker
from pyprof.prof.model import UNKNOWN, Tensor

# ops whose arguments are lists of tensors, which NVTX ranges write one after the other: how many lists there are
LISTS = {
    "_foreach_copy_": 2, "_foreach_add_": 2, "_foreach_mul_": 2, "_foreach_sub_": 2, "_foreach_div_": 2,
    "_foreach_lerp_": 2, "_foreach_addcmul_": 3, "_foreach_addcdiv_": 3, "_fused_adamw_": 5, "_fused_adam_": 5,
    "_fused_sgd_": 3,
}  # fmt: skip
INDEX = {"embedding": (1,), "index_select": (2,), "gather": (2,), "nll_loss_forward": (1,), "nll_loss_backward": (2,),
         "embedding_dense_backward": (1,), "embedding_backward": (1,)}  # fmt: skip
INDEX_LATER = {"scatter": (2,), "scatter_add": (2,), "index_add": (2,)}


def recorded(sizes: str, dtypes: str, strides: str, values: str, hint: Mapping[Any, str], op: str) -> tuple[Any, ...]:
    """Arguments of an op that the dispatcher recorded: JSON lists in schema order.

    ``hint`` gives dtypes where the capture has none: by shape, and under ``None`` for every other tensor.
    """
    shapes = json.loads(sizes)
    if not dtypes:
        return _from_sizes(shapes, hint, op)
    kinds = json.loads(dtypes)
    steps = json.loads(strides) if strides else [None] * len(shapes)
    texts = json.loads(values) if values else [None] * len(shapes)
    return tuple(_argument(*one) for one in zip(shapes, kinds, steps, texts, strict=False))


def _argument(shape: Any, kind: Any, stride: Any, text: Any) -> Any:
    if isinstance(kind, list):  # a list of tensors
        steps = stride if isinstance(stride, list) and len(stride) == len(shape) else [None] * len(shape)
        return tuple(_tensor(s, k, t) for s, k, t in zip(shape, kind, steps, strict=False))
    if kind and kind not in VALUES:
        return _tensor(shape, kind, stride)
    return value(text, kind) if isinstance(text, str) else UNKNOWN if kind in VALUES else None


# Kineto's words for what is no tensor
VALUES = frozenset({"Scalar", "ScalarList", "GenericList", "TensorList", "OptionalTensorList"})


def _tensor(shape: Any, dtype: str, stride: Any) -> Tensor:
    strides = tuple(stride) if isinstance(stride, list) and len(stride) == len(shape) else None
    return Tensor(tuple(shape), dtype, strides)


def value(text: str, kind: str = "Scalar") -> Any:
    """A scalar or list of scalars from its text. ``""`` is None.

    >>> value("[1, 2]", "ScalarList"), value("False"), value("1e-05"), value("")
    ([1, 2], False, 1e-05, None)
    """
    if not text:
        return UNKNOWN if kind in ("GenericList", "TensorList", "OptionalTensorList") else None
    if text in ("True", "False"):
        return text == "True"
    if text[0] == "[" and text[-1] == "]":
        items = [item.strip() for item in text[1:-1].split(",")]
        return [value(item) for item in items if item]
    try:
        number = float(text)
    except ValueError:
        return text
    plain = text.lstrip("+-").isdigit()
    return int(text) if plain else number


def _from_sizes(shapes: Sequence[Any], hint: Mapping[Any, str], op: str) -> tuple[Any, ...]:
    lists = LISTS.get(op)
    if lists:
        return _lists(shapes, lists, hint)
    indices = INDEX.get(op, INDEX_LATER.get(op, ()))
    return tuple(_sized(s, "int64" if i in indices else "", hint) for i, s in enumerate(shapes))


def _sized(shape: Any, dtype: str, hint: Mapping[Any, str]) -> Any:
    if not shape:
        return UNKNOWN
    return Tensor(tuple(shape), dtype or hint.get(tuple(shape)) or hint.get(None, ""))


def _lists(shapes: Sequence[Any], lists: int, hint: Mapping[Any, str]) -> tuple[Any, ...]:
    """Tensors of ``lists`` equally long lists, one list after the other; scalars follow as `[]`."""
    count = len(shapes)
    while count and not shapes[count - 1]:
        count -= 1
    if count % lists or not count:
        return (UNKNOWN,)
    length = count // lists
    parts = [shapes[i * length : (i + 1) * length] for i in range(lists)]
    if parts[0] != parts[-1] and any(part != parts[0] for part in parts[:3]):
        return (UNKNOWN,)  # cut in the middle: the lists cannot be told apart
    return tuple(tuple(Tensor(tuple(s), hint.get(None, "")) for s in part) for part in parts)


def marked(marker: Marker) -> tuple[Any, ...]:
    """Arguments of an API call from its marker, in call order."""
    return tuple(_marked(argument, marker) for argument in marker.args)


def _marked(argument: Mapping[str, Any], marker: Marker) -> Any:
    kind = argument.get("type", "")
    if kind == "tensor":
        shape = tuple(argument.get("shape", ()))
        stride = argument.get("stride")
        return Tensor(shape, str(argument.get("dtype", "")), tuple(stride) if stride else None)
    if "items" in argument:
        return tuple(_marked(item, marker) for item in argument["items"])
    found = argument.get("value", UNKNOWN)
    return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}.get(found, found) if isinstance(found, str) else found


def hints(markers: Sequence[Marker], matrix: bool) -> dict[Any, str]:
    """Dtypes by shape from the markers around an op; under autocast a product's operands have autocast's dtype."""
    found: dict[Any, str] = {}
    for marker in markers:
        for tensor in _tensors(marked(marker)):
            if marker.autocast and matrix and tensor.dtype.startswith("float"):
                found[None] = found[tensor.shape] = marker.autocast
            else:
                found.setdefault(tensor.shape, tensor.dtype)
    if markers and None not in found:
        floats = {dtype for dtype in found.values() if "float" in dtype}
        if len(floats) == 1:
            found[None] = floats.pop()
    return found


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    return [t for v in values for t in ([v] if isinstance(v, Tensor) else _tensors(v) if isinstance(v, tuple) else [])]
