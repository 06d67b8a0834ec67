"""Kernels of CUDA graphs, joined by count and order, against what nsys recorded of each node's creation on an H200.

tests/device/graph_program.py made the capture: two linears, ReLU, GELU and a Triton kernel in a graph, replayed twice.
"""

from dataclasses import replace

from pyprof.parse.attribute import reasons
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import Coded, Table
from tests.paths import GOLDEN

OPS = ["aten::addmm", "aten::clamp_min", "aten::addmm", "aten::gelu", "Double"]


def capture() -> Capture:
    return read(GOLDEN / "h200_graph_init.sqlite.gz")


def of_replays(table: Table, key: str) -> list[str]:
    launched = table.coded("api").texts()
    return [text for text, call in zip(table.coded(key).texts(), launched, strict=True) if "GraphLaunch" in call]


def test_count_and_order_find_the_launches_that_the_nodes_name():
    by_node = capture()
    assert by_node.origin_thread is not None and (by_node.origin_thread >= 0).sum() == 10
    by_order = replace(by_node, origin_thread=None, origin_time=None)
    tables = correlate(by_node), correlate(by_order)
    assert of_replays(tables[1], "aten") == OPS * 2
    for key in ("op", "layer", "trace", "sizes", "dir", "reason"):
        assert tables[0].coded(key).texts() == tables[1].coded(key).texts()


def test_kernels_in_another_order_are_those_of_no_captured_graph():
    """Products and element-wise kernels change places, so that the products would be in clamp_min and gelu."""
    moved = capture()
    names = moved.columns["kLongName"]
    assert isinstance(names, Coded)
    rows = [row for row, node in enumerate(moved.columns["graphNode"]) if node >= 0]
    codes = names.codes.copy()
    for replay in (rows[:5], rows[5:]):
        codes[replay] = codes[[replay[1], replay[0], replay[3], replay[2], replay[4]]]
    moved = replace(moved, columns={**moved.columns, "kLongName": Coded(codes, names.values)})
    table = correlate(replace(moved, origin_thread=None, origin_time=None))
    assert of_replays(table, "aten") == [""] * 10
    assert set(of_replays(table, "reason")) == {reasons.GRAPH_KERNELS}
