"""Range texts split over arrays give what splitting each alone gives."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse.nsys.dataflow import DataFlow
from pyprof.parse.nsys.nvtx_texts import LINKS, MOST_DIGITS, Buffer, Heads, numbers, split_one, split_texts
from pyprof.table.columns import NULL

TEXTS = [  # text, head, sequence number, op id
    (
        b"aten::mm, seq = 7, op_id = 9, sizes = [[2, 3], [3, 4]], input_op_ids = [(0,-1), (8,0)]",
        b"aten::mm, op_id = , sizes = [[2, 3], [3, 4]]",
        7,
        9,
    ),
    (b"aten::mm, op_id = 10", b"aten::mm, op_id = ", NULL, 10),
    (b"conv2d, seq = 0", b"conv2d, op_id = ", 0, NULL),  # PyTorch 1.x: a number shows that autograd recorded it
    (b"step 5, op_id = 1x", b"step 5, op_id = 1x", NULL, NULL),
    (b"3", b"3", NULL, NULL),
    (b"", b"", NULL, NULL),
    (b'{"v":1,"op":"mm, op_id = 4"}', b'{"v":1,"op":"mm, op_id = 4"}', NULL, NULL),
    (b"N, seq = -1, op_id = 5, sizes = []", b"N, op_id = , sizes = []", -1, 5),
    (b"f, input_op_ids = [(1,0)], op_id = 3", b"f", NULL, NULL),  # the links end the text
    (b"f, op_id = 3, op_id = 4", b"f, op_id = , op_id = 4", NULL, 3),
    (b"f, op_id = 3, seq = 4", b"f, op_id = , seq = 4", NULL, 3),
    (b"f, op_id = 999999999999999999, sizes = [[1", b"f, op_id = , sizes = [[1", NULL, 999999999999999999),
    # as above: nsys cuts long texts. Below: more digits than are read at once
    (b"f, op_id = 0009223372036854775807", b"f, op_id = ", NULL, 2**63 - 1),
    (b"f, seq = 7, op_id = 9223372036854775808", b"f, op_id = ", 7, NULL),  # more than 64 bits hold
    (b"f, seq = 99999999999999999999, op_id = 3, sizes = [[4]]", b"f, op_id = , sizes = [[4]]", NULL, 3),
    (b"f, seq = -99999999999999999999", b"f", NULL, NULL),
    (b"\xff\xfe, seq = 12, op_id = 13, sizes = [[4]]", b"\xff\xfe, op_id = , sizes = [[4]]", 12, 13),
]
SPLIT = (
    b", seq = |, op_id = |, sizes = [[2]]|, input_op_ids = |[(1,0), (2,1)]|aten::mm|=|, |{|0|7|18446744073709551616|-| "
    b"|_ids = |(3,0)|\xc3\xa9"
)
PIECES = st.sampled_from(SPLIT.split(b"|"))
texts = st.lists(st.lists(PIECES, max_size=7).map(b"".join), min_size=1, max_size=12)


def columns(given_texts: list[bytes], heads: Heads) -> list[tuple[bytes, int, int]]:
    buffer = Buffer.of(given_texts, np.array([len(text) for text in given_texts]))
    parts = split_texts(buffer, heads)
    named = heads.texts
    assert [buffer.raw[a:b] for a, b in zip(buffer.begin, buffer.end, strict=True)] == given_texts
    numbers = zip(parts.seq.tolist(), parts.op_id.tolist(), strict=True)
    return [(named[code], *pair) for code, pair in zip(parts.head.tolist(), numbers, strict=True)]


@pytest.mark.parametrize(("text", "head", "seq", "op_id"), TEXTS)
def test_a_text_is_split(text: bytes, head: bytes, seq: int, op_id: int) -> None:
    assert split_one(text.partition(LINKS)[0]) == (head, seq, op_id)
    assert columns([text], Heads()) == [(head, seq, op_id)]


def test_no_text_runs_into_the_next() -> None:
    assert columns([text for text, *_ in TEXTS] * 3, Heads()) == [tuple(split) for _, *split in TEXTS] * 3


def test_heads_are_numbered_as_they_come() -> None:
    heads = Heads()
    columns([b"layer:a"], heads)
    columns([b"b, op_id = 2", b"layer:a", b"user", b"a, op_id = 1", b"b, seq = 5, op_id = 3"], heads)
    assert heads.texts == [b"layer:a", b"b, op_id = ", b"user", b"a, op_id = "]


@given(texts)
def test_all_together_as_each_alone(given_texts: list[bytes]) -> None:
    alone = [split_one(text.partition(LINKS)[0]) for text in given_texts]
    if any(not -(2**63) <= number < 2**63 for _, *numbers in alone for number in numbers):
        with pytest.raises(OverflowError):  # the reader refuses the file
            columns(given_texts, Heads())
    else:
        assert columns(given_texts, Heads()) == alone


def flow(chunks: list[list[bytes]]) -> dict[int, str]:
    found, heads, first = DataFlow(), Heads(), 0
    for chunk in chunks:
        buffer = Buffer.of(chunk, np.array([len(text) for text in chunk]))
        parts = split_texts(buffer, heads)
        found.add(heads.texts, np.full(len(chunk), 7 << 24), parts, buffer, np.arange(first, first + len(chunk)))
        first += len(chunk)
    return found.outs


CONV, USE = (
    b"aten::conv2d, op_id = %d, sizes = [[8, 3, 9, 9]]",
    b"aten::relu, op_id = %d, sizes = [[%d]], input_op_ids = ",
)


def test_a_consumer_tells_its_producers_shape() -> None:
    uses = [USE % (100 + i, i) + b"[(%d,0)]" % i for i in range(1, 40)]
    made = [CONV % i for i in range(1, 40)]
    assert flow([made + uses]) == {i - 1: f"[[{i}]]" for i in range(1, 40)}
    assert flow([[text] for text in made + uses]) == {i - 1: f"[[{i}]]" for i in range(1, 40)}
    assert flow([[text] for text in made[::-1] + uses]) == {39 - i: f"[[{i}]]" for i in range(1, 40)}


@pytest.mark.parametrize(
    "links",
    [b"[(1,1)]", b"[(0,-1)]", b"[(1", b"[(1,", b"[(1,0", b"[(12,0)]", b"(1,0)"[:3], b"[(99999999999999999999,0)]"],
)
def test_what_is_no_link_to_a_first_output_tells_nothing(links: bytes) -> None:
    assert flow([[CONV % 1, USE % (2, 5) + links, b",0)], (1,0)"]]) == {}


def test_the_first_consumer_with_a_shape_counts() -> None:
    cut = b"aten::relu, op_id = 2, input_op_ids = [(1,0)]"
    second, third = (USE % (op_id, size) + b"[(1,0)]" for op_id, size in ((3, 5), (4, 6)))
    assert flow([[CONV % 1, cut], [second], [third]]) == {0: "[[5]]"}


@given(st.lists(st.tuples(st.text("0123456789,a/:)", max_size=24), st.integers(-2, 26)), min_size=1))
def test_numbers_are_read_digit_by_digit(cases):
    """A number ends at the first other character or at its stop; its value is Python's."""
    texts = [text for text, _ in cases]
    raw = "|".join(texts).encode() + bytes(32)
    begins = np.cumsum([0, *(len(text) + 1 for text in texts[:-1])])
    stops = begins + [stop for _, stop in cases]
    value, end = numbers(np.frombuffer(raw, np.uint8), begins, stops)
    for (_, stop), begin, found, until in zip(cases, begins.tolist(), value.tolist(), end.tolist(), strict=True):
        digits = re.match(r"\d*", raw[begin : begin + max(min(stop, MOST_DIGITS + 1), 0)].decode())[0]
        assert until - begin == len(digits)
        if len(digits) <= MOST_DIGITS:
            assert found == int(digits or 0)
