"""Kernels that torch.compile writes (inductor's in Triton), from what torch.profiler records of their launch.

A kernel's name has its kind (``poi`` runs over elements, ``red`` and ``per`` reduce, ``tem`` is a template for a
product) and the aten ops fused into it, each once, sorted: ``triton_poi_fused_add_gelu_3``. Its arguments are tensors,
first those that it updates in place and last those that it writes, and then numbers, which end with the sizes of its
loops.

bytes   each tensor once; of a tensor larger than the loops only as many elements as the loops have (a slice, or
        gathered rows). They are a lower bound: the call does not say which tensors are updated in place, and so read as
        well as written, nor how many slices of one tensor are read. An update is counted where it is certain.
flop    of ``poi``, ``red`` and ``per`` inferred: each op of the name once per element, as its own model counts it. An
        op that the kernel runs twice is named once. A kernel with an unknown op in its name has no FLOPs.
        Of a template's product exact; its epilogue is left out.

Source: torch/_inductor/codegen/{triton,common}.py and runtime/triton_heuristics.py, 2.4 to 2.11.
"""

from __future__ import annotations

import math
import re
from typing import Any

from pyprof.errors import ModelError
from pyprof.prof.ops.evaluation import find
from pyprof.prof.ops.fused_names import fused_ops, op_flop
from pyprof.prof.ops.model import FAMILY, Family, Tensor, Work, model, names

op = Family("compiled")

# Each element of the output reads a window of the input: a tensor larger than the loops is read whole.
SUMS = re.compile(r"_(?:sum|mean|amax|amin|prod|any|var|var_mean)(?=_)")  # short ones, written out element by element
# Element-wise backwards that read a gradient and a tensor of its size.
TWO_OPERANDS = names(
    "gelu_backward silu_backward tanh_backward sigmoid_backward threshold_backward elu_backward hardswish_backward "
    "hardtanh_backward leaky_relu_backward mish_backward softplus_backward"
)
MAKERS = names(
    "arange iota full full_like zeros zeros_like ones ones_like new_zeros new_ones new_full scalar_tensor rand randn "
    "randint inductor_random embedding_dense_backward"
)
WINDOWS = re.compile(r"_pool|upsample|unfold|im2col|col2im|grid_sampler|convolution")


@op("triton_poi_fused triton_red_fused triton_per_fused triton_spl_fused")
def fused(op: str, *arguments: Any) -> Work:
    """Each op of the kernel's name once an element (inferred); each tensor once, at most as large as the loops"""
    flop = fused_flop(op, arguments)
    if flop is None:
        raise ModelError(f"{op}: an op of the kernel's name is not known")
    return Work(flop, fused_bytes(op, arguments))


@model("triton_tem_fused", family="gemm")
def template(op: str, *arguments: Any) -> Work:
    """A @ B as torch.compile's template: 2*M*N*K, its epilogue not counted; each tensor once"""
    return Work(_product(op, arguments), fused_bytes(op, arguments))


@model("triton_tem_fused_convolution", family="conv")
def template_convolution(op: str, *arguments: Any) -> Work:
    """x[N,C,..] * w[O,C/g,..] = y[N,O,..]: 2 * y * C/g * kernel; each tensor once"""
    tensors = _tensors(arguments)
    for x, w, y in ((x, w, y) for x in tensors for w in tensors for y in tensors):
        rank = len(x.shape)
        if rank > 2 and len(w.shape) == len(y.shape) == rank and x is not w and y is not x and y is not w:
            fits = x.shape[0] == y.shape[0] and w.shape[0] == y.shape[1] and x.shape[1] % w.shape[1] == 0
            if fits:
                return Work(2 * y.numel * math.prod(w.shape[1:]), fused_bytes(op, arguments))
    raise ModelError(f"{op}: no convolution among its tensors")


@model("triton_tem_fused_flex_attention", family="attention")
def template_attention(op: str, *arguments: Any) -> Work:
    """softmax(Q @ K') @ V as flex_attention's template, without a block mask: 2*Q*K' + 2*P*V; score_mod not counted

    The blocks' lists are arguments; where there is no mask they hold one block for all. With a mask, how many blocks
    are computed is their contents, which no trace records.
    """
    q, v, pairs = _attended(op, arguments)
    return Work(2 * pairs * (q.shape[3] + v.shape[3]), fused_bytes(op, arguments))


@model("triton_tem_fused_flex_attention_backward", family="attention")
def template_attention_backward(op: str, *arguments: Any) -> Work:
    """Attention's backward, without a block mask, five products: Q @ K' again, dO @ V', P' @ dO, dS @ K, dS' @ Q"""
    q, v, pairs = _attended(op, arguments)
    return Work(2 * pairs * (3 * q.shape[3] + 2 * v.shape[3]), fused_bytes(op, arguments))


def _attended(op: str, arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor, int]:
    """Q, V, and the pairs of rows of Q and K, where no mask leaves any out."""
    q, k, v = (t for t in _tensors(arguments)[:3])
    masked = any(t.numel > 1 for t in _tensors(arguments) if t.dtype == "int32")
    if len(q.shape) != 4 or len(k.shape) != 4 or len(v.shape) != 4 or masked:
        raise ModelError(f"{op}: how many blocks its mask leaves is not recorded")
    return q, v, math.prod(q.shape[:3]) * k.shape[2]


def is_compiled(name: str) -> bool:
    """Whether a registered name is that of kernels by torch.compile, whose models take the kernel's own name first."""
    return name.startswith("triton_")


def fused_bytes(op: str, arguments: tuple[Any, ...]) -> float:
    """Bytes of the kernel's tensors, each once, twice if an update is certain; NaN where a type is not known."""
    tensors = _tensors(arguments)
    if "_tem_" in op[:11]:
        return sum(t.nbytes for t in tensors)
    loops = _loops(op, arguments)[2]
    most = math.inf if WINDOWS.search(op) or (op[7:10] == "poi" and SUMS.search(op)) else loops
    again = tensors[0].nbytes if _updates_first(op, tensors, loops) else 0
    return again + sum(min(t.stored, most) * t.itemsize if t.numel else 0 for t in tensors)


def _updates_first(op: str, tensors: tuple[Tensor, ...], loops: float) -> bool:
    """Whether it is certain that an element-wise kernel reads and writes its first tensor.

    It writes a tensor of the loops' size: the first one where it reads it, too, otherwise the last one. So it updates
    the first where no other can be the one that it writes:

    * there is only one tensor, and the name has an op that reads and none that makes numbers;
    * the last tensor is smaller than the loops;
    * there are two tensors and the op is a backward, which reads a gradient and a saved tensor;
    * only the last tensor is the flat result of a product, which the kernel reads by its name (``_unsafe_view``).
    """
    full = [t for t in tensors if t.numel == loops]
    if op[7:10] != "poi" or not full or tensors[0].numel != loops:
        return False
    ops = fused_ops(op) or ()
    if len(tensors) == 1:
        return not MAKERS.intersection(ops) and any(FAMILY.get(find(name) or "") == "pointwise" for name in ops)
    if tensors[-1].numel < loops:
        return True
    if len(full) < 2:
        return False
    if len(full) == 2 and len(tensors) == 2 and any(name in TWO_OPERANDS for name in ops):
        return True
    return "_unsafe_view" in ops and len(full[-1].shape) == 2 and all(len(t.shape) > 2 for t in full[:-1])


def fused_flop(op: str, arguments: tuple[Any, ...]) -> int | None:
    """FLOPs of the ops in the kernel's name; None where one of them is not known."""
    rows, columns, whole = _loops(op, arguments)
    names = fused_ops(op)
    if names is None or not math.isfinite(whole):
        return None
    tensors = _tensors(arguments)
    writes_all = bool(tensors) and tensors[-1].numel >= whole
    each = [op_flop(name, rows, columns, writes_all) for name in names]
    return None if None in each else sum(f for f in each if f is not None)


def _tensors(arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    return tuple(a for a in arguments if isinstance(a, Tensor))


def _loops(op: str, arguments: tuple[Any, ...]) -> tuple[int, int, float]:
    """Rows, elements a row, and their product, from the numbers that end the call; infinity where it has none.

    One or two loops of rows, then, where the kernel reduces, one of elements. Other numbers may come before: the fewest
    last ones whose product is the size of a tensor are the loops.
    """
    numbers: list[int] = []
    for argument in reversed(arguments):
        if not isinstance(argument, int) or isinstance(argument, bool):
            break
        numbers.insert(0, argument)
    reduces = op[7:10] in ("red", "per", "spl")
    least = 2 if reduces else 1
    if len(numbers) < least:
        return 0, 0, math.inf
    sizes = {t.numel for t in _tensors(arguments)}
    counts = [n for n in range(least, min(len(numbers), least + 2) + 1) if math.prod(numbers[-n:]) in sizes]
    taken = numbers[-(counts[0] if counts else least) :]
    columns = taken.pop() if reduces else 1
    rows = math.prod(taken)
    return rows, columns, rows * columns


def _product(op: str, arguments: tuple[Any, ...]) -> int:
    """2*M*N*K of the first two tensors that multiply to one of the others."""
    tensors = _tensors(arguments)
    shapes = [t.shape for t in tensors if len(t.shape) >= 2]
    for i, a in enumerate(shapes):
        for j, b in enumerate(shapes):
            made = (*a[:-1], b[-1])
            fits = i != j and len(a) == len(b) and a[-1] == b[-2] and a[:-2] == b[:-2]
            if fits and any(c == made for k, c in enumerate(shapes) if k not in (i, j)):
                return 2 * math.prod(made) * a[-1]
    raise ModelError(f"{op}: no product among its tensors")
