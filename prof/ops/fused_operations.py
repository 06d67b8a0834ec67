"""FLOPs of a compiled kernel by the record of what it computes (the column ``fused``).

Each operation counts as its own model counts the call that the program made, once, in the kernel that completes it. So a
compiled program has the FLOPs of the eager one: what the compiler computes a second time, or leaves out, does not count.
The product of a matrix operation runs in a kernel of its own, and counts there; a template's kernel is one.
"""

import json
from collections.abc import Sequence
from typing import Any

from pyprof.errors import ModelError
from pyprof.prof.ops.evaluation import evaluate, find
from pyprof.prof.ops.fused_names import NO_FLOP
from pyprof.prof.ops.model import FAMILY, MATRIX, UNKNOWN, Tensor, total


def recorded_flop(fused: str, has_product: bool) -> int | None:
    """The FLOPs of the operations in a cell of ``fused``; None if those of one are unknown.

    ``has_product``: whether the kernel computes the products among them.
    """
    flop = 0
    for operation in json.loads(fused):
        if not operation.get("done") or operation.get("again"):
            continue
        own = _flop(str(operation.get("aten", "")), operation.get("args"), has_product)
        if own is None:
            return None
        flop += own
    return flop


def _flop(aten: str, args: Sequence[Any] | None, has_product: bool) -> int | None:
    name = find(aten)
    if name is None:
        return 0 if aten.rpartition("::")[2].partition(".")[0] in NO_FLOP else None
    if FAMILY[name] in MATRIX and not has_product:
        return 0
    if args is None:
        return None
    try:
        return total(evaluate(name, tuple(map(_argument, args)))).flop
    except ModelError:
        return None


def _argument(value: Any) -> Any:
    """An argument of ``Operation.args`` (pyprof/compiled_record.py) as the models take it."""
    if isinstance(value, list):
        return tuple(map(_argument, value))
    if not isinstance(value, dict):
        return value
    shape = value.get("shape")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        return UNKNOWN
    return Tensor(tuple(shape), str(value.get("dtype", "")))
