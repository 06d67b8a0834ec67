"""torchvision's ops: values worked out by hand."""

import pytest

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.known_work import own_work
from pyprof.prof.ops.model import UNKNOWN, Work
from tests.prof.ops.op_cases import Row, t, worked

# x [2,4,8,8] 2048 bytes; weight [6,2,3,3] of 2 groups 432; y [2,6,6,6] 432 elements, 1728 bytes
X, W, B = t(2, 4, 8, 8), t(6, 2, 3, 3), t(6)
OFFSET, MASK = t(2, 18, 6, 6), t(2, 9, 6, 6)  # 5184 and 2592 bytes
V1 = (X, W, OFFSET, t(2, 1), B, 1, 1, 0, 0, 1, 1, 2, 1, False)
V2 = (X, W, OFFSET, MASK, B, 1, 1, 0, 0, 1, 1, 2, 1, True)
PRODUCT = 2 * 432 * 18  # 15552
SAMPLES = 2 * 4 * 9 * 36  # 2592 values
ROIS = t(5, 5)  # 100 bytes

ROWS: list[Row] = [
    ("torchvision::deform_conv2d", V1, Work(15552 + 7 * 2592, 2048 + 432 + 5184 + 24, 1728)),
    ("torchvision::deform_conv2d", V2, Work(15552 + 8 * 2592, 2048 + 432 + 5184 + 2592 + 24, 1728)),
    ("torchvision::deform_conv2d", (*V2[:13], UNKNOWN), UnknownArgument),
    (
        "torchvision::_deform_conv2d_backward",
        (t(2, 6, 6, 6), *V1),
        # dbias: 432 - 6 sums; writes dx, dweight, doffset, dbias
        Work(2 * 15552 + (7 + 24) * 2592 + 426, 1728 + 2048 + 432 + 5184, 2048 + 432 + 5184 + 24),
    ),
    (
        "torchvision::_deform_conv2d_backward",
        (t(2, 6, 6, 6), *V2),
        Work(2 * 15552 + (8 + 26) * 2592 + 426, 1728 + 2048 + 432 + 5184 + 2592, 2048 + 432 + 5184 + 2592 + 24),
    ),
    # 5 regions of 4 channels and 7 * 7 bins: 980 results of 2 * 2 samples
    ("torchvision::roi_align", (X, ROIS, 0.25, 7, 7, 2, True), Work(8 * 4 * 980, 2148, 3920)),
    ("torchvision::roi_align", (X, ROIS, 0.25, 7, 7, -1, True), UnknownArgument),
    (
        "torchvision::_roi_align_backward",
        (t(5, 4, 7, 7), ROIS, 0.25, 7, 7, 2, 4, 8, 8, 2, True),
        Work(33 * 980, 3920 + 100, 2048),
    ),
    ("torchvision::_roi_align_backward", (t(5, 4, 7, 7), ROIS, 0.25, 7, 7, 2, 4, 8, 8, 0, True), UnknownArgument),
    ("torchvision::roi_pool", (X, ROIS, 0.25, 7, 7), Work(0, 2148, 3920 + 3920)),
    ("torchvision::nms", (t(10, 4), t(10), 0.5), Work(30 + 6 * 45, 200, 0)),
]
test_worked_by_hand = worked(ROWS)


@pytest.mark.parametrize(
    ("arguments", "work"),
    [(V1, Work(7 * 2592, 7232, 10368)), (V2, Work(8 * 2592, 9824, 10368)), (V1[:3], Work(7 * 2592, 7232, 10368))],
)
def test_the_kernel_of_a_deformable_convolution_samples_and_leaves_the_product(arguments: Row, work: Work) -> None:
    name = "torchvision::deform_conv2d"
    assert own_work(name, arguments, evaluate(name, arguments)) == work
