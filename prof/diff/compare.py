"""The difference of two captures in numbers, for the sentences, tables, page, JSON and gate.

Times are ns per step, means over the steps that count. Two sums hold, and nothing is left out of them:

* The phases and idle time sum to the step (overlaps count once).
* The rows' times (by op, kind or layer), minus overlaps, plus idle time sum to the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pyprof.prof.diff.compared_steps import Steps
from pyprof.prof.diff.detail import common_detail
from pyprof.prof.diff.kernels import Same, Swap, delta_of, lines_of, swaps, tensor_share
from pyprof.prof.diff.lines import Line, Side, added
from pyprof.prof.diff.match import Match, match, small
from pyprof.prof.diff.noise import Delta
from pyprof.prof.summary.components import COUNTED
from pyprof.prof.timing.steps import PHASES
from pyprof.table.columns import Floats
from pyprof.table.losses import losses

IDLE, OVERLAP = "idle", "overlap"
MOSTLY = 0.5  # a line uses tensor cores if at least this share of its matrix products' time is on them
DISTINCT = 4  # layers that a table by layer should show at least
NOTABLE = 0.01  # a layer with at least this share of the work gets a row
ALIKE = 0.9  # share of unchanged kernels' time that must move one way to blame the machine

Key = tuple[str, tuple[str, ...], str, str]  # of an entry: phase, folded layer, op, direction


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the difference: an op in a layer or in a series of layers, or a group that is compared as a whole."""

    name: str
    layer: str  # folded: blocks.*:attention
    op: str
    phase: str
    how: tuple[str, ...]  # the passes that matched its lines
    ns: Delta
    count: tuple[float, float]  # rows per step
    layers: int  # how many layers the folded name stands for
    swaps: tuple[Swap, ...]
    tc_lost: int
    tc_gained: int

    @property
    def status(self) -> str:
        """``appeared``, ``vanished``, or the name of the least certain pass that matched its lines."""
        if not self.count[0]:
            return "appeared"
        if not self.count[1]:
            return "vanished"
        return next((how for how in ("graph", "kind", "layer", "moved", "args") if how in self.how), "same")


@dataclass(frozen=True, slots=True)
class Change:
    """A row of a table that sums to the step."""

    name: str
    ns: Delta


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of two captures. Times are ns per step."""

    a: Side
    b: Side
    step: Delta
    busy: Delta  # time in which at least one operation runs
    work: Delta  # the sum of the rows' times
    idle: Delta
    late: Delta
    overlap: Delta
    rows: Delta
    flop: Delta
    nbytes: Delta
    phases: tuple[Change, ...]
    kinds: tuple[Change, ...]
    layers: tuple[Change, ...]  # empty where a side has no layers below the model
    entries: tuple[Entry, ...]  # the greatest change first
    drift: float  # relative time change of identical kernels; NaN if some got faster and others slower
    drift_ns: float  # time of these kernels in A
    left_out: tuple[str, ...]  # "layers", "shapes": details that only one side has

    @property
    def gpus(self) -> tuple[str, ...]:
        """The names of the GPUs of both sides."""
        return (*self.a.gpus, *self.b.gpus)

    @property
    def swaps(self) -> list[Swap]:
        return sorted((s for e in self.entries for s in e.swaps), key=lambda s: (-abs(s.ns.change), s.name))

    @property
    def tc_lost(self) -> int:
        return sum(entry.tc_lost for entry in self.entries)

    @property
    def tc_gained(self) -> int:
        return sum(entry.tc_gained for entry in self.entries)


def compare(a: Side, b: Side) -> Comparison:
    """The difference of two sides.

    If one has no start times, or has idle times that are unknown (an incomplete capture), both steps are the sum of
    their rows' times.
    """
    if a.steps.timed != b.steps.timed or losses(a.table) or losses(b.table):
        a, b = _without_idle(a), _without_idle(b)
    left, right, left_out = common_detail(a.lines, b.lines)
    root = _root([*left, *right])
    same = (lambda k: k.same) if a.family == b.family else (lambda k: k.name)  # demanglers differ
    matches = match(left, right)
    drift, drift_ns = _drift(matches, same)
    steps = a.steps, b.steps
    return Comparison(
        a=a,
        b=b,
        step=Delta(steps[0].span_ns, steps[1].span_ns),
        busy=Delta(steps[0].span_ns - steps[0].idle_ns, steps[1].span_ns - steps[1].idle_ns),
        work=Delta(a.work_ns, b.work_ns),
        idle=Delta(steps[0].idle_ns, steps[1].idle_ns),
        late=Delta(steps[0].late_ns, steps[1].late_ns),
        overlap=Delta(-a.overlap_ns, -b.overlap_ns),
        rows=Delta(a.rows, b.rows),
        flop=Delta(a.flop, b.flop),
        nbytes=Delta(a.nbytes, b.nbytes),
        phases=_changes(steps[0].phase_ns, steps[1].phase_ns, steps),
        kinds=_ranked(_changes(a.kind_ns, b.kind_ns, steps)),
        layers=() if "layers" in left_out else _ranked(_by_layer(a, b, root)),
        entries=_entries(matches, root, same, (len(steps[0]), len(steps[1]))),
        drift=drift,
        drift_ns=drift_ns,
        left_out=left_out,
    )


def _without_idle(side: Side) -> Side:
    none = np.zeros(len(side.steps))
    phases = {name: sum((x.ns for x in side.lines if x.place.phase == name), none) for name in PHASES}
    phases["other"] = side.work_ns - sum((ns for name, ns in phases.items() if name != "other"), none)
    steps = replace(side.steps, span_ns=side.work_ns, idle_ns=none, late_ns=none, phase_ns=phases, timed=False)
    return replace(side, steps=steps)


def _changes(a: Mapping[str, Floats], b: Mapping[str, Floats], steps: tuple[Steps, Steps]) -> tuple[Change, ...]:
    none = [np.zeros(len(side)) for side in steps]
    found = [Change(name, Delta(a.get(name, none[0]), b.get(name, none[1]))) for name in dict.fromkeys([*a, *b])]
    return tuple(change for change in found if change.ns.a.any() or change.ns.b.any())


def _ranked(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda c: (-abs(c.ns.change), -c.ns.before, c.name)))


def _root(lines: Iterable[Line]) -> tuple[str, ...]:
    """The layers around all others, which names leave out."""
    paths = [line.place.layer for line in lines if line.place.layer]
    shortest = min((len(path) for path in paths if len(path) > 1), default=1)
    depth = 0
    while depth < shortest - 1 and len({path[: depth + 1] for path in paths if len(path) > depth}) == 1:
        depth += 1
    return max(paths, key=len, default=())[:depth]


def _by_layer(a: Side, b: Side, root: tuple[str, ...]) -> tuple[Change, ...]:
    """The changes by layer, at the least depth that shows several notable layers."""
    deepest = [max((len(path) for path in side.layer_ns), default=0) for side in (a, b)]
    if min(deepest) <= len(root) or min(deepest) < 1:
        return ()
    whole = max(a.work_ns.sum(), 1.0)
    depths = range(len(root) + 1, max(deepest) + 1)
    telling = [sum(ns.sum() > NOTABLE * whole for ns in _cut(a.layer_ns, d, root).values()) for d in depths]
    depth = next(d for d, count in zip(depths, telling, strict=True) if count >= min(DISTINCT, max(telling)))
    return _changes(_cut(a.layer_ns, depth, root), _cut(b.layer_ns, depth, root), (a.steps, b.steps))


def _cut(layers: Mapping[tuple[str, ...], Floats], depth: int, root: tuple[str, ...]) -> dict[str, Floats]:
    return added((_layer_name(path[:depth], root) or "(no layer)", ns) for path, ns in layers.items())


def _layer_name(path: tuple[str, ...], root: tuple[str, ...]) -> str:
    inside = path[: len(root)] == root and len(path) > len(root)
    return ":".join(path[len(root) :] if inside else path)


def _folded(path: tuple[str, ...]) -> tuple[str, ...]:
    """The path with the numbers of repeated layers replaced by *.

    >>> _folded(("GPT", "h.3", "attn"))
    ('GPT', 'h.*', 'attn')
    """
    return tuple(f"{m[1]}*" if (m := COUNTED.match(part)) else part for part in path)


def _entries(matches: Sequence[Match], root: tuple[str, ...], same: Same, steps: tuple[int, int]) -> tuple[Entry, ...]:
    groups: dict[Key, list[Match]] = {}
    for found in matches:
        groups.setdefault(_key(found), []).append(found)
    entries = [_entry(key, members, root, same, steps) for key, members in groups.items()]
    return tuple(sorted(entries, key=lambda e: (-abs(e.ns.change), -e.ns.before, e.name, e.phase)))


def _key(found: Match) -> Key:
    """The key shared by all lines of one row of the difference."""
    first = (found.a or found.b)[0]
    if found.how == "graph":
        return ("graph", (), "all that is not named above", "")
    if found.how == "kind":
        return (first.place.phase, (), small(first.kind), "kind")
    if found.how == "layer":
        ops = [", ".join(dict.fromkeys(line.place.op for line in side)) for side in (found.a, found.b)]
        return (first.place.phase, _folded(first.place.layer), " -> ".join(ops), first.place.dir)
    spots = [line.place for line in found.a or found.b]
    places = {(spot.phase, _folded(spot.layer), spot.op, spot.dir) for spot in spots}
    if len(places) == 1:
        return places.pop()
    return (first.place.phase, (), first.place.aten.removeprefix("aten::"), first.place.dir)


def _entry(key: Key, members: Sequence[Match], root: tuple[str, ...], same: Same, steps: tuple[int, int]) -> Entry:
    phase, path, op, way = key
    layer = _layer_name(path, root)
    name = f"{layer} {op}".strip()
    if way == "fprop" and phase == "backward":
        name += ", recomputed"
    sides = lines_of(members)
    shares = [tuple(tensor_share(side) for side in (m.a, m.b)) for m in members]
    layers = max(len({line.place.layer for line in side}) for side in sides)
    return Entry(
        name=name,
        layer=layer,
        op=op,
        phase=phase,
        how=tuple(dict.fromkeys(m.how for m in members)),
        ns=delta_of(sides, steps),
        count=(sum(line.count for line in sides[0]), sum(line.count for line in sides[1])),
        layers=layers if "*" in layer else 1,
        swaps=swaps(name, members, same, steps),
        tc_lost=sum(before > MOSTLY >= after for before, after in shares),
        tc_gained=sum(after > MOSTLY >= before for before, after in shares),
    )


def _drift(matches: Iterable[Match], same: Same) -> tuple[float, float]:
    """The relative change of calls with the same kernels and shapes (median, weighted by time), and their time in A.

    NaN unless nearly all of them changed in the same direction.
    """
    pairs = [
        (m.a[0].ns.mean(), m.b[0].ns.mean() / m.b[0].count * m.a[0].count)
        for m in matches
        if m.how == "same" and {same(k) for k in m.a[0].kernels} == {same(k) for k in m.b[0].kernels}
    ]
    before, after = (np.array(side, np.float64) for side in (zip(*pairs, strict=True) if pairs else ((), ())))
    if not before.sum():
        return math.nan, 0.0
    ratio = np.divide(after, before, out=np.ones(len(before)), where=before > 0) - 1
    order = np.argsort(ratio, kind="stable")
    share = np.cumsum(before[order]) / before.sum()
    middle = float(ratio[order][np.searchsorted(share, 0.5)])
    one_way = before[np.sign(ratio) == math.copysign(1, middle)].sum() / before.sum()
    return (middle if one_way >= ALIKE else math.nan), float(before.sum())
