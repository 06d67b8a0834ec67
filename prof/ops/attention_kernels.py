"""The ops of individual attention kernels, which the ops of ``attention`` call: packed sequences and windows.

The counts are those of ``attention``, over the pairs that the kernel's mask leaves. Packed sequences of different
lengths come with their cumulative lengths, which are read, too.

flash      FlashAttention (flash_fwd_kernel, flash_bwd_kernel): windows, packed sequences; aligned at the bottom right
efficient  xFormers' memory-efficient kernel (fmha_cutlassF, fmha_cutlassB): custom_mask_type is 0 for no mask, 1 for
           causal from the top left, 2 from the bottom right; a window counts the query itself; packed sequences are a
           batch of 1. Source: aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_forward.h
cudnn      cuDNN's kernel: [batch, heads, sequence, size], or packed as in FlashAttention; aligned at the top left
jagged     scaled_dot_product_attention of jagged tensors; the kernels differ between devices; aligned at the top left
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.attention import (
    Call,
    Heads,
    attention,
    attention_backward,
    forward,
    heads_first,
    op,
    unmasked,
)
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, distinct

LENGTHS = "the lengths of packed sequences are data that the capture does not hold"


@dataclass(frozen=True, slots=True)
class Packed(Call):
    """The arguments of such an op: tensors [batch, sequence, heads, size], or packed [all sequences, heads, size]."""

    causal: Any = UNKNOWN
    cum_q: Any = None  # cumulative lengths of packed sequences
    cum_k: Any = None
    max_q: Any = UNKNOWN  # length of the longest sequence
    max_k: Any = UNKNOWN
    used: Any = None  # how many keys each sequence uses
    table: Any = None  # the pages of a cache that each sequence uses; K and V are then [pages, page, heads, size]
    slopes: Any = None  # ALiBi's slopes

    @property
    def lengths(self) -> tuple[Any, ...]:
        return self.cum_q, self.cum_k, self.used, self.table, self.slopes

    def sequences(self, total_q: int, total_k: int) -> list[tuple[int, int, int]]:
        """(number, queries, keys) of packed sequences of the same lengths.

        The cumulative lengths are data, which a trace does not record (``Tensor.values``). If number of sequences ×
        longest length equals the tensor's size, all have that length. Otherwise raises UnknownArgument.
        """
        starts_q, starts_k = self.cum_q, self.cum_k if isinstance(self.cum_k, Tensor) else self.cum_q
        if isinstance(self.used, Tensor):
            if starts_q.values is None or self.used.values is None:
                raise UnknownArgument(LENGTHS)
            ends = zip(starts_q.values, starts_q.values[1:], self.used.values, strict=False)
            return [(1, end - start, keys) for start, end, keys in ends]
        if isinstance(self.table, Tensor):
            raise UnknownArgument(LENGTHS)
        if starts_q.values is not None and starts_k.values is not None:
            spans = zip(starts_q.values, starts_q.values[1:], starts_k.values, starts_k.values[1:], strict=False)
            return [(1, q_end - q, k_end - k) for q, q_end, k, k_end in spans]
        number = starts_q.numel - 1
        if number * self.max_q == total_q and number * self.max_k == total_k:
            return [(number, self.max_q, self.max_k)]
        raise UnknownArgument(LENGTHS)

    def used_keys(self, keys: int, batch: int) -> list[tuple[int, int]]:
        """(number, keys) of the sequences of a batch: all keys, unless the call says how many it uses."""
        if isinstance(self.table, Tensor) and not isinstance(self.used, Tensor):
            raise UnknownArgument(LENGTHS)
        if not isinstance(self.used, Tensor):
            return [(batch, keys)]
        if self.used.values is None:
            raise UnknownArgument(LENGTHS)
        return [(1, used) for used in self.used.values]

    def sequence_first(self, left: int | None, right: int | None, bottom_right: bool = True) -> Heads:
        """The sizes with the pairs at most ``left`` and ``right`` (None: no limit) from the diagonal, which ends at the
        bottom right or starts at the top left; for one batch or for packed sequences."""

        def pairs_of(queries: int, keys: int) -> int:
            return unmasked(queries, keys, left, right, keys - queries if bottom_right else 0)

        heads, length, keys = self.q.shape[-2], self.q.shape[-3], self.k.shape[-3]
        if isinstance(self.cum_q, Tensor):
            batch = math.prod(self.q.shape[:-3])
            each = self.sequences(batch * length, batch * keys)
            pairs = sum(number * pairs_of(queries, used) for number, queries, used in each)
        else:
            batch = self.q.shape[0]
            pairs = sum(number * pairs_of(length, used) for number, used in self.used_keys(keys, batch))
        return Heads(heads * pairs, self.q.shape[-1], self.v.shape[-1], batch * length * heads)


def limit(distance: Any) -> int | None:
    """A window's distance to one side; None (no limit) where it is absent, unknown or negative."""
    return None if distance is None or distance is UNKNOWN or distance < 0 else int(distance)


@dataclass(frozen=True, slots=True)
class Flash(Packed):
    """FlashAttention: a causal mask is a window without keys to the right."""

    left: Any = None  # keys in the window to the left and to the right
    right: Any = None

    def heads(self) -> Heads:
        left, right = limit(self.left), limit(self.right)
        return self.sequence_first(left, 0 if self.causal else right)


@dataclass(frozen=True, slots=True)
class FlashForward(Flash):
    """Both overloads: (.., scale, left, right, used, slopes, table) and, for fp8, with three scales before these."""

    scale: Any = None
    seventh: Any = None
    eighth: Any = None

    @property
    def scales(self) -> tuple[Any, ...]:
        """The scales of Q, K and V, if the call has them."""
        return tuple(a for a in (self.scale, self.left, self.right) if isinstance(a, Tensor))

    def plain(self) -> Flash:
        """The call with each argument in its own place."""
        if not self.scales:
            return self
        moved = {"left": self.slopes, "right": self.table, "used": self.seventh, "slopes": self.eighth}
        return replace(self, scale=None, table=None, **moved)


@dataclass(frozen=True, slots=True)
class Varlen(Flash):
    """torch.nn.attention.varlen, whose windows are pairs; -1 is no limit."""

    window: Any = None

    def heads(self) -> Heads:
        left, right = map(limit, (-1, -1) if self.window is None else self.window)
        return self.sequence_first(left, 0 if self.causal else right)


@dataclass(frozen=True, slots=True)
class Efficient(Packed):
    """xFormers' memory-efficient kernel."""

    mask_type: Any = 0
    mask_gradient: Any = False
    window: Any = None

    def gradients(self) -> tuple[bool, bool, bool, bool]:
        return True, True, True, self.mask_gradient is not UNKNOWN and bool(self.mask_gradient)

    def heads(self) -> Heads:
        kind = 0 if self.mask_type is None else int(self.mask_type)
        window = limit(self.window)
        return self.sequence_first(window - 1 if window else None, 0 if kind else None, bottom_right=kind == 2)


@dataclass(frozen=True, slots=True)
class Cudnn(Packed):
    """cuDNN's kernel: packed sequences, or [batch, heads, sequence, size]."""

    def heads(self) -> Heads:
        if isinstance(self.cum_q, Tensor):
            return self.sequence_first(None, 0 if self.causal else None, bottom_right=False)
        return heads_first(self.q, self.k, self.v, self.causal)


@op(
    "_cudnn_attention_backward _scaled_dot_product_cudnn_attention_backward"
    " (_dout, q, k, v, _o, _lse, _seed, _offset, mask, cum_q, cum_k, max_q, max_k, dropout, causal)",
    takes=Cudnn,
)
def cudnn_backward(call: Cudnn) -> Work:
    """Same as ``attention_backward``; without packed sequences the cumulative lengths are undefined or empty tensors"""
    if not (isinstance(call.cum_q, Tensor) and call.cum_q.numel > 1):
        call = replace(call, cum_q=None, cum_k=None)
    return attention_backward(call)


PACKED = "cum_q, cum_k, max_q, max_k"
FLASH = f"q, k, v, {PACKED}, dropout, causal, _debug, _scale, left, right, used, slopes"
VARLEN = f"q, k, v, {PACKED}, causal, _scale, window, _gqa, used, table"
FLASH_BACKWARD = f"_dout, q, k, v, _o, _lse, {PACKED}, dropout, causal, _state, _unused, _scale, left, right"
EFFICIENT = f"q, k, v, mask, {PACKED}, dropout, mask_type, keep, _scale, used, window"
EFFICIENT_BACKWARD = f"_o, {PACKED}, _lse, dropout, _seed, _offset, mask_type, mask_gradient, _scale, _splits, window"


@op(f"_flash_attention_forward ({FLASH.replace('_scale', 'scale')}, table, seventh, eighth)", takes=FlashForward)
def flash_forward(call: FlashForward) -> Work:
    """Two products over the unmasked pairs; for fp8, scales of Q, K and V are read, too, and O is bfloat16"""
    return with_pages(call.plain()) + Work(0, distinct(*call.scales))


def with_pages(call: Packed) -> Work:
    """The forward; of a cache in pages, only the keys and values that the sequences use are read."""
    heads = call.heads()
    if isinstance(call.table, Tensor):
        keys = sum(call.used.values)
        k, v = (t.like((keys, *t.shape[-2:])) for t in (call.k, call.v))
        call = replace(call, k=k, v=v)
    return forward(call, heads)


op(f"_flash_attention_forward_no_dropout_inplace (_o, {FLASH})", takes=Flash)(attention)
op(f"_flash_attention_backward ({FLASH_BACKWARD})", takes=Flash)(attention_backward)
op(f"_efficient_attention_forward ({EFFICIENT})", takes=Efficient)(attention)
op(f"_efficient_attention_backward (_dout, q, k, v, mask, {EFFICIENT_BACKWARD})", takes=Efficient)(attention_backward)
op(f"_cudnn_attention_forward (q, k, v, mask, {PACKED}, keep, dropout, causal)", takes=Cudnn)(attention)


@op(f"torch_attn::_varlen_attn ({VARLEN})", f"torch_attn::_varlen_attn_out (_o, {VARLEN})", takes=Varlen)
def varlen(call: Varlen) -> Work:
    """torch.nn.attention.varlen: two products over the unmasked pairs of packed sequences, or over a cache in pages"""
    return with_pages(call)


op(
    f"torch_attn::_varlen_attn_backward (_dout, q, k, v, _o, _lse, {PACKED}, causal, _state, _scale, window)",
    takes=Varlen,
)(attention_backward)
op("jagged_attention (q, k, v, cum_q, cum_k, dropout, causal)", takes=Cudnn)(attention)
op("jagged_attention.backward (q, k, v, cum_q, cum_k, dropout, causal)", takes=Cudnn)(attention_backward)
