"""The code of a change, before and after: the program's own statement where it can be rewritten, else a general form.

A statement is rewritten only where that is plain: an argument is added to or taken from one call, or a statement goes.
General forms have names of their own (model, x, ...) and say so. They fit the program's loop, training or inference,
and where stacks show a framework's loop, they are its settings (framework_settings.py).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from pyprof.command.json_schema import Record, doc
from pyprof.prof.changes.framework_settings import Program, setting
from pyprof.prof.changes.general_code import AT_MODEL, GENERAL, GeneralForm
from pyprof.prof.changes.source_line import (
    Statement,
    calls_of,
    module,
    source,
    statement,
    with_arguments,
)

ANY = Program()
Rewrite = Callable[[Statement], str | None]


class CodeChange(Record):
    """What to write instead."""

    place: Annotated[str, doc("file and line of the program's statement, if it is one; empty: a general form")]
    before: Annotated[str, doc("the code now; empty: the change adds code")]
    after: Annotated[str, doc("the code with the change; empty: the code before goes")]
    general: Annotated[bool, doc("whether it is a general form, whose names are not the program's")]


def code_change(
    rule: str, change: str, trace: str, op: str, newest: float, program: Program = ANY
) -> tuple[str, CodeChange | None]:
    """The program's statement at a change's line (empty: not readable), and the code of the change, if any is known.

    The program's own code goes before its framework's settings, and these before a general form. ``change``: the change
    in words. ``newest``: the time of the capture; source files that are later are not shown.
    """
    here = statement(trace, op, newest)
    shown = here.text if here is not None else ""
    if here is not None and rule in REWRITES and (after := REWRITES[rule](here)) is not None:
        return shown, CodeChange(f"{here.file}:{here.line}", here.text, after, general=False)
    files = list(dict.fromkeys([trace.rpartition(":")[0], *program.files]))
    if rule in CONSTRUCTORS and (found := _constructor(CONSTRUCTORS[rule], files, newest)) is not None:
        return shown, found
    form = setting(rule, change, program)
    if form is not None and (found := _constructor(_given(form), files, newest)) is not None:
        return shown, found
    if form is None and (not program.place.library or (program.place.line and rule in AT_MODEL)):  # no library's code
        form = next((form for form in GENERAL if form.fits(rule, change, program.loop)), None)
    return shown, None if form is None else CodeChange("", form.before, form.after, general=True)


def _without_reading(here: Statement) -> str | None:
    """``total += loss.item()`` keeps the value on the GPU: ``total += loss.detach()``; likewise in append()."""
    node = here.tree
    value = node.value if isinstance(node, (ast.Assign, ast.AugAssign)) else None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and calls_of(node.value, "append"):
        value = node.value.args[0] if len(node.value.args) == 1 else None
    reads = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "item"
    if not reads or here.text.count(".item()") != 1:
        return None
    return here.text.replace(".item()", ".detach()")


def _with_none(here: Statement) -> str | None:
    """``optimizer.zero_grad(set_to_none=False)`` without its argument."""
    calls = calls_of(here.tree, "zero_grad")
    if len(calls) != 1 or calls[0].args or [keyword.arg for keyword in calls[0].keywords] != ["set_to_none"]:
        return None
    return f"{ast.unparse(calls[0].func)}()" if here.text.endswith(")") and isinstance(here.tree, ast.Expr) else None


def _asynchronous(here: Statement) -> str | None:
    """``x.to(device)`` with non_blocking=True."""
    copies = calls_of(here.tree, "to", "cuda")
    if len(copies) != 1 or any(keyword.arg in (None, "non_blocking") for keyword in copies[0].keywords):
        return None
    return with_arguments(here.text, copies[0], "non_blocking=True")


def _emptied(here: Statement) -> str | None:
    """``torch.cuda.empty_cache()`` goes."""
    node = here.tree
    alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and calls_of(node, "empty_cache")
    return "" if alone else None


REWRITES: dict[str, Rewrite] = {
    "item": _without_reading,
    "zero_grad": _with_none,
    "pageable_copy": _asynchronous,
    "allocator": _emptied,
}


class Constructor(NamedTuple):
    """A call that gets arguments where the program has one of its kind alone."""

    names: tuple[str, ...]
    added: str
    taken: frozenset[str] = frozenset()  # arguments with which it is left alone


# Other classes with the same arguments: a framework's own subclasses, or its engine's arguments by themselves.
ALIASES = {
    "TrainingArguments": ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "RewardConfig"),
    "LLM": ("LLM", "EngineArgs", "AsyncEngineArgs"),
    "Engine": ("Engine", "ServerArgs"),
}
CONSTRUCTORS = {
    "optimizer": Constructor(("Adam", "AdamW", "SGD"), "fused=True", frozenset({"fused", "foreach", "capturable"})),
    "data_loader": Constructor(
        ("DataLoader",),
        "num_workers=8, persistent_workers=True, pin_memory=True",
        frozenset({"num_workers", "persistent_workers", "pin_memory"}),
    ),
}


def _given(form: GeneralForm) -> Constructor:
    """The constructor of a form with "..." among its arguments; without one, or with arguments to be imported, none."""
    for call in (node for node in ast.walk(ast.parse(form.after)) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func).rpartition(".")[2]
        others = any(isinstance(node, ast.Name) for each in call.keywords for node in ast.walk(each.value))
        shortened = any(isinstance(each, ast.Constant) and each.value is ... for each in call.args)
        if shortened and name[0].isupper() and not others:
            added = ", ".join(f"{each.arg}={source(each.value)}" for each in call.keywords)
            return Constructor(ALIASES.get(name, (name,)), added)
    return Constructor((), "")


def _constructor(wanted: Constructor, files: Sequence[str], newest: float) -> CodeChange | None:
    """The only such call of the file that the change's line is in, or else of all the program's, with its arguments."""
    found = []
    for file in files:
        parsed = module(file, newest)
        calls = calls_of(parsed[1], *wanted.names) if parsed is not None and wanted.names else []
        found += [(file, call) for call in calls]
        if file == files[0] and len(calls) == 1:
            break
    if len(found) != 1 or any(keyword.arg is None or keyword.arg in wanted.taken for keyword in found[0][1].keywords):
        return None
    file, call = found[0]
    here = statement(f"{file}:{call.lineno}", wanted.names[0] if len(wanted.names) == 1 else "", newest)
    inside = calls_of(here.tree, *wanted.names) if here is not None else []
    if here is None or len(inside) != 1:
        return None
    after = with_arguments(here.text, inside[0], wanted.added)
    if after is None or after == here.text:
        return None
    return CodeChange(f"{file}:{here.line}", here.text, after, general=False)
