"""What kind of work each row does: GEMM, convolution, attention, element-wise, copies ...

By the family of its op's model; where there is no op or no model, by the kernel's name. Ten classes of kinds have a
colour each, in the page and in figures: more cannot be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyprof.prof.kernels.name_patterns import find_product
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import Coded, Table, distinct

__all__ = [
    "ATTENTION", "CLASSES", "CONVS", "COPIES", "GRAPHS", "NCCL", "PRODUCTS", "classes", "is_fused_attention", "is_loss",
    "is_softmax", "kinds",
]  # fmt: skip

PRODUCTS, CONVS, ATTENTION, NCCL, COPIES, GRAPHS = (
    "GEMM", "convolution", "attention", "communication", "host-device copies", "CUDA graphs",
)  # fmt: skip
RECURRENT, ELEMENTWISE, RANDOM, RESIZING, SOFTMAXES, NORMS, REDUCTIONS, LOSSES, MOVES, EMBEDDING, INDEXING, POOLING = (
    "recurrent layers", "element-wise", "random numbers", "resizing", "softmax", "normalisation", "reductions", "loss",
    "copies and casts", "embedding", "indexing and sorting", "pooling",
)  # fmt: skip
OPTIMIZER, FFT, FILLS, OTHER = "optimizer", "FFT", "fills", "other"

OF_FAMILY: Mapping[str, str] = {
    "gemm": PRODUCTS, "linalg": PRODUCTS, "conv": CONVS, "rnn": RECURRENT, "attention": ATTENTION,
    "pointwise": ELEMENTWISE, "rng": RANDOM, "resize": RESIZING, "distance": ELEMENTWISE,
    "softmax": SOFTMAXES, "norm": NORMS, "reduction": REDUCTIONS, "scan": REDUCTIONS, "loss": LOSSES,
    "copy": MOVES, "view": MOVES, "layout": MOVES, "embedding": EMBEDDING, "indexing": INDEXING, "sort": INDEXING,
    "pooling": POOLING, "optimizer": OPTIMIZER, "collective": NCCL, "fft": FFT,
}  # fmt: skip
CLASS: Mapping[str, str] = {
    PRODUCTS: "matrix product", RECURRENT: "matrix product", CONVS: "convolution", ATTENTION: "attention",
    ELEMENTWISE: "element-wise", NORMS: "normalisation",
    **dict.fromkeys((SOFTMAXES, LOSSES, REDUCTIONS, POOLING), "softmax, loss, reduction"),
    **dict.fromkeys((MOVES, COPIES, FILLS, EMBEDDING, INDEXING, RANDOM), "copy, index, random"),
    OPTIMIZER: "optimizer", NCCL: "communication",
    **dict.fromkeys((RESIZING, FFT, GRAPHS, OTHER), "other"),
}  # fmt: skip
CLASSES = tuple(dict.fromkeys(CLASS.values()))

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
        (r"softmax", SOFTMAXES),
        (r"(?:layer|rms|batch|group)_?norm|\bbn_|norm_fwd|norm_bwd|GammaBeta", NORMS),
        (r"multi_tensor_apply|adam|lamb_", OPTIMIZER),
        (r"embedding", EMBEDDING),
        (r"direct_copy|copy_kernel|CatArray|transpose|permute", MOVES),
        (r"(?<!with_)index|gather|scatter|sort|topk", INDEXING),
        (r"reduce_kernel|triton_(?:red|per)_|cub::|reduction", REDUCTIONS),
        (r"pool", POOLING),
        (r"dropout|philox|distribution", RANDOM),
        (r"elementwise|triton_poi_|FillFunctor|silu|gelu|_mul_", ELEMENTWISE),
    )
)


def kinds(table: Table, annotation: Annotation) -> Coded:
    """The kind of every row, decided once a (kind of row, family, kernel name)."""
    columns = [table.coded("kind"), annotation.family, table.coded("kLongName"), table.coded("kShortName")]
    rows, row = distinct(*(column.codes for column in columns))
    texts = [[*column.values, ""] for column in columns]
    found = [_kind(*(text[code] for text, code in zip(texts, codes, strict=True))) for codes in rows]
    return Coded.of(found).take(row)


def classes(table: Table, annotation: Annotation) -> Coded:
    """The class of every row's kind."""
    found = kinds(table, annotation)
    return Coded.of(CLASS[kind] for kind in found.values).take(found.codes)


def _kind(kind: str, family: str, long: str, short: str) -> str:
    name = long or short
    if kind == "graph":
        return GRAPHS
    if kind == "memset":
        return FILLS
    if kind == "memcpy" or short.startswith("[CUDA memcpy"):
        within = "Device-to-Device" in name or "DtoD" in name
        return MOVES if within else COPIES
    if name.startswith(("nccl", "rccl")):
        return NCCL
    return OF_FAMILY.get(family) or _of_name(name)


def _of_name(name: str) -> str:
    if LOG_SOFTMAX.search(name):
        return SOFTMAXES
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
