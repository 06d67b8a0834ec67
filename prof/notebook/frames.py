"""Columns -> pandas DataFrames: integers that may be missing, categories for texts that repeat, units beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyprof.prof.notebook.frame_columns import Columns
from pyprof.table.columns import NULL, Coded

if TYPE_CHECKING:
    from pyprof.prof.table.cells import Data


def frame(columns: Columns, plain: Sequence[str] = ()) -> pd.DataFrame:
    """The table: ``Int64`` for integers, ``float64`` for rates (NaN where unknown), categories for texts.

    Texts of the columns named in ``plain`` hardly repeat and stay objects. ``attrs["units"]`` and
    ``attrs["meanings"]`` have each column's.
    """
    made = pd.DataFrame({column.name: _series(values, column.name in plain) for column, values in columns})
    made.attrs["units"] = {column.name: column.unit for column, _ in columns if column.unit}
    made.attrs["meanings"] = {column.name: column.meaning for column, _ in columns}
    return made


def _series(data: Data, plain: bool) -> Any:
    if isinstance(data, Coded):
        each_once = Coded.concat([data]).used()  # without empty ones, which are missing
        if plain:
            return pd.Series([text or None for text in each_once.texts()], dtype=object)
        # As objects: pandas' own strings refuse half a surrogate pair, which a name may hold.
        return pd.Categorical.from_codes(each_once.codes, pd.Index(each_once.values, dtype=object))
    if data.dtype.kind == "f":
        return data.astype(np.float64)
    missing = data == NULL
    return pd.arrays.IntegerArray(np.where(missing, 0, data).astype(np.int64), missing)
