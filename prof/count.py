"""The work of one op call, from what the capture tells of it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

from pyprof.errors import ModelError
from pyprof.marker import Marker, parse_marker
from pyprof.prof.arguments import knowledge, marked, recorded
from pyprof.prof.dtypes import NOTHING, Dtypes
from pyprof.prof.model import FAMILY, MATRIX, Parts, Tensor, Work, evaluate, find

Amounts = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Counted:
    """An op's name in the registry, family, and FLOPs and bytes of each of its pieces; None where unknown."""

    name: str = ""
    family: str = ""
    parts: dict[str, Amounts] = field(default_factory=dict)
    why: str = ""  # why it is not counted

    @property
    def flop(self) -> int | None:
        return _sum(flop for flop, _ in self.parts.values()) if self.parts else None

    @property
    def nbytes(self) -> int | None:
        return _sum(nbytes for _, nbytes in self.parts.values()) if self.parts else None


def _sum(amounts: object) -> int | None:
    total = 0
    for amount in amounts:  # type: ignore[attr-defined]
        if amount is None:
            return None
        total += amount
    return total


def count_op(
    *, aten: str, sizes: str, dtypes: str, strides: str, args: str, outs: str, marker: str, dir: str,
    kernel: Dtypes = NOTHING,
) -> Counted:  # fmt: skip
    """Count one op call. All arguments but ``kernel``, what the names of its kernels tell, are a row's columns: JSON
    texts, empty where the capture tells nothing."""
    name = find(aten) if aten else None
    if name is None and not aten and marker and dir == "fprop":
        return _from_marker(marker)
    if name is None:
        return Counted(why=f"no model of {aten}" if aten else "no op")
    family = FAMILY[name]
    if not sizes:
        if dir == "fprop" and marker:
            return _from_marker(marker, name)
        return Counted(name, family, why="the capture has no shapes: profile with record_shapes=True")
    op = aten.removeprefix("aten::")
    known = knowledge(_markers(marker), kernel, op, sizes, family in MATRIX, dir == "fprop")
    out = tuple(Tensor(tuple(shape), known.out) for shape in json.loads(outs)) if outs else None
    try:
        arguments = recorded(sizes, dtypes, strides, args, known, op)
        return Counted(name, family, _amounts(evaluate(name, arguments, out)))
    except ModelError as error:
        return Counted(name, family, why=str(error))


def _amounts(work: Work | Parts) -> dict[str, Amounts]:
    parts = {"": work} if isinstance(work, Work) else work
    return {part: (w.flop, None if math.isnan(w.nbytes) else int(w.nbytes)) for part, w in parts.items()}


def _markers(texts: str) -> list[Marker]:
    parsed = [parse_marker(text) for text in json.loads(texts)] if texts else []
    return [marker for marker in parsed if marker is not None]


def _from_marker(texts: str, name: str | None = None) -> Counted:
    """Count by the innermost marker that has a model: the API call itself, without the dispatcher's record."""
    for marker in reversed(_markers(texts)):
        found = find(marker.op.strip("_")) if marker.op.startswith("__") else find(marker.op)
        if found is not None and (name is None or FAMILY[found] == FAMILY[name]):
            try:
                return Counted(found, FAMILY[found], _amounts(evaluate(found, marked(marker))))
            except ModelError as error:
                return Counted(found, FAMILY[found], why=str(error))
    return Counted(name or "", FAMILY[name] if name else "", why="no model of the API call")
