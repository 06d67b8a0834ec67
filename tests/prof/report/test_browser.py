"""The web page in headless Chromium."""

import gzip
import json
import shutil

import numpy as np
import pytest

from pyprof.prof.load import load_table
from pyprof.prof.report import cli, operations
from pyprof.prof.timing.waiting import WORDS, waiting
from pyprof.table.columns import NULL, Coded
from tests.prof.report.browser import Browser
from tests.prof.report.report_rows import HOSTILE, page_of, small

READY = "const wait = () => document.documentElement.dataset.ready ? done(true) : setTimeout(wait, 10); wait();"
FRAMES = "requestAnimationFrame(() => requestAnimationFrame(() => done(true)));"  # the shared filter acts on the next


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


def test_packed_columns_are_read_as_lists_are(chromium, root, tmp_path, monkeypatch):
    file = root / "tests" / "golden" / "h200_lenet.sqlite.gz"
    read = []
    for name, longest in (("plain.html", 1 << 30), ("packed.html", 1)):
        monkeypatch.setattr(operations, "LONG", longest)
        assert cli.main([str(file), "-q", "-o", str(tmp_path / name)]) == 0
        chromium.open(tmp_path / name)
        assert chromium.run_async(READY)
        read.append(chromium.run("return Object.entries(model.rows).map(([name, list]) => [name, Array.from(list)])"))
    assert chromium.log() == []
    assert read[0] == read[1] and len(read[0]) > 8
    assert '"lengths":' in (tmp_path / "packed.html").read_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_memory_section_is_drawn_and_fits(chromium, root, tmp_path, width):
    file = root / "tests" / "golden" / "memory" / "h200_gpt2.json.gz"
    assert cli.main([str(file), "-q", "-o", str(tmp_path / "page.html")]) == 0
    chromium.resize(width, 900)
    try:
        chromium.open(tmp_path / "page.html")
        assert chromium.run_async(READY)
        assert chromium.log() == []
        assert chromium.run("return document.documentElement.scrollWidth") <= width
        chart = "echarts.getInstanceByDom(document.getElementById('memory'))"
        assert chromium.run(f"return {chart}.getZr().storage.getDisplayList(true).length") > 10
        texts = chromium.run("return document.getElementById('memory-legend').textContent")
        assert "6.907 GB" in texts and "8.026 GB" in texts
    finally:
        chromium.resize(1280, 900)


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
    gaps = waiting(load_table(root / "tests/golden/h200_gpt2_step.sqlite.gz").table)
    ended = [(name, gaps.idle_ns[gaps.cause.among(name) & (gaps.idle_ns > 0)]) for name in gaps.cause.values]
    causes = sorted(((name, len(ns), int(ns.sum())) for name, ns in ended if len(ns)), key=lambda cause: -cause[2])
    told = opened.run("return [...document.querySelectorAll('#timeline-idle button')].map((b) => b.textContent)")
    assert told == [f"{WORDS[name]} {ns / 1e6:.4g} ms" for name, _, ns in causes]
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
    peaks = {
        "format": "pyprof peaks",
        "version": 1,
        "device": "NVIDIA H200",
        "arch": "sm_90",
        "flop_per_s": {"tc_bf16": 8.11e14},
        "byte_per_s": 4.25e12,
    }
    (tmp_path / "peaks.json").write_text(json.dumps(peaks))
    file = root / "tests/golden/h200_gpt2_step.sqlite.gz"
    assert cli.main([str(file), "-q", "-o", str(tmp_path / "page.html"), "--peaks", str(tmp_path / "peaks.json")]) == 0
    chromium.open(tmp_path / "page.html")
    assert chromium.run_async(READY)
    drawn = """
        return pyprof.roofline.instance.getOption().series.filter((each) => each.type === 'line')
            .map((each) => [each.name, each.lineStyle.type, Math.max(...each.data.map(([, rate]) => rate))])"""
    roofs = chromium.run(drawn)
    assert ["bf16 tensor cores 811 TFLOP/s measured (data sheet: 989.4 TFLOP/s)", "dashed", 8.11e14] in roofs
    assert ["roof", "dotted", 9.894e14] in roofs
    assert ["fp32 67 TFLOP/s", "dashed", 6.7e13] in roofs  # not measured: the data sheet's
    assert not any("fp8 tensor cores" in name for name, *_ in roofs)
    chromium.run("const c = document.getElementById('roofline-roofs'); c.value = 'all'; c.onchange()")
    assert any("fp8 tensor cores" in name for name, *_ in chromium.run(drawn))
    assert chromium.log() == []


def test_search_sort_and_copy_of_the_table(opened):
    opened.run("const s = document.getElementById('search'); s.value = 'NVJET'; s.oninput()")
    opened.run_async(FRAMES)
    names = opened.run("return pyprof.kernels.lines().map((at) => pyprof.model.texts.name[at.call])")
    assert names and all("nvjet" in name for name in names)
    head, *lines = opened.run("return pyprof.kernels.csv()").splitlines()
    assert head.startswith('"name","dur","share","count"') and len(lines) == len(names)
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
            advice=[
                {
                    "title": HOSTILE,
                    "rule": HOSTILE,
                    "op": HOSTILE,
                    "trace": HOSTILE,
                    "change": HOSTILE,
                    "shares": [HOSTILE],
                }
            ],
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
