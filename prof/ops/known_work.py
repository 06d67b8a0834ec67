"""Facts about a call in addition to its model's count: that it computes nothing, partly known work, filled zeros."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pyprof.errors import ModelError
from pyprof.prof.ops.compiled import fused_bytes, is_compiled
from pyprof.prof.ops.evaluation import checked, evaluate, first_trial, parameters
from pyprof.prof.ops.model import FAMILY, ORDER, UNKNOWN, Parts, Tensor, Work, distinct, names
from pyprof.prof.ops.operands import INDEX_BYTES
from pyprof.prof.ops.vision import sampled

# Families that move, sort or select elements. "indexing" and "embedding" are not included: their backwards add.
FAMILIES = frozenset({"copy", "fill", "view", "collective", "sort", "layout"})
GATHERS = names(
    "embedding index_select gather take index masked_select nonzero masked_fill max_pool2d max_pool3d "
    "max_pool2d_with_indices max_pool3d_with_indices"
)


@lru_cache(maxsize=4096)
def never_computes(name: str) -> bool:
    """Whether an op, by its registered name, only compares, selects, moves or fills.

    >>> never_computes("cat"), never_computes("threshold_backward"), never_computes("add")
    (True, True, False)
    """
    family = FAMILY[name]
    return family in FAMILIES or name in GATHERS or (family == "pointwise" and _zero(name))


def _zero(name: str) -> bool:
    """Whether the op's own model counts 0 FLOPs for real numbers, and for complex ones, if it takes them."""
    real, complex_ = ([(Tensor((64,), dtype),) * count for count in (1, 2, 3)] for dtype in ("float32", "complex64"))
    return first_trial(name, real) == 0 and first_trial(name, complex_) in (0, None)


Amounts = tuple[int | None, float | None]

# The parameter for the causal flag or mask type in the models of fused attention. NVTX does not record it; bytes do not
# depend on it.
MASK = frozenset({"causal", "mask_type"})


def known_parts(name: str, arguments: tuple[Any, ...]) -> dict[str, Amounts]:
    """(FLOPs, bytes) of each part of the work, None if unknown; an empty dict if nothing is known.

    The bytes of a compiled kernel can be known without its FLOPs, attention's bytes without its mask. An op that only
    moves or compares elements is known to have 0 FLOPs.
    """
    if is_compiled(name) and arguments:
        return {"": (None, fused_bytes(arguments[0], arguments[1:]))}
    parts = _with_any_mask(name, arguments)
    return {"": (0, None)} if not parts and never_computes(name) else parts


def _with_any_mask(name: str, arguments: tuple[Any, ...]) -> dict[str, Amounts]:
    """The counts that are equal with and without a causal mask, for a capture that does not record the mask."""
    pairs = enumerate(zip(parameters(name), arguments, strict=False))
    position = next((i for i, (word, argument) in pairs if word in MASK and argument is UNKNOWN), None)
    if position is None:
        return {}
    before, after = arguments[:position], arguments[position + 1 :]
    try:
        works = [evaluate(name, (*before, flag, *after)) for flag in (False, True)]
    except ModelError:
        return {}
    plain, causal = ({"": work} if isinstance(work, Work) else work for work in works)
    return {part: _common(work, causal[part]) for part, work in plain.items()}


def _common(one: Work, other: Work) -> Amounts:
    flop = one.flop if one.flop == other.flop else None
    return flop, one.nbytes if one.nbytes == other.nbytes else None


# Ops that fill their whole output with zeros before they scatter into it. The model of such an op counts all of its
# output as written. In a capture the fill is a separate inner op (``aten::zero_``) with its own kernel, so the op's
# other kernels write only the elements that they touch. Counting the fill twice would put such a kernel far above the
# memory bandwidth: 17 times for nll_loss_backward with a 50,304-word vocabulary.
# Source: ATen/native/cuda/{NLLLoss2d,Loss,DilatedMaxPool3d,EmbeddingBackwardKernel}.cu of torch 2.4 to 2.13.
# ``max_pool2d_with_indices_backward`` fills first, too, but then writes every element again, in both layouts: on an
# H200 its kernel wrote 521 MB of a gradient of 537 MB (docs/explanation/accuracy.md).


def _nll(arguments: tuple[Any, ...]) -> float:
    """(grad_output, self, target, weight, reduction, ignore_index, total_weight): writes one element per target"""
    gradient, scores, target, weight = arguments[:4]
    read = distinct(gradient, target, weight, arguments[6] if len(arguments) > 6 else None)
    return float(read + target.numel * scores.itemsize)


def _pool(arguments: tuple[Any, ...]) -> float:
    """(grad_output, self, ...): adds each gradient to the element at its position, at most one element per output"""
    gradient, scores = arguments[:2]
    touched = min(gradient.numel, scores.numel)
    return float(gradient.nbytes + INDEX_BYTES * gradient.numel + touched * scores.itemsize)


def _embedding(arguments: tuple[Any, ...]) -> float:
    """(grad_output, indices, ...): writes at most one row per index, independent of the table's size"""
    gradient, indices = arguments[:2]
    return float(distinct(gradient, indices) + gradient.numel * gradient.itemsize)


# op -> function of its arguments (in schema order): bytes read and written, without the zeros
FILLED: dict[str, Callable[[tuple[Any, ...]], float]] = {
    "nll_loss_backward": _nll,
    "nll_loss2d_backward": _nll,
    "max_pool3d_with_indices_backward": _pool,
    "embedding_dense_backward": _embedding,
}


# Ops that run their product as an inner op, which has rows of its own: what the op's own kernels do.
WITHOUT_PRODUCT: dict[str, Callable[..., Work]] = {"torchvision::deform_conv2d": sampled}


def own_work(name: str, arguments: tuple[Any, ...], work: Work | Parts) -> Work | Parts:
    """The work of the op's own kernels in a capture, where inner ops fill its output or compute its product."""
    if name in WITHOUT_PRODUCT:
        positional, named = ORDER[name].bind(arguments)
        return checked(name, arguments, lambda: WITHOUT_PRODUCT[name](*positional, **named))
    if isinstance(work, Work) and name in FILLED:
        return checked(name, arguments, lambda: Work(work.flop, FILLED[name](arguments), 0))
    return work
