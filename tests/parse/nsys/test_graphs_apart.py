"""Graphs that were captured before the range of steps, against the same steps without graphs, both measured on an H200.

tests/device/graphs.py made the captures. With graphs, nsys wrote two reports (``--capture-range-end=repeat:2``): one of
the capture, one of the steps.
"""

from collections import Counter

import numpy as np
import pytest

from pyprof.parse.attribute import reasons
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Table
from pyprof.table.graph_replays import launched_by_graphs
from tests.paths import GOLDEN

GRAPHS = GOLDEN / "graphs"
STEP = 2
COPIES = ("aten::copy_", "aten::_foreach_copy_")  # of inputs into a graph's own tensors


def read(program: str, *captures: str) -> Table:
    files = [str(GRAPHS / f"h200_{name}.sqlite.gz") for name in (program, *captures)]
    return load_table(files[0], graphs=files[1:]).table


def work(table: Table) -> Counter[tuple[str, ...]]:
    """FLOPs, bytes and kernels of each op in each layer in a step, without copies; a kernel has its own share."""
    found = annotate(table)
    found_of: Counter[tuple[str, ...]] = Counter()
    texts = [table.coded(key).texts() for key in ("op", "layer", "dir", "aten", "sizes")]
    here = np.flatnonzero(table.ints("step") == STEP).tolist()
    for row in here:
        key = tuple(column[row] for column in texts)
        if key[3] not in COPIES:
            for name, amount in (("flops", found.flops[row]), ("bytes", found.bytes[row])):
                found_of[(*key, name)] += 0 if amount == NULL else int(amount)
            found_of[(*key, "rows")] += 1
    return found_of


@pytest.mark.parametrize("program", ["decode", "callables"])
def test_replayed_kernels_have_the_work_and_the_layers_of_the_same_step_without_graphs(program: str) -> None:
    eager, graphed = read(f"{program}_eager"), read(f"{program}_steps", f"{program}_capture")
    by_graph = launched_by_graphs(graphed)
    assert by_graph.sum() == {"decode": 2 * 98, "callables": 2 * 92}[program]
    for key in ("op", "layer"):
        assert all(np.array(graphed.coded(key).texts())[by_graph])
    assert work(graphed) == work(eager)


def test_the_products_of_a_decode_step_are_those_counted_by_hand() -> None:
    """Batch 8, width 512: qkv, out, up and down in 6 blocks, and the head; keys and values of 256 places, 8 heads."""
    table = read("decode_steps", "decode_capture")
    flops, here = annotate(table).flops, table.ints("step") == STEP
    of = {op: int(flops[here & (np.array(table.coded("op").texts()) == f'["{op}"]')].sum()) for op in ("linear",)}
    assert of["linear"] == 6 * 2 * 8 * 512 * (1536 + 512 + 2048 + 2048) + 2 * 8 * 512 * 4096
    attention = here & (np.array(table.coded("op").texts()) == '["scaled_dot_product_attention"]')
    assert int(flops[attention].max()) >= 2 * 2 * 8 * 8 * 256 * 64


def test_without_the_report_of_the_capture_the_kernels_have_no_op() -> None:
    """The report of the steps has the creation of the nodes, too, but no range around it."""
    table = read("decode_steps")
    assert set(np.array(table.coded("reason").texts())[launched_by_graphs(table)]) == {reasons.GRAPH_REPLAY}
