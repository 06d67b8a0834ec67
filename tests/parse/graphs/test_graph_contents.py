"""What the launches of a graph's capture are summed to."""

import json

import numpy as np

from pyprof.parse.graphs.graph_contents import KEYS, _text
from pyprof.table.columns import NULL, Coded, Table


def test_launches_of_one_op_are_counted_and_so_are_its_calls() -> None:
    """Two launches of call 0, one of call 4, and two of which the call is not known: each is one of its own."""
    ops = ["linear"] * 5 + ["relu"]
    columns = {key: Coded.of([""] * 6) for key in KEYS}
    columns |= {"op": Coded.of(f'["{op}"]' for op in ops), "aten": Coded.of(["aten::mm"] * 5 + ["aten::relu"])}
    table = Table(6, {**columns, "opId": np.array([NULL, NULL, 0, 0, 4, 5], np.int64)})
    assert json.loads(_text(table)) == [
        {"op": ["linear"], "aten": "aten::mm", "calls": 4, "launches": 5},
        {"op": ["relu"], "aten": "aten::relu", "calls": 1, "launches": 1},
    ]
