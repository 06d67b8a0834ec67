"""Which rows and columns prof.py prints, in which order: --where, --group, --sort, --top, --layer-depth.

Rows keep the input's order. ``--top`` without ``--sort`` selects the longest rows; groups are sorted longest first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyprof.errors import UsageError
from pyprof.prof.table.columns import COLUMN, Column, meant_column
from pyprof.prof.table.group import AGGREGATE, COUNTED, NEEDED, group_rows, unknown_counters
from pyprof.prof.table.where import Where, rows_where

if TYPE_CHECKING:
    from pyprof.prof.limits.peaks_file import Peaks
    from pyprof.prof.table.cells import Cells, Data
    from pyprof.prof.work.annotate import Annotation
    from pyprof.table.columns import Bools, Ints, Table

TIME = "sil"
NUMBER = re.compile(r"([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Sort:
    column: str
    descending: bool


@dataclass(frozen=True, slots=True)
class Query:
    """What to print; every name has been checked."""

    columns: tuple[Column, ...]  # printed, in this order
    where: Where | None = None
    group: tuple[Column, ...] = ()
    sort: tuple[Sort, ...] = ()
    top: int | None = None
    layer_depth: int | None = None

    def reads(self) -> tuple[Column, ...]:
        """The columns of the table that are needed, each once."""
        if self.group:
            names = [*(c.name for c in self.group), *NEEDED]
        else:
            names = [*(c.name for c in self.columns), *(s.column for s in self.order())]
        names += [c.name for c in self.where.columns] if self.where else []
        return tuple(COLUMN[name] for name in dict.fromkeys(names))

    def order(self) -> tuple[Sort, ...]:
        if self.sort:
            return self.sort
        if self.group:
            return (Sort("time", True),)
        return (Sort(TIME, True),) if self.top is not None else ()


def make_query(
    columns: Sequence[str] | None,
    default: Sequence[str],
    where: Where | None = None,
    group: Sequence[str] = (),
    sort: Sequence[Sort] = (),
    top: int | None = None,
    layer_depth: int | None = None,
    counted: bool = False,
) -> Query:
    """Make the query from the options. Raises UsageError, which names the option.

    ``counted``: groups without ``columns`` have those of Nsight Compute's counters, too.
    """
    keys = [_named(name, COLUMN, "--group") for name in group]
    for key in keys:
        if key.kind == "float":
            why = f"{key.name} is measured, and hardly twice the same; use --sort {key.name}"
            raise UsageError(f"argument --group: {why}")
    by_key = {key.name: key for key in keys}
    known = {**by_key, **AGGREGATE, **COUNTED} if group else COLUMN
    usual = [*by_key, *AGGREGATE, *(COUNTED if counted else ())] if group else default
    printed = [_named(name, known, "-c") for name in columns or dict.fromkeys(usual)]
    for by in sort:
        _named(by.column, known, "--sort")
    return Query(tuple(printed), where, tuple(keys), tuple(sort), top, layer_depth)


def _named(name: str, known: Mapping[str, Column], option: str) -> Column:
    if name not in known:
        raise UsageError(f"argument {option}: {name!r} is no column{meant_column(name, known)}")
    return known[name]


def run_query(
    query: Query, table: Table, annotation: Annotation, peaks: Peaks | None = None
) -> tuple[Cells, Ints, list[str]]:
    """The printed cells, the numbers of the rows selected by --where, and the peaks that the limits use."""
    import numpy as np

    from pyprof.prof.table.cells import Cells
    from pyprof.prof.table.limit_columns import with_limits

    reads, notes = with_limits(query.reads(), table, annotation, peaks)
    data: dict[str, Data] = {column.name: column.get(table, annotation) for column in reads}
    if query.layer_depth is not None and "layer" in data:
        from pyprof.prof.work.layer_path import layer_texts

        data["layer"] = layer_texts(table.coded("layer"), query.layer_depth)
    rows = np.arange(len(table))
    if query.where:
        rows = np.flatnonzero(rows_where(query.where, data))
        data = {name: values.take(rows) for name, values in data.items()}
    size = len(rows)
    if query.group:
        counters = annotation.counters.take(rows) if annotation.counters is not None else None
        keys, sums = group_rows([data[key.name] for key in query.group], data, counters)
        unknown = unknown_counters(len(sums["count"]))
        data = {**unknown, **sums, **{key.name: values for key, values in zip(query.group, keys, strict=True)}}
        size = len(sums["count"])
    order = _ordered(query.order(), data, size)[: query.top]
    cells = [data[column.name].take(order) for column in query.columns]
    return Cells(query.columns, cells, len(order)), rows, notes


def _ordered(sorts: Sequence[Sort], data: Mapping[str, Data], size: int) -> Ints:
    """The numbers of the rows in sorted order. Equal rows keep their order; unknown values always come last."""
    import numpy as np

    order = np.arange(size)
    for sort in reversed(sorts):
        rank, known = _ranks(data[sort.column])
        rank = np.where(known, -rank if sort.descending else rank, size)
        order = order[np.argsort(rank[order], kind="stable")]
    return order


def _natural(text: str) -> list[str | int]:
    """A sort key that puts layer 2 before layer 10. Texts and numbers alternate, so any two keys can be compared."""
    return [int(part) if i % 2 else part for i, part in enumerate(NUMBER.split(text))]


def _ranks(data: Data) -> tuple[Ints, Bools]:
    """For each row a number with the sort order of its cell, and whether the cell is known."""
    import numpy as np

    from pyprof.prof.table.cells import is_known
    from pyprof.table.columns import Coded

    if isinstance(data, Coded):
        texts = sorted(set(data.values), key=_natural)
        place = {text: i for i, text in enumerate(texts)}
        ranks = np.array([*(place[text] for text in data.values), -1])[data.codes]
        return ranks, np.array([*map(bool, data.values), False])[data.codes]
    known = is_known(data)
    _, ranks = np.unique(np.where(known, data, 0), return_inverse=True)
    return ranks.reshape(-1), known
