"""torchvision's ops: deformable convolutions, pooling of regions, suppression of overlapping boxes.

A sample of an image between its pixels is a weighted sum of 4 taps: 4 products, 3 sums. Computing the weights, which
all channels share, is not counted.
Source: torchvision/csrc/ops, 0.15 to 0.24.
"""

import math
from dataclasses import dataclass
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import given, moved

conv_op, pooling_op, sort_op = Family("conv"), Family("pooling"), Family("sort")
SAMPLE = 7  # FLOPs of a weighted sum of 4 taps
MOVES = "_stride_h, _stride_w, _pad_h, _pad_w, _dilation_h, _dilation_w, _groups, _offset_groups, use_mask"


@dataclass(frozen=True, slots=True)
class Deformable:
    """The arguments of a deformable convolution: x [N,Cin,H,W], weight [Cout,Cin/groups,..], offset [N,..,Ho,Wo]."""

    x: Tensor
    weight: Tensor
    offset: Tensor
    mask: Any = None
    bias: Any = None
    use_mask: Any = False

    @property
    def y(self) -> Tensor:
        return self.x.like((self.x.shape[0], self.weight.shape[0], *self.offset.shape[-2:]))

    @property
    def columns(self) -> int:
        """The sampled values: for each input channel, tap and output position."""
        return math.prod((*self.x.shape[:2], *self.weight.shape[2:], *self.offset.shape[-2:]))

    @property
    def factors(self) -> Tensor | None:
        """The factors of the samples (version 2), if the call has them."""
        if self.use_mask is UNKNOWN:
            raise UnknownArgument("the capture does not say whether the samples have factors")
        return given(self.mask) if self.use_mask else None

    @property
    def product(self) -> int:
        return 2 * self.y.numel * math.prod(self.weight.shape[1:])

    @property
    def sampling(self) -> int:
        """FLOPs of the samples, and of their factors."""
        return (SAMPLE + (self.factors is not None)) * self.columns


@conv_op(f"torchvision::deform_conv2d (x, weight, offset, mask, bias, {MOVES})", takes=Deformable)
def deform_conv(call: Deformable) -> Work:
    """7 per sample, of which there is one for each input channel, tap and position, 1 for its factor; then the product

    Its kernel stores the samples, and the product is an op of its own.
    """
    read = distinct(call.x, call.weight, call.offset, call.factors, given(call.bias))
    return Work(call.product + call.sampling, read, moved(call.y.numel, call.y))


def sampled(call: Deformable) -> Work:
    """What the op's own kernels do: they sample the image into columns."""
    return Work(call.sampling, distinct(call.x, call.offset, call.factors), moved(call.columns, call.x))


@conv_op(f"torchvision::_deform_conv2d_backward (dy, x, weight, offset, mask, bias, {MOVES})")
def deform_conv_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Any = None,
    bias: Any = None,
    use_mask: Any = False,
) -> Work:
    """Two products; the samples again; per sample dx 8, doffset 16, the factor's gradient 2; dbias. An estimate

    dx and doffset count like the gradients of ``grid_sampler_2d``.
    """
    call = Deformable(x, weight, offset, mask, bias, use_mask)
    flop = 2 * call.product + call.sampling + (24 + 2 * (call.factors is not None)) * call.columns
    parameters = [t for t in (x, weight, offset, call.factors, given(bias)) if t is not None]
    written = sum(moved(t.numel, t) for t in parameters)
    return Work(flop + max(dy.numel - dy.shape[1], 0), distinct(dy, x, weight, offset, call.factors), written)


def bins(rois: Tensor, channels: int, height: Any, width: Any) -> int:
    return int(rois.shape[0] * channels * height * width)


@pooling_op("torchvision::roi_align (x, rois, _scale, height, width, sampling)")
def roi_align(x: Tensor, rois: Tensor, height: Any, width: Any, sampling: Any = UNKNOWN) -> Work:
    """The mean of s * s samples in each bin of a region: 7 each, their sum and a division: 8 s s. All of x is read

    Without a sampling ratio the number of samples depends on the regions' sizes, which are data.
    """
    if sampling is UNKNOWN or sampling <= 0:
        raise UnknownArgument("how many samples a bin has depends on the size of its region")
    count = bins(rois, x.shape[1], height, width)
    return Work((SAMPLE + 1) * sampling * sampling * count, distinct(x, rois), moved(count, x))


@pooling_op(
    "torchvision::_roi_align_backward (dy, rois, _scale, _height, _width, batch, channels, rows, columns, sampling)"
)
def roi_align_backward(
    dy: Tensor, rois: Tensor, batch: int, channels: int, rows: int, columns: int, sampling: Any = UNKNOWN
) -> Work:
    """A division per bin; 4 products and 4 sums per sample"""
    if sampling is UNKNOWN or sampling <= 0:
        raise UnknownArgument("how many samples a bin has depends on the size of its region")
    flop = (1 + 8 * sampling * sampling) * dy.numel
    return Work(flop, distinct(dy, rois), moved(batch * channels * rows * columns, dy))


@pooling_op("torchvision::roi_pool (x, rois, _scale, height, width)")
def roi_pool(x: Tensor, rois: Tensor, height: Any, width: Any) -> Work:
    """Comparisons; values and their positions, int32"""
    count = bins(rois, x.shape[1], height, width)
    return Work(0, distinct(x, rois), moved(count, x) + 4 * count)


@sort_op("torchvision::nms")
def nms(boxes: Tensor, scores: Tensor) -> Work:
    """Each pair's overlap: 2 sides, their product, the union 2, a division: 6; an area 3 per box. Sorting compares

    How many boxes are kept is known only from the outputs; their positions, 8 bytes each, are not counted.
    """
    count = boxes.shape[0]
    return Work(3 * count + 6 * (count * (count - 1) // 2), distinct(boxes, scores), 0)
