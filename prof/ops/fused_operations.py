"""FLOPs of a compiled kernel by the record of what it computes (the column ``fused``).

Each operation counts as its own model counts the call that the program made, once, in the kernel that completes it. So
a compiled program has the FLOPs of the eager one: what the compiler computes a second time does not count again. The
product of a matrix operation runs in a kernel of its own, and counts there; a template's kernel is one.
"""

from collections.abc import Callable
from typing import Any

from pyprof.compiled_record import fused_operations
from pyprof.errors import ModelError
from pyprof.prof.ops.evaluation import evaluate, find
from pyprof.prof.ops.fused_names import NO_FLOP
from pyprof.prof.ops.model import FAMILY, MATRIX, UNKNOWN, Tensor, total


def recorded_flop(fused: str, has_product: bool, otherwise: Callable[[str], int | None]) -> int | None:
    """The FLOPs of the operations in a cell of ``fused``; None if those of one are unknown.

    ``has_product``: whether the kernel computes the products among them. ``otherwise(op)``: the FLOPs of an operation
    whose arguments are not known.
    """
    operations = fused_operations(fused)
    if operations is None:
        return None
    flop = 0
    for operation in _counted(operations):
        aten = str(operation.get("aten", ""))
        own = _flop(aten, operation.get("args"), has_product)
        own = otherwise(aten.rpartition("::")[2].partition(".")[0]) if own is None else own
        if own is None:
            return None
        flop += own
    return flop


def product_flop(fused: str, family: str) -> int | None:
    """The FLOPs of the operations of a family of matrix products in a cell of ``fused``; None if they are unknown."""
    atens = [
        (str(operation.get("aten", "")), operation.get("args")) for operation in _counted(fused_operations(fused) or [])
    ]
    known = [_flop(aten, args, True) for aten, args in atens if FAMILY.get(find(aten) or "") == family]
    return sum(flop for flop in known if flop is not None) if known and None not in known else None


def completes_none(fused: str) -> bool:
    """Whether a cell of ``fused`` has operations, none of which the call completes."""
    operations = fused_operations(fused)
    return bool(operations) and not any(item.get("done") for item in operations or ())


def _counted(operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in operations if item.get("done") and not item.get("again")]


def _flop(aten: str, args: object, has_product: bool) -> int | None:
    name = find(aten)
    if name is None:
        return 0 if aten.rpartition("::")[2].partition(".")[0] in NO_FLOP else None
    if FAMILY[name] in MATRIX and not has_product:
        return 0
    if not isinstance(args, list):
        return None
    try:
        arguments = tuple(map(_argument, args))
        return None if UNKNOWN in arguments else total(evaluate(name, arguments)).flop
    except ModelError:
        return None


def _argument(value: Any) -> Any:
    """An argument of ``Operation.args`` (pyprof/compiled_record.py) as the models take it."""
    if isinstance(value, list):
        return tuple(map(_argument, value))
    if not isinstance(value, dict):
        return value
    shape = value.get("shape")  # absent for what is no tensor
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        return UNKNOWN
    return Tensor(tuple(shape), str(value.get("dtype", "")))
