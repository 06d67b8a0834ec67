"""Match the lines of one capture with those of another.

This takes several passes. Each pass matches the lines that earlier passes left unmatched:

1. ``same``: phase, layer, op, direction, aten op, shapes and dtype agree.
2. ``args``: all but shapes and dtype agree. Lines match one by one in the order of the step, or as a group where their
   numbers differ.
3. ``op``: phase, layer, op and direction agree: the same op runs other aten ops.
4. ``moved``: phase, aten op and shapes agree, and the other side lacks the op (a renamed module; torch.compile, which
   keeps one layer and one op). Then matrix products whose shapes are equal once padded.
5. ``layer``: phase, direction and layer agree: the ops of the layer were replaced.
6. ``kind``: phase and kind of work agree, and one side has less detail: its layer contains the other's, or its kernels
   are torch.compile's. Element-wise work, reductions, copies and the like, which a compiler fuses, count as one kind.
7. ``graph``: the kernels of one side are hidden in a CUDA graph: everything that is left.

The rest appeared or vanished. Groups that match together are never split, so nothing is counted twice.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from pyprof.prof.diff.lines import VARYING, Line
from pyprof.prof.work.kinds import ATTENTION, CONVS, COPIES, GRAPHS, NCCL, PRODUCTS

APART = frozenset({PRODUCTS, CONVS, ATTENTION, NCCL, COPIES, GRAPHS, "recurrent layers", "optimizer", "FFT"})
PADDED = 64  # sizes that round up to the same multiple may be one size before and after padding
SMALL = "element-wise, norms, copies"  # the name of all other kinds, which compilers fuse

Key = Callable[[Line], Hashable]


@dataclass(frozen=True, slots=True)
class Match:
    """Lines that are compared with each other; one side is empty where they appeared or vanished."""

    how: str
    a: tuple[Line, ...]
    b: tuple[Line, ...]


def match(a: Sequence[Line], b: Sequence[Line]) -> list[Match]:
    """Every line of both sides, each in exactly one match."""
    left = _Matching(a, b)
    for find in (left.same, left.args, left.op, left.moved, left.layer, left.kind, left.graph):
        find()
        left.sweep()
    vanished = [Match("vanished", (line,), ()) for line in left.a]
    return [*left.done, *vanished, *(Match("appeared", (), (line,)) for line in left.b)]


class _Matching:
    def __init__(self, a: Sequence[Line], b: Sequence[Line]) -> None:
        self.a, self.b = list(a), list(b)  # the lines that the passes before left
        self.whole = (tuple(a), tuple(b))
        self.done: list[Match] = []
        self.gone: set[int] = set()

    def sweep(self) -> None:
        """Remove the matched lines; called between passes."""
        self.a = [line for line in self.a if id(line) not in self.gone]
        self.b = [line for line in self.b if id(line) not in self.gone]

    def same(self) -> None:
        self._by("same", lambda line: (line.place, line.shapes, line.dtype))

    def args(self) -> None:
        """Match lines one by one in their order if both sides have the same number."""
        for a, b in self._groups(lambda line: line.place):
            pairs = zip(([x] for x in a), ([y] for y in b), strict=True) if len(a) == len(b) else [(a, b)]
            for some, others in pairs:
                self._take("args", some, others)

    def op(self) -> None:
        """Match the remaining lines of ops that both sides have; the lines may be on one side only."""
        sides = [{_op(line) for line in lines} for lines in self.whole]
        both = sides[0] & sides[1]
        for a, b in self._groups(lambda line: _op(line) if _op(line) in both else None, alone=True):
            self._take("op", a, b)

    def moved(self) -> None:
        self._moved(_work)
        self.sweep()
        self._moved(lambda line, less: _padded(line, less) if line.kind in APART else None)

    def _moved(self, work: Callable[[Line, int], Hashable]) -> None:
        """Match moved lines. An op that writes to a given tensor (mm.out) has one more shape, which is ignored."""
        known = [{work(line, 0) for line in lines} for lines in (self.a, self.b)]

        def key(line: Line, others: set[Hashable]) -> Hashable:
            if not line.place.aten.startswith("aten::") or line.shapes in ("", VARYING):
                return None
            whole, less = work(line, 0), work(line, 1)
            return less if whole not in others and less in others else whole

        keys = {id(line): key(line, known[1]) for line in self.a} | {id(line): key(line, known[0]) for line in self.b}
        self._by("moved", lambda line: keys[id(line)])

    def layer(self) -> None:
        deep = [_around(line.place.layer for line in lines) for lines in self.whole]
        changed = deep[0] ^ deep[1]  # layers that contain other layers on one side only

        def key(line: Line) -> Hashable:
            place = line.place
            return (place.phase, place.dir, place.layer) if place.layer and place.layer not in changed else None

        self._by("layer", key)

    def kind(self) -> None:
        for a, b in self._groups(lambda line: (line.place.phase, small(line.kind))):
            fused = any(line.fused for line in (*a, *b))
            some, others = (a, b) if fused else (_related(a, b), _related(b, a))
            if some and others:
                self._take("kind", some, others)

    def graph(self) -> None:
        if any(line.kind == GRAPHS for line in (*self.a, *self.b)) and self.a and self.b:
            self._take("graph", list(self.a), list(self.b))

    def _by(self, how: str, key: Key) -> None:
        for a, b in self._groups(key):
            self._take(how, a, b)

    def _groups(self, key: Key, alone: bool = False) -> list[tuple[list[Line], list[Line]]]:
        """The remaining lines grouped by key, for keys on both sides (or with ``alone`` on one); None is not a key."""
        found: dict[Hashable, tuple[list[Line], list[Line]]] = {}
        for side, lines in enumerate((self.a, self.b)):
            for line in lines:
                if (name := key(line)) is not None:
                    found.setdefault(name, ([], []))[side].append(line)
        return [(a, b) for a, b in found.values() if alone or (a and b)]

    def _take(self, how: str, a: list[Line], b: list[Line]) -> None:
        self.done.append(Match(how, tuple(a), tuple(b)))
        self.gone.update(id(line) for line in (*a, *b))


def small(kind: str) -> str:
    """The kind of work, with one common name for all kinds that compilers fuse."""
    return kind if kind in APART else SMALL


def _op(line: Line) -> Hashable:
    return line.place.phase, line.place.layer, line.place.op, line.place.dir


def _work(line: Line, less: int) -> tuple[str, str, str]:
    """Phase, aten op and shapes, without the last ``less`` shapes."""
    shapes = json.loads(line.shapes) if line.shapes not in ("", VARYING) else []
    return line.place.phase, line.place.aten, json.dumps(shapes[: len(shapes) - less])


def _padded(line: Line, less: int) -> Hashable:
    """The same as ``_work`` with padded sizes, since torch.compile pads matrix products to multiples of 16 bytes."""
    phase, aten, text = _work(line, less)
    return phase, aten, json.dumps([[-(-n // PADDED) * PADDED for n in size] for size in json.loads(text)])


def _around(layers: Iterable[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """The layers that contain other layers."""
    return {layer[:depth] for layer in set(layers) for depth in range(len(layer))}


def _related(lines: list[Line], others: list[Line]) -> list[Line]:
    """The lines whose layer strictly contains the layer of one of ``others``, or is strictly inside one."""
    paths = {line.place.layer for line in others}
    around = _around(paths)
    return [line for line in lines if line.place.layer in around or _around([line.place.layer]) & paths]
