"""Columns of byte strings, one per row, as Arrow holds them: made and joined without a Python object per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyprof.table import arrow
from pyprof.table.columns import Bools, Floats, Ints

ByteColumn: TypeAlias = (
    Any  # a pyarrow.LargeBinaryArray (pyarrow has no types): offsets of 64 bits: a column may exceed 2 GiB
)


def column(offsets: Ints, data: NDArray[np.uint8]) -> ByteColumn:
    """Row i is ``data[offsets[i]:offsets[i + 1]]``."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def byte_table(values: Sequence[bytes]) -> ByteColumn:
    return column(_ends(np.fromiter(map(len, values), np.int64, len(values))), np.frombuffer(b"".join(values), "u1"))


def equal_widths(matrix: NDArray[np.uint8], known: Bools | None = None) -> ByteColumn:
    """A row of the matrix each; nothing where it is not ``known``."""
    if known is None or known.all():
        return column(np.arange(len(matrix) + 1) * matrix.shape[1], matrix.reshape(-1))
    return column(_ends(known * matrix.shape[1]), matrix[known].reshape(-1))


def _ends(sizes: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


NOTHING = byte_table([b""])[0]


def joined(columns: Sequence[ByteColumn]) -> ByteColumn:
    """The byte strings of each row, one after the other."""
    return columns[0] if len(columns) == 1 else arrow.computed("binary_join_element_wise", *columns, NOTHING)


def taken(data: ByteColumn, rows: NDArray[np.integer[Any]]) -> ByteColumn:
    """The rows with these indices."""
    return arrow.computed("take", data, arrow.numbers(rows))


def stacked(columns: Sequence[ByteColumn]) -> ByteColumn:
    """The rows of all columns, one column after the other."""
    return pa.concat_arrays(columns)


def sizes(data: ByteColumn) -> Ints:
    return np.diff(_offsets(data))


def content(data: ByteColumn) -> bytes:
    """All rows in one piece."""
    offsets, values = _offsets(data), data.buffers()[2]
    return bytes(memoryview(values if values is not None else b"")[int(offsets[0]) : int(offsets[-1])])


def _offsets(data: ByteColumn) -> Ints:  # Arrow's own to_numpy() would import pandas
    return np.frombuffer(data.buffers()[1], np.int64)[data.offset : data.offset + len(data) + 1]


def beside(rows: int, *parts: bytes | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A matrix of so many rows from left to right: the same bytes in each row, and matrices.

    >>> beside(2, b"x", np.array([[1], [2]], np.uint8)).tolist()
    [[120, 1], [120, 2]]
    """
    matrix = np.empty((rows, sum(part.shape[1] if isinstance(part, np.ndarray) else len(part) for part in parts)), "u1")
    at = 0
    for part in parts:
        end = at + (part.shape[1] if isinstance(part, np.ndarray) else len(part))
        matrix[:, at:end] = part if isinstance(part, np.ndarray) else np.frombuffer(part, np.uint8)
        at = end
    return matrix


def padded_varints(values: Ints) -> NDArray[np.uint8]:
    """Numbers as protobuf writes them, a negative one as its 64-bit complement, all with as many bytes as the largest
    needs: groups of seven bits that are 0 may follow a number, as in the lengths that Perfetto's own SDK writes.

    >>> padded_varints(np.array([5, 300])).tolist()
    [[133, 0], [172, 2]]
    """
    left = values.astype(np.int64).view(np.uint64)
    width = max(-(-int(left.max(initial=0)).bit_length() // 7), 1)
    digits = np.empty((len(values), width), np.uint8)
    for place in range(width):
        digits[:, place] = (left >> np.uint64(7 * place)) & np.uint64(0x7F)
    digits[:, :-1] |= 0x80
    return digits


def numbers(message: bytes, field: bytes, values: Ints, known: Bools) -> ByteColumn:
    """``field`` and the number as a varint; with ``message``, a tag, as the content of a message (below 128 bytes)."""
    digits = padded_varints(np.where(known, values, 0))
    head = [message, bytes([len(field) + digits.shape[1]])] if message else []
    return equal_widths(beside(len(values), *head, field, digits), known)


def doubles(before: bytes, values: Floats | Ints, known: Bools | None = None) -> ByteColumn:
    """Each number in 8 bytes, ``before`` before it."""
    return equal_widths(beside(len(values), before, eight_bytes(values)), known)


def eight_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).view(np.uint8).reshape(-1, 8)
