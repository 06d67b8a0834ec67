"""Which values an op's arguments may have: indices within bounds, probabilities from 0 to 1.

An index out of bounds stops all work on a GPU. So an integer tensor whose bound is not in this table is refused where
its name says that it is an index.
"""

import re
from collections.abc import Sequence
from typing import Any

from pyprof.prof.ops.model import Tensor, names

_ALONG_DIM = names("gather scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ take_along_dim "
                   "index_select index_add index_add_ index_copy index_copy_ index_fill index_fill_")  # fmt: skip
_CLASSES = {
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss2d", "cross_entropy"), (0, 1)),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), (1, 2)),
}  # positions of the scores [N, C, ...] and of the classes
_INDEX_LISTS = names("index _unsafe_index _index index_put index_put_ _index_put_impl_ _unsafe_index_put")
_PROBABILITIES = {
    "binary_cross_entropy": (0, 1),
    "binary_cross_entropy_backward": (1, 2),
    "bernoulli": (0,),
    "bernoulli_": (1,),
    "multinomial": (0,),
}
_IS_INDEX = re.compile(r"ind(ex|ices)|offset|target|cu_?seq|cum_seq|lengths|batch_sizes|positions|segment")
# Second moments and step counts of optimizers, variances of norms
_IS_POSITIVE = re.compile(r"exp_avg_sq|state_step|state_sum|sum_sq|(^|_)var(iance)?$|rstd|invstd|inv_var")
_IS_SEED = re.compile(r"philox|seed|rng_state")


def index_bounds(op: str, arguments: Sequence[Any]) -> dict[int, int]:
    """The number that each index must stay below, by the position of the argument.

    >>> index_bounds("embedding", (Tensor((50, 8)), Tensor((4,), "int64")))
    {1: 50}
    >>> index_bounds("gather", (Tensor((4, 6, 16)), -2, Tensor((4, 3, 16), "int64")))
    {2: 6}
    """
    at = dict(enumerate(arguments))
    if op in _ALONG_DIM:
        return _below(2, _size(at.get(0), at.get(1)))
    if op in _CLASSES:
        scores, classes = _CLASSES[op]
        shape = _shape(at.get(scores))
        return _below(classes, _size(at.get(scores), 1 if len(shape) > 1 else 0))
    if op == "embedding":
        return _below(1, _size(at.get(0), 0))
    if op == "embedding_dense_backward":
        return _below(1, at.get(2))
    if op in ("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"):
        spatial = _shape(at.get(1))[-2 if "2d" in op else -3 :]
        size = 1
        for extent in spatial:
            size *= extent
        return _below(len(arguments) - 1, size if spatial else None)
    return {}


def api_bounds(op: str, arguments: Sequence[Any]) -> dict[int, int]:
    """``index_bounds`` for a function of torch's API; F.embedding takes the indices first."""
    if op == "embedding":
        return _below(0, _size(dict(enumerate(arguments)).get(1), 0))
    return index_bounds(op, arguments)


def list_bounds(op: str, arguments: Sequence[Any]) -> dict[int, int]:
    """The bounds of a list of indices, the second argument, by their place in the list."""
    if op not in _INDEX_LISTS or len(arguments) < 2 or not isinstance(arguments[1], tuple):
        return {}
    shape = _shape(arguments[0])
    return {place: shape[place] for place in range(min(len(arguments[1]), len(shape)))}


def is_probability(op: str, position: int) -> bool:
    return position in _PROBABILITIES.get(op.removesuffix("_with_logits"), ())


def is_index(name: str) -> bool:
    """Whether an integer tensor with this name in its op's schema points at something."""
    return _IS_INDEX.search(name) is not None


def is_seed(name: str) -> bool:
    """Whether a tensor with this name is the state of a random generator: small numbers do."""
    return _IS_SEED.search(name) is not None


def is_positive(name: str) -> bool:
    """Whether a tensor with this name is never negative: its root is taken, and roots of negative numbers are slow."""
    return _IS_POSITIVE.search(name) is not None


def _below(position: int, bound: Any) -> dict[int, int]:
    return {position: bound} if type(bound) is int and bound > 0 else {}


def _shape(argument: Any) -> tuple[int, ...]:
    return argument.shape if isinstance(argument, Tensor) else ()


def _size(argument: Any, dimension: Any) -> int | None:
    shape = _shape(argument)
    if type(dimension) is not int or not -len(shape) <= dimension < len(shape):
        return None
    return shape[dimension]
