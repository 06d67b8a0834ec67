"""The kernel table in memory: columns, not rows.

Twenty integers take 386 bytes per row as a dataclass and 160 as columns. Texts repeat: a million kernels have a few
thousand names, shapes and contexts. So a text column is a ``Coded``: one int32 per row, and each distinct text once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from operator import is_not
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from pyprof.table.schema import HOST_CALLS, KERNELS, MEMORY, Column, Kind

if TYPE_CHECKING:
    from pyprof.table.cpu_facts import CpuFacts
    from pyprof.table.gpu_samples import GpuSamples
    from pyprof.table.measured_steps import MeasuredStep

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]  # indices, in half of the memory
Indices = NDArray[np.signedinteger[Any]]  # of either size
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Value = TypeVar("Value", bound=np.generic)
Given = ParamSpec("Given")
Result = TypeVar("Result")
NULL = int(np.iinfo(np.int64).min)  # an unknown value of an int column; in a float column it is NaN


@dataclass(slots=True)
class Coded:
    """A text column: ``values[codes[i]]`` is row i's text; code -1 is empty."""

    codes: NDArray[np.int32]
    values: list[str]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Any) -> Coded:
        codes = self.codes[rows]
        return Coded(codes if self.values else np.broadcast_to(np.int32(-1), len(codes)), self.values)

    def spread(self, rows: Ints) -> Coded:
        """As ``take``; if all items are equal, as a view of the first one, which takes no memory."""
        same = bool(np.all(self.codes == self.codes[:1]))
        return Coded(np.broadcast_to(self.codes[0], len(rows)), self.values) if same and len(self) else self.take(rows)

    def used(self) -> Coded:
        """The same column without its unused texts."""
        codes = np.unique(self.codes[self.codes >= 0])
        place = np.full(len(self.values) + 1, -1, np.int32)  # code -1 selects the last item
        place[codes] = np.arange(len(codes), dtype=np.int32)
        return Coded(place[self.codes], [self.values[code] for code in codes.tolist()])

    def texts(self, empty: str = "") -> list[str]:
        """Every row's text."""
        values = [*self.values, empty]  # code -1 selects the last item
        return [values[code] for code in self.codes.tolist()]

    def among(self, *texts: str) -> Bools:
        """A mask of the rows that have one of these texts; "" selects rows without a text."""
        return np.array([*(value in texts for value in self.values), "" in texts], bool)[self.codes]

    def where(self, test: Callable[[str], object]) -> Bools:
        """Which rows have a text that the test is true of; it runs once per distinct text."""
        return np.array([*map(bool, map(test, self.values)), False])[self.codes]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Coded:
        """Encode one text per row; an empty text becomes code -1."""
        seen: dict[str, int] = {}
        codes = [seen.setdefault(text, len(seen)) if text else -1 for text in texts]
        return cls(np.array(codes, np.int32), list(seen))

    @classmethod
    def empty(cls, rows: int) -> Coded:
        return cls(np.full(rows, -1, np.int32), [])

    @classmethod
    def concat(cls, parts: Sequence[Coded]) -> Coded:
        """The rows of all parts, one part after the other. A text that occurs in several parts is stored once."""
        if len(parts) == 1 and "" not in parts[0].values and len(set(parts[0].values)) == len(parts[0].values):
            return parts[0]
        seen: dict[str, int] = {}
        codes = []
        for part in parts:
            number = [seen.setdefault(text, len(seen)) if text else -1 for text in part.values]
            codes.append(np.array([*number, -1], np.int32)[part.codes])  # code -1 selects the last item
        return cls(np.concatenate(codes), list(seen))


def offsets_of(counts: NDArray[Any]) -> Ints:
    """Where lists of these lengths begin that stand one after the other, and where the last one ends."""
    return np.append(0, np.cumsum(counts)).astype(np.int64)


@dataclass(slots=True)
class Ragged:
    """A column of integer lists: row i holds ``values[offsets[i]:offsets[i + 1]]``."""

    offsets: Ints
    values: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: Any) -> Ragged:
        rows = np.arange(len(self))[rows]
        counts = np.diff(self.offsets)[rows]
        offsets = offsets_of(counts)
        inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return Ragged(offsets, self.values[np.repeat(self.offsets[:-1][rows], counts) + inside])

    def between(self, begin: int, end: int) -> Ragged:
        """The rows from ``begin`` to ``end``, without a copy of their values."""
        bounds = self.offsets[begin : end + 1]
        return Ragged(bounds - bounds[0], self.values[bounds[0] : bounds[-1]])

    def lists(self) -> list[list[int]]:
        """Every row's list."""
        bounds, values = self.offsets.tolist(), self.values.tolist()
        return [values[a:b] for a, b in pairwise(bounds)]

    @classmethod
    def of(cls, lists: Iterable[Iterable[int]]) -> Ragged:
        rows = [list(row) for row in lists]
        offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
        return cls(offsets, np.array([v for row in rows for v in row], np.int64))

    @classmethod
    def empty(cls, rows: int) -> Ragged:
        return cls(np.zeros(rows + 1, np.int64), np.zeros(0, np.int64))

    @classmethod
    def concat(cls, parts: Sequence[Ragged]) -> Ragged:
        """The rows of all parts, one part after the other."""
        counts = np.concatenate([np.diff(part.offsets) for part in parts])
        values = np.concatenate([part.values[part.offsets[0] : part.offsets[-1]] for part in parts])
        return cls(offsets_of(counts), values)


Data = Ints | Floats | Coded | Ragged


def blank(kind: Kind, rows: int) -> Data:
    """A column in which every value is unknown, which takes no memory and cannot be written to."""
    if kind == "int":
        return np.broadcast_to(np.int64(NULL), rows)
    if kind == "float":
        return np.broadcast_to(np.float64(np.nan), rows)
    if kind == "ints":
        return Ragged(np.broadcast_to(np.int64(0), rows + 1), np.zeros(0, np.int64))
    return Coded(np.broadcast_to(np.int32(-1), rows), [])


def ints_of(columns: Mapping[str, Data], key: str, rows: int) -> Ints:
    """The column of whole numbers with this key; of ``rows`` unknown values if there is no such column."""
    data = columns.get(key, blank("int", rows))
    assert isinstance(data, np.ndarray)
    return data.astype(np.int64, copy=False)


def coded_of(columns: Mapping[str, Data], key: str, rows: int) -> Coded:
    """The column of texts with this key; of ``rows`` empty texts if there is no such column."""
    data = columns.get(key, blank("text", rows))
    assert isinstance(data, Coded)
    return data


def compact(columns: Mapping[str, Data]) -> dict[str, Data]:
    """The columns, those with one value in all rows as views of this value (see ``folded``)."""
    return {key: _compact(column) for key, column in columns.items()}


def _compact(column: Data) -> Data:
    if isinstance(column, Coded):
        return Coded(folded(column.codes), column.values)
    return column if isinstance(column, Ragged) else cast("Data", folded(column))


def folded(column: NDArray[Value]) -> NDArray[Value]:
    """The column; if all rows have one value, as a view of this value, which takes no memory and is read-only."""
    if not len(column) or not any(column.strides) or column[0] != column[-1] or np.any(column != column[0]):
        return column
    return np.broadcast_to(column[0], len(column))


def value_at(values: NDArray[Value], place: Indices, missing: int = NULL) -> NDArray[Value]:
    """The values at these indices; ``missing`` for index -1."""
    if not len(values):
        return np.full(len(place), missing, values.dtype)
    return np.where(place >= 0, values[np.maximum(place, 0)], values.dtype.type(missing))


def lookup(major: Ints, minor: Ints, wanted_major: Ints, wanted_minor: Ints) -> Ints:
    """The index of the first row with each wanted pair (major, minor), -1 where there is none or minor is ``NULL``."""
    row = np.full(len(wanted_major), -1, np.int64)
    order = np.lexsort((minor, major))
    majors, minors = major[order], minor[order]
    by_major = np.argsort(wanted_major, kind="stable")
    values, begins = np.unique(wanted_major[by_major], return_index=True)  # process numbers, usually only a few
    firsts, lasts = np.searchsorted(majors, values), np.searchsorted(majors, values, "right")
    for lo, hi, wanted in zip(firsts.tolist(), lasts.tolist(), np.split(by_major, begins[1:]), strict=False):
        if lo == hi:
            continue
        at = np.minimum(np.searchsorted(minors[lo:hi], wanted_minor[wanted]), hi - lo - 1) + lo
        is_found = (minors[at] == wanted_minor[wanted]) & (wanted_minor[wanted] != NULL)
        row[wanted] = np.where(is_found, order[at], -1)
    return row


def known(value: int) -> int | None:
    """The number, or None for NULL."""
    return None if value == NULL else int(value)


def distinct(*columns: NDArray[Any]) -> tuple[list[tuple[int, ...]], Ints]:
    """The distinct rows of integer columns, ascending, and for each row its index among the distinct rows."""
    first, number = numbered(*columns)
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), number


def distinct_texts(*columns: Coded) -> tuple[list[tuple[str, ...]], Ints]:
    """The distinct rows of text columns, and each row's number among them; an empty cell is ""."""
    rows, number = distinct(*(column.codes for column in columns))
    texts = [[*column.values, ""] for column in columns]  # code -1 finds the last
    return [tuple(text[code] for text, code in zip(texts, row, strict=True)) for row in rows], number


def numbered(*columns: NDArray[Any]) -> tuple[Ints, Ints]:
    """The index of the first occurrence of each distinct row, rows ascending, and for each row its index among them.

    Each row is packed into one integer key, since ``numpy.unique(axis=0)`` sorts rows as bytes and takes six times as
    long as a sort of such keys. If there are few possible keys, as for scopes and contexts, they are counted instead.
    """
    rows = len(columns[0])
    if not rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    key, room = np.zeros(rows, np.int64), 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if NULL == low < high:  # the known values may be close together
            low = int(column[column != NULL].min()) - 1
            column = np.maximum(column, low)
        span = high - low + 1
        if span > _ROOMY * rows + 1024:  # the values are far apart: number them first
            values, number = np.unique(column, return_inverse=True)
            low, span = 0, len(values)
        else:
            number = column.astype(np.int64) - low
        if room * span >= 1 << 62:
            packed, key = np.unique(key, return_inverse=True)
            key, room = key.reshape(-1).astype(np.int64), len(packed)
        key, room = key * span + number.reshape(-1), room * span
    return _numbered(key, room)


def least(values: Ints, group: Ints, groups: int) -> Ints:
    """The least known value of each group; NULL where none is known."""
    found = np.full(groups, np.iinfo(np.int64).max)
    there = values != NULL
    np.minimum.at(found, group[there], values[there])
    return np.where(np.bincount(group[there], minlength=groups) > 0, found, NULL)


def greatest(values: Ints, group: Ints, groups: int) -> Ints:
    """The greatest value of each group; NULL where none is known."""
    found = np.full(groups, NULL, np.int64)
    np.maximum.at(found, group, values)
    return found


_ROOMY = 4  # counting is faster than sorting for up to this many possible keys per row


def _numbered(key: Ints, room: int) -> tuple[Ints, Ints]:
    """``numbered`` for one column of keys (0 <= key < room)."""
    if room > _ROOMY * len(key) + 1024:
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        return first, inverse.reshape(-1).astype(np.int64)
    first = np.full(room, -1, np.int64)
    first[key[::-1]] = np.arange(len(key))[::-1]
    present = np.flatnonzero(first >= 0)
    number = np.empty(room, np.int64)
    number[present] = np.arange(len(present))
    return first[present], number[key]


Columns = TypeVar("Columns", bound="Table")


class Table:
    """The kernel table. It has every column of ``schema``; columns that a reader did not provide are blank.

    ``samples``: the clocks and power of its GPUs over time, where the capture has them. ``measured``: the steps that
    were timed before the profiler started. ``cpu``: the CPU, where the capture says it.
    """

    schema: ClassVar[tuple[Column, ...]] = KERNELS

    def __init__(
        self,
        rows: int,
        columns: Mapping[str, Data],
        samples: Sequence[GpuSamples] = (),
        measured: Sequence[MeasuredStep] = (),
        cpu: CpuFacts | None = None,
    ) -> None:
        unknown = columns.keys() - {column.key for column in self.schema}
        wrong = {key: len(data) for key, data in columns.items() if len(data) != rows}
        assert not unknown and not wrong, (unknown, rows, wrong)
        self.rows = rows
        self.samples = tuple(samples)
        self.measured = tuple(measured)
        self.cpu = cpu
        self.columns = compact(
            {c.key: columns[c.key] if c.key in columns else blank(c.kind, rows) for c in self.schema}
        )
        self.results: dict[object, tuple[tuple[object, ...], Any]] = {}  # see ``kept_with_table``

    def __len__(self) -> int:
        return self.rows

    def ints(self, key: str) -> Ints:
        data = self.columns[key]
        assert isinstance(data, np.ndarray)
        return cast("Ints", data)

    def coded(self, key: str) -> Coded:
        data = self.columns[key]
        assert isinstance(data, Coded)
        return data

    def ragged(self, key: str) -> Ragged:
        data = self.columns[key]
        assert isinstance(data, Ragged)
        return data

    def with_column(self: Columns, key: str, data: Data) -> Columns:
        """The same table with another column."""
        return type(self)(self.rows, {**self.columns, key: data}, self.samples, self.measured, self.cpu)

    def take(self: Columns, rows: Any) -> Columns:
        """The rows that an index array, a mask or a slice selects, in its order."""
        columns = {key: c[rows] if isinstance(c, np.ndarray) else c.take(rows) for key, c in self.columns.items()}
        return type(self)(len(np.arange(self.rows)[rows]), columns, self.samples, self.measured, self.cpu)

    @classmethod
    def concat(cls: type[Columns], tables: Sequence[Columns]) -> Columns:
        """The rows of all tables, one table after the other, unchanged. Call numbers may therefore repeat."""
        columns: dict[str, Data] = {}
        for column in cls.schema:
            if column.kind in ("int", "float"):
                numbers = [np.asarray(table.columns[column.key]) for table in tables]
                columns[column.key] = numbers[0] if len(numbers) == 1 else np.concatenate(numbers)
            elif column.kind == "ints":
                columns[column.key] = Ragged.concat([table.ragged(column.key) for table in tables])
            else:
                columns[column.key] = Coded.concat([table.coded(column.key) for table in tables])
        samples = [gpu for table in tables for gpu in table.samples]
        measured = [step for table in tables for step in table.measured]
        kinds = {table.cpu for table in tables}
        cpu = kinds.pop() if len(kinds) == 1 else None
        return cls(sum(len(table) for table in tables), columns, samples, measured, cpu)


def kept_with_table(
    function: Callable[Concatenate[Table, Given], Result],
) -> Callable[Concatenate[Table, Given], Result]:
    """Keep what a function gives for a table, which never changes, with that table.

    It is made again if further arguments are not the same objects as before. Nobody may change it.
    """

    @wraps(function)
    def known(table: Table, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        given = (*args, *kwargs.values())
        before, result = table.results.get(function, ((), None))
        if function not in table.results or len(before) != len(given) or any(map(is_not, before, given)):
            result = function(table, *args, **kwargs)
            table.results[function] = given, result
        return cast("Result", result)

    return known


class MemoryTable(Table):
    """The memory table: one row per allocation or free, in order of time within each process."""

    schema = MEMORY


class HostTable(Table):
    """The table of host calls: one row per call of the GPU's API, in order of process, thread and start."""

    schema = HOST_CALLS
