"""What a kernel is at first sight: one of ten classes, each a colour of the page."""

from __future__ import annotations

import numpy as np

from pyprof.prof.annotate import Annotation
from pyprof.prof.model import MATRIX
from pyprof.prof.tensorcore import tensor_core
from pyprof.table import Coded, Table, distinct

__all__ = ["CLASSES", "classes"]

PRODUCT, CONV, ATTENTION, POINTWISE, NORM, REDUCTION, MEMORY, OPTIMIZER, LINK, OTHER = CLASSES = (
    "matrix product", "convolution", "attention", "element-wise", "normalisation", "softmax, loss, reduction",
    "copy, index, random", "optimizer", "communication", "other",
)  # fmt: skip
FAMILIES = {
    "gemm": PRODUCT, "contraction": PRODUCT, "linalg": PRODUCT, "rnn": PRODUCT, "conv": CONV, "attention": ATTENTION,
    "mha": ATTENTION, "pointwise": POINTWISE, "activation": POINTWISE, "dropout": POINTWISE, "quantize": POINTWISE,
    "norm": NORM, "softmax": REDUCTION, "loss": REDUCTION, "reduction": REDUCTION, "pooling": REDUCTION,
    "distance": REDUCTION, "copy": MEMORY, "indexing": MEMORY, "embedding": MEMORY, "rng": MEMORY, "view": MEMORY,
    "layout": MEMORY, "optimizer": OPTIMIZER, "collective": LINK,
}  # fmt: skip


# Of kernels whose op is not known: the first word that the name holds.
NAMES = (
    ("conv", CONV), ("wgrad", CONV), ("dgrad", CONV), ("winograd", CONV), ("flash_fwd", ATTENTION),
    ("flash_bwd", ATTENTION), ("fmha", ATTENTION), ("sdpa", ATTENTION), ("softmax", REDUCTION),
    ("multi_tensor_apply", OPTIMIZER), ("elementwise", POINTWISE), ("reduce_kernel", REDUCTION),
)  # fmt: skip


def classes(table: Table, annotation: Annotation) -> Coded:
    """Each row's class: by its op's family; without one by what kind of operation it is and its name."""
    columns = (annotation.family, table.coded("kind"), table.coded("kShortName"))
    keys, row = distinct(*(column.codes for column in columns))
    texts = [[*column.values, ""] for column in columns]
    found = Coded.of(_class(*(text[code] for text, code in zip(texts, key, strict=True))) for key in keys)
    return Coded(found.codes[row].astype(np.int32), found.values)


def _class(family: str, kind: str, name: str) -> str:
    if name.startswith(("nccl", "rccl")):
        return LINK
    if family == "compiled":  # a kernel of torch.compile's: its name tells whether it reduces
        return REDUCTION if name.startswith(("triton_red_", "triton_per_")) else POINTWISE
    if family:
        return FAMILIES.get(family, PRODUCT if family in MATRIX else OTHER)
    if kind in ("memcpy", "memset"):
        return MEMORY
    by_name = next((found for word, found in NAMES if word in name.lower()), None)
    return by_name or (OTHER if tensor_core(name, "", "") is None else PRODUCT)
