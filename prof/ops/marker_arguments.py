"""The arguments of a user's call from its marker, for arguments that NVTX ranges and Kineto leave out.

These are the flags of attention, the indices of ``x[...]``, and the options of an op's own call. A marker is not used
if it is ambiguous which argument is which (a positional argument without a certain name, a truncated list).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyprof.marker import PACKED, Marker
from pyprof.prof.ops.model import UNKNOWN, Tensor
from pyprof.prof.ops.result_types import dtype_name
from pyprof.prof.ops.signatures import signature_of

_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # JSON cannot represent these numbers


def call_arguments(marker: Marker) -> tuple[Any, ...]:
    """Arguments of an API call from its marker, in call order."""
    return tuple(_argument(argument) for argument in marker.args)


def _argument(argument: Mapping[str, Any]) -> Any:
    if argument.get("type", "") == "tensor":
        stride = argument.get("stride")
        shape = tuple(argument.get("shape", ()))
        stored = UNKNOWN if str(argument.get("layout", "")).startswith("sparse") else None
        return Tensor(shape, str(argument.get("dtype", "")), tuple(stride) if stride else None, nonzero=stored)
    if argument.get("type", "") == PACKED and argument.get("items"):
        return PACKED, *(tuple(v) if isinstance(v, list) else v for v in map(_argument, argument["items"]))
    if "items" in argument:
        return tuple(_argument(item) for item in argument["items"])
    value = argument.get("value", UNKNOWN)
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def tensors_within(arguments: Sequence[Any]) -> list[Tensor]:
    """The tensors among the arguments, including those in lists, in order."""
    tensors: list[Tensor] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            tensors.append(argument)
        elif isinstance(argument, tuple):
            tensors += tensors_within(argument)
    return tensors


def with_packed(arguments: tuple[Any, ...], marker: Marker) -> tuple[Any, ...]:
    """The arguments of an op, with packed weights from the marker of its own call, place by place."""
    packed = {place for place, argument in enumerate(marker.args) if argument.get("type") == PACKED}
    if not packed or len(marker.args) > len(arguments):
        return arguments
    return tuple(_argument(marker.args[place]) if place in packed else each for place, each in enumerate(arguments))


SUBSCRIPTS = ("__getitem__", "__setitem__")
_SLICE = re.compile(r"(-?\d{1,18})?:(-?\d{1,18})?:([1-9]\d{0,17})?", re.ASCII)


def subscript(call: Marker, self: Any) -> Any:
    """The indices that ``x[...]`` passes to aten::index and index_put: tensors, and None for a dimension that is kept.

    ``call`` has x and the key. ``self`` is the tensor that is indexed: a view of x after integers and slices in the key
    are applied. Returns UNKNOWN if the view's shape does not match, or if the key has items that a marker does not
    record (lists, numbers that are tensors). Source: applySlicing in torch/csrc/autograd/python_variable_indexing.cpp.
    """
    x, key = (*call_arguments(call), UNKNOWN, UNKNOWN)[:2]
    if not isinstance(x, Tensor) or not isinstance(self, Tensor) or key is UNKNOWN or call.args[1]["type"] == "list":
        return UNKNOWN
    view = _View(list(x.shape))
    items = key if isinstance(key, tuple) else (key,)
    kept = max(len(x.shape) - sum(map(_dimensions, items)), 0)  # the number of dimensions that an ellipsis stands for
    if not all(view.takes(item, kept) for item in items):
        return UNKNOWN
    if tuple(view.shape + view.left) != self.shape or all(index is None for index in view.indices):
        return UNKNOWN
    return tuple(view.indices)


@dataclass(slots=True)
class _View:
    """The view of x that the key's items read so far produce: its shape, and an index per dimension."""

    left: list[int]  # sizes of x's dimensions that no item has taken yet
    shape: list[int] = field(default_factory=list)
    indices: list[Tensor | None] = field(default_factory=list)

    def takes(self, item: Any, kept: int) -> bool:
        """Apply one item of the key; False if its form is not supported."""
        if item is None:
            self._append([1], None)
        elif item == "Ellipsis":
            self._append(self._taken(kept), *[None] * kept)
        elif isinstance(item, Tensor) and item.shape and len(self.left) >= _dimensions(item):
            self._append(self._taken(_dimensions(item)), item)
        elif not self.left:
            return False
        elif isinstance(item, int) and not isinstance(item, bool):
            self._taken(1)
        elif isinstance(item, str) and (bounds := _SLICE.fullmatch(item)):
            self._append([_sliced(bounds, self._taken(1)[0])], None)
        else:
            return False
        return True

    def _append(self, sizes: list[int], *indices: Tensor | None) -> None:
        self.shape += sizes
        self.indices += indices

    def _taken(self, count: int) -> list[int]:
        sizes, self.left = self.left[:count], self.left[count:]
        return sizes


def _sliced(bounds: re.Match[str], size: int) -> int:
    """How many of ``size`` elements a slice keeps; sizes may be larger than any memory."""
    start, stop, step = slice(*(int(bound) if bound else None for bound in bounds.groups())).indices(size)
    return max(-(-(stop - start) // step), 0)


def _dimensions(item: Any) -> int:
    """How many dimensions of x an item of the key takes."""
    if item is None or item == "Ellipsis":
        return 0
    return len(item.shape) if isinstance(item, Tensor) and item.dtype in ("bool", "uint8") else 1


# a model's parameter -> its name in F.scaled_dot_product_attention, and the default there
# (a mask type of 1 is causal: ATen/native/transformers/attention.cpp)
API_NAMES = {"causal": "is_causal", "mask_type": "is_causal", "dropout": "dropout_p"}
API_DEFAULTS = {"is_causal": False, "dropout_p": 0.0}
MODEL_NAMES = {"is_causal": "causal", "dropout_p": "dropout", "attn_mask": "mask", "label_smoothing": "smoothing"}
NUMPY = {"axis": "dim", "keepdims": "keepdim"}  # NumPy's names, which PyTorch accepts too


def in_order(marker: Marker, words: Sequence[str], defaults: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of the user's call in the order of the op's, whose parameters a model calls ``words``.

    An argument with a name of these is that one: conv2d(x, w, stride=2) has no bias. Others stand in the order of the
    call, and none of them is the reduction of a loss, which is called so everywhere. What is left out gets its default.
    """
    found: dict[int, Any] = {}
    old: dict[str, Any] = {}
    place = 0
    for argument, value in zip(marker.args, call_arguments(marker), strict=True):
        name = str(argument["name"])
        word = MODEL_NAMES.get(name, name)
        if word in words and words.index(word) not in found:
            place = words.index(word)
        elif name in OLD_REDUCTION and isinstance(value, bool | None):
            old[name] = value
            continue
        elif name and words[place : place + 1] == ("reduction",):
            place += 1
        found[place] = value
        place += 1
    if "reduction" in words and any(value is not None for value in old.values()):
        found[words.index("reduction")] = _old_reduction(**old)
    count = max(found, default=-1) + 1
    left_out = [defaults.get(word, UNKNOWN) for word in words[:count]] + [UNKNOWN] * (count - len(words))
    return tuple(found.get(at, value) for at, value in enumerate(left_out))


OLD_REDUCTION = ("size_average", "reduce")  # of losses, before ``reduction``, over which they take precedence


def _old_reduction(size_average: bool | None = None, reduce: bool | None = None) -> str:
    """As legacy_get_string in torch/nn/_reduction.py: both are true where they are not given."""
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def with_flags(arguments: tuple[Any, ...], parameters: Sequence[str], marker: Marker) -> tuple[Any, ...]:
    """The arguments, with unknown attention flags and indices of ``x[...]`` filled in.

    ``parameters`` are the model's names for the arguments. A flag that the call did not pass gets its default.
    """
    by_name = {str(a["name"]): a.get("value", UNKNOWN) for a in marker.args}
    flags = _attention_flags(marker.op, by_name) if all(by_name) else {}
    filled = list(arguments)
    for position, (name, argument) in enumerate(zip(parameters, arguments, strict=False)):
        if argument is UNKNOWN and API_NAMES.get(name) in flags:
            flag = flags[API_NAMES[name]]
            filled[position] = int(flag) if name == "mask_type" and isinstance(flag, bool) else flag
        elif name == "positions" and not isinstance(argument, (tuple, Tensor)) and marker.op in SUBSCRIPTS:
            filled[position] = subscript(marker, arguments[0])
    return tuple(filled)


def with_strings(arguments: tuple[Any, ...], parameters: Sequence[str], marker: Marker) -> tuple[Any, ...]:
    """The arguments, with the texts that no profiler records, such as gelu's ``approximate``, from the user's call.

    A text belongs to the parameter of its name, also in a backward. Where the call names none so, it belongs to the
    parameter of its place, if the tensors before it are those of the op.
    """
    given = call_arguments(marker)
    by_name = {str(a["name"]): text for a, text in zip(marker.args, given, strict=True) if isinstance(text, str)}
    if not by_name:
        return arguments
    filled, same = list(arguments), True
    for place, (name, argument) in enumerate(zip(parameters, arguments, strict=False)):
        own = given[place] if same and place < len(given) else UNKNOWN
        if argument is None or argument is UNKNOWN:
            named_otherwise = own is not UNKNOWN and str(marker.args[place]["name"]) in parameters
            text = by_name.get(name, argument if named_otherwise else own)
            filled[place] = text if isinstance(text, str) else argument
        elif isinstance(argument, Tensor):
            same = same and isinstance(own, Tensor) and own.shape == argument.shape
    return tuple(filled)


def _attention_flags(op: str, by_name: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that attention runs with, from a call of scaled_dot_product_attention or of nn.MultiheadAttention's
    function. The latter runs a causal kernel if there is no padding mask and no weights are returned."""
    if op == "scaled_dot_product_attention":
        return {name: by_name.get(name, default) for name, default in API_DEFAULTS.items()}
    if op != "multi_head_attention_forward":
        return {}
    asks_for_causal = by_name.get("is_causal", False) is True and by_name.get("need_weights", True) is False
    flags: dict[str, Any] = {"is_causal": asks_for_causal and by_name.get("key_padding_mask") is None}
    if by_name.get("training", True) is False:
        flags["dropout_p"] = 0.0
    elif "dropout_p" in by_name:
        flags["dropout_p"] = by_name["dropout_p"]
    return flags


def with_options(op: str, arguments: tuple[Any, ...], marker: Marker) -> tuple[Any, ...]:
    """The arguments, with options that ranges leave out taken from the op's own call on a tensor of the same shape."""
    options = signature_of(op).options
    if not options or len(arguments) != len(options) + 1:
        return arguments
    self = arguments[0]
    x, *given = call_arguments(marker) or (None,)
    if marker.op.strip("_") != op.strip("_") or not (isinstance(x, Tensor) and isinstance(self, Tensor)):
        return arguments
    names = [NUMPY.get(str(a["name"]), str(a["name"])) for a in marker.args[1:]]
    if x.shape != self.shape or not all(names):
        return arguments
    by_name = {**dict(options), **dict(zip(names, given, strict=True))}
    pairs = zip(arguments[1:], options, strict=True)
    return (self, *(by_name[name] if argument is UNKNOWN else argument for argument, (name, _) in pairs))


def with_bounds(arguments: tuple[Any, ...], marker: Marker) -> tuple[Any, ...]:
    """The arguments of arange, (start, end, step, out), with the numbers and the dtype of the user's own call."""
    if marker.op != "arange" or len(arguments) != 4 or not isinstance(arguments[3], Tensor):
        return arguments
    given = list(zip((str(a["name"]) for a in marker.args), call_arguments(marker), strict=True))
    named = {name: value for name, value in given if name}
    plain = [value for name, value in given if not name]
    words = ("start", "end", "step") if len(plain) > 1 or "end" in named else ("end",)
    bounds = {"start": 0, "step": 1, **named, **dict(zip(words, plain, strict=False))}
    numbers = [bounds.get(word) for word in ("start", "end", "step")]
    if len(plain) > len(words) or not all(type(number) in (int, float) for number in numbers):
        return arguments
    usual = "int64" if all(isinstance(number, int) for number in numbers) else "float32"
    dtype = arguments[3].dtype or dtype_name(named.get("dtype")) or usual
    return (*numbers, Tensor(arguments[3].shape, dtype))
