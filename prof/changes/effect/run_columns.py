"""The columns of the rows that rules examine; each column is decoded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyprof.prof.kernels.operand_dtypes import kernel_dtypes
from pyprof.prof.limits.occupancy import floats, json_list
from pyprof.prof.limits.roofline import flat_dtypes
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.casts import largest_numbers
from pyprof.prof.work.kinds import NCCL, kinds
from pyprof.serving_range import SERVING_PHASES
from pyprof.source_path import Place, place_of
from pyprof.table.columns import Bools, Coded, Floats, Ints, Table, numbered

Texts = NDArray[np.object_]
Found = TypeVar("Found")
R = TypeVar("R", bound="Rows")


_list = lru_cache(maxsize=1 << 14)(json_list)  # nobody changes them, and the runs after edits have the same texts


def _decoded(name: str) -> cached_property[Texts]:
    """A property: this column of the annotation, decoded."""
    return cached_property(lambda rows: texts_of(getattr(rows.annotation, name)))


class Rows:
    """The columns of a table and its annotation as arrays."""

    def __init__(self, table: Table, annotation: Annotation) -> None:
        self.table, self.annotation = annotation.with_arguments(table), annotation
        self._listed: dict[str, PerText[list[Any]]] = {}
        self._texts: dict[str, Texts] = {}
        self._kept: dict[Any, Any] = {}
        self._known: dict[Any, dict[int, Any]] = {}

    def texts(self, key: str) -> Texts:
        """A text column, decoded; empty if unknown. Rules ask for it row by row, so it is kept, and read-only."""
        if key not in self._texts:
            self._texts[key] = texts_of(self.table.coded(key))
            self._texts[key].flags.writeable = False
        return self._texts[key]

    @cached_property
    def aten(self) -> Texts:
        """The innermost op without ``aten::`` and overload."""
        column = self.table.coded("aten")
        return texts_of(Coded(column.codes, [v.removeprefix("aten::").partition(".")[0] for v in column.values]))

    @cached_property
    def name(self) -> Texts:
        """The kernel's name, with template arguments where they are known."""
        long = self.texts("kLongName")
        return np.where(long == "", self.texts("kShortName"), long)

    @cached_property
    def phase(self) -> Texts:
        """A server's prefill and decode are forward passes."""
        phase = self.texts("phase")
        return np.where(np.isin(phase, SERVING_PHASES), "forward", phase)

    family, tc, role = _decoded("family"), _decoded("tc"), _decoded("role")
    precision = _decoded("tcprec")  # of the tensor cores' operands, e.g. ``bf16``; empty without tensor cores

    @cached_property
    def flop(self) -> Floats:
        """FLOPs per row; NaN if unknown."""
        return floats(self.annotation.flops)

    @cached_property
    def nbytes(self) -> Floats:
        """Bytes per row; NaN if unknown."""
        return floats(self.annotation.bytes)

    @cached_property
    def dtype(self) -> Texts:
        """The dtype of each op's first tensor: recorded, otherwise read from the kernel's name, otherwise empty."""
        recorded = self.table.coded("dtypes")
        dtypes = texts_of(Coded(recorded.codes, [next(filter(None, flat_dtypes(t)), "") for t in recorded.values]))
        from_name: dict[tuple[str, str, str], str] = {}
        for i in np.flatnonzero(dtypes == "").tolist():
            key = (self.name[i], self.aten[i], self.family[i])
            if key not in from_name:
                names = kernel_dtypes(*key)
                from_name[key] = names.of(0) or names.rest
            dtypes[i] = from_name[key]
        return dtypes

    def second_dtype(self, row: int) -> str:
        """The dtype of the op's second argument, which for a copy is its source; empty if unknown."""
        dtypes = self.listed("dtypes", row)
        return dtypes[1] if len(dtypes) > 1 and isinstance(dtypes[1], str) else ""

    def listed(self, key: str, row: int) -> list[Any]:
        """A JSON column's list of a row; empty for other values."""
        if key not in self._listed:
            self._listed[key] = PerText(self.table.coded(key), _list)
        return self._listed[key][row]

    def shapes(self, row: int) -> list[list[int]]:
        """The shapes of the op's arguments in order; empty for lists of tensors and arguments that are not tensors."""
        return self._shapes[row]

    @cached_property
    def _shapes(self) -> PerText[list[list[int]]]:
        return PerText(self.table.coded("sizes"), lambda text: [s if numel(s) else [] for s in _list(text)])

    def first_shape(self, row: int) -> list[int]:
        """The shape of the op's first argument; empty if it has none."""
        return (self.shapes(row) or [[]])[0]

    @cached_property
    def alike(self) -> list[int]:
        """A number per row, the same for rows with the same op, arguments and kernel: only their times differ.

        Without strides, the arguments are those of the user's call, too: it may say how they lie in memory.
        """
        columns = [self.table.coded(key) for key in ("aten", "sizes", "strides", "dtypes", "kShortName", "kLongName")]
        columns += [] if (columns[2].codes >= 0).any() else [self.table.coded("marker")]
        columns += [getattr(self.annotation, key) for key in ("family", "tcprec", "tc")]
        found: list[int] = numbered(*(column.codes for column in columns))[1].tolist()
        return found

    def kept(self: R, find: Callable[[R], Found]) -> Found:
        """``find`` of this run, which is called once."""
        if find not in self._kept:
            self._kept[find] = find(self)
        found: Found = self._kept[find]
        return found

    def once(self: R, find: Callable[[R, int], Found], row: int) -> Found:
        """``find`` of this run and the row, which is called once for all rows that are ``alike``."""
        known, number = self._known.setdefault(find, {}), self.alike[row]
        if number not in known:
            known[number] = find(self, row)
        found: Found = known[number]
        return found

    def strides(self, row: int) -> list[Any] | None:
        """The strides of the op's arguments; None if the capture has none."""
        return self.listed("strides", row) or None

    @cached_property
    def elements(self) -> Ints:
        """Per op, the element count of its first argument with a shape; 0 if no shape is known."""
        return self._elements(lambda counts: counts[0])

    @cached_property
    def largest(self) -> Ints:
        """Per op, the element count of its largest argument; 0 if no shape is known."""
        return self._elements(max)

    def _elements(self, chosen: Callable[[list[int]], int]) -> Ints:
        column = self.table.coded("sizes")
        counts = [chosen([numel(shape) for shape in _list(text)] or [0]) for text in column.values]
        return np.array([*counts, 0], np.int64)[column.codes]

    def mentions(self, key: str, *words: str) -> Bools:
        """A mask of the rows whose text in a column contains one of the words."""
        return self.table.coded(key).where(lambda value: any(word in value for word in words))

    def names(self, key: str) -> Bools:
        """A mask of the rows whose JSON list in a column names something: not of those without text, or with []."""
        return self.table.coded(key).where(lambda value: any(letter.isalnum() for letter in value))

    @cached_property
    def collectives(self) -> Bools:
        """Kernels that communicate."""
        return kinds(self.table, self.annotation).among(NCCL)

    @cached_property
    def records_gradients(self) -> bool:
        """Whether any row has a sequence number, since autograd numbers ops only when it can record gradients."""
        return any(len(self.table.ragged(key).values) > 0 for key in ("seqId", "altSeqId"))

    @cached_property
    def trains(self) -> bool:
        """Whether any row is of a backward pass or an optimizer."""
        phases, ways = self.table.coded("phase"), self.table.coded("dir")
        return bool((phases.among("backward", "optimizer") | ways.among("bprop")).any())

    @cached_property
    def node_number(self) -> Ints:
        """The number of the autograd node that each row's op makes or runs in, NULL without one.

        An op that calls others has the number of their first node, and they have larger ones.
        """
        own, others = (largest_numbers(self.table.ragged(key)) for key in ("seqId", "altSeqId"))
        return np.where(self.table.coded("dir").among("bprop"), own, np.maximum(own, others))

    # Words

    def op(self, row: int) -> str:
        """The op that the user called: the innermost item of ``op``, or else the aten op, or else the kernel."""
        found = self._ops[row]
        return str(self.aten[row] or self.texts("kShortName")[row]) if found is None else found

    def layer(self, row: int) -> str:
        return self._layers[row]

    def place(self, row: int) -> Place:
        """The innermost line of the user's code, and the library's line that it leads to."""
        return self._places[row]

    def trace(self, row: int) -> str:
        """The same as one text."""
        return self._lines[row]

    @cached_property
    def _ops(self) -> PerText[str | None]:
        return PerText(self.table.coded("op"), _last)

    @cached_property
    def _layers(self) -> PerText[str]:
        return PerText(self.table.coded("layer"), lambda text: ":".join(map(str, _list(text))))

    @cached_property
    def _places(self) -> PerText[Place]:
        return PerText(self.table.coded("trace"), lambda text: place_of(list(map(str, _list(text)))))

    @cached_property
    def _lines(self) -> PerText[str]:
        return PerText(self.table.coded("trace"), lambda text: str(place_of(list(map(str, _list(text))))))


class PerText(Generic[Found]):
    """Per row, what follows from its text in a column, found once per distinct text; rows without text have ""."""

    def __init__(self, column: Coded, find: Callable[[str], Found]) -> None:
        self._codes, self._values, self._find = column.codes.tolist(), column.values, find
        self._found: dict[int, Found] = {}

    def __getitem__(self, row: int) -> Found:
        code = self._codes[row]
        if code not in self._found:
            self._found[code] = self._find(self._values[code] if code >= 0 else "")
        return self._found[code]


def _last(text: str) -> str | None:
    """The last item of a JSON list."""
    found = _list(text)
    return str(found[-1]) if found else None


def numel(shape: Any) -> int:
    """The number of elements of a shape; 0 for a scalar or a list of shapes.

    >>> numel([2, 3]), numel([]), numel([[2, 3]])
    (6, 0, 0)
    """
    plain = isinstance(shape, list) and bool(shape) and all(type(n) is int and n >= 0 for n in shape)
    size = math.prod(shape) if plain else 0
    return size if size < 1 << 62 else 0


def texts_of(column: Coded) -> Texts:
    return np.array([*column.values, ""], object)[column.codes]
