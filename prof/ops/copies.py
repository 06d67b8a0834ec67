"""Ops that only move or write elements: copies, casts, fills, joins, pads and rearrangements. 0 flop.

read    the elements that are needed, each once (a stride of 0 once)
write   the result

Where a capture does not tell the result's shape or type, the bytes are NaN, not 0.
"""

from __future__ import annotations

import math
from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Tensor, UnknownArgument, Work, distinct, model
from pyprof.prof.ops.operands import (
    Out,
    dtype_name,
    first_output,
    moved,
    number,
    numel,
    output,
    required,
    result_dtype,
    tensors,
)

FAMILY_NAME = "copy"


@model("copy_ copy _copy_from _copy_from_and_resize", family=FAMILY_NAME)
def copy_(self: Any, src: Any) -> Work:
    """self = src, cast and broadcast as needed: src is read, self written and not read"""
    destination = required(self)
    source = required(src) if not isinstance(src, (bool, int, float)) else None
    return Work(0, distinct(source), moved(destination.numel, destination))


@model("_to_copy", family=FAMILY_NAME)
def to_copy(self: Tensor, dtype: Any = None, *, out: Out = None) -> Work:
    """A copy in another type, on another device or in another layout"""
    source = required(self)
    named = "" if dtype is UNKNOWN else dtype_name(dtype) or source.dtype
    result = output(out, Tensor(source.shape, named))
    return Work(0, source.nbytes, moved(result.numel, result))


@model("to type_as type float half bfloat16 double", family=FAMILY_NAME)
def to(self: Tensor, *options: Any, out: Out = None) -> Work:
    """``_to_copy``, or nothing where the type stays: then the op returns its argument

    A change of the device alone is not seen.
    """
    other = next(iter(tensors(options[:1])), None)
    named = other.dtype if other else next(filter(None, map(dtype_name, options[:2])), None)
    result = output(out, Tensor(self.shape, named or self.dtype))
    if UNKNOWN in options[:2] and not out:
        return Work(0, math.nan, math.nan)
    return Work() if result.dtype == self.dtype else Work(0, self.nbytes, moved(result.numel, result))


@model(
    "clone alias_copy view_copy expand_copy permute_copy transpose_copy t_copy slice_copy select_copy squeeze_copy "
    "unsqueeze_copy detach_copy as_strided_copy diagonal_copy narrow_copy _reshape_copy lift_fresh_copy",
    family=FAMILY_NAME,
)
def clone(self: Tensor, *, out: Out = None) -> Work:
    """Read the elements, write as many as the result has; of a part (``slice_copy``) only that part is read"""
    source = required(self)
    result = output(out, source.like(source.shape))
    return Work(0, min(source.stored, result.numel) * source.itemsize, moved(result.numel, result))


def is_contiguous(tensor: Tensor) -> bool:
    """Row-major without gaps; dimensions of size 1 may have any stride."""
    if tensor.strides is None:
        return True
    expected = 1
    for n, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True


@model("contiguous", family=FAMILY_NAME)
def contiguous(self: Tensor, memory_format: Any = 0) -> Work:
    """A clone, or nothing where the tensor is contiguous already"""
    preserved = memory_format in (0, None, UNKNOWN, "contiguous_format", "torch.contiguous_format")
    return Work() if preserved and is_contiguous(self) else clone(self)


@model("_local_scalar_dense", "item", family=FAMILY_NAME)
def item(*_: Any) -> Work:
    """One element goes to the host: a few bytes, left out as other scalars are"""
    return Work()


@model("fill_ fill zero_ zero fill_diagonal_", family=FAMILY_NAME)
def fill_(self: Tensor, value: Any = None, *, out: Out = None) -> Work:
    """Write every element; a tensor value is read"""
    result = output(out, required(self))
    return Work(0, distinct(value), moved(result.numel, result))


def _named(out: Out, size: Any, dtype: str) -> Tensor:
    """A new tensor's description: as captured, else from its size and type arguments."""
    described = first_output(out)
    if described is not None:
        return described
    return Tensor((size,) if isinstance(size, int) else tuple(size), dtype)


@model("zeros", "ones", family=FAMILY_NAME)
def zeros(size: Any, dtype: Any = None, *, out: Out = None) -> Work:
    """Write every element of a new tensor; the default type is float32"""
    result = _named(out, size, "" if dtype is UNKNOWN else dtype_name(dtype) or "float32")
    return Work(0, 0, moved(result.numel, result))


@model("full", family=FAMILY_NAME)
def full(size: Any, value: Any = 0, dtype: Any = None, *, out: Out = None) -> Work:
    """Write every element of a new tensor, whose type follows the value"""
    kind = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
    result = _named(out, size, "" if dtype is UNKNOWN else dtype_name(dtype) or kind)
    return Work(0, 0, moved(result.numel, result))


@model("new_zeros", "new_ones", family=FAMILY_NAME)
def new_zeros(self: Tensor, size: Any, dtype: Any = None, *, out: Out = None) -> Work:
    """As ``zeros``, in self's type"""
    result = _named(out, size, dtype_name(dtype) or self.dtype)
    return Work(0, 0, moved(result.numel, result))


@model("new_full", family=FAMILY_NAME)
def new_full(self: Tensor, size: Any, value: Any = 0, dtype: Any = None, *, out: Out = None) -> Work:
    """As ``full``, in self's type"""
    return new_zeros(self, size, dtype, out=out)


@model("zeros_like", "ones_like", family=FAMILY_NAME)
def zeros_like(self: Tensor, dtype: Any = None, *, out: Out = None) -> Work:
    """Write as many elements as self has; self is not read"""
    result = output(out, Tensor(required(self).shape, dtype_name(dtype) or required(self).dtype))
    return Work(0, 0, moved(result.numel, result))


@model("full_like", family=FAMILY_NAME)
def full_like(self: Tensor, value: Any = 0, dtype: Any = None, *, out: Out = None) -> Work:
    """As ``zeros_like``"""
    return zeros_like(self, dtype, out=out)


@model("arange", family=FAMILY_NAME)
def arange(*bounds: Any, out: Out = None) -> Work:
    """Write ceil((end - start) / step) elements: int64 for integers, else float32. Their arithmetic is not counted.

    ``arange(end)``, ``arange(start, end)`` and ``arange(start, end, step)`` differ by the numbers before the type; in a
    trace the type follows as a number too, so that only captures with outputs are certain.
    """
    described = first_output(out)
    if described is not None:
        return Work(0, 0, moved(described.numel, described))
    result = next((x for x in bounds if isinstance(x, Tensor)), None)  # of the form with out=, resized by the call
    before = bounds[: bounds.index(result)] if result is not None else bounds[: max(1, len(bounds) - 4)]
    numbers = [x for x in before if isinstance(x, (int, float)) and not isinstance(x, bool)]
    if not numbers:
        return Work(0, 0, math.nan)
    start, end, step = ([0, *numbers, 1] if len(numbers) == 1 else [*numbers, 1])[:3]
    dtype = "int64" if all(isinstance(x, int) for x in numbers) else "float32"
    typed = result.dtype if result is not None else dtype_name(bounds[-4]) if len(bounds) > 4 else None
    return Work(0, 0, moved(math.ceil((end - start) / step), Tensor((), typed or dtype)))


@model("linspace", "logspace", family=FAMILY_NAME)
def linspace(start: Any, end: Any, steps: Any, *arguments: Any, out: Out = None) -> Work:
    """Write ``steps`` elements; their arithmetic is not counted. ``logspace`` has a base before the type."""
    asked = next((a for a in arguments[:2] if isinstance(a, str)), None)
    result = _named(out, steps, dtype_name(asked) or "float32")
    return Work(0, 0, moved(result.numel, result))


@model(
    "cat concat concatenate stack hstack vstack _chunk_cat fsdp::chunk_cat fsdp::all_gather_copy_in", family=FAMILY_NAME
)
def cat(pieces: Any, *, out: Out = None) -> Work:
    """Read every piece, write them all, in the type that holds all of theirs"""
    parts = tensors(tuple(pieces))
    described = first_output(out)
    if not parts and described is None:
        raise UnknownArgument("the capture does not tell the list of tensors")
    if not parts and described is not None:
        return Work(0, moved(described.numel, described), moved(described.numel, described))
    dtype = result_dtype(*parts)
    result = output(out, Tensor((sum(part.numel for part in parts),), dtype))
    return Work(0, distinct(parts), moved(result.numel, result))


@model("split_with_sizes_copy split_copy unbind_copy", family=FAMILY_NAME)
def split_copy(self: Tensor) -> Work:
    """Read all, write all, in pieces"""
    return Work(0, self.nbytes, moved(self.numel, self))


@model("repeat tile repeat_interleave", family=FAMILY_NAME)
def repeat(self: Tensor, repeats: Any = UNKNOWN, *, out: Out = None) -> Work:
    """Read self once, write it several times"""
    described = first_output(out)
    if described is not None:
        return Work(0, distinct(self, repeats), moved(described.numel, described))
    if isinstance(repeats, int) is isinstance(repeats, (list, tuple)):  # a tensor, or not described
        return Work(0, distinct(self, repeats), math.nan)
    times = repeats if isinstance(repeats, int) else numel(repeats)
    return Work(0, self.nbytes, moved(self.numel * times, self))


@model(
    "roll flip fliplr flipud rot90 pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle _pin_memory",
    family=FAMILY_NAME,
)
def rearranged(self: Tensor) -> Work:
    """Read all, write as much in another order"""
    return Work(0, self.nbytes, moved(self.numel, self))


def kept(self: Tensor, below: int) -> int:
    """Elements on and below the diagonal that lies ``below`` columns right of the main one."""
    rows, columns = self.shape[-2:]
    return math.prod(self.shape[:-2]) * sum(min(columns, max(0, row + 1 + below)) for row in range(rows))


@model("tril", family=FAMILY_NAME)
def tril(self: Tensor, diagonal: Any = 0) -> Work:
    """Read the triangle that is kept, write all: the other triangle as zeros. NVTX does not tell the diagonal: 0.

    The kernel reads no more: 0.54 of 1.07 GB on an H200 (docs/explanation/accuracy.md).
    """
    return Work(0, moved(kept(self, number(diagonal, 0)), self), moved(self.numel, self))


@model("triu", family=FAMILY_NAME)
def triu(self: Tensor, diagonal: Any = 0) -> Work:
    """As ``tril``: what does not lie below the diagonal is read."""
    return Work(0, moved(self.numel - kept(self, number(diagonal, 0) - 1), self), moved(self.numel, self))


@model("tril_indices", family=FAMILY_NAME)
def tril_indices(row: Any, col: Any, offset: Any = 0, *, out: Out = None) -> Work:
    """Write two int64 an element of the triangle"""
    described = first_output(out)
    if described is not None:
        return Work(0, 0, moved(described.numel, described))
    lower = sum(min(max(i + 1 + offset, 0), col) for i in range(row))
    return Work(0, 0, 2 * 8 * lower)


@model("triu_indices", family=FAMILY_NAME)
def triu_indices(row: Any, col: Any, offset: Any = 0) -> Work:
    """Write two int64 an element of the triangle"""
    return Work(0, 0, 2 * 8 * sum(col - min(max(i + offset, 0), col) for i in range(row)))


@model("eye", family=FAMILY_NAME)
def eye(n: Any, m: Any = None, *, out: Out = None) -> Work:
    """Write an n by n, or n by m, matrix"""
    result = _named(out, (n, m if isinstance(m, int) else n), "float32")
    return Work(0, 0, moved(result.numel, result))


@model("scalar_tensor", family=FAMILY_NAME)
def scalar_tensor(value: Any, dtype: Any = None, *, out: Out = None) -> Work:
    """Write one element"""
    return full((), value, dtype, out=out)


@model("block_diag", family=FAMILY_NAME)
def block_diag(pieces: Any) -> Work:
    """Read every block, write the matrix with its zeros"""
    parts = tensors(tuple(pieces))
    shapes = [(1, 1, *part.shape)[-2:] for part in parts]
    return Work(0, distinct(parts), moved(sum(r for r, _ in shapes) * sum(c for _, c in shapes), parts[0]))


@model("diag_embed", family=FAMILY_NAME)
def diag_embed(self: Tensor, offset: Any = 0, *, out: Out = None) -> Work:
    """Read the diagonals, write square matrices"""
    described = first_output(out)
    side = self.shape[-1] + abs(int(offset)) if described is None else 0
    count = described.numel if described is not None else numel(self.shape[:-1]) * side * side
    return Work(0, self.nbytes, moved(count, self))


@model("im2col", family=FAMILY_NAME)
def im2col(self: Tensor, kernel: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1, *, out: Out = None) -> Work:
    """Read the image, write every window as a column"""
    described = first_output(out)
    if described is None:
        sides = zip(self.shape[-2:], kernel, dilation, padding, stride, strict=True)
        steps = numel((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in sides)
        count = numel(self.shape[:-2]) * numel(kernel) * steps
    else:
        count = described.numel
    return Work(0, self.nbytes, moved(count, self))


@model("unfold_copy", family=FAMILY_NAME)
def unfold_copy(self: Tensor, dim: int, size: int, step: int) -> Work:
    """Windows of one dimension, copied out"""
    along = self.shape[dim] if self.shape else 1
    count = (self.numel // along if along else 0) * ((along - size) // step + 1) * size
    return Work(0, self.nbytes, moved(count, self))


@model("frexp", family=FAMILY_NAME)
def frexp(self: Tensor) -> Work:
    """Mantissa and exponent, an int32: bits"""
    return Work(0, self.nbytes, moved(self.numel, self) + 4 * self.numel)


@model("nonzero_static", family=FAMILY_NAME)
def nonzero_static(self: Tensor, size: int) -> Work:
    """So many positions, 8 bytes a dimension"""
    return Work(0, self.nbytes, 8 * size * len(self.shape))


@model("col2im", family=FAMILY_NAME)
def col2im(self: Tensor, size: Any, kernel: Any = None) -> Work:
    """The sum of all windows at each place: elements of the columns less elements of the image, where they overlap"""
    count = self.numel // (self.shape[-1] * self.shape[-2]) * (self.shape[-2] // numel(kernel)) * numel(size)
    return Work(max(self.numel - count, 0), self.nbytes, moved(count, self))


def padded(shape: tuple[int, ...], pad: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape after padding, and how much of the source is left (a negative pad crops); the last dimension first."""
    after, kept = list(shape), list(shape)
    for i, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        after[-1 - i] += before + behind
        kept[-1 - i] += min(before, 0) + min(behind, 0)
    return tuple(after), tuple(kept)


@model("constant_pad_nd", family=FAMILY_NAME)
def constant_pad_nd(self: Tensor, pad: Any, *, out: Out = None) -> Work:
    """Read what is kept of self, write the padded result; a negative pad (the backward of padding) crops"""
    if pad is UNKNOWN:
        result = out[0] if out else None
        written = math.nan if result is None else moved(result.numel, result)
        return Work(0, self.nbytes, written)
    after, kept = padded(self.shape, tuple(pad))
    return Work(0, moved(min(self.stored, numel(kept)), self), moved(numel(after), self))


@model("pad", family=FAMILY_NAME)
def pad_(self: Tensor, pad: Any, mode: Any = "constant", *, out: Out = None) -> Work:
    """``torch.nn.functional.pad`` in any of its modes"""
    return constant_pad_nd(self, pad, out=out)


@model("pad.backward", family=FAMILY_NAME)
def pad_backward(self: Tensor, pad: Any, mode: Any = "constant", *, out: Out = None) -> Work:
    """constant: read the interior of g, write dx;  reflect and others: read g, an addition where elements meet"""
    if mode_of(mode) == "constant":
        kept = numel(padded(self.shape, tuple(pad))[1])
        return Work(0, moved(kept, self), moved(self.numel, self))
    grad = self.like(padded(self.shape, tuple(pad))[0])
    return pad_nd_backward(grad, self)


def mode_of(mode: Any) -> Any:
    """A padding mode's name; constant where it is not told."""
    return "constant" if mode is UNKNOWN or mode is None else mode


def _pads(*kinds: str) -> tuple[str, ...]:
    return tuple(f"{kind}_pad{n}d" for kind in kinds for n in (1, 2, 3))


@model(*_pads("reflection", "replication"), "_pad_circular", family=FAMILY_NAME)
def pad_nd(self: Tensor, pad: Any, *, out: Out = None) -> Work:
    """Read self, write the padded result"""
    return constant_pad_nd(self, pad, out=out)


@model(*(f"{name}_backward" for name in _pads("reflection", "replication")), family=FAMILY_NAME)
def pad_nd_backward(grad: Tensor, self: Tensor) -> Work:
    """Each element of g goes to one of dx: elements of g less elements of dx are sums. Reads g, writes dx."""
    return Work(max(grad.numel - self.numel, 0), grad.nbytes, moved(self.numel, self))


@model("_nested_tensor_from_mask_left_aligned", family=FAMILY_NAME)
def is_left_aligned(self: Tensor, mask: Tensor) -> Work:
    """Does each row of a padding mask end in padding, and in nothing else? Reads the mask"""
    return Work(0, mask.nbytes)
