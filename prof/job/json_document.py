"""What pyprof ranks prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.command.json_schema import Record, doc
from pyprof.prof.job.job_folder import Job
from pyprof.prof.job.merged_ranks import complete
from pyprof.prof.job.partition import Partition
from pyprof.prof.job.slow_ranks import SlowRank, Waits, mean_step_ns, rank_files, slow_ranks, steps_of, waits

MOST_MISSING = 1000  # numbers of ranks that are listed


class CollectiveKind(Record):
    """All collectives of one kind in one communicator."""

    op: Annotated[str, doc("all_reduce, all_gather, reduce_scatter, all_to_all; a kernel's name: none is recorded")]
    group: Annotated[str, doc("the communicator; empty: not recorded")]
    ranks: Annotated[int, doc("ranks that take part, of those in the job")]
    calls: Annotated[float, doc("per step")]
    complete: Annotated[bool, doc("whether all ranks of the communicator are in the job with the same sequence")]
    ns: Annotated[float, doc("time per step and rank, the waiting included")]
    wait_ns: Annotated[float | None, doc("of that, the wait until the last rank came; null: not all ranks are here")]
    bus_gbps: Annotated[
        float | None, doc("bytes that a rank must send per time without the wait, GB/s; null: not known")
    ]


class JobDocument(Record):
    """A job: the files of its ranks, the collectives in which they meet, and the ranks that others wait for."""

    folder: Annotated[str, doc("of the job")]
    files: Annotated[list[Partition], doc("that were found, in order")]
    ranks: Annotated[list[int], doc("numbers of the ranks")]
    missing: Annotated[list[int], doc("ranks that the numbering leaves out, below the highest; the first 1,000")]
    steps: Annotated[int, doc("steps per capture; 0: none are marked, and amounts per step are those per capture")]
    step_ns: Annotated[float, doc("the mean step of all ranks and steps")]
    kernels: Annotated[int, doc("kernels, copies and memsets of all ranks")]
    gpu_ns: Annotated[int, doc("their time")]
    flops: Annotated[int, doc("of those kernels for which they are known")]
    slow: Annotated[list[SlowRank], doc("ranks that others wait for, the most waited for first")]
    waits: Annotated[Waits, doc("how long each rank waited for others in each step")]
    collectives: Annotated[list[CollectiveKind], doc("by kind, the longest first")]


def job_document(job: Job) -> JobDocument:
    ranks = sorted(rank_files(job))
    work = job.tables.work
    return JobDocument(
        folder=str(job.folder),
        files=job.files,
        ranks=ranks,
        missing=_missing(ranks),
        steps=len(pc.unique(job.tables.steps["step"].drop_null())),
        step_ns=mean_step_ns(job),
        kernels=sum(each.rows for each in job.made),
        gpu_ns=int(pc.sum(work["ns"]).as_py() or 0),
        flops=int(pc.sum(work["flops"]).as_py() or 0),
        slow=slow_ranks(job),
        waits=waits(job),
        collectives=_kinds(job),
    )


def _missing(ranks: list[int]) -> list[int]:
    """The first of the numbers below the highest rank that no rank has. A file may call itself rank 2 ** 31."""
    found: list[int] = []
    for number, rank in enumerate(ranks):
        first = ranks[number - 1] + 1 if number else 0
        found += range(first, min(rank, first + MOST_MISSING - len(found)))
    return found


def _kinds(job: Job) -> list[CollectiveKind]:
    whole = job.tables.collectives
    together = complete(whole, len(rank_files(job)))
    steps = steps_of(job)
    sums = [("arrived", "max"), ("arrived", "sum"), ("total_ns", "sum"), ("place", "count")]
    found = []
    matched = {_key(row): row for row in _measured(together)}
    for row in whole.group_by(["op", "group", "ranks"]).aggregate(sums).to_pylist():
        match = matched.get(_key(row))
        all_here = match is not None and match["place_count"] == row["place_count"]
        present = row["arrived_max"]
        calls = row["arrived_sum"] / present / steps
        found.append(
            CollectiveKind(
                op=row["op"],
                group=row["group"],
                ranks=present,
                calls=calls,
                complete=all_here,
                ns=row["total_ns_sum"] / present / steps,
                wait_ns=None if match is None else match["waited_sum"] / present / steps,
                bus_gbps=None if match is None or not match["moving_sum"] else match["wire_sum"] / match["moving_sum"],
            )
        )
    return sorted(found, key=lambda kind: (-kind.ns, kind.op, kind.group))


def _key(row: dict[str, Any]) -> tuple[object, ...]:
    return row["op"], row["group"], row["ranks"]


def _measured(together: pa.Table) -> list[dict[str, Any]]:
    """Sums of complete collectives by kind: the wait, and bytes and time of those whose size is on record."""
    waited = pc.subtract(together["total_ns"], pc.multiply(together["arrived"], together["least_ns"]))
    wire = np.asarray(together["wire"], np.float64)
    sized = np.isfinite(wire)
    moving = np.where(sized, np.asarray(together["least_ns"]), 0)
    added = (
        together.append_column("waited", waited)
        .append_column("moving", pa.array(moving))
        .drop_columns(["wire"])
        .append_column("wire", pa.array(np.where(sized, wire, 0.0)))
    )
    sums = [("waited", "sum"), ("moving", "sum"), ("wire", "sum"), ("place", "count")]
    rows: list[dict[str, Any]] = added.group_by(["op", "group", "ranks"]).aggregate(sums).to_pylist()
    return rows
