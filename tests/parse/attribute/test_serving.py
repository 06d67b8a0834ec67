"""Rows that an inference server's batches launched: their annotation, phase and step."""

import sqlite3
from contextlib import closing

import pytest

from pyprof.parse.attribute.notes import CaptureNotes
from pyprof.parse.attribute.serving import with_serving_phases
from pyprof.parse.kineto import reader as kineto
from pyprof.parse.nsys import nvtx_sql
from pyprof.parse.nsys.overview import brief
from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL, Coded
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, write

PREFILL, DECODE = "execute_context_1(888)_generation_0(0)", "execute_context_0(0)_generation_32(32)"
EXACT = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk30sqsq2sqsk30)"


def table_of(tmp_path, ranges, *launches):
    kernels = [kernel(1000 + number, number) for number, _ in enumerate(launches, 1)]
    calls = [call(at, number) for number, at in enumerate(launches, 1)]
    path = write(tmp_path / "net.sqlite", **{KERNEL: kernels, API: calls, NVTX: ranges})
    return correlate(read(path)), path


def columns(table):
    return list(
        zip(table.coded("phase").texts(), table.ints("step").tolist(), table.coded("serving").texts(), strict=True)
    )


def test_each_batch_is_a_step_with_its_phase(tmp_path):
    ranges = [push(10, 20, PREFILL), push(11, 19, "aten::mm, seq = 3, op_id = 1"), push(30, 40, DECODE)]
    table, path = table_of(tmp_path, ranges, 5, 12, 31, 45)
    assert columns(table) == [("other", NULL, ""), ("prefill", 0, PREFILL), ("decode", 1, DECODE), ("other", NULL, "")]
    assert table.coded("dir").texts() == ["", "fprop", "", ""]
    assert brief(path)[1].steps == [0, 1]  # the summary that reads few of the ranges finds them, too


def test_a_batch_gives_its_phase_to_what_is_forward_or_of_no_phase() -> None:
    phase = Coded.of(["optimizer", "forward", "", "other", "backward"])
    found = with_serving_phases(phase, Coded.of([DECODE, PREFILL, DECODE, DECODE, DECODE]))
    assert found.texts() == ["optimizer", "prefill", "decode", "decode", "backward"]
    assert with_serving_phases(phase, Coded.of([""] * 5)).texts() == phase.texts()
    assert with_serving_phases(Coded.empty(2), Coded.of([PREFILL, DECODE])).texts() == ["prefill", "decode"]


def test_marks_of_the_profiler_number_the_steps_and_batches_give_the_phases(tmp_path):
    ranges = [push(10, 28, "ProfilerStep#7"), push(11, 19, PREFILL), push(20, 27, DECODE)]
    assert columns(table_of(tmp_path, ranges, 12, 21)[0]) == [("prefill", 7, PREFILL), ("decode", 7, DECODE)]


def test_a_range_around_the_innermost_one_is_read_if_only_it_has_the_sums(tmp_path):
    """TraceLens's capture of SGLang has both. A draft model's batch inside another one keeps its own annotation."""
    ranges = [push(10, 40, EXACT), push(12, 20, "step[DECODE bs=2]"), push(22, 30, "step[DECODE bs=8]")]
    assert columns(table_of(tmp_path, ranges, 13, 23, 35)[0]) == [
        ("decode", 0, EXACT),
        ("decode", 0, "step[DECODE bs=8]"),
        ("decode", 0, EXACT),
    ]


def test_another_thread_of_the_process_is_in_the_step_and_not_in_the_batch(tmp_path):
    ranges = [push(10, 20, DECODE)]
    kernels = [kernel(1000, 1), kernel(1001, 2)]
    calls = [call(12, 1), call(13, 2, tid=9)]
    path = write(tmp_path / "net.sqlite", **{KERNEL: kernels, API: calls, NVTX: ranges})
    assert columns(correlate(read(path))) == [("decode", 0, DECODE), ("other", 0, "")]


def test_an_annotation_of_an_unknown_form_is_reported(tmp_path):
    text = "execute_context_0[0]_generation_32[32]"
    ranges = [push(10, 20, "aten::mm, seq = 3, op_id = 1"), push(30, 40, text), push(50, 60, text)]
    _, path = table_of(tmp_path, ranges, 31)
    assert CaptureNotes.of(read(path)).warnings == [
        "2 ranges look like an inference server's annotation of a form that pyprof does not know "
        f"('{text}'): its batch is not read; please report the server's version"
    ]


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("tracelens_vllm_decode", "(sq32sk55086sqsq32sqsk55086)", 434),
        ("tracelens_sglang_decode", "(sq32sk32785sqsq32sqsk32785)", 558),
    ],
)
def test_kernels_that_a_graph_replays_belong_to_the_batch_of_its_launch(data, name, text, rows):
    """The captures' kernels and copies, all launched by one batch of 32 requests."""
    capture = kineto.read(data / "round2" / f"{name}.json.gz")
    found = set(columns(correlate(capture)))
    whole = f"execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32{text}"
    assert (found, capture.rows) == ({("decode", 0, whole)}, rows)


def test_marks_of_servers_are_found_in_sql():
    """In SQLite's GLOB a bracket begins a set of characters; here it is one of the text."""
    texts = ["step[DECODE bs=2]", "prefill[bs=2 tok=4]", "execute_context_1(8)_generation_0(0)", "ProfilerStep#1"]
    texts += ["[Executor] _forward_step 7: 0 ctx reqs, 2 gen reqs", "stepD", "aten::mm", "prefil", "decode"]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (text TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [(text,) for text in texts])
        found = connection.execute(f"SELECT text FROM t WHERE {nvtx_sql._marks('text')} ORDER BY rowid").fetchall()
    assert [text for (text,) in found] == texts[:5]
