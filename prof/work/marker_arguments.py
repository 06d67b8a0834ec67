"""What the marker of the user's call tells of an op's arguments where ranges and Kineto are silent.

Flags of attention, the indices of ``x[...]``, and the numbers of an op's own call. A marker that leaves open which of
its arguments is which (a positional one without a sure name, a cut list of arguments) tells nothing of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyprof.marker import Marker
from pyprof.prof.ops.model import UNKNOWN, Tensor
from pyprof.prof.work.arguments import marked

# models' names of arguments -> the names that F.scaled_dot_product_attention has for them, and their defaults there
# (a mask type of 1 is causal: ATen/native/transformers/attention.cpp)
MARKED = {"causal": "is_causal", "mask_type": "is_causal", "dropout": "dropout_p"}
MARKED_DEFAULTS = {"is_causal": False, "dropout_p": 0.0}

# ops whose own call tells what ranges do not, in the dispatcher's order; what the call leaves out is as given here
OPTIONS: dict[str, tuple[tuple[str, Any], ...]] = {
    "topk": (("k", UNKNOWN), ("dim", -1), ("largest", True), ("sorted", True)),
    "cumsum": (("dim", UNKNOWN), ("dtype", None)),
    "cumprod": (("dim", UNKNOWN), ("dtype", None)),
    **dict.fromkeys(("sum", "mean", "nansum", "nanmean"), (("dim", None), ("keepdim", False), ("dtype", None))),
    **dict.fromkeys(("amax", "amin", "argmax", "argmin", "logsumexp"), (("dim", None), ("keepdim", False))),
    **dict.fromkeys(("_softmax", "_log_softmax"), (("dim", UNKNOWN), ("half_to_float", False))),
}
NUMPY = {"axis": "dim", "keepdims": "keepdim"}  # names that PyTorch takes as well

SUBSCRIPTS = ("__getitem__", "__setitem__")
_SLICE = re.compile(r"(-?\d{1,18})?:(-?\d{1,18})?:([1-9]\d{0,17})?", re.ASCII)


def told_by_marker(arguments: tuple[Any, ...], parameters: Sequence[str], markers: Sequence[Marker]) -> tuple[Any, ...]:
    """Fill what the ranges do not tell from the marker of the user's call: attention's causal flag, for one.

    ``parameters`` are the model's own names of the arguments. A flag that the call did not give has its default.
    """
    if not markers:
        return arguments
    told = {str(a["name"]): a.get("value", UNKNOWN) for a in markers[-1].args}
    attention = _attention(markers[-1].op, told) if all(told) else {}
    filled = list(arguments)
    for position, (name, argument) in enumerate(zip(parameters, arguments, strict=False)):
        api = MARKED.get(name, "")
        if argument is UNKNOWN and api in attention:
            flag = attention[api]
            filled[position] = int(flag) if name == "mask_type" and isinstance(flag, bool) else flag
        elif name == "positions" and not isinstance(argument, (tuple, Tensor)) and markers[-1].op in SUBSCRIPTS:
            filled[position] = subscript(markers[-1], arguments[0])
    return tuple(filled)


def _attention(op: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that attention runs with, by a marker of scaled_dot_product_attention or of nn.MultiheadAttention's
    function, which asks for a causal kernel where there is nothing else to mask and no weights to return."""
    if op == "scaled_dot_product_attention":
        return {name: told.get(name, value) for name, value in MARKED_DEFAULTS.items()}
    if op != "multi_head_attention_forward":
        return {}
    causal = told.get("is_causal", False) is True and told.get("need_weights", True) is False
    found: dict[str, Any] = {"is_causal": causal and told.get("key_padding_mask") is None}
    if told.get("training", True) is False:
        found["dropout_p"] = 0.0
    elif "dropout_p" in told:
        found["dropout_p"] = told["dropout_p"]
    return found


def own_options(op: str, arguments: tuple[Any, ...], markers: Sequence[Marker]) -> tuple[Any, ...]:
    """Numbers that the ranges leave out, from the marker of the op's own call on a tensor of the same shape."""
    options = OPTIONS.get(op, ())
    if not options or not markers or len(arguments) != len(options) + 1:
        return arguments
    marker, self = markers[-1], arguments[0]
    x, *given = marked(marker) or (None,)
    if marker.op.strip("_") != op.strip("_") or not (isinstance(x, Tensor) and isinstance(self, Tensor)):
        return arguments
    names = [NUMPY.get(str(a["name"]), str(a["name"])) for a in marker.args[1:]]
    if x.shape != self.shape or not all(names):
        return arguments
    told = dict(zip(names, given, strict=True))
    pairs = zip(arguments[1:], options, strict=True)
    return (self, *(told.get(name, usual) if argument is UNKNOWN else argument for argument, (name, usual) in pairs))


def subscript(call: Marker, self: Any) -> Any:
    """The indices that ``x[...]`` gives to aten::index and index_put: tensors, and None for a dimension that is kept.

    ``call`` is of x and the key, ``self`` is what is indexed: a view of x, without what whole numbers choose and what
    slices leave out. Where that view's shape is another, or the key holds what is not told here (lists, numbers that
    are tensors), the answer is UNKNOWN. Source: applySlicing in torch/csrc/autograd/python_variable_indexing.cpp.
    """
    x, key = (*marked(call), UNKNOWN, UNKNOWN)[:2]
    if not isinstance(x, Tensor) or not isinstance(self, Tensor) or key is UNKNOWN or call.args[1]["type"] == "list":
        return UNKNOWN
    items = key if isinstance(key, tuple) else (key,)
    taken = sum(_dimensions(item) for item in items)
    found: list[Tensor | None] = []
    view: list[int] = []
    left = list(x.shape)
    for item in items:
        if item == "Ellipsis":
            kept = max(len(x.shape) - taken, 0)
            view, found, left = view + left[:kept], found + [None] * kept, left[kept:]
        elif item is None:
            view, found = [*view, 1], [*found, None]
        elif isinstance(item, Tensor) and item.shape and len(left) >= _dimensions(item):
            many = _dimensions(item)
            view, found, left = view + left[:many], [*found, item], left[many:]
        elif isinstance(item, int) and not isinstance(item, bool) and left:
            left = left[1:]
        elif isinstance(item, str) and (bounds := _SLICE.fullmatch(item)) and left:
            view, found, left = [*view, _sliced(bounds, left[0])], [*found, None], left[1:]
        else:
            return UNKNOWN
    if tuple(view + left) != self.shape or all(index is None for index in found):
        return UNKNOWN
    return tuple(found)


def _sliced(bounds: re.Match[str], size: int) -> int:
    """How many of ``size`` elements a slice keeps; sizes may be larger than any memory."""
    start, stop, step = slice(*(int(bound) if bound else None for bound in bounds.groups())).indices(size)
    return max(-(-(stop - start) // step), 0)


def _dimensions(item: Any) -> int:
    """Of x, that an item of a key takes."""
    if item is None or item == "Ellipsis":
        return 0
    return len(item.shape) if isinstance(item, Tensor) and item.dtype in ("bool", "uint8") else 1
