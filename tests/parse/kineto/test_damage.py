"""Files that are no valid JSON, cut, empty or of another kind: what can be read is read, and said."""

import gzip
import json
import re
import string
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import InputError
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.detect import reader
from pyprof.parse.kineto.gpu import _Calls, _last_begun
from pyprof.parse.kineto.json_text import decoded
from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import Coded
from tests.parse.kineto.kineto_file import begin, call, kernel, op
from tests.paths import GOLDEN

EVENTS = [begin(1000), call(1020, 5), op("aten::mm", 1010, 50), kernel(1100, 1, 5), kernel(1200, 2, 6)]
HEADER = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}
CAPTURE = GOLDEN / "h200_lenet_fp32.json.gz"


def whole(indent: int | None = None) -> str:
    return json.dumps({**HEADER, "traceEvents": EVENTS, "distributedInfo": {"rank": 3}}, indent=indent)


def read_text(tmp_path: Path, text: str | bytes) -> Capture:
    path = tmp_path / "net.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path)


@pytest.mark.parametrize("word", ["NaN", "-NaN", "nan", "-nan", "nan(ind)", "Infinity", "-Infinity", "inf", "-inf"])
def test_words_in_place_of_numbers_are_unknown(tmp_path, word):
    text = whole().replace('"stream": 7', f'"stream": {word}', 1)
    got = read_text(tmp_path, text)
    assert correlate(got).ints("stream").tolist()[1] == 7
    assert got.rows == 2
    assert got.warnings[0] == "1 of 5 events were no valid JSON (nan, unescaped text) and were mended"
    assert correlate(got).coded("gpu").texts() == ["NVIDIA H200"] * 2  # the header is read all the same
    assert got.columns["rank"].tolist() == [3, 3]  # and what follows the events


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (r"C:\Users\me", r"C:\Users\me"),  # \U is no escape
        (r"a\qb", r"a\qb"),
        (r"tab\tstays", "tab\tstays"),
        ('say "hi" twice', 'say "hi" twice'),  # as torch 2.13 writes a name with quotes
        ("a\nb", "a b"),  # a bare line break
        (r"half \ud800 pair", "half \ufffd pair"),
    ],
)
def test_names_that_are_not_escaped_are_mended(tmp_path, written, name):
    got = read_text(tmp_path, whole().replace("void gemm<float>(int)", written, 1))
    assert got.rows == 2
    assert correlate(got).coded("kLongName").texts()[0] == name


NAMES = [  # of Python frames of code that was compiled from a text, as libkineto writes them: quotes stay as they are
    '{"device": "cpu", "dtype": "float32"}(12): run',
    '{"device": "cpu", "id": 3}(12): run',
    '{"a": {"device": "cpu"}, "id": "b"}(1): run',
    '[{"a": "b"}, {"id": "c"}](12): run',
    '{"name": "x", "ph": "y"}(3): <lambda>',
    '["x"](3): f',
    '"',
    '{"args": {"name": "x"}}',
]


def frame(name: str) -> str:
    """A frame as Kineto's output_json.cpp writes it."""
    rest = '"pid": 7, "tid": 70, "ts": 1005, "dur": 80, "args": {"Python id": 1, "Ev Idx": 9}'
    return f'{{"ph": "X", "cat": "python_function", "name": "{name}", {rest}}}, '


@pytest.mark.parametrize(("name", "last"), [*((name, False) for name in NAMES), (NAMES[0], True), (NAMES[1], True)])
def test_a_frame_whose_name_has_quotes_is_read(tmp_path, name, last):
    text = whole()
    first = text.index('[{"ph"') + 1
    end = text.index(', "distributedInfo"') - 1
    at, added = (end, ", " + frame(name)[:-2]) if last else (first, frame(name))
    text = text[:at] + added + text[at:]
    trace = decoded(tmp_path, text.encode())
    assert [event.name for event in trace.events if event.cat == "python_function"] == [name]
    assert (len(trace.events), trace.losses) == (6, [])


def test_a_trace_of_torch_2_13_with_such_frames_keeps_its_idle_time(data):
    capture = read(data / "round3" / "cases" / "unescaped_quotes.json.gz")
    assert (capture.rows, capture.losses) == (57, [])
    assert capture.warnings[0].startswith("13 of 961 events were no valid JSON (nan, unescaped text) and were mended")


def test_frames_that_cannot_be_read_are_no_loss_of_what_ran(tmp_path):
    """Idle time and advice rest on kernels and calls. Frames tell layers and lines."""
    broken = '{"ph": "X", "cat": "python_function", "name": "f", "pid": 7, "tid": }, '
    capture = read_text(tmp_path, whole().replace('[{"ph"', "[" + broken + '{"ph"', 1))
    assert capture.losses == []
    assert "1 frames of Python could not be read: layers and lines may lack them" in capture.warnings
    op_lost = read_text(
        tmp_path, whole().replace('[{"ph"', "[" + broken.replace("python_function", "kernel") + '{"ph"', 1)
    )
    assert [loss.why for loss in op_lost.losses] == ["1 events of the file could not be read"]
    assert op_lost.losses[0].remedy == "copy the file again, or export the trace again"
    cut = read_text(tmp_path, whole()[:-200])
    assert cut.losses[0].remedy == "copy the file again, or export the trace again once the profiler has stopped"


def test_bytes_that_are_no_utf8(tmp_path):
    got = read_text(tmp_path, whole().encode().replace(b"gemm", b"g\xffmm", 1))
    assert correlate(got).coded("kLongName").texts()[0] == "void g\ufffdmm<float>(int)"


def test_nan_stays_where_it_is_text(tmp_path):
    text = whole().replace("void gemm<float>(int)", "nan, inf", 1).replace('"stream": 7', '"stream": NaN', 1)
    assert correlate(read_text(tmp_path, text)).coded("kLongName").texts()[0] == "nan, inf"


def test_a_kernel_without_a_start_stays_and_is_said(tmp_path):
    got = read_text(tmp_path, whole().replace('"ts": 1100', '"ts": "soon"'))
    table = correlate(got)
    assert sorted(table.ints("kDuration").tolist()) == [1_000, 2_000]
    assert table.ints("start").tolist() == [200_000, 200_000]  # where the other one starts
    place = "1 GPU operations, which took 1,000 ns, have no possible start: they stand where the first one starts"
    types = "1 events have values of another type than the format's, which are unknown (ts)"
    assert got.warnings[:2] == [place, f"{types}; 1 of these events are GPU operations, which took 1,000 ns"]


def test_an_event_of_the_wrong_form_is_left_out_and_counted(tmp_path):
    got = read_text(tmp_path, whole().replace('"cat": "cpu_op"', '"cat": 5', 1))  # it could be an event of any kind
    assert got.rows == 2
    assert "1 events could not be read and are left out" in got.warnings


@pytest.mark.parametrize("indent", [None, 2])
def test_every_cut_file_gives_its_whole_events(tmp_path, indent):
    text = whole(indent)
    first = text.index("traceEvents")
    for end in range(len(text) - 1, first, -7):
        events = sum(_end_of_event(text, number) <= end for number in range(len(EVENTS)))
        if not events:
            with pytest.raises(InputError):
                read_text(tmp_path, text[:end])
            continue
        if events == 1:  # the profiler's own span alone is no trace
            continue
        got = read_text(tmp_path, text[:end])
        ops = min(1, events - 2)  # an op without a kernel behind it is a row itself
        assert (len(got.ranges), got.rows) == (ops, max(ops, events - 3))
        in_list = end > text.rindex("]", 0, text.index("distributedInfo")) + 1
        assert any(w.startswith("the file is cut") for w in got.warnings) != in_list


def _end_of_event(text: str, number: int) -> int:
    """Where an event of the text ends: by a decoder of its own."""
    decoder, at = json.JSONDecoder(), text.index("[", text.index("traceEvents")) + 1
    for _ in range(number + 1):
        at += len(text[at:]) - len(text[at:].lstrip(" ,\n"))
        _, at = decoder.raw_decode(text, at)
    return at


def test_a_cut_file_says_how_much_was_read(tmp_path):
    text = whole()
    got = read_text(tmp_path, text[: text.rindex('"correlation": 6')])
    size = text.rindex('"correlation": 6')
    assert got.warnings[0] == f"the file is cut: its {size:,} bytes hold 4 whole events, which were read"


def test_a_cut_gzip_gives_its_beginning(tmp_path):
    packed = CAPTURE.read_bytes()
    path = tmp_path / "net.json.gz"
    path.write_bytes(packed[: len(packed) // 6])
    got = read(path)
    assert got.warnings[0] == "the gzip file is cut: what could be unpacked was read"
    assert got.warnings[1].startswith("the file is cut: its ")
    assert 0 < len(got.ranges) < len(read(CAPTURE).ranges)


def test_gzip_in_several_members(tmp_path):
    text = whole().encode()
    path = tmp_path / "net.json"
    path.write_bytes(gzip.compress(text[:200]) + gzip.compress(text[200:]))
    assert read(path).rows == 2


def test_a_byte_order_mark_and_blanks_are_allowed(tmp_path):
    assert read_text(tmp_path, b"\xef\xbb\xbf\n  " + whole().encode()).rows == 2


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "found an empty file"),
        (b" \n", "found an empty file"),
        (b"\x00\x05\x16\x07Mac OS X", "found a binary file"),
        (b"Kernel,Time\n", "found text that starts 'Kernel,Time"),
        (b"{}", "found JSON with nothing but no list of traceEvents"),
        (b'{"nodes": [], "edges": []}', "found JSON with 'nodes', 'edges' but no list of traceEvents"),
        (b'{"traceEvents": []}', "found one without events"),
        (b"[]", "found one without events"),
        (b"[1, 2]", "found one without events"),
        (b'{"traceEvents": 5}', "but no list of traceEvents"),
        (b'{"schemaVersion": 1, "deviceProp', "cut before its first event"),
        (b"\x1f\x8b\x08\x00garbage", "found a gzip file that is cut at its start"),
        (b"\x1f\x8b\x08\x00\0\0\0\0\0\0" + b"garbage" * 9, "found a broken gzip file"),
        (
            b'{"traceEvents": [{"ph": "X", "name": "fusion", "ts": 1, "dur": 2}]}',
            "of another tool: no event has a category",
        ),
        (
            b'{"traceEvents": [{"ph": "X", "ts": "soon"}, {"ph": "X", "ts": []}]}',
            "2 events of which none has a trace's",
        ),
        (json.dumps({"traceEvents": [begin(0)]}).encode(), "found one in which nothing ran: put the model's steps"),
        (b"[" * 100_000, "expected a torch.profiler"),
        (b'{"traceEvents": [' + b'{"a":' * 50_000, "expected a torch.profiler"),
    ],
)
def test_other_content_is_named_in_one_line(tmp_path, content, found):
    with pytest.raises(InputError) as error:
        read_text(tmp_path, content)
    message = str(error.value)
    assert message.startswith(str(tmp_path / "net.json"))
    assert found in message
    assert "\n" not in message


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_file_that_an_editor_or_powershell_wrote(tmp_path, encoding):
    path = tmp_path / "net.json"
    path.write_bytes(whole().encode(encoding))
    assert reader(path)(path).rows == 2


def test_a_comma_behind_the_last_event_is_no_cut(tmp_path):
    got = read_text(tmp_path, whole().replace('], "distributedInfo"', ', ], "distributedInfo"'))
    assert (got.rows, got.columns["rank"].tolist(), got.warnings[:-1]) == (2, [3, 3], [])


@pytest.mark.parametrize("between", ["", "\n", ",\n"])
def test_traces_one_behind_the_other_are_read_as_one(tmp_path, between):
    got = read_text(tmp_path, whole() + between + whole())
    assert got.rows == 4
    assert got.warnings[0] == "2 traces stand in the file, one behind the other: they are read as one"


def test_times_as_texts_are_numbers(tmp_path):
    text = re.sub(r'"(ts|dur)": ([\d.]+)', r'"\1": "\2"', whole())
    assert text.count('"ts": "1100"') == 1
    got = correlate(read_text(tmp_path, text))
    assert (got.ints("start").tolist(), got.ints("kDuration").tolist()) == ([100_000, 200_000], [1_000, 2_000])


def test_a_kernel_that_ends_before_it_starts_counts_nothing_and_is_said(tmp_path):
    got = read_text(tmp_path, whole().replace('"ts": 1100, "dur": 1', '"ts": 1100, "dur": -1'))
    assert correlate(got).ints("kDuration").tolist() == [0, 2_000]
    assert got.warnings[0].startswith("1 GPU operations have impossible times")


@pytest.mark.parametrize("dims", ["[1]", "[[-1]]", "[[[[2]]]]", '[["s0"]]', '"[[2]]"'])
def test_shapes_that_are_none_are_unknown_and_said(tmp_path, dims):
    text = json.dumps(
        {"traceEvents": [*EVENTS[:2], op("aten::mm", 1010, 50, Input_Dims=json.loads(dims)), *EVENTS[3:]]}
    )
    got = read_text(tmp_path, text)
    assert correlate(got).coded("sizes").texts()[0] == ""
    assert any("have shapes of another form" in text for text in got.warnings) == dims.startswith("[")


def test_other_accelerators_of_libkineto(tmp_path):
    text = whole().replace('"cat": "cuda_runtime"', '"cat": "privateuse1_runtime"')
    assert correlate(read_text(tmp_path, text)).coded("reason").texts() == ["", "no API row"]


def test_device_events_of_an_unknown_category_are_counted_out_loud(tmp_path):
    got = read_text(tmp_path, whole().replace('"cat": "kernel"', '"cat": "warp_job"', 1))
    assert got.rows == 1
    words = "events on a device's stream of unknown categories are left out: 1 warp_job"
    assert words in got.warnings


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.json: cannot be read: No such file"):
        read(tmp_path / "none.json")


@given(st.text(alphabet=string.printable + "\u00e9\u2028\U0001f600", max_size=40))
def test_any_name_survives(tmp_path_factory, name):
    path = tmp_path_factory.mktemp("names") / "net.json"
    path.write_text(json.dumps({"traceEvents": [begin(1000), kernel(1100, 1, 5, name)]}))
    assert correlate(read(path)).coded("kLongName").texts() == [name]


@given(st.binary(max_size=60), st.integers(0, 2000))
def test_no_damage_is_worse_than_one_line(tmp_path_factory, damage, at):
    text = whole().encode()
    path = tmp_path_factory.mktemp("damage") / "net.json"
    path.write_bytes(text[:at] + damage + text[at + len(damage) :])
    with suppress(InputError):
        correlate(read(path))


FIELDS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args"]
KEYS = ["correlation", "External id", "Sequence number", "Fwd thread id", "Input Dims", "Input type", "device", "grid"]
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3),
    st.lists(st.integers(), max_size=3), st.dictionaries(st.sampled_from(["a", "rank"]), st.integers(), max_size=1),
)  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, len(EVENTS) - 1), st.sampled_from(FIELDS + KEYS), ODD), max_size=6),
    ODD,
    st.booleans(),
)
def test_no_odd_value_is_worse_than_one_line(tmp_path_factory, changes, odd, inside):
    events = json.loads(json.dumps(EVENTS))
    for number, key, value in changes:
        place = events[number] if key in FIELDS else events[number]["args"]
        if isinstance(place, dict):
            place[key] = value
    path = tmp_path_factory.mktemp("odd") / "net.json"
    properties = [{"id": odd, "name": odd, "totalGlobalMem": odd}] if inside else odd
    ranks = {"rank": odd, "backend": odd, "world_size": odd} if inside else odd
    path.write_text(json.dumps({"traceEvents": events, "deviceProperties": properties, "distributedInfo": ranks}))
    with suppress(InputError):
        correlate(read(path))


LONG = 200_000  # characters; time that grew with the square of it was 20 s for 50,000
KERNEL = json.dumps(kernel(1100, 1, 5))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('{"ph": "X", "name": "' + '\\"' * LONG + '"}, ' + KERNEL + ", {nan}]}", 1),
        ('{"ph": "X", "cat": "kernel", "name": "' + '\\"' * LONG, None),  # the file is cut within a name
        (KERNEL + ', {"ph": "X", ' + '"name":"" ' * (LONG // 10) + "x}]}", 1),
        (KERNEL + ', {"ph": "X", ' + '"name":"' * (LONG // 8) + "x}]}", 1),
        (KERNEL + ', {"ph": "X", "name": "' + '"' * LONG + '"}]}', 1),
        (KERNEL + ', {"a": ' + "nan, " * LONG + "nan}]}", 1),
        (KERNEL + ', {"a": "' + "\\" * (LONG + 1), 1),
    ],
    ids=["escaped quotes", "cut name", "names without end", "names", "quotes", "nan", "backslashes"],
)
def test_mending_takes_time_in_proportion_to_the_text(text, rows, tmp_path):
    begun = time.process_time()
    with suppress(InputError):
        got = read_text(tmp_path, '{"traceEvents": [' + text)
        assert got.rows == rows
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("same", ["thread", "process"])
def test_many_threads_and_processes_take_time_in_proportion(same, tmp_path):
    count, events = 20_000, []
    for i in range(count):
        pid, tid = (7, i) if same == "process" else (i, 7)
        events += [{**call(1000 + 10 * i, i), "pid": pid, "tid": tid}, kernel(1003 + 10 * i, 1, i)]
    begun = time.process_time()
    got = read_text(tmp_path, json.dumps({"traceEvents": events}))
    assert time.process_time() - begun < 5  # 20,000 processes took 10 s
    table = correlate(got)
    assert (len(got.threads), table.rows) == (count, count)
    assert np.array_equal(table.ints("apiStart"), np.sort(table.ints("apiStart")))
    assert np.array_equal(table.ints("start") - table.ints("apiStart"), np.full(count, 3_000))  # each has its own call


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 9)), min_size=1), st.data())
def test_a_row_belongs_to_the_last_call_that_began_before_it(calls, data):
    """By a search of its own: of each process's first call with the id, the last before; else the lowest process's."""
    rows = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9))))
    pid, corr, start = (np.array(column, np.int64) for column in zip(*calls, strict=True))
    zeros = np.zeros(len(calls), np.int64)
    columns = _Calls(zeros, pid, corr, start, zeros, zeros, Coded.empty(len(calls)))
    ids, times = (np.array([row[i] for row in rows], np.int64) for i in range(2))
    expected = []
    for id_, time_ in rows:
        first = {p: i for i, (p, c, _) in reversed(list(enumerate(calls))) if c == id_}
        before = sorted((calls[i][2], -p, i) for p, i in first.items() if calls[i][2] <= time_)
        expected.append(before[-1][2] if before else first[min(first)] if first else -1)
    assert _last_begun(columns, ids, times).tolist() == expected
