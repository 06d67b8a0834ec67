"""The nodes of a graph as inductor lists them in ``fx_graph_transformed.py``, each with the program's line.

    # File: /home/me/net.py:12 in forward, code: return F.gelu(x)
    mul_2: "f32[4, 8, 64]" = torch.ops.aten.mul.Tensor(view_1, 0.5);  view_1 = None

Seen in 2.11 and 2.13. A line of another form is passed over, and so is a place within PyTorch itself.
"""

import ast
import re
from typing import Any, NamedTuple

_FILE = re.compile(r"# File: (.+?):(\d+) in (\S+?)(?:, code: .*)?$")
_SOURCE = re.compile(r"#\s")
_TORCH = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")  # inductor names the innermost line, also in PyTorch
_TENSOR = re.compile(r"(\w+)\[([^\]]*)\]")
_LINE_MOST = 100_000  # characters; a call with lists of hundreds of tensors has a few thousand
# the short names of dtypes in listings (torch/fx/graph.py, dtype_abbrs of 2.13)
_DTYPES = {
    "bf16": "bfloat16", "f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "b8": "bool",
    "c32": "complex32", "c64": "complex64", "c128": "complex128", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0fnu": "float8_e8m0fnu",
}  # fmt: skip


class ListedNode(NamedTuple):
    """One node: the op that it calls (``aten::mul``), its arguments as ``Operation.args``, its line and function."""

    aten: str
    args: tuple[Any, ...]
    line: str = ""
    function: str = ""


def nodes_of(text: str) -> dict[str, ListedNode]:
    """The nodes by name, in the graph's order."""
    found: dict[str, ListedNode] = {}
    tensors: dict[str, dict[str, Any]] = {}
    line, function = "", ""
    for raw in text.splitlines():
        stripped = raw.strip()
        if stripped.startswith("def "):
            tensors.update(_inputs(stripped))
        if _SOURCE.match(stripped):
            place = _FILE.match(stripped)
            own = place is not None and not _TORCH.search(place[1])
            line, function = (f"{place[1]}:{place[2]}", place[3]) if place and own else ("", "")
            continue
        statement = _statement(stripped.partition(";")[0])
        if statement is None:
            continue
        name, annotation, call = statement
        tensor = _tensor(annotation)
        if tensor:
            tensors[name] = tensor
        aten = _op(call.func)
        if aten:
            found[name] = ListedNode(aten, tuple(_argument(item, tensors) for item in call.args), line, function)
    return found


def _statement(text: str) -> tuple[str, str, ast.Call] | None:
    """The name, the annotation and the call of one line."""
    if "torch.ops." not in text or len(text) > _LINE_MOST:
        return None
    try:
        parsed = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what ast.parse raises for damaged text
        return None
    if len(parsed) != 1 or not isinstance(parsed[0], ast.AnnAssign | ast.Assign):
        return None
    node = parsed[0]
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    if not isinstance(target, ast.Name) or not isinstance(node.value, ast.Call):
        return None
    given = node.annotation if isinstance(node, ast.AnnAssign) else None
    return target.id, str(given.value) if isinstance(given, ast.Constant) else "", node.value


def _inputs(text: str) -> dict[str, dict[str, Any]]:
    """The tensors among the graph's inputs: ``def forward(self, primals_1: "f32[32]", ..``."""
    given = re.findall(r'(\w+): "([^"]*)"', text)
    return {name: tensor for name, annotation in given if (tensor := _tensor(annotation))}


def _tensor(annotation: str) -> dict[str, Any]:
    """``f32[4, 8]`` as an argument; sizes that vary are -1; empty for anything else."""
    match = _TENSOR.match(annotation)
    dtype = _DTYPES.get(match[1], "") if match else ""
    if match is None or not dtype:
        return {}
    sizes = [size.strip() for size in match[2].split(",") if size.strip()]
    return {"dtype": dtype, "shape": [int(size) if size.isdecimal() else -1 for size in sizes]}


def _op(function: ast.expr) -> str:
    """``aten::mul`` for torch.ops.aten.mul.Tensor."""
    parts: list[str] = []
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name) or function.id != "torch" or len(parts) < 3 or parts[-1] != "ops":
        return ""
    library, name = parts[-2], parts[-3]
    return name if library == "higher_order" else f"{library}::{name}"


def _argument(node: ast.expr, tensors: dict[str, dict[str, Any]]) -> Any:
    if isinstance(node, ast.Name):
        return tensors.get(node.id, {})
    if isinstance(node, ast.Constant):
        value = node.value
        return value if value is None or isinstance(value, bool | int | str) else _number(value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int | float) else {}
    if isinstance(node, ast.List | ast.Tuple):
        return [_argument(item, tensors) for item in node.elts]
    return {}


def _number(value: object) -> Any:
    return value if isinstance(value, float) and abs(value) < float("inf") else {}
