"""Multi-head attention and the encoder layer around it, as single ops: projections, attention, projection.

The model returns named parts. If queries, keys and values are the same tensor, it is projected once. The heads lie
side by side in E, so splitting and joining them is a view. Bytes are those of fused kernels, without layout copies.
"""

from dataclasses import dataclass, replace
from typing import Any

from pyprof.prof.ops.attention import Call as AttentionCall
from pyprof.prof.ops.attention import attention, attention_backward, op
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.gemm import gradients, linear
from pyprof.prof.ops.model import UNKNOWN, Family, Parts, Tensor, Work, distinct, total
from pyprof.prof.ops.operands import given, moved


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of torch.nn.functional.multi_head_attention_forward: Q, K and V are [sequence, batch, E].

    The input projection has weight [3E, E] (or three weights) and bias [3E], the output projection [E, E] and [E].
    """

    q: Tensor
    k: Tensor
    v: Tensor
    heads: int
    in_weight: Any
    in_bias: Any = None
    bias_k: Any = None
    zero: Any = False
    dropout: Any = 0.0
    out_weight: Any = None
    out_bias: Any = None
    training: Any = True
    padding_mask: Any = None
    need_weights: Any = True
    mask: Any = None
    q_weight: Any = None
    k_weight: Any = None
    v_weight: Any = None
    average: Any = True
    causal: Any = False

    @property
    def axes(self) -> tuple[int, int]:
        """The dimensions of the batch and of the sequence."""
        return 1, 0

    @property
    def joined(self) -> Tensor:
        """The results of all heads, side by side."""
        return self.q.like((*self.q.shape[:-1], self.out_weight.shape[1]))

    @property
    def added_keys(self) -> int:
        """The number of keys added to the sequence: a learned one, a zero."""
        return (given(self.bias_k) is not None) + bool(self.zero)

    @property
    def returned_weights(self) -> int:
        """Elements of the attention weights that the call returns: those of one head if they are averaged."""
        if not self.need_weights:
            return 0
        pairs = self.q.shape[0] * (self.k.shape[0] + self.added_keys)
        batch = self.q.shape[1] if len(self.q.shape) > 2 else 1
        return pairs * batch * (1 if self.average else self.heads)

    def inputs(self) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """(input, weight, bias) per input projection: a repeated tensor is projected once, with all its weights' rows.

        Source: torch.nn.functional._in_projection_packed.
        """
        size, bias = self.q.shape[-1], given(self.in_bias)
        if not isinstance(self.in_weight, Tensor):
            part = None if bias is None else bias.like((size,))
            weights = (self.q_weight, self.k_weight, self.v_weight)
            return [(x, weight, part) for x, weight in zip((self.q, self.k, self.v), weights, strict=True)]
        groups: list[tuple[Tensor, int]] = []
        for x in (self.q, self.k, self.v):
            if groups and same(groups[-1][0], x):
                groups[-1] = (x, groups[-1][1] + 1)
            else:
                groups.append((x, 1))
        rows = self.in_weight.shape[0] // 3
        projections = []
        for x, count in groups:
            weight = replace(self.in_weight, shape=(count * rows, size), strides=None, ident=0)
            projections.append((x, weight, None if bias is None else replace(bias, shape=(count * rows,), ident=0)))
        return projections

    def attention_call(self) -> AttentionCall:
        """The arguments of the inner attention op, with tensors [batch, heads, sequence, size of a head]."""
        batch, sequence = self.axes
        single = len(self.q.shape) == 2  # one sequence without a batch dimension
        size = self.out_weight.shape[1] // self.heads
        q, k, v = (
            self.q.like((1 if single else x.shape[batch], self.heads, x.shape[0 if single else sequence] + added, size))
            for x, added in ((self.q, 0), (self.k, self.added_keys), (self.v, self.added_keys))
        )
        mask, causal = self.masks
        return AttentionCall(q, k, v, mask, self.dropout if self.training else 0.0, causal)

    @property
    def masks(self) -> tuple[Any, bool]:
        """The mask that attention reads, and whether it is causal.

        With ``is_causal``, a causal kernel replaces the mask if no weights are returned and there is no padding mask.
        """
        if self.causal and given(self.padding_mask) is None and not self.need_weights:
            return None, True
        return self.mask if given(self.mask) is not None else self.padding_mask, False


@dataclass(frozen=True, slots=True)
class NativeCall(Call):
    """The arguments of the inference path: Q, K and V are [batch, sequence, E]."""

    need_weights: Any = False

    @property
    def axes(self) -> tuple[int, int]:
        return 0, 1

    @property
    def returned_weights(self) -> int:
        """As in ``Call``; if the capture lacks the flags: no weights, or averaged ones."""
        if self.need_weights is UNKNOWN or not self.need_weights:
            return 0
        pairs = self.q.shape[0] * self.q.shape[1] * self.k.shape[1]
        return pairs * (self.heads if self.average is False else 1)


def same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.ident != 0 and a.ident == b.ident)


ORDER = """(q, k, v, _embed, heads, in_weight, in_bias, bias_k, _bias_v, zero, dropout, out_weight, out_bias,
    training, padding_mask, need_weights, mask, _separate, q_weight, k_weight, v_weight, _static_k, _static_v, average,
    causal)"""


@op(f"multi_head_attention_forward {ORDER}", takes=Call)
def multi_head_attention(call: Call) -> Parts:
    """Input projections, attention, output projection, and the attention weights if the call returns them"""
    return {
        "in_proj": sum((linear(x, weight, bias) for x, weight, bias in call.inputs()), Work()),
        "attention": attention(call.attention_call()) + Work(0, 0, moved(call.returned_weights, call.q)),
        "out_proj": linear(call.joined, call.out_weight, given(call.out_bias)),
    }


op(
    "_native_multi_head_attention _triton_multi_head_attention (q, k, v, _embed, heads, in_weight, in_bias, "
    "out_weight, out_bias, mask, need_weights, average)",
    takes=NativeCall,
)(multi_head_attention)


@op(f"multi_head_attention_forward.backward {ORDER}", takes=Call)
def multi_head_attention_backward(call: Call) -> Parts:
    """The gradients of both projections, and attention's five products"""
    return {
        "out_proj": projection_gradients(call.joined, call.out_weight, given(call.out_bias)),
        "attention": attention_backward(call.attention_call()),
        "in_proj": sum((projection_gradients(*projection) for projection in call.inputs()), Work()),
    }


def projection_gradients(x: Tensor, weight: Tensor, bias: Tensor | None) -> Work:
    """dx, dweight and dbias of one projection."""
    y = x.like((*x.shape[:-1], weight.shape[0]))
    return total(gradients(x, weight, y, y.numel * x.shape[-1], bias))


@op("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(x: Tensor, _embed: Any, heads: int, *parameters: Any) -> Parts:
    """The inference path of nn.TransformerEncoderLayer: attention, two products, two norms, two sums, an activation

    x is [batch, sequence, E].
    """
    in_weight, in_bias, out_weight, out_bias, use_gelu, _norm_first, _eps, *rest = parameters
    norm1, norm1_bias, norm2, norm2_bias, up, up_bias, down, down_bias, *_ = rest
    inner = NativeCall(x, x, x, heads, in_weight, in_bias, out_weight=out_weight, out_bias=out_bias)
    hidden = x.like((*x.shape[:-1], up.shape[0]))
    norms = ((norm1, norm1_bias), (norm2, norm2_bias))
    return multi_head_attention(inner) | {
        "up": linear(x, up, given(up_bias)),
        "activation": total(evaluate("gelu" if use_gelu else "relu", (hidden,))),
        "down": linear(hidden, down, given(down_bias)),
        "norm": sum((total(evaluate("native_layer_norm", (x, x.shape[-1:], *norm, 1e-5))) for norm in norms), Work()),
        "residual": sum((total(evaluate("add", (x, x.like(x.shape), 1))) for _sum in range(2)), Work()),
    }


@Family("pointwise")("_transform_bias_rescale_qkv")
def bias_and_scale(qkv: Tensor, bias: Tensor) -> Work:
    """[B, T, 3E] + bias, and Q times a number: 4 of each three elements; writes Q, K and V with the heads first"""
    return Work(qkv.numel + qkv.numel // 3, distinct(qkv, bias), moved(qkv.numel, qkv))
