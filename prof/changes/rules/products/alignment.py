"""Matrix products whose leading dimensions are not multiples of 16 bytes.

Tensor-core kernels load 16 bytes per thread (TMA: strides must be multiples of 16 bytes). For other leading dimensions
cuBLAS falls back to kernels that load single elements (``align1``, ``align2``) and are several times slower; before
compute capability 8.0, to kernels without tensor cores. Source: NVIDIA, "Matrix Multiplication Background", Tensor Core
requirements; measured on an H200 (docs/explanation/advice.md).
"""

import math
import re
from collections.abc import Iterator

import numpy as np

from pyprof.dtypes import HALF
from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.product import LINE, VOCABULARY, Gemm, product_of
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.kernels.precision import PRECISION_OF_DTYPE, PRECISIONS, tensor_unit
from pyprof.quantities import rounded

# Precision of the operands -> bytes per element in memory.
ITEM = {name: PRECISIONS[name].bits // 8 for name in ("bf16", "fp16", "tf32", "fp8", "int8")}
SLOW = re.compile(r"align[124](?!\d)")
VECTOR = re.compile(r"gemv|dot_kernel|gemmk1|splitKreduce")
SOFTMAX = ("_softmax", "_softmax_backward_data", "_safe_softmax", "_masked_softmax")
BATCHED = ("bmm", "baddbmm")
MASKED = "If it is a sequence's length, mask the padding in the softmax and in statistics such as means."
COST_OF_TENSORS = (
    "where the dimension is a sequence's length, a mask; where a layer makes it, a wider layer, whose checkpoints have "
    "other shapes"
)
WORTH = 1.15  # products that take less than this factor times their expected time get no advice


def padded_to(size: int, itemsize: int) -> int:
    """The next size whose rows are multiples of 16 bytes.

    >>> padded_to(50257, 2), padded_to(50264, 2), padded_to(1001, 4), padded_to(10, 1)
    (50264, 50264, 1004, 16)
    """
    unit = LINE // itemsize
    return -(-size // unit) * unit


def _wrong(product: Gemm, itemsize: int, name: str) -> dict[str, int]:
    """The dimensions to pad and their present sizes. Without strides, the kernel's name must show small loads."""
    if "nvjet" in name:  # loads by TMA, which requires alignment, so the storage is already padded
        return {}
    if product.leads:
        odd = {dim: size for dim, size in product.leads if size * itemsize % LINE}
        return {dim: max(size, product.of(dim)) for dim, size in odd.items() if product.of(dim) > 1}
    if not SLOW.search(name):
        return {}
    return {dim: product.of(dim) for dim in "nk" if product.of(dim) * itemsize % LINE and product.of(dim) > 1}


@rule("alignment")
def alignment(run: Run) -> Iterator[Finding]:
    """Products that should be padded, one card per set of sizes.

    Abstains without shapes; without strides, unless the kernel's name shows that it loads less than 16 bytes; if the
    device's peak is unknown; and for matrix-vector products.

    Refuted by: sizes that are multiples already; a size of attention's scores, which is a sequence's length and no
    layer's: padding it takes a mask, or the softmax counts the padding. Where only batched products have a size, it may
    be such a length all the same, and the change says so.
    """
    cards: dict[tuple[tuple[int, int], ...], list[tuple[int, float]]] = {}
    for row in np.flatnonzero((run.family == "gemm") & (run.role == "main") & (run.dur > 0)).tolist():
        sizes, expected = run.once(_padding, row)
        if sizes and run.dur[row] > WORTH * expected:  # `expected` is NaN if the device is unknown
            cards.setdefault(sizes, []).append((row, run.dur[row] - expected))
    for sizes, rows in cards.items():
        yield _finding(run, sizes, rows)


def _padding(run: Run, row: int) -> tuple[tuple[tuple[int, int], ...], float]:
    """((size, padded size), ...) and the expected time of a row, ns; no sizes and NaN where none need padding."""
    by_dtype = PRECISION_OF_DTYPE[run.dtype[row]] if run.dtype[row] in HALF else ""
    precision = run.precision[row] if run.tc[row] == "1" else by_dtype
    itemsize, name = ITEM.get(precision, 0), run.name[row]
    product = product_of(run, row)
    wrong = {} if product is None or not itemsize or VECTOR.search(name) else _wrong(product, itemsize, name)
    if product is None or not wrong or (product.batch > 1 and _lengths(run) & set(wrong.values())):
        return (), math.nan
    m, n, k = (padded_to(product.of(d), itemsize) if d in wrong else product.of(d) for d in "mnk")
    flop = 2.0 * product.batch * m * n * k
    nbytes = product.batch * itemsize * float(m * k + k * n + m * n)
    expected = run.product_ns(flop, nbytes, tensor_unit(precision))
    return tuple(sorted({(size, padded_to(size, itemsize)) for size in wrong.values()})), expected


def _lengths(run: Run) -> set[int]:
    """The lengths of sequences between which attention has scores.

    Where another kernel has computed the softmax, as in a compiled model, those of square results of batched products
    that other batched products take as their first operands.
    """
    scores = [run.first_shape(row) for row in np.flatnonzero(np.isin(run.aten, SOFTMAX)).tolist()]
    found = (product_of(run, row) for row in np.flatnonzero(np.isin(run.aten, BATCHED)).tolist())
    products = {product for product in found if product is not None}
    square = {(product.batch, product.m) for product in products if product.m == product.n}
    taken = {product.k for product in products if product.m == product.k and (product.batch, product.k) in square}
    return taken | {length for shape in scores if len(shape) > 2 for length in shape[-2:]}


def _finding(run: Run, sizes: tuple[tuple[int, int], ...], found: list[tuple[int, float]]) -> Finding:
    rows = np.array([row for row, _ in found])
    saved = np.array([ns for _, ns in found])
    before, after = run.ms_of(rows), run.ms(float((run.dur[rows] - saved).sum()))
    precision = run.precision[rows[0]]
    pads = ", ".join(f"{size} to {padded}" for size, padded in sizes)
    shape = product_of(run, int(rows[saved.argmax()]))
    odd = "is not a multiple" if len(sizes) == 1 else "are not multiples"
    why = (
        f"{shape} in {run.dtype[rows[0]] or precision}: {' and '.join(str(size) for size, _ in sizes)} {odd} of "
        f"{LINE // ITEM.get(precision, 2)} elements (16 bytes), so the kernel loads less than 16 bytes at a time. It "
        f"takes {rounded(before)} ms; padded, {rounded(after)} ms are expected, including the work on the padding"
    )
    change = f"Pad the layer's features from {pads} (or the tensor's dimension, where no layer makes it)."
    cost = ""
    if all(product is not None and product.batch > 1 for product in (product_of(run, row) for row in rows.tolist())):
        change, cost = f"Pad the tensors' dimension from {pads}. {MASKED}", COST_OF_TENSORS
    elif sizes[-1][0] >= VOCABULARY:
        change = f"Pad the vocabulary from {pads}. No target refers to the rows added to embedding and output."
    return Finding(rows, saved, why, change, cost=cost)
