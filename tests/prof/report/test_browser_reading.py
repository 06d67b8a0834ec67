"""What a reader finds on the web page in headless Chromium: legends, labels, definitions, stacks, lines of code."""

import gzip
import json
import re
import shutil
from collections import defaultdict

import numpy as np
import pytest

from pyprof.prof.colours import LIGHT
from pyprof.prof.load import load_table
from pyprof.prof.report import cli
from pyprof.prof.report.definitions import TERMS
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.kinds import CLASSES, classes
from pyprof.table.columns import Coded
from tests.prof.report.browser import Browser
from tests.prof.report.report_rows import HOSTILE, page_of, small
from tests.prof.report.test_browser import FRAMES, READY

GOLDEN = "tests/golden/h200_gpt2_init.sqlite.gz"
WIDTHS = (390, 800, 1400)


@pytest.fixture(scope="module")
def gpt2(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    with gzip.open(root / GOLDEN) as packed, (folder / "net.sqlite").open("wb") as out:
        shutil.copyfileobj(packed, out)
    assert cli.main([str(folder / "net.sqlite"), "-q", "-o", str(folder / "report.html")]) == 0
    return folder / "report.html"


@pytest.fixture
def opened(chromium: Browser, gpt2) -> Browser:
    chromium.open(gpt2)
    assert chromium.run_async(READY)
    yield chromium
    assert chromium.log() == []
    chromium.resize(1280, 900)


@pytest.fixture(scope="module")
def table(root):
    return load_table(root / GOLDEN).table


def traces(table) -> list[list[str]]:
    return [json.loads(text) if text else [] for text in table.coded("trace").texts()]


def keys(found: Browser, name: str) -> list[str]:
    return found.run(
        "return [...document.querySelectorAll(`#${arguments[0]} li:has(i)`)].map((li) => li.childNodes[1].data)",
        f"{name}-legend",
    )


def scroll_to(browser: Browser, name: str) -> None:
    """Stacks and lines are built when they come near."""
    browser.run(f"document.getElementById('{name}').scrollIntoView()")
    browser.run_async(FRAMES)


def show(text: str) -> str:
    """Colours as the browser has them."""
    return f"rgb({', '.join(str(int(text[i : i + 2], 16)) for i in (1, 3, 5))})"


# Legends and colours


def test_each_chart_names_its_colours(opened, table):
    used = set(classes(table, annotate(table)).texts())
    phases = ["forward", "backward", "optimizer"]
    assert keys(opened, "timeline") == [*(name for name in CLASSES if name in used), *phases, "layers"]
    assert keys(opened, "phases") == ["forward", "backward", "optimizer", "idle"]
    opened.run("pyprof.stacks.now()")
    for name in ("roofline", "layers", "stacks"):
        found = keys(opened, name)
        assert "GEMM, recurrent layers" in found and set(found) <= {*used, "layers", "lines of code"}
    drawn = opened.run("""
        return [...new Set(pyprof.layers.instance.getZr().storage.getDisplayList(true).map((each) => each.style.fill)
            .filter(Boolean))].filter((color) => color.startsWith('#') && !['#111', '#fff'].includes(color))""")
    swatches = opened.run(
        "return [...document.querySelectorAll('#layers-legend i')].map((each) => each.style.backgroundColor)"
    )
    assert {show(color) for color in drawn} - {show(LIGHT.ink), show(LIGHT.dim)} <= set(swatches)


def test_a_box_of_an_op_has_the_colour_of_the_op_and_not_of_its_casts(opened):
    """A linear under autocast begins with a cast to bf16, cross_entropy spends most of its time in casts."""
    kinds = opened.run(
        "return Object.fromEntries(['linear', 'cross_entropy', 'embedding', 'layer_norm', "
        "'scaled_dot_product_attention'].map((name) => [name, pyprof.model.opClass(name)]))"
    )
    assert kinds == {
        "linear": "GEMM, recurrent layers",
        "cross_entropy": "softmax, loss, reductions",
        "embedding": "copies, indexing, random numbers",  # the forward gathers, and counts no FLOPs
        "layer_norm": "normalisation",
        "scaled_dot_product_attention": "attention",
    }
    fills = opened.run("""
        return pyprof.layers.instance.getZr().storage.getDisplayList(true).filter((each) => each.type === 'rect')
            .map((each) => [each.getTextContent()?.style.text ?? '', each.style.fill])""")
    linear = {fill for text, fill in fills if text.startswith("linear")}
    assert linear == {LIGHT.of_class("GEMM, recurrent layers")}
    frames = opened.run("""
        return pyprof.stacks.boxes().filter(({at}) => at.op)
            .map(({at, button}) => [at.op, button.style.backgroundColor])""")
    assert {color for op, color in frames if op == "linear"} == {show(LIGHT.of_class("GEMM, recurrent layers"))}
    assert {color for op, color in frames if op == "cross_entropy"} == {
        show(LIGHT.of_class("softmax, loss, reductions"))
    }


# Where a click leads


@pytest.mark.parametrize("width", WIDTHS)
def test_show_of_a_piece_of_advice_scrolls_to_the_op(opened, width):
    opened.resize(width, 900)
    opened.run_async(FRAMES)
    wanted = opened.run("""
        const button = document.querySelector('#advice button');
        button.scrollIntoView();
        button.click();
        return button.textContent""")
    opened.run_async(FRAMES)
    opened.run_async(FRAMES)
    assert wanted == "show linear"
    assert opened.run("return document.querySelector('#op h2').textContent") == "Op: linear"
    top, high = opened.run("return [document.querySelector('#op h2').getBoundingClientRect().top, innerHeight]")
    assert 0 <= top < high / 2
    under = opened.run("return document.getElementById('filters').getBoundingClientRect().bottom")
    assert top > under  # and is not below the bar of filters
    assert opened.run("return document.activeElement === document.querySelector('#op h2')")
    opened.run("document.querySelector('#advice button').click()")  # a second time: it stays chosen
    opened.run_async(FRAMES)
    assert opened.run("return pyprof.state.value('op')") == "linear"


# Widths


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window_and_times_are_in_sight(opened, width):
    opened.resize(width, 900)
    opened.run_async(FRAMES)
    opened.run("pyprof.op.show('linear')")
    opened.run_async(FRAMES)
    assert opened.run("return document.documentElement.scrollWidth") <= width
    for box, heading in (("kernels", "time ▾"), ("lines", "own time ▾"), ("op-sets", "time")):
        right, edge = opened.run(
            """
            const box = document.getElementById(arguments[0]);
            const cell = [...box.querySelectorAll('.head .cell, th')].find((each) => each.textContent === arguments[1]);
            return [cell.getBoundingClientRect().right, box.getBoundingClientRect().right]""",
            box,
            heading,
        )
        assert right <= edge, box
    right, edge = opened.run("""
        const rows = [...document.querySelectorAll('#table-phases td')]
            .map((cell) => cell.getBoundingClientRect().right);
        const box = document.getElementById('table-phases').parentElement;
        return [Math.max(...rows), box.getBoundingClientRect().right]""")
    assert right <= edge + 1


@pytest.mark.parametrize("width", WIDTHS)
def test_no_label_of_the_roofline_lies_on_another_or_on_a_dot(opened, width):
    opened.resize(width, 900)
    opened.run_async(FRAMES)
    for group in ("op", "name", "layer"):
        opened.run("const g = document.getElementById('roofline-group'); g.value = arguments[0]; g.onchange()", group)
        found = opened.run("return pyprof.roofline.labels()")
        assert len(found) >= 3
        assert any("TFLOP/s" in each["text"] for each in found) and any("memory" in each["text"] for each in found)
        for i, a in enumerate(found):
            for b in found[:i]:
                apart = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
                assert apart or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"], (a, b)


@pytest.mark.parametrize("width", WIDTHS)
def test_texts_stay_within_their_boxes(opened, width):
    opened.resize(width, 900)
    opened.run_async(FRAMES)
    outside = opened.run("""
        const wide = [];
        for (const each of pyprof.layers.instance.getZr().storage.getDisplayList(true)) {
            const text = each.getTextContent?.();
            if (each.type !== 'rect' || !text?.style.text) continue;
            if (text.getBoundingRect().width > each.shape.width) wide.push(text.style.text);
        }
        for (const {button} of pyprof.stacks.boxes())
            if (button.scrollWidth > button.clientWidth + 1) wide.push(button.textContent);
        return wide""")
    assert outside == []


# Definitions


def test_each_figure_has_a_definition_that_opens_by_keyboard_and_without_a_script(opened):
    figures = opened.run("""
        return [...document.querySelectorAll('.figures dt')]
            .map((dt) => [dt.textContent, dt.querySelector('button')?.getAttribute('popovertarget')])""")
    assert [name for name, _ in figures] == ["attributed", "GPU time", "step time", "GPU busy", "FLOP rate", "MFU"]
    texts = {f"term-{term.key}": term.text for term in TERMS}
    for name, target in figures:
        assert opened.run("return document.getElementById(arguments[0]).textContent", target) == name + texts[target]
        opened.run("document.querySelector(`.figures [popovertarget='${arguments[0]}']`).focus()", target)
        opened.command("Input.dispatchKeyEvent", type="keyDown", key="Enter", text="\r")
        opened.command("Input.dispatchKeyEvent", type="keyUp", key="Enter")
        assert opened.run("return document.getElementById(arguments[0]).matches(':popover-open')", target)
        opened.run("document.getElementById(arguments[0]).hidePopover()", target)
    listed = opened.run("""
        return [...document.querySelectorAll('.meanings:not(:has(#kernels-meanings)) dt')]
            .map((dt) => dt.textContent)""")
    assert listed == [term.name for term in TERMS]


def test_terms_in_sentences_have_definitions_once(opened):
    marked = opened.run("""
        return [...document.querySelectorAll('.sentences .term')]
            .map((each) => each.getAttribute('popovertarget'))""")
    assert len(marked) == len(set(marked)) > 8
    assert {"term-mfu", "term-latency-bound", "term-achieved-occupancy", "term--of-limit"} <= set(marked)


def test_columns_say_what_they_mean(opened):
    headings = opened.run("""
        return [...document.querySelectorAll('#kernels .head .cell')]
            .map((cell) => [cell.textContent, cell.title])""")
    limit = next(term.text for term in TERMS if term.name == "% of limit")
    assert dict(headings)["% of limit"] == f"sort by % of limit: {limit}"
    assert all(": " in title for _, title in headings)


# Python stacks and lines of code


def test_the_boxes_of_the_stacks_are_the_sums_of_the_table(opened, table):
    """Every prefix of a stack, with the durations of the rows below it; and the op under the innermost line."""
    ns, ops = table.ints("kDuration"), [json.loads(text)[0] for text in table.coded("op").texts()]
    sums: dict[str, int] = defaultdict(int)
    for stack, time, op in zip(traces(table), ns.tolist(), ops, strict=True):
        for i in range(len(stack)):
            sums["\n".join(stack[: i + 1])] += time
        sums["\n".join(stack) + "\nop " + op] += time
    found = opened.run("""
        return pyprof.stacks.boxes()
            .map(({at, share}) => [at.path + (at.op ? '\\nop ' + at.op : ''), at.ns, share])""")
    assert len(found) > 20
    names = {f"{path}": time for path, time, _ in found}
    full = {path: time for path, time in sums.items() if "\nop " not in path}
    assert {path: time for path, time in names.items() if "\nop " not in path} == {
        path: time for path, time in full.items() if path in names
    }
    total = int(ns.sum())
    assert all(share == pytest.approx(time / total) for _, time, share in found)
    missing_boxes = {path for path, time in full.items() if path not in names}
    assert all(full[path] / total < 3 / 1000 for path in missing_boxes)  # narrower than three pixels


def test_a_stack_is_enlarged_by_click_and_by_keys_and_filters(opened, table):
    ns = table.ints("kDuration")
    first = traces(table)[0]
    opened.run("pyprof.stacks.boxes()[0].button.focus()")
    for _ in range(2):
        opened.command("Input.dispatchKeyEvent", type="keyDown", key="ArrowDown")
    assert opened.run("return document.activeElement.getAttribute('aria-label')").startswith(f"line {first[2]}: ")
    opened.command("Input.dispatchKeyEvent", type="keyDown", key="Enter", text="\r")
    opened.command("Input.dispatchKeyEvent", type="keyUp", key="Enter")
    opened.run_async(FRAMES)
    opened.run_async(FRAMES)
    assert opened.run("return pyprof.state.value('stack')") == "\n".join(first[:3])
    within = np.array([stack[:3] == first[:3] for stack in traces(table)])
    chosen = opened.run("""
        const mask = pyprof.state.mask();
        return pyprof.model.rows.dur.reduce((sum, ns, row) => sum + (mask[row] ? ns : 0), 0)""")
    assert chosen == int(ns[within].sum())
    crumbs = opened.run("return [...document.querySelectorAll('#stacks-path button')].map((b) => b.textContent)")
    assert crumbs == ["all", *first[:3]]
    assert opened.run("return document.activeElement.className") == "frame"  # the focus stays in the chart
    opened.command("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    opened.run_async(FRAMES)
    assert opened.run("return pyprof.state.value('stack')") == "\n".join(first[:2])
    opened.run("document.querySelector('#stacks-path button').click()")
    opened.run_async(FRAMES)
    assert opened.run("return pyprof.state.value('stack') ?? null") is None


def test_search_in_the_stacks_counts_nested_finds_once(opened, table):
    scroll_to(opened, "stacks")
    opened.run("const s = document.getElementById('stacks-search'); s.value = 'GPT2.py'; s.oninput()")
    ns = table.ints("kDuration")
    below = int(ns[[any("gpt2.py" in line for line in stack) for stack in traces(table)]].sum())
    words = opened.run("return document.getElementById('stacks-found').textContent")
    paths = {"\n".join(s[: i + 1]) for s in traces(table) for i in range(len(s)) if "gpt2.py" in s[i]}
    assert words.startswith(f"{len(paths)} found, {below / 1e6:.4g} ms (")
    assert opened.run("return document.querySelectorAll('#stacks .found').length") > 3
    assert opened.run(
        "return [...document.querySelectorAll('#stacks .found')].every((b) => b.title.includes('gpt2.py'))"
    )


def test_lines_of_code_have_own_time_time_with_callees_and_idle_time(opened, table):
    ns, start = table.ints("kDuration"), table.ints("start")
    own, below, count, idle = (defaultdict(int) for _ in range(4))
    end, stacks = None, traces(table)
    for row in np.argsort(start, kind="stable").tolist():
        stack, time = stacks[row], int(ns[row])
        own[stack[-1]] += time
        count[stack[-1]] += 1
        for line in set(stack):
            below[line] += time
        if end is not None and start[row] > end:
            idle[stack[-1]] += int(start[row]) - end
        end = max(end or 0, int(start[row]) + time)
    scroll_to(opened, "lines")
    found = opened.run("return pyprof.lines.found().map((at) => [at.line, at.ns, at.all, at.count, at.idle])")
    assert {line: (a, b, c, d) for line, a, b, c, d in found} == {
        line: (own[line], below[line], count[line], idle[line]) for line in below
    }
    times = [a for _, a, *_ in found]
    assert times == sorted(times, reverse=True)
    opened.run("document.querySelector('#lines tbody tr').click()")
    opened.run_async(FRAMES)
    assert opened.run("return pyprof.state.mask().reduce((a, b) => a + b)") == count[found[0][0]]
    assert opened.run("return document.querySelector('#lines tr.chosen td').title") == found[0][0]
    opened.run("document.querySelectorAll('#lines th button')[3].click()")  # with callees
    times = opened.run("return pyprof.lines.found().map((at) => at.all)")
    assert times == sorted(times, reverse=True)
    assert opened.run("return document.querySelector('#lines th[aria-sort]').textContent") == "with callees ▾"


def test_a_capture_without_stacks_says_how_to_record_them(chromium, tmp_path):
    (tmp_path / "page.html").write_text(page_of(small()), encoding="utf-8")
    chromium.open(tmp_path / "page.html")
    assert chromium.run_async(READY)
    assert "records no Python stacks" in chromium.run("return document.getElementById('stacks-hint').textContent")
    hidden = "return ['stacks', 'stacks-tools', 'lines-section'].every((id) => document.getElementById(id).hidden)"
    assert chromium.run(hidden)
    assert chromium.log() == []


def test_rows_without_a_stack_are_a_box_and_a_line_of_their_own(chromium, tmp_path):
    trace = Coded.of(['["a.py:1", "b.py:2"]', "", '["a.py:1", "a.py:1"]', '["a.py:1"]', ""])
    (tmp_path / "page.html").write_text(page_of(small(trace=trace)), encoding="utf-8")
    chromium.open(tmp_path / "page.html")
    assert chromium.run_async(READY)
    # durations 10, 10, 20, 10, 14: a.py:1 has 40, of which b.py:2 has 10 and a recursive call of a.py:1 20
    found = dict(
        chromium.run("""
        return pyprof.stacks.boxes().filter(({at}) => !at.op)
            .map(({at}) => [at.path, at.ns])""")
    )
    assert found == {"a.py:1": 40, "a.py:1\nb.py:2": 10, "a.py:1\na.py:1": 20, "\n": 24}
    lines = chromium.run("return pyprof.lines.found().map((at) => [at.line, at.ns, at.all])")
    assert lines == [["a.py:1", 30, 40], ["", 24, 24], ["b.py:2", 10, 10]]
    chromium.run("pyprof.stacks.boxes().find(({at}) => at.path === '\\n').button.click()")
    chromium.run_async(FRAMES)
    assert chromium.run("return pyprof.state.mask().join('')") == "01001"
    assert chromium.log() == []


def test_hostile_lines_are_text_and_a_deep_wide_tree_is_bounded(chromium, tmp_path):
    stacks = [json.dumps([HOSTILE, *(f"f{i % 7}.py:{j}" for j in range(60)), f"leaf{i}.py:1"]) for i in range(3000)]
    rows = tuple((f"k{i}", '["relu"]', "forward", "", 10 * i, 9, 0, 7) for i in range(3000))
    (tmp_path / "page.html").write_text(page_of(small(rows, trace=Coded.of(stacks))), encoding="utf-8")
    chromium.open(tmp_path / "page.html")
    assert chromium.run_async(READY)
    chromium.run("pyprof.stacks.now(); pyprof.lines.now()")
    shown = chromium.run("""
        return [document.querySelectorAll('#stacks .frame').length,
            document.querySelectorAll('#lines tr').length]""")
    assert shown[0] <= 1500 and shown[1] == 302  # a heading, 300 lines, and how many more
    assert chromium.run("return pyprof.stacks.boxes()[0].at.name") == HOSTILE
    assert chromium.run("return [window.pwned ?? null, document.querySelectorAll('img').length]") == [None, 0]
    assert chromium.log() == []


def test_the_page_reads_without_a_script(gpt2):
    page = re.sub(r"<script.*?</script>", "", gpt2.read_text(encoding="utf-8"), flags=re.DOTALL)
    for term in TERMS:
        assert page.count(f'id="term-{term.key}"') == 1
    assert "popovertarget=" in page and "Where the time goes" in page


def test_a_line_of_code_is_named_with_its_function(chromium, tmp_path):
    """`net.py:7` is in ``forward`` as the trace says; for `train.py:1` it says nothing."""
    table = small()
    stack, rows = Coded.of(['["train.py:1", "net.py:7"]'] * len(table)), len(table)
    table = table.with_column("trace", stack).with_column("functions", Coded.of(['["", "Net.forward"]'] * rows))
    (tmp_path / "page.html").write_text(page_of(table), encoding="utf-8")
    chromium.open(tmp_path / "page.html")
    assert chromium.run_async(READY)
    scroll_to(chromium, "lines")
    cells = "return [...document.querySelectorAll('#lines tbody td:first-child')].map((each) => each.textContent)"
    assert chromium.run(cells) == ["net.py:7 Net.forward", "train.py:1"]
    assert "net.py:7 Net.forward" in chromium.run("return pyprof.stacks.boxes().map(({at}) => at.name)")
    chromium.run("document.querySelector('#lines tbody tr').click()")
    chromium.run_async(FRAMES)
    assert chromium.run("return pyprof.state.value('line')") == "net.py:7"


def test_stacks_and_lines_are_built_when_they_come_near(chromium, tmp_path):
    """Each stands 4,000 pixels further down: nothing is built until the reader scrolls there, or prints."""
    table = small().with_column("trace", Coded.of(['["train.py:1", "net.py:7"]'] * len(small())))
    page, room = page_of(table), '<p style="height: 4000px"></p>'
    for place in ("<h2>Python stacks</h2>", '<section class="card" id="lines-section"'):
        assert page.count(place) == 1
        page = page.replace(place, room + place)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    chromium.open(tmp_path / "page.html")
    assert chromium.run_async(READY)
    chromium.run_async(FRAMES)
    built = "return ['#stacks .frame', '#lines tr'].map((each) => document.querySelectorAll(each).length > 0)"
    assert chromium.run(built) == [False, False]
    scroll_to(chromium, "stacks")
    assert chromium.run(built) == [True, False]
    chromium.run("dispatchEvent(new Event('beforeprint'))")
    assert chromium.run(built) == [True, True]
    assert chromium.log() == []
