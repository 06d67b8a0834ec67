"""What parse.py answers with --json: its own keys, and their schema (the header: pyprof/command/envelope.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyprof.command.json_schema import Schema, integer, listing, mapping, maybe, number, record, text

if TYPE_CHECKING:
    from pyprof.parse.attribute.contents import Attribution, Contents
    from pyprof.parse.attribute.notes import CaptureNotes

__all__ = ["SCHEMAS", "parsed"]


def parsed(notes: Sequence[CaptureNotes], contents: Sequence[Contents], output: str | None) -> dict[str, Any]:
    """``contents``: the figures of each file's rows, as they were written; ``output``: the file written, None: none."""
    from pyprof.parse.attribute.contents import together

    whole = together(contents)
    return {
        "files": [{"name": file.file, **_file(file, rows)} for file, rows in zip(notes, contents, strict=True)],
        "totals": _figures(whole),
        "output": None if output is None else {"name": output, "form": _form(output), "rows": whole.rows},
    }


def _file(notes: CaptureNotes, contents: Contents) -> dict[str, Any]:
    return {
        "profiler": notes.profiler,
        **_figures(contents),
        "gpus": [{"name": name or None, "count": count} for name, count in contents.gpus.items()],
        "pids": contents.pids,
        "devices": [span._asdict() for span in contents.devices],
        "ranges": notes.ranges,
        "warnings": notes.warnings,
    }


def _figures(contents: Contents) -> dict[str, Any]:
    attribution = contents.attribution
    return {
        "rows": contents.rows,
        "rows_by_kind": contents.kinds,
        "time_ns": attribution.total_ns,
        "attributed_ns": attribution.attributed_ns,
        "attributed_percent": attribution.attributed_percent,
        "estimate": _estimate(attribution),
        "unattributed": [
            {"reason": reason, "time_ns": ns, "percent": attribution.percent(ns)}
            for reason, ns in attribution.reasons.items()
        ],
        "steps": contents.steps,
        "ranks": contents.ranks,
    }


def _estimate(attribution: Attribution) -> dict[str, Any] | None:
    if attribution.estimate is None:
        return None
    rows, sampled, low, high = attribution.estimate
    return {
        "rows": rows,
        "time_ns": sampled,
        "percent": attribution.percent(sampled),
        "low_percent": attribution.percent(low),
        "high_percent": attribution.percent(high),
    }


def _form(output: str) -> str:
    name = output.removesuffix(".gz")
    return next((form for form in ("parquet", "csv") if name.endswith(f".{form}")), "dict")


def _parse() -> Schema:
    without = {
        "reason": text("why these rows have no op"),
        "time_ns": integer("their time", "ns"),
        "percent": maybe(number("of the time", "%")),
    }
    estimate = {
        "rows": integer("operations that were looked at"),
        "time_ns": integer("their time", "ns"),
        "percent": maybe(number("of the time", "%")),
        "low_percent": maybe(number("attributed at least, 99.7 times of 100", "%")),
        "high_percent": maybe(number("attributed at most, 99.7 times of 100", "%")),
    }
    held = {
        "rows": integer("GPU operations (in a capture of the CPU alone: its ops)"),
        "rows_by_kind": mapping(integer("how many"), "by kernel, memcpy, memset, graph, cpu"),
        "time_ns": integer("sum of their durations", "ns"),
        "attributed_ns": integer("time of the rows that have an op; see estimate", "ns"),
        "attributed_percent": maybe(number("its share of the time", "%")),
        "estimate": maybe(
            record(
                estimate,
                "attributed and unattributed time are estimated (a large file's --summary); "
                "null: they are exact, as all else is",
            )
        ),
        "unattributed": listing(record(without, "a reason"), "why the rest has none, the longest first"),
        "steps": listing(integer("its number"), "training steps that are marked"),
        "ranks": listing(integer("its number"), "ranks that are told"),
    }
    gpu = {"name": maybe(text("its name")), "count": integer("how many")}
    device = {
        "pid": maybe(integer("process")),
        "device": maybe(integer("GPU, as the process numbers them")),
        "span_ns": integer("from its first start to its last end", "ns"),
        "busy_ns": integer("time with at least one operation, of the span", "ns"),
    }
    file = {
        "name": text("as given"),
        "profiler": text("what recorded it"),
        **held,
        "gpus": listing(record(gpu, "a model"), "the GPUs, a process's device being one"),
        "pids": listing(integer("its number"), "processes"),
        "devices": listing(record(device, "a device"), "each process's"),
        "ranges": listing(text("its name"), "the commonest of the user's ranges; with an estimate, of those looked at"),
        "warnings": listing(text("a sentence"), "what its reader doubts"),
    }
    out = {
        "name": text("of the file"),
        "form": text("of the table", ("dict", "csv", "parquet")),
        "rows": integer("written"),
    }
    return record(
        {
            "files": listing(record(file, "a file"), "what was read, each file's chosen rows"),
            "totals": record(held, "all rows together"),
            "output": maybe(record(out, "what was written; null: nothing, without -o")),
        },
        "kernel table",
    )


SCHEMAS = {"parse": _parse}
