"""Values and tables that no profiler writes but a stranger may: they are read, or refused in one line, at once."""

import csv
import gzip
import io
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import InputError
from pyprof.parse.detect import reader
from pyprof.parse.formats.kernel_names import LONGEST, kept
from pyprof.parse.stats.recording import recording
from pyprof.parse.stats.reports import wanted
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import Table
from pyprof.text import inert, inert_fields
from tests.parse.databases.test_hostile_databases import made
from tests.parse.kineto.kineto_file import begin, call, kernel, op
from tests.parse.nsys import nsys_file
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, push

EVENTS = json.dumps({"traceEvents": [begin(0), op("aten::mm", 10, 50), call(20, 5), kernel(100, 10, 5)]})
DEEP = "[" * 100_000 + "]" * 100_000
DIGITS = "9" * 100_000
SECONDS = 10  # of processor time; none needs more than one


def parsed(path: Path) -> Table:
    began = time.process_time()
    table = correlate(reader(path)(path))
    assert time.process_time() - began < SECONDS
    return table


@pytest.mark.parametrize(
    ("old", "new", "took"),
    [
        ('"ts": 100', '"ts": 1e999999', 10_000),
        ('"ts": 100', f'"ts": {DIGITS}', 10_000),
        ('"ts": 100', '"ts": NaN', 10_000),
        ('"dur": 10', '"dur": 1e-999999999', 0),
        ('"dur": 10', '"dur": Infinity', 0),
        ('"correlation": 5', f'"correlation": {DIGITS}', 10_000),
        ('"correlation": 5', f'"correlation": "0x{DIGITS}"', 10_000),
        ("[4, 5, 6]", f"[{DIGITS}, 5, 6]", 10_000),
        ("void gemm", "\\ud800void\\udc00 gemm", 10_000),
        ('"stream": 7', '"stream": 7, ' * 100_000 + '"stream": 7', 10_000),
    ],
    ids=range(10),
)
def test_a_trace_keeps_its_kernel(old, new, took, tmp_path):
    path = tmp_path / "net.json"
    path.write_text(EVENTS.replace(old, new))
    capture = reader(path)(path)
    table = correlate(capture)
    assert table.coded("kind").texts() == ["kernel"]
    assert table.ints("kDuration").tolist() == [took]
    assert not any("is cut" in text for text in capture.warnings)


def test_an_event_too_deep_to_read_is_counted_and_the_others_stay(tmp_path):
    path = tmp_path / "net.json"
    path.write_text(EVENTS[:-2] + ', {"ph": "X", "cat": "kernel", "name": "k", "args": {"x": ' + DEEP + "}}]}")
    capture = reader(path)(path)
    assert capture.rows == 1
    assert capture.warnings[0] == "1 events could not be read and are left out"


@pytest.mark.parametrize("key", ["deviceProperties", "unread"])
def test_a_header_too_deep_to_read_is_no_header(key, tmp_path):
    path = tmp_path / "net.json"
    path.write_text(f'{{"{key}": {DEEP}, {EVENTS[1:]}')
    assert len(parsed(path)) == 1


@pytest.mark.parametrize("text", [f"[{DIGITS}]", DEEP, f'[{{"buffer_records": {DEEP}}}]'])
def test_rocprofv3s_json_of_another_form_is_one_line(text, tmp_path):
    path = tmp_path / "net.json"
    path.write_text(f'{{"rocprofiler-sdk-tool": {text}}}')
    with pytest.raises(InputError) as error:
        parsed(path)
    assert "\n" not in str(error.value)


def test_gzip_of_many_empty_parts_is_read(tmp_path):
    path = tmp_path / "net.json.gz"
    path.write_bytes(gzip.compress(b"") * 100_000 + gzip.compress(EVENTS.encode()) + b"\0" * 1_000_000)
    assert len(parsed(path)) == 1


def test_tables_without_row_numbers_and_views_are_read_by_both_commands(tmp_path):
    rows = {
        KERNEL: [nsys_file.kernel(100, 1)],
        API: [nsys_file.call(20, 1)],
        NVTX: [push(10, 50, "aten::mm, op_id = 1")],
    }
    columns = ", ".join(f'"{column}"' for column in nsys_file.COLUMNS[NVTX].split(", "))
    for name, sql in {
        "view": f"CREATE VIEW {NVTX} AS SELECT * FROM x",
        "table": f"CREATE TABLE {NVTX} ({columns}, PRIMARY KEY (start, globalTid)) WITHOUT ROWID",
    }.items():
        path = nsys_file.write(tmp_path / name, **rows)
        made(
            path, f"ALTER TABLE {NVTX} RENAME TO x", sql, *([f"INSERT INTO {NVTX} SELECT * FROM x"] * (name == "table"))
        )
        assert parsed(path).coded("op").texts() == ['["mm"]'], name
        with recording(path) as events:
            assert [row[-1] for row in wanted("nvtx_sum").rows(events)] == [":aten::mm, op_id = 1"], name


def test_a_huge_name_is_cut_and_says_so(tmp_path):
    name = "a<" * 5_000_000
    assert kept("b" * LONGEST) == "b" * LONGEST
    assert kept(name).startswith("a<") and "..(9,934,464 characters are left out).." in kept(name)
    strings = [(1, name), (101, name), (50, "cudaLaunchKernel")]
    database = nsys_file.write(tmp_path / "a", StringIds=strings, **{KERNEL: [nsys_file.kernel(100, 1)]})
    trace = tmp_path / "b"
    trace.write_text(EVENTS.replace("void gemm<float>(int)", name))
    for path in (database, trace):
        for key in ("kShortName", "kLongName"):
            assert 0 < len(parsed(path).coded(key).texts()[0]) < LONGEST + 100


def test_a_csv_field_drives_no_terminal():
    assert inert("a\x1b]0;x\x07\x9b2J\u202eb\0") == "a?]0;x??2J?b?"
    assert inert("two\nlines\tand a tab") == "two\nlines\tand a tab"


@pytest.mark.parametrize(
    "before", ["", " ", "   ", "\t", "\n", "\r\n", "\x0b ", "\u00a0", "\u3000", "\ufeff", "\u200b"]
)
@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\uff1d"])
def test_a_formula_after_blanks_is_a_text(before, sign):
    text = inert(f"{before}{sign}cmd()")
    assert text.startswith(("'", "?"))  # a control character is no blank any more
    assert text.endswith(f"{sign}cmd()")
    assert inert(f"gemm{before}{sign}1") == f"gemm{before}{sign}1".replace("\x0b", "?")
    assert inert("-1.5") == "-1.5" and inert(" 2e-3") == " 2e-3"


@given(st.lists(st.text(st.sampled_from("=-+1a,\" '\t\r\n\x1b\u202e\u00e9"), max_size=6), min_size=2, max_size=5))
def test_fields_written_together_are_those_written_one_by_one(texts):
    (row,) = csv.reader(io.StringIO(",".join(inert_fields(texts)) + "\n", newline=""))
    assert row == [inert(text) for text in texts]
    if "\r" not in "".join(texts):  # some releases of Python leave it out of quotes
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(row)
        assert ",".join(inert_fields(texts)) + "\n" == line.getvalue()
