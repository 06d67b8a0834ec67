"""Split tens of thousands of range texts at once into sequence numbers, op ids, and the remaining texts, the heads.

PyTorch (torch/csrc/profiler/util.cpp, getNvtxStr) writes `NAME, seq = N, op_id = N, sizes = [..], input_op_ids = [..]`.
Millions of such texts differ only in their numbers. A loop over them takes two microseconds per text. Instead, this
module puts the texts into one buffer, finds the marks (`, seq = ` and so on) by their `=`, reads numbers digit by digit
in all texts together, and lets pyarrow find the distinct names and sizes. Texts of any other form (markers, users'
ranges, PyTorch 1.x) are split one by one, once per distinct text. ``split_one`` shows the result of both methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.attribute import scope
from pyprof.table import arrow
from pyprof.table.columns import NULL, Ints, numbered

SEQ, OP_ID, LINKS = b", seq = ", b", op_id = ", b", input_op_ids = "
MOST_DIGITS = 18  # every number of 18 digits fits into 64 bits
# To read up to 8 digits at once, in 64 bits: neighbouring digits, then pairs of them, then fours become one number.
_ZEROS, _ABOVE_9, _HIGHEST = (np.uint64(byte * 0x0101010101010101) for byte in (0x30, 0x76, 0x80))
_PAIRS = [
    tuple(map(np.uint64, step))
    for step in ((10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10_000, 32, 0x00000000FFFFFFFF))
]
_PLACES = np.uint64(0x0001020304050607)  # times the lowest bit of byte n: the highest byte is n
_PAD = b"\0" * 32  # put before and after the texts, since words of 8 bytes are read around any of their bytes


class Buffer(NamedTuple):
    """Texts one after the other: text i is ``data[begin[i]:end[i]]``."""

    raw: bytes
    data: NDArray[np.uint8]  # the same
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, pieces: Sequence[bytes], lengths: Ints) -> Buffer:
        """Texts by their lengths in bytes; a piece is one text or several already joined."""
        end = np.cumsum(lengths) + len(_PAD)
        raw = b"".join((_PAD, *pieces, _PAD))
        return cls(raw, np.frombuffer(raw, np.uint8), np.concatenate([[len(_PAD)], end[:-1]]), end)

    def __len__(self) -> int:
        return len(self.begin)

    def owner(self, at: Ints) -> Ints:
        """The index of the text that contains each position; positions ascend."""
        bounds = np.searchsorted(at, self.begin)
        return np.repeat(np.arange(len(self)), np.diff(bounds, append=len(at)))


class Parts(NamedTuple):
    """The parts of each text of a buffer; ``NULL`` for a number that a text lacks."""

    head: Ints  # number of the head: the text without its numbers and links
    seq: Ints  # autograd sequence number
    op_id: Ints
    links: Ints  # position of `, input_op_ids = ` in the buffer, or of the text's end if there is none


class Heads:
    """The distinct heads, numbered in order of appearance."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def number(self, heads: Iterable[bytes]) -> list[int]:
        """The number of each head; new ones get the next numbers."""
        numbers = []
        for head in heads:
            number = self._numbers.setdefault(head, len(self.texts))
            if number == len(self.texts):
                self.texts.append(head)
            numbers.append(number)
        return numbers


def split_texts(buffer: Buffer, heads: Heads, one_by_one: bool = False) -> Parts:
    """Split the texts of a buffer; new heads join ``heads`` in order of appearance. ``one_by_one``: without pyarrow."""
    data, begin = buffer.data, buffer.begin
    seq_at, op_at, links = _marks(buffer)
    op_id, op_end = numbers(data, op_at + len(OP_ID), links)
    seq, seq_end = numbers(data, seq_at + len(SEQ), op_at)
    has_seq = seq_at < op_at
    seq[~has_seq] = NULL
    plain = (op_at < links) & (data[begin] != ord("{")) & _is_number(op_at + len(OP_ID), op_end)
    plain &= (op_end == links) | (data[op_end] == ord(","))
    plain &= ~has_seq | ((seq_end == op_at) & _is_number(seq_at + len(SEQ), seq_end))
    parts = Parts(np.zeros(len(buffer), np.int64), seq, op_id, links)
    ends = np.minimum(seq_at, op_at), op_end
    rows_and_heads = _plain_heads(buffer, np.flatnonzero(plain), ends, parts, one_by_one)
    rows_and_heads += _split_rest(buffer, np.flatnonzero(~plain), parts, len(rows_and_heads))
    order = np.argsort(np.array([row for row, _ in rows_and_heads], np.int64))
    number = np.zeros(len(order), np.int64)
    number[order] = heads.number(rows_and_heads[place][1] for place in order.tolist())
    return parts._replace(head=number[parts.head])


def split_one(text: bytes) -> tuple[bytes, int, int]:
    """Head, sequence number and op id of one text without its links.

    >>> split_one(b"aten::mm, seq = 7, op_id = 9, sizes = [[2, 3], [3, 4]]")
    (b'aten::mm, op_id = , sizes = [[2, 3], [3, 4]]', 7, 9)
    """
    if b"," not in text:  # a user's range
        return text, NULL, NULL
    at = text.find(OP_ID)
    if at >= 0 and text[:1] != b"{":
        name, _, seq = text[:at].partition(SEQ)
        op_id, comma, rest = text[at + len(OP_ID) :].partition(b",")
        try:
            return name + OP_ID + comma + rest, _known(int(seq)) if seq else NULL, _known(int(op_id))
        except ValueError:  # a user's own text that looks similar
            pass
    called, number, call, sizes = scope.split(text.decode("utf-8", "replace"))
    mark = OP_ID.decode() if number is not None or call is not None else ""
    head = f"{called}{mark}" + (f", sizes = {sizes}" if sizes else "")
    return head.encode(), NULL if number is None else number, NULL if call is None else call


def _known(number: int) -> int:
    return number if abs(number) < 2**63 else NULL  # autograd cannot have counted further


def numbers(data: NDArray[np.uint8], at: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """The decimal number at each position, read up to ``stop``, and its end; 0 and ``at`` if there is no number.

    ``data`` has at least 8 bytes behind every position.
    """
    word = _words(data)[at] ^ _ZEROS  # digits become 0 to 9, the first one in the lowest byte
    others = ((word + _ABOVE_9) | word) & _HIGHEST  # the highest bit of each byte that is no digit
    first = (others & (~others + np.uint64(1))) >> np.uint64(7)  # the lowest bit of the first such byte
    digits = np.where(others != 0, (first * _PLACES) >> np.uint64(56), 8).astype(np.int64)
    digits = np.minimum(digits, np.maximum(stop - at, 0))
    word = np.where(digits > 0, word << (8 * (8 - digits)).astype(np.uint64), 0)  # the last digit in the highest byte
    for factor, shift, kept in _PAIRS:
        word = (word * factor + (word >> shift)) & kept
    value, end = word.astype(np.int64), at + digits
    reading = np.flatnonzero(digits == 8)  # there may be more
    for _ in range(MOST_DIGITS - 7):
        digit = data[end[reading]] - np.uint8(ord("0"))  # other characters become more than 9
        going = (digit < 10) & (end[reading] < stop[reading])
        reading, digit = reading[going], digit[going]
        if not len(reading):
            break
        value[reading] = value[reading] * 10 + digit
        end[reading] += 1
    return value, end


def _is_number(begin: Ints, end: Ints) -> NDArray[np.bool_]:
    return (end > begin) & (end - begin <= MOST_DIGITS)


def _marks(buffer: Buffer) -> tuple[Ints, Ints, Ints]:
    """The positions of each text's first sequence number, op id and links; the text's end for missing ones."""
    words = _words(buffer.data)
    equals = np.flatnonzero(buffer.data == ord("="))
    text, last = buffer.owner(equals), words[equals - 6]  # the 8 bytes up to "= ", in which all marks end

    def first(mark: bytes) -> Ints:
        hits = np.flatnonzero(last == _word(mark[-8:]))
        at, owner = equals[hits] - (len(mark) - 2), text[hits]
        fits = (at >= buffer.begin[owner]) & (at + len(mark) <= buffer.end[owner])
        for part in range(0, len(mark) - 8, 8):
            fits &= words[at + part] == _word(mark[part : part + 8])
        place = buffer.end.copy()
        place[owner[fits][::-1]] = at[fits][::-1]  # in reverse, so that a text's first mark is written last
        return place

    return first(SEQ), first(OP_ID), first(LINKS)


def _words(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The 8 bytes from each position on as a number, the first byte its lowest."""
    return np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))


def _word(data: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(data, "little"))


def _plain_heads(
    buffer: Buffer, rows: NDArray[np.intp], ends: tuple[Ints, Ints], parts: Parts, one_by_one: bool
) -> list[tuple[int, bytes]]:
    """The distinct heads of the texts ``rows``, each with its first row. Sets ``parts.head`` to indices of the list."""
    if not len(rows):
        return []
    cuts = np.stack([buffer.begin, *ends, parts.links], axis=1)[rows]  # ``ends``: of each name and each op id
    cuts = np.append(cuts.reshape(-1), buffer.end[rows[-1]])
    codes, values = _few_slices(buffer.raw, cuts) if one_by_one else _distinct_slices(buffer.data, cuts)
    names, rests = codes[::4], codes[2::4]
    first, parts.head[rows] = numbered(names, rests)
    slices = zip(rows[first].tolist(), names[first].tolist(), rests[first].tolist(), strict=True)
    return [(row, values[name] + OP_ID + values[rest]) for row, name, rest in slices]


def _distinct_slices(data: NDArray[np.uint8], cuts: Ints) -> tuple[Ints, list[bytes]]:
    """Number the distinct slices between successive cuts. Every second slice (numbers and links) gets no number."""
    import pyarrow as pa

    count = len(cuts) - 1
    valid = np.full(count // 8 + 1, 0b01010101, np.uint8)  # every second slice, with numbers and links, is null
    buffers = [pa.py_buffer(part) for part in (valid, cuts, data)]
    array = arrow.computed("dictionary_encode", pa.Array.from_buffers(pa.large_binary(), count, buffers))
    codes = np.frombuffer(array.indices.buffers()[1], np.int32, count)  # to_numpy of nulls would import pandas
    return codes.astype(np.int64), array.dictionary.to_pylist()


def _few_slices(raw: bytes, cuts: Ints) -> tuple[Ints, list[bytes]]:
    """The same as ``_distinct_slices``, in a loop, which is faster for few slices."""
    known: dict[bytes, int] = {}
    codes = np.zeros(len(cuts) - 1, np.int64)
    between = zip(cuts[:-1:2].tolist(), cuts[1::2].tolist(), strict=True)
    codes[::2] = [known.setdefault(raw[begin:end], len(known)) for begin, end in between]
    return codes, list(known)


def _split_rest(buffer: Buffer, rows: NDArray[np.intp], parts: Parts, place: int) -> list[tuple[int, bytes]]:
    """As ``_plain_heads``, but one text at a time, once per distinct text. Indices begin at ``place``."""
    heads: list[tuple[int, bytes]] = []
    known: dict[bytes, tuple[int, int, int]] = {}
    split: list[tuple[int, int, int]] = []
    for row, begin, end in zip(rows.tolist(), buffer.begin[rows].tolist(), buffer.end[rows].tolist(), strict=True):
        text = buffer.raw[begin:end]
        if text not in known:
            head, seq, op_id = split_one(text.partition(LINKS)[0]) if b"," in text else (text, NULL, NULL)
            known[text] = (place + len(heads), seq, op_id)
            heads.append((row, head))
        split.append(known[text])
    if split:
        parts.head[rows], parts.seq[rows], parts.op_id[rows] = np.array(split, np.int64).T
    return heads
