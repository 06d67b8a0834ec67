"""An op's arguments, as the capture tells them, for its model.

Shapes and values come from Kineto's cpu_op, which tells all; or from NVTX ranges, in schema order, where `[]` may be a
scalar, a 0-d tensor or None, and so is ``UNKNOWN``; or, without ranges of the dispatcher, from the API call's marker.

Dtypes, most trusted first (``Known``):

1. Kineto's cpu_op;
2. the names of the op's kernels, of an argument by its position (``dtypes``); for one that they cast on load, those of
   its backward's or forward's kernels (``casts``);
3. indices are int64, as torch makes them;
4. the names of the op's kernels, of all other tensors;
5. the marker of the same op with the same shapes: the user's arguments, by position. Of a list of tensors also where
   the kernels cast some on load (cat promotes);
6. the markers around the op, by shape; under autocast, autocast's dtype for a product's operands. Not for an operand
   that the kernel casts on load: that it is not what the user passed is all that is known of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyprof.dtypes import ITEM_BYTES
from pyprof.errors import ShapeError
from pyprof.marker import Marker
from pyprof.prof.kernels.operand_dtypes import NOTHING, Dtypes
from pyprof.prof.ops.model import UNKNOWN, Tensor, find

# ops whose arguments are lists of tensors, which NVTX ranges write one after the other: how many lists there are, where
# the kernel's name does not tell
LISTS = {
    "cat": 1, "_foreach_copy_": 2, "_foreach_add_": 2, "_foreach_mul_": 2, "_foreach_sub_": 2, "_foreach_div_": 2,
    "_foreach_lerp_": 2, "_foreach_addcmul_": 3, "_foreach_addcdiv_": 3, "_fused_adamw_": 5, "_fused_adam_": 5,
    "_fused_sgd_": 3, "_foreach_norm": 1,
}  # fmt: skip
INDEX = {"embedding": (1,), "index_select": (2,), "gather": (2,), "nll_loss_forward": (1,), "nll_loss_backward": (2,),
         "embedding_dense_backward": (1,), "embedding_backward": (1,), "_embedding_bag_dense_backward": (1, 2, 3, 4),
         "_embedding_bag_backward": (1, 2, 3, 4, 5)}  # fmt: skip
INDEX_LATER = {"scatter": (2,), "scatter_add": (2,), "index_add": (2,)}

# ops that the dispatcher never gives a number: at::where makes tensors of them
ALL_TENSORS = frozenset({"where"})

# ops that take a list of indices after self, which NVTX ranges write one after the other: how many arguments follow it
INDEXED = {"index": 0, "_unsafe_index": 0, "_index": 0, "index_put": 2, "index_put_": 2, "_unsafe_index_put": 2,
           "_index_put_impl_": 3}  # fmt: skip

# ops whose output has the first argument's shape and a type that another argument gives: kernels tell it
LIKE_FIRST = ("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the dtypes of an op's tensors where the capture has none."""

    kernel: Dtypes = NOTHING
    places: Mapping[int, str] = field(default_factory=dict)  # by position, from the marker of the op itself
    lists: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # of the tensors of a list, from the same
    shapes: Mapping[tuple[int, ...], str] = field(default_factory=dict)  # from the markers around it
    rest: str = ""

    def dtype(self, position: int, shape: tuple[int, ...], usual: str = "") -> str:
        """An argument's dtype; ``usual`` is what the op's schema suggests."""
        told = dict(self.kernel.at).get(position) or usual or self.kernel.of(position) or self.places.get(position, "")
        if not told and self.kernel.hides(position):
            return told
        around = self.shapes.get(shape) or self.rest
        if told.startswith("opaque"):  # so many bytes, of whatever type: a marker knows which
            marked = self.places.get(position) or around
            return marked if ITEM_BYTES.get(marked) == ITEM_BYTES[told] else told
        return told or around

    def outputs(self, outs: str, sizes: str, op: str) -> tuple[Tensor, ...] | None:
        """The outputs' descriptions: as the data flow tells their shapes, or as the op does."""
        if outs:
            return tuple(Tensor(tuple(shape), self.out) for shape in json.loads(outs))
        if op in LIKE_FIRST and self.kernel.out and sizes:
            first = next(iter(json.loads(sizes)), None)
            if first is not None and all(isinstance(size, int) for size in first):  # no list of tensors
                return (Tensor(tuple(first), self.kernel.out),)
        return None

    @property
    def out(self) -> str:
        return self.kernel.out or self.kernel.rest or self.rest


def recorded(
    sizes: str, dtypes: str, strides: str, values: str, known: Known, op: str, lists: str = ""
) -> tuple[Any, ...]:
    """Arguments of an op that the dispatcher recorded: JSON lists in schema order.

    ``lists``: the shapes of each of its lists of tensors, where the capture cut them and they are proven.
    """
    shapes = json.loads(sizes)
    if not dtypes:
        return _from_sizes(shapes, known, op)
    kinds = json.loads(dtypes)
    if lists:
        shapes, kinds = _uncut(shapes, kinds, json.loads(lists), known, op)
    steps = json.loads(strides) if strides else [None] * len(shapes)
    texts = json.loads(values) if values else [None] * len(shapes)
    each = enumerate(zip(shapes, kinds, steps, texts, strict=False))
    return tuple(_argument(position, known, *one) for position, one in each)


def _uncut(
    shapes: list[Any], kinds: list[Any], tensors: list[Any], known: Known, op: str
) -> tuple[list[Any], list[Any]]:
    """Put the proven lists where Kineto left them empty. Fused optimizers take as many lists as their kernel tells;
    what follows are Adam's maxima, none, and its step counters."""
    cut = [i for i, kind in enumerate(kinds) if kind == [] and shapes[i] == []]
    full = cut[: known.kernel.lists] if op.startswith("_fused_") and known.kernel.lists else cut
    for i in full:
        shapes[i], kinds[i] = tensors, [""] * len(tensors)
    if op.startswith("_fused_adam") and len(full) < len(cut):
        shapes[cut[-1]], kinds[cut[-1]] = [[] for _ in tensors], ["float32"] * len(tensors)
    return shapes, kinds


def _argument(position: int, known: Known, shape: Any, kind: Any, stride: Any, text: Any) -> Any:
    if isinstance(kind, list):  # a list of tensors, of which Kineto records no types
        if not all(isinstance(one, list) for one in shape):
            raise ShapeError("a list of tensors", "their shapes", shape)
        steps = stride if isinstance(stride, list) and len(stride) == len(shape) else [None] * len(shape)
        kinds = [k or known.dtype(position, tuple(s)) for s, k in zip(shape, kind, strict=False)]
        if known.kernel.hides(position) and len(known.lists.get(position, ())) == len(kinds):
            kinds = list(known.lists[position])
        return tuple(_tensor(*one) for one in zip(shape, kinds, steps, strict=False))
    if kind and kind not in VALUES:
        return _tensor(shape, kind, stride)
    return value(text, kind) if isinstance(text, str) else UNKNOWN if kind in VALUES else None


# Kineto's words for what is no tensor
VALUES = frozenset({"Scalar", "ScalarList", "GenericList", "TensorList", "OptionalTensorList"})


def _check_flat(shape: Any) -> None:
    """Raise ModelError for the shapes of several tensors where one tensor's belongs."""
    if any(isinstance(size, list) for size in shape):
        raise ShapeError("a tensor", "one shape", shape)


def _tensor(shape: Any, dtype: str, stride: Any) -> Tensor:
    _check_flat(shape)
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


def _from_sizes(shapes: Sequence[Any], known: Known, op: str) -> tuple[Any, ...]:
    lists = known.kernel.lists or LISTS.get(op)
    if lists:
        return _lists(shapes, lists, known) + _after(shapes, lists, op)
    indices = INDEX.get(op, INDEX_LATER.get(op, ()))
    found = [_sized(i, s, "int64" if i in indices else "", known, op) for i, s in enumerate(shapes)]
    if op in INDEXED and len(shapes) > INDEXED[op] + 1:
        end = len(shapes) - INDEXED[op]
        rest = [_sized(i, s, "", known) for i, s in enumerate(shapes[end:], start=2)]
        found = [found[0], _indices(shapes[1:end], shapes[0]), *rest]
    for position, value_ in known.kernel.flags:
        if position < len(found) and found[position] is UNKNOWN:
            found[position] = value_
    return tuple(found)


def _indices(shapes: Sequence[Any], self: Sequence[Any]) -> Any:
    """A list of indices, None where a dimension is kept. One that has the shape of what it indexes may be a mask: then
    all are UNKNOWN."""
    for shape in shapes:
        _check_flat(shape)
    if not any(shapes) or any(shape and list(self[i : i + len(shape)]) == shape for i, shape in enumerate(shapes)):
        return UNKNOWN
    return tuple(Tensor(tuple(shape), "int64") if shape else None for shape in shapes)


def _sized(position: int, shape: Any, usual: str, known: Known, op: str = "") -> Any:
    _check_flat(shape)
    if not shape:  # the kernel may tell that the first argument is a tensor, of no dimension
        told = dict(known.kernel.at).get(position) if position == 0 or op in ALL_TENSORS else ""
        return Tensor((), told) if told else UNKNOWN
    return Tensor(tuple(shape), known.dtype(position, tuple(shape), usual))


def _lists(shapes: Sequence[Any], lists: int, known: Known) -> tuple[Any, ...]:
    """Tensors of ``lists`` equally long lists, one list after the other; scalars follow as `[]`."""
    count = len(shapes)
    while count and not shapes[count - 1]:
        count -= 1
    if count % lists or not count:
        return (UNKNOWN,)
    length = count // lists
    for shape in shapes[:count]:
        _check_flat(shape)
    parts = [shapes[i * length : (i + 1) * length] for i in range(lists)]
    if parts[0] != parts[-1] and any(part != parts[0] for part in parts[:3]):
        return (UNKNOWN,)  # cut in the middle: the lists cannot be told apart
    return tuple(tuple(Tensor(tuple(s), known.dtype(i, tuple(s))) for s in part) for i, part in enumerate(parts))


def _after(shapes: Sequence[Any], lists: int, op: str) -> tuple[Any, ...]:
    """What follows the lists: scalars; for Adam maxima (AMSGrad's, else none) and 0-dimensional step counters."""
    full = sum(map(bool, shapes))
    if op.startswith("_fused_adam"):
        return (() if lists > 4 else ((),)) + ((Tensor((), "float32"),) * (full // lists),)
    return (UNKNOWN,) * (len(shapes) - full)


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


def knowledge(markers: Sequence[Marker], kernel: Dtypes, op: str, sizes: str, matrix: bool, forward: bool) -> Known:
    """What the op's kernels and the markers around it tell of its tensors' dtypes."""
    shapes: dict[tuple[int, ...], str] = {}
    rest = ""
    for marker in markers:
        for tensor in _tensors(marked(marker)):
            if marker.autocast and matrix and tensor.dtype.startswith("float"):
                rest = shapes[tensor.shape] = marker.autocast
            elif shapes.setdefault(tensor.shape, tensor.dtype) != tensor.dtype and not (marker.autocast and matrix):
                shapes[tensor.shape] = ""  # two types of one shape: neither is told
    if markers and not rest:
        floats = {dtype for dtype in shapes.values() if "float" in dtype}
        rest = floats.pop() if len(floats) == 1 and "" not in shapes.values() else ""
    if not markers or not forward or (matrix and markers[-1].autocast):
        return Known(kernel, {}, {}, shapes, rest)
    if op == "copy_" and markers[-1].op in CASTS:
        return Known(kernel, _cast_source(markers[-1], sizes), {}, shapes, rest)
    return Known(kernel, *_own(markers[-1], op, sizes), shapes, rest)


CASTS = frozenset({"to", "type", "type_as", "float", "half", "bfloat16", "double", "int", "long", "short", "bool",
                   "cpu", "cuda"})  # fmt: skip


def _cast_source(marker: Marker, sizes: str) -> dict[int, str]:
    """x.to(...) makes a new tensor and runs copy_(new, x) once: the second argument has x's type."""
    x = next(iter(marked(marker)), None)
    shapes = json.loads(sizes)
    if not isinstance(x, Tensor) or len(shapes) < 2 or tuple(shapes[1]) != x.shape:
        return {}
    return {1: x.dtype}


def _own(marker: Marker, op: str, sizes: str) -> tuple[dict[int, str], dict[int, tuple[str, ...]]]:
    """Dtypes of tensors and of lists of them by position, where the innermost marker is the op's own: the same op on
    the same shapes in order."""
    if find(marker.op.strip("_")) != find(op.strip("_")):
        return {}, {}
    shapes = {i: shape for i, shape in enumerate(json.loads(sizes)) if shape}
    places = [
        (i, j) for i, shape in shapes.items() for j in (range(len(shape)) if isinstance(shape[0], list) else (-1,))
    ]
    shaped = [(i, j) for i, j in places if j < 0 or shapes[i][j]]
    tensors = [tensor for tensor in _tensors(marked(marker)) if tensor.shape]
    if [tuple(shapes[i] if j < 0 else shapes[i][j]) for i, j in shaped] != [tensor.shape for tensor in tensors]:
        return {}, {}
    told = {place: tensor.dtype for place, tensor in zip(shaped, tensors, strict=True)}
    lists = {i: tuple(told.get((i, j), "") for j in range(len(shapes[i]))) for i, j in places if j == 0}
    return {i: dtype for (i, j), dtype in told.items() if j < 0}, lists


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    return [t for v in values for t in ([v] if isinstance(v, Tensor) else _tensors(v) if isinstance(v, tuple) else [])]
