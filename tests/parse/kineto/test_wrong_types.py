"""Every field that is read, with values of every other type: the row stays, the field is unknown, and this is said."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL, Table
from tests.parse.kineto.kineto_file import begin, call, kernel, op, x

OTHER = (None, True, "word", "", [1], {"a": 1}, 1.5, -3, 2**70)
COLLECTIVE = {
    "Collective name": "allreduce", "In msg nelems": 4, "Out msg nelems": 4, "Group size": 2, "dtype": "Float",
    "Process Group Name": "0", "Src Rank": 0, "Dst Rank": 1,
}  # fmt: skip
OP = {
    "External id": 3, "Sequence number": 9, "Fwd thread id": 1, "Input Dims": [[2, 3], [3, 4]],
    "Concrete Inputs": ["", ""], "Input type": ["float", "float"], "Input Strides": [[3, 1], [4, 1]], **COLLECTIVE,
}  # fmt: skip
KERNEL = {
    "External id": 3, "registers per thread": 32, "shared memory": 4, "est. achieved occupancy %": 50, "bytes": 8,
    "graph node id": 3, **COLLECTIVE,
}  # fmt: skip
EVENTS = [begin(1000), op("aten::mm", 1010, 50, **OP), call(1020, 5), kernel(1100, 1, 5, **KERNEL), kernel(1200, 2, 6)]
# column -> the key of the kernel's field, for those that have one
KEYS = {
    "stream": "stream", "registers": "registers per thread", "dynamicSmem": "shared memory", "bytes": "bytes",
    "graphNode": "graph node id", "corr": "correlation",
}  # fmt: skip


# Collectives' names of these are of any type, and args may have keys that nothing reads.
ANY_TYPE = ("dtype", "Process Group Name", "Src Rank", "Dst Rank")
NOT_READ = [("args", {"a": 1}), *((key, value) for key in ANY_TYPE for value in ([1], {"a": 1}))]


def parsed(tmp_path: Path, events: list[dict[str, Any]]) -> tuple[Capture, Table]:
    path = tmp_path / "net.json"
    path.write_text(json.dumps({"traceEvents": events}))
    capture = read(path)
    return capture, correlate(capture)


def changed(number: int, key: str, value: object) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(json.dumps(EVENTS))
    place = events[number] if key in events[number] else events[number]["args"]
    place[key] = value
    return events


def fields() -> Iterator[tuple[int, str]]:
    """Each key of each event, except those that say what kind of event it is."""
    for number, event in enumerate(EVENTS):
        yield from ((number, key) for key in [*event, *event["args"]] if key not in ("ph", "cat"))


@pytest.mark.parametrize(("number", "key"), list(fields()))
def test_both_kernels_stay_whatever_the_type(number, key, tmp_path):
    for value in OTHER:
        capture, table = parsed(tmp_path, changed(number, key, value))
        assert table.rows == 2, value
        known = 2_000 if key == "dur" and number == 3 else 1_000 if key == "dur" and number == 4 else 3_000
        if not (key == "dur" and value in (1.5, True)):  # 1.5 µs are a duration
            assert table.ints("kDuration").sum() == known, value
        if number == 3 and isinstance(value, (list, dict)) and (key, value) not in NOT_READ:
            took = 0 if key == "dur" else 1_000
            said = [text for text in capture.warnings if f"which are unknown ({key})" in text]
            assert len(said) == 1, (value, capture.warnings)
            assert said[0].endswith(f"1 of these events are GPU operations, which took {took:,} ns")


@pytest.mark.parametrize("column", KEYS)
@pytest.mark.parametrize("value", ["word", [1], {"a": 1}, 1.5, True, 2**70])
def test_a_field_of_another_type_is_unknown_and_the_others_are_not(column, value, tmp_path):
    capture, table = parsed(tmp_path, changed(3, KEYS[column], value))
    _, whole = parsed(tmp_path, EVENTS)
    row = table.ints("kDuration").tolist().index(1_000)
    assert table.ints(column)[row] == NULL
    for other in KEYS:
        if other not in (column, "corr"):
            assert table.ints(other)[row] == whole.ints(other)[0], other
    assert sum(f"which are unknown ({KEYS[column]})" in text for text in capture.warnings) == 1


@pytest.mark.parametrize("key", ["grid", "block"])
@pytest.mark.parametrize("value", ["word", 5, [1], [1, 2, "x"], {"x": 1}, [1, 2, 2.5]])
def test_a_grid_that_is_no_triple_is_unknown_and_said(key, value, tmp_path):
    capture, table = parsed(tmp_path, changed(3, key, value))
    assert table.coded(key).texts()[0] == ""
    assert sum(f"which are unknown ({key}); 1 of these" in text for text in capture.warnings) == 1


def test_args_that_are_no_object_leave_the_times_and_the_name(tmp_path):
    for value in ("word", [1], 5):
        capture, table = parsed(tmp_path, changed(3, "args", value))
        assert table.ints("kDuration").tolist() == [1_000, 2_000]
        assert table.coded("kLongName").texts()[0] == "void gemm<float>(int)"
        assert any("which are unknown (args); 1 of these" in text for text in capture.warnings)


def test_numbers_written_as_texts_are_numbers_without_a_warning(tmp_path):
    capture, table = parsed(tmp_path, changed(3, "stream", "0x10"))
    assert table.ints("stream")[0] == 16
    assert not any("another type" in text for text in capture.warnings)


def test_an_impossible_duration_counts_nothing_and_is_said(tmp_path):
    capture, table = parsed(tmp_path, changed(3, "dur", 1e300))
    assert table.ints("kDuration").tolist() == [0, 2_000]
    assert capture.warnings[0].startswith("1 GPU operations have impossible times")


@pytest.mark.parametrize("value", [None, 5, True, [1], {"a": 1}])
def test_a_kernel_without_a_category_is_known_by_its_grid(value, tmp_path):
    capture, table = parsed(tmp_path, changed(3, "cat", value))
    assert table.coded("kind").texts() == ["kernel", "kernel"]
    assert table.ints("kDuration").tolist() == [1_000, 2_000]
    said = "1 events have values of another type than the format's, which are unknown (cat); 1 of these events are GPU"
    assert sum(text.startswith(said) for text in capture.warnings) == 1


@pytest.mark.parametrize(
    ("name", "kind"), [("Memcpy HtoD (Pageable -> Device)", "memcpy"), ("Memset (Device)", "memset")]
)
def test_a_copy_without_a_category_is_known_by_its_bytes_and_name(name, kind, tmp_path):
    copy = x("gpu_memcpy", name, 1300, 4, pid=0, device=0, stream=7, correlation=9, bytes=64)
    _, table = parsed(tmp_path, [*EVENTS, {**copy, "cat": 5}])
    assert table.coded("kind").texts() == ["kernel", "kernel", kind]


def test_an_event_that_may_be_anything_is_left_out_and_counted(tmp_path):
    other = x("gpu_user_annotation", "step", 1300, 4, pid=0, stream=7)
    for unclear in ({**other, "cat": 5}, changed(1, "cat", 5)[1]):
        capture, table = parsed(tmp_path, [*EVENTS, unclear])
        assert table.rows == 2
        assert "1 events could not be read and are left out" in capture.warnings
