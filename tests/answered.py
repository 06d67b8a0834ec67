"""What a command printed with --json, read strictly and held against the schema that `pyprof schema` prints."""

import json
from collections import defaultdict
from functools import cache
from typing import Any

import jsonschema
import pytest

from pyprof.command import schemas as answers
from pyprof.command.envelope import ANSWER

HEADER = ["schema", "pyprof", "command", "input", "warnings"]


def strict(content: bytes) -> dict[str, Any]:
    """The one object of an output, on one or more lines: UTF-8, no NaN, no key twice."""
    found = json.loads(content.decode("utf-8"), parse_constant=pytest.fail, object_pairs_hook=_once)
    assert isinstance(found, dict)
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), f"a key twice among {[key for key, _ in pairs]}"
    return dict(pairs)


# Documents whose version is not 1; each rises with a migration guide.
VERSIONS = defaultdict(lambda: 1, advice=2, plan=2, summary=2)


def valid(found: dict[str, Any], command: str | None = None) -> dict[str, Any]:
    """The object, if its schema (of all commands', or of one's) lets it pass."""
    assert list(found)[: len(HEADER)] == HEADER
    _validator(command).validate(found)
    return found


@cache
def _validator(command: str | None) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(answers.schemas(command))


def answer(content: bytes, what: str, command: str | None = None) -> dict[str, Any]:
    """The valid answer of that name, in its version."""
    found = valid(strict(content), command)
    assert found["schema"] == f"pyprof/{what}/{ANSWER[what].version}"
    return found
