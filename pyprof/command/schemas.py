"""The command pyprof schema: the JSON Schemas of all that --json prints."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from pyprof.command.envelope import ANSWERS, Answer, Parser, add_json, envelope, fail, schema_name, write_envelope
from pyprof.command.frame import add_version
from pyprof.command.json_schema import DIALECT, Schema, integer, listing, maybe, record, text
from pyprof.errors import PyprofError, packages

__all__ = ["SCHEMAS", "commands", "main", "schema_of", "schemas"]


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof schema",
        description="Print the JSON Schema (draft 2020-12) of what --json prints: of every command, or of one and its "
        "errors. Descriptions tell what each key means.",
    )
    parser.add_argument("name", nargs="?", metavar="COMMAND", choices=commands(), help=", ".join(commands()))
    add_json(parser, "the schemas one by one, in an object of the same form as the other commands'")
    add_version(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    from pyprof.files import open_output

    args = build_parser().parse_args(argv)
    try:
        with packages(), open_output(None) as out:
            if args.json:
                write_envelope(envelope("schemas", {"schemas": _by_name(_answers(args.name))}), out)
            else:
                out.write(f"{json.dumps(schemas(args.name), indent=2, ensure_ascii=False)}\n".encode())
    except PyprofError as error:
        return fail("pyprof schema", error, args.json)
    return 0


def commands() -> list[str]:
    """The commands that answer in JSON, each once."""
    return list(dict.fromkeys(answer.command for answer in ANSWERS if answer.command))


def schemas(command: str | None = None) -> Schema:
    """One schema that every output agrees with, of all commands or of one."""
    answers = _answers(command)
    return {
        "$schema": DIALECT,
        "title": f"pyprof {command or ''}".strip() + " --json",
        "description": "`schema` tells which of these an object is. A null is a value that is not known. Integers are "
        "exact and may be greater than 2**53.",
        "oneOf": [{"$ref": f"#/$defs/{answer.what}"} for answer in answers],
        "$defs": {answer.what: schema_of(answer) for answer in answers},
    }


def schema_of(answer: Answer) -> Schema:
    """The schema of one answer: the header's keys and its own."""
    own: dict[str, Callable[[], Schema]] = importlib.import_module(answer.module).SCHEMAS
    found = own[answer.what]()
    head = _header(answer)
    return {
        **found,
        "title": schema_name(answer),
        "description": answer.meaning,
        "properties": {**head, **found["properties"]},
        "required": [*head, *found["required"]],
    }


def _answers(command: str | None) -> list[Answer]:
    """A command's, and the error that any may give."""
    return [answer for answer in ANSWERS if command is None or answer.command in ("", command)]


def _by_name(answers: Iterable[Answer]) -> dict[str, Schema]:
    return {schema_name(answer): {"$schema": DIALECT, **schema_of(answer)} for answer in answers}


def _header(answer: Answer) -> dict[str, Schema]:
    file = {"name": text("as given; - is standard input"), "profiler": maybe(text("what recorded it, where it tells"))}
    return {
        "schema": {"const": schema_name(answer), "description": "which keys these are, and their version"},
        "pyprof": text("pyprof's version"),
        "command": {"const": answer.command, "description": "the command that was run"}
        if answer.command
        else text("the command that was run; empty: none that there is"),
        "input": listing(record(file, "a file that was read"), "the files that were read"),
        "warnings": listing(text("a sentence"), "what would have been told on standard error"),
    }


def _error() -> Schema:
    # The public errors of pyprof/errors.py; a wrong usage is the command line's own.
    kinds = ("UsageError", "PyprofError", "InputError", "SchemaError", "ModelError", "ShapeError", "UnknownArgument",
             "MissingPackage")  # fmt: skip
    told = {
        "type": {**text("UsageError: the command line; InputError: a file; SchemaError: a table or field of a file; "
                        "MissingPackage: a dependency; PyprofError: any other"), "examples": list(kinds)},
        "message": text("what standard error says, without the command's name"),
        "file": maybe(text("the file that is not as it should be")),
        "line": maybe(integer("of that file, from 1")),
        "exit_code": {**integer("of the command"), "enum": [1, 2]},
    }  # fmt: skip
    return record({"error": record(told, "what went wrong")}, "an error")


def _schemas() -> Schema:
    any_schema: dict[str, Any] = {"type": "object", "description": "a JSON Schema, draft 2020-12"}
    names = {"type": "object", "description": "schemas by what `schema` says", "additionalProperties": any_schema}
    return record({"schemas": names}, "schemas")


SCHEMAS = {"error": _error, "schemas": _schemas}
