"""The columns of the rows that rules examine; each column is decoded once."""

import json
import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyprof.prof.kernels.operand_dtypes import kernel_dtypes
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Bools, Coded, Floats, Ints, Table


class Rows:
    """The columns of a table and its annotation as arrays."""

    def __init__(self, table: Table, annotation: Annotation) -> None:
        self.table, self.annotation = table, annotation
        self._decoded: dict[tuple[str, int], Any] = {}
        self._shapes: dict[int, list[list[int]]] = {}

    def texts(self, key: str) -> NDArray[np.object_]:
        """A text column, decoded; empty if unknown."""
        return texts_of(self.table.coded(key))

    @cached_property
    def aten(self) -> NDArray[np.object_]:
        """The innermost op without ``aten::`` and overload."""
        column = self.table.coded("aten")
        return texts_of(Coded(column.codes, [v.removeprefix("aten::").partition(".")[0] for v in column.values]))

    @cached_property
    def name(self) -> NDArray[np.object_]:
        """The kernel's name, with template arguments where they are known."""
        short, long = self.texts("kShortName"), self.texts("kLongName")
        return np.where(long == "", short, long)

    @cached_property
    def family(self) -> NDArray[np.object_]:
        return texts_of(self.annotation.family)

    @cached_property
    def tc(self) -> NDArray[np.object_]:
        return texts_of(self.annotation.tc)

    @cached_property
    def precision(self) -> NDArray[np.object_]:
        """The precision of the tensor cores' operands, e.g. ``bf16``; empty without tensor cores."""
        return texts_of(self.annotation.tcprec)

    @cached_property
    def role(self) -> NDArray[np.object_]:
        return texts_of(self.annotation.role)

    @property
    def stream(self) -> Ints:
        return self.table.ints("stream")

    @cached_property
    def phase(self) -> NDArray[np.object_]:
        return self.texts("phase")

    @cached_property
    def flop(self) -> Floats:
        """FLOPs per row; NaN if unknown."""
        return _amount(self.annotation.flops)

    @cached_property
    def nbytes(self) -> Floats:
        """Bytes per row; NaN if unknown."""
        return _amount(self.annotation.bytes)

    @cached_property
    def dtype(self) -> NDArray[np.object_]:
        """The dtype of each op's first tensor: recorded, otherwise read from the kernel's name, otherwise empty."""
        recorded = self.table.coded("dtypes")
        dtypes = texts_of(Coded(recorded.codes, [_first_dtype(text) for text in recorded.values]))
        from_name: dict[tuple[str, str, str], str] = {}
        for i in np.flatnonzero(dtypes == "").tolist():
            key = (str(self.name[i]), str(self.aten[i]), str(self.family[i]))
            if key not in from_name:
                names = kernel_dtypes(*key)
                from_name[key] = names.of(0) or names.rest
            dtypes[i] = from_name[key]
        return dtypes

    def json(self, key: str, row: int) -> Any:
        """A JSON column's value of a row, or None; each distinct text is decoded once."""
        column = self.table.coded(key)
        code = int(column.codes[row])
        if code < 0:
            return None
        if (key, code) not in self._decoded:
            self._decoded[key, code] = _json(column.values[code])
        return self._decoded[key, code]

    def shapes(self, row: int) -> list[list[int]]:
        """The shapes of the op's arguments in order; empty for lists of tensors and arguments that are not tensors."""
        code = int(self.table.coded("sizes").codes[row])
        if code not in self._shapes:
            sizes = self.json("sizes", row)
            self._shapes[code] = [s if numel(s) else [] for s in sizes] if isinstance(sizes, list) else []
        return self._shapes[code]

    def first_shape(self, row: int) -> list[int]:
        """The shape of the op's first argument; empty if it has none."""
        return (self.shapes(row) or [[]])[0]

    def strides(self, row: int) -> list[Any] | None:
        """The strides of the op's arguments; None if the capture has none."""
        found = self.json("strides", row)
        return found if isinstance(found, list) and found else None

    @cached_property
    def elements(self) -> Ints:
        """Per op, the element count of its first argument with a shape; 0 if no shape is known."""
        return self._elements(first=True)

    @cached_property
    def largest(self) -> Ints:
        """Per op, the element count of its largest argument; 0 if no shape is known."""
        return self._elements(first=False)

    def _elements(self, first: bool) -> Ints:
        column = self.table.coded("sizes")
        sizes = [[numel(shape) for shape in _list(text)] or [0] for text in column.values]
        return np.array([*(of_op[0] if first else max(of_op) for of_op in sizes), 0], np.int64)[column.codes]

    def mentions(self, key: str, *words: str) -> Bools:
        """A mask of the rows whose text in a column contains one of the words."""
        column = self.table.coded(key)
        return np.array([*(any(word in value for word in words) for value in column.values), False])[column.codes]

    @cached_property
    def collectives(self) -> Bools:
        """Kernels of NCCL or RCCL."""
        return self.mentions("kShortName", "ncclDevKernel", "ncclKernel", "rccl")

    @cached_property
    def records_gradients(self) -> bool:
        """Whether any row has a sequence number, since autograd numbers ops only when it can record gradients."""
        return any(len(self.table.ragged(key).values) > 0 for key in ("seqId", "altSeqId"))

    # Words

    def op(self, row: int) -> str:
        """The op that the user called: the innermost item of ``op``, or else the aten op, or else the kernel."""
        ops = self._items("op", row)
        return ops[-1] if ops else str(self.aten[row] or self.texts("kShortName")[row])

    def layer(self, row: int) -> str:
        return ":".join(self._items("layer", row))

    def trace(self, row: int) -> str:
        """The innermost line of the user's code."""
        lines = self._items("trace", row)
        return lines[-1] if lines else ""

    def _items(self, key: str, row: int) -> list[str]:
        found = self.json(key, row)
        return list(map(str, found)) if isinstance(found, list) else []


def numel(shape: Any) -> int:
    """The number of elements of a shape; 0 for a scalar or a list of shapes.

    >>> numel([2, 3]), numel([]), numel([[2, 3]])
    (6, 0, 0)
    """
    plain = isinstance(shape, list) and bool(shape) and all(type(n) is int and n >= 0 for n in shape)
    size = math.prod(shape) if plain else 0
    return size if size < 1 << 62 else 0


def _list(text: str) -> list[Any]:
    found = _json(text)
    return found if isinstance(found, list) else []


def _json(text: str) -> Any:
    """The value of a JSON text; None for other texts, since a table may come from anywhere."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def texts_of(column: Coded) -> NDArray[np.object_]:
    return np.array([*column.values, ""], object)[column.codes]


def _amount(column: Ints) -> Floats:
    return np.where(column == NULL, np.nan, column.astype(np.float64))


def _first_dtype(text: str) -> str:
    """The first dtype of a JSON list that may hold lists."""
    listed = _list(text)
    flat = [d for item in listed for d in (item if isinstance(item, list) else [item])]
    return next((d for d in flat if isinstance(d, str) and d), "")
