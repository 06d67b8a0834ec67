"""The plan on the page: a staircase of bars, readable without scripts, and its texts stay texts."""

import html
import io
import re

import pytest

from pyprof.prof.changes.code_change import CodeChange
from pyprof.prof.changes.records import AbstainedRule, Change, Changes, StepTime
from pyprof.prof.report import cli
from pyprof.prof.report.page_model import page_model
from pyprof.prof.report.plan_section import plan_section
from pyprof.prof.report.render import render
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN
from tests.prof.report.report_rows import HOSTILE, small


def change(title="Pad it", saved=6.0, after=(2.0, 1.5, 2.5), code=None, text=""):
    return Change(
        rule="alignment", title=title, change=f"{title}. No target names the rows.", why=f"Odd{text}",
        cost=f"code: sizes{text}", library=f"torch/nn.py:3{text}", op=f"linear{text}", layer=f"net{text}",
        trace=f"net.py:7{text}", kernels=3.0,
        time_ms=7.0, gpu_ms=5.0, host_ms=0.5, saved_ms=saved, low_ms=saved - 0.5, high_ms=saved + 0.5,
        step=StepTime(*after), alone_ms=saved, source=f"x = head(x){text}", code=code,
    )  # fmt: skip


def document(*changes, measured=False):
    return Changes(
        unit="step", captured_ms=12.0, steps=3, measured=measured, now=StepTime(8.0, 6.0, 10.0), incomplete=[],
        changes=list(changes), not_chosen=[], abstained=[AbstainedRule("tf32", "no product in fp32")],
    )  # fmt: skip


def test_a_bar_is_as_long_as_the_step_after_its_change():
    """Of the longest time drawn, 10 ms: 80% now, 20% after the change, which takes 60% off."""
    now, after = plan_section(document(change()))["stairs"]
    assert (now["width"], now["saved"], now["low"], now["spread"]) == (80.0, 0.0, 60.0, 40.0)
    assert (after["width"], after["saved"], after["low"], after["spread"]) == (20.0, 60.0, 15.0, 10.0)
    assert after["title"] == "Pad it: saves 6 ms per step (75%)"
    assert after["how"] == "No target names the rows." and after["interval"] == "1.5 to 2.5 ms in four of five cases"


def test_a_change_that_costs_time_and_one_without_an_interval():
    """--with may begin with a change that makes the step longer."""
    slower = change(saved=-1.0, after=(9.0, 9.0, 9.0))
    stair = plan_section(document(slower))["stairs"][1]
    assert stair["title"].startswith("Pad it: costs 1 ms per step") and stair["interval"] == "" and stair["saved"] == 0


def test_a_plan_without_changes_has_no_stairs():
    section = plan_section(document())
    assert section["stairs"] == [] and section["result"] == "No change was found that saves 1% of a step."


def test_a_plan_ends_where_little_is_saved():
    said = plan_section(document(change()))["result"]
    assert said.startswith("1 change: 8 to 2 ms. Each further one saves less than 1% of the step.")


def test_what_was_measured_is_called_so():
    assert "Measured without the profiler, it takes 8 ms." in plan_section(document(measured=True))["head"]
    assert "about 8 ms (an estimate, 6 to 10 in four of five cases)." in plan_section(document())["head"]


def test_hostile_texts_stay_texts():
    code = CodeChange(HOSTILE, HOSTILE, HOSTILE, general=False)
    table = small()
    model = page_model(table, annotate(table), changes=document(change(HOSTILE, code=code, text=HOSTILE)))
    out = io.BytesIO()
    render(model, out)
    page = out.getvalue().decode()
    section = page[page.index('<section id="plan"') : page.index('<section id="advice"')]
    assert "<img" not in section and "<script" not in section and "&lt;/script&gt;&lt;img" in section


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "report.html"
    assert cli.main([str(GOLDEN / "advice" / "mixed.before.json.gz"), "-q", "-o", str(file)]) == 0
    return file


@pytest.mark.parametrize("width", [1400, 800, 390])
def test_the_staircase_goes_down_and_fits(chromium, page, width):
    chromium.resize(width, 900)
    try:
        chromium.open(page)
        assert chromium.log() == []
        assert chromium.run("return document.documentElement.scrollWidth") <= width
        bars = chromium.run("return [...document.querySelectorAll('#plan .stair b')].map((b) => b.offsetWidth)")
        assert len(bars) > 1 and bars == sorted(bars, reverse=True)
        assert bars[0] > 3 * bars[1]  # measured: 7.9 ms, and 2.2 in mixed precision
        text = chromium.run("return document.getElementById('plan').innerText")
        assert "Use mixed precision: saves " in text and f"{len(bars) - 1} changes: 7.93 to " in text
    finally:
        chromium.resize(1280, 900)


def test_the_plan_is_there_without_scripts(page):
    without = re.sub(r"<script.*?</script>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert "Use mixed precision: saves " in without
    assert "torch.autocast(&#34;cuda&#34;, dtype=torch.bfloat16)" in without


def test_a_kernel_table_has_changes_without_a_staircase(tmp_path):
    from pyprof.parse.cli import main as parse

    assert parse([str(GOLDEN / "advice" / "mixed.before.json.gz"), "-q", "-o", str(tmp_path / "net.dict")]) == 0
    assert cli.main([str(tmp_path / "net.dict"), "-q", "-o", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h2>What to change</h2>" in page and 'class="stairs"' not in page
    section = html.unescape(page[page.index('<section id="plan"') : page.index('<section id="advice"')])
    assert "Only the GPU's work that each removes by itself is known, and no change for the host, since a" in section
    assert '"saved_ms":null' in page.replace(" ", "")  # of the cards
