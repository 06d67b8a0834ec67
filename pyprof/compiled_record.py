"""What pyprof records of compiled code: which ops each call in the code of a compiled graph computes.

Inductor turns a graph of ops into Python code that calls kernels: Triton kernels that it generated, and libraries'. The
record of a graph lists these calls in order. It travels in the key ``pyprof`` of a Kineto trace, and in NVTX ranges.

A graph's code runs within a range ``pyprof.compiled:NUMBER``. Under NVTX the range's text also has the record, in
pieces: ``pyprof.compiled:NUMBER:0/2:..`` around ``pyprof.compiled:NUMBER:1/2:..``, each with a part of its JSON text.
"""

import re
from typing import Any

import msgspec

from pyprof.dtypes import TRITON
from pyprof.range_pieces import pieces_of

COMPILED_RANGE = "pyprof.compiled:"
VERSION = 1
# A kernel that inductor made for a CPU, as torch.profiler names it (torch._inductor.config.cpp.enable_kernel_profile).
CPP_KERNEL = re.compile(r"(?:graph_\d+_)?cpp_fused_\w+|kernel_cpp_\d+")
# A Triton kernel's definition in inductor's code has the types of its arguments: 'signature': {'in_ptr0': '*bf16', ..
_KERNEL = re.compile(r"^(\w+) = async_compile\.triton\(", re.MULTILINE)
_SIGNATURE = re.compile(r"'signature': (\{[^{}]*\})")
_TYPE = re.compile(r"'\w+': (?:'([^']*)'|\([^()]*\))")  # a tuple's types are in parentheses

# Functions of inductor's extern_kernels that are not called as the op that they run (select_algorithm.py of 2.13).
_RUNS = {"bias_addmm": "addmm"}


class Operation(msgspec.Struct, frozen=True):
    """One call of an aten op in the program, as autograd traced it. Decomposed ops are one call."""

    aten: str  # aten::gelu
    mod: str = ""  # the function that the program called, as in a marker: torch.nn.functional, gelu
    op: str = ""
    layer: tuple[str, ...] = ()  # names of the modules around the call, outermost first; relative to the compiled one
    root: str = ""  # the class of the first of them, if it was called from outside of any module
    trace: tuple[str, ...] = ()  # the user's stack, file:line, outermost first
    functions: tuple[str, ...] = ()  # the functions that these lines are in
    backward: bool = False
    again: bool = False  # a forward op that the backward pass computes again, or a part of a backward op done before
    # Its positional arguments: {"dtype", "shape"} for a tensor; numbers, texts, None and lists as they are; {} for
    # anything else. None: not known.
    args: tuple[Any, ...] | None = None
    # Of a backward pass that compiled autograd traced: the node of autograd that it is of (AddmmBackward0), and by how
    # much that node's sequence number is smaller than that of the pass's first node; -1: not known.
    node: str = ""
    behind: int = -1


class Call(msgspec.Struct, frozen=True):
    """One call of a kernel in a graph's code."""

    kernel: str  # triton_poi_fused_add_0, extern_kernels.addmm, torch.ops.aten.convolution.default
    operations: tuple[int, ...] = ()  # indices of the operations that it computes, in order
    done: tuple[int, ...] = ()  # those whose last part it computes
    loops: tuple[int | str, ...] = ()  # a Triton kernel's: rows, and elements per row (1 if it does not reduce)


class CompiledRecord(msgspec.Struct, frozen=True):
    """The record of one graph.

    Sizes that vary between calls are texts such as ``s0*2048`` in inductor's caches, and numbers in captures.
    """

    calls: tuple[Call, ...]
    operations: tuple[Operation, ...]
    dtypes: dict[str, tuple[str, ...]] = {}  # Triton kernel -> the dtype of each argument, "" where it is no tensor
    symbols: dict[str, tuple[int, int]] = {}  # of a size -> the input that has it, and in which dimension; -1: itself


def range_texts(number: str, record: str) -> list[str]:
    """The texts of the ranges around a graph's code under NVTX, outermost first."""
    return [piece.text(f"{COMPILED_RANGE}{number}:") for piece in pieces_of(record)]


def op_name(kernel: str) -> str:
    """The name that the profiler records for a call in inductor's code.

    >>> op_name("extern_kernels.mm"), op_name("torch.ops.aten.convolution.default"), op_name("triton_poi_fused_add_0")
    ('aten::mm', 'aten::convolution', 'triton_poi_fused_add_0')
    """
    if kernel.startswith("extern_kernels."):
        name = kernel.removeprefix("extern_kernels.")
        return f"aten::{_RUNS.get(name, name)}"
    if kernel.startswith("torch.ops."):
        library, _, rest = kernel.removeprefix("torch.ops.").partition(".")
        return f"{library}::{rest.partition('.')[0]}"
    return kernel


def dtypes_of(source: str) -> dict[str, tuple[str, ...]]:
    """The dtype of each argument of the Triton kernels that inductor's code defines; "" where it is no tensor.

    >>> dtypes_of("k = async_compile.triton('k', .. 'signature': {'x': '*bf16', 'n': 'i32', 'BLOCK': 'constexpr'}, ..")
    {'k': ('bfloat16', '')}
    """
    found = {}
    begins = list(_KERNEL.finditer(source))
    for at, begin in enumerate(begins, start=1):
        signature = _SIGNATURE.search(source, begin.end(), begins[at].start() if at < len(begins) else len(source))
        if signature is not None:
            types = [kind for kind in _TYPE.findall(signature[1]) if kind != "constexpr"]
            found[begin[1]] = tuple(TRITON.get(kind, "") for kind in types)
    return found


def fused_operations(text: str) -> list[dict[str, Any]] | None:
    """The items of a cell of the column ``fused``; None if the text is something else.

    An item has what is known of ``aten``, ``op``, ``layer`` (the innermost) and ``line``; ``done`` if the row completes
    the operation, then with ``args``, and ``again`` as ``Operation`` has it.
    """
    try:
        return msgspec.json.decode(text, type=list[dict[str, Any]])
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None


def fused_text(text: str) -> str:
    """A cell of ``fused`` in short: each operation with its layer.

    >>> fused_text('[{"aten":"aten::add"},{"aten":"aten::gelu","op":"gelu","layer":"mlp.act"}]')
    'add,gelu@mlp.act'
    """
    items = fused_operations(text) or []
    named = [(str(item.get("aten", "")).rpartition("::")[2], item.get("layer")) for item in items]
    return ",".join(f"{name}@{layer}" if layer else name for name, layer in named)
