"""Signatures of some ops, used to complete arguments that a capture records incompletely.

NVTX ranges write shapes without dtypes, and lists of tensors or indices as separate tensors. Kineto leaves long lists
empty. Options such as ``dim`` are recorded only in the marker of the user's call.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Tensor


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of an op that need special treatment."""

    lists: int = 0  # number of lists of tensors that the op takes, all of the same length
    indices: tuple[int, ...] = ()  # positions of index tensors; int64 is assumed, as torch creates them
    after_indices: int | None = None  # a list of indices follows self; this is the number of arguments after it
    only_tensors: bool = False  # the dispatcher never passes numbers: at::where converts them to tensors
    shaped_like_first: bool = False  # the output has the first argument's shape; the kernel's name shows its dtype
    options: tuple[tuple[str, Any], ...] = ()  # the arguments after self, with the defaults of the user's call


_LISTS = {
    "cat _foreach_norm": 1,
    "_foreach_copy_ _foreach_add_ _foreach_mul_ _foreach_sub_ _foreach_div_ _foreach_lerp_": 2,
    "_foreach_addcmul_ _foreach_addcdiv_ _fused_sgd_": 3,
    "_fused_adamw_ _fused_adam_": 5,
}
_INDICES = {
    "embedding nll_loss_forward embedding_dense_backward embedding_backward": (1,),
    "index_select gather nll_loss_backward scatter scatter_add index_add": (2,),
    "_embedding_bag_dense_backward": (1, 2, 3, 4),
    "_embedding_bag_backward": (1, 2, 3, 4, 5),
}
_AFTER_INDICES = {"index _unsafe_index _index": 0, "index_put index_put_ _unsafe_index_put": 2, "_index_put_impl_": 3}
_OPTIONS = {
    "topk": (("k", UNKNOWN), ("dim", -1), ("largest", True), ("sorted", True)),
    "cumsum cumprod": (("dim", UNKNOWN), ("dtype", None)),
    "sum mean nansum nanmean": (("dim", None), ("keepdim", False), ("dtype", None)),
    "amax amin argmax argmin logsumexp": (("dim", None), ("keepdim", False)),
}
_SOFTMAX = Signature(shaped_like_first=True, options=(("dim", UNKNOWN), ("half_to_float", False)))

SIGNATURES: Mapping[str, Signature] = {
    **{op: Signature(lists=count) for ops, count in _LISTS.items() for op in ops.split()},
    **{op: Signature(indices=places) for ops, places in _INDICES.items() for op in ops.split()},
    **{op: Signature(after_indices=count) for ops, count in _AFTER_INDICES.items() for op in ops.split()},
    **{op: Signature(options=options) for ops, options in _OPTIONS.items() for op in ops.split()},
    **dict.fromkeys(("_softmax", "_log_softmax"), _SOFTMAX),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), Signature(shaped_like_first=True)),
    "where": Signature(only_tensors=True),
}
_PLAIN = Signature()


def signature_of(op: str) -> Signature:
    """The signature of an aten op, without ``aten::``."""
    return SIGNATURES.get(op, _PLAIN)


def after_lists(op: str, lists: int, filled: int, empty: int) -> tuple[Any, ...]:
    """The arguments after the lists of an op whose range shows ``filled`` shapes and then ``empty`` ones.

    For Adam these are the maxima (with AMSGrad, otherwise none) and the step counters, which have no dimensions; for
    other ops they are numbers.
    """
    if is_adam(op):
        return (() if lists > 4 else ((),)) + ((Tensor((), "float32"),) * (filled // lists),)
    return (UNKNOWN,) * empty


def is_adam(op: str) -> bool:
    return op.startswith("_fused_adam")
