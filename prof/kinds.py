"""What kind of work each row does: GEMM, convolution, attention, element-wise, copies ...

By the family of its op's model; where there is no op or no model, by the kernel's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyprof.prof.annotate import Annotation
from pyprof.prof.kernels import find_product
from pyprof.table import Coded, Table, distinct

__all__ = [
    "ATTENTION", "CONVS", "COPIES", "GRAPHS", "NCCL", "PRODUCTS", "is_fused_attention", "is_loss", "is_softmax",
    "kinds",
]  # fmt: skip

PRODUCTS, CONVS, ATTENTION, NCCL, COPIES, GRAPHS = (
    "GEMM", "convolution", "attention", "communication", "host-device copies", "CUDA graphs",
)  # fmt: skip
OTHER = "other"

OF_FAMILY: Mapping[str, str] = {
    "gemm": PRODUCTS, "linalg": PRODUCTS, "conv": CONVS, "rnn": "recurrent layers", "attention": ATTENTION,
    "pointwise": "element-wise", "rng": "random numbers", "resize": "resizing", "distance": "element-wise",
    "softmax": "softmax", "norm": "normalisation", "reduction": "reductions", "scan": "reductions", "loss": "loss",
    "copy": "copies and casts", "view": "copies and casts", "layout": "copies and casts",
    "embedding": "embedding", "indexing": "indexing and sorting", "sort": "indexing and sorting",
    "pooling": "pooling", "optimizer": "optimizer", "collective": NCCL, "fft": "FFT",
}  # fmt: skip

# Top down, the first that is found anywhere in the kernel's name. Spelled in captures of torch 1.4 to 2.11 and vLLM.
FUSED = re.compile(r"fmha|sdpa|flash|attention|attn_(?:fwd|bwd)|mha", re.IGNORECASE)
CONV = re.compile(r"conv|[dw]grad|fprop|winograd|im2col", re.IGNORECASE)
SOFTMAX = re.compile(r"(?<!log_)softmax", re.IGNORECASE)
# The loss's: by name, or softmax_warp_forward's fifth argument (PyTorch's PersistentSoftmax.cuh).
LOG_SOFTMAX = re.compile(
    r"log_?softmax|softmax_warp_\w{1,40}<(?:[^,<>]{1,60},){4} ?(?:\(bool\)1|true)|cross_entropy|nll_loss", re.IGNORECASE
)
OF_NAME: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"^(?:nccl|rccl)|all_?reduce|all_?gather|reduce_?scatter", NCCL),
        (r"softmax", "softmax"),
        (r"(?:layer|rms|batch|group)_?norm|\bbn_|norm_fwd|norm_bwd|GammaBeta", "normalisation"),
        (r"multi_tensor_apply|adam|lamb_", "optimizer"),
        (r"embedding", "embedding"),
        (r"direct_copy|copy_kernel|CatArray|transpose|permute", "copies and casts"),
        (r"(?<!with_)index|gather|scatter|sort|topk", "indexing and sorting"),
        (r"reduce_kernel|triton_(?:red|per)_|cub::|reduction", "reductions"),
        (r"pool", "pooling"),
        (r"dropout|philox|distribution", "random numbers"),
        (r"elementwise|triton_poi_|FillFunctor|silu|gelu|_mul_", "element-wise"),
    )
)


def kinds(table: Table, annotation: Annotation) -> Coded:
    """The kind of every row, decided once a (kind of row, family, kernel name)."""
    columns = [table.coded("kind"), annotation.family, table.coded("kLongName"), table.coded("kShortName")]
    rows, row = distinct(*(column.codes for column in columns))
    texts = [[*column.values, ""] for column in columns]
    found = [_kind(*(text[code] for text, code in zip(texts, codes, strict=True))) for codes in rows]
    return Coded.of(found).take(row)


def _kind(kind: str, family: str, long: str, short: str) -> str:
    name = long or short
    if kind == "graph":
        return GRAPHS
    if kind == "memset":
        return "fills"
    if kind == "memcpy" or short.startswith("[CUDA memcpy"):
        within = "Device-to-Device" in name or "DtoD" in name
        return "copies and casts" if within else COPIES
    if name.startswith(("nccl", "rccl")):
        return NCCL
    return OF_FAMILY.get(family) or _of_name(name)


def _of_name(name: str) -> str:
    if LOG_SOFTMAX.search(name):
        return "softmax"
    if find_product(name):
        return ATTENTION if FUSED.search(name) else CONVS if CONV.search(name) else PRODUCTS
    return next((kind for pattern, kind in OF_NAME if pattern.search(name)), OTHER)


def is_softmax(name: str) -> bool:
    """Whether a kernel is attention's kind of softmax, not the loss's."""
    return bool(SOFTMAX.search(name)) and not is_loss(name)


def is_loss(name: str) -> bool:
    """Whether a kernel's or an op's name is that of a loss, or of its softmax."""
    return bool(LOG_SOFTMAX.search(name))


def is_fused_attention(name: str) -> bool:
    return bool(FUSED.search(name)) and find_product(name) is not None
