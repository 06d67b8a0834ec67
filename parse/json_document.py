"""What parse.py answers with --json: its own keys, and their schema (the header: pyprof/command/envelope.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyprof.command.json_schema import Schema, integer, listing, mapping, maybe, number, record, text

if TYPE_CHECKING:
    from pyprof.parse.contents import Attribution, Held
    from pyprof.parse.summary import Told

__all__ = ["SCHEMAS", "parsed"]


def parsed(told: Sequence[Told], held: Sequence[Held], output: str | None) -> dict[str, Any]:
    """``held``: of each file's rows, as they were written; ``output``: where to, None: nowhere."""
    from pyprof.parse.contents import together

    whole = together(held)
    return {
        "files": [{"name": each.file, **_file(each, rows)} for each, rows in zip(told, held, strict=True)],
        "totals": _held(whole),
        "output": None if output is None else {"name": output, "form": _form(output), "rows": whole.rows},
    }


def _file(told: Told, held: Held) -> dict[str, Any]:
    return {
        "profiler": told.profiler,
        **_held(held),
        "gpus": [{"name": name or None, "count": count} for name, count in held.gpus.items()],
        "pids": held.pids,
        "devices": [span._asdict() for span in held.devices],
        "ranges": told.ranges,
        "warnings": told.warnings,
    }


def _held(held: Held) -> dict[str, Any]:
    found = held.attribution
    return {
        "rows": held.rows,
        "rows_by_kind": held.kinds,
        "time_ns": found.total_ns,
        "attributed_ns": found.attributed_ns,
        "attributed_percent": found.share,
        "estimate": _estimate(found),
        "unattributed": [
            {"reason": reason, "time_ns": ns, "percent": found.percent(ns)} for reason, ns in found.reasons.items()
        ],
        "steps": held.steps,
        "ranks": held.ranks,
    }


def _estimate(found: Attribution) -> dict[str, Any] | None:
    if found.estimate is None:
        return None
    rows, looked_at, low, high = found.estimate
    return {
        "rows": rows,
        "time_ns": looked_at,
        "percent": found.percent(looked_at),
        "low_percent": found.percent(low),
        "high_percent": found.percent(high),
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
