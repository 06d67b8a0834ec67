"""What the reduction of many ranks costs: real ranks replicated with jitter and a straggler, by pyprof's functions.

    python tools/simulate_ranks.py 64 1024 16384

Each made-up rank has the tables of a rank of tests/golden/ranks: the steps, work and collectives of FSDP in one
communicator of all ranks, and tensor parallel all-reduces in communicators of eight. Arrivals vary by up to 0.2 ms, and
the straggler comes 6 ms late to each step's first collective. Times are CPU times of this process, so that other
programs on the machine count little. Files are neither written nor read; docs/scale.md adds what that costs.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyprof.prof.job.workers import TREE
from pyprof.prof.load import load_table
from pyprof.prof.ranks.merged_ranks import (
    JobTables,
    Ranks,
    clocks_of,
    complete,
    job_tables,
    matched,
    merged,
    waits_of,
)
from pyprof.prof.ranks.pace import pace
from pyprof.prof.ranks.rank_tables import RankTables, rank_tables
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Ints

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "ranks"
TENSOR = 8  # ranks of a tensor parallel communicator
JITTER_NS, LATE_NS = 200_000, 6_000_000


def real(case: str) -> RankTables:
    table = load_table(GOLDEN / f"{case}.parquet").table
    return rank_tables(table, annotate(table)).of([0])


class MadeUp:
    """The tables of any rank of a job of so many ranks."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.straggler = ranks, ranks // 2 + 1
        self.whole, self.tensor = real("fsdp.data"), real("tp.host").collectives

    def of(self, ranks: Sequence[int]) -> RankTables:
        """The tables of these ranks."""
        numbers = np.asarray(ranks, np.int64)
        tables = {name: self._repeated(getattr(self.whole, name), numbers) for name in ("steps", "work", "idle")}
        steps = tables["steps"]
        late = np.asarray(steps["idle_host_ns"]) + np.where(np.asarray(steps["rank"]) == self.straggler, LATE_NS, 0)
        tables["steps"] = _with(steps, "idle_host_ns", late)
        whole = self._waiting(self._repeated(self.whole.collectives, numbers), self.ranks)
        tensor = self._waiting(self._repeated(self.tensor, numbers), TENSOR)
        return RankTables(collectives=pa.concat_tables([whole, tensor]), **tables)

    def _repeated(self, table: pa.Table, numbers: Ints) -> pa.Table:
        made = pa.concat_tables([table] * len(numbers)).combine_chunks()
        return _with(made, "rank", np.repeat(numbers, len(table)))

    def _waiting(self, table: pa.Table, ranks: int) -> pa.Table:
        """Collectives whose kernels take as long as the last rank comes later, and 1 ms for the data."""
        number, first = np.asarray(table["rank"]), np.asarray(table["place"]) == 0
        with_straggler = (number // TENSOR == self.straggler // TENSOR) | (ranks == self.ranks)
        last = np.where(first & with_straggler, LATE_NS, JITTER_NS)
        arrival = np.random.default_rng(int(number[0])).integers(0, JITTER_NS, len(table))
        arrival = np.where(first & (number == self.straggler), LATE_NS, arrival)
        ns = last - arrival + 1_000_000
        groups = [f"tensor {each}" if ranks == TENSOR else "0" for each in (number // TENSOR).tolist()]
        for name, values in {"group": groups, "ranks": np.full(len(ns), ranks), "ns": ns, "alone_ns": ns}.items():
            table = _with(table, name, values)
        return table


def _with(table: pa.Table, name: str, values: Any) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, name, pa.array(values, table.schema.field(place).type))


class Timed:
    """CPU times of tasks by phase, and the size of what each returns."""

    def __init__(self) -> None:
        self.phases: dict[str, list[tuple[float, int]]] = {}

    def __call__(self, phase: str, task: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        begin = time.process_time()
        found = task()
        self.phases.setdefault(phase, []).append((time.process_time() - begin, size(found)))
        return found


def _bytes(tables: JobTables) -> int:
    return sum(getattr(tables, name).nbytes for name in ("steps", "collectives", "work", "idle"))


def reduced(job: MadeUp, timed: Timed) -> Ranks:
    """The job's ranks, reduced as ``pyprof ranks`` does it: in a tree, then each part's waits against the result."""
    chunks = [range(low, min(low + TREE, job.ranks)) for low in range(0, job.ranks, TREE)]
    level: list[JobTables] = []
    for chunk in chunks:
        made = job.of(chunk)
        level.append(timed("merge, level 1", lambda: job_tables(made), _bytes))  # noqa: B023
    number = 1
    while len(level) > 1:
        number += 1
        parts = [level[low : low + TREE] for low in range(0, len(level), TREE)]
        level = [timed(f"merge, level {number}", lambda: merged(part), _bytes) for part in parts]  # noqa: B023
    tables = level[0]
    together = timed("complete", lambda: complete(tables.collectives, job.ranks), lambda table: int(table.nbytes))
    waits, clocks = [], []
    for chunk in chunks:
        made = job.of(chunk)

        def waited() -> tuple[pa.Table, pa.Table]:
            found = matched(made, together)  # noqa: B023
            return waits_of(found), clocks_of(found)

        both = timed("waits", waited, lambda both: int(both[0].nbytes + both[1].nbytes))
        waits.append(both[0])
        clocks.append(both[1])

    return Ranks(list(range(job.ranks)), tables, pa.concat_tables(waits), pa.concat_tables(clocks), job.of)


def main(sizes: list[int]) -> None:
    for ranks in sizes:
        job, timed = MadeUp(ranks), Timed()
        result = reduced(job, timed)
        found = timed("answers", lambda: pace(result), lambda _: 0)  # noqa: B023
        slow = [
            (slow.rank, round(slow.held_ns / 1e6, 2), [cause.cause for cause in slow.causes]) for slow in found.slow
        ]
        assert slow[0][0] == job.straggler, slow
        print(f"{ranks:,} ranks: rank {slow[0][0]} holds the others up for {slow[0][1]} ms, by {slow[0][2]}")
        for phase, tasks in timed.phases.items():
            seconds, sizes_ = [task[0] for task in tasks], [task[1] for task in tasks]
            print(
                f"  {phase:15} {len(tasks):5} tasks, CPU {sum(seconds):8.2f} s, longest {max(seconds):6.2f} s, "
                f"largest result {max(sizes_) / 1e6:8.2f} MB"
            )
        whole = sum(task[0] for tasks in timed.phases.values() for task in tasks)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"  together CPU {whole:.1f} s, {1e3 * whole / ranks:.2f} ms per rank; peak memory so far {peak:,.0f} MiB"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranks", type=int, nargs="+")
    main(parser.parse_args().ranks)
