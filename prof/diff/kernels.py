"""Which kernels replaced others, and how the time changed."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pyprof.prof.diff.detail import merged_kernels
from pyprof.prof.diff.lines import Kernel, Line, Place
from pyprof.prof.diff.match import SMALL, Match, small
from pyprof.prof.diff.noise import Delta

HARDLY = 0.02  # share of an op's time below which different kernels, such as an additional memset, are no change

Same = Callable[[Kernel], str]  # the name by which kernels of two captures are the same


@dataclass(frozen=True, slots=True)
class Swap:
    """Kernels that replaced others in the same way in all layers."""

    name: str
    place: Place
    matches: int
    a: tuple[Kernel, ...]
    b: tuple[Kernel, ...]
    shapes: tuple[str, str]  # empty if there are several
    dtypes: tuple[str, str]
    ns: Delta
    tc: tuple[float, float]  # tensor cores' share of its matrix products' time; NaN if it has none or it is unknown


def swaps(name: str, members: Sequence[Match], same: Same, steps: tuple[int, int]) -> tuple[Swap, ...]:
    """The changes of kernels within an entry, with equal changes of several layers merged.

    Lines that were matched as a whole are compared as a whole, because a kernel may have moved from one aten op to
    another of the same call.
    """
    groups: dict[Hashable, list[Match]] = {}
    rest: list[Match] = []
    for found in members:
        if found.how == "graph" or (found.how == "kind" and small(found.a[0].kind) == SMALL):
            continue
        if found.how == "op" or (found.how != "moved" and (len(found.a) > 1 or len(found.b) > 1)):
            rest.append(found)
        elif found.a and found.b:
            before, after = ({same(k) for line in side for k in line.kernels} for side in (found.a, found.b))
            if before != after:
                groups.setdefault((found.a[0].place.aten, frozenset(before), frozenset(after)), []).append(found)
    made = [_swap(name, found, same, steps) for found in groups.values()]
    a, b = lines_of(rest)
    if a and b:
        whole = _swap(name, [Match("op", tuple(a), tuple(b))], same, steps)
        made.append(replace(whole, place=replace(whole.place, aten=""), shapes=("", "")))
    return tuple(s for s in made if sum(k.ns for k in (*s.a, *s.b)) > HARDLY * (s.ns.before + s.ns.after))


def _swap(name: str, members: Sequence[Match], same: Same, steps: tuple[int, int]) -> Swap:
    sides = lines_of(members)
    a, b = (merged_kernels(side, same) for side in sides)
    others = {same(k) for k in a} & {same(k) for k in b}
    shapes, dtypes = ([{getattr(line, of) for line in side} for side in sides] for of in ("shapes", "dtype"))
    return Swap(
        name=name,
        place=sides[0][0].place,
        matches=len(members),
        a=tuple(k for k in a if same(k) not in others),
        b=tuple(k for k in b if same(k) not in others),
        shapes=(_only(shapes[0]), _only(shapes[1])),
        dtypes=(_only(dtypes[0]), _only(dtypes[1])),
        ns=delta_of(sides, steps),
        tc=(tensor_share(sides[0]), tensor_share(sides[1])),
    )


def _only(texts: set[str]) -> str:
    return next(iter(texts)) if len(texts) == 1 else ""


def lines_of(members: Sequence[Match]) -> tuple[list[Line], list[Line]]:
    return [line for found in members for line in found.a], [line for found in members for line in found.b]


def delta_of(sides: Sequence[Sequence[Line]], steps: tuple[int, int]) -> Delta:
    a, b = (sum((line.ns for line in side), np.zeros(n)) for side, n in zip(sides, steps, strict=True))
    return Delta(a, b)


def tensor_share(lines: Iterable[Line]) -> float:
    """The tensor cores' share of the matrix products' time, over kernels where this is known; NaN without any."""
    kernels = [k for line in lines for k in line.kernels if k.tc in ("0", "1")]
    whole = sum(k.ns for k in kernels)
    return sum(k.ns for k in kernels if k.tc == "1") / whole if whole else math.nan
