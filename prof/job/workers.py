"""Who reads the files of a job: Dask's workers on this machine or of a scheduler that the user names, or this process.

A worker reads one file at a time. If it dies, for example because the file takes more memory than it may have, its file
is read once more by another; if that dies too, the file has failed and the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from pyprof.cpu_record import cores
from pyprof.errors import PyprofError
from pyprof.prof.job.partition import Partition, failed, make_partition, read_tables
from pyprof.prof.ranks.merged_ranks import WAITS, JobTables, clocks_of, complete, job_tables, matched, merged, waits_of
from pyprof.prof.ranks.rank_clocks import CLOCKS
from pyprof.prof.ranks.rank_tables import RankTables

if TYPE_CHECKING:
    from distributed import Client

TREE = 32  # tables merged by one task
CONNECT_S = 20
TOGETHER = ".complete-collectives.parquet"  # in the job's folder while the waits are computed


class Workers(Protocol):
    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Call the function with each item; yields its place and the result, or the error, as they come."""


class Here:
    """This process, which needs no Dask."""

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for place, item in enumerate(items):
            try:
                result = function(item)
            except (PyprofError, OSError, MemoryError) as error:
                result = error
            yield place, result


class OnDask:
    """The workers of a Dask cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        from distributed import as_completed

        futures = {
            self._client.submit(function, item, pure=False, retries=1): place for place, item in enumerate(items)
        }
        for future in as_completed(futures, loop=self._client.loop):
            error = future.exception()
            yield futures[future], future.result() if error is None else error
            future.release()


@contextmanager
def workers(scheduler: str | None, number: int | None, memory: str | None) -> Iterator[Workers]:
    """The workers of a scheduler; or a process per core of this machine; or this process, if ``number`` is 1.

    ``memory``: what a worker of this machine may use, such as "4GiB"; by default its share of the machine's.
    Raises PyprofError if no scheduler answers at that address.
    """
    if scheduler is None and number == 1 and memory is None:
        yield Here()
        return
    import dask
    from distributed import Client, LocalCluster

    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise PyprofError(f"{scheduler}: expected a Dask scheduler, found none ({error})") from error
        with client:
            yield OnDask(client)
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
        yield OnDask(client)


def partitions(pool: Workers, files: Sequence[str], job: str, done: Callable[[Partition], None]) -> list[Partition]:
    """Each file's partition, in the files' order; ``done`` is told of each as it comes."""
    found: dict[int, Partition] = {}
    for place, result in pool.each(partial(_partition, job), list(enumerate(files))):
        found[place] = failed(files[place], why(result)) if isinstance(result, BaseException) else result
        done(found[place])
    return [found[place] for place in range(len(files))]


def _partition(job: str, numbered: tuple[int, str]) -> Partition:
    place, file = numbered
    return make_partition(file, job, place)


def why(error: BaseException) -> str:
    """What a function's error on a worker says to the user."""
    if isinstance(error, PyprofError):
        return str(error)
    if type(error).__name__ == "KilledWorker":
        return "the worker died twice while it read this file: it may need more memory (--memory)"
    return f"{type(error).__name__}: {error}"


def merged_tables(pool: Workers, job: str, made: Sequence[Partition]) -> tuple[JobTables, pa.Table, pa.Table]:
    """The tables of all partitions as one, merged by the workers in a tree; who waited for whom; their clocks."""
    parts = _parts(made)
    level = _results(pool, partial(_tables_of, job), parts)
    while len(level) > 1:
        level = _results(pool, merged, _parts(level))
    tables = JobTables(**{each.name: _copied(getattr(level[0], each.name)) for each in fields(JobTables)})
    together = complete(tables.collectives, sum(len(each.ranks) for each in made))
    if not len(together):
        return tables, WAITS.empty_table(), CLOCKS.empty_table()
    shared = Path(job, TOGETHER)
    pq.write_table(together, shared)
    try:
        found = _results(pool, partial(_waits_of, job), parts)
    finally:
        shared.unlink(missing_ok=True)
    waits, clocks = (_copied(pa.concat_tables(part)) for part in zip(*found, strict=True))
    return tables, waits, clocks


def _parts(items: Sequence[Any]) -> list[list[Any]]:
    return [list(items[place : place + TREE]) for place in range(0, len(items), TREE)]


def _results(pool: Workers, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """The results in the items' order. Raises the first error."""
    found = dict(pool.each(function, items))
    for result in found.values():
        if isinstance(result, BaseException):
            raise result
    return [found[place] for place in range(len(items))]


def _tables_of(job: str, made: Sequence[Partition]) -> JobTables:
    return job_tables(_read(job, made))


def _waits_of(job: str, made: Sequence[Partition]) -> tuple[pa.Table, pa.Table]:
    together = pq.read_table(Path(job, TOGETHER))
    found = matched(_read(job, made), together)
    return waits_of(found), clocks_of(found)


def _read(job: str, made: Sequence[Partition]) -> RankTables:
    return RankTables.concat([read_tables(Path(job), partition) for partition in made])


def _copied(table: pa.Table) -> pa.Table:
    """The table in memory of its own: the buffers of one that was sent are not aligned, of which Arrow warns."""
    return table.take(pa.array(range(len(table)), pa.int64()))
