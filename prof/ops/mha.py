"""Multi-head attention and the encoder layer around it, as single ops: products, attention, products.

Parts are named after what they do. The input is projected once where queries, keys and values are the same
tensor; the heads lie side by side in E, so splitting and joining them is a view. Bytes are those of fused
kernels: no layout copies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyprof.prof.ops.attention import FAMILY_NAME, attention, attention_backward
from pyprof.prof.ops.attention import Call as AttentionCall
from pyprof.prof.ops.gemm import gradients, linear
from pyprof.prof.ops.model import UNKNOWN, Parts, Tensor, Work, evaluate, model, total
from pyprof.prof.ops.operands import given, moved


@dataclass(frozen=True, slots=True)
class Projections:
    """Multi-head attention's parameters: weight[3E,E] (or three) and bias[3E] in, weight[E,E] and bias[E] out."""

    heads: int
    weights: tuple[Tensor, ...]  # one for Q, K and V together, or three
    bias: Tensor | None
    out_weight: Tensor
    out_bias: Tensor | None


def inputs(q: Tensor, k: Tensor, v: Tensor, p: Projections) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """(input, weight, bias) of each input projection: the same tensor is projected once, with its weights'
    rows.

    Source: torch.nn.functional._in_projection_packed.
    """
    size = q.shape[-1]
    if len(p.weights) == 3:
        own = None if p.bias is None else p.bias.like((size,))
        return [(x, w, own) for x, w in zip((q, k, v), p.weights, strict=True)]
    groups: list[tuple[Tensor, int]] = []
    for x in (q, k, v):
        if groups and same(groups[-1][0], x):
            groups[-1] = (x, groups[-1][1] + 1)
        else:
            groups.append((x, 1))
    weight = p.weights[0]
    rows = weight.shape[0] // 3
    return [
        (
            x,
            replace(weight, shape=(n * rows, size), strides=None, ident=0),
            None if p.bias is None else replace(p.bias, shape=(n * rows,), ident=0),
        )
        for x, n in groups
    ]


def same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.ident != 0 and a.ident == b.ident)


def mha(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    p: Projections,
    axes: tuple[int, int],
    mask: Any,
    dropout: Any,
    causal: Any,
    weights: int,
    more: int = 0,
) -> Parts:
    """Input projections, attention, output projection; ``axes``: batch and sequence; ``weights``: elements of
    the attention weights if they are returned; ``more``: keys besides those of the sequence.

    The heads lie side by side in E, so splitting and joining them is a view.
    """
    ins = inputs(q, k, v, p)
    core = split_heads(q, k, v, p, axes, more)
    joined = q.like((*q.shape[:-1], p.out_weight.shape[1]))
    attended = attention(AttentionCall(*core, mask, dropout, causal))
    return {
        "in_proj": sum((linear(x, w, b) for x, w, b in ins), Work()),
        "attention": attended + Work(0, 0, moved(weights, q)),
        "out_proj": linear(joined, p.out_weight, p.out_bias),
    }


def split_heads(
    q: Tensor, k: Tensor, v: Tensor, p: Projections, axes: tuple[int, int], more: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """[batch, heads, sequence, size of a head], with so many more keys and values"""
    batch, sequence = axes
    single = len(q.shape) == 2  # one sequence without a batch dimension
    size = (p.out_weight.shape[1]) // p.heads
    shapes = [
        (1 if single else x.shape[batch], p.heads, x.shape[0 if single else sequence] + added, size)
        for x, added in ((q, 0), (k, more), (v, more))
    ]
    queries, keys, values = (q.like(shape) for shape in shapes)
    return queries, keys, values


@dataclass(frozen=True, slots=True)
class Call:
    """A call of torch.nn.functional.multi_head_attention_forward: [sequence, batch, E]."""

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
    def projections(self) -> Projections:
        own = tuple(t for t in (self.q_weight, self.k_weight, self.v_weight) if isinstance(t, Tensor))
        weights = (self.in_weight,) if isinstance(self.in_weight, Tensor) else own
        return Projections(self.heads, weights, given(self.in_bias), self.out_weight, given(self.out_bias))

    @property
    def more(self) -> int:
        """Keys besides those of the sequence: a learned one, a zero."""
        return (given(self.bias_k) is not None) + bool(self.zero)

    @property
    def masks(self) -> tuple[Any, bool]:
        """The mask that attention reads, and whether it is causal: that replaces a mask, where no weights and no
        padding are asked for."""
        if self.causal and given(self.padding_mask) is None and not self.need_weights:
            return None, True
        return self.mask if given(self.mask) is not None else self.padding_mask, False


ARGUMENTS = """(q, k, v, _embed, heads, in_weight, in_bias, bias_k, _bias_v, zero, dropout, out_weight, out_bias,
    training, padding_mask, need_weights, mask, _separate, q_weight, k_weight, v_weight, _static_k, _static_v, average,
    causal)"""


@model(f"multi_head_attention_forward {ARGUMENTS}", family=FAMILY_NAME, takes=Call)
def multi_head_attention_forward(call: Call) -> Parts:
    """torch.nn.functional's: [sequence, batch, E]. Returned attention weights are averaged over the heads."""
    mask, causal = call.masks
    returned = pairs_of(call.q, call.k, call.more) * (1 if call.average else call.heads) if call.need_weights else 0
    dropout = call.dropout if call.training else 0.0
    return mha(call.q, call.k, call.v, call.projections, (1, 0), mask, dropout, causal, returned, call.more)


def pairs_of(q: Tensor, k: Tensor, more: int = 0) -> int:
    """Elements of one head's attention weights, over the batch."""
    return q.shape[0] * (k.shape[0] + more) * (q.shape[1] if len(q.shape) > 2 else 1)


@model(f"multi_head_attention_forward.backward {ARGUMENTS}", family=FAMILY_NAME, takes=Call)
def multi_head_attention_backward(call: Call) -> Parts:
    """Both projections' gradients, and attention's five products"""
    p, (mask, causal) = call.projections, call.masks
    core = split_heads(call.q, call.k, call.v, p, (1, 0), call.more)
    joined = call.q.like((*call.q.shape[:-1], p.out_weight.shape[1]))
    return {
        "out_proj": linear_gradients(joined, p.out_weight, p.out_bias),
        "attention": attention_backward(AttentionCall(*core, mask, call.dropout if call.training else 0.0, causal)),
        "in_proj": sum((linear_gradients(*one) for one in inputs(call.q, call.k, call.v, p)), Work()),
    }


def linear_gradients(x: Tensor, weight: Tensor, bias: Tensor | None) -> Work:
    """dx, dweight and dbias of one projection."""
    y = x.like((*x.shape[:-1], weight.shape[0]))
    return total(gradients(x, weight, y, y.numel * x.shape[-1], bias))


@model("_native_multi_head_attention", "_triton_multi_head_attention", family=FAMILY_NAME)
def native_multi_head_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _embed: Any,
    heads: int,
    in_weight: Tensor,
    in_bias: Any,
    out_weight: Tensor,
    out_bias: Any,
    mask: Any = None,
    need_weights: Any = False,
    average: Any = True,
) -> Parts:
    """The inference path of nn.MultiheadAttention: [batch, sequence, E]"""
    p = Projections(heads, (in_weight,), given(in_bias), out_weight, given(out_bias))
    returned = 0
    if need_weights is not UNKNOWN and need_weights:
        returned = q.shape[0] * q.shape[1] * k.shape[1] * (heads if average is False else 1)
    return mha(q, k, v, p, (0, 1), mask, 0.0, False, returned)


@model("_transformer_encoder_layer_fwd", family=FAMILY_NAME)
def transformer_encoder_layer(
    x: Tensor,
    _embed: Any,
    heads: int,
    in_weight: Tensor,
    in_bias: Any,
    out_weight: Tensor,
    out_bias: Any,
    use_gelu: Any,
    _norm_first: Any,
    _eps: Any,
    norm1: Tensor,
    norm1_bias: Any,
    norm2: Tensor,
    norm2_bias: Any,
    up: Tensor,
    up_bias: Any,
    down: Tensor,
    down_bias: Any,
    mask: Any = None,
) -> Parts:
    """The inference path of nn.TransformerEncoderLayer: attention, two products, two norms, two sums, an activation"""
    p = Projections(heads, (in_weight,), given(in_bias), out_weight, given(out_bias))
    hidden = x.like((*x.shape[:-1], up.shape[0]))
    norms = [
        evaluate("native_layer_norm", (x, x.shape[-1:], w, b, 1e-5))
        for w, b in ((norm1, norm1_bias), (norm2, norm2_bias))
    ]
    return mha(x, x, x, p, (0, 1), mask, 0.0, False, 0) | {
        "up": linear(x, up, given(up_bias)),
        "activation": total(evaluate("gelu" if use_gelu else "relu", (hidden,))),
        "down": linear(hidden, down, given(down_bias)),
        "norm": sum(map(total, norms), Work()),
        "residual": sum((total(evaluate("add", (x, x.like(x.shape), 1))) for _sum in range(2)), Work()),
    }
