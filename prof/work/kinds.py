"""The kind of work of each row: GEMM, convolution, attention, element-wise, copies ...

The kind follows from the family of the op's model or, if there is no op or no model, from the kernel's name. The
summary, the page, figures and diffs all use these names. The kinds are grouped into ten classes, each with a colour in
the page and in figures; more colours could not be told apart.
"""

import re
from collections.abc import Mapping

from pyprof.prof.kernels.name_patterns import find_helper, find_other, find_product, is_collective, stays_on_device
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import Coded, Table, distinct_texts, kept_with_table

PRODUCTS, CONVS, ATTENTION, RECURRENT = "GEMM", "convolution", "attention", "recurrent layers"
ELEMENTWISE, NORMS, SOFTMAXES, LOSSES = "element-wise", "normalisation", "softmax", "loss"
REDUCTIONS, POOLING, RESIZING, FFT = "reductions", "pooling", "resizing", "FFT"
MOVES, COPIES, FILLS = "copies and casts", "host-device copies", "fills"
EMBEDDING, INDEXING, RANDOM = "embedding", "indexing and sorting", "random numbers"
OPTIMIZER, NCCL, GRAPHS, OTHER = "optimizer", "communication", "CUDA graphs", "other"

FAMILIES: Mapping[str, tuple[str, ...]] = {  # kind -> families of op models
    PRODUCTS: ("gemm", "linalg"),
    CONVS: ("conv",),
    ATTENTION: ("attention",),
    RECURRENT: ("rnn",),
    ELEMENTWISE: ("pointwise", "distance"),
    NORMS: ("norm",),
    SOFTMAXES: ("softmax",),
    LOSSES: ("loss",),
    REDUCTIONS: ("reduction", "scan"),
    POOLING: ("pooling",),
    RESIZING: ("resize",),
    FFT: ("fft",),
    MOVES: ("copy", "view", "layout"),
    FILLS: ("fill",),
    EMBEDDING: ("embedding",),
    INDEXING: ("indexing", "sort"),
    RANDOM: ("rng",),
    OPTIMIZER: ("optimizer",),
    NCCL: ("collective",),
}
KINDS_OF_CLASS: Mapping[str, tuple[str, ...]] = {  # class -> kinds, in the order of the colours (prof/colours.py)
    "GEMM, recurrent layers": (PRODUCTS, RECURRENT),
    CONVS: (CONVS,),
    ATTENTION: (ATTENTION,),
    ELEMENTWISE: (ELEMENTWISE,),
    NORMS: (NORMS,),
    "softmax, loss, reductions": (SOFTMAXES, LOSSES, REDUCTIONS, POOLING),
    "copies, indexing, random numbers": (MOVES, COPIES, FILLS, EMBEDDING, INDEXING, RANDOM),
    OPTIMIZER: (OPTIMIZER,),
    NCCL: (NCCL,),
    OTHER: (RESIZING, FFT, GRAPHS, OTHER),
}
CLASSES = tuple(KINDS_OF_CLASS)
KIND_OF_FAMILY = {family: kind for kind, families in FAMILIES.items() for family in families}
_CLASS_OF_KIND = {kind: name for name, kinds in KINDS_OF_CLASS.items() for kind in kinds}

FUSED = re.compile(r"fmha|sdpa|flash|attention|attn_(?:fwd|bwd)|mha", re.IGNORECASE)
CONV = re.compile(r"conv(?!ert)|[dw]grad|fprop|winograd|im2col|[shdcz]\d{0,6}cudnn|gcgemm", re.IGNORECASE)
SOFTMAX = re.compile(r"(?<!log_)softmax", re.IGNORECASE)
# A loss's softmax: by name, or by the fifth argument of softmax_warp_forward (PyTorch's PersistentSoftmax.cuh).
LOG_SOFTMAX = re.compile(
    r"log_?softmax|softmax_warp_\w{1,40}<(?:[^,<>]{1,60},){4} ?(?:\(bool\)1|true)|cross_entropy|nll_loss", re.IGNORECASE
)


# An op on lists of tensors does in any other phase what its kernel's functor says (ForeachFunctors.cuh of 2.11).
OF_LISTS = tuple(
    (re.compile(pattern), kind) for pattern, kind in ((r"\bCopy", MOVES), ("Zero", FILLS), ("LpNorm|LpMax", REDUCTIONS))
)


@kept_with_table
def kinds(table: Table, annotation: Annotation) -> Coded:
    """The kind of every row, decided once per distinct (kind of row, family, kernel name, phase)."""
    kind, long, short, phase = (table.coded(key) for key in ("kind", "kLongName", "kShortName", "phase"))
    rows, number = distinct_texts(kind, annotation.family, long, short, phase)
    return Coded.of(_kind(*row) for row in rows).take(number)


def classes(table: Table, annotation: Annotation) -> Coded:
    """The class of every row's kind."""
    found = kinds(table, annotation)
    return Coded.of(_CLASS_OF_KIND[kind] for kind in found.values).take(found.codes)


def _kind(kind: str, family: str, long: str, short: str, phase: str) -> str:
    name = long or short
    if kind == "graph":
        return GRAPHS
    if kind == "memset":
        return FILLS
    if kind == "memcpy" or short.startswith("[CUDA memcpy"):
        return MOVES if stays_on_device(name) else COPIES
    if is_collective(name):
        return NCCL
    found = KIND_OF_FAMILY.get(family) or _of_name(name)
    if found == OPTIMIZER and family and phase not in ("", "optimizer"):
        return next((kind for pattern, kind in OF_LISTS if pattern.search(name)), ELEMENTWISE)
    return found


def kind_of_kernel(name: str) -> str:
    """The kind of a kernel of which only the name is known."""
    return NCCL if is_collective(name) else _of_name(name)


def _of_name(name: str) -> str:
    product = find_product(name)
    found = find_helper(name) or (product[0] if product else find_other(name))
    if found is None:
        return OTHER
    return kind_of_work(found.work) or _of_words(name)


def kind_of_work(work: str) -> str:
    """The kind that a word of ``family_tables`` means; empty for an empty word."""
    return KIND_OF_FAMILY[work] if work else ""


def _of_words(name: str) -> str:
    """The kind of a product whose family has products of several kinds."""
    without_attention = CONVS if CONV.search(name) else PRODUCTS
    return ATTENTION if FUSED.search(name) else without_attention


def is_softmax(name: str) -> bool:
    """Whether a kernel is a softmax as in attention, not one of a loss."""
    return bool(SOFTMAX.search(name)) and not is_loss(name)


def is_loss(name: str) -> bool:
    """Whether a kernel or op, by its name, is a loss or the softmax of a loss."""
    return bool(LOG_SOFTMAX.search(name))


def is_fused_attention(name: str) -> bool:
    """Whether a kernel computes attention without writing the matrix of scores, by its name."""
    return find_product(name) is not None and _of_name(name) == ATTENTION
