"""Singular values and eigenvalues: whether PyTorch computes vectors, too, does not depend on a count.

``linalg.cond``, ``matrix_rank`` and norms of matrices take the values alone. Their C++ code computes vectors only if a
gradient may be wanted or a dispatch mode is on (``isTensorSubclassLike``). While we count, a mode is on, so the vectors
that it asks for are left out again where the program would not have computed them.
"""

from typing import Any

import torch

TAKE_VALUES = frozenset("linalg_cond linalg_matrix_norm linalg_matrix_rank linalg_norm norm nuclear_norm".split())
_VECTORS = {"aten::_linalg_svd": "compute_uv", "aten::_linalg_eigh": "compute_v"}  # the third parameter of each


def as_without_us(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of an op that one of these calls dispatches, without vectors that nobody takes."""
    name = _VECTORS.get(func._schema.name)
    if name is None or (torch.is_grad_enabled() and args[0].requires_grad):
        return args, kwargs
    return args[:2], {**kwargs, name: False}
