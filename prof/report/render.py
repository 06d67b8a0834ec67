"""The model -> one file of HTML that needs nothing else and reaches for nothing else.

All data is one JSON island, escaped so that no text in it can end the island or be markup; the page's scripts put texts
in with ``textContent`` or onto a canvas, never as HTML. The content security policy allows the two scripts by their
hashes and no connection of any kind, should something get through all the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pyprof.prof.colours import style_sheet

__all__ = ["TEMPLATES", "environment", "island", "part", "policy", "render", "script"]

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
LIBRARY = "vendor/echarts.min.js"
# In the order in which they run; each fills one name of the page's namespace.
SCRIPTS = (
    "format", "model", "theme", "state", "draw", "phases", "roofline", "layers", "timeline", "op", "kernels", "lists",
    "main",
)  # fmt: skip
ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029\x7f"}


def render(model: Mapping[str, Any], out: BinaryIO) -> None:
    """Write the page."""
    scripts = [script(LIBRARY), "\n".join(script(f"report/{name}.js") for name in SCRIPTS)]
    page = (
        environment()
        .get_template("report.html")
        .render(
            model=model,
            policy=policy(scripts),
            style=style_sheet()
            + part("report/report.css"),  # ours, as are the scripts: nothing of the capture is in them
            library=scripts[0],
            script=scripts[1],
            data=island(model),
        )
    )
    out.write(page.encode("utf-8", "replace"))  # half a surrogate pair, in a name, has no UTF-8


def environment() -> Environment:
    """Templates in which every text is escaped, and no name may be missing."""
    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)


def island(model: Mapping[str, Any]) -> str:
    """JSON that may stand inside a script element: no <, no >, no &, ASCII only.

    >>> island({"a": "</script>\u2028"})
    '{"a":"\\\\u003c/script\\\\u003e\\\\u2028"}'
    """
    text = json.dumps(model, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(ESCAPED)


def policy(scripts: list[str]) -> str:
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def script(name: str) -> str:
    text = part(name)
    assert "</script" not in text.lower() and "<!--" not in text, name  # would end, or confuse, the element around it
    return text


@lru_cache(maxsize=32)
def part(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8").replace("\r\n", "\n")
