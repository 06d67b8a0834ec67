"""Kernels around matrix products: sums of the slices of a split product, biases, scaled results."""

import math
import re

from pyprof.dtypes import cpp_bytes
from pyprof.prof.ops.model import Tensor, Work
from pyprof.prof.work.helpers.registry import HelperCall, rule

# The positions of the product's sizes among an op's arguments: (rows of A, columns of B).
OPERANDS = {
    **dict.fromkeys(("mm", "bmm", "linear", "_int_mm", "_scaled_mm"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "_addmm_activation"), (1, 2)),
}


def possible_results(call: HelperCall) -> list[Tensor]:
    """The possible outputs of the op: the result of a product, or the gradients of a convolution."""
    if call.op in OPERANDS:
        a, b = (call.tensor(position) for position in OPERANDS[call.op])
        if a is None or b is None or not a.shape or not b.shape:
            return []
        columns = b.shape[0] if call.op == "linear" else b.shape[-1]
        return [a.like((*a.shape[:-1], columns))]
    gradients = {"convolution_backward": (1, 2), "cudnn_convolution_backward_input": (), "einsum": ()}.get(call.op, ())
    return [t for position in gradients if (t := call.tensor(position)) is not None]


EACH = (1, 2, 4, 8)  # possible numbers of elements that a thread of cuBLAS's reducer writes


def covered_result(candidates: list[Tensor], threads: int, each: tuple[int, ...] = (1,)) -> Tensor | None:
    """The smallest output that ``threads`` threads can write with few to spare. (K is split if the output is small.)"""
    fits = [t for t in candidates if any(t.numel <= n * threads <= 2 * t.numel + 1024 for n in each)]
    return min(fits, key=lambda t: t.numel, default=None)


def _slices(call: HelperCall, result: Tensor) -> int:
    """The number of slices into which K was split: the product kernel's blocks / tiles of the result; at least 2."""
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
def split_k(call: HelperCall) -> Work | None:
    """cuBLAS(Lt): at least two slices of partial sums read, the result written"""
    types = [word for word in re.findall(r"\w+", call.kernel.name.split("splitKreduce_kernel<")[1]) if cpp_bytes(word)]
    types = types[1:] if types[:1] == ["int"] and "<32" in call.kernel.name else types
    results, threads = possible_results(call), call.kernel.threads
    alone = len(results) == 1 and threads <= 2 * results[0].numel + 1024  # with fewer threads, each thread loops
    result = results[0] if alone else covered_result(results, threads, EACH)
    if result is None or not types:
        return None
    partial = _slices(call, result) * result.numel
    return Work(0, partial * (cpp_bytes(types[0]) or math.nan), result.numel * result.itemsize)


@rule(r"xmma_\w*execute_split_k_kernel|ReduceSplitK")
def split_wgrad(call: HelperCall) -> Work | None:
    """cuDNN, cuBLAS: reads slices of float32 sums, writes the result. CUTLASS pads channels to multiples of 16 bytes"""
    results = possible_results(call)
    weight = results[-1] if results else None
    if weight is None or not weight.itemsize > 0:
        return None
    count = weight.numel
    if "ReduceSplitK" in call.kernel.name and len(weight.shape) > 2 and weight.shape[1]:
        row = int(16 // weight.itemsize)
        count = count // weight.shape[1] * (-(-weight.shape[1] // row) * row)
    return Work(0, _slices(call, weight) * count * 4, count * weight.itemsize)


@rule(r"epilogue::impl::globalKernel<")
def bias_epilogue(call: HelperCall) -> Work | None:
    """cuBLASLt: reads the product, adds the bias, writes the result"""
    results, bias = possible_results(call), call.tensor(0)
    if len(results) != 1 or bias is None:
        return None
    size = results[0].numel * results[0].itemsize
    return Work(0, size + bias.nbytes, size)


@rule(r"\bscal_kernel<")
def scaled(call: HelperCall) -> Work | None:
    """cuBLAS scales C by beta before adding products to it. With beta = 0 it only writes; bytes are at least that"""
    results = possible_results(call)
    return Work(0, 0, results[0].numel * results[0].itemsize) if len(results) == 1 else None


@rule(r"direct_copy_kernel_cuda|copy_device_to_device")
def bias_copy(call: HelperCall) -> Work | None:
    """Copies the bias to the rows of the result before a product is added to it"""
    results, bias = possible_results(call), call.tensor(0)
    if call.op not in ("addmm", "baddbmm") or len(results) != 1 or bias is None:
        return None
    return Work(0, bias.nbytes, results[0].numel * bias.itemsize)
