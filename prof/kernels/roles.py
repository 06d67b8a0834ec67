"""The role of a kernel in its op: ``main`` does the arithmetic that the op's model counts, ``aux`` is a chore for it.

FLOPs and the op's bytes go to its main kernels (docs/explanation/design.md). Chores are recognised by name
(``name_patterns.HELPERS``); a copy, fill or sort is a chore in a product, the work in ``copy_``, ``fill_``, ``sort``.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, combinations_with_replacement, pairwise, permutations

from pyprof.prof.kernels.name_patterns import find_helper, find_product
from pyprof.prof.ops.model import MATRIX

MAIN, AUX = "main", "aux"

MEMORY = re.compile(r"^\[?(?:CUDA )?[mM]em(?:set|cpy)|^__amd_rocclr_(?:fill|copy)")
MEMSET = re.compile(r"^\[?(?:CUDA )?[mM]emset|^__amd_rocclr_fill")

# Ops whose whole work is to fill or to move data: kernels that are chores in other ops are their main kernels.
FILLS = re.compile(r"^(?:fill|zero|(?:new_)?(?:zeros|ones|full)|(?:zeros|ones|full)_like|_foreach_zero)_?$")
MOVES = re.compile(r"^(?:copy|_to_copy|to|clone|contiguous|im2col|col2im|unfold_backward|cudnn_\w*transform\w*)_?$")

# Inside a product: PyTorch's element-wise kernels copy the bias or the operands, or scale by alpha and beta.
ELEMENTWISE = re.compile(r"elementwise_kernel|CatArrayBatchedCopy|^triton_(?:poi|per|red)_")

# Scattered sums: the rows are sorted by index first. The sums are counted, the sorting is not; so an embedding's
# gradient is attributed to compute_grad_weight and sum_and_scatter (ATen/native/cuda/EmbeddingBackwardKernel.cu).
SCATTERED = re.compile(r"^(?:_?embedding(?:_bag)?(?:_dense)?_backward|_?index_put(?:_impl)?|_unsafe_index_put)_?$")
SORTING = re.compile(r"\bcub::|\bthrust::|radix|krn_partial|compute_num_of_partial|write_num_of_segments|arange")

# FBGEMM's tables (prof/ops/embedding_tables.py): these kernels look up and update; sorting and the rest are chores.
TABLES = re.compile(r"^(?:SplitLookupFunction_|fbgemm::\w*embedding\w*_codegen_)")
TABLES_WORK = re.compile(
    r"embedding(?:_nobag)?_(?:codegen_(?:forward|grad_indice_weights)|backward_codegen_\w*_kernel_(?:cta|warp)_per_row)"
)


@lru_cache(maxsize=65536)
def role(name: str, aten: str, family: str) -> str:
    """``main`` or ``aux``, for one kernel of the innermost op ``aten`` (``aten::`` and overload name optional)."""
    op = aten.removeprefix("aten::").partition(".")[0]
    if FILLS.match(op) or MOVES.match(op):
        return MAIN
    if TABLES.match(op):
        return MAIN if TABLES_WORK.search(name) else AUX
    if find_helper(name):
        return AUX
    if family in MATRIX:
        return AUX if MEMORY.search(name) or ELEMENTWISE.search(name) else MAIN
    if op and MEMSET.search(name):
        return AUX
    return AUX if SCATTERED.match(op) and SORTING.search(name) else MAIN


# --- the pieces of a backward --------------------------------------------------------------------

PARTS = ("dgrad", "wgrad", "bias")  # the order in which ATen's ConvolutionBackward computes them

PART_NAMES = (
    ("indice_weights", re.compile(r"codegen_grad_indice_weights")),
    ("update", re.compile(r"_backward_codegen_\w*_kernel_(?:cta|warp)_per_row")),
    ("wgrad", re.compile(r"(?i)wgrad|bwd_weight|backward_weight|grad_weight|igemm_wrw|_wrw_")),
    ("dgrad", re.compile(r"(?i)dgrad|bwd_data|backward_(?:data|input)|depthwise2d_backward_kernel|igemm_bwd_")),
    # V100 cuDNN: in 200 launches stridedB ran only under backward_input, stridedB_splitK only under backward_weight.
    ("wgrad", re.compile(r"cudnn_\w*stridedB_splitK_")),
    ("dgrad", re.compile(r"cudnn_\w*stridedB_")),
    ("bias", re.compile(r"(?i)bgrad|bias_?grad|backward_bias|calc_bias_diff|reduce_kernel<")),
)


@lru_cache(maxsize=65536)
def part_of(name: str) -> str:
    """The part of a backward pass that a kernel computes; empty where the name does not say.

    ``dgrad``, ``wgrad`` or ``bias`` for convolutions, ``indice_weights`` or ``update`` for embedding tables.

    cuDNN uses plain GEMMs (nvjet, cutlass ``_nt_``) for either gradient of a 1x1 convolution.
    """
    return next((piece for piece, regex in PART_NAMES if regex.search(name)), "")


def assign_parts(
    names: Sequence[str], present: Sequence[str], all_ran: bool = True, ns: Sequence[int] = ()
) -> list[str]:
    """Assign each main kernel of one backward call, in launch order, to one of the ``present`` parts.

    The kernels of a part are consecutive, and nearly always in ATen's order. Of all ways to cut them into such runs,
    the one is taken that contradicts the fewest names, leaves out the fewest gradients (if they are known to have run:
    a first layer has no data gradient), keeps ATen's order, leaves out the fewest parts, and whose runs are the most
    even in time (``ns``: the kernels' durations), because both gradients have the same FLOPs.
    """
    if not present:
        return [""] * len(names)
    known = tuple(piece for piece in PARTS if piece in present)
    others = tuple(piece for piece in present if piece not in PARTS)
    hints = [_hint(name) for name in names]
    times = (0, *accumulate(ns or [1] * len(names)))
    found: list[tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]] = []  # (cost, cuts, order)
    for number, order in enumerate(permutations(known)):
        cost, cuts = _cuts(hints, times, (*order, *others), all_ran)
        found.append(((*cost[:2], number, *cost[2:]), cuts, (*order, *others)))
        if cost[:2] == (0, 0):
            break  # no other order can be better
    _, cuts, best = min(found)
    return [piece for piece, (start, end) in zip(best, pairwise(cuts), strict=True) for _ in range(start, end)]


def _hint(name: str) -> tuple[str, ...]:
    """The parts a main kernel may belong to: the part in its name, or both gradients if a product's name has none."""
    named = part_of(name)
    if named:
        return (named,)
    return ("dgrad", "wgrad") if find_product(name) else PARTS


def _cuts(
    hints: Sequence[tuple[str, ...]], times: Sequence[int], order: Sequence[str], all_ran: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The cost of the best runs, and where they begin and end: (0, ..., number of kernels)."""
    against = [(0, *accumulate(int(piece not in hint) for hint in hints)) for piece in order]

    def cost(cuts: tuple[int, ...]) -> tuple[int, ...]:
        runs = list(pairwise(cuts))
        wrong = sum(count[end] - count[start] for count, (start, end) in zip(against, runs, strict=True))
        empty = [piece for piece, (start, end) in zip(order, runs, strict=True) if start == end]
        gradients = sum(piece != "bias" for piece in empty)
        uneven = sum((times[end] - times[start]) ** 2 for start, end in runs)
        return wrong, gradients * all_ran, len(empty), uneven

    inner = combinations_with_replacement(range(len(hints) + 1), len(order) - 1)
    return min((cost(cuts), cuts) for cuts in ((0, *places, len(hints)) for places in inner))
