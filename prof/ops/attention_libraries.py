"""Attention of AITER (ROCm) and of SageAttention, whose ops take more or fewer arguments from version to version.

The arguments are found by their types: of booleans and whole numbers after the tensors, the order has stayed.
Sources: ROCm/aiter aiter/ops/mha.py of 2025 (mha_fwd, mha_varlen_fwd, mha_bwd, mha_varlen_bwd and their fmha_v3 forms);
thu-ml/SageAttention sageattention/sm80_compile.py, sm89_compile.py and sm90_compile.py, 2.2.
"""

from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.attention import Call, attention, attention_backward, heads_first
from pyprof.prof.ops.attention import forward as over_pairs
from pyprof.prof.ops.attention_kernels import LENGTHS, Flash
from pyprof.prof.ops.evaluation import alias
from pyprof.prof.ops.model import Family, Tensor, Work, distinct

op = Family("attention")


@op("aiter::mha_fwd aiter::mha_varlen_fwd")
def aiter_forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Work:
    """Two products over the unmasked pairs; causal masks and windows are aligned at the bottom right"""
    return attention(_flash(q, k, v, rest))


@op("aiter::mha_bwd aiter::mha_varlen_bwd")
def aiter_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *rest: Any) -> Work:
    """Five products over the same pairs"""
    return attention_backward(_flash(q, k, v, rest))


alias(r"aiter::_?(?:mha|fmha_v3)_(varlen_)?(fwd|bwd)(?:_\w+)?", r"aiter::mha_\1\2")


def _flash(q: Tensor, k: Tensor, v: Tensor, rest: tuple[Any, ...]) -> Flash:
    """The call: packed ones have cumulative and longest lengths, and say before the mask whether O begins as zeros."""
    packed = len(q.shape) == 3
    if packed and (len(k.shape) != 3 or not isinstance(rest[0], Tensor)):
        raise UnknownArgument(LENGTHS)  # a cache in pages
    options = rest[4:] if packed else rest
    flags = [place for place, value in enumerate(options) if isinstance(value, bool)]
    if len(flags) < 1 + packed:
        raise UnknownArgument("the capture does not record whether the mask is causal")
    place = flags[packed]
    left, right = (value if type(value) is int else None for value in (*options[place + 1 : place + 3], None, None)[:2])
    dropout = next((value for value in options if isinstance(value, float)), 0.0)
    lengths = dict(zip(("cum_q", "cum_k", "max_q", "max_k"), rest, strict=False)) if packed else {}
    return Flash(q, k, v, dropout=dropout, causal=options[place], left=left, right=right, **lengths)


@op("sageattention::attention")
def sage_attention(q: Tensor, k: Tensor, v: Tensor, o: Tensor, *rest: Any) -> Work:
    """Two products over the unmasked pairs of int8 Q and K, and of V in fp16 or fp8; reads the scales, too

    The first whole number after the tensors tells the layout, [batch, sequence, heads, size] or (1) [batch, heads,
    sequence, size]; the second, whether the mask is causal; the last, whether the logarithms are written.
    """
    numbers = [value for value in rest if type(value) is int]
    if len(numbers) < 4:
        raise UnknownArgument("the capture does not record the layout and the mask")
    layout, causal, *_, keep = numbers
    wide = k.like((*k.shape[:-1], o.shape[-1]))  # V itself may be transposed and padded
    first = [tensor if layout else _heads_first(tensor) for tensor in (q, k, wide)]
    heads = heads_first(first[0], first[1], first[2], causal)
    call = Call(q.like((), o.dtype), k.like((0,)), v.like((0,)), keep=keep)
    written = over_pairs(call, heads).write
    flop = 2 * heads.pairs * (heads.key_size + heads.value_size)
    return Work(flop, distinct(q, k, v, *rest), written)


def _heads_first(tensor: Tensor) -> Tensor:
    batch, length, heads, size = tensor.shape
    return tensor.like((batch, heads, length, size))


alias(r"sageattention::qk_int8_sv_f(?:8|16)_\w+", "sageattention::attention")
