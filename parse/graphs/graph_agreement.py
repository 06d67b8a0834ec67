"""Whether the kernels of a replayed graph can be those of the ops that were captured, by their names.

Where a capture does not have the names of its kernels (CUDA), its launches and the replayed kernels are joined by
count and order alone. A wrong join shows: products, convolutions, attention and collectives would lie in ops that
cannot run them, or an op that is a product would have only element-wise kernels.
"""

import re
from collections.abc import Sequence

# Kernels that do products: cuBLAS, cuDNN, CUTLASS, FlashAttention, MIOpen, Tensile, seen in captures of 2019 to 2026.
_HEAVY = re.compile(
    r"gemm|gemv|cutlass|nvjet|xmma|Cijk_|implicit_|winograd|wgrad|dgrad|fprop|convolve|conv2d|conv_depthwise|flash_fwd"
    r"|flash_bwd|fmha|attention|splitK",
    re.IGNORECASE,
)
_COLLECTIVE = re.compile(r"nccl(?:Dev)?Kernel|rccl", re.IGNORECASE)
_NATIVE = re.compile(r"(?:^|\s|\()at::native::|^_ZN2at6native")  # PyTorch's own kernels, which are no library's
# ATen's ops that may run such kernels; all others are element-wise, reductions, or move data.
_MAY_BE_HEAVY = re.compile(
    r"mm|matmul|linear|linalg|conv|attention|attn|mha|mkldnn|cudnn|miopen|lstm|gru|rnn|dot|mv|einsum|inner|outer|addr"
    r"|ger|cdist|chain|det|inverse|svd|qr|eig|lu_|cholesky|lstsq|ormqr|solve|stft|fft|quantize|grouped|sparse|spmm"
)
_PRODUCTS = re.compile(r"aten::(?:mm|addmm|bmm|baddbmm|_scaled_mm|_int_mm|_addmm_activation)(?:\.\w+)?$")


def agrees(ops: Sequence[str], calls: Sequence[int], kernels: Sequence[str]) -> bool:
    """Whether each kernel can be one of the op in which it was launched.

    ``ops``: the name of the innermost op around each launch, empty if there is none. ``calls``: the number of the op's
    call. ``kernels``: the name of each kernel, in the same order.

    >>> agrees(["aten::mm", "aten::relu"], [0, 1], ["sm80_xmma_gemm_f32f32", "void at::native::vectorized_elementwise"])
    True
    >>> agrees(["aten::relu", "aten::mm"], [0, 1], ["sm80_xmma_gemm_f32f32", "void at::native::vectorized_elementwise"])
    False
    """
    native: dict[int, bool] = {}  # per call of a product: whether all its kernels are PyTorch's own
    for op, call, kernel in zip(ops, calls, kernels, strict=True):
        own = bool(_NATIVE.search(kernel))
        heavy = not own and bool(_HEAVY.search(kernel) or _COLLECTIVE.search(kernel))
        if heavy and op.startswith("aten::") and not _MAY_BE_HEAVY.search(op):
            return False
        if _PRODUCTS.match(op):
            native[call] = native.get(call, True) and own
    return not any(native.values())
