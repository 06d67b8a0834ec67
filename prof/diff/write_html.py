"""The difference as one web page without external files, in the report's style. Every text of a capture is escaped."""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from pyprof._version import __version__
from pyprof.prof.colours import style_sheet
from pyprof.prof.diff import sentences as say
from pyprof.prof.diff.compare import Comparison, Entry
from pyprof.prof.diff.gate import Verdict
from pyprof.prof.diff.noise import Delta
from pyprof.prof.diff.table_rows import Row, every_entry, table_rows
from pyprof.prof.limits.hardware_words import hardware_words
from pyprof.prof.page import environment, part, policy, script

SWAPS = 60  # changes of kernels; the rest is in --json


def write_html(found: Comparison, verdicts: Sequence[Verdict], out: BinaryIO) -> None:
    code = "\n".join(script(name) for name in ("report/templates/theme.js", "diff/templates/diff.js"))
    style = style_sheet() + part("report/templates/report.css") + part("diff/templates/diff.css")
    template = environment("diff").get_template("diff.html")
    page = template.render(model=_model(found, verdicts), policy=policy([code]), style=style, script=code)
    out.write(page.encode("utf-8", "replace"))


def _model(found: Comparison, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    places = say.digits(found)
    unit = 10.0 ** (6 - places)
    entries = every_entry(found, unit)
    sides = (("A", found.a), ("B", found.b))
    plain = _without_folders(found.a.name, found.b.name)
    gate_lines = [line for verdict in verdicts for line in say.verdict_words(verdict)]
    return {
        "version": __version__,
        "tensor_cores": hardware_words("tensor cores", found.gpus),
        "title": f"{Path(found.a.name).name} -> {Path(found.b.name).name}",
        "clocks": say.clock_words(found),
        "headline": say.headline(found),
        "sides": [
            {"letter": letter, "name": plain(side.name), "words": say.side_words(side)} for letter, side in sides
        ],
        "figures": _figures(found, places),
        "sentences": list(map(plain, say.sentences(found))),
        "warnings": list(map(plain, say.warnings(found))),
        "gates": [{"text": line, "fails": line.startswith("failed")} for line in gate_lines],
        "entries": [_entry(row, places, extent, found.gpus) for row, extent in _extents(entries)],
        "still": sum(_still(row) for row in entries),
        "phases": _table(table_rows(found, found.phases, unit, None, False), places),
        "kinds": _table(table_rows(found, found.kinds, unit, None, True), places),
        "layers": _table(table_rows(found, found.layers, unit, None, True), places) if len(found.layers) > 1 else [],
        "swaps": [
            {
                "words": say.swap_words(swap, places, found.gpus),
                **dict(zip(("before", "after"), say.replaced(swap), strict=True)),
            }
            for swap in found.swaps[:SWAPS]
        ],
    }


def _without_folders(*names: str) -> Callable[[str], str]:
    """A function that shortens files' names in a text to what tells them apart: a page is sent to others."""
    common = os.path.commonpath([os.path.dirname(os.path.abspath(name)) for name in names])
    pairs = sorted(((name, os.path.relpath(name, common)) for name in set(names)), key=lambda pair: -len(pair[0]))

    def plain(text: str) -> str:
        for name, short in pairs:
            text = text.replace(name, short)
        return text

    return plain


def _figures(found: Comparison, places: int) -> list[dict[str, str]]:
    worker = "CPU ops" if found.a.on_cpu else "GPU works"
    times = ((say.unit(found), found.step), (worker, found.busy), ("idle", found.idle))
    figures = [_figure(name, value, places) for name, value in times]
    lost = f"{hardware_words('tensor cores', found.gpus)} lost"
    for name, count, way in ((lost, found.tc_lost, "slower"), ("gained", found.tc_gained, "faster")):
        if found.tc_lost or found.tc_gained:
            figures.append({"name": name, "value": str(count), "of": "matrix products", "way": way if count else ""})
    return figures


def _figure(name: str, value: Delta, places: int) -> dict[str, str]:
    band = value.band
    noise = "noise unknown" if math.isnan(band) else f"noise ±{say.shown_ms(band, places)}"
    return {
        "name": name,
        "value": f"{say.signed_ms(value, places)} ms",
        "of": f"{say.both_ms(value, places)}, {noise}",
        "way": _way(value),
    }


def _way(value: Delta) -> str:
    return ("slower" if value.change > 0 else "faster") if value.counts else ""


def _extents(rows: Sequence[Row]) -> list[tuple[Row, tuple[float, float]]]:
    """Where each row's bar begins, and its length, in % of the room: changes left and right of a common zero."""
    inner = [row.change for row in rows]
    low, high = min(0, *inner), max(0, *inner)
    scale = 100 / (high - low) if high > low else 0.0
    return [(row, ((min(0, row.change) - low) * scale, abs(row.change) * scale)) for row in rows]


def _table(rows: Sequence[Row], places: int) -> list[dict[str, Any]]:
    return [{**_numbers(row, places, extent), "name": row.name} for row, extent in _extents(rows)]


def _numbers(row: Row, places: int, extent: tuple[float, float]) -> dict[str, Any]:
    return {
        **dict(zip(("before", "after", "change", "percent"), row.cells(places), strict=True)),
        "way": _way(row.ns) if row.change else "",
        "start": f"{extent[0]:.3f}",
        "size": f"{extent[1]:.3f}",
        "total": row.total,
    }


def _still(row: Row) -> bool:
    return row.entry is not None and not row.ns.counts


def _entry(row: Row, places: int, extent: tuple[float, float], gpus: Sequence[str]) -> dict[str, Any]:
    entry = row.entry
    return {
        **_numbers(row, places, extent),
        "name": row.label,
        "phase": entry.phase if entry else "",
        "note": say.tally(entry) if entry else "",
        "noise": row.noise(places),
        "still": _still(row),
        "plain": round(row.ns.change),
        "details": _details(entry, places, gpus) if entry else [],
    }


def _details(entry: Entry, places: int, gpus: Sequence[str]) -> list[str]:
    lines = [
        f"operations per step: {entry.count[0]:,.6g} -> {entry.count[1]:,.6g}",
        f"matched by: {', '.join(entry.how)}",
    ]
    for swap in entry.swaps[:SWAPS]:
        before, after = say.replaced(swap)
        lines += [say.swap_words(swap, places, gpus), f"A: {before}", f"B: {after}"]
    return lines
