"""Which ops run in half precision under autocast, and the casts that it adds, found by following the run's data.

Autocast narrows the operands of products. What follows them takes the type of its operands: the wider one where they
differ. Some ops ask for float32 (torch/amp, "CUDA Ops that can autocast to float32"). The capture does not say which
op's result another op reads: that of the same number of elements that was made last is taken, and of two operands the
last two. A backward op has the types of its forward op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.rules.kernels.results_of_ops import COMPUTES, results
from pyprof.table.columns import NULL, Bools, Floats

WIDE = frozenset(
    "softmax _softmax log_softmax _log_softmax layer_norm native_layer_norm group_norm native_group_norm rms_norm "
    "_fused_rms_norm pow exp expm1 log log10 log1p log2 rsqrt reciprocal sum prod cumsum cumprod norm "
    "linalg_vector_norm softplus tan acos asin cosh sinh erfinv nll_loss nll_loss_forward nll_loss2d_forward mse_loss "
    "l1_loss smooth_l1_loss kl_div huber_loss binary_cross_entropy_with_logits cosine_similarity cdist dist "
    "grid_sampler_2d grid_sampler_3d".split()
)
# Where one operand has dimensions and is float32, the result is, too, however few numbers it has.
PROMOTING = frozenset("add sub rsub mul div addcmul addcdiv maximum minimum where lerp".split())
TO_BOOL = frozenset("eq ne lt le gt ge isnan isinf isfinite logical_not logical_and logical_or logical_xor".split())
WEIGHTED = ("aten::linear", "aten::addmm", "aten::conv")  # around products whose second operand is a weight
CAST_BYTES = 6  # per element of a cast: autocast reads 4 bytes and writes 2, or the reverse
CAST_NS = 1500.0  # besides moving the bytes
# Casts to float32 run at 2.05 to 2.2 TB/s on an H200 (558 of 3 million elements and more, PyTorch 2.11), those to bf16
# at 3.9 to 4.6 (735): the kernel for the former loads element by element.
TO_WIDE = 2.1  # times as long as to the narrow type
PARTS = 4  # tensors that one product's result is split into at most
LEAST = 4096  # elements of the smallest tensors that are followed; of smaller ones only what a product makes
SHORTEST_NS = 2000.0  # of a kernel on half of the bytes
# What remains of a kernel's time on half of the bytes: PyTorch's kernels for strided operands and for sums are not
# limited by bytes alone (the medians of 44, 21 and 2 pairs of an H200; of 37 others 0.51). Where operands differ in
# type, they are cast element by element (21 pairs: 1.43 and 1.37).
STRIDED = {"elementwise_kernel": 0.9, "reduce_kernel": 0.9, "fused_dropout_kernel_vec": 0.7}
MIXED = 1.4


def _large(run: Run, row: int) -> list[int]:
    """The elements of each large operand that may be float32: masks and indices keep their type."""
    return [size for shape in _may_be_wide(run, row) if (size := numel(shape)) >= LEAST]


def _small(run: Run, row: int) -> list[int]:
    """The elements of each smaller operand with dimensions whose type the result may have to take."""
    if run.aten[row].rstrip("_") not in PROMOTING:
        return []
    return [size for shape in _may_be_wide(run, row) if shape and 0 < (size := numel(shape)) < LEAST]


def _may_be_wide(run: Run, row: int) -> list[list[int]]:
    shapes, dtypes = run.shapes(row), run.listed("dtypes", row)
    other = [dtype not in ("", "float32") for dtype in dtypes] if len(dtypes) == len(shapes) else [False] * len(shapes)
    return [shape for shape, fixed in zip(shapes, other, strict=True) if not fixed]


class _Cast(NamedTuple):
    elements: int
    widens: bool  # to float32

    @property
    def back(self) -> _Cast:
        """The cast of the gradient."""
        return _Cast(self.elements, not self.widens)


class Flow:
    """The types of a run under autocast, whose products ``narrowed`` (per row) change."""

    def __init__(self, run: Run, narrowed: Bools) -> None:
        self.run, self.narrowed = run, narrowed
        self.factor: Floats = np.ones(run.rows)  # per row that is no product: the share of its bytes that remains
        self.cast_ns: Floats = np.zeros(run.rows)  # per row: what the casts before it take
        self.casts: Floats = np.zeros(run.rows)  # and their number
        self._made: dict[int, list[int]] = {}  # elements -> bytes per element of the last two tensors of that many
        self._forward: dict[int, tuple[float, list[_Cast]]] = {}  # sequence number -> factor, casts of its gradients
        self._weights: set[tuple[int, str, str]] = set()  # those that the autocast of now has cast
        self._backward = False
        self._weighted = run.mentions("nodes", *WEIGHTED)
        for row in self._rows():
            if run.phase[row] == "backward" or run.texts("dir")[row] == "bprop":
                self._go_back(row)
                self._backward = True
            elif run.phase[row] in ("forward", "other", ""):
                if self._backward:  # it runs outside of autocast, and what follows it is under another one
                    self._weights.clear()
                    self._backward = False
                self._go(row)

    def _rows(self) -> Iterator[int]:
        lane = -1
        for row in range(self.run.rows):
            if self.run.lane[row] != lane:
                lane = self.run.lane[row]
                self._made.clear()
                self._forward.clear()
            if self.run.role[row] != "aux":
                yield row

    def _go(self, row: int) -> None:
        run = self.run
        large = run.once(_large, row)
        if self.narrowed[row]:
            cast = [_Cast(size, widens=False) for size in self._operands(row)]
            self._cast(row, cast)
            self._note(row, 0.5, [each.back for each in cast])
            self._make(next(iter(results(run, row)), 0) if run.family[row] in COMPUTES else 0, 2)
            return
        if not large or run.dtype[row] != "float32":
            return
        widths = self._widths(large)
        if run.aten[row].rstrip("_") in WIDE and not self._within_loss(row):
            cast = [_Cast(large[0], widens=True)] if widths[0] == 2 else []
            self._cast(row, cast)
            self._note(row, 1.0, [each.back for each in cast])
            self._make(large[0], 4)
            return
        small = [self._made.get(size, [4])[-1] for size in run.once(_small, row)]
        wide = widths[0] if run.aten[row].endswith("_") else max(widths + small)  # in place: the result's type is given
        factor = (sum(widths) + wide) / (4.0 * (len(widths) + 1))
        self.factor[row] = factor
        # The gradient of a narrow operand of a wide result is cast to its type. It is computed in the wide one.
        back = factor if max(widths) == wide else 1.0
        self._note(row, back, [_Cast(large[0], widens=False)] if min(widths) < wide else [])
        if run.aten[row] not in TO_BOOL:
            self._make(large[0], wide)

    def _within_loss(self, row: int) -> bool:
        """Whether this is the softmax of ``cross_entropy``, which asks for its input's type; its next op is wide."""
        return self.run.aten[row] == "_log_softmax" and "aten::cross_entropy_loss" in self.run.texts("nodes")[row]

    def _widths(self, large: list[int]) -> list[int]:
        """The bytes per element of each operand."""
        seen: dict[int, int] = {}
        found = []
        for size in large:
            made = self._made.get(size, [])
            place = seen.get(size, 0)
            found.append(self._width(size) if not place else made[-1 - place] if place < len(made) else 4)
            seen[size] = place + 1
        return found

    def _make(self, size: int, width: int) -> None:
        if size:
            self._made[size] = [*self._made.pop(size, [])[-1:], width]  # the last key is the last one made

    def _note(self, row: int, factor: float, cast: list[_Cast]) -> None:
        number = int(self.run.node_number[row])
        before, casts = self._forward.get(number, (factor, []))
        self._forward[number] = (min(before, factor), casts + cast)

    def _go_back(self, row: int) -> None:
        number = int(self.run.node_number[row])
        if number == NULL or number not in self._forward:
            return
        factor, cast = self._forward[number]
        if not self.narrowed[row]:
            self.factor[row] = factor
        if cast:  # gradients of what was cast are cast back, once
            # Not on attention's own time, from which rules tell its kernel.
            self._cast(max(row - (self.run.family[row] == "attention"), 0), cast)
            self._forward[number] = (factor, [])

    def _cast(self, row: int, casts: Sequence[_Cast]) -> None:
        per_element = 1e9 * CAST_BYTES / self.run.bandwidth
        self.casts[row] += len(casts)
        self.cast_ns[row] += sum(
            CAST_NS + per_element * cast.elements * (TO_WIDE if cast.widens else 1.0) for cast in casts
        )

    def _operands(self, row: int) -> Iterator[int]:
        """The elements of the operands of a product that autocast has to cast."""
        run, weighted = self.run, bool(self._weighted[row]) or self.run.family[row] == "conv"
        shapes = [shape for shape in run.shapes(row) if numel(shape)]
        matrices = [shape for shape in shapes if len(shape) > 1]
        for place, shape in enumerate(matrices[:2]):
            if weighted and place == 1:
                # The casts of a weight and its bias are kept until autocast ends, before the backward pass.
                key = (int(run.table.ints("step")[row]), str(sorted(shape)), run.layer(row) or run.trace(row))
                if key not in self._weights:
                    self._weights.add(key)
                    yield numel(shape)
                    yield from (numel(bias) for bias in shapes if len(bias) == 1)
                    yield from self._bias_after(row)
            elif self._width(numel(shape)) == 4:
                yield numel(shape)

    def _bias_after(self, row: int) -> Iterator[int]:
        """The elements of a convolution's bias, which PyTorch adds by a kernel of its own."""
        run, following = self.run, row + 1
        if run.family[row] == "conv" and following < run.rows and run.aten[following] == "add_":
            shapes = run.shapes(following)
            if run.op(following) == run.op(row) and len(shapes) > 1 and max(shapes[1], default=0) == numel(shapes[1]):
                yield numel(shapes[1])

    def _width(self, size: int) -> int:
        """The bytes per element of the tensor of this size that was made last, or of a larger one that it is a part of.

        Queries, keys and values are parts of one product's result, as are the halves of a gated unit.
        """
        order = [n for n in self._made if n >= size and n % size == 0 and n // size <= PARTS]
        return self._made[order[-1]][-1] if order else 4

    def changed_ns(self) -> Floats:
        """Per row that is no product: its duration afterwards, ns, without casts."""
        took, names = self.run.dur, self.run.texts("kShortName")
        narrow, elementwise = self.factor <= 0.5, self.run.mentions("kShortName", "elementwise_kernel")
        share = np.where(narrow, [STRIDED.get(str(name), 0.5) for name in names], self.factor)
        mixed = elementwise & ~narrow & (self.factor < 1)
        shorter = np.minimum(took, np.maximum(took * share, SHORTEST_NS))
        found: Floats = np.where(mixed, took * MIXED, shorter)
        return found
