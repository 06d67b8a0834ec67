"""The JSON of --json: one object with a header, strict, and its schemas."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import jsonschema
import numpy as np
import pytest
from msgspec import UNSET, UnsetType

from pyprof import __version__, cli
from pyprof.command import schemas as answers
from pyprof.command.envelope import (
    ANSWERS,
    Input,
    command_of,
    envelope,
    fail,
    plain,
    schema_name,
    write_envelope,
)
from pyprof.command.json_schema import Record, doc, nan_doc, schema_of_class
from pyprof.command.parser import Parser, add_json
from pyprof.errors import InputError, OutputError, PyprofError
from tests.answered import HEADER, strict, valid


def test_control_characters_are_escaped_and_texts_stay_what_they_are():
    out = io.BytesIO()
    write_envelope({"name": "a\x9b2J\u2028b\x7f漢"}, out)
    assert out.getvalue() == r'{"name": "a\u009b2J\u2028b\u007f漢"}'.encode() + b"\n"
    assert json.loads(out.getvalue())["name"] == "a\x9b2J\u2028b\x7f漢"


def test_the_header_stands_before_the_commands_own_keys():
    found = envelope("schemas", {"schemas": {}}, input=[Input("a.sqlite", "nsys 2025.3"), "b"], warnings=iter(["w"]))
    assert list(found) == [*HEADER, "schemas"]
    assert found["schema"] == "pyprof/schemas/1"
    assert (found["pyprof"], found["command"], found["warnings"]) == (__version__, "schema", ["w"])
    assert found["input"] == [{"name": "a.sqlite", "profiler": "nsys 2025.3"}, {"name": "b", "profiler": None}]
    valid(found, "schema")


def test_an_own_key_cannot_replace_the_headers():
    with pytest.raises(AssertionError, match="warnings"):
        envelope("schemas", {"warnings": []})


@dataclass
class Point:
    x: float
    name: str | None
    at: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        ([float("inf"), -float("inf"), 0.1], [None, None, 0.1]),
        (np.float64("nan"), None),
        (np.float32(0.5), 0.5),
        (np.int64(2**62 + 1), 4611686018427387905),
        (2**70, 1180591620717411303424),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.bool_(True), True),
        (True, True),
        (Decimal("1.5"), 1.5),
        (Decimal("NaN"), None),
        (Point(float("inf"), None, (1,)), {"x": None, "name": None, "at": [1]}),
        (Path("a/b"), "a/b"),
        ({1: {2}}, {"1": [2]}),
        ("lone \udcff", "lone �"),
        ("pair \ud83d\ude00", "pair 😀"),
        ({"\udcff": 1}, {"�": 1}),
        (None, None),
    ],
)
def test_plain(value, expected):
    found = plain(value)
    assert found == expected and type(found) is type(expected)


def test_what_json_has_no_form_for_is_our_bug():
    with pytest.raises(TypeError, match="object has no form"):
        plain(object())


@pytest.mark.parametrize("rows", [[], [b'{"idx":1}'], [b'{"idx":1}', b'{"idx":2}']])
def test_rows_are_lines_of_their_own(rows):
    out = io.BytesIO()
    write_envelope({"schema": "x", "name": "}], \n\x1b é"}, out, rows)
    content = out.getvalue()
    assert strict(content) == {"schema": "x", "name": "}], \n\x1b é", "rows": [json.loads(row) for row in rows]}
    assert content.count(b"\n") == len(rows) + 2
    assert b"\x1b" not in content


def test_an_error_is_an_object_on_standard_output_and_a_line_on_standard_error(capfd):
    assert fail("prof.py", InputError("ne\x1bt", "cut\nshort"), True, ["ne\x1bt"]) == 1
    out, err = capfd.readouterr()
    assert err == "prof.py: ne?t: cut short\n"
    found = valid(strict(out.encode()), "schema")
    assert (found["schema"], found["command"]) == ("pyprof/error/1", "prof")
    assert found["input"] == [{"name": "ne\x1bt", "profiler": None}]
    assert found["error"] == {
        "type": "InputError",
        "message": "ne\x1bt: cut\nshort",
        "file": "ne\x1bt",
        "line": None,
        "exit_code": 1,
    }


def test_an_error_without_json_is_a_line(capfd):
    assert fail("prof.py", PyprofError("no"), False) == 1
    assert capfd.readouterr() == ("", "prof.py: no\n")


def test_no_second_object_after_half_of_one(capfd):
    assert fail("prof.py", OutputError("standard output: cannot be written: No space left on device"), True) == 1
    assert capfd.readouterr().out == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_error_on_a_full_disk_is_two_lines(tmp_path):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "pyprof", "prase", "--json"], stdout=full, stderr=-1, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "pyprof: standard output: cannot be written: No space left on device"
    assert "Traceback" not in done.stderr


def test_wrong_usage_is_an_object_too(capfd):
    parser = Parser(prog="pyprof diff")
    add_json(parser)
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(["--jason", "--json"])
    out, err = capfd.readouterr()
    found = valid(strict(out.encode()))
    assert stop.value.code == 2
    assert found["error"] == {
        "type": "UsageError",
        "message": "unrecognized arguments: --jason",
        "file": None,
        "line": None,
        "exit_code": 2,
    }
    assert err.endswith("pyprof diff: error: unrecognized arguments: --jason\n")


@pytest.mark.parametrize("argv", [["--jason"], ["--jason", "--", "--json"]])
def test_wrong_usage_without_json_prints_nothing(argv, capfd):
    parser = Parser(prog="pyprof diff")
    add_json(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(argv)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("argv", [["prase", "--json"], ["--json"]])
def test_a_command_that_there_is_not(argv, capfd):
    assert cli.main(argv) == 2
    out, err = capfd.readouterr()
    found = valid(strict(out.encode()))
    assert (found["command"], found["error"]["type"], found["error"]["exit_code"]) == ("", "UsageError", 2)
    assert found["error"]["message"] in err


def test_command_of():
    assert [command_of(prog) for prog in ("parse.py", "pyprof report", "pyprof")] == ["parse", "report", ""]


def test_the_answers_are_named_once_and_of_commands_there_are():
    names = [answer.what for answer in ANSWERS]
    assert len(names) == len(set(names))
    assert {answer.command for answer in ANSWERS} - {""} <= {command.name for command in cli.COMMANDS}


# Schemas


def described(schema: dict, path: str = "") -> list[str]:
    """Keys without a description."""
    missing = []
    for key, value in schema.get("properties", {}).items():
        here = f"{path}.{key}"
        missing += [here] if not value.get("description") else []
        missing += described(value, here)
    for word in ("items", "additionalProperties"):
        inner = schema.get(word)
        missing += described(inner, f"{path}[]") if isinstance(inner, dict) else []
    return missing


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.what)
def test_each_schema_is_one_and_says_what_every_key_means(answer):
    schema = answers.schema_of(answer)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert described(schema) == []
    assert schema["additionalProperties"] is False
    assert schema["required"][:5] == HEADER
    assert schema["properties"]["schema"]["const"] == f"pyprof/{answer.what}/{answer.version}"


def test_the_schemas_refuse_what_is_not_so():
    found = envelope("schemas", {"schemas": {}})
    for wrong in (
        {**found, "extra": 1},
        {**found, "schema": "pyprof/schemas/2"},
        {**found, "command": "prof"},
        {**found, "input": ["a"]},
        {key: value for key, value in found.items() if key != "warnings"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(answers.schemas()).validate(wrong)


@pytest.mark.parametrize("name", answers.commands())
def test_the_schema_of_a_command(name, capfdbinary):
    assert answers.main([name]) == 0
    found = strict(capfdbinary.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    whats = [answer.what for answer in ANSWERS if answer.command in ("", name)]
    assert list(found["$defs"]) == whats and "error" in whats
    assert found["oneOf"] == [{"$ref": f"#/$defs/{what}"} for what in whats]


def test_the_schema_command_tells_its_schemas_as_an_envelope(capfdbinary):
    assert answers.main(["--json"]) == 0
    found = valid(strict(capfdbinary.readouterr().out), "schema")
    assert list(found["schemas"]) == [f"pyprof/{answer.what}/{answer.version}" for answer in ANSWERS]
    for schema in found["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_schema_of_no_command(capfd):
    with pytest.raises(SystemExit) as stop:
        answers.main(["prase", "--json"])
    assert stop.value.code == 2
    assert "invalid choice: 'prase'" in strict(capfd.readouterr().out.encode())["error"]["message"]


def test_a_reader_that_goes_leaves_no_traceback():
    code = f"{sys.executable} -m pyprof schema | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", code], capture_output=True, text=True, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")


@dataclass
class Place:
    """A place.

    In the plane.
    """

    x: Annotated[float, nan_doc("how far", "m")]
    name: Annotated[str | None, doc("whose")]
    kind: Annotated[Literal["a", "b"] | None, doc("which")]
    at: Annotated[tuple[int, ...], doc("where")] = ()


class Places(Record):
    """Places."""

    first: Annotated[Place | None, doc("the first")]
    form: Annotated[Literal["v1"], doc("of the list")]
    by_name: Annotated[dict[str, Place], doc("all")]
    total: Annotated[int, doc("how many")] | UnsetType = UNSET


PLACE = {
    "type": "object",
    "description": "A place.",
    "properties": {
        "x": {"type": ["number", "null"], "description": "how far", "unit": "m"},
        "name": {"type": ["string", "null"], "description": "whose"},
        "kind": {"type": ["string", "null"], "description": "which", "enum": ["a", "b", None]},
        "at": {"type": "array", "description": "where", "items": {"type": "integer"}},
    },
    "required": ["x", "name", "kind", "at"],
    "additionalProperties": False,
}


def test_the_schema_of_a_record_and_of_a_dataclass_in_it():
    assert schema_of_class(Place) == PLACE
    assert schema_of_class(Places) == {
        "type": "object",
        "description": "Places.",
        "properties": {
            "first": {**PLACE, "type": ["object", "null"], "description": "the first"},
            "form": {"const": "v1", "description": "of the list"},
            "by_name": {"type": "object", "description": "all", "additionalProperties": PLACE},
            "total": {"type": "integer", "description": "how many"},
        },
        "required": ["first", "form", "by_name"],
        "additionalProperties": False,
    }


def test_an_optional_key_that_is_not_set_is_not_there():
    assert plain(Places(first=None, form="v1", by_name={})) == {"first": None, "form": "v1", "by_name": {}}


# What scripts rely on


def keys_of(schema: dict, path: str = "") -> list[str]:
    """Every key of an object, with the types that it may have: ``rows[].idx: integer|null``."""
    found = []
    for key, value in schema.get("properties", {}).items():
        kinds = value.get("type", "const" if "const" in value else "any")
        found += [f"{path}{key}: {kinds if isinstance(kinds, str) else '|'.join(kinds)}"]
        found += keys_of(value, f"{path}{key}.")
    for key, value in schema.get("patternProperties", {}).items():
        found += keys_of(value, f"{path}{key}.")
    for word, mark in (("items", "[]"), ("additionalProperties", "*")):
        if isinstance(schema.get(word), dict):
            found += keys_of(schema[word], f"{path.removesuffix('.')}{mark}.")
    for other in schema.get("anyOf", []):
        found += keys_of(other, path)
    return list(dict.fromkeys(found))


def test_keys_stay_as_long_as_the_version_does(root, update_golden):
    """A key that changes or goes raises the version in ANSWERS; new keys are written by pytest --update-golden."""
    file = root / "tests" / "golden" / "json_keys.txt"
    found = [f"{schema_name(answer)} {key}" for answer in ANSWERS for key in keys_of(answers.schema_of(answer))]
    if update_golden:
        file.write_text("\n".join(found) + "\n")
    versions = {schema_name(answer) for answer in ANSWERS}
    held = [line for line in file.read_text().splitlines() if line.split(" ", 1)[0] in versions]
    assert [line for line in held if line not in set(found)] == []
    assert {line.split(" ", 1)[0] for line in held} == versions


def test_a_key_is_seen_wherever_it_stands():
    inner = {"type": "object", "properties": {"b": {"type": ["string", "null"]}}}
    listed = {"type": "array", "items": inner}
    schema = {
        "properties": {"a": listed, "c": {"additionalProperties": inner}, "d": {"patternProperties": {"^x$": inner}}}
    }
    assert keys_of(schema) == ["a: array", "a[].b: string|null", "c: any", "c*.b: string|null", "d: any",
                               "d.^x$.b: string|null"]  # fmt: skip
