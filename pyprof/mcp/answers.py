"""Runs a command inside the server and returns its JSON object, with long lists cut."""

from __future__ import annotations

import importlib
import io
import json
from contextlib import redirect_stdout
from typing import Any

from pyprof.cli import COMMANDS
from pyprof.errors import PyprofError
from pyprof.mcp.questions import Question
from pyprof.prof.diff.cli import FAILED

ANSWERED = (0, FAILED)  # exit codes of commands that have printed their answer

WHOLE = "columns"  # this list says what the keys of the rows mean, and is never cut
MOST_TEXT = 1000  # bytes of what a command prints in place of an answer


def ask(question: Question) -> dict[str, Any]:
    """What the command prints with --json. Raises PyprofError with the command's own message."""
    command = next(command for command in COMMANDS if command.name == question.command)
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(printed):
        try:
            code = importlib.import_module(command.module).main(list(question.words))
        except SystemExit as usage:  # argparse's, for words that are no valid options
            code = usage.code
    printed.flush()
    content = printed.buffer.getvalue()
    answer: dict[str, Any] = json.loads(content) if content.startswith(b"{") else {}
    if not answer or code not in ANSWERED or "error" in answer:
        text = content[:MOST_TEXT].decode("utf-8", "replace").strip()
        found = answer["error"]["message"] if "error" in answer else f"exit code {code}, and no answer: {text}"
        raise PyprofError(f"pyprof {question.command}: {found}")
    return answer


def cut(answer: dict[str, Any], rows: int, known: dict[str, int] | None = None) -> dict[str, Any]:
    """The answer with at most ``rows`` items in each list, and, if any list was cut, the key ``left_out`` about them.

    ``known``: how long lists would be that the command itself has cut, by key.
    """
    found: list[dict[str, Any]] = []
    shorter = {key: value if key == WHOLE else _cut(value, rows, key, found) for key, value in answer.items()}
    for key, length in (known or {}).items():
        if length > len(answer[key]):
            found.append(_left_out(key, len(answer[key]), length))
    return {**shorter, "left_out": found} if found else shorter


def _cut(value: Any, rows: int, where: str, found: list[dict[str, Any]]) -> Any:
    if isinstance(value, dict):
        return {key: _cut(item, rows, f"{where}.{key}", found) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) > rows:
        found.append(_left_out(where, rows, len(value)))
    return [_cut(item, rows, f"{where}[{number}]", found) for number, item in enumerate(value[:rows])]


def _left_out(where: str, shown: int, of: int) -> dict[str, Any]:
    return {"list": where, "shown": shown, "of": of}
