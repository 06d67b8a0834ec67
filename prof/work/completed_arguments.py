"""The arguments of ops in the form in which Kineto records them, for captures that record only sizes.

Under nsys, an op's range has the sizes of its tensors, those of lists one after the other. The types come from the
names of its kernels and from markers (``arguments.py``), its numbers from the marker of its own call, and what a sum
sums over from the size of its result, which the op that reads it has. With them, the advice and the plan read a capture
of nsys as they read one of Kineto.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyprof.prof.ops.evaluation import find, function_of, parameters
from pyprof.prof.ops.marker_arguments import in_order
from pyprof.prof.ops.model import UNKNOWN, Tensor
from pyprof.prof.work.count import Counted, OpCall
from pyprof.table.columns import Coded, Ints, Table

KEYS = ("sizes", "dtypes", "args")
Cells = tuple[str, ...]  # JSON texts for KEYS


def completed_cells(call: OpCall, counted: Counted) -> Cells | None:
    """The cells of a call whose types are not recorded; None if they are, or if the arguments are not known."""
    own = counted.arguments[: counted.own]
    if call.dtypes or not call.sizes or not own:
        return None
    own = _with_numbers(call, counted.name, own)
    if counted.family == "reduction" and len(own) > 1 and own[1] is UNKNOWN:
        own = (own[0], _summed(own[0], call.outs), *own[2:])
    columns = (_cell(argument) for argument in own)
    return tuple(json.dumps(cells) for cells in zip(*columns, strict=True))


def _with_numbers(call: OpCall, name: str, own: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with the numbers of the op's own call, if its tensors are the op's."""
    if not call.is_forward or not call.markers or find(function_of(call.markers[-1].op)) != name:
        return own
    given = in_order(call.markers[-1], parameters(name), {})[: len(own)]
    given += (UNKNOWN,) * (len(own) - len(given))
    pairs = list(zip(own, given, strict=True))
    if any(b is not UNKNOWN and _shapes(a) != _shapes(b) for a, b in pairs if isinstance(a, Tensor | tuple)):
        return own
    return tuple(b if a is UNKNOWN and _is_number(b) else a for a, b in pairs)


def _summed(given: Any, outs: str) -> Any:
    """The dimensions that are summed over and kept as 1; UNKNOWN if the result's size does not show them."""
    (out,) = json.loads(outs) if outs.count("[") == 2 else ([],)
    if not isinstance(given, Tensor) or len(out) != len(given.shape):
        return UNKNOWN
    pairs = list(enumerate(zip(given.shape, out, strict=True)))
    summed = [at for at, (size, left) in pairs if size != left]
    return summed if summed and all(out[at] == 1 for at in summed) else UNKNOWN


def _shapes(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.shape
    return tuple(map(_shapes, argument)) if isinstance(argument, tuple) else None


def _is_number(value: Any) -> bool:
    """Whether it is a number, or some: names of devices and types are no numbers."""
    some = value if isinstance(value, list | tuple) else (value,)
    return value is not UNKNOWN and all(isinstance(each, bool | int | float) for each in some)


def _cell(argument: Any) -> tuple[Any, Any, str]:
    """An argument's size, type and value, each empty if it has none or it is not known."""
    if isinstance(argument, Tensor):
        return list(argument.shape), argument.dtype, ""
    if isinstance(argument, tuple) and argument and all(isinstance(each, Tensor) for each in argument):
        return [list(each.shape) for each in argument], [each.dtype for each in argument], ""
    if argument is None or not _is_number(argument):
        return [], "", ""
    return [], "", str(list(argument) if isinstance(argument, tuple) else argument)


def completed_columns(table: Table, completed: Sequence[Cells | None], signature: Ints) -> dict[str, Coded] | None:
    """The columns with these cells, one per distinct signature, in the rows that have some; None if none has any."""
    known = [number for number, cells in enumerate(completed) if cells is not None]
    if not known:
        return None
    place = np.full(len(completed), -1, np.int64)
    place[known] = np.arange(len(known))
    at, found = place[signature], {}
    for key, texts in zip(KEYS, zip(*(completed[number] or () for number in known), strict=True), strict=True):
        column = table.coded(key)
        codes = np.where(at >= 0, at + len(column.values), column.codes)
        found[key] = Coded(codes.astype(np.int32), [*column.values, *texts])
    return found
