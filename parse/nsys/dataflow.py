"""Find the shapes of outputs from the ops that consume them.

With record_shapes PyTorch writes `input_op_ids = [(producer, output), ...]` beside the sizes of an op's inputs: the
size of input i is the shape of output `output` of op `producer`. NVTX ranges have no strides, paddings or outputs, so
this is the only way to find the shape of a convolution's output.
"""

import re

import numpy as np

from pyprof.parse.nsys.nvtx_texts import LINKS, Buffer, Parts, numbers
from pyprof.parse.nsys.tables import process_of
from pyprof.table.columns import NULL, Ints

# Ops whose output shape does not follow from their inputs' shapes.
NEEDED = re.compile(
    rb"aten::(?:_?convolution|(?:cudnn|miopen|mkldnn)_convolution\w*|conv(?:_transpose)?[123]d"
    rb"|(?:max|avg|adaptive_avg|adaptive_max|_adaptive_avg)_pool[123]d\w*|sum|mean|amax|amin|max|min|argmax|argmin"
    rb"|cat|stack|index|upsample_\w+|constant_pad_nd), op_id = "
)
_DIMS = re.compile(rb"\[[\d, ]*\]")
_SIZES = b", sizes = ["


class DataFlow:
    """The shape of each needed op's first output, taken from its first consumer and collected chunk by chunk."""

    def __init__(self) -> None:
        self.outs: dict[int, str] = {}
        self._needed = np.zeros(0, bool)  # per head: whether its op is in NEEDED
        self._shapes: dict[tuple[int, int], str] = {}  # (head, input) -> shape
        self._runs: list[tuple[Ints, Ints]] = []  # sorted keys (pid, op id) of the needed ops so far, and their ranges

    def add(self, heads: list[bytes], tid: Ints, parts: Parts, buffer: Buffer, ranges: Ints) -> None:
        """Process the next chunk: globalTids, split texts and range numbers. ``heads``: all heads so far."""
        new = [NEEDED.match(head) is not None for head in heads[len(self._needed) :]]
        self._needed = np.append(self._needed, np.array(new, bool))
        if not self._needed.any():
            return
        pid = process_of(tid)
        made = np.flatnonzero(self._needed[parts.head] & (parts.op_id != NULL))
        self._remember((pid[made] << 40) + parts.op_id[made], ranges[made])
        row, position, producer = _links(parts, buffer)
        made_by = self._find((pid[row] << 40) + producer)  # the producers' ranges
        hits = np.flatnonzero(made_by >= 0)
        codes = parts.head[row[hits]].tolist()
        for code, place, index in zip(codes, position[hits].tolist(), made_by[hits].tolist(), strict=True):
            if index not in self.outs:
                if (code, place) not in self._shapes:
                    self._shapes[code, place] = _shape(heads[code], place)
                if shape := self._shapes[code, place]:
                    self.outs[index] = shape

    def _remember(self, keys: Ints, ranges: Ints) -> None:
        """Merge into sorted runs, each more than twice as long as the next, so that n ops take n log n time."""
        if not len(keys):
            return
        while self._runs and len(self._runs[-1][0]) <= 2 * len(keys):
            earlier = self._runs.pop()
            keys, ranges = np.concatenate([earlier[0], keys]), np.concatenate([earlier[1], ranges])
        order = np.argsort(keys, kind="stable")
        self._runs.append((keys[order], ranges[order]))

    def _find(self, wanted: Ints) -> Ints:
        """The first range with each wanted op number; -1 for none."""
        first = np.full(len(wanted), -1, np.int64)
        for keys, ranges in self._runs:
            at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            first = np.where((first < 0) & (keys[at] == wanted), ranges[at], first)
        return first


def _links(parts: Parts, buffer: Buffer) -> tuple[Ints, Ints, Ints]:
    """(row, input position, producer's op id) of every link to an op's first output."""
    data = buffer.data  # of texts that end in `[(3691,0), (0,-1), ...]`: millions of links are read at array speed
    opened = np.flatnonzero(data == ord("("))
    links = parts.links + len(LINKS)
    place = np.flatnonzero(data[opened + 1] != ord("0"))  # (0,-1): no op made the input
    begin = opened[place]
    row = buffer.owner(begin)
    inside = begin >= links[row]
    begin, row, place = begin[inside], row[inside], place[inside]
    position = place - np.searchsorted(opened, links)[row]
    producer, at = numbers(data, begin + 1, buffer.end[row])
    first_output = (data[at] == ord(",")) & (data[at + 1] == ord("0")) & (data[at + 2] == ord(")"))
    keep = first_output & (producer > 0) & (at + 3 <= buffer.end[row])
    return row[keep], position[keep], producer[keep]


def _shape(head: bytes, position: int) -> str:
    """A JSON list with the shape of one input from a head's `sizes = [[..], ..]`; empty if it is cut or unknown."""
    sizes = _DIMS.findall(head.partition(_SIZES)[2])
    return f"[{sizes[position].decode()}]" if position < len(sizes) and sizes[position] != b"[]" else ""
