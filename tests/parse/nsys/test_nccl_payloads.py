"""NCCL's payloads in nsys exports: message sizes, ranks, groups."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from pyprof.parse.formats.collective_records import collective, of_elements, of_message
from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import Table
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, thread, write
from tests.paths import GOLDEN

CAPTURE = GOLDEN / "h200x4_collectives.sqlite.gz"
ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
COMMUNICATOR, SIZE = "NCCL communicator ID", "Message size [bytes]"
# As NCCL 2.28 describes them: a size_t is 22, an int 5, a uint64_t 18, an enumeration its schema's number.
SCHEMAS = {
    ENTRIES: [
        (1, 2, 0, COMMUNICATOR, 18, None),
        (1, 2, 1, "No. of ranks", 5, 8),
        (1, 2, 2, "Rank", 5, 12),
        (1, 5, 0, COMMUNICATOR, 18, None),
        (1, 5, 1, SIZE, 22, 8),
        (1, 5, 2, "Reduction operation", 99, 16),
        (1, 6, 0, COMMUNICATOR, 18, None),
        (1, 6, 1, SIZE, 22, 8),
        (1, 6, 2, "Peer rank", 5, 16),
    ],
    "NVTX_PAYLOAD_ENUMS": [(1, 99, 4)],
    "NVTX_PAYLOAD_ENUM_ENTRIES": [(1, 99, 0, "Sum", None), (1, 99, 1, "Max", 2)],
}


def blob(schema: int, data: bytes) -> bytes:
    """One payload: how many, its schema, size and offset, and the data."""
    return struct.pack("<QQQQ", 1, schema, len(data), 32) + data


def nccl(start: int, end: int, name: str, payload: bytes | str | None = None, pid: int = 7) -> tuple[Any, ...]:
    words, data = (payload, None) if isinstance(payload, str) else (None, payload)
    return (start, end, 59, name, None, thread(pid, 1), 1, None, words, None, data)


def joined(pid: int = 7, ranks: int = 4, rank: int = 1) -> tuple[Any, ...]:
    return nccl(1, 2, "ncclCommInitRank", blob(2, struct.pack("<Qii", 77, ranks, rank)), pid)


def captured(path: Path, *events: tuple[Any, ...], at: int = 10, **tables: list[tuple[Any, ...]]) -> Table:
    """A kernel launched at ``at`` by process 7 among these ranges."""
    rows = {KERNEL: [kernel(100, 1)], API: [call(at, 1)], NVTX: list(events), **SCHEMAS, **tables}
    return correlate(read(write(path / "net.sqlite", **rows)))


def messages_of(table: Table, row: int = 0) -> Any:
    text = table.coded("comm").texts()[row]
    return json.loads(text) if text else None


def test_bytes_are_read_by_their_schema(tmp_path: Path) -> None:
    table = captured(tmp_path, joined(), nccl(5, 20, "ncclAllReduce", blob(5, struct.pack("<QQI", 77, 4096, 2))))
    assert messages_of(table) == [
        {"op": "all_reduce", "ranks": 4, "in": 4096, "out": 4096, "rank": 1, "reduction": "Max", "group": "77"}
    ]
    assert (table.coded("aten").texts(), table.coded("op").texts()) == (["ncclAllReduce"], ['["ncclAllReduce"]'])


def test_json_says_the_same(tmp_path: Path) -> None:
    made = json.dumps({COMMUNICATOR: 77, "No. of ranks": 2, "Rank": 0})
    sent = json.dumps({COMMUNICATOR: 77, SIZE: 100})
    table = captured(tmp_path, nccl(1, 2, "ncclCommInitRank", made), nccl(5, 20, "ncclAllGather", sent))
    assert messages_of(table) == [{"op": "all_gather", "ranks": 2, "in": 100, "out": 200, "rank": 0, "group": "77"}]


def test_without_the_communicators_making_the_ranks_are_unknown(tmp_path: Path) -> None:
    table = captured(tmp_path, nccl(5, 20, "ncclReduceScatter", blob(5, struct.pack("<QQI", 77, 100, 0))))
    assert messages_of(table) == [{"op": "reduce_scatter", "out": 100, "reduction": "Sum", "group": "77"}]


def test_a_group_is_launched_where_it_ends(tmp_path: Path) -> None:
    sends = [
        nccl(3, 3, "ncclSend", blob(6, struct.pack("<QQi", 77, 9, 0))),  # of its own: launched by itself
        nccl(4, 4, "ncclGroupStart"),
        nccl(5, 5, "ncclGroupStart"),
        nccl(6, 7, "ncclSend", blob(6, struct.pack("<QQi", 77, 10, 2))),
        nccl(7, 7, "ncclGroupEnd"),
        nccl(8, 9, "ncclRecv", blob(6, struct.pack("<QQi", 77, 20, 0))),
        nccl(9, 20, "ncclGroupEnd"),
    ]
    table = captured(tmp_path, joined(), *sends)
    assert messages_of(table) == [
        {"op": "send", "ranks": 4, "in": 10, "out": 0, "rank": 1, "peer": 2, "group": "77"},
        {"op": "recv", "ranks": 4, "in": 0, "out": 20, "rank": 1, "peer": 0, "group": "77"},
    ]


def test_an_op_inside_a_collective_is_no_collective(tmp_path: Path) -> None:
    inner = push(8, 12, "aten::copy_, seq = 1, op_id = 3, sizes = [[4], [4], []]")
    table = captured(tmp_path, nccl(5, 20, "ncclAllReduce", blob(5, struct.pack("<QQI", 77, 4, 0))), inner)
    assert (messages_of(table), table.coded("aten").texts()) == (None, ["aten::copy_"])


def test_the_dispatchers_op_around_it_keeps_its_name(tmp_path: Path) -> None:
    outer = push(4, 30, "c10d::allreduce_, seq = -1, op_id = 3, sizes = [[[4]], []]")
    table = captured(tmp_path, outer, nccl(5, 20, "ncclAllReduce", blob(5, struct.pack("<QQI", 77, 16, 0))))
    assert table.coded("aten").texts() == ["c10d::allreduce_"]
    assert messages_of(table)[0]["in"] == 16


def test_beside_markers(tmp_path: Path) -> None:
    marker = push(3, 40, str({"mod": "torch", "op": "all_reduce", "args": [{"name": "", "type": "int", "value": 3}]}))
    table = captured(tmp_path, marker, nccl(5, 20, "ncclAllReduce", blob(5, struct.pack("<QQI", 77, 16, 0))))
    assert messages_of(table)[0]["in"] == 16
    assert table.coded("op").texts() == ['["all_reduce"]']


@pytest.mark.parametrize(
    "payload",
    [b"", b"\1", b"\xff" * 40, blob(404, b"\0" * 24), blob(5, b"")[:20], blob(5, b"\0" * 8), blob(5, b"\0" * 24)[:50]],
)
def test_damaged_bytes_tell_nothing(tmp_path: Path, payload: bytes) -> None:
    table = captured(tmp_path, joined(), nccl(5, 20, "ncclAllReduce", payload))
    assert (messages_of(table), table.coded("op").texts()) == (None, ['["ncclAllReduce"]'])


def test_schemas_that_processes_describe_differently_mean_nothing(tmp_path: Path) -> None:
    entries = [*SCHEMAS[ENTRIES], (1, 5, 1, "Root", 5, 8)]
    table = captured(
        tmp_path, nccl(5, 20, "ncclAllReduce", blob(5, struct.pack("<QQI", 77, 4, 0))), **{ENTRIES: entries}
    )
    assert messages_of(table) is None


def test_an_export_without_the_sizes_says_how_to_have_them(tmp_path: Path) -> None:
    rows = {KERNEL: [kernel(100, 1)], API: [call(10, 1)], NVTX: [nccl(5, 20, "ncclAllReduce")], **SCHEMAS}
    (warning,) = read(write(tmp_path / "net.sqlite", **rows)).warnings
    assert "export with --include-blobs=true" in warning


@pytest.mark.parametrize(
    ("name", "op"),
    [
        *(("allreduce", "all_reduce"), ("_allgather_base", "all_gather"), ("ncclAlltoAllv", "all_to_all")),
        *(("reduce_scatter_tensor_coalesced", "reduce_scatter"), ("ncclReduce", "reduce"), ("ncclBcast", "broadcast")),
        *(("send 0->1", "send"), ("ncclCommInitRank", ""), ("wait", ""), ("gather", "gather"), ("scatter", "scatter")),
    ],
)
def test_names_of_collectives(name: str, op: str) -> None:
    assert collective(name) == op


def test_bytes_in_and_out() -> None:
    assert of_message("all_gather", 10, 4) == (10, 40)
    assert of_message("all_gather", 10, None) == (10, None)
    assert of_message("reduce_scatter", 10, 4) == (40, 10)
    assert of_message("all_to_all", 10, 4) == (40, 40)
    assert of_elements("all_gather", 3, 12, "BFloat16") == (6, 24)
    assert of_elements("send", 3, 3, "Long") == (24, 0)
    assert of_elements("recv", 3, 3, "Long") == (0, 24)
    assert of_elements("all_reduce", 3, 3, "Float6_e3m2fn") == (None, None)


def test_four_ranks_on_four_h200() -> None:
    """tests/device/collectives.py, the second time: 24 collectives of 1 MiB and 256 MiB; each rank is known."""
    table = correlate(read(CAPTURE))
    comm, ns, rank = table.coded("comm").texts(), table.ints("kDuration"), table.ints("rank")
    assert sorted(set(rank.tolist())) == [0, 1, 2, 3]
    large = [(json.loads(text), int(r)) for text, t, r in zip(comm, ns, rank, strict=True) if text and t > 400_000]
    whole, part = 1 << 28, 1 << 26
    of_rank_1 = [[(m["op"], m.get("in"), m.get("out")) for m in messages] for messages, r in large if r == 1]
    assert all(m["ranks"] == 4 and m["rank"] == r for messages, r in large for m in messages)
    assert of_rank_1 == [
        [("all_reduce", whole, whole)],
        [("all_reduce", whole // 2, whole // 2)],  # bf16
        [("all_gather", part, whole)],
        [("all_gather", part, whole)],
        [("reduce_scatter", whole, part)],
        [("broadcast", whole, whole)],
        [("reduce", whole, whole)],
        [("all_to_all", whole, whole)],
        [("send", whole, 0), ("recv", 0, whole)],
        [("send", part, 0)],  # gather: torch sends to the root
        [("recv", 0, part)],  # scatter
        [("all_reduce", part, part)] * 4,  # coalesced: one kernel
    ]
