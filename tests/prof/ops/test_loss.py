"""Softmax and losses, counted by hand."""

import math

from hypothesis import given
from hypothesis import strategies as st

from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from tests.prof.ops.op_cases import Row, i, t, worked

X = t(4, 6)  # 24 elements in 4 rows, 96 bytes
XC = t(4, 6, dtype="complex64")  # 192 bytes
H = t(4, 6, dtype="bfloat16")  # 48 bytes
Y = i(4)
NONE, MEAN, SUM = 0, 1, 2
ROWS: list[Row] = [
    ("softmax _softmax _safe_softmax special_softmax softmin", (X, 1, None), Work(92, 96, 96)),  # 96 - 4
    ("softmax", (H, 1, "float32"), Work(92, 48, 96)),
    ("_softmax", (H, -1, True), Work(92, 48, 96)),  # half_to_float
    ("_softmax", (X, 0, False), Work(90, 96, 96)),  # 6 rows
    ("_softmax", (X, UNKNOWN, False), Work(92, 96, 96)),  # the last dimension
    ("log_softmax _log_softmax special_log_softmax", (X, 1, None), Work(96, 96, 96)),  # 96 - 4 + 4 logarithms
    ("_softmax_backward_data _log_softmax_backward_data _softmax_backward", (X, X, 1, "float32"), Work(92, 192, 96)),
    ("_log_softmax_backward_data", (X, X, 1, 15), Work(92, 192, 48)),
    ("_masked_softmax", (X, t(4, 6, dtype="bool"), 1), Work(92, 120, 96)),
    ("_masked_softmax_backward", (X, X, t(4, 6, dtype="bool"), 1), Work(92, 216, 96)),
    (
        "nll_loss nll_loss_nd nll_loss_forward nll_loss2d nll_loss2d_forward",
        (X, Y, None, MEAN, -100),
        Work(4, 16 + 32, 8),
    ),  # 3 additions, a division; 4 gathered elements, 4 targets
    ("nll_loss_forward", (X, Y, None, SUM, -100), Work(3, 48, 8)),
    ("nll_loss_forward", (X, Y, None, NONE, -100), Work(0, 48, 20)),
    ("nll_loss_forward", (X, Y, t(6), MEAN, -100), Work(4 + 4 + 3, 32 + 32, 8)),  # weights: 4 products, 3 additions
    ("nll_loss_forward", (X, Y, UNKNOWN, UNKNOWN, UNKNOWN), Work(4, 48, 8)),
    ("nll_loss_backward nll_loss2d_backward", (t(), X, Y, None, MEAN, -100, t()), Work(4, 4 + 4 + 32, 96)),
    ("nll_loss_backward", (t(), X, Y, None, SUM, -100, t()), Work(0, 4 + 32, 96)),
    ("nll_loss_backward", (t(4), X, Y, t(6), NONE, -100, t()), Work(4, 16 + 16 + 32, 96)),
    ("cross_entropy_loss cross_entropy", (X, Y, None, MEAN, -100, 0.0), Work(100, 96 + 48, 96 + 8)),
    # smoothing: the sums of 4 rows of 6, their mean (3 sums, a division), two products and a sum of both losses
    ("cross_entropy_loss", (X, Y, None, MEAN, -100, 0.1), Work(100 + 20 + 4 + 3, 192 + 48, 96 + 8)),
    ("cross_entropy_loss", (X, Y, None, SUM, -100, 0.1), Work(99 + 20 + 3 + 3, 192 + 48, 96 + 8)),
    ("cross_entropy_loss", (X, Y, None, NONE, -100, 0.1), Work(96 + 20 + 4 * 3, 192 + 48, 96 + 20)),
    # class weights: nll_loss 7 more, and 24 products before the sums of the rows
    ("cross_entropy_loss", (X, Y, t(6), MEAN, -100, 0.1), Work(100 + 7 + 24 + 20 + 4 + 3, 192 + 64, 96 + 8)),
    ("cross_entropy_loss", (X, X, None, MEAN, -100, 0.0), Work(96 + 48, 96 + 192, 96 + 4)),  # probabilities
    ("cross_entropy_loss", (X, X, None, MEAN, -100, 0.1), Work(96 + 48 + 48, 96 + 192, 96 + 4)),  # t a + b
    # a loss per row: 24 products (with class weights 48), 20 sums
    ("cross_entropy_loss", (X, X, None, NONE, -100, 0.0), Work(96 + 24 + 20, 96 + 192, 96 + 16)),
    ("cross_entropy_loss", (X, X, t(6), NONE, -100, 0.0), Work(96 + 48 + 20, 96 + 216, 96 + 16)),
    (
        "cross_entropy_loss.backward cross_entropy.backward",
        (X, Y, None, MEAN, -100, 0.0),
        Work(92 + 4, 192 + 40, 96 + 96),
    ),
    ("cross_entropy_loss.backward", (X, X, None, MEAN, -100, 0.0), Work(92 + 24, 192 + 100, 192)),
    ("cross_entropy_loss.backward", (X, X, None, NONE, -100, 0.0), Work(92 + 24, 192 + 16 + 96, 192)),  # a g per row
    ("cross_entropy_loss.backward", (X, X, t(6), NONE, -100, 0.0), Work(92 + 48, 192 + 16 + 96 + 24, 192)),
    ("cross_entropy_loss.backward", (X, Y, None, MEAN, -100, 0.1), Work(92 + 4 + 24, 192 + 40, 192)),
    # class weights: 4 products at the targets, 24 for the smoothing's
    ("cross_entropy_loss.backward", (X, Y, t(6), MEAN, -100, 0.1), Work(92 + 8 + 48, 192 + 56, 192)),
    ("mse_loss", (X, X, MEAN), Work(72, 192, 4)),  # 48, 23 additions, a division
    ("mse_loss", (X, X, SUM), Work(71, 192, 4)),
    ("mse_loss", (X, X, NONE), Work(48, 192, 96)),
    ("mse_loss", (X, X), Work(72, 192, 4)),
    ("mse_loss_backward", (t(), X, X, MEAN), Work(48, 196, 96)),
    ("mse_loss_backward", (X, X, X, NONE), Work(72, 288, 96)),
    ("l1_loss", (X, X, MEAN), Work(48, 192, 4)),
    ("l1_loss", (XC, XC, MEAN), Work(144 + 24, 384, 4)),  # a difference 2, |z| 4; the mean is real
    ("l1_loss.backward", (XC, t(4, 6, dtype="complex64", grad=False), MEAN), Work(240, 384 + 8, 192)),
    ("l1_loss.backward", (X, Tensor((4, 6), "float32", needs_grad=False), MEAN), Work(48, 196, 96)),
    ("l1_loss.backward", (X, X, MEAN), Work(96, 392, 192)),
    ("smooth_l1_loss huber_loss", (X, X, MEAN, 1.0), Work(96 + 24, 192, 4)),
    ("smooth_l1_loss_backward huber_loss_backward", (t(), X, X, MEAN, 1.0), Work(72, 196, 96)),
    ("smooth_l1_loss_backward huber_loss_backward", (X, X, X, 0, 1.0), Work(72, 288, 96)),  # unreduced
    ("soft_margin_loss", (X, X, MEAN), Work(96, 192, 4)),
    ("soft_margin_loss_backward", (t(), X, X, MEAN), Work(144, 196, 96)),
    ("binary_cross_entropy", (X, X, None, MEAN), Work(168 + 24, 192, 4)),
    ("binary_cross_entropy", (X, X, t(6), SUM), Work(192 + 23, 216, 4)),
    ("binary_cross_entropy_backward", (t(), X, X, None, MEAN), Work(120, 196, 96)),
    ("binary_cross_entropy_with_logits", (X, X, None, None, MEAN), Work(144 + 24, 192, 4)),
    ("binary_cross_entropy_with_logits", (X, X, X, t(6), NONE), Work(240, 312, 96)),  # 6 + 1 + 3
    ("binary_cross_entropy_with_logits.backward", (X, X, None, None, MEAN), Work(120, 196, 96)),
    ("kl_div", (X, X, SUM, False), Work(95, 192, 4)),
    ("kl_div.backward", (X, Tensor((4, 6), "float32", needs_grad=False), SUM, False), Work(24, 100, 96)),
    ("kl_div.backward", (X, Tensor((4, 6), "float32", needs_grad=False), SUM, True), Work(48, 100, 96)),
    ("kl_div.backward", (X, X, SUM, False), Work(24 + 96, 100 + 196, 192)),
    ("multi_margin_loss", (X, Y), Work(72, 96 + 32, 4)),
    ("multi_margin_loss", (X, Y, 1, 1.0, t(6), NONE), Work(72, 96 + 32 + 24, 16)),  # weights; a loss per row
    ("multilabel_margin_loss_forward", (X, i(4, 6), MEAN), Work(72, 96 + 192, 4 + 96)),  # and which are labels
    ("multilabel_margin_loss_forward", (X, i(4, 6), NONE), Work(72, 96 + 192, 16 + 96)),
    ("multi_margin_loss_backward", (t(), X, Y), Work(24, 100 + 32, 96)),
    ("multi_margin_loss_backward", (t(), X, Y, 1, 1.0, t(6), MEAN), Work(24, 100 + 32 + 24, 96)),
    ("multilabel_margin_loss_backward", (t(), X, i(4, 6), MEAN, X), Work(24, 100 + 192 + 96, 96)),
    # 10 steps, 2 sequences, 3 labels: 7 states, 140 in all
    ("_ctc_loss ctc_loss", (t(10, 2, 6), i(2, 3)), Work(980, 480 + 48, 560 + 8)),
    # 10 and 6 steps, 2 and 1 labels: 10 * 5 + 6 * 3 states; 10 * 2 * 5 are stored
    ("_ctc_loss", (t(10, 2, 6), i(2, 3), (10, 6), (2, 1)), Work(7 * 68, 480 + 48, 400 + 8)),
    ("_ctc_loss", (t(10, 2, 6), i(3), i(2), i(2)), Work(980 - 280, 480 + 24, 400 + 8)),  # 3 labels of 2: at most 2 each
    (
        "_ctc_loss",
        (t(10, 2, 6), i(2, 3), t(2, dtype="int64", values=(10, 6)), t(2, dtype="int64", values=(2, 1))),
        Work(7 * 68, 480 + 48, 400 + 8),
    ),
    # the gradient at once: twice 7 for each of 140 states, 5 for each of 120 probabilities
    ("_cudnn_ctc_loss miopen_ctc_loss", (t(10, 2, 6), i(2, 3)), Work(1960 + 600, 480 + 48, 480 + 8)),
    ("_ctc_loss_backward", (t(2), t(10, 2, 6), i(2, 3)), Work(980 + 600, 8 + 480 + 48 + 568, 480)),
]
test_worked_by_hand = worked(ROWS)


def test_flop_does_not_need_types() -> None:
    work = total(evaluate("cross_entropy_loss", (Tensor((4, 6)), Tensor((4,)), *[UNKNOWN] * 4)))
    assert work.flop == 100
    assert math.isnan(work.nbytes)


@given(rows=st.integers(1, 20), more=st.integers(1, 20), columns=st.integers(1, 20))
def test_softmax_adds_up_over_rows(rows: int, more: int, columns: int) -> None:
    whole, first, second = (total(evaluate("_softmax", (t(n, columns), 1, False))) for n in (rows + more, rows, more))
    assert whole == first + second
