"""Convolutions: layouts that are changed around each, and biases that a batch norm takes away again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.run import Run

__all__ = ["TRANSFORMS"]

TRANSFORMS = ("nchwToNhwc", "nhwcToNchw")  # cuDNN's; seen on V100, A100
NORMS = ("native_batch_norm", "cudnn_batch_norm", "_batch_norm_impl_index", "miopen_batch_norm")
NEAR = 4  # rows between a convolution's bias and the norm: a memset, a counter


@rule("channels_last")
def channels_last(run: Run) -> Iterator[Finding]:
    """cuDNN's layout changes around convolutions on tensor cores, which want channels last.

    Abstains where the convolution itself is not seen to be one (names only).
    """
    rows = np.flatnonzero((run.family == "conv") & run.mentions("kLongName", *TRANSFORMS))
    if not len(rows):
        rows = np.flatnonzero((run.family == "conv") & run.mentions("kShortName", *TRANSFORMS))
    if len(rows):
        now = run.ms(float(run.dur[rows].sum()))
        why = f"cuDNN changes the layout (NCHW to NHWC or back) {run.count(len(rows)):.4g} times: {now:.4g} ms"
        change = (
            "model.to(memory_format=torch.channels_last), and the input alike; look for ops between that fall back."
        )
        yield Finding(rows, run.dur[rows].copy(), why, change, "medium")


@rule("conv_bias")
def conv_bias(run: Run) -> Iterator[Finding]:
    """A convolution's bias, added just before a batch norm that subtracts the mean.

    Only an add of [1, C, 1, 1] followed at once by a batch norm over the same tensor; its gradient's sums with it.
    """
    rows: list[int] = []
    shapes = set()
    for row in np.flatnonzero((run.aten == "add_") | (run.aten == "add")).tolist():
        sizes = run.shapes(row)
        if sizes and len(sizes) > 1 and len(sizes[0]) >= 4 and sizes[1] == [1, sizes[0][1], *[1] * (len(sizes[0]) - 2)]:
            near = range(row + 1, min(row + 1 + NEAR, run.rows))
            if any(run.aten[i] in NORMS and run.shapes(i)[0] == sizes[0] for i in near if run.shapes(i)):
                rows.append(row)
                shapes.add(tuple(sizes[0]))
    if not rows:
        return
    sums = np.flatnonzero((run.aten == "sum") & run.mentions("nodes", "aten::convolution_backward")).tolist()
    rows += [i for i in sums if tuple((run.shapes(i) or [[]])[0]) in shapes]
    now = run.ms(float(run.dur[rows].sum()))
    why = (
        f"{run.count(len(rows)):.4g} kernels add a bias (or sum its gradient) that the batch norm behind takes away: "
        f"{now:.4g} ms"
    )
    yield Finding(np.array(rows), run.dur[rows].copy(), why, "nn.Conv2d(..., bias=False) before a batch norm.", "high")
