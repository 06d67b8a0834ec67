"""Ranks that wait for each other."""

import json
from pathlib import Path

import numpy as np

from pyprof.parse.cli import main as parse
from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.load import load_table
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.sentences import sentences
from pyprof.prof.timing.stragglers import Last, Stragglers, stragglers
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Coded, Table
from tests.paths import GOLDEN

CAPTURE = GOLDEN / "h200x4_collectives.sqlite.gz"
REDUCE, GATHER, SEND = "all_reduce", "all_gather", "send"


def table(*rows: tuple[int, str, int], group: str = "0", ranks: int = 2, known: bool = True) -> Table:
    """(rank, collective, ns) of each row in order of start; without ``known`` neither ranks nor records."""
    told = [json.dumps([{"op": op, "ranks": ranks, "in": 8, "out": 8, "group": group}]) for _, op, _ in rows]
    ranked = np.array([rank for rank, _, _ in rows], np.int64)
    return Table(
        len(rows),
        {
            "comm": Coded.of(told if known else [""] * len(rows)),
            "kShortName": Coded.of(f"ncclDevKernel_{op}_RING_LL" for _, op, _ in rows),
            "kind": Coded.of(["kernel"] * len(rows)),
            "rank": ranked if known else np.full(len(rows), NULL),
            "pid": ranked + 500,
            "start": np.arange(len(rows)),
            "kDuration": np.array([ns for _, _, ns in rows], np.int64),
        },
    )


def found(rows: Table) -> Stragglers:
    return stragglers(rows, annotate(rows))


def test_what_is_longer_than_the_shortest_is_waiting() -> None:
    late = found(
        table((0, REDUCE, 90), (1, REDUCE, 50), (1, GATHER, 70), (0, GATHER, 40), (0, REDUCE, 10), (1, REDUCE, 9))
    )
    assert late.wait.tolist() == [40, 0, 30, 0, 1, 0]
    waiting = late.waiting
    assert (waiting.collectives, waiting.ns, waiting.wait_ns, waiting.by) == (3, 269, 71, "rank")
    assert waiting.last == (Last(1, 2, 41), Last(0, 1, 30))


def test_three_ranks_wait_for_the_slowest_as_long_as_the_first_to_come() -> None:
    waiting = found(table((0, REDUCE, 90), (1, REDUCE, 50), (2, REDUCE, 20), ranks=3)).waiting
    assert (waiting.wait_ns, waiting.last) == (100, (Last(2, 1, 70),))


def test_without_records_the_kernels_names_match() -> None:
    late = found(table((0, REDUCE, 90), (1, REDUCE, 50), known=False))
    assert (late.wait.tolist(), late.waiting.by) == ([40, 0], "process")
    assert late.waiting.last == (Last(501, 1, 40),)


def test_nothing_is_said_where_ranks_or_calls_are_missing() -> None:
    nothing = [
        table((0, REDUCE, 90), (0, REDUCE, 50)),  # one rank
        table((0, REDUCE, 90), (1, REDUCE, 50), ranks=4),  # two of four
        table((0, REDUCE, 90), (1, REDUCE, 50), (0, REDUCE, 9)),  # one capture is longer
        table((0, REDUCE, 90), (1, GATHER, 50)),  # another order
        table((0, SEND, 90), (1, SEND, 50)),  # no call of all
        table((0, "broadcast", 90), (1, "broadcast", 50)),  # from one: it may end before the others
        table((0, SEND, 90), (1, SEND, 50), known=False),
    ]
    for rows in nothing:
        late = found(rows)
        assert (late.wait.tolist(), late.waiting.last) == ([NULL] * len(rows), ())


def test_two_groups_are_apart() -> None:
    first, second = table((0, REDUCE, 90), (1, REDUCE, 50)), table((1, REDUCE, 7), (0, REDUCE, 5), group="1")
    assert found(Table.concat([first, second])).wait.tolist() == [40, 0, 2, 0]


def test_two_ranks_of_ddp(data: Path, tmp_path: Path) -> None:
    """Two traces: rank 1's five all_reduce take 1843, 1029, 2798, 1533 and 2266 us, rank 0's 170, 144, 160, 176,
    616."""
    files = [str(data / "kineto" / f"h200x2_gpt2_ddp_rank{rank}.json.gz") for rank in (0, 1)]
    assert parse([*files, "-q", "-o", str(tmp_path / "net.parquet")]) == 0
    rows = load_table(str(tmp_path / "net.parquet")).table
    notes = annotate(rows)
    waiting = stragglers(rows, notes).waiting
    longer = [1843000 - 170431, 1029116 - 143999, 2798100 - 160447, 1533498 - 175904, 2265655 - 616476]
    assert (waiting.collectives, waiting.wait_ns) == (5, sum(longer))
    assert waiting.last == (Last(0, 5, sum(longer)),)
    said = " ".join(sentences(summarise(rows, notes)))
    assert " Rank 0 holds the others up: the other rank waits " in said
    assert "not counting the wait for other ranks" in said and "213.9 GB/s in " in said and "(542.2 MB)" in said


def test_one_clock_shows_the_same_waits() -> None:
    """Four ranks in one nsys file: the last to start is the last to come, where the waits are longer than the start of
    a kernel on all blocks (some us)."""
    rows = correlate(read(CAPTURE))
    wait = stragglers(rows, annotate(rows)).wait
    start, end = rows.ints("start"), rows.ints("start") + rows.ints("kDuration")
    long = np.flatnonzero(wait > 50_000)
    assert len(long) >= 5
    for row in long.tolist():
        meets = (wait != NULL) & (start < end[row]) & (end > start[row]) & (abs(end - end[row]) < 40_000)
        assert abs((start[meets].max() - start[row]) - wait[row]) < 40_000
