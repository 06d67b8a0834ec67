"""What pyprof ranks prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pyprof.command.json_schema import doc
from pyprof.prof.job.job_folder import Job
from pyprof.prof.job.partition import Partition
from pyprof.prof.ranks.pace import pace
from pyprof.prof.ranks.pace_records import Pace

MOST_MISSING = 1000  # numbers of ranks that are listed


class JobDocument(Pace):
    """A job: the files of its ranks, the collectives in which they meet, and the ranks that others wait for."""

    folder: Annotated[str, doc("of the job")]
    files: Annotated[list[Partition], doc("that were found, in order")]
    missing: Annotated[list[int], doc("ranks that the numbering leaves out, below the highest; the first 1,000")]
    kernels: Annotated[int, doc("kernels, copies and memsets of all ranks")]
    gpu_ns: Annotated[int, doc("their time")]
    flops: Annotated[int, doc("of those kernels for which they are known")]


def job_document(job: Job) -> JobDocument:
    found = pace(job.ranks, job.path)
    ranks, work = found.ranks, job.tables.work
    return JobDocument(
        **msgspec.structs.asdict(found),
        folder=str(job.folder),
        files=job.files,
        missing=_missing(ranks),
        kernels=sum(each.rows for each in job.made),
        gpu_ns=sum(work["ns"].to_pylist()),
        flops=sum(work["flops"].to_pylist()),  # may exceed 64 bits, beyond which Arrow sums to less
    )


def _missing(ranks: list[int]) -> list[int]:
    """The first of the numbers below the highest rank that no rank has. A file may call itself rank 2 ** 31."""
    found: list[int] = []
    for number, rank in enumerate(ranks):
        first = ranks[number - 1] + 1 if number else 0
        found += range(first, min(rank, first + MOST_MISSING - len(found)))
    return found
