"""Edits of attention: scaled_dot_product_attention in place of products and a softmax, or on another backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.measured.swaps import RunCalls, Swap, swap_rule
from pyprof.prof.changes.measured.timed_call import TimedCall
from pyprof.prof.changes.rules.kernels.attention import BATCHED, MATH, SAFE, Pattern, patterns
from pyprof.prof.ops.model import Tensor
from pyprof.table.columns import Ints

# The places of dropout and of whether it is causal among the arguments of each op
PLACES = {"_efficient_attention_forward": (8, 9), "_flash_attention_forward": (7, 8),
          "_efficient_attention_backward": (11, 14), "_flash_attention_backward": (10, 11)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """What a forward pass shows of an attention besides its sizes."""

    mask: Tensor | None = None
    causal: bool = False
    dropout: float = 0.0


def attention_call(q: Tensor, k: Tensor, options: Options, backward: bool, backends: str) -> TimedCall:
    """scaled_dot_product_attention, with v as k. Tensors are [batch, head, length, width]."""
    arguments = (q, k, k, options.mask, options.dropout, options.causal)
    pairs = q.numel * k.shape[-2]
    return TimedCall(
        "attention", arguments, "bprop" if backward else "", backends, (), int((10 if backward else 4) * pairs)
    )


@swap_rule("attention", "attention_backend")
def fused(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """Each softmax with what is around it as one call; each fused call on another backend."""
    run, efficient = calls.run, "EFFICIENT" in edit.change
    cudnn = (
        "cudnn flash" if "[SDPBackend.CUDNN" in edit.change else "cudnn" if "SDPBackend.CUDNN" in edit.change else ""
    )
    backends = "efficient" if efficient else cudnn  # that the change names; empty: PyTorch's own choice
    alone = [row for row in edit.rows.tolist() if run.aten[row] in PLACES]
    for row in calls.distinct(alone):
        after = fused_call(run, row, str(run.dtype[row]), backends)
        if after is not None:
            yield Swap(calls.rows_of(row), (after,), (calls.call(row),))
    spelled = np.setdiff1d(edit.rows, alone)
    found = {pattern.softmax: pattern for pattern in patterns(run) if pattern.softmax in spelled}
    options = _options(run, found.values(), trained=efficient)
    for softmax, rows in _nearest(run, spelled, list(found)).items():
        shape = tuple(run.shapes(softmax)[0])
        option = options.get(shape, Options())
        after = _of_pattern(run, found[softmax], shape, option, backends, _given(run, rows))
        yield Swap(rows, (after,), calls.calls(rows))


def fused_call(run: Run, row: int, dtype: str, backends: str) -> TimedCall | None:
    """The user's call of a fused attention, whose forward or backward a row is of; None if its sizes are unknown."""
    op = str(run.aten[row])
    backward = op.endswith("_backward")
    shapes, strides = run.shapes(row), run.strides(row) or []
    first = 1 if backward else 0  # the gradient of the result comes first
    if op not in PLACES or len(shapes) < first + 3 or any(len(s) != 4 for s in shapes[first : first + 2]):
        return None
    arguments = [*map(str, run.listed("args", row)), *[""] * 20]
    dropout, causal = (arguments[place] for place in PLACES[op])
    number = float(dropout) if dropout.replace(".", "", 1).isdigit() else 0.0
    options = Options(None, causal in ("1", "True"), number)
    if len(shapes) > first + 3 and op.startswith("_efficient") and shapes[first + 3]:
        options = replace(options, mask=Tensor(tuple(shapes[first + 3]), dtype, None, needs_grad=False))
    q, k = (_heads_first(tuple(shapes[i]), strides[i] if len(strides) > i else None, dtype) for i in (first, first + 1))
    return attention_call(q, k, options, backward, backends)


def _heads_first(shape: tuple[int, ...], strides: object, dtype: str) -> Tensor:
    """A tensor of [batch, length, head, width], as the kernels take it, as the user's call takes it."""
    a, b, c, d = shape
    known = isinstance(strides, list) and len(strides) == 4 and all(type(stride) is int for stride in strides)
    moved = (strides[0], strides[2], strides[1], strides[3]) if known else None  # type: ignore[index]
    return Tensor((a, c, b, d), dtype, moved)


def _of_pattern(
    run: Run, pattern: Pattern, shape: tuple[int, ...], options: Options, backends: str, given: str
) -> TimedCall:
    sizes = [pattern.product.m, pattern.product.n, pattern.product.k]
    if shape[-1] in sizes:
        sizes.remove(shape[-1])
    lead = shape[:-2] if len(shape) == 4 else (1, int(np.prod(shape[:-2])))
    products = [row for row in pattern.rows if run.aten[row] in BATCHED]
    dtype = given or str(run.dtype[products[0]])
    q, k = Tensor((*lead, shape[-2], min(sizes)), dtype), Tensor((*lead, shape[-1], min(sizes)), dtype)
    if options.mask is not None:
        options = replace(options, mask=replace(options.mask, dtype=dtype))
    return attention_call(q, k, options, pattern.backward, backends)


def _given(run: Run, rows: list[int]) -> str:
    """The type that PyTorch's math backend was given, where it computes in float32: that of the casts at its start."""
    if not run.mentions("nodes", MATH, SAFE)[rows].any():
        return ""
    casts = np.flatnonzero(run.mentions("nodes", MATH) & (run.aten == "copy_"))
    return next((source for source in map(run.second_dtype, casts.tolist()) if source in ("bfloat16", "float16")), "")


def _options(run: Run, found: Iterable[Pattern], trained: bool) -> dict[tuple[int, ...], Options]:
    """Mask and dropout by the scores' shape, from forward passes.

    A mask of booleans for all batches and heads, as wide as high, is taken for a causal one, as in most programs.
    """
    options: dict[tuple[int, ...], Options] = {}
    for pattern in found:
        if pattern.backward:
            continue
        shape, mask, causal, dropout = tuple(run.shapes(pattern.softmax)[0]), None, False, 0.0
        for row in range(min(pattern.rows), max(pattern.rows) + 1):
            shapes = [tuple(each) for each in run.shapes(row) if each]
            if run.aten[row] in ("masked_fill", "masked_fill_") and len(shapes) > 1:
                causal = set(shapes[1][:-2]) <= {1} and shapes[1][-2:] == (shape[-1], shape[-1])
                mask = None if causal else Tensor(shapes[1], "", None, needs_grad=False)
            elif run.aten[row] in ("add", "add_") and len(shapes) > 1 and shapes[1] != shapes[0]:
                mask = Tensor(shapes[1], "", None, needs_grad=trained)
            elif run.aten[row] == "native_dropout":
                dropout = _number(run.listed("args", row)[1:2])
        options[shape] = Options(mask, causal, dropout)
    return options


def _number(values: list[object]) -> float:
    try:
        return round(float(str(values[0])), 6) if values else 0.0
    except ValueError:
        return 0.0


def _nearest(run: Run, rows: Ints, softmaxes: list[int]) -> dict[int, list[int]]:
    """The rows by the softmax that they belong to: the nearest one of the same GPU."""
    found: dict[int, list[int]] = {}
    places = np.array(softmaxes, np.int64)
    for row in rows.tolist() if len(places) else ():
        same = places[run.lane[places] == run.lane[row]]
        if len(same):
            found.setdefault(int(same[np.abs(same - row).argmin()]), []).append(row)
    return {softmax: members for softmax, members in found.items() if softmax in members}
