"""The operators of ``torch.nn.attention.flex_attention``: attention over the blocks that its block mask lists.

A block mask lists, for each block of queries, the blocks of keys that are computed: some need no mask inside, of
others the products are done for the whole block and masked after. Which blocks is the contents of its tensors, so
``pyprof.count`` reads them; without contents (fake and meta tensors) the call is uncounted, unless there is no mask. Of
a block that reaches over the end of a sequence, the pairs that exist count. ``score_mod`` is not counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.attention import Call, Heads, backward, forward, heads_first, op
from pyprof.prof.ops.model import Tensor, Work, distinct


def _heads(q: Tensor, k: Tensor, v: Tensor, blocks: Any, size: tuple[int, int]) -> Heads:
    """The pairs of all heads: those of the listed blocks, ``(number of lists they stand in for, query block, key
    block)`` each; ``None``: all.
    """
    every = heads_first(q, k, v, False)
    if blocks is None:
        return every
    if not isinstance(blocks, tuple):
        raise UnknownArgument("which blocks the mask leaves is data that is not known")
    rows, columns = (
        [min(step, whole - start) for start in range(0, whole, step)]
        for step, whole in zip(size, (q.shape[-2], k.shape[-2]), strict=True)
    )
    return replace(every, pairs=sum(times * rows[i] * columns[j] for times, i, j in blocks))


@op("flex_attention")
def flex(q: Tensor, k: Tensor, v: Tensor, blocks: Any, size: Any = (1, 1), mask: Any = ()) -> Work:
    """2*(D + Dv) a pair of the computed blocks; Q, K, V and the mask's lists read; O and the logarithms written"""
    return forward(Call(q, k, v), _heads(q, k, v, blocks, size)) + Work(0, distinct(mask))


@op("flex_attention_backward")
def flex_backward(q: Tensor, k: Tensor, v: Tensor, blocks: Any, size: Any = (1, 1), mask: Any = ()) -> Work:
    """Five products over the same blocks"""
    return backward(Call(q, k, v), _heads(q, k, v, blocks, size)) + Work(0, distinct(mask))
