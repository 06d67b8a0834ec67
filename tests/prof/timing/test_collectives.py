"""Bytes on the wire, algorithm and bus bandwidth of collectives."""

import json
import math
from typing import Any

import numpy as np
import pytest

from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.explain import explain
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.sentences import sentences
from pyprof.prof.timing.collectives import collectives, traffic
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.collective_records import Message, messages, size_of, wire_of
from pyprof.table.columns import NULL, Coded, Table
from tests.paths import GOLDEN


def rows(*told: Any, ns: int = 1000, calls: list[int] | None = None) -> Table:
    count = len(told)
    return Table(
        count,
        {
            "comm": Coded.of(json.dumps(m) if m else "" for m in told),
            "aten": Coded.of("nccl:coalesced" if m else "" for m in told),
            "kShortName": Coded.of(["ncclDevKernel_AllReduce"] * count),
            "kind": Coded.of(["kernel"] * count),
            "kDuration": np.full(count, ns, np.int64),
            "start": np.arange(count) * 10_000,
            "opId": np.array(calls or range(count), np.int64),
        },
    )


def message(op: str, inward: int, outward: int, ranks: int = 4) -> dict[str, Any]:
    return {"op": op, "ranks": ranks, "in": inward, "out": outward}


# nccl-tests, PERFORMANCE.md, of 4 ranks: all_reduce 2 * 3 / 4 of S; gathers and scatters 3 / 4; one to all, all of it
@pytest.mark.parametrize(
    ("op", "inward", "outward", "size", "wire"),
    [
        ("all_reduce", 4000, 4000, 4000, 6000),
        ("all_gather", 1000, 4000, 4000, 3000),
        ("reduce_scatter", 4000, 1000, 4000, 3000),
        ("all_to_all", 4000, 4000, 4000, 3000),
        ("broadcast", 4000, 4000, 4000, 4000),
        ("reduce", 4000, 4000, 4000, 4000),
        ("send", 4000, 0, 4000, 4000),
        ("recv", 0, 4000, 4000, 4000),
        ("gather", 1000, 4000, 4000, 3000),
        ("scatter", 4000, 1000, 4000, 3000),
    ],
)
def test_rates(op: str, inward: int, outward: int, size: int, wire: int) -> None:
    table = rows([message(op, inward, outward)])
    notes = annotate(table)
    found = traffic(table, notes)
    assert (notes.flops.tolist(), notes.bytes.tolist()) == ([0], [inward + outward])
    assert (found.op.texts(), found.ranks.tolist(), found.wire.tolist()) == ([op], [4], [wire])
    assert (found.algbw.tolist(), found.busbw.tolist()) == ([size / 1000], [wire / 1000])


def test_one_rank_sends_nothing() -> None:
    assert wire_of(messages(json.dumps([message("all_reduce", 8, 8, ranks=1)]))) == 0


def test_sends_and_receives_go_both_ways_at_once() -> None:
    both = messages(json.dumps([message("send", 70, 0), message("send", 30, 0), message("recv", 0, 60)]))
    assert (size_of(both), wire_of(both)) == (100, 100)
    assert wire_of((*both, Message("all_reduce", 2, 8.0, 8.0))) == 108


def test_what_is_not_told_is_unknown() -> None:
    table = rows([{"op": "all_gather", "in": 10}], [{"op": "all_reduce", "in": 10, "out": 10}], None)
    notes = annotate(table)
    found = traffic(table, notes)
    assert notes.bytes.tolist()[:2] == [NULL, 20]
    assert found.wire.tolist() == found.ranks.tolist() == [NULL] * 3
    assert math.isnan(found.algbw[0])
    assert found.algbw[1] == 0.01  # S needs no ranks
    each = [(c.op, c.rows, c.moving_ns) for c in collectives(table, notes, np.full(3, NULL))]
    assert each == [("all_gather", 1, 0), ("all_reduce", 1, 0)]


def test_kernels_of_one_call_share_its_message() -> None:
    told = [message("all_reduce", 4000, 4000)]
    table = rows(told, told, calls=[5, 5])
    notes = annotate(table)
    assert traffic(table, notes).wire.tolist() == [3000, 3000]
    assert notes.bytes.tolist() == [4000, 4000]
    assert [(c.rows, c.wire, c.moving_ns) for c in collectives(table, notes, np.array([NULL, 250]))] == [
        (2, 6000, 1750)
    ]


@pytest.mark.parametrize("text", ["", "{", "[1, null]", "{}", "[" * 50_000, '[{"op": 3, "in": "x", "ranks": -1}]'])
def test_damaged_records_tell_nothing(text: str) -> None:
    assert all(math.isnan(m.wire) for m in messages(text))
    table = rows(None).with_column("comm", Coded.of([text or "x"]))
    assert traffic(table, annotate(table)).wire.tolist() == [NULL]


def test_the_bus_bandwidth_is_what_cuda_events_measured() -> None:
    """tests/device/collectives.py on four H200: the best of ten times of the slowest rank, by CUDA events, of 256 MiB;
    S in bytes, seconds, and nccl-tests' factor. Events enclose the launch's gap too: 5 us on 600."""
    whole = 1 << 28
    measured = {
        "all_reduce": whole / 1.194368e-3 * 1.5,
        "all_gather": whole / 0.672704e-3 * 0.75,
        "reduce_scatter": whole / 0.672800e-3 * 0.75,
        "broadcast": whole / 0.860896e-3,
        "reduce": whole / 0.853920e-3,
        "all_to_all": whole / 0.664608e-3 * 0.75,
        "send+recv": whole / 0.911296e-3,
    }
    table = correlate(read(GOLDEN / "h200x4_collectives_rank0.json.gz"))
    found = traffic(table, annotate(table))
    ops, large = found.op.texts(), found.wire > 100_000_000
    for op, rate in measured.items():
        best = max(found.busbw[i] for i in np.flatnonzero(large).tolist() if ops[i] == op)
        assert best * 1e9 == pytest.approx(rate, rel=0.06)


def test_the_summary_tells_and_explain_says_why() -> None:
    table = rows([message("all_reduce", 4_000_000, 4_000_000)], ns=20_000)
    notes = annotate(table)
    said = " ".join(sentences(summarise(table, notes)))
    assert "counting the wait for other ranks: 300 GB/s in 1 all_reduce among 4 ranks (6 MB)." in said
    lines = dict(explain(table, notes, 0))
    told = "all_reduce among 4 ranks, 4,000,000 bytes in, 4,000,000 bytes out"
    assert lines["collective"] == f"{told}: recorded beside the launch"
    assert lines["bandwidth"] == (
        "bus 300.0 GB/s, algorithm 200.0 GB/s: this rank must send 6,000,000 bytes, and the kernel ran 20,000 ns"
    )
