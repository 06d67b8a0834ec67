"""The columns of an nsys export stand in one module, and what the others make of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyprof.parse.databases.database import Source
from pyprof.parse.nsys import tables

SOURCES = [value for value in vars(tables).values() if isinstance(value, Source)]
# NVIDIA's names that are not PyProf's: tables, and columns in camel case
NAMES = {source.table for source in SOURCES} | {
    column for source in SOURCES for name, column in source.columns if name != column and not column.islower()
}
IN_MESSAGES = {"NVTX_EVENTS"}  # an error names the table


def texts(module: Path) -> Iterator[str]:
    """The string constants of a module without its docstrings."""
    tree = ast.parse(module.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and starts_with_text(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def starts_with_text(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> bool:
    return bool(node.body) and isinstance(node.body[0], ast.Expr)


@pytest.mark.parametrize("room", ["nsys", "stats"])
def test_a_column_is_named_in_one_module(room: str, root: Path) -> None:
    assert {"CUPTI_ACTIVITY_KIND_KERNEL", "demangledName", "globalTid", "domainId", "correlationId"} <= NAMES
    words = {
        (module.name, word)
        for module in (root / "parse" / room).glob("*.py")
        if module.name != "tables.py"
        for text in texts(module)
        for word in re.findall(r"\w+", text)
    }
    assert len(words) > 200
    assert {(module, word) for module, word in words if word in NAMES - IN_MESSAGES} == set()


def test_global_ids() -> None:
    # hardware 1 in bits 56 to 63, process 7 in bits 24 to 47, thread 9 in bits 0 to 23
    global_tid = (1 << 56) + (7 << 24) + 9
    assert (tables.process_of(global_tid), tables.thread_of(global_tid)) == (7, 9)


def test_a_source_knows_both_names() -> None:
    source = Source("t", (("start_ns", "start"), ("corr", "correlationId")))
    assert source.names == ("start_ns", "corr")
    assert source.column("corr") == "correlationId"
