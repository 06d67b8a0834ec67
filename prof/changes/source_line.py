"""The statement of the user's program that a capture names as file and line, where that file can be read here.

A capture may come from elsewhere, and the file may have changed since, or be another of the same name. So a statement
is shown only if the file is not newer than the capture and if it can have called the op that the capture names. Only
Python files are read, and nothing is run.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

LARGEST = 4 << 20  # bytes of a source file
LONGEST = 12  # lines of a statement that is shown
BUILT_IN = frozenset(dir(builtins))
OPERATORS: dict[type, tuple[str, ...]] = {
    ast.Add: ("add",),
    ast.Sub: ("sub", "rsub"),
    ast.Mult: ("mul",),
    ast.Div: ("div", "true_divide"),
    ast.Pow: ("pow",),
    ast.MatMult: ("matmul", "mm", "bmm"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A simple statement of a source file."""

    text: str  # without its indentation
    tree: ast.stmt  # whose places are those of the text
    file: Path
    line: int  # of its begin, from 1


def statement(trace: str, op: str, newest: float) -> Statement | None:
    """The statement at "model.py:57", if it can have called ``op`` ("linear"; empty: any).

    ``newest``: the time of the capture, as that of a file; later files are not shown.
    """
    name, _, number = trace.rpartition(":")
    parsed = module(name, newest) if number.isdigit() else None
    if parsed is None:
        return None
    lines, tree = parsed
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and _is_simple(node) and node.lineno <= int(number) <= (node.end_lineno or 0)
    ]
    if len(found) != 1 or (found[0].end_lineno or 0) - found[0].lineno >= LONGEST or not can_call(found[0], op):
        return None
    node = found[0]
    text = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno])).strip("\n")
    shown = _parsed(text)  # None: such as "else: x = y", or with a line that is indented less than the first
    return None if shown is None else Statement(text, shown, Path(name), node.lineno)


def _is_simple(node: ast.stmt) -> bool:
    """Whether a statement holds no others."""
    return not hasattr(node, "body")


@lru_cache(maxsize=64)
def module(name: str, newest: float) -> tuple[list[str], ast.Module] | None:
    """The lines of a Python file and its tree; None if there is none, it is newer, or it cannot be parsed."""
    path = Path(name)
    try:
        if path.suffix != ".py" or not path.is_file():
            return None
        about = path.stat()
        if about.st_size > LARGEST or about.st_mtime > newest:
            return None
        text = path.read_text(encoding="utf-8")
        return text.splitlines(), ast.parse(text)
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError):  # whatever it is, it is no source to show
        return None


def can_call(node: ast.AST, op: str) -> bool:
    """Whether code can have called an op: by its name, by an operator, or in a module or function of the program.

    A method of another name (``loss.backward()``) has not, unless it is one of ``self``.
    """
    wanted = op.rpartition(".")[2].rstrip("_").lower()
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            root, last = _names(each.func)
            plain = not isinstance(each.func, ast.Attribute) and last not in BUILT_IN
            if not wanted or last.rstrip("_").lower() == wanted or root == "self" or plain:
                return True
        if isinstance(each, (ast.BinOp, ast.AugAssign)) and wanted in OPERATORS.get(type(each.op), ()):
            return True
    return False


def _names(function: ast.expr) -> tuple[str, str]:
    """The first and the last name of what is called: ("F", "linear")."""
    last = function.attr if isinstance(function, ast.Attribute) else ""
    while isinstance(function, ast.Attribute):
        function = function.value
    root = function.id if isinstance(function, ast.Name) else ""
    return root, last or root


def calls_of(tree: ast.AST, *names: str) -> list[ast.Call]:
    """The calls of functions whose last name is one of these."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _names(node.func)[1] in names]


def with_arguments(text: str, call: ast.Call, added: str) -> str | None:
    """A statement's text with arguments given to a call in it; None if that is not plain.

    Constants that the call has under these names get the new values. ``call``: of the statement's own tree, parsed from
    ``text``.
    """
    made = was = ast.get_source_segment(text, call) or ""
    wanted = {each.arg: source(each.value) for each in calls_of(ast.parse(f"call({added})"), "call")[0].keywords}
    for each in (keyword for keyword in call.keywords if keyword.arg in wanted):
        had = ast.get_source_segment(text, each) or ""
        if not isinstance(each.value, ast.Constant) or made.count(had) != 1:
            return None
        made = made.replace(had, f"{each.arg}={wanted.pop(each.arg)}")
    before = made[:-1].rstrip()
    if text.count(was) != 1 or not was.endswith(")") or re.search(r"#[^\n]*$", before):
        return None
    if rest := ", ".join(f"{name}={value}" for name, value in wanted.items()):
        comma = "" if before.endswith("(") else " " if before.endswith(",") else ", "
        made = f"{before}{comma}{rest})"
    made = text.replace(was, made)
    return made if _parsed(made) is not None else None


def source(value: ast.expr) -> str:
    return ast.unparse(value).replace("'", '"')


def _parsed(text: str) -> ast.stmt | None:
    """The statement that a text is; None for other texts."""
    try:
        return ast.parse(text).body[0]
    except SyntaxError:
        return None
