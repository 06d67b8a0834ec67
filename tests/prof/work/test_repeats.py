"""Kernels without an op that repeat kernels with one: what counts as a repetition, and what does not."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.calls import kernel_names
from pyprof.prof.work.repeats import LEAST, _length, fill_repeats, repeats, repetition
from pyprof.table.columns import NULL, Coded, Table
from tests.tables import parsed

Launch = tuple[str, bool]  # kernel, attributed


def a_table(launches: list[Launch], streams: list[int] | None = None) -> tuple[Table, Coded]:
    count = len(launches)
    known = np.array([attributed for _, attributed in launches], bool)
    columns = {
        "kind": Coded.of(["kernel"] * count),
        "aten": Coded.of(["aten::mm" if attributed else "" for attributed in known]),
        "opId": np.where(known, np.arange(count), NULL),
        "start": np.arange(count, dtype=np.int64),
        "stream": np.array(streams or [7] * count, np.int64),
    }
    return Table(count, columns), Coded.of([name for name, _ in launches])


STEP = [f"kernel {i}" for i in range(20)]


def runs(table: Table, names: Coded) -> list[tuple[list[int], list[list[int]]]]:
    return [(rows.tolist(), [copy.tolist() for copy in copies]) for rows, copies in repeats(table, names)]


def test_the_head_of_a_capture_repeats_its_next_step() -> None:
    # the last 17 kernels of one step, then a whole one
    table, names = a_table([*((name, False) for name in STEP[3:]), *((name, True) for name in STEP)])
    assert runs(table, names) == [(list(range(17)), [list(range(20, 37))])]


def test_sixteen_kernels_are_enough_and_fifteen_are_not() -> None:
    for count, expected in ((16, [(list(range(16)), [list(range(16, 32))])]), (15, [])):
        launches = [*((name, False) for name in STEP[:count]), *((name, True) for name in STEP[:count])]
        assert runs(*a_table(launches)) == expected


def test_another_kernel_in_between_is_no_repetition() -> None:
    table, names = a_table([*((name, False) for name in [*STEP[:9], "x", *STEP[10:]]), *((n, True) for n in STEP)])
    assert runs(table, names) == []


def test_a_run_of_one_kernel_proves_nothing() -> None:
    table, names = a_table([*[("fill", False)] * 30, *[("fill", True)] * 60])
    assert runs(table, names) == []


def test_streams_are_apart() -> None:
    launches = [*((name, False) for name in STEP), *((name, True) for name in STEP)]
    table, names = a_table(launches, [7] * 20 + [7] * 10 + [8] * 10)
    assert runs(table, names) == []  # the attributed run stands on two streams


def test_where_equal_runs_disagree_the_row_stays_unknown() -> None:
    table, names = a_table([*((n, False) for n in STEP), *((n, True) for n in STEP), *((n, True) for n in STEP)])
    flops, nbytes = np.full(60, NULL, np.int64), np.full(60, NULL, np.int64)
    flops[20:], nbytes[20:] = np.tile(np.arange(20), 2), 5
    flops[20] = 99  # one of the two says something else of the first kernel
    fill_repeats(table, names, flops, nbytes)
    assert flops[:20].tolist() == [NULL, *range(1, 20)]
    assert nbytes[:20].tolist() == [5] * 20


@given(seed=st.integers(0, 10_000), cut=st.integers(0, 60))
def test_a_cut_anywhere_is_found_as_its_definition_says(seed: int, cut: int) -> None:
    """Against the slow definition: the head equals the tail of the step that follows."""
    chosen = random.Random(seed)
    step = [f"kernel {chosen.randrange(40)}" for _ in range(60)]
    head = step[cut:]
    table, names = a_table([*((name, False) for name in head), *((name, True) for name in step)])
    found = runs(table, names)
    if len(head) >= LEAST and len(set(head)) >= 40:
        assert [row for rows, _ in found for row in rows] == list(range(len(head)))
    for rows, copies in found:
        for copy in copies:
            texts = names.texts()
            assert [texts[i] for i in rows] == [texts[i] for i in copy]


def test_a_real_trace_that_begins_late(data: Path) -> None:
    """H100, Qwen: 436 kernels whose launches were not seen, then the model's next pass."""
    (file,) = (data / "kineto").glob("*Qwen*")
    table = parsed(file)
    notes = annotate(table)
    texts = zip(table.coded("aten").texts(), table.coded("kind").texts(), strict=True)
    lost = np.flatnonzero(np.array([not aten and kind == "kernel" for aten, kind in texts]))
    assert len(lost) > 400
    assert (notes.flops[lost] != NULL).all() and (notes.bytes[lost] != NULL).all()
    again = repetition(table, kernel_names(table), int(lost[100]))
    assert again is not None
    assert again[1] == len(lost)  # all of them, one run
    names = table.coded("kLongName").texts()
    assert names[again[0]] == names[int(lost[100])]


def test_rows_with_an_op_repeat_nothing(data: Path) -> None:
    table, _ = a_table([(name, True) for name in STEP])
    longer = table.with_column("kLongName", Coded.of(STEP))
    assert repetition(longer, kernel_names(longer), 3) is None


@pytest.mark.parametrize("count", [0, 1, LEAST - 1])
def test_few_rows(count: int) -> None:
    table, names = a_table([(name, False) for name in STEP[:count]])
    assert repeats(table, names) == []


@pytest.mark.parametrize(
    ("key", "stream", "known", "length"),
    [  # of the second four launches: kernel, stream, and whether their op is known
        ([1, 2, 3, 4], [7, 7, 7, 7], [True] * 4, 3),  # the fourth is another kernel
        ([1, 2, 3, 9], [7, 7, 7, 7], [True] * 4, 4),
        ([1, 2, 3, 9], [7, 7, 7, 7], [True, True, False, True], 2),
        ([1, 2, 3, 9], [7, 8, 7, 7], [True] * 4, 1),
    ],
)
def test_how_far_launches_equal_known_ones(key: list[int], stream: list[int], known: list[bool], length: int) -> None:
    keys, streams = np.array([1, 2, 3, 9, *key]), np.array([7] * 4 + stream)
    assert _length(keys, streams, np.array([False] * 4 + known), slice(0, 4), 4) == length
