"""Opaque CUDA graphs: the work inside them, against the same step without a graph, recorded on an H200."""

import json

import numpy as np
import pytest

from pyprof.errors import SchemaError
from pyprof.prof import cli
from pyprof.prof.load import load_table
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.table.check_cells import check_cells
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.opaque_graphs import opaque_graphs
from pyprof.table.columns import NULL, Coded, Table
from tests.paths import GOLDEN

GRAPHS = GOLDEN / "graphs"
OPAQUE = GRAPHS / "h200_decode_opaque.sqlite.gz"


def test_a_launch_has_the_flops_of_the_step_without_a_graph():
    opaque, eager = (load_table(str(GRAPHS / f"h200_decode_{name}.sqlite.gz")).table for name in ("opaque", "eager"))
    flops, step = annotate(eager).flops, eager.ints("step") == 2
    graphs = np.flatnonzero(opaque.coded("kind").among("graph"))
    assert len(graphs) == 6
    assert annotate(opaque).flops[graphs].tolist() == [int(flops[step & (flops != NULL)].sum())] * 6


def test_the_breakdown_has_the_launches_and_the_products_counted_by_hand():
    """97 nodes: 96 kernels and a copy, in this capture without the advance of the place."""
    table = load_table(str(OPAQUE)).table
    (graph,) = summarise(table, annotate(table)).graphs
    assert (graph.name, graph.rows, graph.launches) == ("[CUDA graph 1]", 6, 97)
    linear = graph.ops[0]
    assert (linear.name, linear.launches) == ("linear", 6 * 4 + 1)
    assert linear.flop == 6 * 2 * 8 * 512 * (1536 + 512 + 2048 + 2048) + 2 * 8 * 512 * 4096
    assert [layer.name for layer in graph.layers[:2]] == ["Decoder:blocks.0", "Decoder:blocks.1"]
    assert sum(layer.launches for layer in graph.layers) == 97
    assert sum(layer.flop or 0 for layer in graph.layers) == graph.flop


def test_summary_and_explanation_show_it(capfd):
    assert cli.main([str(OPAQUE), "--summary", "-q"]) == 0
    text = " ".join(capfd.readouterr().out.split())
    assert "Each of the 6 launches of [CUDA graph 1] runs 97 captured launches and 361.6 MFLOP: of the FLOPs" in text
    assert "Without ops, FLOPs" not in text and "take 0.0000 ms each" not in text
    assert cli.main([str(OPAQUE), "--explain", "103", "-q"]) == 0
    text = capfd.readouterr().out
    assert "linear in Decoder:head: 1 launch, 33,554,432 FLOP, 4,268,032 bytes" in text


def graph_table(*texts: str) -> Table:
    rows = len(texts)
    return Table(
        rows,
        {
            "kind": Coded.of(["graph"] * rows),
            "kLongName": Coded.of(["[CUDA graph 7]"] * rows),
            "pid": np.full(rows, 3),
            "kDuration": np.full(rows, 1000),
            "graphOps": Coded.of(texts),
        },
    )


MM = {"op": ["mm"], "mod": ["torch"], "aten": "aten::mm", "sizes": [[2, 3], [3, 4]], "dtypes": ["float32", "float32"]}


def test_calls_are_counted_as_often_as_they_were_captured():
    """A (2, 3) by (3, 4) product is 48 FLOPs and 4 * (6 + 12 + 8) = 104 bytes."""
    table = graph_table(json.dumps([{**MM, "calls": 3, "launches": 6}]), "")
    work = annotate(table)
    assert work.flops.tolist() == [144, 144] and work.bytes.tolist() == [312, 312]
    (graph,) = opaque_graphs(table, annotate)
    assert graph.launches == 6


def test_a_graph_without_calls_has_no_known_work():
    table = graph_table("[]")
    assert annotate(table).flops.tolist() == [NULL]
    assert all(len(graph.calls) == 0 for graph in opaque_graphs(table, annotate))


def test_one_unknown_call_makes_the_sum_unknown():
    table = graph_table(json.dumps([MM, {"aten": "mine::op", "op": ["op"], "sizes": [[2]]}]))
    assert annotate(table).flops.tolist() == [NULL]
    assert annotate(graph_table("")).flops.tolist() == [NULL]


@pytest.mark.parametrize("text", ["3", "{}", '[{"op": "mm"}]', '[{"calls": 1e18}]', '[{"sizes": [["a"]]}]', "[[[["])
def test_a_cell_of_another_form_is_an_error(text):
    with pytest.raises(SchemaError, match="column graphOps: expected calls with op, layer and arguments"):
        check_cells(graph_table(text), "net.dict")
