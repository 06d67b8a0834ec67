"""Kernel table -> FLOPs, bytes, tensor cores and role of every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pyprof.prof.kernels.roles import AUX, MAIN
from pyprof.prof.work.calls import op_calls
from pyprof.prof.work.completed_arguments import completed_columns
from pyprof.prof.work.helper_kernels import fill_helpers
from pyprof.prof.work.multi_tensor import fill_multi_tensor
from pyprof.prof.work.nested_rows import fill_nested
from pyprof.prof.work.opaque_graphs import fill_opaque_graphs
from pyprof.prof.work.repeats import fill_repeats
from pyprof.prof.work.shares import fill_copies, kernels, shares
from pyprof.table.columns import NULL, Coded, Ints, Table

if TYPE_CHECKING:
    from pyprof.prof.counters.measured import Counters


@dataclass(frozen=True, slots=True)
class Annotation:
    """The results of the op models, one value per row of the table, and the counters that were joined to it."""

    flops: Ints  # NULL: unknown
    bytes: Ints  # NULL: unknown
    tc: Coded  # "1", "0", "?" (unknown), or "-" if the op has no matrix product
    tcprec: Coded  # precision that entered the tensor cores
    role: Coded  # "main", "aux" or empty
    family: Coded
    uncounted: dict[str, int]  # op whose FLOPs are unknown -> ns of its rows
    counters: Counters | None = None  # what the hardware did, by a report of Nsight Compute; None: there is none
    advice: Coded | None = None  # rules of the advice that concern a row, where somebody asked for them
    completed: Mapping[str, Coded] | None = None  # columns of ops' arguments with what the capture did not record

    def take(self, rows: Any) -> Annotation:
        """The annotation of some rows. ``uncounted`` still covers all rows; ``uncounted_of`` computes it for some."""
        coded = {name: getattr(self, name).take(rows) for name in ("tc", "tcprec", "role", "family")}
        counters = self.counters.take(rows) if self.counters is not None else None
        advice = self.advice.take(rows) if self.advice is not None else None
        completed = self.completed and {key: column.take(rows) for key, column in self.completed.items()}
        amounts = self.flops[rows], self.bytes[rows]
        return Annotation(
            *amounts, **coded, uncounted=self.uncounted, counters=counters, advice=advice, completed=completed
        )

    def with_arguments(self, table: Table) -> Table:
        """The table, in which ops have all of their arguments that are known."""
        for key, column in (self.completed or {}).items():
            table = table.with_column(key, column)
        return table


def annotate(table: Table) -> Annotation:
    """Annotate every row. Unknown FLOPs and bytes are NULL, and the op is listed in ``uncounted``."""
    calls = op_calls(table)
    role, precision, tensor_cores = kernels(table, calls)
    main = role.among(MAIN)
    flops, nbytes = shares(table, calls, main)
    fill_copies(table, flops, nbytes)
    fill_helpers(table, calls, role.among(AUX), flops, nbytes)
    fill_multi_tensor(table, calls.names, flops, nbytes)
    fill_nested(table, flops)
    fill_repeats(table, calls.names, flops, nbytes)
    fill_opaque_graphs(table, annotate, flops, nbytes)
    family = Coded.of(op.family for op in calls.counted).take(calls.signature)
    uncounted, completed = uncounted_of(table, flops), completed_columns(table, calls.completed, calls.signature)
    return Annotation(flops, nbytes, tensor_cores, precision, role, family, uncounted, completed=completed)


def uncounted_of(table: Table, flops: Ints) -> dict[str, int]:
    """The ops (or kernels, if there is no op) of rows with unknown FLOPs, with their time in ns, longest first."""
    rows = np.flatnonzero(flops == NULL)
    aten, op, name = (table.coded(key).take(rows).texts() for key in ("aten", "op", "kShortName"))
    sums: Counter[str] = Counter()
    for names, ns in zip(zip(aten, op, name, strict=True), table.ints("kDuration")[rows].tolist(), strict=True):
        sums[next(filter(None, names), "")] += ns
    return dict(sums.most_common())


def sum_known(amounts: Ints) -> int | None:
    """The sum of the known amounts; None if it is 0 and some are unknown, because unknown is not zero."""
    known = amounts != NULL
    total = int(amounts[known].sum())
    return total if total or bool(known.all()) else None
