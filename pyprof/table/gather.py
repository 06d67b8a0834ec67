"""Build the columns of a kernel table part by part, from raw texts or from values.

Raw texts are faster: a million rows have a few thousand distinct texts, each of which is parsed once, and numbers are
parsed together. An unexpected value raises ValueError (``WrongValue``); the caller adds file and line.
"""

import ast
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from pyprof.table.columns import NULL, Coded, Data, Ints, Ragged, offsets_of
from pyprof.table.schema import Column, Kind
from pyprof.text import clean

EXPECTED: dict[Kind, str] = {
    "int": "an integer or None",
    "float": "a number or None",
    "text": "a string",
    "json": "a list or dict",
    "triple": "three integers",
    "ints": "a list of integers",
}
# Keys for which PyProf wrote [] for an unknown list. For other keys [] is a value (an op without inputs).
EMPTY_IS_NONE = frozenset({"layer", "trace", "reprMarkers", "marker", "seqMarker", "mod", "op"})


_ENCODED = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # json.dumps would make an encoder per value


class WrongValue(ValueError):
    """A value that is not of its column's kind."""

    def __init__(self, column: Column, found: object) -> None:
        super().__init__(f"key {column.key!r}: expected {EXPECTED[column.kind]}, found {short(found)}")


def short(found: object) -> str:
    """A value as a text of at most 60 characters."""
    text = repr(found)
    return text if len(text) <= 60 else f"{text[:57]}..."


def literal(raw: bytes) -> Any:
    """The value of a JSON text or Python literal. Raises ValueError for anything else."""
    try:
        text = raw.decode().strip()
    except UnicodeDecodeError:
        raise ValueError("bytes that are not UTF-8") from None
    try:
        return json.loads(text)  # not msgspec, which converts integers beyond 64 bits to floats
    except (ValueError, RecursionError):
        pass  # it must be a Python literal
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        why = getattr(error, "msg", None) or str(error) or "too deeply nested"
        raise ValueError(f"no Python literal ({why})") from None


class Numbers:
    """An int or float column."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.dtype: type = np.int64 if column.kind == "int" else np.float64
        self.types = {int, type(None)} if column.kind == "int" else {int, float, type(None)}
        self.null: float = NULL if column.kind == "int" else np.nan
        self.parts: list[Any] = []

    def parse(self, raws: Sequence[bytes]) -> Any:
        return self.check(_together(raws))

    def check(self, values: Sequence[Any]) -> Any:
        types = set(map(type, values))
        if not types <= self.types:
            raise WrongValue(self.column, next(v for v in values if type(v) not in self.types))
        if type(None) in types:
            values = [self.null if value is None else value for value in values]
        try:
            return np.array(values, self.dtype)
        except OverflowError:
            raise WrongValue(self.column, max(values, key=abs)) from None

    def data(self) -> Data:
        return np.concatenate([np.zeros(0, self.dtype), *self.parts])


class Texts:
    """A text, json or triple column, whose distinct texts are stored once."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.form = _FORM[column.kind]
        self.by_raw: dict[bytes, int] = {}
        self.by_text: dict[str, int] = {}
        self.parts: list[Any] = []

    def parse(self, raws: Sequence[bytes]) -> Any:
        codes = list(map(self.by_raw.get, raws))
        if None in codes:
            for raw in dict.fromkeys(raws):  # in order of occurrence, so that equal files give equal codes
                if raw not in self.by_raw:
                    self.by_raw[raw] = self._code(literal(raw))
            codes = list(map(self.by_raw.get, raws))
        return np.array(codes, np.int32)

    def check(self, values: Sequence[Any]) -> Any:
        return np.array([self._code(value) for value in values], np.int32)

    def _code(self, value: Any) -> int:
        text = "" if value is None else self.form(value)
        if text is None:
            raise WrongValue(self.column, value)
        if not text or (text == "[]" and self.column.key in EMPTY_IS_NONE):
            return -1
        return self.by_text.setdefault(text, len(self.by_text))

    def data(self) -> Data:
        return Coded(np.concatenate([np.zeros(0, np.int32), *self.parts]), list(self.by_text))


class Lists:
    """An ints column. Each part has the length of each row's list, and the values of all lists."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.parts: list[tuple[Ints, Ints]] = []

    def parse(self, raws: Sequence[bytes]) -> tuple[Ints, Ints]:
        return self.check(_together(raws))

    def check(self, values: Sequence[Any]) -> tuple[Ints, Ints]:
        rows = [() if value is None else value for value in values]
        if not set(map(type, rows)) <= {list, tuple}:
            raise WrongValue(self.column, next(row for row in rows if type(row) not in {list, tuple}))
        flat = [number for row in rows for number in row]
        if not set(map(type, flat)) <= {int}:
            raise WrongValue(self.column, next(row for row in rows if not set(map(type, row)) <= {int}))
        try:
            return np.array(list(map(len, rows)), np.int64), np.array(flat, np.int64)
        except OverflowError:
            raise WrongValue(self.column, max(flat, key=abs)) from None

    def data(self) -> Data:
        none = np.zeros(0, np.int64)
        counts = np.concatenate([none, *(part[0] for part in self.parts)])
        values = np.concatenate([none, *(part[1] for part in self.parts)])
        return Ragged(offsets_of(counts), values)


Gatherer = Numbers | Texts | Lists


def gatherer(column: Column) -> Gatherer:
    if column.kind in ("int", "float"):
        return Numbers(column)
    return Lists(column) if column.kind == "ints" else Texts(column)


def _together(raws: Sequence[bytes]) -> list[Any]:
    """Parse many short texts as one JSON list. A text that is not exactly one value changes the count or a type."""
    values = msgspec.json.decode(b"[" + b",".join(raws).replace(b"None", b"null") + b"]")
    if len(values) != len(raws):
        raise ValueError("a value is missing")
    return list(values)


def _text(value: Any) -> str | None:
    return clean(value) if isinstance(value, str) else None


def _json(value: Any) -> str | None:
    if not isinstance(value, (list, tuple, dict)):
        return None
    try:
        return clean(_ENCODED(value))
    except (TypeError, ValueError, RecursionError):  # for example a set, bytes, a complex number or inf
        return None


def _triple(value: Any) -> str | None:
    if not isinstance(value, (list, tuple)) or not all(type(item) is int for item in value):
        return None
    return json.dumps(list(value)) if len(value) == 3 else "" if not value else None


_FORM: dict[Kind, Callable[[Any], str | None]] = {"text": _text, "json": _json, "triple": _triple}
