"""A pickle is a program: only what makes plain values is run, and no program fills the memory or takes long."""

import contextlib
import io
import os
import pickle
import pickletools
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import InputError
from pyprof.parse.formats.plain_pickle import check_opcodes, is_pickle, load_plain

WANTED = "expected a memory snapshot"


class Runs:
    """What a stranger's file would do."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def refused(data, words):
    with pytest.raises(InputError) as error:
        load_plain(data, "net.pickle", WANTED)
    assert str(error.value).startswith(f"net.pickle: {WANTED}, found a ") and words in str(error.value)
    assert "\n" not in str(error.value)


PLAIN = {"a": [1, -5, 2**40, 1 << 63, True, None, 1.5], "b": ({"x": "é" * 300}, ), "pool": (0, 3), "": []}  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_read(protocol):
    values = {**PLAIN, "b": [{"x": "é" * 300}]}
    data = pickle.dumps(values, protocol)
    assert is_pickle(data) and load_plain(data, "f", WANTED) == values


def test_shared_values_stay_shared():
    frame = {"name": "f", "line": 3}
    found = load_plain(pickle.dumps([frame, frame], 4), "f", WANTED)
    assert found[0] is found[1]


@pytest.mark.parametrize(
    "call",
    [
        (os.system, ("touch pwned",)),
        (eval, ("1",)),
        (exec, ("import os",)),
        (__import__, ("os",)),
        (getattr, (1, "real")),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_nothing_is_called(call, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(pickle.dumps({"segments": [Runs(*call)]}, protocol), "it was not run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (b"cos\nsystem\n(X\x02\x00\x00\x00ls\x85R.", "looks up"),
        (b"(S'ls'\nios\nsystem\n.", "opcode"),
        (b"\x8c\x02os\x8c\x06system\x93.", "looks up"),
        (b"\x82\x01.", "outside"),
        (b"Pid\n.", "outside"),
        (b"K\x01Q.", "outside"),
        (b"]}b.", "changes an object"),
        (b"]K\x01\x81.", "changes an object"),
        (b"\x8b\xff\xff\xff\x7f" + b"1" * 9, "opcode 0x8b"),  # an integer of 2 GB
        (b"L" + b"9" * 5000 + b"L\n.", "opcode 0x4c"),  # a decimal integer
        (b"I1\n.", "opcode 0x49"),
        (b"\x8d" + struct.pack("<Q", 1 << 40) + b"abc", "cut"),  # a text of 1 TB
        (b"X" + struct.pack("<I", 1 << 31) + b"abc", "cut"),
        (b"\x96" + struct.pack("<Q", 1 << 40), "opcode 0x96"),  # a bytearray
        (b"Nr\xff\xff\xff\x7f.", "opcode 0x72"),  # an entry of the memo that would need 32 GB
        (b"Np4000000000\n.", "opcode 0x70"),
        (b"]" * 5, "cut"),
        (b"", "cut"),
        (b".", "damaged"),
        (b"a.", "damaged"),
        (b"h\x07.", "damaged"),
        (b"u.", "damaged"),
        (b"}]K\x01s.", "damaged"),  # a list as a key
        (b")\x85\x85\x85.", "opcode 0x29"),  # tuples within tuples
    ],
)
def test_programs_that_are_refused(program, words):
    refused(b"\x80\x04" + program, words)


def test_deep_nesting_takes_neither_the_stack_nor_long():
    depth = 2_000_000
    begin = time.process_time()
    found = load_plain(b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b".", "f", WANTED)
    assert len(found) == 1 and time.process_time() - begin < 30  # 2 s; hours if it were quadratic
    while found:  # no recursion when it goes
        (found,) = found


def test_deep_tuples_are_refused_since_their_hash_overflows_the_stack():
    refused(b"\x80\x04})" + b"\x85" * 1_000_000 + b"Ns.", "opcode")


def test_checking_takes_time_in_proportion_to_the_size():
    data = pickle.dumps([{"name": f"frame {i}", "line": i, "next": [i, i + 1]} for i in range(200_000)], 4)
    begin = time.process_time()
    check_opcodes(data, "f", WANTED)
    assert time.process_time() - begin < 5  # 10 MB


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(rest):
    with contextlib.suppress(InputError):
        load_plain(b"\x80\x04" + rest, "f", WANTED)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
        max_leaves=20,
    ),
    st.sampled_from([2, 3, 4, 5]),
)
def test_plain_values_come_back(values, protocol):
    assert load_plain(pickle.dumps(values, protocol), "f", WANTED) == values


def test_the_check_agrees_with_pickletools():
    """Each allowed opcode ends where Python's own description of pickles says that it ends."""
    data = pickle.dumps([{"n": [1, 300, 70_000, -1, 2**40, (0, 1), 0.5, "x" * 300, True, None]}] * 3, 4)
    ends = [at for _, _, at in pickletools.genops(io.BytesIO(data))]
    for end in ends[1:]:
        with pytest.raises(InputError):  # cut before any opcode, the check finds the cut and nothing else
            check_opcodes(data[:end], "f", WANTED)
