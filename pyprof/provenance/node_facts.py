"""What a node of an FX graph says of the program: the function that was called, its module, and the user's lines.

Dynamo and AOTAutograd keep these in ``node.meta``: ``nn_module_stack``, ``source_fn_stack`` and ``stack_trace`` of
forward nodes, the first two as ``fwd_..`` of backward ones (2.11 and 2.13). Where compiled autograd traces a backward
graph again, its nodes have both: the forward call's, and those of the tracing. Nothing here runs the program's code.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

_PART = re.compile(
    r"""\.(?:_modules\b|_orig_mod\b|_fsdp_wrapped_module\b|_checkpoint_wrapped_module\b)|\[['"]?([^'"\]]*)['"]?\]"""
)
_ROOT = re.compile(r"""^(?:[LG]\[['"][^'"]*['"]\]|L__self__|self)""")
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_OPERATOR = "_operator"


def layers_of(meta: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """The names of the modules around the call, outermost first, from the variable that holds the model; and the class
    of the first of them."""
    stack = meta.get("fwd_nn_module_stack") or meta.get("nn_module_stack") or {}
    items = [item for item in stack.values() if isinstance(item, tuple) and len(item) == 2]
    names = tuple(path_of(str(path)) for path, _ in items)
    return names, _class_name(items[0][1]) if items else ""


def path_of(expression: str) -> str:
    """The module's path from the variable that dynamo found it in.

    >>> path_of("L['self'].blocks.0.attn"), path_of("L['self']._modules['h']['0']"), path_of("G['model']")
    ('blocks.0.attn', 'h.0', '')
    """
    rest = _ROOT.sub("", expression)
    return _PART.sub(lambda part: f".{part[1]}" if part[1] else "", rest).strip(".")


def _class_name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]


def function_of(meta: dict[str, Any]) -> tuple[str, str]:
    """Module and name of the function that the program called, in the words of a marker; empty if it is not known."""
    stack = meta.get("fwd_source_fn_stack") or meta.get("source_fn_stack") or ()
    if not stack:
        return "", ""
    function = stack[-1][1]
    if isinstance(function, str):  # a method of a tensor
        return "Tensor", function
    name = getattr(function, "__name__", "")
    if isinstance(function, type):
        return _functional(name)
    module = getattr(function, "__module__", None) or ""
    if module == _OPERATOR:
        return "Tensor", f"__{name}__"
    return ("torch.nn.functional" if hasattr(torch.nn.functional, name) else module), name


def _functional(name: str) -> tuple[str, str]:
    """The function of torch.nn.functional that a class of torch.nn calls, where its name says it.

    >>> _functional("Linear"), _functional("LayerNorm"), _functional("Mine")
    (('torch.nn.functional', 'linear'), ('torch.nn.functional', 'layer_norm'), ('torch.nn', 'Mine'))
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)  # RMSNorm: RMS, Norm
    for candidate in (name.lower(), words.lower()):
        if hasattr(torch.nn.functional, candidate):
            return "torch.nn.functional", candidate
    return "torch.nn", name


def lines_of(meta: dict[str, Any], shown: Callable[[str], str | None]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The user's lines, file:line, outermost first, and their functions. ``shown(path)``: the name of a file; empty if
    its lines are left out."""
    text = meta.get("stack_trace")
    frames = _FRAME.findall(text) if isinstance(text, str) else []
    named = [(shown(path), line, function) for path, line, function in frames]
    kept = [(f"{name}:{line}", function) for name, line, function in named if name]
    return tuple(line for line, _ in kept), tuple(function for _, function in kept)


def target_name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def is_view(node: Node) -> bool:
    """Whether the node only gives another view of its input, by its schema: ``Tensor(a) -> Tensor(a)``."""
    if target_name(node) == "getitem":
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    returned = [result.alias_info for result in node.target._schema.returns]
    return bool(returned) and all(alias is not None and not alias.is_write for alias in returned)
