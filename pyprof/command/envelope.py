"""The JSON of ``--json``: one object per command, with the same header keys before the command's own.

    {"schema": "pyprof/diff/1", "pyprof": "1.0.0", "command": "diff", "input": [...], "warnings": [...], ...own keys...}

``schema`` names the document and its version, which rises when a key is removed or changes its meaning. A failure
prints ``pyprof/error/1`` and exits with a code that is not 0. Each document has a line in ``ANSWERS`` and is a subclass
of ``pyprof.command.json_schema.Record``, from which ``pyprof schema`` makes its JSON Schema. A command prints it thus::

    write_answer("diff", Difference(...), input=[Input(a, profiler), b], warnings=sentences)

Values may be such records, dataclasses, tuples, paths, numpy scalars and NaN: ``plain`` turns them into strict JSON
(NaN and infinities, which mean "not known", become null). This module imports nothing heavy: every --help needs it.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from os import PathLike, fspath
from typing import Any, BinaryIO, NamedTuple

from pyprof._version import __version__
from pyprof.errors import OutputError, PyprofError, UsageError
from pyprof.files import Name, open_output, tell
from pyprof.text import clean, inert_json


class Answer(NamedTuple):
    """A document that a command may print with ``--json``."""

    what: str  # WHAT in the schema's name, pyprof/WHAT/VERSION
    version: int
    command: str  # the command that prints it; "" if any command may
    module: str
    document: str  # the name of the document's class in its module; the class's docstring describes the document


ANSWERS = (
    Answer("error", 1, "", "pyprof.command.schemas", "Failure"),
    Answer("run", 1, "run", "pyprof.capture.json_document", "ScriptRun"),
    Answer("ncu-run", 1, "ncu", "pyprof.ncu.json_document", "CountersTaken"),
    Answer("counters", 1, "ncu", "pyprof.prof.ncu.json_document", "Counters"),
    Answer("parse", 1, "parse", "pyprof.parse.json_document", "ParsedFiles"),
    Answer("stats", 1, "stats", "pyprof.parse.stats.json_document", "Tables"),
    Answer("scrub", 1, "scrub", "pyprof.parse.scrub.json_document", "Scrubbed"),
    Answer("kernels", 1, "prof", "pyprof.prof.table.json_document", "Kernels"),
    Answer("groups", 1, "prof", "pyprof.prof.table.json_document", "Groups"),
    Answer("summary", 2, "prof", "pyprof.prof.summary.json_document", "SummaryDocument"),
    Answer("advice", 2, "prof", "pyprof.prof.changes.records", "Changes"),
    Answer("explain", 1, "prof", "pyprof.prof.table.json_document", "Explanation"),
    Answer("memory", 1, "memory", "pyprof.prof.summary.memory_document", "MemoryDocument"),
    Answer("report", 1, "report", "pyprof.prof.report.json_document", "Page"),
    Answer("perfetto", 1, "perfetto", "pyprof.prof.perfetto.json_document", "TraceWritten"),
    Answer("plot", 1, "plot", "pyprof.prof.plot.json_document", "Plot"),
    Answer("peaks", 1, "peaks", "pyprof.benchmark.peaks_content", "Peaks"),
    Answer("bench", 1, "bench", "pyprof.benchmark.bench_document", "Measurements"),
    Answer("replay", 1, "bench", "pyprof.benchmark.bench_document", "Replays"),
    Answer("demo", 1, "demo", "pyprof.demo", "DemoFiles"),
    Answer("diff", 1, "diff", "pyprof.prof.diff.json_document", "Difference"),
    Answer("trend", 1, "trend", "pyprof.prof.diff.trend", "Trend"),
    Answer("simulation", 1, "replay", "pyprof.prof.replay.json_document", "Simulation"),
    Answer("plan", 2, "plan", "pyprof.prof.planning.json_document", "PlanDocument"),
    Answer("try", 1, "try", "pyprof.variants.json_document", "TryDocument"),
    Answer("ranks", 1, "ranks", "pyprof.prof.job.json_document", "JobDocument"),
    Answer("served", 1, "mcp", "pyprof.mcp.json_document", "Served"),
    Answer("completion", 1, "completion", "pyprof.completion", "Script"),
    Answer("schemas", 1, "schema", "pyprof.command.schemas", "Schemas"),
)
ANSWER = {answer.what: answer for answer in ANSWERS}


class Input(NamedTuple):
    """A file that was read."""

    name: str  # "-" is standard input
    profiler: str | None = None  # the profiler that recorded it, such as "nsys 2025.3.1"; None if unknown


# Making and writing


def envelope(
    what: str,
    own: object,
    *,
    input: Iterable[Input | str] = (),
    warnings: Iterable[str] = (),
    command: str | None = None,
) -> dict[str, Any]:
    """The document: the header of ``ANSWER[what]`` and the keys of ``own``, a record or a mapping.

    ``command`` is given for a document that any command may print.
    """
    answer = ANSWER[what]
    head = {
        "schema": schema_name(answer),
        "pyprof": __version__,
        "command": answer.command if command is None else command,
        "input": [(file if isinstance(file, Input) else Input(str(file)))._asdict() for file in input],
        "warnings": list(warnings),
    }
    keys = dict(own) if isinstance(own, Mapping) else _fields(own)
    assert not head.keys() & keys.keys(), f"header keys given as {what}'s own: {head.keys() & keys.keys()}"
    return {**head, **keys}


def schema_name(answer: Answer) -> str:
    return f"pyprof/{answer.what}/{answer.version}"


def write_answer(
    what: str,
    own: object,
    *,
    input: Iterable[Input | str] = (),
    warnings: Iterable[str] = (),
    rows: Iterable[bytes] | None = None,
    output: Name = None,
    force: bool = False,
) -> None:
    """Write the JSON object to a file or, without one, to standard output; ``rows`` is as in ``write_envelope``."""
    document = envelope(what, own, input=input, warnings=warnings)
    with open_output(output, force) as out:
        write_envelope(document, out, rows)


def write_envelope(document: Mapping[str, Any], out: BinaryIO, rows: Iterable[bytes] | None = None) -> None:
    """Write the object as UTF-8, and a line feed. ``rows``: JSON objects, which become a list under the last key.

    Each row is on its own line. Rows are written as they are made, so 100,000 of them need little memory.
    """
    keys = plain(document)
    if rows is not None:
        keys.pop("rows", None)
    text = inert_json(json.dumps(keys, ensure_ascii=False, allow_nan=False))
    if rows is None:
        out.write(f"{text}\n".encode())
        return
    out.write(f'{text[:-1]}, "rows": ['.encode())
    before = b"\n"
    for row in rows:
        out.write(before + row)
        before = b",\n"
    out.write(b"\n]}\n")


def plain(value: Any) -> Any:
    """The value as strict JSON can hold it. Numbers stay exact; NaN and infinities, which JSON lacks, become null."""
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, (float, Decimal)):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "__struct_fields__"):
        return plain(_fields(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {clean(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, PathLike):
        return clean(fspath(value))
    if hasattr(value, "tolist"):  # numpy
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _fields(record: Any) -> dict[str, Any]:
    """The fields of a msgspec record without the optional ones that are not set."""
    from msgspec import UNSET

    values = {name: getattr(record, name) for name in record.__struct_fields__}
    return {name: value for name, value in values.items() if value is not UNSET}


# Failing


def fail(prog: str, error: PyprofError, as_json: bool, input: Iterable[Input | str] = ()) -> int:
    """Print the error as one line on standard error, and with ``--json`` as an object on standard output. Returns 1."""
    if as_json and not isinstance(error, OutputError):  # after an OutputError, no complete object can be written
        _print_error(prog, error, 1, input)
    tell(f"{prog}: {error}")
    return 1


def usage_error(prog: str, message: str) -> None:
    """Print the JSON object that reports wrong usage (exit 2) on standard output."""
    _print_error(prog, UsageError(message), 2)


def _print_error(prog: str, error: PyprofError, code: int, input: Iterable[Input | str] = ()) -> None:
    what_failed = {
        "type": type(error).__name__,
        "message": str(error),
        "file": getattr(error, "file", None),
        "line": getattr(error, "line", None),
        "exit_code": code,
    }
    try:
        with open_output(None) as out:
            write_envelope(envelope("error", {"error": what_failed}, input=input, command=command_of(prog)), out)
    except OutputError as full:
        tell(f"{prog}: {full}")


def command_of(prog: str) -> str:
    """
    >>> command_of("prof.py"), command_of("pyprof stats"), command_of("pyprof")
    ('prof', 'stats', '')
    """
    return prog.removeprefix("pyprof").removesuffix(".py").strip()
