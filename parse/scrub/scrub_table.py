"""A kernel table (net.dict, Parquet) or a container -> the same with clean texts."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from pyprof.parse.scrub.private_text import Cleaner
from pyprof.parse.scrub.private_tree import cleaned_tree
from pyprof.table.columns import Coded, Columns, Table
from pyprof.table.container import Container


def scrub_table(table: Columns, cleaner: Cleaner) -> Columns:
    """The table with clean texts; numbers stay as they are."""
    for key, column in table.columns.items():
        if isinstance(column, Coded):
            cleaned = [_cleaned(text, cleaner) for text in column.used().values]
            table = table.with_column(key, Coded(column.used().codes, cleaned))
    return table


def _cleaned(text: str, cleaner: Cleaner) -> str:
    """A text, or a JSON list's texts, each by itself: a path with a blank then ends where its text does."""
    if not text.startswith(("[", "{")):
        return cleaner.text(text)
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return cleaner.text(text)
    cleaned = cleaned_tree(tree, cleaner)
    return text if cleaned == tree else json.dumps(cleaned, ensure_ascii=False, separators=(",", ":"))


def scrub_container(container: Container, cleaner: Cleaner) -> Container:
    """The container with clean tables. Of the files that it was made of, their names stay."""
    tables: dict[str, Any] = {
        name: None if table is None else scrub_table(table, cleaner)
        for name, table in (("kernels", container.kernels), ("memory", container.memory), ("host", container.host))
    }
    files = tuple(cleaner.text(PurePath(file.replace("\\", "/")).name) for file in container.files)
    warnings = tuple(cleaner.text(text) for text in container.warnings)
    profiler = None if container.profiler is None else cleaner.text(container.profiler)
    return replace(container, **tables, files=files, warnings=warnings, profiler=profiler)


def texts_of(container: Container) -> Iterator[str]:
    """Every distinct text of a container's tables."""
    for table in (container.kernels, container.memory, container.host):
        if table is not None:
            yield from texts_of_table(table)
    yield from (*container.files, *container.warnings)


def texts_of_table(table: Table) -> Iterator[str]:
    """Every distinct text of a table."""
    for column in table.columns.values():
        if isinstance(column, Coded):
            yield from column.used().values
