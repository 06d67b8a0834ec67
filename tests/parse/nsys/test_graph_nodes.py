"""Nodes of CUDA graphs of which no launch has an operation: nsys recorded their creation, so they exist."""

import gzip
import sqlite3
from pathlib import Path

import pytest

from pyprof.parse.nsys.reader import read
from tests.parse.nsys.nsys_file import KERNEL, kernel, thread, write
from tests.paths import GOLDEN

GRAPHS = GOLDEN / "graphs"
NEVER = (
    "no operation was recorded of {} of CUDA graphs that ran: copies of no bytes or calls of the host, which have none"
)


def without(tmp_path: Path, name: str, table: str, nodes: int = 1) -> tuple[list[str], list[str]]:
    """The losses and the warnings of a report without all operations of some nodes, the first ones by number."""
    file = tmp_path / "net.sqlite"
    file.write_bytes(gzip.decompress((GRAPHS / f"{name}.sqlite.gz").read_bytes()))
    with sqlite3.connect(file) as db:
        chosen = f"SELECT DISTINCT graphNodeId FROM {table} WHERE graphNodeId IS NOT NULL ORDER BY 1 LIMIT {nodes}"
        db.execute(f"DELETE FROM {table} WHERE graphNodeId IN ({chosen})")
    db.close()
    capture = read(file)
    return [loss.why for loss in capture.losses], [text for text in capture.warnings if "CUDA graphs" in text]


@pytest.mark.parametrize(("name", "launches", "of"), [("h200_decode_capture", 4, 4), ("h200_callables_capture", 5, 10)])
def test_a_kernel_that_no_launch_of_its_graph_has_is_lost(tmp_path: Path, name: str, launches: int, of: int) -> None:
    """The capture is in the report, with the call that launched the kernel; 5 replays each of forward and backward."""
    losses, warnings = without(tmp_path, name, "CUPTI_ACTIVITY_KIND_KERNEL", nodes=2)
    assert losses == [
        f"{launches} of {of} launches of CUDA graphs lack {2 * launches} operations that the graphs captured"
    ]
    assert warnings == []


def test_a_memset_that_no_launch_has_is_said(tmp_path: Path) -> None:
    losses, (warning,) = without(tmp_path, "h200_callables_capture", "CUPTI_ACTIVITY_KIND_MEMSET")
    assert losses == []
    assert warning == f"{NEVER.format('1 node')}, or records that nsys lost"


def test_a_report_without_calls_has_nodes_of_unknown_kind(tmp_path: Path) -> None:
    """Node 2 of graph 1 is a copy of node 1, whose creation no call surrounds; node 3 ran, and so did its graph."""
    graph = 1 << 32
    created = [(10 * n, 10 * n + 1, thread(7, 1), graph + n, graph + n - 1 if n > 1 else None) for n in (1, 2, 3)]
    rows = {KERNEL: [kernel(100, 5, node=graph + 3)], "CUDA_GRAPH_NODE_EVENTS": created}
    (warning,) = [text for text in read(write(tmp_path / "net.sqlite", **rows)).warnings if "CUDA graphs that" in text]
    assert warning.startswith(NEVER.format("1 node"))


def test_where_the_capture_was_before_the_range_it_is_not_known_what_a_node_is(tmp_path: Path) -> None:
    losses, (warning,) = without(tmp_path, "h200_decode_before", "CUPTI_ACTIVITY_KIND_KERNEL", nodes=3)
    assert losses == []
    assert warning == f"{NEVER.format('3 nodes')}, or records that nsys lost"


@pytest.mark.parametrize(
    "name", ["graphs/h200_decode_before", "graphs/h200_decode_early", "graphs/h200_callables_early",
             "graphs/h200_reduce_overhead_early", "graphs/h200_generate_early",
             "graphs/h200_decode_capture", "graphs/h200_callables_capture", "graphs/h200_decode_opaque",
             "h200_gpt2_cudagraph_node", "h200_graph_init"],
)  # fmt: skip
def test_complete_reports_lack_nothing(name: str) -> None:
    capture = read(GOLDEN / f"{name}.sqlite.gz")
    assert capture.losses == []
    assert not any("no operation was recorded" in text for text in capture.warnings)
