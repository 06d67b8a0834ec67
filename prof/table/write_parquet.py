"""The printed table as Parquet: columns named as -c takes them, units and meanings in the fields' metadata."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from pyprof._version import __version__
from pyprof.prof.table.cells import Cells, Data, is_float
from pyprof.prof.table.columns import Column
from pyprof.table import arrow
from pyprof.table.columns import NULL, Coded


def write_parquet(cells: Cells, out: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = [_array(data) for data in cells.data]
    fields = [_field(pa, column, array) for column, array in zip(cells.columns, arrays, strict=True)]
    schema = pa.schema(fields, {b"pyprof.version": __version__})
    pq.write_table(pa.table(arrays, schema=schema), out, compression="zstd")


def _field(pa: Any, column: Column, array: Any) -> Any:
    return pa.field(column.name, array.type, metadata={"unit": column.unit, "meaning": column.meaning})


def _array(data: Data) -> Any:
    if isinstance(data, Coded):
        return arrow.dictionary(data)
    return arrow.numbers(data, np.isfinite(data) if is_float(data) else data != NULL)
