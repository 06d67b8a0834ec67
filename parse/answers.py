"""What parse.py answers with --json: its own keys, and their schema (the header: pyprof/envelope.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyprof.json_schema import Schema, integer, listing, mapping, maybe, number, record, text

if TYPE_CHECKING:
    from pyprof.parse.summary import Told
    from pyprof.table import Table

__all__ = ["SCHEMAS", "parsed"]


def parsed(told: Sequence[Told], tables: Sequence[Table], output: str | None) -> dict[str, Any]:
    """``tables``: each file's, as they were written; ``output``: where to, None: nowhere."""
    from pyprof.table import Table

    whole = Table.concat(list(tables))
    return {
        "files": [{"name": each.file, **_file(each, table)} for each, table in zip(told, tables, strict=True)],
        "totals": _held(whole),
        "output": None if output is None else {"name": output, "form": _form(output), "rows": len(whole)},
    }


def _file(told: Told, table: Table) -> dict[str, Any]:
    from pyprof.parse.summary import gpus, known_numbers, spans

    return {
        "profiler": told.profiler,
        **_held(table),
        "gpus": [{"name": name or None, "count": count} for name, count in gpus(table).items()],
        "pids": known_numbers(table.ints("pid")),
        "devices": [span._asdict() for span in spans(table)],
        "ranges": told.ranges,
        "warnings": told.warnings,
    }


def _held(table: Table) -> dict[str, Any]:
    from pyprof.parse.summary import attribution, kinds, known_numbers

    found = attribution(table)
    return {
        "rows": len(table),
        "rows_by_kind": kinds(table),
        "time_ns": found.total_ns,
        "attributed_ns": found.attributed_ns,
        "attributed_percent": found.share,
        "unattributed": [
            {"reason": reason, "time_ns": ns, "percent": 100 * ns / found.total_ns if found.total_ns else None}
            for reason, ns in found.reasons.items()
        ],
        "steps": known_numbers(table.ints("step")),
        "ranks": known_numbers(table.ints("rank")),
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
    held = {
        "rows": integer("GPU operations (in a capture of the CPU alone: its ops)"),
        "rows_by_kind": mapping(integer("how many"), "by kernel, memcpy, memset, graph, cpu"),
        "time_ns": integer("sum of their durations", "ns"),
        "attributed_ns": integer("time of the rows that have an op", "ns"),
        "attributed_percent": maybe(number("its share of the time", "%")),
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
        "ranges": listing(text("its name"), "the commonest of the user's ranges"),
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
