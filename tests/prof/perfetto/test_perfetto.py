"""pyprof perfetto: what Perfetto's own trace processor finds in the files, against tables made by hand and captures."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.prof.limits.roofline import roofline
from pyprof.prof.load import load_table
from pyprof.prof.perfetto import byte_columns, cli, lanes
from pyprof.prof.perfetto.build_trace import collect
from pyprof.prof.perfetto.gpu_slices import load
from pyprof.prof.perfetto.lanes import DEEPEST, nested_lanes, single_lanes
from pyprof.prof.perfetto.projection import project
from pyprof.prof.perfetto.tracks import Slices, in_order
from pyprof.prof.perfetto.write_json import write_json
from pyprof.prof.perfetto.write_proto import varint, write_proto
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Coded, Ragged, Table
from pyprof.table.gpu_samples import GpuSamples
from pyprof.table.netdict import write_netdict
from tests.prof.changes.rules.advice_rows import mm, table
from tests.prof.memory.memory_rows import event
from tests.prof.memory.memory_rows import table as memory_table
from tests.prof.perfetto.trace_processor import ask, missing
from tests.tables import HOSTILE, readable_tables

with_processor = pytest.mark.skipif(bool(missing()), reason=missing() or "found")
FORMS = {"net.perfetto-trace": write_proto, "net.json": write_json}
NAME = '<b>"a"\\\n\u2028 漢 {}'


def small() -> Table:
    """Two calls on stream 7, one of them in two kernels and with its backward, one on stream 8 beside them."""
    launch = {"stream": 7, "tid": 1, "step": 3, "api": "cudaLaunchKernel"}
    forward = {**launch, "layer": ["net", "net.fc"], "op": ["linear"], "mod": ["torch"]}
    found = table(
        mm(64, 64, 64, 1000, start=5000, corr=1, opId=1, apiStart=100, apiDuration=50, **forward),
        # 2000 ns after, of the same call: not its arithmetic
        mm(64, 64, 64, 500, "splitKreduce_kernel", start=8000, corr=2, opId=1, apiStart=200, apiDuration=50,
           **forward),
        # beside both, on another stream, and longer than the first
        {"ns": 2500, "start": 5500, "kShortName": NAME, "stream": 8, "tid": 1, "step": 3, "phase": "forward",
         "reason": "no API row", "corr": 3},
        {**mm(64, 64, 64, 4000, start=12345, corr=4, opId=2, apiStart=9500, apiDuration=100, **forward),
         "dir": "bprop", "phase": "backward", "tid": 2},
        {"ns": 0, "start": 16345, "kind": "memset", "kShortName": "Memset (Device)", **launch, "corr": 5,
         "apiStart": 12000, "apiDuration": 1, "bytes": 4, "phase": "optimizer"},
    )  # fmt: skip
    return found.with_column("seqId", Ragged.of([[9], [9], [], [9], []]))


def write(folder: Path, name: str, made: Table) -> Path:
    file = folder / name
    with open(file, "wb") as out:
        FORMS[name](collect("net", made, annotate(made)), out)
    return file


# Clocks


def test_what_nvml_read_is_a_counter_of_its_gpu(tmp_path):
    """Of the GPU whose readings they are, with W and MHz; a reading that is unknown has no point."""
    made = small()
    known = [int(made.ints(key)[0]) for key in ("rank", "pid", "device")]
    time, none = np.array([5000, 9000, 12000]), np.full(3, NULL)
    clock, power = np.array([1980, NULL, 1410]), np.array([100_000, 350_500, 700_000])
    own = GpuSamples(*known, "instant", 1, 1980, NULL, NULL, time, clock, none, power, none, none, none)
    other = GpuSamples(*known[:2], 5, "", 1, NULL, NULL, NULL, time, *[time] * 6)
    made = Table(len(made), made.columns, [own, other])
    trace = collect("net", made, annotate(made))
    counters = {trace.tracks[counter.track].name: counter for counter in trace.counters}
    assert {"SM clock", "power"} <= counters.keys() and not {"memory clock", "temperature"} & counters.keys()
    assert (counters["SM clock"].time.tolist(), counters["SM clock"].value.tolist()) == ([5000, 12000], [1980, 1410])
    assert counters["power"].value.tolist() == [100, 350.5, 700]
    assert trace.tracks[counters["power"].track].unit == "W"
    written = json.loads(write(tmp_path, "net.json", made).read_text())["traceEvents"]
    values = [event["args"]["value"] for event in written if event.get("name", "").startswith("power")]
    assert values == [100.0, 350.5, 700.0]


# Parts


def test_lanes_keep_overlapping_slices_apart():
    # three at a time at 6, so three lanes; the lane of the one that ended at 8 is taken again at 9
    start, end = np.array([0, 5, 6, 9, 10]), np.array([10, 8, 20, 12, 11])
    assert single_lanes(start, end).tolist() == [0, 1, 2, 1, 0]
    # 6..14 begins within 0..10 and outlives it; what lies in either stays with the first that holds it
    assert nested_lanes(np.array([0, 2, 6, 7]), np.array([10, 4, 14, 9])).tolist() == [0, 0, 1, 0]


def test_a_lane_is_no_deeper_than_perfetto_keeps():
    start = np.arange(DEEPEST + 1)
    assert nested_lanes(start, 10_000 - start).tolist() == [0] * DEEPEST + [1]


def test_a_counter_is_the_sum_of_what_runs():
    times, values = load(np.array([0, 5, 20]), np.array([10, 8, 30]), np.array([0.1, 0.2, np.nan]))
    assert times.tolist() == [0, 5, 8, 10]
    assert values.tolist() == [0.1, 0.1 + 0.2, 0.1, 0.0]  # the first again, exactly, once it is alone


def test_varints_are_protobufs():
    # 300 = 0b10_0101100: the low seven bits first, with the bit that says that more follows
    assert [varint(n).hex() for n in (0, 127, 128, 300)] == ["00", "7f", "8001", "ac02"]
    assert varint(-1) == b"\xff" * 9 + b"\x01"
    small = byte_columns.numbers(b"", b"x", np.array([5, 300]), np.array([True, True]))
    assert [each.hex() for each in small.to_pylist()] == ["788500", "78ac02"]  # as wide as the largest; "x" is 78
    known = np.array([True, True, False, True])
    plain = byte_columns.numbers(b"", b"x", np.array([0, 300, 7, -1]), known).to_pylist()  # -1 needs ten bytes
    assert plain == [b"x" + b"\x80" * 9 + b"\0", b"x\xac\x82" + b"\x80" * 7 + b"\0", b"", b"x" + varint(-1)]
    inside = byte_columns.numbers(b"m", b"x", np.array([0, 300, 7, -1]), known).to_pylist()  # as content of a message
    assert inside == [b"m\x0b" + text if text else b"" for text in plain]


def test_padded_varints_are_the_same_numbers():
    numbers = np.array([0, 1, 127, 128, 2**40, 2**62])
    padded = byte_columns.padded_varints(numbers)
    assert padded.shape == (6, 9)  # 2**62 has 63 bits, 9 groups of seven
    assert [sum((byte & 127) << 7 * place for place, byte in enumerate(row)) for row in padded.tolist()] == [*numbers]
    assert [[byte >> 7 for byte in row] for row in padded.tolist()] == [[1] * 8 + [0]] * 6  # the last says: no more
    assert byte_columns.padded_varints(np.array([], np.int64)).shape == (0, 1)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=14), st.sampled_from([2, DEEPEST]))
def test_slices_that_nest_need_one_lane(slices, deepest):
    start, length = np.array(slices, np.int64).reshape(-1, 2).T
    end = start + length
    order = lanes.outer_first(start, end)
    assert order.tolist() == sorted(range(len(slices)), key=lambda i: (start[i], -end[i], i))
    pairs = [(start[i], end[i], start[j], end[j]) for i in range(len(slices)) for j in range(len(slices)) if i != j]
    crosses = any(a < c < b < d for a, b, c, d in pairs)
    around = [  # slices that are open where one begins: those that last and come before it
        sum(bool(start[o] <= start[i] < end[o]) for o in order[:place]) for place, i in enumerate(order)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "DEEPEST", deepest)
        nests = lanes._nest(start[order], end[order])
    assert nests == (not crosses and max(around, default=0) < deepest)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=40),
    st.sampled_from([single_lanes, nested_lanes]),
)
def test_events_come_in_an_order_that_nests(slices, lanes):
    start, length = (np.array(column, np.int64) for column in zip(*slices, strict=True))
    track = lanes(start, start + length)
    time, which, begins = in_order([Slices(track, start, length, Coded.empty(len(start)), Coded.empty(len(start)))])
    assert np.all(np.diff(time) >= 0)
    opened: dict[int, list[int]] = {}
    for at, i, begin in zip(time.tolist(), which.tolist(), begins.tolist(), strict=True):
        stack = opened.setdefault(int(track[i]), [])
        if begin:
            assert at == start[i]
            stack.append(i)
        else:  # Perfetto closes the innermost: it has to be this one
            assert stack.pop() == i and at == start[i] + length[i]
    assert not any(opened.values())


def test_the_program_is_projected_level_by_level():
    made = small()
    found = project(made, np.array([0, 1, 3, 4]))
    told = sorted(zip(found.level.texts(), found.name.texts(), found.start.tolist(), found.end.tolist(), strict=True))
    assert told == [
        ("layer", "fc", 5000, 8500), ("layer", "fc", 12345, 16345), ("layer", "net", 5000, 8500),
        ("layer", "net", 12345, 16345), ("op", "linear", 5000, 8500), ("op", "linear", 12345, 16345),
        ("phase", "backward", 12345, 16345), ("phase", "forward", 5000, 8500), ("phase", "optimizer", 16345, 16345),
    ]  # fmt: skip


def test_a_projected_slice_ends_where_the_next_of_its_level_begins():
    made = table({"ns": 100, "start": 0, "phase": "forward"}, {"ns": 100, "start": 60, "phase": "backward"})
    found = project(made, np.array([0, 1]))
    assert list(zip(found.start.tolist(), found.end.tolist(), strict=True)) == [(0, 60), (60, 160)]


# What the trace processor reads


SLICES = """select s.id, s.ts, s.dur, s.name, s.category, s.depth, s.track_id,
    coalesce(t.name, th.name) track, p.pid from slice s join track t on t.id = s.track_id
    left join thread_track tt on tt.id = t.id left join thread th using (utid)
    left join process_track pt on pt.id = t.id left join process p on p.upid = coalesce(th.upid, pt.upid)
    order by s.ts, s.dur desc"""
ARGS = """select s.id, substr(a.flat_key, instr(a.flat_key, '.') + 1) name,
    coalesce(a.string_value, a.int_value, a.real_value) value from slice s join args a using (arg_set_id)
    where a.flat_key glob 'debug.*' or a.flat_key glob 'args.*'"""
FLOWS = "select slice_out, slice_in from flow"
COUNTERS = "select t.name, c.ts, c.value from counter c join counter_track t on t.id = c.track_id order by c.ts"
ERRORS = "select name, value from stats where severity != 'info' and value > 0"


def read(folder: Path, file: Path) -> dict[str, Any]:
    """The trace as the processor has it: slices with their arguments, flows as pairs of slices, counters."""
    slices, args, flows, counters, errors = ask(file, folder, SLICES, ARGS, FLOWS, COUNTERS, ERRORS)
    assert errors == []
    by_id = {row["id"]: {**row, "args": {}} for row in slices}
    for row in args:
        by_id[row["id"]]["args"][row["name"]] = row["value"]
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in counters:  # JSON's say their GPU, and "value"
        name = row["name"].partition(", ")[0]
        lines.setdefault(name, []).append((row["ts"], row["value"]))
    return {"slices": list(by_id.values()), "by_id": by_id, "counters": lines,
            "flows": {(row["slice_out"], row["slice_in"]) for row in flows}}  # fmt: skip


@pytest.fixture(scope="module", params=FORMS)
def of_small(request, tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("small")
    return read(folder, write(folder, request.param, small()))


@with_processor
def test_perfetto_reads_the_small_table(of_small):
    found = of_small
    rows = {s["args"]["idx"]: s for s in found["slices"] if "idx" in s["args"]}
    assert [(rows[i]["ts"], rows[i]["dur"]) for i in range(1, 6)] == [
        (5000, 1000), (8000, 500), (5500, 2500), (12345, 4000), (16345, 0),
    ]  # fmt: skip
    assert [rows[i]["category"] for i in range(1, 6)] == ["kernel"] * 4 + ["memset"]
    assert rows[3]["name"] == NAME
    args = rows[1]["args"]
    # 2·64·64·64 FLOPs; three matrices of 64·64 bfloat16; in 1000 ns
    assert (args["flops"], args["bytes"], args["tflops"], args["gbps"]) == (524288, 24576, 0.524288, 24.576)
    assert (args["op"], args["layer"], args["dir"], args["tc"], args["step"]) == (
        "linear",
        "net:net.fc",
        "fprop",
        "1",
        3,
    )
    assert "flops" not in rows[3]["args"]  # unknown is not zero
    assert rows[3]["args"]["reason"] == "no API row"
    launched = {(out["name"], s["args"]["idx"]) for out, s in pairs(found) if out["category"] == "api"}
    assert launched == {("cudaLaunchKernel", i) for i in (1, 2, 4, 5)}
    # the forward op's arithmetic, not its reduction, leads to its backward
    assert {(out["args"]["idx"], s["args"]["idx"]) for out, s in pairs(found) if "idx" in out["args"]} == {(1, 4)}


@with_processor
def test_perfetto_reads_tracks_gaps_and_counters_of_the_small_table(of_small):
    found = of_small
    idle = [s for s in found["slices"] if s["category"] == "idle"]
    # 8500 to 12345; the launch came at 9500: 1000 of 3845 ns late
    assert [(s["ts"], s["dur"], s["name"], s["args"]["idle_why"], s["args"]["late_ns"]) for s in idle] == [
        (8500, 3845, "late launch", "launch", 1000)
    ]
    assert [(s["name"], s["ts"], s["dur"]) for s in found["slices"] if s["category"] == "step"] == [
        ("step 3", 5000, 11345)
    ]
    # at 8000 one ends and one begins
    assert found["counters"]["operations at once"] == [
        (5000, 1), (5500, 2), (6000, 1), (8500, 0), (12345, 1), (16345, 0)
    ]  # fmt: skip
    # 524288 FLOPs in 1000 and in 4000 ns; the reduction has none, so nothing changes with it
    assert found["counters"]["TFLOP/s"] == [(5000, 0.524288), (6000, 0.0), (12345, 0.131072), (16345, 0.0)]
    assert found["counters"]["operations without FLOPs"] == [(5500, 1.0), (8000, 0.0)]
    layer = next(s for s in found["slices"] if s["category"] == "layer" and s["name"] == "fc")
    assert (layer["ts"], layer["dur"], layer["args"]["operations"], layer["args"]["busy_ns"]) == (5000, 3500, 2, 1500)
    assert layer["args"]["flops"] == 524288
    assert {s["pid"] for s in found["slices"]} == {1}


def pairs(found: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(found["by_id"][a], found["by_id"][b]) for a, b in found["flows"]]


@with_processor
def test_both_forms_say_the_same(tmp_path, root):
    file = root / "tests/golden/h200_lenet_fp32.json.gz"
    told = []
    for form in FORMS:
        assert cli.main([str(file), "-o", str(tmp_path / form), "-q"]) == 0
        found = read(tmp_path, tmp_path / form)
        slices = sorted(found["slices"], key=lambda s: (s["ts"], s["dur"], s["name"], s["category"]))
        told.append((slices, len(found["flows"]), sorted(found["counters"])))
    (one, *rest), (other, *others) = told
    assert rest == others
    for key in ("ts", "dur", "name", "category"):
        assert [s[key] for s in one] == [s[key] for s in other]
    for a, b in zip(one, other, strict=True):
        floats = {name for name, value in a["args"].items() if isinstance(value, float)}
        assert {name: a["args"][name] for name in a["args"].keys() - floats} == {
            name: b["args"][name] for name in b["args"].keys() - floats
        }
        # JSON's have nine digits
        assert [a["args"][name] for name in floats] == pytest.approx([b["args"][name] for name in floats], rel=1e-8)


CAPTURES = ("h200_lenet.sqlite.gz", "h200_gpt2_cudagraph_node.sqlite.gz", "h200_resnet50_bf16.json.gz")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("capture", CAPTURES)
@with_processor
def test_every_row_of_a_capture_is_there_to_the_nanosecond(tmp_path, root, capture, form):
    file = root / "tests/golden" / capture
    made = load_table(file).table
    annotation = annotate(made)
    limits = roofline(made, annotation)
    assert cli.main([str(file), "-o", str(tmp_path / form), "-q"]) == 0
    found = read(tmp_path, tmp_path / form)
    rows = sorted((s for s in found["slices"] if "idx" in s["args"]), key=lambda s: s["args"]["idx"])
    assert [s["args"]["idx"] for s in rows] == list(range(1, len(made) + 1))
    assert [s["ts"] for s in rows] == made.ints("start").tolist()
    assert [s["dur"] for s in rows] == made.ints("kDuration").tolist()
    assert [s["name"] for s in rows] == made.coded("kShortName").texts("(no name)")
    for key, values in (("flops", annotation.flops), ("bytes", annotation.bytes)):
        assert [s["args"].get(key, NULL) for s in rows] == values.tolist()
    told = [s["args"].get("tflops", np.nan) for s in rows]
    assert np.allclose(told, limits.tflops, rtol=1e-8 if form == "net.json" else 0, atol=0, equal_nan=True)
    calls = {s["args"]["idx"]: out for out, s in pairs(found) if out["category"] == "api" and "idx" in s["args"]}
    assert {i: calls[i]["ts"] for i in calls} == {
        i: start for i, start in enumerate(made.ints("apiStart").tolist(), 1) if start != NULL
    }
    area = sum(value * (after - at) for (at, value), (after, _) in zip(
        found["counters"]["TFLOP/s"], found["counters"]["TFLOP/s"][1:], strict=False))  # fmt: skip
    assert area * 1e3 == pytest.approx(int(annotation.flops[annotation.flops != NULL].sum()), rel=1e-6)
    assert not [s for s in found["slices"] if s["dur"] < 0]


@with_processor
def test_forward_leads_to_the_backward_of_the_same_op(tmp_path, root):
    file = root / "tests/golden/h200_lenet.sqlite.gz"
    assert cli.main([str(file), "-o", str(tmp_path / "net.perfetto-trace"), "-q"]) == 0
    found = read(tmp_path, tmp_path / "net.perfetto-trace")
    both = [(a["args"], b["args"]) for a, b in pairs(found) if "idx" in a["args"]]
    assert {(a["dir"], b["dir"]) for a, b in both} == {("fprop", "bprop")}
    # rows of the listing: each op's arithmetic (not the bias, memsets, helpers) to each of the backward's calls
    assert sorted((a["idx"], b["idx"]) for a, b in both) == [
        (2, 54), (2, 56), (3, 53), (4, 51), (4, 52), (6, 46), (6, 50), (7, 45), (8, 43), (8, 44), (11, 39), (11, 41),
        (11, 42), (13, 38), (16, 34), (16, 36), (16, 37), (18, 33), (21, 29), (21, 31), (21, 32), (23, 28), (24, 26),
        (24, 27),
    ]  # fmt: skip


@with_processor
def test_ranges_and_calls_of_the_cpu_nest_as_they_ran(tmp_path, root):
    file = root / "tests/golden/h200_lenet.sqlite.gz"
    assert cli.main([str(file), "-o", str(tmp_path / "net.perfetto-trace"), "-q"]) == 0
    found = read(tmp_path, tmp_path / "net.perfetto-trace")["slices"]
    capture = load_table(file, ranges=True).capture
    ops = [s for s in found if "op_id" in s["args"]]
    assert len(ops) == int((capture.ranges.op_id != NULL).sum())
    conv = next(s for s in ops if s["name"] == "aten::cudnn_convolution")
    around = [s["name"] for s in found if s["track_id"] == conv["track_id"] and s["ts"] <= conv["ts"]
              and s["ts"] + s["dur"] >= conv["ts"] + conv["dur"] and s["depth"] < conv["depth"]]  # fmt: skip
    assert around[-3:] == ["aten::conv2d", "aten::convolution", "aten::_convolution"]
    assert cli.main([str(file), "-o", str(tmp_path / "net.json"), "-q", "--no-ranges"]) == 0
    assert not [s for s in read(tmp_path, tmp_path / "net.json")["slices"] if "op_id" in s["args"]]


# What needs no processor


def events(made: Table, tmp_path: Path) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = json.loads(write(tmp_path, "net.json", made).read_bytes())["traceEvents"]
    return told


def test_json_holds_nanoseconds_as_digits(tmp_path):
    late = 10**18 + 1  # an epoch's nanoseconds: a float of microseconds would lose the last three digits
    text = write(tmp_path, "net.json", table({"ns": 3, "start": late, "kShortName": "k"})).read_text()
    assert '"ts":1000000000000000.001,"dur":0.003' in text


def test_all_calls_of_a_file_of_amd_are_shown(tmp_path, data):
    file = data / "round2" / "rocpd_mi300x_batched_gemm.db.gz"
    assert cli.main([str(file), "-o", str(tmp_path / "net.json"), "-q"]) == 0
    told = json.loads((tmp_path / "net.json").read_bytes())["traceEvents"]
    calls = [e["name"] for e in told if e["ph"] == "X" and e["cat"] == "api"]
    assert len(calls) == 623  # SELECT count(*) FROM regions, of which 301 launch
    assert calls.count("hipEventRecord") == 2


def test_times_before_the_capture_move_all(tmp_path):
    made = table({"ns": 10, "start": -500, "kShortName": "early"}, {"ns": 10, "start": 70, "kShortName": "late"})
    told = {e["name"]: e["ts"] for e in events(made, tmp_path) if e["ph"] == "X"}
    assert (told["early"], told["late"]) == (0.0, 0.57)
    assert collect("net", made, annotate(made)).notes[-1].startswith("times are 500 ns later")


def test_ranks_with_one_process_number_stay_apart(tmp_path):
    made = table({"ns": 1, "rank": 0, "kShortName": "a"}, {"ns": 1, "rank": 1, "kShortName": "b"})
    told = {e["args"]["name"]: e["pid"] for e in events(made, tmp_path) if e["name"] == "process_name"}
    assert set(told) == {"rank 0", "rank 1, process 1"}
    assert len(set(told.values())) == 2


def test_operations_at_a_time_on_one_stream_have_lanes(tmp_path):
    made = table(
        {"ns": 100, "start": 0, "stream": 7, "kShortName": "a"}, {"ns": 9, "start": 5, "stream": 7, "kShortName": "b"}
    )
    places = {e["name"]: e["tid"] for e in events(made, tmp_path) if e["ph"] == "X" and e["cat"] == "kernel"}
    assert places["a"] != places["b"]


def test_rows_of_a_cpu_capture_are_slices_of_their_threads(tmp_path):
    made = table({"ns": 100, "start": 0, "kind": "cpu", "tid": 5, "kShortName": "aten::mm", "gpu": ""}, gpu="")
    told = events(made, tmp_path)
    assert [(e["tid"], e["dur"]) for e in told if e["ph"] == "X"] == [(5, 0.1)]
    assert not [e for e in told if "GPU" in str(e["args"].get("name"))]


def test_a_table_without_times_is_one_line(tmp_path, capsys, data):
    assert cli.main([str(data / "pyprof_golden/net.dict"), "-o", str(tmp_path / "x.json")]) == 1
    assert "expected start times, found none" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_names_of_outputs_tell_the_form(tmp_path, root, capsys):
    lenet = str(root / "tests/golden/h200_lenet.sqlite.gz")
    with pytest.raises(SystemExit, match="2"):
        cli.main([lenet, "-o", str(tmp_path / "net.txt")])
    assert "expected a name that ends in .perfetto-trace" in capsys.readouterr().err
    packed = tmp_path / "net.json.gz"
    assert cli.main([lenet, "-o", str(packed), "-c", "idx,op"]) == 0
    assert "57 operations" in capsys.readouterr().err
    whole = json.loads(gzip.decompress(packed.read_bytes()))
    told = [e["args"] for e in whole["traceEvents"] if "idx" in e.get("args", ())]
    assert len(told) == 57 and {key for args in told for key in args} == {"idx", "op"}
    assert cli.main([lenet, "-o", str(packed)]) == 1
    assert "exists; give --force" in capsys.readouterr().err


def test_times_that_are_none_are_one_line(tmp_path, capsys):
    file = tmp_path / "net.dict"
    with open(file, "wb") as out:
        write_netdict(table({"ns": 5, "start": 3 * 2**59, "kShortName": "k"}), out)
    assert cli.main([str(file), "-o", str(tmp_path / "x.json")]) == 1
    assert "expected times of less than 2**60 ns, found 1729382256910270464 in start" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


@settings(max_examples=40)
@given(readable_tables())
def test_any_table_with_times_makes_a_trace(tmp_path, made):
    start = np.where(made.ints("start") == NULL, 0, np.clip(made.ints("start"), -(2**60), 2**60))
    api = np.clip(made.ints("apiStart"), -(2**60), 2**60)
    for key in ("kDuration", "apiDuration"):
        made = made.with_column(key, np.clip(made.ints(key), 0, 2**60))
    made = made.with_column("start", start).with_column("apiStart", np.where(made.ints("apiStart") == NULL, NULL, api))
    told = [e for e in events(made, tmp_path) if "idx" in e.get("args", {})]
    assert sorted(e["args"]["idx"] for e in told) == list(range(1, len(made) + 1))
    write(tmp_path, "net.perfetto-trace", made)


@with_processor
def test_hostile_texts_come_back_as_they_were(tmp_path):
    texts = [text.replace("\0", "") for text in HOSTILE if text.replace("\0", "").strip()]
    made = table(*({"ns": 5, "kShortName": text, "op": [text]} for text in texts))
    expected = [(text, text) for text in texts]
    rows = [s for s in read(tmp_path, write(tmp_path, "net.perfetto-trace", made))["slices"] if "idx" in s["args"]]
    assert [(s["name"], s["args"]["op"]) for s in rows] == expected
    told = [e for e in events(made, tmp_path) if "idx" in e.get("args", ())]
    assert [(e["name"], e["args"]["op"]) for e in told] == expected
    # Perfetto (v52) does not undo the escapes of JSON; but it has to read every slice
    assert len([s for s in read(tmp_path, tmp_path / "net.json")["slices"] if "idx" in s["args"]]) == len(texts)


def test_tracks_of_json_have_numbers_that_no_thread_has(tmp_path):
    launched = {"ns": 5, "kShortName": "k", "stream": 7, "apiDuration": 1, "api": "launch"}
    made = table({**launched, "tid": 1, "apiStart": 0}, {**launched, "tid": 2, "apiStart": 1})
    told = [e for e in events(made, tmp_path) if e["name"] == "thread_name"]
    assert {"stream 7, GPU 0", "thread"} <= {e["args"]["name"] for e in told}
    assert len({e["tid"] for e in told}) == len(told)
    assert {e["tid"] for e in told if e["args"]["name"] == "thread"} == {1, 2}


def test_json_tells_what_was_written(tmp_path, root, capsys):
    file = tmp_path / "net.perfetto-trace"
    assert cli.main([str(root / "tests/golden/h200_lenet.sqlite.gz"), "-o", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["command"], told["operations"]) == ("pyprof/perfetto/1", "perfetto", 57)
    assert told["output"] == {"name": str(file), "bytes": file.stat().st_size}
    assert set(told["input"][0]) == {"name", "profiler"}


def test_the_options_are_these():
    options = {o for action in cli.build_parser()._actions for o in action.option_strings}
    assert options == {"-h", "--help", "-o", "--output", "-c", "--no-ranges", "--force", "--peaks", "--models",
                       "--graphs", "--json", "-q", "--quiet", "--version"}  # fmt: skip


@with_processor
@pytest.mark.parametrize("form", FORMS)
def test_memory_has_counters_per_device(tmp_path, form):
    """Two blocks of 8 and 16 bytes beside the 100 that were there; of events at one time the last counts."""
    memory = memory_table(
        event(5000, 8, 1, reserved=2048),
        event(5000, 16, 2, reserved=4096),
        event(7000, -8, 1, reserved=4096),
        event(7000, 32, 3, device=1, reserved=64),
        start=100,
    )
    trace = collect("net", small(), annotate(small()), memory=memory)
    with open(tmp_path / form, "wb") as out:
        FORMS[form](trace, out)
    counters = read(tmp_path, tmp_path / form)["counters"]
    found = {name.removesuffix(" value"): values for name, values in counters.items()}  # as JSON's counters are named
    assert found["cuda 0: memory in use"] == [(5000, 124.0), (7000, 116.0)]
    assert found["cuda 0: memory reserved"] == [(5000, 4096.0), (7000, 4096.0)]
    assert [value for _, value in found["cuda 1: memory reserved"]] == [64.0]


def test_without_allocations_there_is_no_counter_of_memory():
    assert not any("memory" in track.name for track in collect("net", small(), annotate(small())).tracks)


def test_pandas_is_not_imported(tmp_path: Path) -> None:
    """Arrow's own functions import it where they get a list or an array, in a third of a second."""
    with open(tmp_path / "net.dict", "wb") as out:
        write_netdict(small(), out)
    code = "import sys; from pyprof.prof.perfetto.cli import main; main(sys.argv[1:]); print('pandas' in sys.modules)"
    options = [str(tmp_path / "net.dict"), "-q", "-o", str(tmp_path / "net.pftrace")]
    done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
