"""Sizes that vary between calls of a compiled graph: their symbols, and their values in one call.

Dynamo gives such a size a symbol (s0), and inductor's graphs have expressions of symbols (s0*2048). Each symbol is an
input of the graph, or a dimension of one. So the values of a call follow from its inputs.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch.fx import Graph

from pyprof.compiled_record import CompiledRecord

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def symbols_of(graph: Graph) -> dict[str, tuple[int, int]]:
    """Symbol -> which input of the graph has it, and in which dimension; -1 where the input is the size itself."""
    found: dict[str, tuple[int, int]] = {}
    for at, node in enumerate(node for node in graph.nodes if node.op == "placeholder"):
        value = node.meta.get("val")
        sizes = [(value, -1)] if isinstance(value, torch.SymInt) else []
        if isinstance(value, torch.Tensor):
            sizes = [(size, dim) for dim, size in enumerate(value.shape)]
        for size, dim in sizes:
            if type(size) is not int and str(size).isidentifier():
                found.setdefault(str(size), (at, dim))
    return found


def values_of(symbols: Mapping[str, Sequence[int]], inputs: Sequence[Any]) -> dict[str, int]:
    """The values of the symbols in a call with these inputs; without those that cannot be found."""
    values = {}
    for symbol, (at, dim) in symbols.items():
        value = inputs[at] if at < len(inputs) else None
        if dim >= 0 and isinstance(value, torch.Tensor) and dim < value.dim():
            value = value.shape[dim]
        if type(value) is int:
            values[symbol] = value
    return values


def with_values(record: str, values: Mapping[str, int]) -> str:
    """The record with the sizes of a call: numbers in place of expressions of symbols; -1 for what is unknown."""
    whole = msgspec.json.decode(record, type=CompiledRecord)
    calls = [msgspec.structs.replace(call, loops=_sizes(call.loops, values)) for call in whole.calls]
    operations = [
        one
        if one.args is None
        else msgspec.structs.replace(one, args=tuple(_argument(arg, values) for arg in one.args))
        for one in whole.operations
    ]
    known = msgspec.structs.replace(whole, calls=tuple(calls), operations=tuple(operations), symbols={})
    return msgspec.json.encode(known).decode("ascii", "backslashreplace")


def _argument(value: Any, values: Mapping[str, int]) -> Any:
    if isinstance(value, list):
        return [_argument(item, values) for item in value]
    if isinstance(value, dict) and "size" in value:
        return evaluated(str(value["size"]), values)
    if isinstance(value, dict) and "shape" in value:
        return {**value, "shape": list(_sizes(value["shape"], values))}
    return value


def _sizes(sizes: Sequence[int | str], values: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else evaluated(size, values) for size in sizes)


def evaluated(expression: str, values: Mapping[str, int]) -> int:
    """The value of an expression of symbols; -1 if it has other operations than + - * //, or an unknown symbol.

    >>> evaluated("2048*s0 + 1", {"s0": 4}), evaluated("Max(1, s0)", {"s0": 4}), evaluated("s7", {})
    (8193, -1, -1)
    """
    try:
        return _value(ast.parse(expression, mode="eval").body, values)
    except (SyntaxError, KeyError, ZeroDivisionError):
        return -1


def _value(node: ast.expr, values: Mapping[str, int]) -> int:
    """Raises KeyError for what is not known."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, values)
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, values), _value(node.right, values))
    raise KeyError(ast.dump(node))
