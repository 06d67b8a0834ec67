"""The folder of a job: job.json, a container and rank tables per file (``partition``), and the merged tables.

    job/job.json                 format and version, the files, and which of them failed
    job/merged-1f0c9a2b/         the merged tables of those files: steps.parquet, collectives.parquet, ...

job.json names the folder of merged tables, and is written last. So it is complete whenever it is there, and files that
it does not name are left from an interrupted run, which the next one goes on from.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta

from pyprof.errors import InputError, PyprofError
from pyprof.files import open_output
from pyprof.prof.job import JOB, is_job
from pyprof.prof.job.partition import Partition, read_tables, unreadable
from pyprof.prof.ranks.merged_ranks import WAITS, JobTables, Ranks, job_tables
from pyprof.prof.ranks.pace_records import JobPath
from pyprof.prof.ranks.rank_clocks import CLOCKS
from pyprof.prof.ranks.rank_tables import SCHEMAS, RankTables

FORMAT, VERSION = "pyprof/job", 3
LARGEST = 256 << 20  # bytes of job.json: 16,384 files have 8 MB

# What a run leaves behind that ended early or came before: merged tables, and folders that a worker was filling.
_PASSING = re.compile(r"merged-[0-9a-f]{8}|\..+-[0-9a-f]{8}\.(?:pyprof|ranks)\.\w{8}")
_OURS = re.compile(rf"{_PASSING.pattern}|.+-[0-9a-f]{{8}}\.(?:pyprof|ranks)|\.complete-collectives\.parquet")


class _Job(msgspec.Struct):
    format: str
    version: Annotated[int, Meta(ge=1)]
    merged: str = ""
    files: list[Partition] = []
    path: JobPath | None = None


@dataclass(frozen=True)
class Job:
    folder: Path
    files: list[Partition]
    tables: JobTables
    waits: pa.Table  # who waited for whom, as merged_ranks.WAITS
    clocks: pa.Table  # as rank_clocks.CLOCKS
    path: JobPath | None = None  # the critical path across its ranks

    @property
    def ranks(self) -> Ranks:
        """Its ranks; the tables of each are read when they are needed."""
        files = {rank: partition for partition in self.made for rank in partition.ranks}

        def of(ranks: Sequence[int]) -> RankTables:
            folders = {files[rank].folder: files[rank] for rank in ranks}
            return RankTables.concat([read_tables(self.folder, each) for each in folders.values()])

        names = {rank: partition.file for rank, partition in files.items()}
        return Ranks(sorted(files), self.tables, self.waits, self.clocks, of, names)

    @property
    def made(self) -> list[Partition]:
        return [each for each in self.files if not each.error]

    @property
    def failed(self) -> list[Partition]:
        return [each for each in self.files if each.error]


def prepare(folder: Path) -> None:
    """Make the folder. Raises PyprofError if it holds something that is no job's."""
    if folder.exists() and not folder.is_dir():
        raise PyprofError(f"{folder}: expected a folder for the job, found a file; give another name")
    if folder.is_dir() and not is_job(folder):
        others = sorted(entry.name for entry in os.scandir(folder) if not _OURS.fullmatch(entry.name))
        if others:
            what = f"expected a new folder or a job's, found {others[0]}"
            raise PyprofError(f"{folder}: {what}; give another name with -o")
    if not folder.absolute().parent.is_dir():
        raise PyprofError(f"{folder}: cannot be written: there is no folder {folder.parent}; make it first")
    folder.mkdir(exist_ok=True)


def write_job(job: Job) -> None:
    """Write the merged tables, then job.json; then remove those of before, and what workers that died have left."""
    digest = blake2b("".join(sorted(each.digest for each in job.made)).encode(), digest_size=4).hexdigest()
    merged = job.folder / f"merged-{digest}"
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir()
    for name, table in _tables(job.tables, job.waits, job.clocks).items():
        pq.write_table(table, merged / f"{name}.parquet", compression="zstd")
    content = _Job(FORMAT, VERSION, merged.name, job.files, job.path)
    with open_output(str(job.folder / JOB), force=True) as out:
        out.write(msgspec.json.encode(content) + b"\n")
    for entry in list(os.scandir(job.folder)):
        if _PASSING.fullmatch(entry.name) and entry.name != merged.name and entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)


def read_job(folder: Path) -> Job:
    """Read a job. Raises InputError if it is damaged, or of a version that this pyprof does not know."""
    file = folder / JOB
    try:
        if file.stat().st_size > LARGEST:
            raise InputError(file, f"expected at most {LARGEST:,} bytes, found {file.stat().st_size:,}")
        content = msgspec.json.decode(file.read_bytes(), type=_Job)
    except OSError as error:
        raise InputError(file, error.strerror or str(error)) from error
    except msgspec.MsgspecError as error:
        raise InputError(file, f"expected a job's {JOB}: {error}; make the job anew") from error
    if content.format != FORMAT or content.version != VERSION:
        what = f"expected {FORMAT} of version {VERSION}, found {content.format} of version {content.version}"
        raise InputError(file, f"{what}; make the job anew with this pyprof")
    names = [content.merged, *(each.folder for each in content.files)]
    if any(Path(name).name != name or name == ".." for name in names):
        raise InputError(file, "expected names of folders within the job, found a path; make the job anew")
    *tables, waits, clocks = (
        _table(folder / content.merged / f"{name}.parquet", schema) for name, schema in _schemas().items()
    )
    return Job(folder, content.files, JobTables(*tables), waits, clocks, content.path)


def _tables(tables: JobTables, waits: pa.Table, clocks: pa.Table) -> dict[str, pa.Table]:
    return {**{each.name: getattr(tables, each.name) for each in fields(JobTables)}, "waits": waits, "clocks": clocks}


def _schemas() -> dict[str, pa.Schema]:
    empty = job_tables(RankTables(*(schema.empty_table() for schema in SCHEMAS.values())))
    return {name: table.schema for name, table in _tables(empty, WAITS.empty_table(), CLOCKS.empty_table()).items()}


def _table(file: Path, schema: pa.Schema) -> pa.Table:
    try:
        return pq.read_table(file, schema=schema)
    except (OSError, pa.ArrowException) as error:
        raise InputError(file, unreadable(file, error)) from error
