"""net.dict: what is written is a Python literal a line, what is read is what was written, or PyProf's."""

import ast
import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from pyprof.errors import InputError, SchemaError
from pyprof.table import netdict
from pyprof.table.columns import NULL, Coded, Ragged, Table
from pyprof.table.gather import EMPTY_IS_NONE
from pyprof.table.netdict import read_netdict, write_netdict
from pyprof.table.schema import KERNELS
from tests.tables import HOSTILE, encodable, rows, tables

SMALL = b"{'kShortName': 'gemm', 'kDuration': 5}\n"


def written(table: Table) -> bytes:
    out = io.BytesIO()
    write_netdict(table, out)
    return out.getvalue()


def read(text: bytes) -> Table:
    return read_netdict(io.BufferedReader(io.BytesIO(text)), "net.dict")  # type: ignore[arg-type]


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row as its line says it: grids are tuples, and PyProf's lists are empty where there is none."""
    changed = dict(row)
    for column in KERNELS:
        value = row[column.key]
        if column.kind == "triple" and value:
            changed[column.key] = tuple(value)
        elif column.key in EMPTY_IS_NONE and value is None:
            changed[column.key] = []
    return changed


@given(tables())
def test_each_line_is_the_row_as_a_python_literal(table):
    lines = written(table).decode().split("\n")
    assert lines.pop() == ""
    assert [ast.literal_eval(line) for line in lines] == [shown(row) for row in rows(table)]
    assert all(list(ast.literal_eval(line)) == [column.key for column in KERNELS] for line in lines)


@given(tables())
def test_what_was_written_is_read_back_the_fast_way(table):
    def refuse(*_):
        raise AssertionError("a line of ours went the slow way")

    slow, netdict._Reader._parts = netdict._Reader._parts, refuse
    try:
        assert rows(read(written(table))) == rows(table)
    finally:
        netdict._Reader._parts = slow


@given(tables())
def test_both_ways_of_reading_agree(table):
    fast, netdict._cutter = netdict._cutter, lambda keys: None
    try:
        assert rows(read(written(table))) == rows(table)
    finally:
        netdict._cutter = fast


@given(tables())
def test_what_a_script_printed_is_read_too(table):
    lines = [ast.literal_eval(line) for line in written(table).decode().split("\n") if line]
    assert rows(read("".join(f"{line}\n" for line in lines).encode())) == rows(table)


def test_json_lines_are_read_too():
    assert read(b'{"kShortName": "k", "kDuration": 5, "rank": null, "grid": [1, 2, 3]}').coded("grid").texts() == [
        "[1, 2, 3]"
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_stays_a_name(text):
    table = Table(2, {"kShortName": Coded.of([text, "b"]), "kDuration": np.array([1, 2]),
                      "marker": Coded.of([json.dumps([text, {text: [text]}]), ""])})  # fmt: skip
    assert rows(read(written(table))) == rows(table)


def test_halves_of_surrogate_pairs_are_joined_or_replaced():
    table = Table(1, {"kShortName": Coded.of(["\ud83d\ude00 \ud83d"]), "kDuration": np.array([1]),
                      "args": Coded.of(['["\\ud83d\\ude00", "\\ude00"]'])})  # fmt: skip
    line = written(table).decode()
    assert encodable(line)
    row = ast.literal_eval(line)
    assert (row["kShortName"], row["args"]) == ("\U0001f600 �", ["\U0001f600", "�"])
    assert read(rb"{'kShortName': '\ud83d\ude00\ud83d', 'kDuration': 5}").coded("kShortName").texts() == ["\U0001f600�"]


def test_unknown_is_none_and_an_op_without_inputs_is_not_unknown():
    table = Table(
        2, {"kShortName": Coded.of("ab"), "kDuration": np.array([NULL + 1, 2]), "sizes": Coded.of(["[]", ""])}
    )
    first, second = map(ast.literal_eval, written(table).decode().splitlines())
    assert (first["sizes"], second["sizes"], first["occupancy"], first["pid"]) == ([], None, None, None)
    assert (first["layer"], first["seqId"], first["grid"]) == ([], [], None)
    assert read(written(table)).coded("sizes").texts() == ["[]", ""]


def test_rows_of_many_chunks_keep_their_order(monkeypatch):
    monkeypatch.setattr(netdict, "CHUNK", 7)
    table = Table(50, {"kShortName": Coded.of(f"k{i % 9}" for i in range(50)), "kDuration": np.arange(50),
                       "seqId": Ragged.of([list(range(i % 4)) for i in range(50)])})  # fmt: skip
    assert rows(read(written(table))) == rows(table)


def test_ours_and_other_lines_may_mix_and_blank_lines_do_not_count():
    table = Table(1, {"kShortName": Coded.of(["a"]), "kDuration": np.array([1])})
    mixed = read(written(table) + b"\n" + SMALL + b"  \n" + written(table)[:-1])
    assert mixed.coded("kShortName").texts() == ["a", "gemm", "a"]


def test_keys_of_a_newer_pyprof_are_passed_over():
    table = Table(1, {"kShortName": Coded.of(["a"]), "kDuration": np.array([1])})
    newer = written(table).replace(b"}\n", b', "colour": "red"}\n')
    assert rows(read(newer)) == rows(table)


def test_pyprofs_own_file(data):
    with (data / "pyprof_golden" / "net.dict").open("rb") as source:
        table = read_netdict(source, "net.dict")
    assert len(table) == 284
    assert int(table.ints("kDuration").sum()) == 8_270_633
    with (data / "pyprof_golden" / "net.dict").open() as source:
        lines = [ast.literal_eval(line) for line in source]
    ours = [shown(row) for row in rows(table)]
    assert [{key: row[key] for key in line} for row, line in zip(ours, lines, strict=True)] == lines
    assert rows(read(written(table))) == rows(table)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ["an empty file", "parse.py"]),
        (b" \n\n", ["only blanks"]),
        (b"\0\1\2\xff" * 100, ["a binary file"]),
        (b"SQLite format 3\0", ["an SQLite database", "run parse.py on it first"]),
        (b'{\n "schemaVersion": 1, "traceEvents": []}', ["schemaVersion", "torch.profiler trace"]),
        (b'{"name": "x"}\n', ["first key is 'name'"]),
        (b"[1, 2]", ["text that starts '[1, 2]'"]),
        (b"Time,Name\n1,2\n", ["text that starts 'Time,Name"]),
        (b"{'kShortName': 'gemm', 'kDura", ["net.dict:1", "ends in the middle of a row"]),
        (b"{'kShortName': 'gemm'}\n", ["net.dict:1", "no 'kDuration'"]),
        (SMALL + b"{'kShortName': 'gemm', 'kDura", ["net.dict:2", "ends in the middle of a row"]),
        (SMALL + b"nonsense\n", ["net.dict:2", "expected a Python dictionary"]),
        (SMALL + b"[1]\n", ["net.dict:2", "found [1]"]),
        (SMALL + b"{'kShortName': __import__('os'), 'kDuration': 1}\n", ["net.dict:2", "no Python literal"]),
        (SMALL + b"{'kShortName': '\xff', 'kDuration': 1}\n", ["net.dict:2", "not UTF-8"]),
        (SMALL + b"{'kShortName': 'a', 'kDuration': '1'}\n", ["net.dict:2", "'kDuration': expected an integer", "'1'"]),
        (SMALL + b"{'kShortName': 'a', 'kDuration': True}\n", ["'kDuration': expected an integer", "True"]),
        (SMALL + b"{'kShortName': 'a', 'kDuration': 1e3}\n", ["'kDuration': expected an integer", "1000.0"]),
        (SMALL + b"{'kShortName': 'a', 'kDuration': 99999999999999999999}\n", ["net.dict:2", "expected an integer"]),
        (SMALL + b"{'kShortName': 'a', 'kDuration': 1, 'grid': (1, 2)}\n", ["expected three integers", "(1, 2)"]),
        (SMALL + b"{'kShortName': 'a', 'kDuration': 1, 'seqId': ['x']}\n", ["expected a list of integers"]),
        (SMALL + b"{'kShortName': 'a', 'kDuration': 1, 'op': {1}}\n", ["expected a list or dict", "{1}"]),
        (SMALL + b"{'kShortName': 'a', 'kDuration': 1, 'op': " + b"[" * 5000, ["net.dict:2"]),
        (SMALL + b"{'kShortName': 'a', 'kDuration': 1, 'op': '" + b"x" * (5 << 20), ["at most 4,194,304"]),
    ],
)  # fmt: skip
def test_a_broken_file_says_where_and_what(text, words):
    with pytest.raises(InputError) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith("net.dict")
    assert "\n" not in message
    assert all(word in message for word in words), message


THREE = Table(3, {"kShortName": Coded.of("abc"), "kDuration": np.array([1, 1, 1])})


@pytest.mark.parametrize("damage", [(b"1", b"1_0"), (b"None", b"1, 2"), (b'"kDuration": 1', b'"kDuration": 1, 1')])
def test_a_damaged_line_of_ours_is_an_error_or_the_same_as_the_slow_way_finds(damage):
    text = written(THREE).replace(*damage, 1)
    try:
        wanted = [ast.literal_eval(line) for line in text.decode().splitlines()]
    except SyntaxError:
        with pytest.raises(InputError):
            read(text)
        return
    if wanted == [shown(row) for row in rows(read(written(THREE)))] or damage == (b"1", b"1_0"):
        assert [shown(row) for row in rows(read(text))] == wanted
    else:
        with pytest.raises(SchemaError, match=r"^net\.dict:1: "):
            read(text)


def test_a_table_whose_json_is_broken_is_not_written():
    table = Table(1, {"kShortName": Coded.of("a"), "kDuration": np.array([1]), "sizes": Coded.of(["[[1, 2"])})
    with pytest.raises(SchemaError, match="column sizes: expected JSON"):
        written(table)
