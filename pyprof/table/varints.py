"""Whole numbers as protobuf writes them, 7 bits per byte, the lowest first; many of them at once."""

import numpy as np
from numpy.typing import NDArray

from pyprof.table.columns import Bools, Ints


def varints(values: Ints) -> tuple[NDArray[np.uint8], Bools]:
    """The bytes of each number, one row each, and which of them are written; a negative one as its 64-bit complement.

    >>> digits, written = varints(np.array([5, 300]))
    >>> digits[written].tobytes().hex()
    '05ac02'
    """
    left = values.astype(np.int64).view(np.uint64)
    used = [np.ones(len(left), bool)]
    digits = []
    while True:
        rest = left >> np.uint64(7)
        digits.append((left & np.uint64(0x7F)).astype(np.uint8))
        more = rest > 0
        if not more.any():
            return np.stack(digits, axis=1), np.stack(used, axis=1)
        digits[-1] |= np.where(more, np.uint8(0x80), np.uint8(0))
        used.append(more)
        left = rest
