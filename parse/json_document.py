"""The JSON document that parse.py prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pyprof.command.json_schema import Record, doc
from pyprof.parse.attribute.contents import Attribution, DeviceSpan, together
from pyprof.parse.attribute.contents import Contents as Figures

if TYPE_CHECKING:
    from pyprof.parse.attribute.notes import CaptureNotes


class Unattributed(Record):
    reason: Annotated[str, doc("why these rows have no op")]
    time_ns: Annotated[int, doc("their time", "ns")]
    percent: Annotated[float | None, doc("of the time", "%")]


class Estimate(Record):
    rows: Annotated[int, doc("operations that were looked at")]
    time_ns: Annotated[int, doc("their time", "ns")]
    percent: Annotated[float | None, doc("of the time", "%")]
    low_percent: Annotated[float | None, doc("attributed at least, 99.7 times of 100", "%")]
    high_percent: Annotated[float | None, doc("attributed at most, 99.7 times of 100", "%")]


class Contents(Record, kw_only=True):
    rows: Annotated[int, doc("GPU operations (in a capture of the CPU alone: its ops)")]
    rows_by_kind: Annotated[dict[str, Annotated[int, doc("how many")]], doc("by kernel, memcpy, memset, graph, cpu")]
    time_ns: Annotated[int, doc("sum of their durations", "ns")]
    attributed_ns: Annotated[int, doc("time of the rows that have an op; see estimate", "ns")]
    attributed_percent: Annotated[float | None, doc("its share of the time", "%")]
    estimate: Annotated[
        Estimate | None,
        doc(
            "attributed and unattributed time are estimated (--summary of a large file); null: they are exact, as "
            "everything else is"
        ),
    ]
    unattributed: Annotated[list[Unattributed], doc("why the other rows have no op, the longest first")]
    steps: Annotated[list[int], doc("the numbers of the training steps that are marked")]
    ranks: Annotated[list[int], doc("the numbers of the ranks, where the capture has them")]


class Gpu(Record):
    name: Annotated[str | None, doc("its name")]
    count: Annotated[int, doc("how many")]


class NamedContents(Contents):  # its own keys come before the keys of Contents
    name: Annotated[str, doc("as given")]
    profiler: Annotated[str, doc("what recorded it")]


class ParsedFile(NamedContents, kw_only=True):
    gpus: Annotated[list[Gpu], doc("the GPUs; each device of a process counts as one")]
    pids: Annotated[list[int], doc("the numbers of the processes")]
    devices: Annotated[list[DeviceSpan], doc("the devices of each process")]
    ranges: Annotated[
        list[str], doc("names of the commonest of the user's ranges; with an estimate, of those looked at")
    ]
    warnings: Annotated[list[str], doc("what its reader doubts, in sentences")]


class TableWritten(Record):
    name: Annotated[str, doc("of the file")]
    form: Annotated[
        Literal["dict", "csv", "parquet", "container"], doc("of the table; container: the folder net.pyprof")
    ]
    rows: Annotated[int, doc("written")]


class ParsedFiles(Record):
    """The content of the parsed files, and the kernel table that was written."""

    files: Annotated[list[ParsedFile], doc("what was read, the chosen rows of each file")]
    totals: Annotated[Contents, doc("all rows together")]
    output: Annotated[TableWritten | None, doc("what was written; null without -o, when nothing is")]


def parsed(notes: Sequence[CaptureNotes], contents: Sequence[Figures], output: str | None) -> ParsedFiles:
    """The document. ``contents``: the figures of each file's written rows; ``output``: the file written, or None."""
    whole = together(contents)
    return ParsedFiles(
        files=[_file(file, rows) for file, rows in zip(notes, contents, strict=True)],
        totals=Contents(**_figures(whole)),
        output=None if output is None else TableWritten(output, _form(output), whole.rows),
    )


def _file(notes: CaptureNotes, contents: Figures) -> ParsedFile:
    return ParsedFile(
        name=notes.file,
        profiler=notes.profiler,
        **_figures(contents),
        gpus=[Gpu(name or None, count) for name, count in contents.gpus.items()],
        pids=contents.pids,
        devices=contents.devices,
        ranges=notes.ranges,
        warnings=notes.warnings,
    )


def _figures(contents: Figures) -> dict[str, Any]:
    """The fields of ``Contents``."""
    attribution = contents.attribution
    return {
        "rows": contents.rows,
        "rows_by_kind": contents.kinds,
        "time_ns": attribution.total_ns,
        "attributed_ns": attribution.attributed_ns,
        "attributed_percent": attribution.attributed_percent,
        "estimate": _estimate(attribution),
        "unattributed": [Unattributed(why, ns, attribution.percent(ns)) for why, ns in attribution.reasons.items()],
        "steps": contents.steps,
        "ranks": contents.ranks,
    }


def _estimate(attribution: Attribution) -> Estimate | None:
    if attribution.estimate is None:
        return None
    rows, sampled, low, high = attribution.estimate
    return Estimate(rows, sampled, *(attribution.percent(ns) for ns in (sampled, low, high)))


def _form(output: str) -> Literal["dict", "csv", "parquet", "container"]:
    name = output.removesuffix(".gz")
    if name.endswith(".parquet"):
        return "parquet"
    if name.lower().endswith(".pyprof"):
        return "container"
    return "csv" if name.endswith(".csv") else "dict"
