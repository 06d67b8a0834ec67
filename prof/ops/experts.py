"""Mixtures of experts: the products of tokens with the weights of the experts that a router chose for each.

flop    2 * rows * N * K, where each token has a row for each of its k experts
read    the rows, and weights as they are stored, with scales, zeros and bias, of as many experts as there are rows: an
        upper bound, because several rows may have the same expert

Which expert has how many tokens is data on the GPU, which no capture records. So the work is unknown where it decides:
where a rank has only some of the experts, and where each expert uses some rows of a buffer.
Orders of arguments: vllm fused_moe.py, rocm_aiter_fused_moe.py and csrc/moe/torch_bindings.cpp; sglang fused_moe.py and
sgl-kernel csrc/common_extension.cc; deep_gemm csrc/python_api.cpp.
"""

import math
from collections.abc import Sequence
from typing import Any

from pyprof.errors import ShapeError, UnknownArgument
from pyprof.prof.ops.gemm import op
from pyprof.prof.ops.gemm_quantised import columns_of, rows_and_width
from pyprof.prof.ops.model import Tensor, Work, distinct
from pyprof.prof.ops.operands import given, moved

PACKED = {"uint8": (2,), "int32": (8, 4)}  # dtype -> elements of a weight in one of its elements
INTEGERS = ("int32", "int64")  # places and maps; weights are packed in them, too


@op(
    "vllm::inplace_fused_experts vllm::outplace_fused_experts sglang::inplace_fused_experts "
    "sglang::outplace_fused_experts vllm::rocm_aiter_fused_moe"
)
def fused_experts(self: Tensor, up: Tensor, down: Tensor, weights: Tensor, chosen: Tensor, *rest: Any) -> Work:
    """Each token through k experts: up[E,2I,H], a gated activation (not counted), down[E,H,I]

    flop  2 * tokens * k * (H * 2I + I * H); weights of 4 bits have half of H and I in bytes
    read  the tokens, the router's choice, weights, scales, zeros and bias of as many experts as the tokens can reach
    """
    picks = chosen.numel
    experts, wide, width = up.shape
    tensors = [x for x in rest if isinstance(x, Tensor)]
    if any(len(x.shape) == 1 and x.dtype in INTEGERS and x.numel > experts for x in tensors):
        raise UnknownArgument("this rank has some of the experts: how many tokens chose them is data")
    packed = 2 if 2 * width == self.shape[-1] else 1
    stored = distinct(up, down, *(x for x in tensors if x.shape[:1] == (experts,) and x.dtype not in INTEGERS))
    reached = stored * min(1.0, picks / experts) if experts else 0
    flop = 2 * picks * packed * (width * wide + down.shape[1] * down.shape[2])
    return Work(flop, distinct(self, chosen, weights) + reached, moved(self.numel, self))


# Ops that take a layer's name, and find its weights by it.
FINDS_WEIGHTS = frozenset({"vllm::moe_forward", "vllm::moe_forward_shared"})


@op(" ".join(sorted(FINDS_WEIGHTS)))
def experts_of_a_layer(self: Tensor, logits: Tensor, *rest: Any) -> Work:
    """Each token through k experts whose weights the op finds by the layer's name: x[T,H], up[E,H,N], down[E,I,H]

    flop  2 * rows * (H * N + I * H), rows = T k; I = N / 2 with a gated activation (not counted), else N
    read  x, the router's scores, weights of as many experts as the rows can reach; MXFP4 (two elements in a byte) with
          a byte of scale for 32 elements

    The shapes are those of the views that its code makes: weights with E first, and the rows between the products.
    """
    tensors = [x for x in rest if isinstance(x, Tensor)]
    weights = [x for x in tensors if len(x.shape) == 3 and x.shape[0] == logits.shape[-1]]
    pairs = ((a, b) for a in weights for b in weights if a is not b)
    found = next(
        (sizes for a, b in pairs if (sizes := _two_layers(a, b, self.shape[-1], tensors, self.shape[0]))), None
    )
    if found is None:
        raise UnknownArgument("the op takes the layer's name: the weights' shapes are not on record")
    up, down, wide, inner, rows = found
    packed = self.shape[-1] * wide * up.shape[0] // up.numel
    scales = (up.numel + down.numel) * packed / 32 if packed == 2 and up.itemsize == 1 else 0
    reached = (distinct(up, down) + scales) * min(1.0, rows / up.shape[0])
    flop = 2 * rows * self.shape[-1] * (wide + inner)
    return Work(flop, distinct(self, logits) + reached, moved(self.numel, self))


def _two_layers(
    up: Tensor, down: Tensor, hidden: int, tensors: Sequence[Tensor], tokens: int
) -> tuple[Tensor, Tensor, int, int, int] | None:
    """The weights with N, I and the rows, if these tensors can be the weights of both products; None if they cannot.

    Integers may hold several elements of a row: uint8 two of 4 bits, int32 eight of 4 bits or four of 8.
    """
    for packed in PACKED.get(up.dtype, (1,)):
        for wide in (up.shape[2], up.shape[1]):
            for inner in (wide // 2, wide):
                fits_up = sorted(up.shape[1:]) == sorted((hidden // packed, wide)) and hidden % packed == 0
                fits_down = sorted(down.shape[1:]) == sorted((inner // packed, hidden)) and inner % packed == 0
                between = (x.shape[0] for x in tensors if len(x.shape) == 2 and x.shape[1] in (inner, wide))
                picks = range(tokens, tokens * up.shape[0] + 1, max(tokens, 1))  # at most all experts for each token
                rows = max((count for count in between if count in picks), default=0)
                if fits_up and fits_down and rows:
                    return up, down, wide, inner, rows
    return None


@op("_moe_C::moe_wna16_marlin_gemm sgl_kernel::moe_wna16_marlin_gemm")
def marlin_experts(a: Tensor, *arguments: Any) -> Work:
    """C[M k,N] = A[M,K] @ W[E], W packed to 4 or 8 bits in int32; k: how many experts each row goes to

    Three numbers in a row are M, N and K; the number before the first flag is k. The tensors of two or more dimensions
    with E first are the weights with their scales and zeros.
    """
    m, k = rows_and_width(a)
    n = columns_of(arguments, m, k)
    flag = next((i for i, x in enumerate(arguments) if isinstance(x, bool)), 0)
    each = arguments[flag - 1] if flag else None
    if not isinstance(each, int):
        raise UnknownArgument("the capture does not have the number of experts per token")
    tensors = [x for x in arguments if isinstance(x, Tensor)]
    weight = next((x for x in tensors if len(x.shape) == 3 and x.dtype in INTEGERS), None)
    if weight is None:
        raise ShapeError("moe_wna16_marlin_gemm", "packed weights [E, K / 16, N * bits / 2]", arguments)
    experts, rows = weight.shape[0], m * each
    stored = distinct(*(x for x in tensors if len(x.shape) > 1 and x.shape[0] == experts and x.shape != (rows, n)))
    return of_experts(a, experts, stored, 2 * rows * n * k, None, a.like((rows, n)), rows)


def of_experts(
    a: Tensor, experts: int, stored: float, flop: int, scale_a: Any, result: Tensor, rows: int | None = None
) -> Work:
    """A product of rows with the weights of the experts that they can reach; all of them have ``stored`` bytes."""
    rows = math.prod(a.shape[:-1]) if rows is None else rows
    reached = stored * min(1.0, rows / experts) if experts else 0
    return Work(flop, distinct(a, given(scale_a)) + reached, moved(result.numel, result))


@op("_C::cutlass_moe_mm (result, a, b, scale_a, scale_b)")
@op("deep_gemm::m_grouped_fp8_gemm_nt_contiguous (a, scale_a, b, scale_b, result)")
def grouped(a: Tensor, b: Tensor, scale_a: Any, scale_b: Any, result: Tensor) -> Work:
    """Each row with its expert's weights, [E,N,K] or [E,K,N]: 2 * rows * N * K; rows of padding count"""
    rows, k = rows_and_width(a)
    return of_experts(a, b.shape[0], distinct(b, given(scale_b)), 2 * rows * result.shape[-1] * k, scale_a, result)


@op("_C::cutlass_fp4_group_mm (result, a, b, scale_a, scale_b)")
def grouped_fp4(result: Tensor, a: Tensor, b: Tensor, scale_a: Any, scale_b: Any) -> Work:
    """The same with two elements of FP4 in a byte: 2 * rows * N * K"""
    rows, half = rows_and_width(a)
    flop = 4 * rows * result.shape[-1] * half
    return of_experts(a, b.shape[0], distinct(b, given(scale_b)), flop, scale_a, result)


@op("deep_gemm::fp8_m_grouped_gemm_nt_masked (_a, _scale_a, _b, _scale_b, _result, used)")
def grouped_masked(used: Any = None) -> Work:
    """Each expert's first rows of a buffer, as many as ``used`` says: 2 * rows * N * K, unknown without its values"""
    raise UnknownArgument("how many rows of the buffer each expert uses is data that the capture does not hold")
