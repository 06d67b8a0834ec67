"""Graphs that pyprof recorded when they were captured, before the range of steps, against the same steps without
graphs, both measured on an H200 under pyprof.profile.

tests/device/graphs.py made the captures: ``h200_*_steps.json.gz`` with graphs, the others without.
"""

import numpy as np
import pytest

from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Table
from pyprof.table.graph_replays import launched_by_graphs
from tests.parse.nsys.test_graphs_apart import STEP, work
from tests.paths import GOLDEN


def read(name: str) -> Table:
    return load_table(str(GOLDEN / "graphs" / f"h200_{name}.json.gz")).table


@pytest.mark.parametrize(("program", "form"), [("decode", "steps"), ("decode", "let_go"), ("callables", "steps")])
def test_replayed_kernels_have_the_work_and_the_layers_of_the_same_step_without_graphs(program: str, form: str) -> None:
    """``let_go``: CUPTI was gone between the capture and the steps, and a copy is the driver's kernel memcpy32_post."""
    eager, graphed = read(f"{program}_eager"), read(f"{program}_{form}")
    drivers = sum(name == "memcpy32_post" for name in graphed.coded("kShortName").texts())
    assert drivers == (2 if form == "let_go" else 0)
    by_graph = launched_by_graphs(graphed)
    assert by_graph.sum() == {"decode": 2 * 98, "callables": 2 * 92}[program]
    for key in ("op", "layer"):
        assert all(np.array(graphed.coded(key).texts())[by_graph])
    assert work(graphed) == work(eager)


def test_the_products_of_a_decode_step_are_those_counted_by_hand() -> None:
    """Batch 8, width 512: qkv, out, up and down in 6 blocks, and the head."""
    table = read("decode_steps")
    flops, here = annotate(table).flops, table.ints("step") == STEP
    linear = here & (np.array(table.coded("op").texts()) == '["linear"]')
    assert int(flops[linear].sum()) == 6 * 2 * 8 * 512 * (1536 + 512 + 2048 + 2048) + 2 * 8 * 512 * 4096


def test_graphs_of_compiled_code_have_the_work_and_the_layers_of_the_same_code_without_graphs() -> None:
    """torch.compile(mode="reduce-overhead"): the graphs are captured inside of the compiled graph's call."""
    compiled, graphed = read("reduce_overhead_compiled"), read("reduce_overhead_steps")
    by_graph = launched_by_graphs(graphed)
    for key in ("op", "layer"):
        assert all(np.array(graphed.coded(key).texts())[by_graph])
    assert work(graphed) == work(compiled)
