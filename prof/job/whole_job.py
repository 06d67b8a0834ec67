"""A job as one kernel table, for the commands that read tables: prof.py, report, perfetto, plot, pyprof.load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.errors import InputError
from pyprof.parse.merge import apart, host_apart
from pyprof.prof.job.job_folder import read_job
from pyprof.prof.ranks.pace_records import JobPath
from pyprof.prof.ranks.rank_clocks import clocks
from pyprof.table.clock_shift import moved
from pyprof.table.columns import HostTable, MemoryTable, Table
from pyprof.table.container import read_container
from pyprof.table.kernel_names import name_wrappers
from pyprof.table.read_table import kernels_of

if TYPE_CHECKING:
    from pyprof.command.progress import Say

MOST_ROWS = 5_000_000  # about 3 GB in memory


@dataclass(frozen=True, slots=True)
class WholeJob:
    table: Table
    host: HostTable | None
    profiler: str
    warnings: tuple[str, ...]
    path: JobPath | None


@dataclass(frozen=True, slots=True)
class _Rank:
    table: Table
    memory: MemoryTable | None
    host: HostTable | None


def whole_job(folder: Path, say: Say, host: bool = False) -> WholeJob:
    """The kernels of all ranks by the first one's clock, and with ``host`` the host's calls.

    Clocks that no collective compares stay as they are. Raises InputError if there are too many kernels.
    """
    job = read_job(folder)
    rows = sum(each.rows for each in job.made)
    if rows > MOST_ROWS:
        one = folder / f"{job.made[0].folder}.pyprof"
        message = (
            f"expected at most {MOST_ROWS:,} GPU operations, found {rows:,}: give one rank's folder, such as {one}"
        )
        raise InputError(folder, f"{message}, or use pyprof ranks {folder}")
    ranks, ahead = [], {clock.rank: clock.ahead_ns or 0.0 for clock in clocks(job.clocks, job.ranks.numbers)}
    for partition in job.made:
        place = folder / f"{partition.folder}.pyprof"
        say(f"reading {place.name}")
        container = read_container(place)
        kernels, calls = kernels_of(container, str(place)), container.host if host else None
        back = -round(ahead[partition.ranks[0]]) if partition.ranks else 0
        ranks.append(_Rank(moved(kernels, back), None, None if calls is None else moved(calls, back)))
    table = name_wrappers(Table.concat(apart([each.table for each in ranks])))
    warnings = dict.fromkeys(text for each in job.made for text in each.warnings)
    missing = [f"{each.file} is left out: {each.error}" for each in job.failed]
    profilers = ", ".join(dict.fromkeys(each.profiler for each in job.made))
    return WholeJob(table, host_apart(ranks) if host else None, profilers, (*missing, *warnings), job.path)
