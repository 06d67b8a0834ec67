"""The web page: its numbers by hand, hostile names, and the page itself in headless Chromium."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from pyprof.netdict import write_netdict
from pyprof.prof.annotate import Annotation, annotate
from pyprof.prof.kinds import CLASSES, classes
from pyprof.prof.load_table import load_table
from pyprof.prof.page import TEMPLATES
from pyprof.prof.report import cli
from pyprof.prof.report.collect import collect
from pyprof.prof.report.headline import sentences, shown_ns
from pyprof.prof.report.render import island, render
from pyprof.prof.roofline import roofline
from pyprof.prof.steps import steps, typical
from pyprof.prof.waiting import WORDS, waits
from pyprof.table import NULL, Coded, Table
from tests.prof.browser import Browser, browser, missing
from tests.tables import tables

# name, op, phase, dir, start, duration, step, stream
ROWS = (
    ("k_fwd", '["relu"]', "forward", "fprop", 100, 10, 0, 7),
    ("copy", "", "other", "", 105, 10, 0, 8),  # beside forward and backward
    ("k_bwd", '["relu"]', "backward", "bprop", 110, 20, 0, 7),
    ("k_opt", '["SGD.step"]', "optimizer", "", 140, 10, 0, 7),
    ("k_fwd", '["relu"]', "forward", "fprop", 160, 14, 1, 7),
)
HOSTILE = "</script><img src=x onerror=window.pwned=1>\u2028<!--<script>'\"&{{7*7}}"


def small(rows: tuple[tuple[Any, ...], ...] = ROWS, **more: Any) -> Table:
    name, op, phase, direction, start, duration, step, stream = zip(*rows, strict=True)
    ints = {"start": start, "kDuration": duration, "step": step, "stream": stream}
    texts = {"kShortName": name, "op": op, "phase": phase, "dir": direction}
    kind = ["memcpy" if n == "copy" else "kernel" for n in name]
    return Table(
        len(rows),
        {
            **{key: np.array(values, np.int64) for key, values in ints.items()},
            **{key: Coded.of(values) for key, values in texts.items()},
            "kind": Coded.of(kind),
            **more,
        },
    )


def write_small(file: Path) -> None:
    with file.open("wb") as out:
        write_netdict(small(), out)


def model_of(table: Table, **more: Any) -> dict[str, Any]:
    annotation = annotate(table)
    return collect(table, annotation, roofline(table, annotation), **more)


def uncounted(rows: int) -> Annotation:
    unknown, text = np.full(rows, NULL, np.int64), Coded.empty(rows)
    return Annotation(unknown, unknown, text, text, text, text, {})


def page_of(table: Table, **more: Any) -> str:
    out = io.BytesIO()
    render(model_of(table, **more), out)
    return out.getvalue().decode()


# Numbers by hand


def test_every_instant_of_a_step_counts_once():
    first, second = steps(small(), np.zeros(5, np.int64))
    # forward 100-110, backward 110-130, optimizer 140-150; the copy 105-115 lies beneath; until step 1 starts at 160
    assert first.span_ns == 60
    assert first.phase_ns == {"forward": 10, "backward": 20, "optimizer": 10}
    assert first.idle_ns == 60 - 40
    assert (second.span_ns, second.phase_ns, second.idle_ns) == (14, {"forward": 14}, 0)


def test_the_typical_step_is_the_median_part_by_part():
    step = typical(steps(small(), np.zeros(5, np.int64)))
    assert step is not None
    assert (step.span_ns, step.phase_ns) == (37, {"forward": 12, "backward": 10, "optimizer": 5})  # (60+14)/2, ...


def test_without_steps_the_capture_is_one():
    (whole,) = steps(small(step=np.full(5, NULL, np.int64)), np.zeros(5, np.int64))
    assert (whole.number, whole.span_ns, whole.idle_ns) == (None, 74, 74 - 54)  # 100 to 174; 10+20+10+14 busy


def test_sentences_name_the_share_attributed_and_the_phases():
    table = small()
    annotation = annotate(table)
    said = sentences(table, annotation, steps(table, np.zeros(5, np.int64))[:1], [])
    assert said[0] == "84.4% of 64 ns of GPU time is attributed to an op (4 of 5 operations)."  # 54 of 64
    assert said[1] == (
        "A step takes 60 ns: forward 10 ns (16.7%), backward 20 ns (33.3%), optimizer 10 ns (16.7%), "
        "idle 20 ns (33.3%); backward takes 2.00 times as long as forward."
    )


def test_equal_rows_are_one_call():
    model = model_of(small())
    assert len(model["calls"]["numbers"]["flops"]) == 4  # k_fwd twice
    call = model["rows"]["call"]
    assert call[0] == call[4] and len(set(call)) == 4
    assert model["rows"]["start"] == [100, 5, 5, 30, 20]  # each from the one before
    assert model["rows"]["dur"] == [10, 10, 20, 10, 14]
    assert model["rows"]["wait"] == {"all": None, "count": 5}  # no launches
    assert [lane["name"] for lane in model["lanes"]] == ["stream 7", "stream 8"]


def test_rows_come_by_start_and_those_without_one_last():
    model = model_of(small(start=np.array([50, NULL, 20, 30, 40])))
    assert model["rows"]["start"] == [20, 10, 10, 10, None]
    assert model["rows"]["dur"] == [20, 10, 14, 10, 10]


def test_calls_of_ops_are_numbered_in_order_of_time():
    # rows by start: a (op 9), b (no op), a's second kernel, c (op 4); a launch of a graph repeats op 4 as another call
    found = model_of(
        small(
            opId=np.array([9, NULL, 9, 4, 4]),
            graphNode=np.array([NULL, NULL, NULL, 1, 1]),
            corr=np.array([1, 2, 3, 4, 5]),
        )
    )["rows"]["instance"]
    assert np.cumsum(found).tolist() == [0, 1, 0, 2, 3]


def test_gaps_have_a_cause_by_row():
    # 130 to 140 and 150 to 160 are idle; the first row after was called for at 135, the other at 120, before the gap
    api = np.array([90, 95, 100, 135, 120])
    found = model_of(small(apiStart=api, apiDuration=np.full(5, 2)))
    names = [cause["name"] for cause in found["why"]]
    assert [None if code is None else names[code] for code in found["rows"]["why"]] == [
        None, None, None, "launch", "queued",
    ]  # fmt: skip


def test_kernels_of_torch_compile_have_the_class_of_their_name():
    made = small((("triton_red_fused_sum_0", '["f"]', "forward", "fprop", 0, 1, 0, 7),
                  ("triton_poi_fused_add_1", '["f"]', "forward", "fprop", 2, 1, 0, 7)))  # fmt: skip
    family = Coded(np.zeros(2, np.int32), ["compiled"])
    found = classes(made, Annotation(*[uncounted(2).flops] * 2, *[Coded.empty(2)] * 3, family, {}))
    assert found.texts() == ["softmax, loss, reduction", "element-wise"]


def test_unattributed_rows_are_summed_by_reason_and_name():
    names = ("a", "b", "a", "c", "k")
    rows = tuple((name, '["op"]' if name == "k" else "", "other", "", 0, 10, 0, 7) for name in names)
    # texts may have several codes, as readers make them
    reason = Coded(np.array([0, 0, 1, 2, -1], np.int32), ["no API row", "no API row", "only user ranges around: x"])
    api, user = model_of(small(rows, reason=reason))["unattributed"]
    assert (api["reason"], api["rows"], api["ns"]) == ("no API row", 3, 30)
    assert api["names"] == [{"name": "a", "rows": 2, "ns": 20}, {"name": "b", "rows": 1, "ns": 10}]
    assert api["remedy"].startswith("the file is cut")
    assert (user["rows"], [each["name"] for each in user["names"]]) == (1, ["c"])


def test_classes_go_by_family_then_kind_then_name():
    names = ["ncclDevKernel_AllReduce", "ampere_sgemm_128x64_tn", "elementwise_kernel", "copy", "what"]
    rows = tuple((name, "", "", "", i, 1, 0, 7) for i, name in enumerate(names))
    table = small(rows)
    found = classes(table, annotate(table)).texts()
    assert found == ["communication", "matrix product", "element-wise", "copy, index, random", "other"]
    assert set(found) < set(CLASSES)


def test_ranks_and_devices_are_told_apart():
    model = model_of(small(rank=np.array([0, 0, 0, 0, 1])))
    assert model["owners"] == ["device, rank 0", "device, rank 1"]
    assert [step["owner"] for step in model["steps"]] == [0, 1]


# What is hostile


def test_the_island_cannot_end_and_gives_back_what_it_was_given():
    text = island({"name": HOSTILE})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {"name": HOSTILE}


def test_hostile_names_stay_text_in_the_page():
    hostile = ((HOSTILE, json.dumps([HOSTILE]), HOSTILE, HOSTILE, 100, 10, 0, 7),)
    page = page_of(small(hostile), title=HOSTILE, advice=[{"rule": HOSTILE}])
    outside = re.sub(r"(<script[^>]*>).*?</script>", "", page, flags=re.DOTALL)
    assert "<img" not in outside and "&lt;img" in outside
    assert page.count("<script") == page.count("</script") == 3  # the island, the library, ours
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(data)["calls"]["texts"]["name"]["values"] == [HOSTILE]
    assert "{{7*7}}" in page


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_any_table_makes_a_page(table):
    for key in ("kDuration", "start", "apiStart"):  # sums of times stay within 64 bits
        table = table.with_column(key, table.ints(key) % 1000)
    annotation = uncounted(len(table))
    model = collect(table, annotation, roofline(table, annotation))
    assert json.loads(island(model)) == json.loads(json.dumps(model))
    out = io.BytesIO()
    render(model, out)
    assert out.getvalue().count(b"</script>") == 3


def test_half_a_surrogate_pair_has_a_page():
    assert "<h1>?</h1>" in page_of(small(), title="\ud83d")


def test_the_policy_allows_our_scripts_and_no_connection():
    page = page_of(small())
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src &#39;none&#39;; script-src &#39;sha256-")
    assert "connect-src" not in policy and "http" not in policy  # default-src is none


def test_the_library_is_the_one_that_its_page_names():
    library = (TEMPLATES / "vendor" / "echarts.min.js").read_bytes()
    assert hashlib.sha256(library).hexdigest() in (TEMPLATES / "vendor" / "README.md").read_text(encoding="utf-8")


# The command


def test_the_command_writes_a_page_of_a_table_and_of_a_profilers_file(tmp_path, root, capsys):
    write_small(tmp_path / "net.dict")
    assert cli.main([str(tmp_path / "net.dict"), "-o", str(tmp_path / "a.html")]) == 0
    assert "84.4% of 64 ns of GPU time" in capsys.readouterr().err
    golden = root / "tests" / "golden" / "h200_lenet_init.sqlite.gz"
    assert cli.main([str(golden), "-q", "-o", str(tmp_path / "b.html"), "--title", "LeNet"]) == 0
    page = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert "<title>LeNet</title>" in page and len(page) < 2_000_000
    assert capsys.readouterr().err == ""


def test_nothing_is_overwritten_unasked_and_bad_input_is_one_line(tmp_path, capsys):
    write_small(tmp_path / "net.dict")
    taken = tmp_path / "report.html"
    taken.write_text("mine")
    assert cli.main([str(tmp_path / "net.dict"), "-o", str(taken)]) == 1
    assert taken.read_text() == "mine"
    assert cli.main([str(tmp_path / "net.dict"), "-o", str(taken), "--force"]) == 0
    (tmp_path / "bad.dict").write_text("nothing of the kind")
    assert cli.main([str(tmp_path / "bad.dict"), "-o", str(tmp_path / "no.html")]) == 1
    assert not (tmp_path / "no.html").exists()
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_the_options_are_these():
    options = {name for action in cli.build_parser()._actions for name in action.option_strings}
    assert options == {
        "-h", "--help", "-o", "--output", "--force", "--title", "--peaks", "--json", "-q", "--quiet", "--version",
    }  # fmt: skip


# In a browser


READY = "const wait = () => document.documentElement.dataset.ready ? done(true) : setTimeout(wait, 10); wait();"
FRAMES = "requestAnimationFrame(() => requestAnimationFrame(() => done(true)));"  # the shared filter acts on the next


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if reason := missing():
        pytest.skip(reason)
    with browser(tmp_path_factory.mktemp("profile")) as found:
        found.resize(1280, 900)
        yield found


@pytest.fixture(scope="module")
def gpt2(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    file = folder / "net.sqlite"
    with gzip.open(root / "tests" / "golden" / "h200_gpt2_step.sqlite.gz") as packed, file.open("wb") as out:
        shutil.copyfileobj(packed, out)
    assert cli.main([str(file), "-q", "-o", str(folder / "report.html")]) == 0
    return folder / "report.html"


@pytest.fixture
def opened(chromium: Browser, gpt2) -> Browser:
    chromium.open(gpt2)
    assert chromium.run_async(READY)
    chromium.run(
        "window.shown = (id) => pyprof[id]; window.rowsChosen = () => pyprof.state.mask().reduce((a, b) => a + b)"
    )
    return chromium


def test_the_page_opens_without_a_word_and_draws_every_chart(opened):
    assert opened.log() == []
    drawn = opened.run("return pyprof.draw.charts.map((c) => c.instance.getZr().storage.getDisplayList(true).length)")
    *drawn, of_an_op = drawn
    assert len(drawn) == 3 and min(drawn) > 10 and of_an_op == 0  # no op is chosen
    assert opened.run("return pyprof.timeline.drawn()") > 200
    assert opened.run("return pyprof.roofline.shown().length") > 10
    assert opened.run("return pyprof.layers.boxes().length") > 20
    assert opened.run("return document.querySelectorAll('#kernels .row').length") > 10


def test_it_fits_a_phone(opened):
    opened.resize(390, 800)
    try:
        opened.run_async(FRAMES)
        assert opened.run("return document.documentElement.scrollWidth") <= 390
    finally:
        opened.resize(1280, 900)


def test_a_click_in_a_chart_filters_the_rest(opened):
    where = opened.run("""
        const chart = pyprof.phases.instance, box = chart.getDom();
        box.scrollIntoView({block: "center"});
        const [x, y] = chart.convertToPixel({gridIndex: 0}, [1e6, 0]), {left, top} = box.getBoundingClientRect();
        return [left + x, top + y]""")
    opened.click(*where)
    opened.run_async(FRAMES)
    assert opened.run("return pyprof.state.value('phase')") == "forward"
    assert opened.run("return rowsChosen()") == 450  # forward kernels of the capture
    assert opened.run("return document.getElementById('filters').textContent").startswith(
        "phase: forward ×clear all450 of 1,214"
    )
    assert opened.run("return pyprof.kernels.lines().reduce((sum, at) => sum + at.count, 0)") == 450
    assert opened.run("return pyprof.roofline.shown().every((dot) => dot.dir !== 'bprop')")
    opened.run("document.getElementById('clear').click()")
    opened.run_async(FRAMES)
    assert opened.run("return rowsChosen()") == 1214
    assert opened.run("return document.getElementById('filters').hidden")
    assert opened.log() == []


def test_a_click_on_a_kernel_of_the_timeline_chooses_it(opened):
    where = opened.run("""
        const track = pyprof.timeline.tracks().find((found) => found.kind === "row");
        const long = track.end.map((end, i) => end - track.start[i]), i = long.indexOf(Math.max(...long));
        window.wanted = pyprof.model.text("name", track.list[i]);
        pyprof.timeline.show(track.start[i] - 1e5, track.end[i] + 1e5);
        const canvas = document.querySelector("#timeline canvas");
        canvas.scrollIntoView({block: "center"});
        const {left, top, width} = canvas.getBoundingClientRect();
        return [left + width / 2, top + track.y + 5]""")
    opened.run_async(FRAMES)
    opened.click(*where)
    opened.run_async(FRAMES)
    assert opened.run("return pyprof.state.value('name') === window.wanted")
    assert opened.run("return !document.getElementById('detail').hidden")
    assert opened.log() == []


def test_an_op_has_a_page_of_its_own(opened, root):
    opened.run("pyprof.state.set('op', 'addmm')")
    opened.run_async(FRAMES)
    table = load_table(root / "tests/golden/h200_gpt2_step.sqlite.gz").table
    rows = np.array(table.coded("op").texts()) == '["addmm"]'
    ns = int(table.ints("kDuration")[rows].sum())
    assert opened.run("return pyprof.op.calls().length") == len(np.unique(table.ints("opId")[rows]))
    assert opened.run("return pyprof.op.calls().reduce((sum, at) => sum + at.ns, 0)") == ns
    assert opened.run("return document.querySelector('#op h2').textContent") == "Op: addmm"
    # each set of arguments once, and together they are the op
    assert opened.run("return pyprof.op.sets().reduce((sum, at) => sum + at.ns, 0)") == ns
    forward = opened.run("""
        return pyprof.op.sets().filter((at) => pyprof.model.texts.aten[at.call] === 'aten::addmm')
            .map((at) => [pyprof.model.texts.params[at.call], at.times.size, at.flops / at.times.size])""")
    # 12 blocks: qkv, projection, up, down; 2·4096·768·2304 FLOPs and so on
    assert sorted(forward) == [
        ["T=[(2304),(4096,768),(768,2304)]", 12, 2 * 4096 * 768 * 2304],
        ["T=[(3072),(4096,768),(768,3072)]", 12, 2 * 4096 * 768 * 3072],
        ["T=[(768),(4096,3072),(3072,768)]", 12, 2 * 4096 * 3072 * 768],
        ["T=[(768),(4096,768),(768,768)]", 12, 2 * 4096 * 768 * 768],
    ]
    assert opened.run("return pyprof.op.chart.instance.getZr().storage.getDisplayList(true).length") > 10
    opened.run("document.querySelector('#op tbody tr').click()")  # the set with most time
    opened.run_async(FRAMES)
    assert opened.run("return rowsChosen()") == opened.run("return pyprof.op.sets()[0].times.size") == 12
    opened.run("pyprof.state.clear()")
    opened.run_async(FRAMES)
    assert opened.run("return document.getElementById('op').hidden")
    assert opened.run("return location.hash") == ""
    assert opened.log() == []


def test_an_op_has_an_address(chromium, gpt2, tmp_path):
    copy = tmp_path / "page.html"
    copy.write_bytes(gpt2.read_bytes())
    chromium.open(copy, "#op=layer_norm")
    assert chromium.run_async(READY)
    chromium.run_async(FRAMES)
    assert chromium.run("return pyprof.state.value('op')") == "layer_norm"
    assert chromium.run("return !document.getElementById('op').hidden")
    chromium.run("pyprof.state.set('op', 'mul')")
    chromium.run_async(FRAMES)
    assert chromium.run("return location.hash") == "#op=mul"
    assert chromium.log() == []


def test_phases_and_ops_lie_over_their_stream(opened, root):
    table = load_table(root / "tests/golden/h200_gpt2_step.sqlite.gz").table
    start, end = table.ints("start"), table.ints("start") + table.ints("kDuration")
    phase = np.array(table.coded("phase").texts())
    found = opened.run("""
        const track = pyprof.timeline.tracks().find((found) => found.kind === 'range' && found.level === 0);
        return Array.from(track.start, (time, i) => [pyprof.model.text('phase', track.list[i]), time, track.end[i]])""")
    assert found == [
        [name, int(start[phase == name].min()), int(end[phase == name].max())]
        for name in ("forward", "backward", "optimizer")
    ]
    calls = opened.run("return pyprof.timeline.tracks().find((found) => found.level === 1).list.length")
    op = table.ints("opId")  # in order of time; this capture has an op for each row
    assert calls == 1 + int((np.diff(op[np.argsort(start, kind="stable")]) != 0).sum())
    opened.run("document.getElementById('timeline-ranges').click()")
    opened.run_async(FRAMES)
    assert opened.run("return pyprof.timeline.tracks().some((found) => found.kind === 'range')") is False
    assert opened.log() == []


def test_idle_time_is_told_by_its_cause_and_a_click_on_a_gap_chooses_that(opened, root):
    causes = waits(load_table(root / "tests/golden/h200_gpt2_step.sqlite.gz").table).causes
    told = opened.run("return [...document.querySelectorAll('#timeline-idle button')].map((b) => b.textContent)")
    assert told == [f"{WORDS[name]} {shown_ns(ns)}" for name, _, ns in causes]
    where = opened.run("""
        const track = pyprof.timeline.tracks().find((found) => found.kind === "gap");
        const long = track.end.map((end, i) => end - track.start[i]), i = long.indexOf(Math.max(...long));
        pyprof.timeline.show(track.start[i], track.end[i]);
        const canvas = document.querySelector("#timeline canvas");
        canvas.scrollIntoView({block: "center"});
        const {left, top, width} = canvas.getBoundingClientRect();
        const why = pyprof.model.rows.why[track.next[i]];
        return [left + width / 2, top + track.y + 5, pyprof.model.data.why[why].name]""")
    opened.run_async(FRAMES)
    opened.click(*where[:2])
    opened.run_async(FRAMES)
    assert opened.run("return pyprof.model.data.why[pyprof.state.value('why')].name") == where[2]
    assert opened.run("return rowsChosen()") == {name: gaps for name, gaps, _ in causes}[where[2]]
    assert opened.log() == []


def test_what_has_no_op_is_told_with_its_reason_and_a_click_chooses_it(chromium, tmp_path):
    reason = Coded.of(["", "no API row", "", "", ""])
    (tmp_path / "page.html").write_text(page_of(small(reason=reason)), encoding="utf-8")
    chromium.open(tmp_path / "page.html")
    assert chromium.run_async(READY)
    told = chromium.run("return [...document.querySelectorAll('#unattributed button')].map((b) => b.textContent)")
    assert told == ["no API row1 ×10 ns15.6%", "copy1 ×10 ns15.6%"]  # 10 of 64 ns
    chromium.run("document.querySelector('#unattributed h3 button').click()")
    chromium.run_async(FRAMES)
    assert chromium.run("return pyprof.kernels.lines().map((at) => pyprof.model.texts.name[at.call])") == ["copy"]
    assert chromium.log() == []


def test_measured_roofs_stand_beside_those_of_the_data_sheet(chromium, root, tmp_path):
    peaks = {"format": "pyprof peaks", "version": 1, "device": "NVIDIA H200", "arch": "sm_90",
             "flop_per_s": {"tc_bf16": 8.11e14}, "byte_per_s": 4.25e12}  # fmt: skip
    (tmp_path / "peaks.json").write_text(json.dumps(peaks))
    file = root / "tests/golden/h200_gpt2_step.sqlite.gz"
    assert cli.main([str(file), "-q", "-o", str(tmp_path / "page.html"), "--peaks", str(tmp_path / "peaks.json")]) == 0
    chromium.open(tmp_path / "page.html")
    assert chromium.run_async(READY)
    drawn = """
        return pyprof.roofline.instance.getOption().series.filter((each) => each.type === 'line')
            .map((each) => [each.name, each.lineStyle.type, Math.max(...each.data.map(([, rate]) => rate))])"""
    roofs = chromium.run(drawn)
    assert ["tc_bf16 811 TFLOP/s measured (data sheet: 989.4 TFLOP/s)", "dashed", 8.11e14] in roofs
    assert ["roof", "dotted", 9.894e14] in roofs
    assert ["fp32 67 TFLOP/s", "dashed", 6.7e13] in roofs  # not measured: the data sheet's
    assert not any("tc_fp8" in name for name, *_ in roofs)
    chromium.run("const c = document.getElementById('roofline-roofs'); c.value = 'all'; c.onchange()")
    assert any("tc_fp8" in name for name, *_ in chromium.run(drawn))
    assert chromium.log() == []


def test_search_sort_and_copy_of_the_table(opened):
    opened.run("const s = document.getElementById('search'); s.value = 'NVJET'; s.oninput()")
    opened.run_async(FRAMES)
    names = opened.run("return pyprof.kernels.lines().map((at) => pyprof.model.texts.name[at.call])")
    assert names and all("nvjet" in name for name in names)
    head, *lines = opened.run("return pyprof.kernels.csv()").splitlines()
    assert head.startswith('"name","count","dur"') and len(lines) == len(names)
    opened.run("document.querySelector('#kernels .head .cell').click()")  # by name, upwards
    assert opened.run("return pyprof.kernels.lines().map((at) => pyprof.model.texts.name[at.call])") == sorted(names)


def test_only_rows_in_sight_are_in_the_document(opened):
    opened.run("const g = document.getElementById('kernels-group'); g.value = ''; g.onchange()")
    assert opened.run("return pyprof.kernels.lines().length") == 1214
    opened.run("document.getElementById('kernels').scrollTop = 20000")
    opened.run_async(FRAMES)
    assert opened.run("return document.querySelectorAll('#kernels .row').length") < 60
    assert opened.run(
        "return [...document.querySelectorAll('#kernels .row')].some((row) => row.style.top === '20020px')"
    )


def test_layers_go_by_time_flops_bytes_and_direction(opened):
    time = opened.run("return pyprof.layers.boxes()[0][3].value")
    opened.run("const m = document.getElementById('layers-metric'); m.value = 'flops'; m.onchange()")
    assert opened.run("return pyprof.layers.boxes()[0][3].value") != time
    opened.run("const d = document.getElementById('layers-dir'); d.value = 'bprop'; d.onchange()")
    opened.run_async(FRAMES)
    assert opened.run("return pyprof.state.value('dir')") == "bprop"


def test_the_switch_changes_the_theme(opened):
    before = opened.run("return getComputedStyle(document.body).backgroundColor")
    opened.run(
        "const b = document.getElementById('theme'); b.click(); b.click(); localStorage.removeItem('pyprof-theme')"
    )
    assert opened.run("return document.documentElement.dataset.theme") == "dark"
    assert opened.run("return getComputedStyle(document.body).backgroundColor") != before
    assert opened.log() == []


def test_hostile_names_are_text_in_the_browser(chromium, tmp_path):
    hostile = ((HOSTILE, json.dumps([HOSTILE]), HOSTILE, HOSTILE, 100, 10, 0, 7),)
    layer = Coded.of([json.dumps([HOSTILE])])
    (tmp_path / "page.html").write_text(
        page_of(
            small(hostile, layer=layer),
            title=HOSTILE,
            advice=[{"rule": HOSTILE, "op": HOSTILE, "trace": HOSTILE, "change": HOSTILE, "shares": [HOSTILE]}],
        ),
        encoding="utf-8",
    )
    chromium.open(tmp_path / "page.html")
    assert chromium.run_async(READY)
    assert chromium.run("return document.querySelector('#kernels .row .cell').textContent") == HOSTILE
    chromium.run("document.querySelector('#kernels .row').click()")
    chromium.run_async(FRAMES)
    assert chromium.run("return document.querySelector('#detail').textContent.includes(arguments[0])", HOSTILE)
    assert chromium.run("return document.querySelector('#advice h3').textContent") == HOSTILE
    assert (
        chromium.run("return document.title").replace("\u2028", " ").split() == HOSTILE.replace("\u2028", " ").split()
    )
    assert chromium.run("return document.querySelectorAll('img').length") == 0
    assert chromium.run("return window.pwned ?? null") is None
    assert chromium.log() == []


def test_the_policy_holds(chromium, gpt2):
    chromium.open(gpt2)
    violated = chromium.run_async("""
        const seen = [];
        document.addEventListener("securitypolicyviolation", (event) => seen.push(event.effectiveDirective));
        const script = document.createElement("script");
        script.textContent = "window.pwned = 1";
        document.body.append(script);
        fetch("http://127.0.0.1:9/").catch(() => setTimeout(() => done([...seen, window.pwned ?? null]), 50));""")
    assert sorted(map(str, violated)) == ["None", "connect-src", "script-src-elem"]
    chromium.log()


def test_a_table_without_times_has_a_page(chromium, tmp_path):
    table = small(start=np.full(5, NULL, np.int64), step=np.full(5, NULL, np.int64))
    (tmp_path / "page.html").write_text(page_of(table), encoding="utf-8")
    chromium.open(tmp_path / "page.html")
    assert chromium.run_async(READY)
    assert "no start times" in chromium.run("return document.getElementById('timeline').textContent")
    assert chromium.log() == []
