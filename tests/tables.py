"""Kernel tables for tests: parsed from files, made by Hypothesis out of hostile texts, and their rows as values."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from pyprof.parse.detect import reader
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.load import load_table
from pyprof.prof.table.check_cells import FORMS, TIMES
from pyprof.prof.work.annotate import Annotation, annotate
from pyprof.table.columns import NULL, Coded, Ragged, Table
from pyprof.table.schema import KERNELS, Column

HOSTILE = (
    '"', "\\", '\\"', "\n", "\r\n", "\0", "\x1b[31m", "\x7f", "\x85", "\u2028", "'", "{", "}\n{", "None", "(1, 2, 3)",
    '"grid": (', ', "grid": (1, 1, 1)', '", "kDuration": 5, "', ', "layer": [', "é", "漢", "\U0001f600", "\\ud83d",
    "<b>", "__import__('os').system('true')", "a,b", "   ",
)  # fmt: skip
INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
TEXT = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=5), max_size=4).map("".join)
KEYS = TEXT | st.sampled_from(["grid", "layer"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def parsed(file: Path) -> Table:
    """The kernel table of a profiler's file. Each of the checkout's captures is read once."""
    facts = file.stat()
    return _parsed(file, facts.st_mtime_ns, facts.st_ino, facts.st_size)


@lru_cache(maxsize=100)
def _parsed(file: Path, *_unchanged: int) -> Table:
    return correlate(reader(file)(file))


_annotated: dict[Path, tuple[Table, Annotation]] = {}


def annotated(file: Path) -> tuple[Table, Annotation]:
    """The kernel table of a capture as commands load it, which this process keeps, with its FLOPs and bytes."""
    table = load_table(file).table
    known = _annotated.get(file)
    if known is None or known[0] is not table:
        known = _annotated[file] = table, annotate(table)
    return known


def encodable(text: str) -> bool:
    """Whether UTF-8 can hold it: no half of a surrogate pair."""
    return not any(0xD800 <= ord(c) < 0xE000 for c in text)


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _values(column: Column) -> st.SearchStrategy[Any]:
    if column.kind == "text":
        return TEXT
    if column.kind == "triple":
        return st.just("") | st.lists(INT64, min_size=3, max_size=3).map(_json_text)
    return st.just("") | st.lists(JSON, min_size=1, max_size=3).map(_json_text)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    rows = draw(st.integers(1, 4))
    some = draw(st.sets(st.sampled_from(KERNELS), max_size=8))
    columns: dict[str, Any] = {"kShortName": Coded.of(f"k{i}" for i in range(rows)), "kDuration": np.arange(rows)}
    for column in sorted(some, key=lambda c: c.key):
        if column.key in columns:
            continue
        kind = column.kind
        if kind == "int":
            values = draw(st.lists(INT64 | st.just(NULL), min_size=rows, max_size=rows))
            columns[column.key] = np.array(values, np.int64)
        elif kind == "float":
            values = draw(st.lists(st.floats(allow_infinity=False), min_size=rows, max_size=rows))
            columns[column.key] = np.array(values)
        elif kind == "ints":
            columns[column.key] = Ragged.of(draw(st.lists(st.lists(INT64, max_size=3), min_size=rows, max_size=rows)))
        else:
            columns[column.key] = Coded.of(draw(st.lists(_values(column), min_size=rows, max_size=rows)))
    return Table(rows, columns)


def rows(table: Table) -> list[dict[str, Any]]:
    """The rows as Python values; None for what is unknown."""
    columns = {column.key: _column(column, table) for column in KERNELS}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _column(column: Column, table: Table) -> list[Any]:
    data = table.columns[column.key]
    if isinstance(data, Ragged):
        return data.lists()
    if isinstance(data, Coded):
        return data.texts() if column.kind == "text" else [json.loads(text) if text else None for text in data.texts()]
    if column.kind == "float":
        return [None if value != value else value for value in data.tolist()]
    return [None if value == NULL else value for value in data.tolist()]


def readable_tables() -> st.SearchStrategy[Table]:
    """Tables as files bring them in: without the values that load_table refuses."""
    return tables().map(_readable)


def _readable(table: Table) -> Table:
    for key, (form, _) in FORMS.items():
        column = table.coded(key)
        bad = [bool(text) and not _fits(text, form) for text in column.values]
        codes = np.where(np.array([*bad, False])[column.codes], -1, column.codes)
        table = table.with_column(key, Coded(codes, column.values))
    for key, (least, most) in TIMES.items():
        times = table.ints(key)
        table = table.with_column(key, np.where((times < least) | (times > most), NULL, times))
    return table


def _fits(text: str, form: Any) -> bool:
    try:
        msgspec.json.decode(text, type=form)
    except msgspec.MsgspecError:
        return False
    return True
