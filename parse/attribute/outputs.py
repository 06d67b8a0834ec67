"""The shapes of ops' outputs. No profiler records them, but some can be inferred from other ranges.

* An NVTX range names the ops that produced its inputs, so an output's shape is found at its consumer (``Capture.outs``,
  see ``dataflow``).
* A backward node receives the gradient of its forward op's output, which has the same shape. This is used if an op's
  own arguments do not suffice: for ops of C++ Functions (``cpp_functions``), for cat, stack and index, whose list of
  tensors may be cut or missing (a Kineto trace has no lists of more than 30 tensors, a trace of 2022 has no lists at
  all, and no trace has lists of indices, since an index may be None), and, in Kineto traces before PyTorch 2.1, which
  have no "Concrete Inputs", for ops whose strides or dimensions decide the size of the output.
* The backward of split and unbind joins the gradients of the pieces, so its result has the shape of the split tensor.
* The gradient of a convolution's input or weight (PyTorch 1.x) has the shape of that input of the forward op.
* The output of the last op in a Python Function is the Function's output.
* nonzero makes a view of the places that it found, [found, dimensions] or the other way round: the view's input.
"""

import json
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pyprof.gc_pause import given_back
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.cpp_functions import kinship
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind, Scope, is_cpp_node
from pyprof.table.columns import Coded, Codes, Indices, Ints, distinct, value_at

_CUT = re.compile(r"[\[,]\[\]")  # in an op's dtypes: an empty list of tensors
_INDEX = frozenset({"aten::index", "aten::_unsafe_index"})  # their indices are a list of tensors or None
# ops whose output's size depends on arguments that are not tensors: strides, paddings, dimensions to reduce
_SIZED_BY_VALUES = re.compile(r"conv|pool|::(?:sum|nansum|mean|nanmean|prod|var|std|norm|amax|amin|logsumexp)$")
# PyTorch 1.x's gradients of a convolution -> the position of the forward op's argument that has their shape
_GRADIENT_OF = {"_convolution_backward_input": 0, "_convolution_backward_weight": 1}
_VIEWS_OF_FOUND = frozenset({"aten::as_strided_", "aten::t", "aten::transpose", "aten::set_"})  # on CPU, on CUDA
ROWS = 1 << 17  # looked at together, since this takes several times the memory of the result
MOST_AROUND = 6  # ops around one that make the same output: conv2d > convolution > _convolution > cudnn_convolution
_NODE = re.compile(r"Backward\d*$")
_SPLITS = "split split_with_sizes unsafe_split unsafe_split_with_sizes unbind chunk"
SPLITS = frozenset(f"aten::{name}" for name in _SPLITS.split())


@given_back()
def outputs(capture: Capture, tree: RangeTree, op: Ints, node: Ints, forward: Ints) -> Coded:
    """Inferred output shapes of each row's op as JSON. A nested op (cudnn_convolution in conv2d) gets its outer op's.

    ``op``: the op's range; ``node``: the backward node around it; ``forward``: the node's forward op; -1 for none.
    """
    if not len(tree):
        return Coded.empty(capture.rows)
    returned = _of_cpp_functions(tree, node, forward)
    shapes = {
        **_of_nonzero(tree),
        **_where_sizes_lack(tree, op, forward),
        **{int(tree.place[given]): text for given, text in capture.outs.items()},
        **returned,
    }
    if not shapes:
        return Coded.empty(capture.rows)
    texts = Coded.of(shapes.values())
    code_of_range = np.full(len(tree) + 1, -1, np.int32)  # the last item is for "no range" (-1)
    code_of_range[list(shapes)] = texts.codes
    parts = (op[begin : begin + ROWS] for begin in range(0, max(len(op), 1), ROWS))
    codes = np.concatenate([_codes(tree, part, code_of_range, bool(returned)) for part in parts])
    return Coded(codes, texts.values)


def _codes(tree: RangeTree, op: Ints, code_of_range: Codes, libraries: bool) -> Codes:
    """The code of each op's outputs, or of those of an op around it that makes the same output; -1: unknown."""
    op = op.copy()
    codes = code_of_range[op]
    for _ in range(MOST_AROUND):
        unknown = np.flatnonzero((codes < 0) & (op >= 0))
        if not len(unknown):
            break
        outer = tree.parent[op[unknown]]
        op[unknown] = np.where(_makes_its_output(tree, op[unknown], outer, libraries), outer, -1)
        codes[unknown] = code_of_range[op[unknown]]
    return codes


def _makes_its_output(tree: RangeTree, op: Indices, outer: Indices, libraries: bool) -> NDArray[np.bool_]:
    """Whether each op makes the output of the op around it: both have the same input tensors, or, with ``libraries``,
    both belong to the same library (FBGEMM's lookup calls one of its own ops for each kind of table)."""
    pairs, number = distinct(tree.scope[op], np.where(outer >= 0, tree.scope[outer], -1))
    same = [b >= 0 and _is_made_by(tree.scopes[b], tree.scopes[a], libraries) for a, b in pairs]
    return np.array(same, bool)[number]


def _is_made_by(outer: Scope, op: Scope, libraries: bool) -> bool:
    library = op.name.rpartition("::")[0]
    if libraries and library not in ("", "aten") and outer.name.rpartition("::")[0] == library:
        return True
    return _operands(op) == _operands(outer) != []


def _operands(scope: Scope) -> list[object]:
    return json.loads(scope.sizes)[:2] if scope.kind == Kind.OP and scope.sizes else []


def _of_cpp_functions(tree: RangeTree, node: Ints, forward: Ints) -> dict[int, str]:
    """Forward op -> its outputs' shapes as JSON, taken from the gradients that its C++ Function's node received."""
    sized = tree.scopes_where(Kind.OP, lambda scope: is_cpp_node(scope) and bool(scope.sizes))
    if not sized.any():
        return {}
    inside = np.flatnonzero(sized[tree.scope] & (tree.parent >= 0))
    given = dict(zip(tree.parent[inside].tolist(), inside.tolist(), strict=True))
    pairs, _ = distinct(node, forward)
    shapes = {}
    for place, op in pairs:
        if op >= 0 and place in given and kinship(tree.name(place), tree.name(op)):
            shapes[op] = _shapes(tree, given[place])
    return {op: text for op, text in shapes.items() if text}


def _of_nonzero(tree: RangeTree) -> dict[int, str]:
    """Each call of nonzero -> the shape of its output, where a view within it shows the number of places."""
    searching = tree.scopes_where(Kind.OP, lambda scope: scope.name == "aten::nonzero")
    viewing = tree.scopes_where(Kind.OP, lambda scope: scope.name in _VIEWS_OF_FOUND and bool(scope.sizes))
    if not searching.any() or not viewing.any():
        return {}
    views = np.flatnonzero(viewing[tree.scope] & (tree.parent >= 0))
    views = views[searching[tree.scope[tree.parent[views]]]]
    pairs = zip(tree.parent[views].tolist(), views.tolist(), strict=True)
    found = {
        op: _places(_operands(tree.scopes[tree.scope[op]]), _operands(tree.scopes[tree.scope[v]])) for op, v in pairs
    }
    return {op: text for op, text in found.items() if text}


def _places(searched: list[object], viewed: list[object]) -> str:
    """The shape of the output, [places, dimensions], by the sizes of input and view; empty if they differ."""
    given, shape = (searched or [None])[0], (viewed or [None])[0]
    if not isinstance(given, list) or not isinstance(shape, list) or len(shape) != 2 or len(given) not in shape:
        return ""
    places = shape[0] if shape[1] == len(given) else shape[1]
    return json.dumps([[places, len(given)]])


def _where_sizes_lack(tree: RangeTree, op: Ints, forward: Ints) -> dict[int, str]:
    """Op -> its outputs' shapes, for the rows' ops whose own arguments do not give them. ``op``: -1 for none."""
    lacking = tree.scopes_where(Kind.OP, _lacks_sizes)
    if not lacking.any():
        return {}
    cut = lacking[value_at(tree.scope, op, -1)]
    pairs, _ = distinct(op[cut], forward[cut])
    if not pairs:
        return {}
    nodes = _nodes(tree, [place for place, _ in pairs])
    found = {}
    for place, ahead in pairs:
        if ahead >= 0:
            text = _in_backward(tree, place, ahead)
        else:
            text = next(filter(None, (_of_gradient(tree, op, nodes) for op in _same_output(tree, place))), "")
        if text:
            found[place] = text
    return found


def _same_output(tree: RangeTree, op: int) -> Iterator[int]:
    """An op and the ops around it that make the same output: cudnn_convolution, _convolution, convolution, conv2d."""
    yield op
    for _ in range(MOST_AROUND):
        outer = int(tree.parent[op])
        if outer < 0 or not _is_made_by(tree.scopes[tree.scope[outer]], tree.scopes[tree.scope[op]], libraries=False):
            return
        yield outer
        op = outer


def _lacks_sizes(scope: Scope) -> bool:
    if not scope.dtypes:  # NVTX ranges: outputs come from the data flow
        return False
    lacks_values = not scope.args and bool(_SIZED_BY_VALUES.search(scope.name))
    return lacks_values or bool(_CUT.search(scope.dtypes)) or scope.name in _INDEX


def _in_backward(tree: RangeTree, op: int, ahead: int) -> str:
    """The shape of a backward op's output that one of its forward op's inputs has, too.

    It is the tensor that a split's backward joins from its pieces, the input or weight of a convolution, or the input
    that was broadcast and whose gradient is summed.
    """
    scope, name = tree.scopes[tree.scope[ahead]], tree.name(op)
    shapes = [shape for shape in json.loads(scope.sizes or "[]") if shape and not isinstance(shape[0], list)]
    if scope.name in SPLITS:
        return json.dumps(shapes[:1]) if shapes else ""
    gradient = next((n for suffix, n in _GRADIENT_OF.items() if name.endswith(suffix)), None)
    if gradient is not None:
        return json.dumps([shapes[gradient]]) if gradient < len(shapes) else ""
    if name == "aten::sum":
        summed: list[int] = next(iter(json.loads(tree.scopes[tree.scope[op]].sizes or "[]")), [])
        broadcast = {tuple(shape) for shape in shapes if shape != summed and _broadcasts(shape, summed)}
        return json.dumps([list(*broadcast)]) if len(broadcast) == 1 else ""
    return ""


def _broadcasts(shape: list[int], to: list[int]) -> bool:
    """Whether a tensor of this shape is broadcast to a larger shape: its last dimensions fit."""
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def _nodes(tree: RangeTree, ops: list[int]) -> dict[tuple[int, int], list[int]]:
    """(process, sequence number) -> backward nodes with sizes, in order, for the ops' numbers and those around them."""
    around = np.array(ops, np.int64)
    numbers: list[Ints] = []
    while len(around) and len(numbers) <= MOST_AROUND:
        numbers.append(tree.seq[around])
        around = np.unique(tree.parent[around][tree.parent[around] >= 0])
    wanted = np.unique(np.concatenate(numbers))
    sized = tree.scopes_where(Kind.NODE, lambda scope: bool(scope.sizes))[tree.scope]
    places = np.flatnonzero(sized & np.isin(tree.seq, wanted[wanted > 0]))
    found: dict[tuple[int, int], list[int]] = {}
    for place in places[np.argsort(tree.start[places], kind="stable")].tolist():
        found.setdefault((int(tree.pid[place]), int(tree.seq[place])), []).append(place)
    return found


def _of_gradient(tree: RangeTree, op: int, nodes: dict[tuple[int, int], list[int]]) -> str:
    """The shapes of the gradients that the op's node received, or its Function's node if the op ran last in it."""
    outer = int(tree.parent[op])
    if outer >= 0 and tree.kind[outer] == Kind.OP and tree.has_number[outer] and not tree.has_number[op]:
        inside = np.flatnonzero((tree.parent == outer) & (tree.kind == Kind.OP))
        if inside[np.argmax(tree.start[inside])] != op:
            return ""
        op = outer
    later = nodes.get((int(tree.pid[op]), int(tree.seq[op])), [])
    node = next((place for place in later if tree.start[place] > tree.start[op]), None)
    return _shapes(tree, node) if node is not None and _is_backward(tree, node, op) else ""


def _shapes(tree: RangeTree, node: int) -> str:
    """The shapes of a node's input gradients; empty if one of the inputs is a list of tensors."""
    sizes = tree.scopes[int(tree.scope[node])].sizes
    return "" if any(isinstance(size, list) for shape in json.loads(sizes) for size in shape) else sizes


def _is_backward(tree: RangeTree, node: int, op: int) -> bool:
    """Whether a node's name is derived from the op's name: CatBackward0, All2All_Pooled_WaitBackward."""
    name = tree.name(op).rpartition("::")[2]
    return _NODE.sub("", tree.name(node)).replace("_", "").lower() == name.replace("_", "").lower()
