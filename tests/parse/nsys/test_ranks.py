"""Ranks of an nsys capture's processes."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, process, thread, write

ENTRIES = {"NVTX_PAYLOAD_SCHEMA_ENTRIES": [(1, 5, 0, "No. of ranks"), (1, 5, 1, "Rank")]}


def found(path: Path, **tables: list[tuple[Any, ...]]) -> dict[int, int]:
    """Process -> rank of a capture in which processes 7 and 8 launch a kernel each."""
    rows = {KERNEL: [kernel(100, 1, pid=7), kernel(100, 1, pid=8)], API: [call(10, 1, pid=7), call(10, 1, pid=8)]}
    table = correlate(read(write(path / "net.sqlite", **rows, **tables)))
    return dict(zip(table.ints("pid").tolist(), table.ints("rank").tolist(), strict=True))


def joined(pid: int, size: int, rank: int, name: int | None = None) -> tuple[Any, ...]:
    """ncclCommInitRank with its payload; ``name``: the payload's text by id."""
    text = json.dumps({"NCCL communicator ID": 5, "No. of ranks": size, "Rank": rank, "CUDA device": 0})
    return (1, 2, 59, "ncclCommInitRank", None, thread(pid, 1), 1, None, None if name else text, name)


def test_the_table_of_mpi_tells(tmp_path: Path) -> None:
    assert found(tmp_path, MPI_RANKS=[(process(7), 1), (process(8), 0)]) == {7: 1, 8: 0}


def test_a_thread_named_by_its_rank_tells(tmp_path: Path) -> None:
    names = [(1, "gemm"), (101, "gemm"), (50, "cudaLaunchKernel"), (60, "MPI Rank 12"), (61, "MPI Ranking 3")]
    assert found(tmp_path, StringIds=names, ThreadNames=[(60, 0, thread(8, 3)), (61, 0, thread(7, 3))]) == {
        7: NULL,
        8: 12,
    }


def test_the_largest_communicator_tells(tmp_path: Path) -> None:
    events = [joined(7, 2, 0), joined(7, 8, 5), joined(8, 8, 6), joined(8, 4, 1)]
    assert found(tmp_path, **{NVTX: events}, **ENTRIES) == {7: 5, 8: 6}


def test_a_payload_may_be_a_string_by_id(tmp_path: Path) -> None:
    text = '{"No. of ranks": 2, "Rank": 1}'
    names = [(1, "gemm"), (101, "gemm"), (50, "cudaLaunchKernel"), (70, text)]
    assert found(tmp_path, StringIds=names, **{NVTX: [joined(7, 0, 0, name=70)]}, **ENTRIES) == {7: 1, 8: NULL}


def test_communicators_of_one_size_that_disagree_tell_nothing(tmp_path: Path) -> None:
    assert found(tmp_path, **{NVTX: [joined(7, 2, 0), joined(7, 2, 1), joined(8, 2, 1)]}, **ENTRIES) == {7: NULL, 8: 1}


@pytest.mark.parametrize("rank", [-1, 1 << 40, "x", None, 1.5])
def test_what_is_no_rank_is_none(tmp_path: Path, rank: Any) -> None:
    assert found(tmp_path, MPI_RANKS=[(process(7), rank), (None, 1), (process(8), 3)]) == {7: NULL, 8: 3}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[" * 100_000, '{"Rank": true, "No. of ranks": 2}', '{"Rank": 9, "No. of ranks": 2}']
)
def test_a_payload_of_another_kind_tells_nothing(tmp_path: Path, text: str) -> None:
    for folder, payload in (("as_it_is", text), ("chosen", f'{text} "No. of ranks"')):
        event = (1, 2, 59, "ncclCommInitRank", None, thread(7, 1), 1, None, payload)
        (tmp_path / folder).mkdir()
        assert found(tmp_path / folder, **{NVTX: [event]}, **ENTRIES) == {7: NULL, 8: NULL}


def test_mpi_comes_before_nccl(tmp_path: Path) -> None:
    tables = {"MPI_RANKS": [(process(7), 3)], NVTX: [joined(7, 8, 5), joined(8, 8, 6)]}
    assert found(tmp_path, **tables, **ENTRIES) == {7: 3, 8: 6}


def test_an_mpi_programs_rank(data: Path) -> None:
    file = next((data / "nsys").glob("*saxpy-mpi*"))
    assert set(correlate(read(file)).ints("rank").tolist()) == {0}
