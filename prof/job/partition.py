"""One file of a job, parsed: a container of its tables, the tables of its ranks, and a record of where they came from.

    job/rank3.json-1f0c9a2b.pyprof/    the container (pyprof/table/container.py)
    job/rank3.json-1f0c9a2b.ranks/     steps.parquet, collectives.parquet, work.parquet, idle.parquet,
                                       and partition.json, without which the partition counts as unfinished

``make_partition`` runs on a worker, which may be another machine with the same file system.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import fields
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta

from pyprof._version import __version__
from pyprof.command.json_schema import Record, doc
from pyprof.errors import InputError, PyprofError
from pyprof.parse.read import Parsed, read_profile
from pyprof.prof.job.sources import local_copy, rank_in_name
from pyprof.prof.ranks.rank_tables import SCHEMAS, RankTables, rank_tables
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Ints, Table, distinct
from pyprof.table.container import Container, write_container
from pyprof.text import clean

RECORD, LARGEST_RECORD = "partition.json", 1 << 20  # bytes
_CHUNK = 1 << 22
RankSource = Literal["the file's name", "the capture", "the order of the files"]


class Partition(Record):
    """A file of the job and what came of it."""

    file: Annotated[str, doc("its name, as found")]
    folder: Annotated[str, doc("of its tables within the job's folder, without the ending; empty: the file failed")]
    digest: Annotated[str, doc("of the file's content")]
    ranks: Annotated[list[int], doc("ranks whose kernels it has")]
    rank_from: Annotated[RankSource, doc("where that number comes from")]
    rows: Annotated[int, doc("number of its kernels, copies and memsets"), Meta(ge=0)]
    profiler: Annotated[str, doc("that recorded it")]
    warnings: Annotated[list[str], doc("of its reader")]
    error: Annotated[str, doc("why there are no tables; empty: there are")]
    version: Annotated[str, doc("of the pyprof that read it")]
    reused: Annotated[bool, doc("whether an earlier run had read the same content")] = False


def make_partition(file: str, job: str, place: int) -> Partition:
    """Read a file into the job's folder, or find that it has been read. A file that cannot be read gets an error.

    ``place``: the file's place in the job, its rank where neither name nor capture says one.
    """
    try:
        with local_copy(file) as copy:
            digest = _digest(copy)
            folder = f"{clean(PurePosixPath(file).name)[:80]}-{_short(file)}"
            before = _read_record(Path(job, f"{folder}.ranks", RECORD))
            same = before is not None and (before.digest, before.version, before.file) == (digest, __version__, file)
            if before is not None and same and _has_tables(Path(job), before):
                return msgspec.structs.replace(before, reused=True)
            return _made(file, copy, digest, Path(job), folder, place)
    except (PyprofError, OSError, MemoryError) as error:
        why = "there is not enough memory for this file" if isinstance(error, MemoryError) else str(error)
        return failed(file, why.removeprefix(f"{file}: "))


def failed(file: str, why: str) -> Partition:
    return Partition(
        file=file, folder="", digest="", ranks=[], rank_from="the capture", rows=0, profiler="", warnings=[],
        error=why, version=__version__,
    )  # fmt: skip


def _made(file: str, copy: Path, digest: str, job: Path, folder: str, place: int) -> Partition:
    parsed = read_profile(copy, host=True)
    if not len(parsed.table):
        raise InputError(file, parsed.notes.why_empty)
    table, rank_from = _ranked(parsed.table, file, place)
    warnings = tuple(parsed.notes.warnings)
    write_container(_container(file, parsed, table, warnings), job / f"{folder}.pyprof", force=True)
    partition = Partition(
        file=file,
        folder=folder,
        digest=digest,
        ranks=sorted({int(rank) for rank in table.ints("rank") if rank != NULL}),
        rank_from=rank_from,
        rows=len(table),
        profiler=parsed.notes.profiler,
        warnings=[*warnings, *_processes(table)],
        error="",
        version=__version__,
    )
    _write_tables(rank_tables(table, annotate(table)), partition, job / f"{folder}.ranks")
    return partition


def _container(file: str, parsed: Parsed, table: Table, warnings: tuple[str, ...]) -> Container:
    rank = table.ints("rank")
    one = int(rank[0]) if len(rank) and (rank == rank[0]).all() else None  # of a file with several, each names its own
    memory, host = parsed.memory, parsed.host
    if one is not None and one != NULL:
        memory = None if memory is None else memory.with_column("rank", _all(one, len(memory)))
        host = None if host is None else host.with_column("rank", _all(one, len(host)))
    return Container(table, memory, parsed.notes.profiler, (file,), warnings, host)


def _all(rank: int, rows: int) -> Ints:
    return np.full(rows, rank, np.int64)


def _ranked(table: Table, file: str, place: int) -> tuple[Table, RankSource]:
    """The table with its rank: that in the file's name first, then the capture's, then the file's place."""
    recorded = {int(rank) for rank in set(table.ints("rank").tolist()) if rank != NULL}
    if len(recorded) > 1:
        return table, "the capture"
    named = rank_in_name(file)
    if named is not None:
        return table.with_column("rank", _all(named, len(table))), "the file's name"
    if recorded:
        return table.with_column("rank", _all(recorded.pop(), len(table))), "the capture"
    return table.with_column("rank", _all(place, len(table))), "the order of the files"


def _processes(table: Table) -> list[str]:
    """A warning if rows of several processes have the same rank: nothing tells then which process is which rank."""
    pid, rank = table.ints("pid"), table.ints("rank")
    known = (pid != NULL) & (rank != NULL)
    most = max(Counter(rank for rank, _ in distinct(rank[known], pid[known])[0]).values(), default=1)
    said = f"{most} processes of a file count as one rank: the capture does not say which ranks they are"
    return [said] if most > 1 else []


def _digest(file: Path) -> str:
    """Of a file's content; of a folder, of the names, sizes and times of its files."""
    found = blake2b(digest_size=16)
    if file.is_dir():
        for entry in sorted(os.scandir(file), key=lambda entry: entry.name):
            found.update(f"{entry.name} {entry.stat().st_size} {entry.stat().st_mtime_ns}\n".encode())
        return found.hexdigest()
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _short(name: str) -> str:
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


def _write_tables(ranks: RankTables, partition: Partition, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{target.name[:100]}.", dir=target.parent) as scratch:
        made = Path(scratch, "made")
        made.mkdir()
        for each in fields(RankTables):
            pq.write_table(getattr(ranks, each.name), made / f"{each.name}.parquet", compression="zstd")
        (made / RECORD).write_bytes(msgspec.json.encode(partition))
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)


def _read_record(file: Path) -> Partition | None:
    """The record of a finished partition; None if there is none, or it cannot be read."""
    try:
        if file.stat().st_size > LARGEST_RECORD:
            return None
        return msgspec.json.decode(file.read_bytes(), type=Partition)
    except (OSError, msgspec.MsgspecError):
        return None


def _has_tables(job: Path, partition: Partition) -> bool:
    """Whether the partition's tables are there with the columns that this version reads."""
    try:
        return all(
            pq.read_schema(job / f"{partition.folder}.ranks" / f"{name}.parquet").equals(schema)
            for name, schema in SCHEMAS.items()
        )
    except (OSError, pa.ArrowException):
        return False


def read_tables(job: Path, partition: Partition) -> RankTables:
    """The rank tables of a partition. Raises InputError if one is missing or has other columns."""
    tables: dict[str, pa.Table] = {}
    for name, schema in SCHEMAS.items():
        file = job / f"{partition.folder}.ranks" / f"{name}.parquet"
        try:
            tables[name] = pq.read_table(file, schema=schema)
        except (OSError, pa.ArrowException) as error:
            raise InputError(file, unreadable(file, error)) from error
    return RankTables(**tables)


def unreadable(file: Path, error: OSError | pa.ArrowException) -> str:
    """What is wrong with a table of the job, of which Arrow's message may be no more than its path."""
    what = "there is no such file" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
    return f"expected the job's table {file.stem}: {what}; make the job anew"
