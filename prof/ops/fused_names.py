"""The ops listed in the name of a torch.compile kernel, and their FLOPs.

``triton_poi_fused_add_gelu_3`` fuses ``add`` and ``gelu``; each op is named once, in alphabetical order. FLOPs are
inferred: each op counts once per element of the kernel's loops, with its own model.
"""

import re
from functools import lru_cache

from pyprof.prof.ops.evaluation import find, first_trial
from pyprof.prof.ops.model import FAMILY, MATRIX, MODELS, Tensor, names

# Families that compute nothing in such a kernel. An op of a matrix product prepares an operand or adds a bias; the
# product runs in another kernel.
NO_WORK = MATRIX | {"view", "copy", "fill", "indexing", "embedding", "sort"}

# Names from Inductor and prims that are not aten ops, with their FLOPs per element.
NO_FLOP = names(
    "convert_element_type iota device_put inductor_lookup_seed inductor_seeds inductor_random inductor_randint "
    "lift_fresh_copy copy_ as_strided_scatter slice_scatter select_scatter slice_backward select_backward "
    "_unsafe_index _low_memory_max_pool2d_with_offsets _low_memory_max_pool_with_offsets "
    "_low_memory_max_pool2d_offsets_to_indices _low_memory_max_pool_offsets_to_indices nll_loss_forward "
    "nll_loss_backward sym_size empty randperm eq"
)
ONE_FLOP = names(
    "max_pool2d_with_indices_backward embedding_dense_backward index_put _unsafe_index_put "
    "_unsafe_masked_index_put_accumulate"
)
# prepare_softmax_online: running maximum, exp of the difference, sum
OWN = {**dict.fromkeys(NO_FLOP, 0), **dict.fromkeys(ONE_FLOP, 1), "prepare_softmax_online": 3}

# Ops that run on the output of a reduction, not on its input, such as the root in a norm.
AFTER = frozenset({"rsqrt", "sqrt", "reciprocal"})

# Norms: FLOPs per element for the statistics and for the result, which may be computed by two kernels. For a layer norm
# the statistics subtract, square and add; the result subtracts, scales by the deviation and the weight, adds the bias.
WITH_MEAN = names(
    "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit _batch_norm_with_update "
    "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training _batch_norm_with_update_functional"
)
NORMS = {**dict.fromkeys(WITH_MEAN, (3, 4)), "_fused_rms_norm": (2, 2)}

# Their backwards: an element of the input's gradient, and of the sums for the weights' gradients.
NORM_BACKWARDS = {
    "native_layer_norm_backward": (10, 3),
    "native_group_norm_backward": (10, 3),
    "native_batch_norm_backward": (10, 3),
    "batch_norm_backward": (10, 3),
    "_fused_rms_norm_backward": (7, 2),
}


@lru_cache(maxsize=65536)
def fused_ops(op: str) -> tuple[str, ...] | None:
    """The ops in a kernel's name; None if a part of it is not a known op.

    >>> fused_ops("triton_poi_fused__to_copy_add_tanh_tanh_backward_view_6")
    ('_to_copy', 'add', 'tanh', 'tanh_backward', 'view')
    """
    match = re.fullmatch(r"triton_[a-z]{3}_fused_(\w*?)_?\d+", op)
    return _split(match[1]) if match and match[1] else None


def _split(text: str) -> tuple[str, ...] | None:
    """Split the text into known names joined by `_`, the longest match first, with backtracking."""
    ends: list[tuple[str, ...] | None] = [None] * (len(text) + 1)  # ends[i]: the split of text[i:]
    ends[len(text)] = ()
    words = _words()
    for start in range(len(text) - 1, -1, -1):
        for end in range(len(text), start, -1):
            after = min(end + 1, len(text))
            rest = ends[after] if end == len(text) or text[end] == "_" else None
            if rest is not None and (end == len(text) or end + 1 < len(text)) and text[start:end] in words:
                ends[start] = (text[start:end], *rest)
                break
    return ends[0]


@lru_cache(maxsize=1)
def _words() -> frozenset[str]:
    plain = (name for name in MODELS if "." not in name and ":" not in name)
    return frozenset({*plain, *OWN, *NORMS, *NORM_BACKWARDS})


def op_flop(name: str, rows: int, columns: int, writes_all: bool) -> int | None:
    if name in OWN:
        return OWN[name] * rows * columns
    if FAMILY.get(find(name) or "") in NO_WORK:
        return 0
    if name in AFTER and columns > 1:
        return rows
    if name in NORMS or name in NORM_BACKWARDS:
        return _norm(name, rows, columns, writes_all)
    return _generic(name, rows, columns)


def _norm(name: str, rows: int, columns: int, writes_all: bool) -> int:
    """FLOPs of a norm, or of the part that this kernel computes, judging by its loops and its last tensor."""
    elements = rows * columns
    if name in NORM_BACKWARDS:
        return NORM_BACKWARDS[name][0 if writes_all else 1] * elements
    statistics, result = NORMS[name]
    return ((statistics if columns > 1 else 0) + (result if writes_all else 0)) * elements


@lru_cache(maxsize=65536)
def _generic(name: str, rows: int, columns: int) -> int | None:
    """FLOPs by the op's own model, for tensors with the size of the loops and as many arguments as the op takes."""
    registered_name = find(name)
    if registered_name is None:
        return None
    t = Tensor((rows, columns), "float32")
    elementwise = ((t,), (t, t), (t, t, t))
    by_rows = ((t, [1]), (t, 1), (t, 1, False), (t, t, 1, "float32"))  # a reduction, a scan, a softmax, its backward
    calls = elementwise if FAMILY[registered_name] == "pointwise" else (*by_rows, *elementwise)
    return first_trial(registered_name, calls)
