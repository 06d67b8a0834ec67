"""What the launches of a graph's capture are summed to."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np

from pyprof.parse.graphs.graph_contents import KEYS, _launches_of, _text
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


def test_texts_keep_their_letters() -> None:
    columns = {key: Coded.of([""]) for key in KEYS} | {"op": Coded.of(['["größe"]'])}
    assert _text(Table(1, {**columns, "opId": np.array([0])})) == '[{"op":["größe"],"calls":1,"launches":1}]'


def test_of_two_graphs_with_one_number_neither_is_known() -> None:
    """Process 1 captured graphs 0 and 1, both number 5, and graph 2, number 6; process 2 graph 3, number 6, too."""
    capture: Any = SimpleNamespace(pids=lambda: np.array([1, 2]))
    launches: Any = SimpleNamespace(
        graph=np.array([0, 1, 2, 2, 3]),
        number=np.array([5, 5, 6, 6]),
        began_thread=np.array([0, 0, 0, 1]),
        ended=np.array([10, 20, 30, 40]),
    )
    found = [_launches_of(capture, launches, pid, number).tolist() for pid, number in ((1, 5), (1, 6), (2, 6), (2, 7))]
    assert found == [[], [2, 3], [4], []]
