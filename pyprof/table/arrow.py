"""Convert numpy arrays and texts to Arrow arrays, and back, through their buffers.

``pyarrow.array``, ``scalar`` and ``to_numpy`` check whether their arguments are pandas objects, and import pandas for
this check (seen in pyarrow 26). The import takes longer than most of our work with Arrow. Buffers avoid it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyprof.errors import PyprofError
from pyprof.table.columns import Coded
from pyprof.text import clean

LONGEST = (1 << 31) - 1  # the most bytes that all values of an Arrow string array may have together


def computed(function: str, *arguments: Any) -> Any:
    """What a function of ``pyarrow.compute`` gives, without that module: it wraps each of its functions at import.

    This takes 60 ms (pyarrow 26), a tenth of the time for a capture of 100,000 operations.
    """
    from pyarrow._compute import call_function

    return call_function(function, list(arguments))


def numbers(values: NDArray[Any], known: NDArray[np.bool_] | None = None) -> Any:
    """An Arrow array of the numbers; null where ``known`` is false."""
    import pyarrow as pa

    valid = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, data])


def texts(values: Sequence[str]) -> Any:
    """An Arrow array of the texts, which must be valid in UTF-8 (see ``clean``). Raises PyprofError beyond 2 GiB."""
    import pyarrow as pa

    joined = "".join(values)
    if joined.isascii():  # as nearly always: each character is one byte
        encoded, lengths = joined.encode(), map(len, values)
    else:
        parts = [clean(text).encode() for text in values]
        encoded, lengths = b"".join(parts), map(len, parts)
    ends = np.cumsum(np.fromiter(lengths, np.int64, len(values)))
    if ends.max(initial=0) > LONGEST:
        found = f"a column has {ends[-1]:,} bytes of texts"
        raise PyprofError(f"{found}, of which Parquet takes {LONGEST:,}: write net.dict")
    buffers = [None, pa.py_buffer(np.append(0, ends).astype(np.int32)), pa.py_buffer(encoded)]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def without_empty(data: Coded) -> Coded:
    """The text column, with code -1 for all empty texts."""
    if "" not in data.values:
        return data
    filled = np.array([*map(bool, data.values), False])  # code -1 selects the last item
    return Coded(np.where(filled[data.codes], data.codes, np.int32(-1)), data.values)


def dictionary(data: Coded, values: Any = None) -> Any:
    """A text column as an Arrow dictionary array; empty texts are null.

    ``values``: ``texts(data.values)`` if known; ``data`` then has code -1 for empty texts, see ``without_empty``.
    """
    import pyarrow as pa

    if values is None:
        data, values = without_empty(data), texts(data.values)
    known, codes = data.codes >= 0, data.codes
    if len(values) > len(codes):  # drop the unused texts
        used, number = np.unique(np.where(known, codes, 0), return_inverse=True)
        values, codes = computed("take", values, numbers(used)), number.reshape(-1).astype(np.int32)
    return pa.DictionaryArray.from_arrays(numbers(codes, known), values)


def array_of(array: Any, dtype: type, null: float) -> NDArray[Any]:
    """The numbers of an Arrow array as numpy array of that type, with ``null`` in place of nulls."""
    valid, data = array.buffers()
    count, before = len(array), array.offset
    if not count or data is None:
        return np.full(count, null, dtype)
    values: NDArray[Any] = np.frombuffer(data, dtype, before + count)[before:]
    if not array.null_count:
        return values
    known = np.unpackbits(np.frombuffer(valid, np.uint8), count=before + count, bitorder="little")[before:]
    return np.where(known.astype(bool), values, dtype(null))
