"""Convolutions with layout changes around each call, and convolution biases that a batch norm subtracts again."""

import re
from collections.abc import Iterator

import numpy as np

from pyprof.dtypes import HALF
from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import START_NS, STREAMED, Run
from pyprof.quantities import rounded
from pyprof.table.columns import Floats, Ints

TRANSFORMS = ("nchwToNhwc", "nhwcToNchw")  # cuDNN's; seen on V100, A100, H200
NORMS = ("native_batch_norm", "cudnn_batch_norm", "_batch_norm_impl_index", "miopen_batch_norm")
NEAR = 4  # rows that may lie between a bias and the norm: a memset, a counter
# PyTorch's own batch norm, of tensors in NCHW and in NHWC: names, and what the latter reach of the bandwidth. ResNet-50
# and layers of 128 and 256 channels in bf16 on an H200: forward 0.83 to 0.92 of 4.8 TB/s, backward 1.38 to 1.69.
NORM_NCHW = re.compile(r"batch_norm_(?:collect_statistics|transform_input|backward)(?:_reduce|_elemt)?_kernel")
NORM_FORWARD, NORM_BACKWARD = 0.18, 0.31
# PyTorch's depthwise convolutions in NCHW, against cuDNN's in NHWC: of the bandwidth these reach on an H200 in bf16
# with kernels of 3 × 3 forward 0.35 to 0.48, backward 0.24 to 0.42; with 7 × 7, where arithmetic on the vector unit is
# the limit, 6 to 14 of 67 TFLOP/s.
DEPTHWISE = "conv_depthwise2d_"
DEPTHWISE_BYTES, DEPTHWISE_FLOP = 0.3, 0.12
NAMED = re.compile(r"aten::conv(?:_transpose)?([123])d\b")
FORMATS = {2: "torch.channels_last", 3: "torch.channels_last_3d"}  # by spatial dimensions


@rule("channels_last")
def channels_last(run: Run) -> Iterator[Finding]:
    """cuDNN's layout changes around convolutions on tensor cores, which work in channels last.

    Includes the batch norms and depthwise convolutions of the same run, whose kernels for NCHW are slower. There is one
    card for 2-d and one for 3-d. Abstains if convolutions are known only by name; for 1-d convolutions, for which
    PyTorch has no such format; if group or instance norms run over tensors of that rank, because their kernels support
    only NCHW and the layout changes would move there; and for depthwise convolutions in float32, whose weight gradient
    is slower in NHWC (1.13 ms against 0.35 for kernels of 7 × 7).

    Refuted by: no layout changes and no kernels for NCHW.
    """
    layout = run.mentions("kLongName", *TRANSFORMS) | run.mentions("kShortName", *TRANSFORMS)
    depthwise = run.mentions("kShortName", DEPTHWISE) & np.isin(run.dtype, tuple(HALF))
    convs = np.flatnonzero(run.family == "conv")
    ranks = np.array([spatial_rank(run, row) for row in convs.tolist()], np.int64)
    for rank in FORMATS:
        of_rank = convs[ranks == rank]
        moved, apart = of_rank[layout[of_rank]], of_rank[depthwise[of_rank]]
        if len(moved) + len(apart) and not _normed_apart(run, rank):
            norms = _norms(run) if rank == 2 else np.zeros(0, np.int64)
            yield _in_nhwc(run, rank, FORMATS.keys() <= set(ranks.tolist()), moved, apart, norms)


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


def _normed_apart(run: Run, rank: int) -> bool:
    """Whether a group or instance norm runs over tensors with this number of spatial dimensions."""
    apart = (run.aten == "native_group_norm") | run.mentions("nodes", "aten::instance_norm")
    return any(len(run.first_shape(row)) == rank + 2 for row in np.flatnonzero(apart).tolist())


def _in_nhwc(run: Run, rank: int, mixed: bool, changes: Ints, depthwise: Ints, norms: Ints) -> Finding:
    """The card of one rank. ``mixed``: as of ``change_to_nhwc``."""
    expected = np.concatenate([np.zeros(len(changes)), _depthwise_ns(run, depthwise), _norm_ns(run, norms)])
    rows = np.concatenate([changes, depthwise, norms])
    saved = run.dur[rows] - expected
    rows, saved = rows[saved > 0], saved[saved > 0]  # drops NaN, too: bytes or device unknown
    nchw, nhwc = ("NCHW", "NHWC") if rank == 2 else ("NCDHW", "NDHWC")
    words = [
        f"{run.number(some, one, f'{one}s')} {what} ({rounded(run.ms_of(some))} ms)"
        for some, one, what in (
            (changes, "layout change", f"by cuDNN, from {nchw} to {nhwc} or back"),
            (depthwise, "depthwise convolution", "by PyTorch's own kernels"),
            (norms, "batch norm", f"by kernels for {nchw}"),
        )
        if len(some)
    ]
    now, gain = run.ms_of(rows), run.ms(float(saved.sum()))
    why = f"{', '.join(words)}. Of {rounded(now)} ms, {rounded(now - gain)} ms are expected to remain in {nhwc}"
    return Finding(rows, saved, why, change_to_nhwc(rank, mixed), launches=len(changes), calls=0.0)


def change_to_nhwc(rank: int, mixed: bool) -> str:
    """What to do. ``mixed``: the run has 2-d and 3-d convolutions, for which Module.to raises an error."""
    what = f"each nn.Conv{rank}d" if mixed else "model"
    refused = " (it refuses the whole model, which has weights of the other rank)" if mixed else ""
    name = FORMATS[rank].removeprefix("torch.").replace("_", " ")
    return (
        f"Use {name}: {what}.to(memory_format={FORMATS[rank]}){refused}, and the same for the input. Look for ops in "
        f"between that fall back to {'NCHW' if rank == 2 else 'NCDHW'}."
    )


def _norms(run: Run) -> Ints:
    """Batch norms of four-dimensional tensors by kernels for NCHW."""
    rows = np.flatnonzero(run.table.coded("kShortName").where(NORM_NCHW.search) & (run.family == "norm"))
    return np.array([row for row in rows.tolist() if len(run.first_shape(row)) == 4], np.int64)


def _norm_ns(run: Run, rows: Ints) -> Floats:
    """Expected time in NHWC; NaN if bytes or bandwidth are unknown."""
    share: Floats = np.where(run.texts("dir")[rows] == "bprop", NORM_BACKWARD, NORM_FORWARD)
    return 1e9 * run.nbytes[rows] / (share / STREAMED * run.bandwidth)


def _depthwise_ns(run: Run, rows: Ints) -> Floats:
    """Expected time in NHWC; NaN if work or device are unknown."""
    peak = run.device.peak("fp32") if run.device else np.nan
    by_bytes: Floats = run.nbytes[rows] / (DEPTHWISE_BYTES / STREAMED * run.bandwidth)
    return START_NS + 1e9 * np.maximum(by_bytes, run.flop[rows] / (DEPTHWISE_FLOP * peak))


@rule("conv_bias")
def conv_bias(run: Run) -> Iterator[Finding]:
    """A convolution's bias that is added just before a batch norm, which subtracts the mean.

    Counts adds of [1, C, 1, 1] directly followed by a batch norm over the same tensor, and the sums of their gradient.
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
    rows += [i for i in sums if tuple(run.first_shape(i)) in shapes]
    why = (
        f"{run.number(rows, 'kernel adds a bias, or sums', 'kernels add a bias, or sum')} its gradient, although the "
        f"following batch norm subtracts it again: {rounded(run.ms_of(rows))} ms"
    )
    change = "Remove the bias of convolutions before a batch norm: nn.Conv2d(..., bias=False)."
    yield Finding(np.array(rows), run.dur[rows].copy(), why, change, launches=len(rows))
