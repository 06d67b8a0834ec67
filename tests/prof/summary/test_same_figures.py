"""Terminal, page and notebook agree on every golden capture, and the page's charts on the same numbers.

Both outputs are read as a user reads them: the text that ``pyprof prof --summary`` prints, and the HTML that ``pyprof
report`` writes. The figures are computed once more from the rows in the page's data island, which its charts sum.
"""

import json
import re
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pytest

from pyprof.prof import cli
from pyprof.prof.notebook import load
from pyprof.prof.report import cli as report_cli
from tests.paths import ROOT

GOLDEN = ROOT / "tests" / "golden"
CAPTURES = sorted(
    [
        *GOLDEN.glob("*.sqlite.gz"),
        *GOLDEN.glob("*.json.gz"),
        *GOLDEN.glob("advice/*.json.gz"),
        GOLDEN / "memory" / "h200_gpt2.json.gz",
    ]
)
PREFIX = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
DIGITS = 6e-4  # printed numbers have four digits
LAST_DIGIT = 6e-5  # of short times in ms


@dataclass
class Shown:
    """What a user reads."""

    headline: str = ""
    sentences: list[str] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)  # by title
    figures: dict[str, str] = field(default_factory=dict)  # the page's alone
    data: dict[str, Any] = field(default_factory=dict)  # the page's alone


class PageReader(HTMLParser):
    """The texts of the page's first sections and its data island."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = Shown()
        self.path: list[tuple[str, str]] = []  # open elements: tag, id or class
        self.name = self.title = self.island = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("meta", "link", "input"):
            return
        given = dict(attrs)
        self.path.append((tag, given.get("id") or given.get("class") or ""))
        if tag == "li" and "headline" in {mark for _, mark in self.path}:
            self.shown.sentences.append("")
        if tag == "tr" and self.title:
            self.shown.tables.setdefault(self.title, []).append([])

    def handle_endtag(self, tag: str) -> None:
        while self.path and self.path.pop()[0] != tag:
            pass
        if tag == "table":
            self.title = ""

    def handle_data(self, data: str) -> None:
        marks = {mark for _, mark in self.path}
        tag = next(
            (tag for tag, _ in reversed(self.path) if tag != "button"), ""
        )  # a term's button shows its definition
        if self.path and self.path[-1] == ("script", "data"):
            self.island += data
        elif "headline" in marks:
            self._headline(tag, marks, data)
        elif "memory-section" in marks:
            pass  # its tables are those of pyprof memory
        elif "sums" in marks or any(mark.startswith("table-") for mark in marks):
            if tag == "caption":
                self.title = data
            elif tag in ("th", "td") and self.title:
                self.shown.tables[self.title][-1].append(data)

    def _headline(self, tag: str, marks: set[str], data: str) -> None:
        if tag == "dt":
            self.name = data
        elif tag == "dd" and "dim" not in marks:
            self.shown.figures[self.name] = data
        elif tag == "b":
            self.shown.headline += data
        elif tag == "li":
            self.shown.sentences[-1] += data


def read_page(page: str) -> Shown:
    reader = PageReader()
    reader.feed(page)
    reader.shown.data = json.loads(reader.island)
    return reader.shown


def read_terminal(text: str) -> Shown:
    """Sentences are bullets, before the changes and after them; a table is a title and lines of cells.

    Two spaces or more are between cells, and an empty line is after each part.
    """
    head, *blocks = text.split("\n\n")
    first, *bullets = re.split(r"\n• ", head)
    shown = Shown(unwrapped(first), [unwrapped(bullet) for bullet in bullets])
    for block in blocks:
        if block.startswith("• "):
            shown.sentences += [unwrapped(bullet) for bullet in re.split(r"(?:^|\n)• ", block)[1:]]
        if not block.startswith("By ") and not block.startswith("Matrix math by"):
            continue
        lines = block.splitlines()
        rows = [i for i, line in enumerate(lines) if re.search(r"\S {2,}\S", line)]
        title = unwrapped("\n".join(lines[: rows[0]]))
        cells = [re.split(r" {2,}", re.sub(r" *█+$", "", line).strip()) for line in lines[rows[0] :]]
        shown.tables[title] = cells
    return shown


def unwrapped(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())


def name_of(file: Path) -> str:
    return file.name.removesuffix(".gz")


@pytest.fixture(scope="module", params=CAPTURES, ids=name_of)
def both(request, tmp_path_factory) -> tuple[Shown, Shown]:
    """The terminal's summary and the page of a capture, which the tests of both then need not read again."""
    folder, file = tmp_path_factory.mktemp("same"), str(request.param)
    assert cli.main(["--summary", "-w", "200", "-o", str(folder / "summary.txt"), file]) == 0
    assert report_cli.main([file, "-q", "-o", str(folder / "page.html")]) == 0
    terminal = read_terminal((folder / "summary.txt").read_text(encoding="utf-8"))
    return terminal, read_page((folder / "page.html").read_text(encoding="utf-8"))


def test_headline_sentences_and_tables_are_the_same(both):
    terminal, page = both
    assert terminal.headline == page.headline
    assert terminal.sentences == page.sentences
    assert list(terminal.tables) == list(page.tables)
    for title, rows in terminal.tables.items():
        shown = [[cell for cell in row if cell] for row in page.tables[title]]
        assert [row for row in shown if row] == rows, title


@pytest.mark.parametrize("both", [file for file in CAPTURES if file.parent == GOLDEN], indirect=True, ids=name_of)
def test_json_and_notebook_have_the_same_sentences(both, request, tmp_path):
    _, page = both
    file = request.node.callspec.params["both"]
    assert cli.main(["--summary", "--json", "-q", "-o", str(tmp_path / "summary.json"), str(file)]) == 0
    document = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert (document["headline"], document["sentences"]) == (page.headline, page.sentences)
    notebook = load(file).summary()._repr_html_()
    assert all(f"<li>{escape(sentence)}</li>" in notebook for sentence in page.sentences)
    for rows in page.tables.values():
        assert all(f">{escape(cell)}</td>" in notebook for row in rows[1:] for cell in row)


def test_the_pages_figures_are_those_of_the_sentences(both):
    terminal, page = both
    text = "\n".join([terminal.headline, *terminal.sentences])
    attributed, time, worker = found(r"(\S+) of (\S+ ms) of (.PU) time is attributed", text)
    assert (page.figures["attributed"], page.figures[f"{worker} time"]) == (attributed, time)
    unit, wall = found(r"(?:A|The) (step|capture) takes (\S+ ms)", text)
    assert page.figures["step time" if unit == "step" else "capture"] == wall
    if worker == "GPU":
        works, whole, share = found(WORKS, text)
        assert whole == wall
        if communicates(text):
            busy = 100 * (number(works) + communicates(text)) / number(wall)
            assert number(page.figures["GPU busy"]) == pytest.approx(busy, abs=0.12)  # all are printed rounded
        else:
            assert page.figures["GPU busy"] == share
    if "FLOPs are known" in text:
        rate = found(r"FLOPs are known for \S+ of GPU time: (?:at least )?\S+ \S+, ((?:at least )?\S+ \S+)", text)[0]
        assert page.figures["FLOP rate"] == rate.replace("at least", "≥")
    if "(MFU)" in text:
        assert page.figures["MFU"] == found(r"\(MFU\) is ((?:at least )?\S+) of", text)[0].replace("at least", "≥")


def found(pattern: str, text: str) -> tuple[str, ...]:
    match = re.search(pattern, text)
    assert match, (pattern, text)
    return match.groups()


def number(text: str) -> float:
    """Of "3.317 TFLOP", "1,204 ms" or "30.1%"."""
    value, prefix = found(r"([\d,.]+)(?: ([kMGTP]?)(?:FLOP|B)\b)?", text)
    return float(value.replace(",", "")) * PREFIX[prefix or ""]


def agrees(part: float, whole: float, text: str) -> bool:
    """Whether a share is the one printed."""
    value = 100 * part / whole
    if text in ("<0.1%", ">99.9%"):
        return 0 < value < 0.05 if text == "<0.1%" else 99.95 <= value < 100
    return abs(value - number(text)) < 0.051


# Once more, from the rows that the page's charts sum


@dataclass
class Rows:
    """The operations in the page's data island."""

    data: dict[str, Any]

    def __post_init__(self) -> None:
        self.call, self.dur, self.start = (self.column(name) for name in ("call", "dur", "start"))
        self.start = np.cumsum(self.start)
        lanes = self.data["lanes"]
        self.owner = np.array([lanes[int(lane)]["owner"] for lane in self.column("lane")])

    def column(self, name: str) -> np.ndarray:
        column = self.data["rows"][name]
        if isinstance(column, dict):
            column = [column["all"]] * column["count"]
        return np.array([np.nan if value is None else value for value in column])

    def text(self, key: str) -> np.ndarray:
        texts = self.data["calls"]["texts"][key]
        return np.array([*texts["values"], ""], object)[np.array(texts["codes"], int)][self.call.astype(int)]

    def amount(self, key: str) -> np.ndarray:
        values = [np.nan if value is None else float(value) for value in self.data["calls"]["numbers"][key]]
        return np.array(values)[self.call.astype(int)]


@pytest.fixture
def summed(both) -> tuple[str, Shown, Rows]:
    """The terminal's text, the page and its rows, where the summary leaves no rows out."""
    terminal, page = both
    if not page.data["summary"]["all_rows"]:
        pytest.skip("warm-up or loading is left out of the summary; the charts show all rows")
    return "\n".join([terminal.headline, *terminal.sentences]), terminal, Rows(page.data)


def test_the_rows_have_the_time_the_share_and_the_idle_time_of_the_summary(summed):
    text, _, rows = summed
    attributed, time = found(r"(\S+) of (\S+ ms) of .PU time is attributed", text)
    assert rows.dur.sum() / 1e6 == pytest.approx(number(time), rel=DIGITS, abs=LAST_DIGIT)
    assert agrees(rows.dur[rows.text("op") != ""].sum(), rows.dur.sum(), attributed)
    if " limits the " not in text:
        return  # CPU ops
    busy: dict[int, float] = {}
    slowest: dict[Any, float] = {}  # by step, its time on the slowest device
    for window in whole_steps(text, rows.data):
        mine = rows.owner == window["owner"]
        begin, end = window["start"], window["start"] + window["span"]
        start, until = (np.clip(times[mine], begin, end) for times in (rows.start, rows.start + rows.dur))
        reach = np.concatenate([[begin], np.maximum.accumulate(until)])
        idle = np.maximum(start - reach[:-1], 0).sum() + end - reach[-1]  # rows come in order of their start
        slowest[window["step"]] = max(slowest.get(window["step"], 0), end - begin)
        busy[window["owner"]] = busy.get(window["owner"], 0) + end - begin - idle
    works, wall, share = found(WORKS, text)
    captured = number(found(r"takes (?:.* and )?(\S+ ms)(?: as captured| from)", text)[0])
    # The profiler's cost, and what some steps take longer than the median, are the host's, as far as that goes.
    longer = max(captured / (mean(slowest.values()) / 1e6), 1.0)
    gpu = min(mean(busy.values()) / len(slowest) / 1e6 * longer, number(wall))
    shown = number(works) + communicates(text)
    assert shown == pytest.approx(gpu, rel=2 * DIGITS, abs=LAST_DIGIT)  # the step's time is a printed number, too
    assert 100 * number(works) / number(wall) == pytest.approx(number(share), abs=0.12)  # both are printed rounded
    named = sum(float(ms.replace(",", "")) for ms in idle_of(text))
    unnamed = number(wall) - shown - named  # four causes at most, each of less than a hundredth
    assert -0.001 * number(wall) < unnamed < 0.041 * number(wall)


WORKS = r"the GPU works for (\S+ ms) of (\S+ ms) \((\S+?)(?:, mostly copies [^)]*)?\)"


def communicates(text: str) -> float:
    """The ms in which a step only communicates, which the verdict names beside the GPU's work."""
    found = re.search(r" and only communicates for ([\d.,]+) ms", text)
    return number(found[1]) if found else 0.0


def idle_of(text: str) -> list[str]:
    """The ms of each cause of idle time in the verdict."""
    idle = re.search(r" limits the \w+: .*?; it is idle for (.*?)\.(?: |\n|$)", text)
    return re.findall(r"(?:^|, | and )([\d.,]+) ms", idle[1]) if idle else []


def whole_steps(text: str, data: dict[str, Any]) -> list[dict[str, Any]]:
    """The bars whose length is that of an iteration: of unmarked steps, the last one's end is not known."""
    numbers = sorted({step["step"] for step in data["steps"]}, key=lambda number: number or 0)
    last = numbers[1:][-1:] if "No mark says when " in text else []
    return [step for step in data["steps"] if step["step"] not in last]


def test_the_rows_have_the_kinds_of_work_of_the_summary(summed):
    _, terminal, rows = summed
    (table,) = [table for title, table in terminal.tables.items() if title.startswith("By kind of work")]
    if any(name.endswith(" more") for name, *_ in table):
        pytest.skip("the table is cut")
    work = rows.text("work")
    assert {name for name, *_ in table[1:]} == set(work)
    for name, count, time, share in table[1:]:
        assert (work == name).sum() == number(count)
        assert rows.dur[work == name].sum() / 1e6 == pytest.approx(number(time), rel=DIGITS, abs=LAST_DIGIT), name
        assert agrees(rows.dur[work == name].sum(), rows.dur.sum(), share), name


def test_the_rows_have_the_flops_the_bytes_and_the_tensor_cores_of_the_summary(summed):
    text, _, rows = summed
    for key, what in (("flops", "FLOPs"), ("bytes", "Bytes")):
        values = rows.amount(key)
        if f"{what} are known" not in text:
            assert not np.nansum(values)
            continue
        share, amount = found(rf"{what} are known for (\S+) of GPU time: (?:at least )?(\S+ \S+),", text)
        assert np.nansum(values) == pytest.approx(number(amount), rel=DIGITS)
        assert agrees(rows.dur[~np.isnan(values)].sum(), rows.dur.sum(), share)
    if "Matrix math (" in text:
        time, share = found(r"\) takes (\S+ ms) \(\S+ of GPU time\), (\S+) of it on tensor cores", text)
        on_tensor_cores = (rows.text("tc") == "1") & (rows.text("role") != "aux")
        expected = 0.0 if share == "none" else number(share) / 100
        assert rows.dur[on_tensor_cores].sum() / 1e6 == pytest.approx(
            expected * number(time), rel=DIGITS, abs=LAST_DIGIT
        )


def test_the_bars_have_the_steps_and_the_phases_of_the_summary(summed):
    text, terminal, rows = summed
    steps = rows.data["steps"]
    spans: dict[Any, float] = {}
    for step in whole_steps(text, rows.data):
        spans[step["step"]] = max(spans.get(step["step"], 0), step["span"])
    (time,) = found(r"takes (?:.* and )?(\S+ ms)(?: as captured| from)", text)
    usual = median(spans.values())
    usual = mean(spans.values()) if mean(spans.values()) > 1.1 * usual else usual
    assert usual / 1e6 == pytest.approx(number(time), rel=DIGITS, abs=LAST_DIGIT)
    if " as captured (median of " in text:
        assert len(spans) == int(found(r" as captured \(median of (\d+),", text)[0])
    phases = [table for title, table in terminal.tables.items() if title.startswith("By phase")]
    if not phases or (np.isnan(rows.column("step")).any() and len(spans) > 1):
        return  # no phases; or rows outside of all steps, which have no bar
    for name, _, busy, *_ in phases[0][1:-1]:
        bars = sum(step["phases"].get(name, 0) for step in steps)
        assert bars / 1e6 == pytest.approx(number(busy), rel=DIGITS, abs=LAST_DIGIT), name
