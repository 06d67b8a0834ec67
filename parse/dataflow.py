"""The shapes of intermediates, from who consumes them.

With record_shapes PyTorch writes `input_op_ids = [(producer, output), ...]` beside the sizes of an op's inputs: the
size of input i is the shape of output `output` of op `producer`. NVTX ranges carry no strides, paddings or outputs, so
this is how a convolution's output is known.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from pyprof.table import NULL, Ints

# Ops whose output shape their inputs' shapes do not tell.
NEEDED = re.compile(
    rb"aten::(?:_?convolution|(?:cudnn|miopen|mkldnn)_convolution\w*|conv(?:_transpose)?[123]d"
    rb"|(?:max|avg|adaptive_avg|adaptive_max|_adaptive_avg)_pool[123]d\w*|sum|mean|amax|amin|max|min|argmax|argmin"
    rb"|cat|stack|index|upsample_\w+|constant_pad_nd), op_id = "
)
_DIMS = re.compile(rb"\[[\d, ]*\]")
_SIZES = b", sizes = ["


class DataFlow:
    """Collects the first consumer's view of each needed op's first output, a chunk of ranges at a time."""

    def __init__(self) -> None:
        self.outs: dict[int, str] = {}
        self._needed: list[bool] = []  # by head
        self._rows = 0  # ranges seen
        self._keys = np.zeros(0, np.int64)  # (pid, op id) of the needed ops seen, sorted, and their ranges
        self._ranges = np.zeros(0, np.int64)

    def add(self, heads: list[bytes], tid: Ints, code: Ints, op_id: Ints, links: list[bytes]) -> None:
        """Take the next ranges: their threads, the numbers of their heads, op ids and links."""
        first, self._rows = self._rows, self._rows + len(links)
        self._needed += [NEEDED.match(head) is not None for head in heads[len(self._needed) :]]
        if not any(self._needed):
            return
        pid = (tid >> 24) & 0xFFFFFF
        self._remember(np.flatnonzero(np.array(self._needed)[code] & (op_id != NULL)), first, pid, op_id)
        row, position, producer = _links(links)
        found = self._find((pid[row] << 40) + producer)
        hits = np.flatnonzero(found >= 0)
        for r, place, index in zip(row[hits].tolist(), position[hits].tolist(), found[hits].tolist(), strict=True):
            if index not in self.outs and (shape := _shape(heads[int(code[r])], place)):
                self.outs[index] = f"[{shape}]"

    def _remember(self, rows: NDArray[np.intp], first: int, pid: Ints, op_id: Ints) -> None:
        keys = np.concatenate([self._keys, (pid[rows] << 40) + op_id[rows]])
        ranges = np.concatenate([self._ranges, rows + first])
        order = np.argsort(keys, kind="stable")
        self._keys, self._ranges = keys[order], ranges[order]

    def _find(self, keys: Ints) -> Ints:
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._ranges[at], -1)


def _links(links: list[bytes]) -> tuple[Ints, Ints, Ints]:
    """(row, input position, producer's op id) of every link to an op's first output.

    Vectorised over the text `[(3691,0), (0,-1), ...]` of many ranges: millions of links are read at array speed.
    """
    text = np.frombuffer(b"\n".join(links) + b"\n          ", np.uint8)
    begin = np.flatnonzero(text == ord("("))
    row = np.searchsorted(np.flatnonzero(text == ord("\n")), begin)
    producer = np.zeros(len(begin), np.int64)
    at = begin + 1
    digit = np.ones(len(begin), bool)
    while digit.any():
        byte = text[at]
        digit = (byte >= ord("0")) & (byte <= ord("9"))
        producer = np.where(digit, producer * 10 + (byte - ord("0")), producer)
        at = at + digit
    first_output = (text[at] == ord(",")) & (text[at + 1] == ord("0")) & (text[at + 2] == ord(")"))
    position = np.arange(len(begin)) - np.searchsorted(row, row)
    keep = first_output & (producer > 0)
    return row[keep], position[keep], producer[keep]


def _shape(head: bytes, position: int) -> str:
    """The shape of input ``position`` in a head's `sizes = [[..], ..]`, empty where it is cut or none."""
    sizes = _DIMS.findall(head.partition(_SIZES)[2])
    return sizes[position].decode() if position < len(sizes) and sizes[position] != b"[]" else ""
