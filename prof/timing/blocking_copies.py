"""Copies to the GPU that hold the CPU: how long, and where in the program.

A copy from pageable memory goes through a buffer of the driver's, for which the call waits. After a copy that is not
``non_blocking``, PyTorch waits until the stream is empty (aten/src/ATen/native/cuda/Copy.cu), and so for all that was
launched before. Both end with the thread's call, or with the cudaStreamSynchronize that directly follows it.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.timing.gpus import TO_DEVICE, named_rows
from pyprof.source_path import Place, place_of
from pyprof.table.columns import NULL, Bools, Ints, Table, distinct_texts
from pyprof.table.schema import first_text, list_texts


@dataclass(frozen=True, slots=True)
class BlockingCopies:
    """The copies to the GPU of one place in the program that hold the CPU."""

    op: Annotated[str, doc("what the user called, such as Tensor.to")]
    trace: Annotated[str, doc("the innermost line of the user's code; empty: none is outside of installed packages")]
    rows: Annotated[int, doc("number of copies")]
    pageable: Annotated[int, doc("how many of them the capture says are from pageable memory")]
    pinned: Annotated[int, doc("and from pinned memory")]
    held_ns: Annotated[int, doc("duration of their calls and of the synchronisations that directly follow these")]
    copy_ns: Annotated[int, doc("their own time on the GPU")]
    library: Annotated[str, doc("the line of an installed package that the line leads to; empty: none")] = ""


def blocking_copies(table: Table) -> list[BlockingCopies]:
    """The places with copies to the GPU that hold the CPU, the longest first. Without API calls, none are found."""
    rows = np.flatnonzero(_blocking(table))
    places, group = call_places(table, rows)
    call, wait = (np.where(column == NULL, 0, column) for column in (_of(table, "apiDuration"), _of(table, "apiSync")))
    pageable, pinned = (named_rows(table, name) for name in ("Pageable", "Pinned"))
    sums = [
        np.bincount(group, weights=column[rows], minlength=len(places)).astype(np.int64).tolist()
        for column in (np.ones(len(table)), pageable, pinned, call + wait, np.maximum(table.ints("kDuration"), 0))
    ]
    found = [
        replace(BlockingCopies(op, place.line, *numbers), library=place.library)
        for (op, place), numbers in zip(places, zip(*sums, strict=True), strict=True)
    ]
    return sorted(found, key=lambda place: (-place.held_ns, place.trace, place.op))


def call_places(table: Table, rows: Ints) -> tuple[list[tuple[str, Place]], Ints]:
    """The distinct calls in the program that these rows were made by, and the number of each row's call.

    A call is its name and its place; the callers of that line may differ.
    """
    keys, group = distinct_texts(*(table.coded(key).take(rows) for key in ("op", "aten", "trace")))
    names = [(first_text(op) if op else aten, place_of(list_texts(trace) if trace else ())) for op, aten, trace in keys]
    number = {place: i for i, place in enumerate(dict.fromkeys(names))}
    return list(number), np.array([number[place] for place in names], np.int64)[group]


def _of(table: Table, key: str) -> Ints:
    """A column of durations, of which a damaged table may have negative ones."""
    column = table.ints(key)
    return np.where(column < 0, NULL, column)


def _blocking(table: Table) -> Bools:
    """Copies from the host to a GPU whose call waits: from pageable memory, not asynchronous, lasting into its copy, or
    followed by a synchronisation.
    """
    start, api, took = table.ints("start"), table.ints("apiStart"), _of(table, "apiDuration")
    known = (api != NULL) & (took != NULL)
    to_device = table.coded("kind").among("memcpy") & named_rows(table, *TO_DEVICE) & known
    called = np.where(known, api + np.where(known, took, 0), NULL)
    half = start + np.maximum(table.ints("kDuration"), 0) // 2
    lasts = ~named_rows(table, "Pinned") & (start != NULL) & (called >= half)
    is_async = table.coded("api").where(lambda name: "Async" in name)
    waits = named_rows(table, "Pageable") | ~is_async | lasts | (_of(table, "apiSync") != NULL)
    found: Bools = to_device & waits
    return found
