"""Dask's workers for a job: processes of this machine, or those of a scheduler that the user names.

A worker reads one file at a time. If it dies, for example because the file takes more memory than it may have, its file
is read once more by another; if that dies too, the file has failed and the others go on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyprof.errors import PyprofError
from pyprof.prof.job.merged_ranks import WAITS, JobTables, complete, job_tables, merged, waits_of
from pyprof.prof.job.partition import Partition, failed, make_partition, read_tables

if TYPE_CHECKING:
    from distributed import Client

TREE = 32  # tables merged by one task
CONNECT_S = 20


@contextmanager
def workers(scheduler: str | None, number: int | None, memory: str | None) -> Iterator[Client]:
    """A client of the scheduler, or of a cluster of this machine with a process per core.

    ``memory``: what a worker of this machine may use, such as "4GiB"; by default its share of the machine's.
    Raises PyprofError if no scheduler answers at that address.
    """
    import dask
    from distributed import Client, LocalCluster

    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise PyprofError(f"{scheduler}: expected a Dask scheduler, found none ({error})") from error
        with client:
            yield client
        return
    quiet = {"distributed.worker.daemon": False, "distributed.admin.tick.limit": "1h"}
    with (
        dask.config.set(quiet),
        LocalCluster(
            n_workers=number or cores(),
            threads_per_worker=1,
            memory_limit=memory or "auto",
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def partitions(client: Client, files: Sequence[str], job: str, done: Callable[[Partition], None]) -> list[Partition]:
    """Each file's partition, in the files' order; ``done`` is told of each as it comes."""
    from distributed import as_completed

    futures = {
        client.submit(make_partition, file, job, place, pure=False, retries=1): place
        for place, file in enumerate(files)
    }
    found: dict[int, Partition] = {}
    for future in as_completed(futures, loop=client.loop):
        place = futures[future]
        error = future.exception()
        found[place] = failed(files[place], _why(error)) if error is not None else future.result()
        done(found[place])
        future.release()
    return [found[place] for place in range(len(files))]


def _why(error: BaseException) -> str:
    if type(error).__name__ == "KilledWorker":
        return "the worker died twice while it read this file: it may need more memory (--memory)"
    return f"{type(error).__name__}: {error}"


def merged_tables(client: Client, job: str, made: Sequence[Partition]) -> tuple[JobTables, pa.Table]:
    """The tables of all partitions as one, merged by the workers in a tree; and who waited for whom."""
    parts = [list(made[place : place + TREE]) for place in range(0, len(made), TREE)]
    level: list[Any] = [client.submit(_tables_of, job, part, pure=False) for part in parts]
    while len(level) > 1:
        level = [client.submit(merged, level[place : place + TREE], pure=False) for place in range(0, len(level), TREE)]
    sent = level[0].result()
    tables = JobTables(**{each.name: _copied(getattr(sent, each.name)) for each in fields(JobTables)})
    together = complete(tables.collectives, sum(len(each.ranks) for each in made))
    if not len(together):
        return tables, WAITS.empty_table()
    shared = client.scatter(together, broadcast=True)
    waits = [client.submit(_waits_of, job, part, shared, pure=False) for part in parts]
    return tables, _copied(pa.concat_tables(client.gather(waits)))


def _tables_of(job: str, made: Sequence[Partition]) -> JobTables:
    return merged([job_tables(read_tables(Path(job), partition)) for partition in made])


def _waits_of(job: str, made: Sequence[Partition], together: pa.Table) -> pa.Table:
    shared = _copied(together)
    return pa.concat_tables([waits_of(read_tables(Path(job), partition), shared) for partition in made])


def _copied(table: pa.Table) -> pa.Table:
    """The table in memory of its own: the buffers of one that was sent are not aligned, of which Arrow warns."""
    return table.take(pa.array(range(len(table)), pa.int64()))
