"""Tie the calls in the code of a compiled graph to the operations, layers and lines of the program.

pyprof records what each call computes (``compiled_record.py``), in the order of the code, and opens a range around the
code where it runs. The ops directly within that range are matched with the calls: the n-th op of a name is the n-th
call of that name. If there are more or fewer ops of a name than calls, none of them is tied.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from pyprof.compiled_record import COMPILED_RANGE, Call, CompiledRecord, Operation, op_name
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.main_operation import main_operation
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind, Origin, Scope
from pyprof.range_pieces import Piece, joined, piece_in
from pyprof.table.columns import Bools, Ints

MOST_FIRST = 64  # numbers that are tried for the first node of a backward pass, from the last op's on
_BACKWARD = re.compile(r"Backward\d*$")
_IN_GRAPH = re.compile(r"^graph_\d+_(?=cpp_)")  # what inductor's profile of C++ kernels puts before a kernel's name


def name_origins(capture: Capture, tree: RangeTree) -> None:
    """Give each op that a compiled graph's code calls a scope that says where it comes from."""
    codes = [code for code, scope in enumerate(tree.scopes) if scope.kind == Kind.COMPILED]
    if not codes:
        return
    records = _records(capture, (tree.scopes[code].name for code in codes))
    numbers = {code: _number(tree.scopes[code].name) for code in codes}
    origins = Origins(tree.scopes)
    forward = ForwardOps(tree)
    for graph, called in called_within(tree, tree.kind == Kind.COMPILED):
        number = numbers[int(tree.scope[graph])]
        if number in records:
            tree.scope[called] = origins.scopes_of(number, records[number], tree.scope[called].tolist())
            forward.find(graph, called)
    tree.scope_kind = np.fromiter((scope.kind for scope in tree.scopes), np.int64, len(tree.scopes))


class ForwardOps:
    """The eager forward ops of the calls in a backward pass that compiled autograd traced, by sequence numbers.

    The record has the distances between the sequence numbers of the graph's nodes. The number of the first node differs
    from run to run, and is found by names: at each distance from it there must be an op that makes the node.
    """

    def __init__(self, tree: RangeTree) -> None:
        self._tree = tree
        # Ops with numbers, their starts and the numbers, in order of start, which is that of the numbers, too.
        self._of_thread: dict[int, tuple[Ints, Ints, Ints]] = {}

    def find(self, graph: int, called: Ints) -> None:
        """Set ``tree.compiled_from`` of the calls in one run of a graph."""
        tree = self._tree
        origins = [tree.scopes[scope].origin for scope in tree.scope[called].tolist()]
        nodes = {o.behind: o.node for o in origins if o is not None and o.behind >= 0}
        if not nodes:
            return
        ops, numbers = self._before(graph)
        last = int(numbers[-1]) if len(numbers) else 0
        for first in range(last, max(last - MOST_FIRST, 0), -1):
            made = self._made(ops, numbers, first, nodes)
            if len(made) == len(nodes):
                if tree.compiled_from is None:
                    tree.compiled_from = np.full(len(tree), -1, np.int64)
                tree.compiled_from[called] = [-1 if o is None else made.get(o.behind, -1) for o in origins]
                return

    def _before(self, graph: int) -> tuple[Ints, Ints]:
        """The thread's ops with numbers that began before a range, and the numbers."""
        tree, thread = self._tree, int(self._tree.thread[graph])
        if thread not in self._of_thread:
            ops = np.flatnonzero(tree.has_number & (tree.thread == thread))
            self._of_thread[thread] = ops, tree.start[ops], tree.seq[ops]
        ops, starts, numbers = self._of_thread[thread]
        until = np.searchsorted(starts, tree.start[graph])
        return ops[:until], numbers[:until]

    def _made(self, ops: Ints, numbers: Ints, first: int, nodes: dict[int, str]) -> dict[int, int]:
        """The ops of the nodes, the first of which has that number, up to one that does not fit."""
        found = {}
        for behind, node in nodes.items():
            at = int(np.searchsorted(numbers, first - behind, "right")) - 1  # the last one made the node
            if at < 0 or numbers[at] != first - behind or not _makes(self._tree.name(ops[at]), node):
                break
            found[behind] = int(ops[at])
        return found


def _makes(op: str, node: str) -> bool:
    """Whether an op makes a node of that name.

    >>> _makes("aten::_to_copy", "ToCopyBackward0"), _makes("aten::nll_loss_forward", "NllLossBackward0")
    (True, True)
    """
    name = op.rpartition("::")[2].replace("_", "").lower()
    return name.startswith(_BACKWARD.sub("", node.rpartition("::")[2]).lower())


def _number(text: str) -> str:
    return text.removeprefix(COMPILED_RANGE).partition(":")[0]


def called_within(tree: RangeTree, is_graph: Bools) -> Iterator[tuple[int, Ints]]:
    """Per range around a graph's code: the range, and the ops in it with no op in between, in order."""
    owner = np.full(len(tree), -1, np.int64)
    for level in tree.levels[1:]:
        above = tree.parent[level]
        inherited = np.where(tree.kind[above] == Kind.OP, -1, owner[above])
        owner[level] = np.where(is_graph[above], above, inherited)
    ops = np.flatnonzero((owner >= 0) & (tree.kind == Kind.OP))
    ops = ops[np.lexsort((ops, owner[ops]))]  # ranges are numbered by thread and start
    starts = np.flatnonzero(np.diff(owner[ops], prepend=-1))
    for called in np.split(ops, starts[1:]) if len(ops) else ():
        yield int(owner[called[0]]), called


def _records(capture: Capture, texts: Iterable[str]) -> dict[str, CompiledRecord]:
    """The records by number: from the file, or put together from the pieces in the ranges' texts."""
    whole = dict(capture.compiled)
    pieces: dict[str, list[Piece]] = {}
    for text in texts:
        number = _number(text)
        if (piece := piece_in(text, f"{COMPILED_RANGE}{number}:")) is not None:
            pieces.setdefault(number, []).append(piece)
    whole.update({number: record for number, own in pieces.items() if (record := joined(own)) is not None})
    found = {number: _decoded(text) for number, text in whole.items()}
    capture.warnings += [
        f"the record of the compiled graph {number[:40]} cannot be read and is left out"
        for number, record in found.items()
        if record is None
    ]
    return {number: record for number, record in found.items() if record is not None}


def _decoded(text: str) -> CompiledRecord | None:
    try:
        return msgspec.json.decode(text, type=CompiledRecord)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None


class Origins:
    """The scopes of ops that come from a call of a compiled graph; each is made once."""

    def __init__(self, scopes: list[Scope]) -> None:
        self._scopes = scopes
        self._made: dict[tuple[str, int, int], int] = {}
        self._known: dict[tuple[str, tuple[int, ...]], list[int]] = {}

    def scopes_of(self, number: str, record: CompiledRecord, codes: list[int]) -> list[int]:
        """The scopes of the ops that one run of a graph calls, given their own."""
        key = (number, tuple(codes))
        if key not in self._known:
            matched = match([self._scopes[code].name for code in codes], record.calls)
            self._known[key] = [
                code if call is None else self._scope(number, record, code, call)
                for code, call in zip(codes, matched, strict=True)
            ]
        return self._known[key]

    def _scope(self, number: str, record: CompiledRecord, code: int, call: int) -> int:
        key = (number, code, call)
        if key not in self._made:
            origin = origin_of(record, record.calls[call])
            if origin is None:
                return code
            self._made[key] = len(self._scopes)
            scope = self._scopes[code]._replace(origin=origin)
            self._scopes.append(with_arguments(scope, record.dtypes.get(scope.name, ()), record.calls[call].loops))
        return self._made[key]


def match(names: Sequence[str], calls: Sequence[Call]) -> list[int | None]:
    """For the ops that ran, by name and in order, the call that each is; None where the numbers of both differ."""
    expected: dict[str, list[int]] = {}
    for at, call in enumerate(calls):
        expected.setdefault(op_name(call.kernel), []).append(at)
    names = [_IN_GRAPH.sub("", name) for name in names]
    ran = Counter(names)
    left = {name: iter(at) for name, at in expected.items() if len(at) == ran[name]}
    return [next(left[name]) if name in left else None for name in names]


def origin_of(record: CompiledRecord, call: Call) -> Origin | None:
    """Where a call comes from; None if its record names no operation."""
    known = [(at, record.operations[at]) for at in call.operations if 0 <= at < len(record.operations)]
    if not known:
        return None
    main = main_operation([operation for _, operation in known])
    called = main.op and not main.mod.startswith("torch._ops")  # compiled autograd's graph calls overloads of aten
    mod, op = (main.mod, main.op) if called else _by_aten(main.aten)
    fused = [_described(operation, at in call.done) for at, operation in known]
    text = json.dumps(fused, ensure_ascii=False, separators=(",", ":"))
    root = main.root if len({operation.layer[0] for operation in record.operations if operation.layer}) == 1 else ""
    return Origin(main.layer, root, main.trace, main.functions, mod, op, text, main.backward, main.node, main.behind)


def with_arguments(scope: Scope, dtypes: Sequence[str], loops: Sequence[int | str]) -> Scope:
    """A Triton kernel's call with the dtypes of its arguments and the sizes of its loops, which NVTX ranges lack.

    The sizes of the loops are the last arguments: rows, then elements per row where the kernel reduces.
    """
    if not scope.sizes or scope.dtypes:
        return scope
    sizes = json.loads(scope.sizes)
    if len(sizes) != len(dtypes):
        return scope
    trailing = next((at for at, dtype in enumerate(reversed(dtypes)) if dtype), len(dtypes))
    values = [str(size) for size in loops[: -1 if loops[-1:] == (1,) else None]]
    values = values if len(values) <= trailing and not any(size in ("-1", "") for size in values) else []
    args = [*[""] * (len(sizes) - len(values)), *values]
    return scope._replace(dtypes=json.dumps(list(dtypes)), args=json.dumps(args))


def _by_aten(aten: str) -> tuple[str, str]:
    module, _, name = aten.rpartition("::")
    return module, name


def _described(operation: Operation, done: bool) -> dict[str, object]:
    """One item of the column ``fused``."""
    layer = operation.layer[-1] if operation.layer else ""
    line = operation.trace[-1] if operation.trace else ""
    item = {"aten": operation.aten, "op": operation.op, "layer": layer, "line": line}
    given = {key: value for key, value in item.items() if value}
    flags = {"again": True} if operation.again else {}
    counted = {"args": operation.args} if done and operation.args is not None else {}
    return {**given, **flags, **({"done": True} if done else {}), **counted}


def within_compiled(around: list[str], origin: Origin) -> list[str]:
    """The layers of an operation: those around the compiled graph, then those that the graph's record names.

    Names in the record begin at the variable that holds the model. If a module is around the graph, that variable is
    the innermost such module. Otherwise a function was compiled: the one module that it calls is the root, or, if it
    calls several, it is the method of a module that was not called as one, and the names are complete.
    """
    if around:
        prefix = f"{around[-1]}." if len(around) > 1 else ""
        return [*around, *(prefix + name for name in origin.layer if name)]
    if not origin.layer or not origin.root:
        return [name for name in origin.layer if name]
    root = origin.layer[0]
    below = (name[len(root) :].lstrip(".") if name.startswith(root) else name for name in origin.layer[1:])
    return [origin.root, *below]
