"""What pyprof report answers with --json: its own keys, and their schema (the header: pyprof/command/envelope.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyprof.command.json_schema import Schema, integer, listing, record, text

__all__ = ["SCHEMAS", "page_of"]


def page_of(output: str, nbytes: int, model: Mapping[str, Any]) -> dict[str, Any]:
    """``model``: what the page shows (``collect``)."""
    return {
        "output": {"name": output, "bytes": nbytes},
        "title": model["title"],
        "headline": model["summary"]["headline"],
        "figures": model["summary"]["figures"],
        "sentences": model["summary"]["sentences"],
    }


def _report() -> Schema:
    figure = {"name": text("what it is"), "value": text("with its unit"), "of": text("what it is of, or empty")}
    return record(
        {
            "output": record({"name": text("of the file"), "bytes": integer("its size")}, "the page written"),
            "title": text("of the page"),
            "headline": text("what ran where, and how much of it has an op"),
            "figures": listing(record(figure, "a figure"), "the page's first line, as printed (numbers: --summary)"),
            "sentences": listing(text("a sentence"), "its summary, as pyprof prof --summary prints it"),
        },
        "page",
    )


SCHEMAS = {"report": _report}
