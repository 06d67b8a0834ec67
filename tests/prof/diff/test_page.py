"""The page of pyprof diff: escaped, and used in headless Chromium."""

import hashlib
import io
import re
from pathlib import Path

import pytest

from pyprof.prof.diff.compare import Comparison
from pyprof.prof.diff.gate import check, parse_gate
from pyprof.prof.diff.write_html import write_html
from tests.prof.diff.diff_rows import compared, mm, row
from tests.prof.report.browser import Browser, browser, missing

HOSTILE = "</script><img src=x onerror=window.pwned=1>\u2028<!--<script>'\"&{{7*7}}"


def page(found: Comparison, *conditions: str) -> str:
    out = io.BytesIO()
    write_html(found, [check(parse_gate(condition), found) for condition in conditions], out)
    return out.getvalue().decode()


def noisy(*us: float, extra: float = 1.0):
    return [[mm(each, layer="GPT:up"), row(extra, HOSTILE, name=HOSTILE, layer=f"GPT:{HOSTILE}")] for each in us]


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compared(noisy(99, 100, 101), noisy(101, 102, 103, extra=5.0))


def test_texts_of_a_capture_are_escaped(found):
    text = page(found, f"op:'{HOSTILE.split(chr(39), maxsplit=1)[0]}*' > 3%")
    assert text.startswith("<!doctype html>")
    assert "<img" not in text
    assert "&lt;img src=x onerror=window.pwned=1&gt;" in text
    assert text.count("<script") == 1


def test_the_policy_allows_the_pages_own_script_and_no_connection(found):
    text = page(found)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    import base64

    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src &#39;none&#39;" in policy
    assert digest in policy


def test_the_page_is_small(found):
    assert len(page(found)) < 60_000


@pytest.fixture(scope="module")
def tab(found, tmp_path_factory):
    if why := missing():
        pytest.skip(why)
    folder: Path = tmp_path_factory.mktemp("page")
    (folder / "diff.html").write_text(page(found, "step > 3%"), encoding="utf-8")
    with browser(folder / "profile") as opened:
        opened.open(folder / "diff.html")
        yield opened


SHOWN = (
    "return [...document.querySelectorAll('#entries tbody tr')].filter(r => !r.hidden).map(r => r.cells[0].innerText)"
)


def test_in_a_browser(tab: Browser):
    assert tab.run("return document.documentElement.dataset.ready") == "1"
    assert tab.run("return document.querySelector('h1').textContent").startswith("B is 0.0060 ms per step slower")
    assert tab.run("return window.pwned === undefined")
    # up is +2 us against a noise of 3.8: not shown until asked for
    names = tab.run(SHOWN)
    assert len(names) == 2  # the hostile one and the step
    assert names[0].startswith("</script><img src=x")
    tab.run("document.getElementById('still').click()")
    assert [name.strip() for name in tab.run(SHOWN)][1:] == ["up linear", "step"]
    tab.run("const s = document.getElementById('search'); s.value = 'LINEAR'; s.dispatchEvent(new Event('input'))")
    assert [name.strip() for name in tab.run(SHOWN)] == ["up linear"]
    assert tab.run("return document.getElementById('count').textContent") == "1 rows, +0.002000 ms together"
    assert tab.run("return document.querySelector('#gates li').textContent").startswith("failed: step > 3%")
    tab.run("document.getElementById('theme').click(); document.getElementById('theme').click()")
    assert tab.run("return document.documentElement.dataset.theme") == "dark"
    assert tab.log() == []


def test_on_a_phone(tab: Browser):
    tab.resize(390, 800)
    assert tab.run("return document.documentElement.scrollWidth") <= 390
