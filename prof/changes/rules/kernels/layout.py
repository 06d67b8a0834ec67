"""Convolutions: their rank, and their biases that a batch norm subtracts again."""

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.rules.kernels.parameters import Counts, in_loops
from pyprof.quantities import rounded

NORMS = ("native_batch_norm", "cudnn_batch_norm", "_batch_norm_impl_index", "miopen_batch_norm")
NEAR = 4  # rows that may lie between a bias and the norm: a memset, a counter
NAMED = re.compile(r"aten::conv(?:_transpose)?([123])d\b")


def spatial_rank(run: Run, row: int) -> int:
    """The number of spatial dimensions of a convolution; 0 if unknown."""
    # PyTorch runs 1-d convolutions as 2-d ones of height 1; the ops around them, or their shapes, show that.
    shapes = [shape for shape in run.shapes(row)[:2] if shape]
    if run.aten[row] != "convolution_backward":  # the shapes of convolution_backward are the caller's
        named = NAMED.search(str(run.texts("nodes")[row]))
        if named:
            return int(named[1])
        if len(shapes) == 2 and all(len(shape) == 4 and shape[2] == 1 for shape in shapes):
            return 0
    return len(shapes[0]) - 2 if shapes else 0


@rule("conv_bias")
def conv_bias(run: Run) -> Iterator[Finding]:
    """A convolution's bias that is added just before a batch norm, which subtracts the mean.

    Counts adds of [1, C, 1, 1] directly followed by a batch norm over the same tensor, the sums of their gradient, and
    what else a bias is the cause of: its zeroing, the sum of its gradients, and its part of an optimizer's loop.
    Abstains in inference, where the norm subtracts a mean that already includes the bias.

    Refuted by: no bias that is added before a batch norm; inference.
    """
    if not bool((run.phase == "backward").any()):
        return
    rows: list[int] = []
    shapes = set()
    for row in np.flatnonzero(np.isin(run.aten, ("add_", "add"))).tolist():
        sizes = run.shapes(row)
        if sizes and len(sizes) > 1 and len(sizes[0]) >= 4 and sizes[1] == [1, sizes[0][1], *[1] * (len(sizes[0]) - 2)]:
            near = range(row + 1, min(row + 1 + NEAR, run.rows))
            if any(run.aten[i] in NORMS and run.shapes(i)[:1] == sizes[:1] for i in near):
                rows.append(row)
                shapes.add(tuple(sizes[0]))
    if not rows:
        return
    sums = np.flatnonzero((run.aten == "sum") & run.mentions("nodes", "aten::convolution_backward")).tolist()
    steps = run.table.ints("step")
    # Of tensors of one length, which are not told apart, as many go from each line as there are biases of that length.
    biases: Counts = Counter((int(steps[row]), (run.first_shape(row)[1],)) for row in rows)
    loops = [row for each in in_loops(run, biases) for row in each]
    rows += [i for i in sums if tuple(run.first_shape(i)) in shapes]
    why = (
        f"{run.number(rows, 'kernel adds a bias, or sums', 'kernels add a bias, or sum')} its gradient, although the "
        f"following batch norm subtracts it again: {rounded(run.ms_of(rows))} ms"
    )
    change = "Remove the bias of convolutions before a batch norm: nn.Conv2d(..., bias=False)."
    rows += sorted(set(loops) - set(rows))
    yield Finding(np.array(rows), run.dur[rows].copy(), why, change, launches=len(rows))
