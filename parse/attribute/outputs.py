"""The shapes of ops' outputs, which no profiler records: other ranges tell some of them.

* NVTX ranges name the op that consumed an output (``Capture.outs``, see ``dataflow``).
* A backward node is given the gradient of what its forward op returned, of the same shape. That is used where an op's
  own arguments do not tell: for the ops of C++ Functions (``functions``), and for those whose list of tensors the
  capture cut or never had (a Kineto trace has none of more than 30 tensors, in 2022 none at all; indices, which may be
  None, in none): cat, stack, index.
* The backward of split and unbind puts the gradients of the pieces together: to the shape of what was split.
* What a Function of Python ran last, it returns.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.cpp_functions import is_function, kinship, name_of
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.table.columns import NULL, Coded, Ints, distinct

if TYPE_CHECKING:
    from pyprof.parse.attribute.correlate import Nest

_CUT = re.compile(r"[\[,]\[\]")  # among an op's dtypes: a list of tensors with none
_INDEX = frozenset({"aten::index", "aten::_unsafe_index"})  # their indices are a list of tensors or None
_NODE = re.compile(r"Backward\d*$")
SPLITS = frozenset(f"aten::{name}" for name in ("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes",
                                                "unbind", "chunk"))  # fmt: skip


def outputs(capture: Capture, nest: Nest, inner: Ints, forward: Ints) -> Coded:
    """Inferred output shapes of each row's op as JSON; a nested op (cudnn_convolution in conv2d) has its outer op's.

    ``inner``: each row's innermost range; ``forward``: of a backward row the range of its forward op, -1 for none.
    """
    if not len(nest):
        return Coded.empty(capture.rows)
    at = nest.up(inner, nest.hop("op", inner))
    at = np.where(at == NULL, -1, at)
    told = {int(nest.rank[index]): text for index, text in capture.outs.items()}
    told = {**_of_lists(nest, at, forward), **told, **nest.returned}
    if not told:
        return Coded.empty(capture.rows)
    shape = np.full(len(nest) + 1, -1, np.int32)
    values = list(dict.fromkeys(told.values()))
    number = {text: code for code, text in enumerate(values)}
    for index, text in told.items():
        shape[index] = number[text]
    codes = shape[at]
    for _ in range(6):  # conv2d > convolution > _convolution > cudnn_convolution
        bare = np.flatnonzero((codes < 0) & (at >= 0))
        if not len(bare):
            break
        outer = nest.parent[at[bare]]
        at[bare] = np.where(_makes_its_output(nest, at[bare], outer), outer, -1)
        codes[bare] = shape[at[bare]]
    return Coded(codes, values)


def _makes_its_output(nest: Nest, op: Ints, outer: Ints) -> NDArray[np.bool_]:
    """Whether each op makes the output of the op around it: it was given the same tensors, or both are one library's
    (FBGEMM's lookup calls ops of its own for each kind of table)."""
    pairs, number = distinct(nest.scope[op], np.where(outer >= 0, nest.scope[outer], -1))
    same = [b >= 0 and _is_made_by(nest.scopes[b], nest.scopes[a], bool(nest.returned)) for a, b in pairs]
    return np.array(same, bool)[number]


def _is_made_by(outer: Scope, op: Scope, returned: bool) -> bool:
    library = op.name.rpartition("::")[0]
    if returned and library not in ("", "aten") and outer.name.rpartition("::")[0] == library:
        return True
    return _operands(op) == _operands(outer) != []


def _operands(scope: Scope) -> list[object]:
    return json.loads(scope.sizes)[:2] if scope.kind == Kind.OP and scope.sizes else []


def returned(nest: Nest, nodes: Ints, forward: Ints) -> dict[int, str]:
    """Forward op -> its outputs' shapes as JSON: those of the gradients that its C++ Function's node was given."""
    function = np.array([*(is_function(scope) and bool(scope.sizes) for scope in nest.scopes), False])
    inside = np.flatnonzero(function[nest.scope] & (nest.kind == Kind.OP) & (nest.parent >= 0))
    given = dict(zip(nest.parent[inside].tolist(), inside.tolist(), strict=True))
    shapes = {}
    for node, op in zip(nodes.tolist(), forward.tolist(), strict=True):
        if op >= 0 and node in given and kinship(name_of(nest, node), name_of(nest, op)):
            shapes[op] = _shapes(nest, given[node])
    return {op: text for op, text in shapes.items() if text}


def _of_lists(nest: Nest, op: Ints, forward: Ints) -> dict[int, str]:
    """Op -> its outputs' shapes, of the rows' ops whose lists of tensors the capture cut. ``op``: -1 for none."""
    cut = nest.scopes_where(Kind.OP, _lacks_a_list)[np.append(nest.scope, -1)[op]]
    pairs, _ = distinct(op[cut], forward[cut])
    if not pairs:
        return {}
    nodes = _nodes(nest, [place for place, _ in pairs])
    found = {}
    for place, ahead in pairs:
        text = _of_split(nest, ahead) if ahead >= 0 else _of_gradient(nest, place, nodes)
        if text:
            found[place] = text
    return found


def _lacks_a_list(scope: Scope) -> bool:
    return bool(_CUT.search(scope.dtypes)) or (scope.name in _INDEX and bool(scope.dtypes))


def _of_split(nest: Nest, ahead: int) -> str:
    """What a split's backward puts together."""
    scope = nest.scopes[nest.scope[ahead]]
    sizes = json.loads(scope.sizes) if scope.name in SPLITS and scope.sizes else []
    return json.dumps(sizes[:1]) if sizes and sizes[0] and not isinstance(sizes[0][0], list) else ""


def _nodes(nest: Nest, ops: list[int]) -> dict[tuple[int, int], list[int]]:
    """(process, sequence number) -> backward nodes with sizes, in order, for the numbers of ops and those around."""
    around = np.array(ops, np.int64)
    wanted = np.unique(np.concatenate([nest.seq[around], nest.seq[nest.parent[around][nest.parent[around] >= 0]]]))
    sized = nest.scopes_where(Kind.NODE, lambda scope: bool(scope.sizes))[nest.scope]
    places = np.flatnonzero(sized & np.isin(nest.seq, wanted[wanted > 0]))
    found: dict[tuple[int, int], list[int]] = {}
    for place in places[np.argsort(nest.start[places], kind="stable")].tolist():
        found.setdefault((int(nest.pid[place]), int(nest.seq[place])), []).append(place)
    return found


def _of_gradient(nest: Nest, op: int, nodes: dict[tuple[int, int], list[int]]) -> str:
    """The shapes of the gradients that the op's own backward was given, or its Function's where it ran last in it."""
    outer = int(nest.parent[op])
    if outer >= 0 and nest.kind[outer] == Kind.OP and nest.numbered[outer] and not nest.numbered[op]:
        inside = np.flatnonzero((nest.parent == outer) & (nest.kind == Kind.OP))
        if inside[np.argmax(nest.start[inside])] != op:
            return ""
        op = outer
    later = nodes.get((int(nest.pid[op]), int(nest.seq[op])), [])
    node = next((place for place in later if nest.start[place] > nest.start[op]), None)
    return _shapes(nest, node) if node is not None and _is_backward(nest, node, op) else ""


def _shapes(nest: Nest, node: int) -> str:
    """The gradients' shapes of a node; empty where one is a list of tensors."""
    sizes = nest.scopes[int(nest.scope[node])].sizes
    return "" if any(isinstance(size, list) for shape in json.loads(sizes) for size in shape) else sizes


def _is_backward(nest: Nest, node: int, op: int) -> bool:
    """Whether a node is called after the op: CatBackward0, All2All_Pooled_WaitBackward."""
    name = name_of(nest, op).rpartition("::")[2]
    return _NODE.sub("", name_of(nest, node)).replace("_", "").lower() == name.replace("_", "").lower()
