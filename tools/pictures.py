"""Make the pictures of the tour, the README and the how-to pages: what a golden capture's pages and commands look like.

    python tools/pictures.py [NAME ...]

Needs Chromium with chromedriver, and Pillow (matplotlib brings it). Each picture is a few sections of a page that a
command writes, or what a command prints on a terminal of 100 columns, in its 256 most frequent colours, so that none
exceeds 150 kB.
"""

import argparse
import base64
import io
import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the tests' browser; no package of the checkout is installed under that name

from PIL import Image  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.terminal_theme import SVG_EXPORT_THEME  # noqa: E402
from rich.text import Text  # noqa: E402

from tests.prof.report.browser import Browser, browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
GOLDEN = "tests/golden"
EAGER = f"{GOLDEN}/h200_diff_eager.json.gz"
PADDED = f"{GOLDEN}/h200_diff_padded.json.gz"
COMPILED = f"{GOLDEN}/h200_diff_compiled.json.gz"
MOST_BYTES = 150_000
COLUMNS = 100
READY = "const wait = () => document.documentElement.dataset.ready ? done(true) : setTimeout(wait, 10); wait();"
FRAMES = "requestAnimationFrame(() => setTimeout(() => done(true), 500));"  # what is drawn on the next frame, is drawn
# Sections are named by the id of something in them; two lists are two columns.
LAY_OUT = """
const body = document.body, columns = arguments[0];
const card = (id) => document.querySelector(id === "header" ? id : `section#${id}, section:has(#${id})`);
const cards = columns.map((ids) => ids.map(card));
const frame = document.createElement("div");
frame.style.cssText = "display: grid; gap: 16px; padding: 16px";
frame.style.gridTemplateColumns = `repeat(${cards.length}, minmax(0, 1fr))`;
for (const column of cards) {
  const box = document.createElement("div");
  for (const one of column) { one.style.marginBottom = "16px"; box.append(one); }
  frame.append(box);
}
for (const one of document.querySelectorAll("section.card")) {
  if (!cards.flat().includes(one)) one.style.display = "none";
}
body.prepend(frame);
dispatchEvent(new Event("resize"));
const {left, top, width, height} = frame.getBoundingClientRect();
return {x: left + scrollX, y: top + scrollY, width, height};
"""


def of_report(
    file: str, *columns: list[str], width: int = 1000, place: str = "", most: int = 0
) -> Callable[[Browser, Path], bytes]:
    """Sections of `pyprof report`, in columns; ``most`` cuts off what is below so many pixels."""

    def make(tab: Browser, folder: Path) -> bytes:
        page = folder / f"{Path(file).name}.html"
        if not page.exists():
            pyprof("report", "-q", file, "-o", str(page))
        tab.resize(width, 900)
        tab.command("Page.navigate", url="about:blank")  # to another place of the same page, nothing would be loaded
        tab.open(page, place)
        tab.run_async(READY)
        tab.run_async(FRAMES)
        return shot(tab, tab.run(LAY_OUT, list(columns)), most)

    return make


def of_diff(before: str, after: str, width: int = 1000, most: int = 900) -> Callable[[Browser, Path], bytes]:
    def make(tab: Browser, folder: Path) -> bytes:
        page = folder / "diff.html"
        pyprof("diff", "-q", before, after, "-o", str(page))
        tab.resize(width, most)
        tab.open(page)
        return shot(tab, {"x": 0, "y": 0, "width": width, "height": most}, most)

    return make


def of_terminal(*words: str, lines: int) -> Callable[[Browser, Path], bytes]:
    """The first lines that a command prints on a terminal, with its colours."""

    def make(tab: Browser, folder: Path) -> bytes:
        printed = on_terminal(["pyprof", *words])
        text = "\n".join([f"\x1b[1m$ pyprof {' '.join(words)}\x1b[0m", *printed.splitlines()[:lines]])
        console = Console(record=True, width=COLUMNS + 4, file=io.StringIO())
        console.print(Text.from_ansi(text))
        page = folder / "terminal.html"
        style = "margin: 0; padding: 14px; display: inline-block; font: 14px/1.4 monospace"
        style += "; background: #17181c; color: #e6e6e6"
        form = f"<body style='margin: 0'><pre style='{style}'>{{code}}</pre></body>"
        page.write_text(
            "<meta charset='utf-8'>"
            + console.export_html(code_format=form, inline_styles=True, theme=SVG_EXPORT_THEME),
            encoding="utf-8",
        )
        tab.resize(1100, 900)
        tab.open(page)
        box = "const {width, height} = document.querySelector('pre').getBoundingClientRect();"
        box += "return {x: 0, y: 0, width, height};"
        return shot(tab, tab.run(box), 0)

    return make


PICTURES: dict[str, Callable[[Browser, Path], bytes]] = {
    "report": of_report(EAGER, ["header", "headline", "phases"], ["roofline", "timeline"], width=1400),
    "tour_summary": of_terminal("prof", EAGER, lines=29),
    "tour_plan": of_report(EAGER, ["plan"], most=760),
    "tour_roofline": of_report(EAGER, ["roofline"]),
    "tour_timeline": of_report(EAGER, ["phases", "timeline"]),
    "report_op": of_report(EAGER, ["op"], place="#op=linear", most=620),
    "diff": of_diff(EAGER, COMPILED),
    "tour_diff": of_terminal("diff", EAGER, PADDED, lines=16),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the documentation's pictures.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(PICTURES)} (default: all)")
    wanted = parser.parse_args(argv).names or list(PICTURES)
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder) / "profile") as tab:
        for name in wanted:
            file = IMAGES / f"{name}.png"
            file.write_bytes(small(PICTURES[name](tab, Path(folder))))
            print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
    return 0


def shot(tab: Browser, box: dict[str, float], most: int) -> bytes:
    """What is in the box, which may be higher than the window."""
    clip = {**box, "height": min(box["height"], most or box["height"]), "scale": 1}
    tab.run_async(FRAMES)
    return base64.b64decode(tab.command("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"])


def small(png: bytes) -> bytes:
    """The same picture in few colours; an error if it is still too large for the repository."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    frequent = sorted(picture.getcolors(picture.width * picture.height) or [], reverse=True)[:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in frequent for part in colour])
    picture = picture.quantize(palette=palette, dither=Image.Dither.NONE)
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=True)
    if out.tell() > MOST_BYTES:
        raise SystemExit(
            f"a picture of {picture.size} has {out.tell():,} bytes; at most {MOST_BYTES:,} are wanted: show less"
        )
    return out.getvalue()


def pyprof(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "pyprof", *words], cwd=ROOT, check=True)


def on_terminal(words: list[str]) -> str:
    """What a command prints where it finds a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [sys.executable, "-m", *words], cwd=ROOT, env=environment, stdout=theirs, stderr=subprocess.DEVNULL
    ) as child:
        os.close(theirs)
        out = bytearray()
        while part := read(ours):
            out += part
    os.close(ours)
    if child.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {child.returncode}")
    return out.decode().replace("\r\n", "\n")


def read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux's way of saying that the other side is closed
        return b""


if __name__ == "__main__":
    sys.exit(main())
