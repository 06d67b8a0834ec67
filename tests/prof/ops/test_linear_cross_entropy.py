"""F.linear_cross_entropy in parts of a batch: values worked out by hand."""

from pyprof.prof.ops.model import Work
from tests.prof.ops.op_cases import Row, i, t, worked

X, W, Y, B = t(12, 8), t(20, 8), i(12), t(20)  # 384, 640, 96 and 80 bytes; 12 * 20 = 240 logits
HALF = (t(12, 8, dtype="bfloat16"), t(20, 8, dtype="bfloat16"), Y)  # 192, 320, 96 bytes
REST = (-100, 0.0, 4, "balanced", "float32", False)
LOSS = 3840 + 720 - 12 + 24  # 2 * 240 * 8; sub, exp and sum of 240; 12 logarithms and differences
BOTH = 264 + 2 * 3840  # softmax 240 and 2 * 12; dx and dW of the logits' size

ROWS: list[Row] = [
    (
        "torch_nn::_linear_cross_entropy_batch_chunked",
        (X, W, Y, None, None, "mean", *REST, False, False, False),
        Work(LOSS + 12, 384 + 640 + 96, 4),  # 11 sums, a division
    ),
    (
        "torch_nn::_linear_cross_entropy_batch_chunked",
        (X, W, Y, B, None, "sum", *REST, True, True, True),
        Work(LOSS + 11 + BOTH + 220, 384 + 640 + 96 + 80, 4 + 384 + 640 + 80),  # dbias: 240 - 20 sums
    ),
    (
        "torch_nn::_linear_cross_entropy_batch_chunked",
        (X, W, Y, None, t(20), None, *REST, True, False, False),  # a trace has no strings; the mean is the default
        # class weights: 12 products and 11 sums of them
        Work(LOSS + 12 + 23 + 264 + 3840, 384 + 640 + 96 + 80, 4 + 384),
    ),
    (
        "torch_nn::_linear_cross_entropy_batch_chunked",
        (*HALF, None, None, "mean", *REST, True, True, False),
        Work(LOSS + 12 + BOTH, 192 + 320 + 96, 2 + 192 + 320),
    ),
    (
        "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction",
        (X, W, Y, B, t(20), -100, 4, "balanced", "float32"),
        Work(LOSS + 12, 384 + 640 + 96 + 80 + 80, 48),  # 12 products with class weights; a loss per row
    ),
]
test_worked_by_hand = worked(ROWS)
