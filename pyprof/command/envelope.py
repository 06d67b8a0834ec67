"""The JSON of ``--json``: one object a command, the same header keys before the command's own.

    {"schema": "pyprof/diff/1", "pyprof": "0.1.0", "command": "diff", "input": [...], "warnings": [...], ...own keys...}

``schema`` names the keys and their version, which rises when a key changes its meaning or goes. A failure has
``pyprof/error/1`` and a non-zero exit. A command uses it so::

    def build_parser():
        parser = Parser(prog="pyprof diff", ...)  # with --json, wrong usage too is an error envelope (exit 2)
        add_json(parser)

    def main(argv=None):
        args = build_parser().parse_args(argv)
        try:
            with packages():
                ...
                with open_output(args.output, args.force) as out:
                    write_envelope(envelope("diff", own_keys, input=[Input(a, profiler), b], warnings=words), out)
        except PyprofError as error:
            return fail("pyprof diff", error, args.json, [args.before, args.after])
        return 0

Its answer has a line in ``ANSWERS`` and, in the module named there, ``SCHEMAS["diff"]``: a function that returns the
JSON Schema of its own keys (built with ``pyprof.command.json_schema``). With ``--json`` words go into ``warnings``
and not to standard error. Own keys may hold dataclasses, tuples, paths, numpy scalars and NaN: ``write_envelope`` makes
them plain (NaN and infinities become null: unknown).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from os import PathLike, fspath
from typing import Any, BinaryIO, NamedTuple, NoReturn

from pyprof._version import __version__
from pyprof.errors import OutputError, PyprofError, UsageError
from pyprof.files import open_output, tell
from pyprof.text import clean

__all__ = [
    "ANSWERS",
    "Answer",
    "Input",
    "Parser",
    "add_json",
    "envelope",
    "fail",
    "plain",
    "usage_error",
    "wants_json",
    "write_envelope",
]

HELP = "one JSON object with everything that is told, errors too (pyprof schema prints its schema)"


class Answer(NamedTuple):
    """What a command may answer with ``--json``."""

    what: str  # pyprof/WHAT/VERSION
    version: int
    command: str
    module: str  # has SCHEMAS[what]
    meaning: str


ANSWERS = (
    Answer("error", 1, "", "pyprof.command.schemas", "why a command failed; its exit code is not 0"),
    Answer("run", 1, "run", "pyprof.capture.run", "the trace collected, and the script's exit code"),
    Answer(
        "parse", 1, "parse", "pyprof.parse.json_document", "what the files hold, and which kernel table was written"
    ),
    Answer("stats", 1, "stats", "pyprof.parse.stats.json_document", "the tables of nsys stats"),
    Answer("kernels", 1, "prof", "pyprof.prof.json_document", "the annotated kernel table: a row each GPU operation"),
    Answer("groups", 1, "prof", "pyprof.prof.json_document", "with --group: rows that agree in some columns as one"),
    Answer("summary", 1, "prof", "pyprof.prof.json_document", "with --summary: where the time went"),
    Answer("advice", 1, "prof", "pyprof.prof.json_document", "with --advise: what to change, and what it saves"),
    Answer("explain", 1, "prof", "pyprof.prof.json_document", "with --explain: where a row's numbers come from"),
    Answer("report", 1, "report", "pyprof.prof.report.json_document", "the page written, and its sentences"),
    Answer("perfetto", 1, "perfetto", "pyprof.prof.perfetto.cli", "the trace written, and what it holds"),
    Answer("plot", 1, "plot", "pyprof.prof.plot.json_document", "the figure that was written, and the numbers drawn"),
    Answer("peaks", 1, "peaks", "pyprof.benchmark.peaks_content", "what this machine reaches; --peaks reads it, too"),
    Answer("demo", 1, "demo", "pyprof.demo", "the files made, and the commands that made them"),
    Answer("diff", 1, "diff", "pyprof.prof.diff.write_json", "the difference of two captures, and why"),
    Answer("schemas", 1, "schema", "pyprof.command.schemas", "JSON Schemas of what --json prints"),
)
ANSWER = {answer.what: answer for answer in ANSWERS}


class Input(NamedTuple):
    """A file that was read."""

    name: str  # "-" is standard input
    profiler: str | None = None  # what recorded it: "nsys 2025.3.1"; None: not known


# Making and writing


def envelope(
    what: str,
    own: Mapping[str, Any],
    *,
    input: Iterable[Input | str] = (),
    warnings: Iterable[str] = (),
    command: str | None = None,
) -> dict[str, Any]:
    """The header of ``ANSWER[what]`` and the command's own keys. ``command`` is given where the answer is of all."""
    answer = ANSWER[what]
    head = {
        "schema": schema_name(answer),
        "pyprof": __version__,
        "command": answer.command if command is None else command,
        "input": [(each if isinstance(each, Input) else Input(str(each)))._asdict() for each in input],
        "warnings": list(warnings),
    }
    assert not head.keys() & own.keys(), f"header keys given as {what}'s own: {head.keys() & own.keys()}"
    return {**head, **own}


def schema_name(answer: Answer) -> str:
    return f"pyprof/{answer.what}/{answer.version}"


def write_envelope(document: Mapping[str, Any], out: BinaryIO, rows: Iterable[bytes] | None = None) -> None:
    """Write the object, UTF-8, and a line feed. ``rows``: a JSON object each, which become the last key's list.

    Rows are lines of their own, so that 100,000 of them are written as they come.
    """
    text = json.dumps(plain(document), ensure_ascii=False, allow_nan=False)
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
    """The value as strict JSON holds it, numbers exact; what JSON has no form for is null (NaN, infinities)."""
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, (float, Decimal)):
        return float(value) if math.isfinite(value) else None
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


# Failing


def fail(prog: str, error: PyprofError, as_json: bool, input: Iterable[Input | str] = ()) -> int:
    """Tell the error: a line on standard error, with ``--json`` an envelope on standard output, too. The exit code."""
    if as_json and not isinstance(error, OutputError):  # which has left half an object there, or cannot take another
        _print_error(prog, error, 1, input)
    tell(f"{prog}: {error}")
    return 1


def usage_error(prog: str, message: str) -> None:
    """The envelope of a wrong usage (exit 2), on standard output."""
    _print_error(prog, UsageError(message), 2)


def _print_error(prog: str, error: PyprofError, code: int, input: Iterable[Input | str] = ()) -> None:
    told = {
        "type": type(error).__name__,
        "message": str(error),
        "file": getattr(error, "file", None),
        "line": getattr(error, "line", None),
        "exit_code": code,
    }
    try:
        with open_output(None) as out:
            write_envelope(envelope("error", {"error": told}, input=input, command=command_of(prog)), out)
    except OutputError as full:
        tell(f"{prog}: {full}")


def command_of(prog: str) -> str:
    """
    >>> command_of("prof.py"), command_of("pyprof stats"), command_of("pyprof")
    ('prof', 'stats', '')
    """
    return prog.removeprefix("pyprof").removesuffix(".py").strip()


# The command line


def add_json(parser: argparse._ActionsContainer, help: str = HELP) -> None:
    parser.add_argument("--json", action="store_true", help=help)


def wants_json(words: Sequence[str]) -> bool:
    """Whether ``--json`` is among a command line's words, which may not be readable as a whole."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint, with ``--json``, is an error envelope as well; exit 2."""

    _wants_json = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        self._wants_json = wants_json(words)
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        if self._wants_json:
            usage_error(self.prog, message)
        super().error(message)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Help has signs such as \u00d7, which not every locale's encoding has."""
        encoding = getattr(file, "encoding", None) or "utf-8"
        super()._print_message(message.encode(encoding, "replace").decode(encoding), file)
