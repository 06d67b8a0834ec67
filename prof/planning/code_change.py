"""The code of a change, before and after: the program's own statement where it can be rewritten, else a general form.

A statement is rewritten only where that is plain: an argument is added to or taken from one call, or a statement goes.
General forms have names of their own (model, x, ...) and say so.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Annotated

from pyprof.command.json_schema import Record, doc
from pyprof.prof.planning.general_code import GENERAL
from pyprof.prof.planning.source_line import Statement, calls_of, module, statement, with_arguments

Rewrite = Callable[[Statement], str | None]


class CodeChange(Record):
    """What to write instead."""

    place: Annotated[str, doc("file and line of the program's statement, if it is one; empty: a general form")]
    before: Annotated[str, doc("the code now; empty: the change adds code")]
    after: Annotated[str, doc("the code with the change; empty: the code before goes")]
    general: Annotated[bool, doc("whether it is a general form, whose names are not the program's")]


def code_change(rule: str, change: str, trace: str, op: str, newest: float) -> tuple[str, CodeChange | None]:
    """The program's statement at a change's line (empty: not readable), and the code of the change, if any is known.

    ``change``: the change in words. ``newest``: the time of the capture; source files that are later are not shown.
    """
    here = statement(trace, op, newest)
    shown = here.text if here is not None else ""
    if here is not None and rule in REWRITES and (after := REWRITES[rule](here)) is not None:
        return shown, CodeChange(f"{here.file}:{here.line}", here.text, after, general=False)
    if rule in CONSTRUCTORS and (found := _constructor(rule, trace.rpartition(":")[0], newest)) is not None:
        return shown, found
    form = next((form for form in GENERAL if form.rule == rule and form.words in change), None)
    return shown, None if form is None else CodeChange("", form.before, form.after, general=True)


def _reparsed(here: Statement) -> ast.stmt:
    """The statement as a tree whose places are those of its text."""
    return ast.parse(here.text).body[0]


def _without_reading(here: Statement) -> str | None:
    """``total += loss.item()`` keeps the value on the GPU: ``total += loss.detach()``; likewise in append()."""
    node = _reparsed(here)
    value = node.value if isinstance(node, (ast.Assign, ast.AugAssign)) else None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and calls_of(node.value, "append"):
        value = node.value.args[0] if len(node.value.args) == 1 else None
    reads = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "item"
    if not reads or here.text.count(".item()") != 1:
        return None
    return here.text.replace(".item()", ".detach()")


def _with_none(here: Statement) -> str | None:
    """``optimizer.zero_grad(set_to_none=False)`` without its argument."""
    calls = calls_of(_reparsed(here), "zero_grad")
    if len(calls) != 1 or calls[0].args or [keyword.arg for keyword in calls[0].keywords] != ["set_to_none"]:
        return None
    return f"{ast.unparse(calls[0].func)}()" if here.text.endswith(")") and isinstance(here.tree, ast.Expr) else None


def _asynchronous(here: Statement) -> str | None:
    """``x.to(device)`` with non_blocking=True."""
    copies = calls_of(_reparsed(here), "to", "cuda")
    if len(copies) != 1 or any(keyword.arg in (None, "non_blocking") for keyword in copies[0].keywords):
        return None
    return with_arguments(here.text, copies[0], "non_blocking=True")


def _emptied(here: Statement) -> str | None:
    """``torch.cuda.empty_cache()`` goes."""
    node = _reparsed(here)
    alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and calls_of(node, "empty_cache")
    return "" if alone else None


REWRITES: dict[str, Rewrite] = {
    "item": _without_reading,
    "zero_grad": _with_none,
    "pageable_copy": _asynchronous,
    "allocator": _emptied,
}
# Rule -> what is constructed, the arguments that it gets, and those with which it is left alone.
CONSTRUCTORS: dict[str, tuple[tuple[str, ...], str, frozenset[str]]] = {
    "optimizer": (("Adam", "AdamW", "SGD"), "fused=True", frozenset({"fused", "foreach", "capturable"})),
    "data_loader": (
        ("DataLoader",),
        "num_workers=8, persistent_workers=True, pin_memory=True",
        frozenset({"num_workers", "persistent_workers", "pin_memory"}),
    ),
}


def _constructor(rule: str, file: str, newest: float) -> CodeChange | None:
    """The only such constructor of the file that the change's line is in, with its new arguments."""
    names, added, taken = CONSTRUCTORS[rule]
    parsed = module(file, newest)
    calls = calls_of(parsed[1], *names) if parsed is not None else []
    if len(calls) != 1 or any(keyword.arg is None or keyword.arg in taken for keyword in calls[0].keywords):
        return None
    here = statement(f"{file}:{calls[0].lineno}", names[0] if len(names) == 1 else "", newest)
    inside = calls_of(_reparsed(here), *names) if here is not None else []
    after = with_arguments(here.text, inside[0], added) if here is not None and len(inside) == 1 else None
    if here is None or after is None:
        return None
    return CodeChange(f"{file}:{here.line}", here.text, after, general=False)
