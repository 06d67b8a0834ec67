"""The tensors that an op's code views, for ops that find their weights by a layer's name instead of taking them.

vLLM's ``moe_forward(hidden_states, router_logits, layer_name)`` hides a whole mixture of experts from the dispatcher.
Where Triton launches its products from Python, no op inside has the weights as arguments, but PyTorch records the views
of them that are made on the way to the launch, with their shapes and dtypes.
"""

import json
import re

import numpy as np

from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.table.columns import Coded, Ints, value_at

_TAKES_A_NAME = re.compile(r"\w+::moe_forward(?:_shared)?")
MOST = 64  # distinct tensors of a call


def viewed_tensors(tree: RangeTree, op: Ints) -> Coded:
    """Per row, the distinct tensors of two or more dimensions that are viewed within its op, as a JSON list of pairs
    (shape, dtype) in their order; empty for other ops. ``op``: each row's op, a range of the tree, -1: none."""
    hidden = tree.scopes_where(Kind.OP, lambda scope: bool(_TAKES_A_NAME.fullmatch(scope.name)))
    rows = np.flatnonzero(hidden[value_at(tree.scope, op, -1)] & (op >= 0))
    found = Coded.empty(len(op))
    if not len(rows):
        return found
    places, number = np.unique(op[rows], return_inverse=True)
    of_place = Coded.of(_viewed(tree, place) for place in places.tolist())
    found.values, found.codes[rows] = of_place.values, of_place.codes[number.reshape(-1)]
    return found


def _viewed(tree: RangeTree, place: int) -> str:
    """The tensors that are viewed within a range: those inside stand behind it, in order of their starts."""
    shapes: dict[str, None] = {}
    inside = place + 1
    while inside < len(tree) and tree.thread[inside] == tree.thread[place] and tree.start[inside] < tree.end[place]:
        if (text := _input(tree.scopes[int(tree.scope[inside])])) and len(shapes) < MOST:
            shapes[text] = None
        inside += 1
    return f"[{', '.join(shapes)}]" if shapes else ""


def _input(scope: Scope) -> str:
    """The tensor that a view is made of, as JSON; empty for other ranges and for vectors."""
    if scope.name != "aten::view" or not scope.sizes:
        return ""
    (shape, *_), (dtype, *_) = json.loads(scope.sizes), json.loads(scope.dtypes or '[""]')
    is_tensor = isinstance(shape, list) and len(shape) > 1 and all(type(size) is int for size in shape)
    return json.dumps([shape, dtype]) if is_tensor and isinstance(dtype, str) else ""
