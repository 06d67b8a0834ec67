"""Render the page's model as a single HTML file that needs no other file and no network.

All data is in one JSON script element, escaped so that no text in it can close the element or act as markup. The page's
scripts insert texts with ``textContent`` or draw them on a canvas, never as HTML.
"""

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

from pyprof.prof.colours import style_sheet
from pyprof.prof.page import environment, part, policy, script
from pyprof.prof.report.definitions import TERMS, marked, named

VENDOR = "report/templates/vendor"
LIBRARY = f"{VENDOR}/echarts.min.js"
LICENCES = ("echarts.NOTICE", "zrender.LICENSE", "echarts.LICENSE-d3")  # Apache's own text is at the library's begin
# The page's scripts in the order in which they run; each defines one name in the page's namespace.
SCRIPTS = (
    "format model theme state labels draw legend phases memory roofline layers stacks lines timeline op kernels lists"
    " main"
).split()
ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029\x7f"}


def render(model: Mapping[str, Any], out: BinaryIO) -> None:
    """Write the page."""
    library, ours = script(LIBRARY), "\n".join(script(f"report/templates/{name}.js") for name in SCRIPTS)
    template = environment("report").get_template("report.html")
    # Ours, as are the scripts: nothing of the capture is in them.
    style = style_sheet() + part("report/templates/report.css")
    rules = policy([library, ours])
    licences = "\n\n".join(part(f"{VENDOR}/{name}").strip() for name in LICENCES)
    frame = {"policy": rules, "style": style, "library": library, "script": ours, "data": island(model)}
    page = template.render(model=model, terms=TERMS, licences=licences, marked=marked, named=named, **frame)
    out.write(page.encode("utf-8", "replace"))  # a lone surrogate in a name has no UTF-8 form


def island(model: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element: no <, no >, no &, ASCII only.

    >>> island({"a": "</script>\u2028"})
    '{"a":"\\\\u003c/script\\\\u003e\\\\u2028"}'
    """
    text = json.dumps(model, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(ESCAPED)
