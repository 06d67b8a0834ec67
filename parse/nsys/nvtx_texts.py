"""Range texts split over arrays: sequence numbers, op ids, and the heads that remain, of tens of thousands at once.

PyTorch (torch/csrc/profiler/util.cpp, getNvtxStr) writes `NAME, seq = N, op_id = N, sizes = [..], input_op_ids = [..]`.
Millions of such texts differ in their numbers alone. A loop over them takes two microseconds a text; here they lie in
one buffer, the marks are found by their `=`, numbers are read digit by digit in all texts together, and pyarrow tells
the distinct names and sizes. Whatever does not look exactly like that (markers, users' ranges, PyTorch 1.x) is split
alone, once a distinct text; ``split_one`` says what both ways give.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.attribute import scope
from pyprof.table.columns import NULL, Ints

SEQ, OP_ID, LINKS = b", seq = ", b", op_id = ", b", input_op_ids = "
MOST_DIGITS = 18  # of a number that fits in 64 bits, whatever its digits
_PAD = b"\0" * 32  # before and after the texts: words of 8 bytes are read around any byte of theirs


class Buffer(NamedTuple):
    """Texts one after the other: text i is ``data[begin[i]:end[i]]``."""

    raw: bytes
    data: NDArray[np.uint8]  # the same
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, pieces: Sequence[bytes], lengths: Ints) -> Buffer:
        """The texts that ``pieces`` hold, joined as they may be already, by their lengths."""
        end = np.cumsum(lengths) + len(_PAD)
        raw = b"".join((_PAD, *pieces, _PAD))
        return cls(raw, np.frombuffer(raw, np.uint8), np.concatenate([[len(_PAD)], end[:-1]]), end)

    def __len__(self) -> int:
        return len(self.begin)

    def owner(self, at: Ints) -> Ints:
        """The text that holds each place; places ascend."""
        bounds = np.searchsorted(at, self.begin)
        return np.repeat(np.arange(len(self)), np.diff(bounds, append=len(at)))


class Parts(NamedTuple):
    """What the texts of a buffer hold; ``NULL`` where one has no such number."""

    head: Ints  # number of the head: the text without its numbers and links
    seq: Ints  # autograd sequence number
    op_id: Ints
    links: Ints  # where `, input_op_ids = ` begins in the buffer; the text's end where there is none


class Heads:
    """The distinct heads, numbered as they come."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def number(self, heads: Iterable[bytes]) -> list[int]:
        texts, numbered, found = self.texts, self._numbers, []
        for head in heads:
            number = numbered.setdefault(head, len(texts))
            if number == len(texts):
                texts.append(head)
            found.append(number)
        return found


def split_texts(buffer: Buffer, heads: Heads, alone: bool = False) -> Parts:
    """Split the texts of a buffer; ``heads`` gets the new ones in the order in which they come.

    ``alone``: without pyarrow, whose import takes longer than a few thousand texts; the same comes out.
    """
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
    found = _plain_heads(buffer, np.flatnonzero(plain), np.minimum(seq_at, op_at), op_end, parts, alone)
    found += _split_rest(buffer, np.flatnonzero(~plain), parts, len(found))
    order = np.argsort(np.array([row for row, _ in found], np.int64))
    number = np.zeros(len(found), np.int64)
    number[order] = heads.number(found[place][1] for place in order.tolist())
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
            return name + OP_ID + comma + rest, int(seq) if seq else NULL, int(op_id)
        except ValueError:  # a user's own text with such words
            pass
    called, number, call, sizes = scope.split(text.decode("utf-8", "replace"))
    mark = OP_ID.decode() if number is not None or call is not None else ""
    head = f"{called}{mark}" + (f", sizes = {sizes}" if sizes else "")
    return head.encode(), NULL if number is None else number, NULL if call is None else call


def numbers(data: NDArray[np.uint8], at: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """The decimal number at each place, read up to ``stop`` at most, and where it ends; 0 and ``at`` for none."""
    value, end = np.zeros(len(at), np.int64), at.copy()
    reading = np.flatnonzero(at < stop)
    for _ in range(MOST_DIGITS + 1):
        digit = data[end[reading]] - np.uint8(ord("0"))  # what is no digit becomes more than 9
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
    """Where each text's first sequence number, op id and links begin; the text's end where it has none."""
    words = np.ndarray((len(buffer.data) - 7,), "<u8", buffer.data, strides=(1,))  # the 8 bytes from each place on
    equals = np.flatnonzero(buffer.data == ord("="))
    owner, last = buffer.owner(equals), words[equals - 6]  # all marks end in "= "
    seq, op_id, links = (_first(buffer, words, equals, owner, last, mark) for mark in (SEQ, OP_ID, LINKS))
    return seq, op_id, links


def _first(
    buffer: Buffer, words: NDArray[np.uint64], equals: Ints, owner: Ints, last: NDArray[np.uint64], mark: bytes
) -> Ints:
    """Where ``mark`` first stands in each text. ``last``: the 8 bytes that end one behind each place of ``equals``."""
    hits = np.flatnonzero(last == _word(mark[-8:]))
    at, owner = equals[hits] - (len(mark) - 2), owner[hits]
    fits = (at >= buffer.begin[owner]) & (at + len(mark) <= buffer.end[owner])
    for part in range(0, len(mark) - 8, 8):
        fits &= words[at + part] == _word(mark[part : part + 8])
    found = buffer.end.copy()
    found[owner[fits][::-1]] = at[fits][::-1]  # of several in a text the first is written last
    return found


def _word(data: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(data, "little"))


def _plain_heads(
    buffer: Buffer, rows: NDArray[np.intp], name_end: Ints, op_end: Ints, parts: Parts, alone: bool
) -> list[tuple[int, bytes]]:
    """The distinct heads of the texts ``rows``, each with its first row; ``parts.head`` gets places in that list."""
    if not len(rows):
        return []
    cuts = np.stack([buffer.begin, name_end, op_end, parts.links], axis=1)[rows]
    cuts = np.append(cuts.reshape(-1), buffer.end[rows[-1]])
    codes, values = _few_slices(buffer.raw, cuts) if alone else _distinct_slices(buffer.data, cuts)
    key, first, local = np.unique(codes[::4] * len(values) + codes[2::4], return_index=True, return_inverse=True)
    parts.head[rows] = local.reshape(-1)
    named = zip(rows[first].tolist(), *(side.tolist() for side in np.divmod(key, len(values))), strict=True)
    return [(row, values[name] + OP_ID + values[rest]) for row, name, rest in named]


def _distinct_slices(data: NDArray[np.uint8], cuts: Ints) -> tuple[Ints, list[bytes]]:
    """Of the slices between successive cuts every second one's number among their distinct values; others have none."""
    import pyarrow as pa

    count = len(cuts) - 1
    valid = np.full(count // 8 + 1, 0b01010101, np.uint8)  # the slices between, numbers and links, are null
    buffers = [pa.py_buffer(part) for part in (valid, cuts, data)]
    array = pa.Array.from_buffers(pa.large_binary(), count, buffers).dictionary_encode()
    codes = np.frombuffer(array.indices.buffers()[1], np.int32, count)  # to_numpy of nulls would import pandas
    return codes.astype(np.int64), array.dictionary.to_pylist()


def _few_slices(raw: bytes, cuts: Ints) -> tuple[Ints, list[bytes]]:
    """The same in a loop."""
    known: dict[bytes, int] = {}
    codes = np.zeros(len(cuts) - 1, np.int64)
    between = zip(cuts[:-1:2].tolist(), cuts[1::2].tolist(), strict=True)
    codes[::2] = [known.setdefault(raw[begin:end], len(known)) for begin, end in between]
    return codes, list(known)


def _split_rest(buffer: Buffer, rows: NDArray[np.intp], parts: Parts, place: int) -> list[tuple[int, bytes]]:
    """As ``_plain_heads``, one text at a time, each distinct one once; the list's first place is ``place``."""
    found: list[tuple[int, bytes]] = []
    known: dict[bytes, tuple[int, int, int]] = {}
    split: list[tuple[int, int, int]] = []
    for row, begin, end in zip(rows.tolist(), buffer.begin[rows].tolist(), buffer.end[rows].tolist(), strict=True):
        text = buffer.raw[begin:end]
        if text not in known:
            head, seq, op_id = split_one(text.partition(LINKS)[0]) if b"," in text else (text, NULL, NULL)
            known[text] = (place + len(found), seq, op_id)
            found.append((row, head))
        split.append(known[text])
    if split:
        parts.head[rows], parts.seq[rows], parts.op_id[rows] = np.array(split, np.int64).T
    return found
