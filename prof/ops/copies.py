"""Ops that only move or write elements: copies, casts, fills, joins, pads and rearrangements. 0 flop.

read    the elements that are needed, each once (also with a stride of 0)
write   the result

If a capture lacks the result's shape or dtype, the bytes are NaN, not 0.
"""

import math
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import (
    Out,
    elementwise,
    first_output,
    keys_below,
    moved,
    number,
    numel,
    output,
    required,
    tensors,
)
from pyprof.prof.ops.result_types import dtype_name, result_dtype

op = Family("copy")


@op("copy_ copy _copy_from _copy_from_and_resize")
def copy_(self: Any, src: Any) -> Work:
    """self = src, cast and broadcast as needed: reads src, writes self"""
    destination = required(self)
    source = required(src) if not isinstance(src, (bool, int, float)) else None
    return Work(0, distinct(source), moved(destination.numel, destination))


@op("_to_copy")
def to_copy(self: Tensor, dtype: Any = None, *, out: Out = None) -> Work:
    """A copy in another type, on another device or in another layout"""
    source = required(self)
    named = "" if dtype is UNKNOWN else dtype_name(dtype) or source.dtype
    return elementwise(0, source.nbytes, output(out, Tensor(source.shape, named)))


@op("to type_as type float half bfloat16 double")
def to(self: Tensor, *options: Any, out: Out = None) -> Work:
    """Same as ``_to_copy``; no work where the dtype stays the same, because the op then returns its argument

    A copy to another device without a change of dtype is not recognised and counts as no work.
    """
    other = next(iter(tensors(options[:1])), None)
    named = other.dtype if other else next(filter(None, map(dtype_name, options[:2])), None)
    result = output(out, Tensor(self.shape, named or self.dtype))
    if UNKNOWN in options[:2] and not out:
        return Work(0, math.nan, math.nan)
    return Work() if result.dtype == self.dtype else Work(0, self.nbytes, moved(result.numel, result))


@op(
    "clone alias_copy view_copy permute_copy transpose_copy t_copy squeeze_copy unsqueeze_copy detach_copy "
    "_reshape_copy lift_fresh_copy"
)
def clone(self: Tensor, *, out: Out = None) -> Work:
    """Reads and writes the elements of the result"""
    source = required(self)
    result = output(out, source.like(source.shape))
    return Work(0, min(source.stored, result.numel) * source.itemsize, moved(result.numel, result))


@op("slice_copy select_copy diagonal_copy narrow_copy (self)", "expand_copy as_strided_copy (self, size)")
def part_copy(self: Tensor, size: Any = UNKNOWN, *, out: Out = None) -> Work:
    """As ``clone``, of a part of self, and no other part is read; of a slice, only the outputs tell its size"""
    if first_output(out) is not None:
        return clone(self, out=out)
    if size is UNKNOWN:
        return Work(0, math.nan, math.nan)
    before = len(size) - len(self.shape)
    shape = tuple(self.shape[i - before] if n == -1 else n for i, n in enumerate(size))
    return clone(self, out=(self.like(shape),))


def is_contiguous(tensor: Tensor) -> bool:
    """Whether a tensor is row-major without gaps; dimensions of size 1 may have any stride."""
    if tensor.strides is None:
        return True
    expected = 1
    for n, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True


@op("contiguous")
def contiguous(self: Tensor, memory_format: Any = 0) -> Work:
    """A copy, or no work if the tensor is already contiguous"""
    preserved = memory_format in (0, None, UNKNOWN, "contiguous_format", "torch.contiguous_format")
    return Work() if preserved and is_contiguous(self) else clone(self)


@op("_local_scalar_dense item")
def item(*_: Any) -> Work:
    """Copies one element to the host: a few bytes, not counted, like other scalars"""
    return Work()


@op("cat concat concatenate stack hstack vstack fsdp::all_gather_copy_in")
def cat(pieces: Any, *, out: Out = None) -> Work:
    """Reads every piece, writes all of them in their common dtype"""
    parts = tensors(tuple(pieces))
    if parts:
        size = sum(part.numel for part in parts)
        return elementwise(0, distinct(parts), output(out, Tensor((size,), result_dtype(*parts))))
    result = first_output(out)
    if result is None:
        raise UnknownArgument("the capture does not have the list of tensors")
    return elementwise(0, moved(result.numel, result), result)


@op("_chunk_cat fsdp::chunk_cat")
def chunk_cat(pieces: Any, dim: Any = 0, chunks: Any = 1, *, out: Out = None) -> Work:
    """As ``cat``, each piece filled up with zeros along a dimension to a multiple of the number of chunks"""
    parts, size = tensors(tuple(pieces)), 0
    if not parts or first_output(out) is not None:
        return cat(pieces, out=out)
    for part in parts:
        rows = part.shape[dim]
        size += part.numel // (rows or 1) * -(-rows // chunks) * chunks
    return cat(pieces, out=(Tensor((size,), result_dtype(*parts)),))


@op("repeat_interleave")
def repeat_interleave(self: Tensor, repeats: Any = UNKNOWN, *arguments: Any, out: Out = None) -> Work:
    """As ``repeat``; the overload with repeats alone, (repeats, output_size), writes as many int64 positions"""
    is_size = not arguments and isinstance(repeats, int) and len(self.shape) == 1 and self.dtype in ("int32", "int64")
    return repeat(self, repeats, out=out or ((self.like((repeats,)),) if is_size else None))


@op("repeat tile")
def repeat(self: Tensor, repeats: Any = UNKNOWN, *, out: Out = None) -> Work:
    """Reads self once, writes it several times"""
    described = first_output(out)
    if described is not None:
        return Work(0, distinct(self, repeats), moved(described.numel, described))
    if isinstance(repeats, int) is isinstance(repeats, (list, tuple)):  # a tensor, or not described
        return Work(0, distinct(self, repeats), math.nan)
    times = repeats if isinstance(repeats, int) else numel(repeats)
    return Work(0, self.nbytes, moved(self.numel * times, self))


@op(
    "roll flip fliplr flipud rot90 pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle _pin_memory "
    "split_with_sizes_copy split_copy unbind_copy"
)
def rearranged(self: Tensor) -> Work:
    """Reads the tensor, writes it in another order or in pieces"""
    return Work(0, self.nbytes, moved(self.numel, self))


def kept(self: Tensor, below: int) -> int:
    """The number of elements on and below the diagonal that is ``below`` columns right of the main one."""
    rows, columns = self.shape[-2:]
    return math.prod(self.shape[:-2]) * keys_below(rows, columns, 1 + below)


@op("tril")
def tril(self: Tensor, diagonal: Any = 0) -> Work:
    """Reads the triangle that is kept, writes the whole matrix. An unknown diagonal is assumed to be 0.

    The kernel does not read the other triangle: 0.54 of 1.07 GB on an H200 (docs/explanation/accuracy.md).
    """
    return Work(0, moved(kept(self, number(diagonal, 0)), self), moved(self.numel, self))


@op("triu")
def triu(self: Tensor, diagonal: Any = 0) -> Work:
    """Like ``tril``, but reads the elements on and above the diagonal."""
    return Work(0, moved(self.numel - kept(self, number(diagonal, 0) - 1), self), moved(self.numel, self))


@op("block_diag")
def block_diag(pieces: Any) -> Work:
    """Reads every block, writes the matrix including its zeros"""
    parts = tensors(tuple(pieces))
    shapes = [(1, 1, *part.shape)[-2:] for part in parts]
    count = sum(r for r, _ in shapes) * sum(c for _, c in shapes)
    return Work(0, distinct(parts), moved(count, Tensor((), result_dtype(*parts))))


@op("diag_embed")
def diag_embed(self: Tensor, offset: Any = 0, *, out: Out = None) -> Work:
    """Reads the diagonals, writes square matrices"""
    described = first_output(out)
    side = self.shape[-1] + abs(int(offset)) if described is None else 0
    count = described.numel if described is not None else numel(self.shape[:-1]) * side * side
    return Work(0, self.nbytes, moved(count, self))


@op("frexp")
def frexp(self: Tensor) -> Work:
    """Splits x into mantissa and exponent (int32) by bit operations"""
    return Work(0, self.nbytes, moved(self.numel, self) + 4 * self.numel)


@op("nonzero_static")
def nonzero_static(self: Tensor, size: int) -> Work:
    """Writes ``size`` positions, 8 bytes per dimension"""
    return Work(0, self.nbytes, 8 * size * len(self.shape))


@op("_nested_tensor_from_mask_left_aligned")
def is_left_aligned(self: Tensor, mask: Tensor) -> Work:
    """Reads a mask and checks that padding occurs only at the end of each row"""
    return Work(0, mask.nbytes)
