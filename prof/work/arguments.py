"""An op's arguments for its model, as the capture records them.

Shapes and values come from one of three sources: from Kineto's cpu_op, which records all of them; from NVTX ranges, in
schema order, where `[]` may be a scalar, a 0-d tensor or None, and so is ``UNKNOWN``; or, if the dispatcher has no
ranges, from the API call's marker.

Sources of dtypes, most trusted first (``Known``):

1. Kineto's cpu_op;
2. the names of the op's kernels, for an argument by its position (``operand_dtypes``); if the kernels cast the argument
   on load, the names of its backward's or forward's kernels (``casts``);
3. indices are assumed to be int64, as torch creates them;
4. the names of the op's kernels, for all other tensors;
5. the marker of the same op with the same shapes: the user's arguments, by position. For a list of tensors also if
   the kernels cast some of them on load (cat promotes);
6. the markers around the op, by shape; under autocast, autocast's dtype for a product's operands. Not used for an
   operand that the kernel casts on load, because then the user passed some other dtype.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyprof.dtypes import ITEM_BYTES
from pyprof.errors import ShapeError
from pyprof.marker import Marker
from pyprof.prof.kernels.type_names import NOTHING, Dtypes
from pyprof.prof.ops.evaluation import find
from pyprof.prof.ops.marker_arguments import call_arguments, tensors_within
from pyprof.prof.ops.model import UNKNOWN, Tensor, names
from pyprof.prof.ops.signatures import after_lists, is_adam, signature_of

# Kineto's type names for arguments that are not tensors
VALUES = frozenset({"Scalar", "ScalarList", "GenericList", "TensorList", "OptionalTensorList"})
LISTS = frozenset({"GenericList", "TensorList", "OptionalTensorList"})
BLOCKED = ("mkldnn", "onednn", "mkl::")  # libraries whose ops take tensors in their own layouts, which have no strides


@dataclass(frozen=True, slots=True)
class Known:
    """The known dtypes of an op's tensors, for captures that record none."""

    kernel: Dtypes = NOTHING
    places: Mapping[int, str] = field(default_factory=dict)  # by position, from the op's own marker
    lists: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # per tensor of a list, from the same
    shapes: Mapping[tuple[int, ...], str] = field(default_factory=dict)  # from the markers around the op
    rest: str = ""

    def dtype(self, position: int, shape: tuple[int, ...], usual: str = "") -> str:
        """An argument's dtype; ``usual`` is what the op's schema suggests."""
        dtype = self.at(position) or usual or self.kernel.of(position) or self.places.get(position, "")
        if not dtype and self.kernel.hides(position):
            return ""
        around = self.shapes.get(shape) or self.rest
        if dtype.startswith("opaque"):  # only the size is known; a marker may have the dtype
            marked = self.places.get(position) or around
            return marked if ITEM_BYTES.get(marked) == ITEM_BYTES[dtype] else dtype
        return dtype or around

    def at(self, position: int) -> str:
        """The dtype that the kernel's name gives for that position."""
        return dict(self.kernel.at).get(position, "")

    def outputs(self, outs: str, sizes: str, op: str) -> tuple[Tensor, ...] | None:
        """The outputs' descriptions, with shapes from the data flow or from the op's signature."""
        if outs:
            return tuple(Tensor(tuple(shape), self.out) for shape in json.loads(outs))
        if signature_of(op).shaped_like_first and self.kernel.out and sizes:
            first = next(iter(json.loads(sizes)), None)
            if first is not None and all(isinstance(size, int) for size in first):  # not a list of tensors
                return (Tensor(tuple(first), self.kernel.out),)
        return None

    @property
    def out(self) -> str:
        return self.kernel.out or self.kernel.rest or self.rest


# --- as the dispatcher recorded them -----------------------------------------------------------------------------


def recorded(
    sizes: str, dtypes: str, strides: str, values: str, known: Known, op: str, lists: str = ""
) -> tuple[Any, ...]:
    """Arguments of an op that the dispatcher recorded: JSON lists in schema order.

    ``lists``: the shapes of the op's lists of tensors, if the capture truncated them and they could be proven.
    """
    shapes = json.loads(sizes)
    if not dtypes:
        return _from_sizes(shapes, known, op, json.loads(values) if values else ())
    kinds = json.loads(dtypes)
    if lists:
        shapes, kinds = _uncut(shapes, kinds, json.loads(lists), known.kernel.lists, op)
    all_strides = json.loads(strides) if strides else [None] * len(shapes)
    if any(library in op for library in BLOCKED):
        all_strides = [stride or None for stride in all_strides]
    texts = json.loads(values) if values else [None] * len(shapes)
    rows = enumerate(zip(shapes, kinds, all_strides, texts, strict=False))
    return tuple(_argument(position, known, bool(values), *row) for position, row in rows)


def _uncut(shapes: list[Any], kinds: list[Any], tensors: list[Any], lists: int, op: str) -> tuple[list[Any], list[Any]]:
    """Insert the proven lists where Kineto left them empty. The kernel's name shows how many ``lists`` a fused
    optimizer takes; they are followed by Adam's maxima, which are empty, and its step counters."""
    cut = [i for i, kind in enumerate(kinds) if kind == [] and shapes[i] == []]
    full = cut[:lists] if op.startswith("_fused_") and lists else cut
    for i in full:
        shapes[i], kinds[i] = tensors, [""] * len(tensors)
    if is_adam(op) and len(full) < len(cut):
        shapes[cut[-1]], kinds[cut[-1]] = [[] for _ in tensors], ["float32"] * len(tensors)
    return shapes, kinds


def _argument(position: int, known: Known, recorded_values: bool, shape: Any, kind: Any, stride: Any, text: Any) -> Any:
    if isinstance(kind, list):
        return _tensor_list(position, known, shape, kind, stride)
    if kind and kind not in VALUES:
        return _tensor(shape, kind, stride)
    if shape and not kind and not text:  # a tensor whose type the profiler does not know
        return _tensor(shape, kind, stride)
    if isinstance(text, str):
        return value(text, kind)
    return UNKNOWN if kind in VALUES or not recorded_values else None


def _tensor_list(position: int, known: Known, shapes: Any, kinds: list[Any], strides: Any) -> tuple[Tensor, ...]:
    """A list of tensors; Kineto records no dtypes for them."""
    if not all(isinstance(shape, list) for shape in shapes):
        raise ShapeError("a list of tensors", "their shapes", shapes)
    if not isinstance(strides, list) or len(strides) != len(shapes):
        strides = [None] * len(shapes)
    dtypes = [kind or known.dtype(position, tuple(s)) for s, kind in zip(shapes, kinds, strict=False)]
    if known.kernel.hides(position) and len(known.lists.get(position, ())) == len(dtypes):
        dtypes = list(known.lists[position])
    return tuple(_tensor(*row) for row in zip(shapes, dtypes, strides, strict=False))


def _check_flat(shape: Any) -> None:
    """Raise ModelError if there are shapes of several tensors instead of one tensor's shape."""
    if any(isinstance(size, list) for size in shape):
        raise ShapeError("a tensor", "one shape", shape)


def _tensor(shape: Any, dtype: str, stride: Any) -> Tensor:
    """A tensor; a sparse one has sizes, but no strides (torch/csrc/profiler/collection.cpp, InputOutputEncoder)."""
    _check_flat(shape)
    if shape and stride == []:
        return Tensor(tuple(shape), dtype, nonzero=UNKNOWN)
    strides = tuple(stride) if isinstance(stride, list) and len(stride) == len(shape) else None
    return Tensor(tuple(shape), dtype, strides)


def value(text: str, kind: str = "Scalar") -> Any:
    """A scalar or list of scalars from its text. ``""`` is None.

    >>> value("[1, 2]", "ScalarList"), value("False"), value("1e-05"), value("")
    ([1, 2], False, 1e-05, None)
    """
    if not text:
        return UNKNOWN if kind in LISTS else None
    if text in ("True", "False"):
        return text == "True"
    if text[0] == "[" and text[-1] == "]":
        items = [item.strip() for item in text[1:-1].split(",")]
        return [value(item) for item in items if item]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(text) if text.lstrip("+-").isdigit() else number


# --- from shapes only, as in NVTX ranges -------------------------------------------------------------------


def _from_sizes(shapes: Sequence[Any], known: Known, op: str, lists_of_numbers: Sequence[Any]) -> tuple[Any, ...]:
    """``lists_of_numbers``: texts, empty for other arguments; only pyprof's own record of a graph's capture has any."""
    signature = signature_of(op)
    lists = known.kernel.lists or signature.lists
    if lists:
        filled = sum(map(bool, shapes))
        return _lists(shapes, lists, known) + after_lists(op, lists, filled, len(shapes) - filled)
    usual = ["int64" if i in signature.indices else "" for i in range(len(shapes))]
    arguments = [_sized(i, shape, usual[i], known, signature.only_tensors) for i, shape in enumerate(shapes)]
    after = signature.after_indices
    if after is not None and len(shapes) > after + 1:
        end = len(shapes) - after
        rest = [_sized(i, shape, "", known) for i, shape in enumerate(shapes[end:], start=2)]
        arguments = [arguments[0], _indices(shapes[1:end], shapes[0]), *rest]
    found = [(i, value(text)) for i, text in enumerate(lists_of_numbers) if isinstance(text, str) and text]
    for position, known_value in (*known.kernel.flags, *found):
        if position < len(arguments) and arguments[position] is UNKNOWN:
            arguments[position] = known_value
    return tuple(arguments)


def _indices(shapes: Sequence[Any], self: Sequence[Any]) -> Any:
    """A list of indices, with None for a dimension that is kept. If an index has the shape of the dimensions that it
    indexes, it may be a mask, and all are UNKNOWN."""
    for shape in shapes:
        _check_flat(shape)
    if not any(shapes) or any(shape and list(self[i : i + len(shape)]) == shape for i, shape in enumerate(shapes)):
        return UNKNOWN
    return tuple(Tensor(tuple(shape), "int64") if shape else None for shape in shapes)


def _sized(position: int, shape: Any, usual: str, known: Known, is_tensor: bool = False) -> Any:
    _check_flat(shape)
    if shape:
        return Tensor(tuple(shape), known.dtype(position, tuple(shape), usual))
    dtype = known.at(position) if position == 0 or is_tensor else ""
    return Tensor((), dtype) if dtype else UNKNOWN


def _lists(shapes: Sequence[Any], lists: int, known: Known) -> tuple[Any, ...]:
    """The tensors of ``lists`` lists of equal length, stored one after the other; scalars follow as `[]`."""
    count = max((i for i, shape in enumerate(shapes, start=1) if shape), default=0)
    if count % lists or not count:
        return (UNKNOWN,)
    length = count // lists
    for shape in shapes[:count]:
        _check_flat(shape)
    parts = [shapes[i * length : (i + 1) * length] for i in range(lists)]
    if parts[0] != parts[-1] and any(part != parts[0] for part in parts[:3]):
        return (UNKNOWN,)  # truncated: the boundaries between the lists are lost
    return tuple(tuple(Tensor(tuple(s), known.dtype(i, tuple(s))) for s in part) for i, part in enumerate(parts))


# --- dtypes from markers -------------------------------------------------------------------------------------------


def known_dtypes(markers: Sequence[Marker], kernel: Dtypes, op: str, sizes: str, matrix: bool, forward: bool) -> Known:
    """The dtypes of the op's tensors as far as its kernels and the markers around it reveal them."""
    shapes, rest = _by_shape(markers, matrix)
    if not markers or not forward or (matrix and markers[-1].autocast):
        return Known(kernel, shapes=shapes, rest=rest)
    if op == "copy_" and markers[-1].op in CASTS:
        return Known(kernel, _cast_source(markers[-1], sizes), shapes=shapes, rest=rest)
    places, lists = _by_position(markers[-1], op, sizes)
    return Known(kernel, places, lists, shapes, rest)


def _by_shape(markers: Sequence[Marker], matrix: bool) -> tuple[dict[tuple[int, ...], str], str]:
    """The dtype of each shape among the markers' tensors, empty if dtypes differ, and that of all other tensors."""
    shapes: dict[tuple[int, ...], str] = {}
    rest = ""
    for marker in markers:
        autocast = marker.autocast if matrix else None
        for tensor in tensors_within(call_arguments(marker)):
            if autocast and tensor.dtype.startswith("float"):
                rest = shapes[tensor.shape] = autocast
            elif shapes.setdefault(tensor.shape, tensor.dtype) != tensor.dtype and not autocast:
                shapes[tensor.shape] = ""
    if rest or "" in shapes.values():
        return shapes, rest
    floats = {dtype for dtype in shapes.values() if "float" in dtype}
    return shapes, floats.pop() if len(floats) == 1 else ""


# Methods that return a tensor with another dtype or on another device.
CASTS = names("to type type_as float half bfloat16 double int long short bool cpu cuda")


def _cast_source(marker: Marker, sizes: str) -> dict[int, str]:
    """x.to(...) makes a new tensor and runs copy_(new, x) once: the second argument has x's dtype."""
    x = next(iter(call_arguments(marker)), None)
    shapes = json.loads(sizes)
    if not isinstance(x, Tensor) or len(shapes) < 2 or tuple(shapes[1]) != x.shape:
        return {}
    return {1: x.dtype}


def _by_position(marker: Marker, op: str, sizes: str) -> tuple[dict[int, str], dict[int, tuple[str, ...]]]:
    """Dtypes of tensors and of lists of tensors, by position, if the marker is the op's own: same op, shapes, order."""
    if find(marker.op.strip("_")) != find(op.strip("_")):
        return {}, {}
    arguments = {i: shape for i, shape in enumerate(json.loads(sizes)) if shape}
    shapes: dict[tuple[int, int], Any] = {}  # by position, and index in a list; -1: the argument itself
    for i, argument in arguments.items():
        is_list = isinstance(argument[0], list)
        shapes.update({(i, j): shape for j, shape in enumerate(argument)} if is_list else {(i, -1): argument})
    shaped = [place for place, shape in shapes.items() if shape]
    tensors = [tensor for tensor in tensors_within(call_arguments(marker)) if tensor.shape]
    if [tuple(shapes[place]) for place in shaped] != [tensor.shape for tensor in tensors]:
        return {}, {}
    dtypes = {place: tensor.dtype for place, tensor in zip(shaped, tensors, strict=True)}
    lengths = {i: len(argument) for i, argument in arguments.items() if (i, 0) in shapes}
    lists = {i: tuple(dtypes.get((i, j), "") for j in range(length)) for i, length in lengths.items()}
    return {i: dtype for (i, j), dtype in dtypes.items() if j < 0}, lists
