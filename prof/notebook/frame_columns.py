"""Tables that DataFrames and notebooks show: groups, ops, advice. Only ``frame`` needs pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from pyprof.errors import packages
from pyprof.prof.changes.records import Change
from pyprof.prof.table.cells import Data, ints, texts
from pyprof.prof.table.columns import COLUMN, Column
from pyprof.prof.table.group import AGGREGATE, group_rows, own_column, ratio
from pyprof.table.attribution import launched_alone
from pyprof.table.columns import NULL, Coded, Floats, Ints, distinct, distinct_texts

if TYPE_CHECKING:
    import pandas as pd

Columns = list[tuple[Column, Data]]  # a table: each column with its rows

CALLS = own_column("calls", "", "calls of the op, which may launch several kernels each")
SOL = own_column("sol", "%", "speed of light: sum of the limits / time, of the rows whose limit is known", "float")


def group_columns(keys: Sequence[str], data: Mapping[str, Data]) -> Columns:
    """One row per combination of the keys, longest time first, like ``--group``. ``data``: the keys and ``NEEDED``."""
    agreed, sums = group_rows([data[key] for key in keys], data)
    order = np.argsort(-ints(sums["time"]), kind="stable")
    columns = [*(COLUMN[key] for key in keys), *(AGGREGATE[name] for name in sums)]
    return [(column, values.take(order)) for column, values in zip(columns, [*agreed, *sums.values()], strict=True)]


def op_columns(data: Mapping[str, Data], call: Ints) -> Columns:
    """Groups by op and direction, with the number of calls and the percentage of the hardware's limit that they reach.

    ``call``: a number per row, the same for the kernels of one call. ``data``: op, dir, sol_ns and ``NEEDED``.
    """
    (op_column, ops), (dir_column, directions), *sums = group_columns(("op", "dir"), data)
    op, direction = (Coded.concat([texts(data[key])]) for key in ("op", "dir"))
    names, row = distinct_texts(op, direction)
    pairs, _ = distinct(row, call)
    calls = np.bincount([number for number, _ in pairs], minlength=len(names)).astype(np.int64)
    time = np.where(launched_alone(texts(data["reason"])), 0, ints(data["sil"]))  # the time of a launch: no rate
    sol = _reached(row, len(names), time, ints(data["sol_ns"]))
    place = {name: i for i, name in enumerate(names)}
    order = int_array(place[pair] for pair in zip(texts(ops).texts(), texts(directions).texts(), strict=True))
    has_op = np.array([bool(names[i][0]) for i in order.tolist()], bool)
    count = np.where(has_op, calls[order], NULL)
    return [(op_column, ops), (dir_column, directions), (CALLS, count), *sums, (SOL, sol[order])]


def _reached(row: Ints, size: int, time: Ints, limit: Ints) -> Floats:
    """Sum of limits / sum of time, in %, per group, over the rows with a known limit; NaN where these have less than
    half of the group's time."""
    known = (limit != NULL) & (time > 0)
    limits, known_time = (np.bincount(row[known], weights=values[known], minlength=size) for values in (limit, time))
    whole = np.bincount(row, weights=np.maximum(time, 0), minlength=size)
    return np.where(2 * known_time > whole, ratio(100 * limits, known_time), np.nan)


def advice_columns(changes: Sequence[Change]) -> Columns:
    """One row per change, in order."""
    columns: Columns = []
    for name, hint in get_type_hints(Change, include_extras=True).items():
        if name in ("step", "code"):
            continue
        values = [getattr(change, name) for change in changes]
        unit, meaning = "ms" if name.endswith("_ms") else "", hint.__metadata__[0].description
        if hint.__origin__ is str:
            columns.append((own_column(name, unit, meaning, "text"), Coded.of(values)))
        else:
            numbers = [np.nan if value is None else value for value in values]
            columns.append((own_column(name, unit, meaning, "float"), np.array(numbers, np.float64)))
    return columns


def records(columns: Columns) -> list[dict[str, Any]]:
    """The rows as Python values; unknown values and empty texts are None."""
    names = [column.name for column, _ in columns]
    values = [_plain(data) for _, data in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _plain(data: Data) -> list[Any]:
    if isinstance(data, Coded):
        return [text or None for text in data.texts()]
    if data.dtype.kind == "f":
        return [None if value != value else value for value in data.tolist()]
    return [None if value == NULL else value for value in data.tolist()]


def frame(columns: Columns, plain: Sequence[str] = ()) -> pd.DataFrame:
    """The table: ``Int64`` for integers, ``float64`` for rates (NaN where unknown), categories for texts.

    The columns named in ``plain`` have texts that rarely repeat, so they stay objects. ``attrs["units"]`` and
    ``attrs["meanings"]`` hold the unit and the meaning of each column.
    """
    with packages():
        import pandas as pd

    made = pd.DataFrame({column.name: _series(values, column.name in plain) for column, values in columns})
    made.attrs["units"] = {column.name: column.unit for column, _ in columns if column.unit}
    made.attrs["meanings"] = {column.name: column.meaning for column, _ in columns}
    return made


def _series(data: Data, plain: bool) -> Any:
    import pandas as pd

    if isinstance(data, Coded):
        each_once = Coded.concat([data]).used()  # without empty texts: these are missing values
        if plain:
            return pd.Series([text or None for text in each_once.texts()], dtype=object)
        # Texts are objects, because a name may hold a lone surrogate, which pandas' string type refuses.
        return pd.Categorical.from_codes(each_once.codes, pd.Index(each_once.values, dtype=object))
    if data.dtype.kind == "f":
        return data.astype(np.float64)
    missing = data == NULL
    return pd.arrays.IntegerArray(np.where(missing, 0, data).astype(np.int64), missing)


def int_array(values: Iterable[int]) -> Ints:
    return np.array(list(values), np.int64)
