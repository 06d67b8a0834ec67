"""The command pyprof schema: the JSON Schemas of everything that --json prints."""

import argparse
import importlib
import json
from typing import Annotated, Any

from pyprof.command.envelope import ANSWERS, Answer, schema_name, write_answer
from pyprof.command.frame import Done, run_command
from pyprof.command.json_schema import DIALECT, Record, Schema, doc, extended, schema_of_class
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.files import open_output


class InputFile(Record):
    name: Annotated[str, doc("as given; - is standard input")]
    profiler: Annotated[str | None, doc("what recorded it, where the file says so")]


class Header(Record):
    schema: Annotated[str, doc("which keys these are, and their version")]
    pyprof: Annotated[str, doc("pyprof's version")]
    command: Annotated[str, doc("the command that was run; empty where there is no such command")]
    input: Annotated[list[InputFile], doc("the files that were read")]
    warnings: Annotated[list[Annotated[str, doc("a sentence")]], doc("what standard error says without --json")]


# The public errors of pyprof/errors.py. Wrong usage is reported by the command line itself.
ERRORS = "UsageError PyprofError InputError SchemaError ModelError ShapeError UnknownArgument MissingPackage".split()
ERROR_TYPES = (
    "UsageError: the command line; InputError: a file; SchemaError: a table or field of a file; MissingPackage: a "
    "dependency; PyprofError: any other"
)


class ErrorFound(Record):
    type: Annotated[str, extended(ERROR_TYPES, {"examples": ERRORS})]
    message: Annotated[str, doc("what standard error says, without the command's name")]
    file: Annotated[str | None, doc("the file that is not as it should be")]
    line: Annotated[int | None, doc("of that file, from 1")]
    exit_code: Annotated[int, extended("of the command", {"enum": [1, 2]})]


class Failure(Record):
    """Why a command failed; its exit code is not 0."""

    error: Annotated[ErrorFound, doc("what went wrong")]


class Schemas(Record):
    """JSON Schemas of what --json prints."""

    schemas: Annotated[
        dict[str, Annotated[dict[str, Any], doc("a JSON Schema, draft 2020-12")]], doc("schemas by what `schema` says")
    ]


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof schema",
        description="Print the JSON Schema (draft 2020-12) of what --json prints: of every command, or of one and its "
        "errors. Descriptions say what each key means.",
    )
    parser.add_argument("name", nargs="?", metavar="COMMAND", choices=commands(), help=", ".join(commands()))
    add_json(parser, "the schemas one by one, in an object of the same form as the other commands'")
    add_common(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof schema", build_parser, _run, argv, inputs=())


def _run(args: argparse.Namespace) -> Done:
    if args.json:
        by_name = {schema_name(a): {"$schema": DIALECT, **schema_of(a)} for a in _answers(args.name)}
        write_answer("schemas", Schemas(schemas=by_name))
    else:
        with open_output(None) as out:
            out.write(f"{json.dumps(schemas(args.name), indent=2, ensure_ascii=False)}\n".encode())
    return Done()


def commands() -> list[str]:
    """The commands that print JSON, without duplicates."""
    return list(dict.fromkeys(answer.command for answer in ANSWERS if answer.command))


def schemas(command: str | None = None) -> Schema:
    """One schema that accepts every JSON output of all commands, or of one command."""
    answers = _answers(command)
    return {
        "$schema": DIALECT,
        "title": f"pyprof {command or ''}".strip() + " --json",
        "description": "`schema` says which of these an object is. A null is a value that is not known. Integers are "
        "exact and may be greater than 2**53.",
        "oneOf": [{"$ref": f"#/$defs/{answer.what}"} for answer in answers],
        "$defs": {answer.what: schema_of(answer) for answer in answers},
    }


def schema_of(answer: Answer) -> Schema:
    """The schema of one document: the header's keys and the document's own keys."""
    found = schema_of_class(getattr(importlib.import_module(answer.module), answer.document))
    head: dict[str, Schema] = schema_of_class(Header)["properties"]
    head["schema"] = {"const": schema_name(answer), "description": head["schema"]["description"]}
    if answer.command:
        head["command"] = {"const": answer.command, "description": "the command that was run"}
    return {
        **found,
        "title": schema_name(answer),
        "properties": {**head, **found["properties"]},
        "required": [*head, *found["required"]],
    }


def _answers(command: str | None) -> list[Answer]:
    """The documents of a command, and the error that any command may print."""
    return [answer for answer in ANSWERS if command is None or answer.command in ("", command)]
