"""What a kernel does on its own, where its op's model does not say: the bytes of chores, the work of hidden experts.

An op's model counts its algorithm, on its main kernels. The chores around it (``aux``) move bytes of their own: slices
of a split product, casts, layouts, cleared buffers. And some libraries' ops have no model because their arguments do
not say the sizes, but their kernels' names and launches do. Each rule here names its kernels by pattern and takes the
kernel, the one before it in the same op, and the op's recorded arguments; what it cannot tell stays unknown.

Bytes here are a lower bound wherever the docstring says "at least".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyprof.dtypes import cpp_bytes
from pyprof.errors import ModelError
from pyprof.prof.ops.conv import Window, output_shape
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work
from pyprof.prof.work.helpers.experts import expert_work

Grid = tuple[int, int, int]
NO_GRID: Grid = (0, 0, 0)
LARGEST = 2**63  # the table's columns hold less


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel by its long name, with its grid in blocks and its block in threads; zeros where they are unknown."""

    name: str
    grid: Grid = NO_GRID
    block: Grid = NO_GRID

    @property
    def threads(self) -> int:
        return math.prod(self.grid) * math.prod(self.block)


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel within its op: ``arguments`` in the op's schema order, ``outputs`` where they are known."""

    kernel: Launch
    before: Launch | None
    op: str
    arguments: tuple[Any, ...]
    outputs: tuple[Tensor, ...] = ()

    def tensor(self, position: int) -> Tensor | None:
        argument = self.arguments[position] if position < len(self.arguments) else None
        return argument if isinstance(argument, Tensor) else None


Rule = Callable[[Call], "Work | None"]
RULES: list[tuple[re.Pattern[str], Rule]] = []


def rule(pattern: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.append((re.compile(pattern), function))
        return function

    return register


def rule_of(kernel: str) -> str:
    """What the rule for a kernel says of it, by its name; empty where there is none."""
    found = next((function for pattern, function in RULES if pattern.search(kernel)), None)
    return " ".join((found.__doc__ or "").split()) if found else ""


def file_of(kernel: str) -> str:
    """Where the rule for a kernel stands: prof/work/helpers/rules.py; empty where there is none."""
    found = next((function for pattern, function in RULES if pattern.search(kernel)), None)
    return f"prof/{found.__module__.rpartition('.')[2]}.py" if found else ""


def own_work(call: Call) -> Work | None:
    """The kernel's own FLOPs and bytes, None where nothing tells them."""
    found = next((function for pattern, function in RULES if pattern.search(call.kernel.name)), None)
    if found is None:
        return None
    try:
        work = found(call)
    except (ModelError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError, OverflowError):
        return None  # arguments that the rule was not written for: a strange trace must not stop a report
    return work if work is not None and work.flop < LARGEST and work.nbytes < LARGEST else None  # NaN: a type unknown


# --- products in slices -----------------------------------------------------------------------------------------

# Where an op's product lies among its arguments: (rows of A, columns of B).
OPERANDS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2), "_addmm_activation": (1, 2),
            "linear": (0, 1), "_int_mm": (0, 1), "_scaled_mm": (0, 1)}  # fmt: skip


def _results(call: Call) -> list[Tensor]:
    """The outputs that the op may have: a product's one, or a convolution's gradients."""
    if call.op in OPERANDS:
        a, b = (call.tensor(position) for position in OPERANDS[call.op])
        if a is None or b is None or not a.shape or not b.shape:
            return []
        columns = b.shape[0] if call.op == "linear" else b.shape[-1]
        return [a.like((*a.shape[:-1], columns))]
    gradients = {"convolution_backward": (1, 2), "cudnn_convolution_backward_input": (), "einsum": ()}.get(call.op, ())
    return [t for position in gradients if (t := call.tensor(position)) is not None]


EACH = (1, 2, 4, 8)  # elements that a thread of cuBLAS's reducer writes


def _covered(candidates: list[Tensor], threads: int, each: tuple[int, ...] = (1,)) -> Tensor | None:
    """The smallest output that so many threads write, few left over: K is split where little is written."""
    fits = [t for t in candidates if any(t.numel <= n * threads <= 2 * t.numel + 1024 for n in each)]
    return min(fits, key=lambda t: t.numel, default=None)


def _slices(call: Call, result: Tensor) -> int:
    """Into how many slices K was split: the blocks of the product's kernel over its tiles; at least 2."""
    before = call.before
    if before is None:
        return 2
    if before.grid[2] > 1:
        return before.grid[2]
    tile = re.search(r"(?:tilesize|nvjet_(?:sm\d+_)?[a-z]+_)(\d+)x(\d+)", before.name)
    rows = result.shape[0] if result.shape else 1
    columns = result.numel // rows if rows else 0
    if not tile or not columns:
        return 2
    by = (int(tile[1]), int(tile[2]))
    tiles = min(_blocks(rows, columns, by), _blocks(columns, rows, by))
    return max(2, math.prod(before.grid) // tiles)


def _blocks(rows: int, columns: int, tile: tuple[int, int]) -> int:
    return -(-rows // tile[0]) * -(-columns // tile[1])


@rule(r"splitKreduce_kernel<")
def split_k(call: Call) -> Work | None:
    """cuBLAS(Lt): at least two slices of partial sums read, the result written"""
    types = [word for word in re.findall(r"\w+", call.kernel.name.split("splitKreduce_kernel<")[1]) if cpp_bytes(word)]
    types = types[1:] if types[:1] == ["int"] and "<32" in call.kernel.name else types
    results, threads = _results(call), call.kernel.threads
    alone = len(results) == 1 and threads <= 2 * results[0].numel + 1024  # fewer threads loop
    result = results[0] if alone else _covered(results, threads, EACH)
    if result is None or not types:
        return None
    partial = _slices(call, result) * result.numel
    return Work(0, partial * (cpp_bytes(types[0]) or math.nan), result.numel * result.itemsize)


@rule(r"xmma_\w*execute_split_k_kernel|ReduceSplitK")
def split_wgrad(call: Call) -> Work | None:
    """cuDNN, cuBLAS: slices of float32 sums read, the result written. CUTLASS pads channels to whole 16 bytes"""
    results = _results(call)
    weight = results[-1] if results else None
    if weight is None or not weight.itemsize > 0:
        return None
    count = weight.numel
    if "ReduceSplitK" in call.kernel.name and len(weight.shape) > 2 and weight.shape[1]:
        row = int(16 // weight.itemsize)
        count = count // weight.shape[1] * (-(-weight.shape[1] // row) * row)
    return Work(0, _slices(call, weight) * count * 4, count * weight.itemsize)


# --- casts and row sums around attention -------------------------------------------------------------------------


@rule(r"convert_dq")
def convert_dq(call: Call) -> Work | None:
    """The query's gradient, summed in float32, to the query's type"""
    query = call.tensor(1)
    return Work(0, 4 * query.numel, query.numel * query.itemsize) if query else None


@rule(r"fmha_reduce_head")
def reduce_head(call: Call) -> Work | None:
    """dK or dV of every query head, summed over the heads that share it. H200, 16 heads on 4: 67.1 MB read, as here"""
    query, key = call.tensor(1), call.tensor(2)
    if query is None or key is None or not query.shape or query.shape[-1] != key.shape[-1]:
        return None
    return Work(0, query.numel // query.shape[-2] * key.shape[-2] * key.itemsize, key.numel * key.itemsize)


@rule(r"compute_dot_do_o|dot_do_o")
def dot_do_o(call: Call) -> Work | None:
    """Row sums of dO * O in float32: both read, one number a row written; cuDNN's clears dQ's float32 sums, too (H200:
    114 MB written to DRAM, where these have 134 and the row sums 2)"""
    gradient = call.tensor(0)
    if gradient is None or not gradient.shape or not gradient.shape[-1]:
        return None
    cleared = 4 * gradient.numel if "compute_dot_do_o" in call.kernel.name else 0
    return Work(0, 2 * gradient.numel * gradient.itemsize, cleared + 4 * gradient.numel // gradient.shape[-1])


@rule(r"philox::unpack")
def seed(call: Call) -> Work:
    """The dropout's seed and offset, 8 bytes each"""
    return Work(0, 0, 16)


# --- biases, fills, layouts --------------------------------------------------------------------------------------


@rule(r"epilogue::impl::globalKernel<")
def bias_epilogue(call: Call) -> Work | None:
    """cuBLASLt: the product read, the bias added, the result written"""
    results, bias = _results(call), call.tensor(0)
    if len(results) != 1 or bias is None:
        return None
    size = results[0].numel * results[0].itemsize
    return Work(0, size + bias.nbytes, size)


@rule(r"\bscal_kernel<")
def scaled(call: Call) -> Work | None:
    """cuBLAS scales C by beta before products are added to it; where beta is 0 it only writes: at least that"""
    results = _results(call)
    return Work(0, 0, results[0].numel * results[0].itemsize) if len(results) == 1 else None


@rule(r"scale(?:Packed)?Tensor_kernel")
def cleared(call: Call) -> Work | None:
    """cuDNN clears a gradient that a kernel then adds to: at least written"""
    gradient = _covered(_results(call), call.kernel.threads)
    return Work(0, 0, gradient.numel * gradient.itemsize) if gradient else None


@rule(r"init_device_workspace_kernel")
def counter(call: Call) -> Work:
    """cuDNN: one thread clears a counter: at least 4 bytes"""
    return Work(0, 0, 4)


LAYOUT_TILE = 32  # pixels and channels that a block of cuDNN's layout kernels moves


@rule(r"nchwToNhwcKernel|nhwcToNchwKernel")
def layout(call: Call) -> Work | None:
    """cuDNN: a tensor of the convolution read and written in another layout; the grid tells which: blocks of pixels,
    blocks of channels, images"""
    pixels, channels, images = call.kernel.grid
    for tensor in _tensors_of_convolution(call):
        image = math.prod(tensor.shape[2:])
        if (-(-image // LAYOUT_TILE), -(-tensor.shape[1] // LAYOUT_TILE), tensor.shape[0]) == (
            pixels,
            channels,
            images,
        ):
            size = tensor.numel * tensor.itemsize
            return Work(0, size, size)
    return None


def _tensors_of_convolution(call: Call) -> list[Tensor]:
    tensors = [a for a in call.arguments if isinstance(a, Tensor) and len(a.shape) > 2]
    if call.op == "cudnn_convolution" and len(tensors) == 2:
        x, weight = tensors
        padding, stride, dilation = (*call.arguments[2:5], *(UNKNOWN,) * 3)[:3]
        if call.outputs:
            tensors.append(x.like(call.outputs[0].shape))
        elif not any(value is UNKNOWN or value is None for value in (padding, stride, dilation)):
            tensors.append(x.like(output_shape(x, weight, Window(stride, padding, dilation))))
    return tensors


@rule(r"nhwcAddPaddingKernel")
def padded(call: Call) -> Work | None:
    """cuDNN widens channels to a multiple, at least of 4: the image's, then the weight's; after the product it narrows
    the result's. In a backward the order does not tell which tensor it is."""
    before = call.before.name if call.before else ""
    tensors = _tensors_of_convolution(call) if call.op == "cudnn_convolution" else []
    if before and "AddPadding" not in before:
        tensors = tensors[2:]
    elif before:
        tensors = tensors[1:]
    if not tensors or len(tensors[0].shape) < 3:
        return None
    tensor = tensors[0]
    wide = -(-tensor.shape[1] // 4) * 4 * (tensor.numel // tensor.shape[1] if tensor.shape[1] else 0)
    return Work(0, tensor.numel * tensor.itemsize, wide * tensor.itemsize)


@rule(r"direct_copy_kernel_cuda|copy_device_to_device")
def bias_copy(call: Call) -> Work | None:
    """A bias spread over the rows of the result before a product is added to it"""
    results, bias = _results(call), call.tensor(0)
    if call.op not in ("addmm", "baddbmm") or len(results) != 1 or bias is None:
        return None
    return Work(0, bias.nbytes, results[0].numel * bias.itemsize)


@rule(r"moe::dev::|quantize_with_block_size|^bmm_\w+_t\d+x\d+x\d+")
def experts(call: Call) -> Work | None:
    """A mixture of experts whose op records tokens and router only (prof/work/helpers/experts.py)"""
    before = call.before
    return expert_work(call.kernel.name, call.kernel.grid, call.arguments, before.name if before else "",
                       before.grid if before else NO_GRID)  # fmt: skip
