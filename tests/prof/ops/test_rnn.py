"""Recurrent networks, Fourier transforms, linear algebra: values worked by hand."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import ModelError, ShapeError, UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from tests.prof.ops.op_cases import Row, t, worked

# LSTM, input 3, hidden 2, 5 steps of batch 4: w_ih [8,3], w_hh [8,2], biases [8]: 24 + 16 + 16 numbers
X, H = t(5, 4, 3), t(1, 4, 2)
P = (t(8, 3), t(8, 2), t(8), t(8))
FLAGS = (True, 1, 0.0, True, False, False)  # biases, layers, dropout, train, bidirectional, batch first
LSTM = Work(1600, 528, 224)  # 2*20*40; (60 + 8+8 + 56)*4; y 40*4, states 16*4
GRU = Work(800, 384, 192)  # one gate's worth of weights here: 2*20*20; (60 + 8 + 28)*4; 160 + 32
R = (t(4, 3), t(4, 2), t(4), t(4))  # 12 + 8 + 8: as if of two gates

PROJ = (t(8, 3), t(8, 1), t(8), t(8), t(1, 2))  # hidden 2 projected to 1: 24 + 8 + 16 + 2
# x, weights and their stride, all weights, states, y, dy, their gradients, mode to batch sizes, dropout state, reserve
CUDNN_BACKWARD = (X, P, 4, t(56), H, H, t(5, 4, 2), t(5, 4, 2), None, None,
                  2, 2, 0, 1, False, 0.0, True, False, (), None, t(9))  # fmt: skip
RNN: list[Row] = [
    ("lstm _lstm_mps", (X, (H, H), P, *FLAGS), LSTM),
    ("lstm", (X, H, H, *P, *(UNKNOWN,) * 3), LSTM),  # NVTX: lists written out, flags unknown; one set of weights
    ("lstm", (X, (t(2, 4, 2), t(2, 4, 2)), P + P, True, 1, 0.0, True, True, False), Work(3200, 816, 448)),
    # 2*20*80; (60 + 32 + 112)*4; y 80*4, states 32*4
    ("lstm", (X, (t(1, 4, 1), H), PROJ, *FLAGS), Work(1360, 488, 128)),  # 2*20*34; (60+4+8+50)*4; (20+4+8)*4
    ("lstm", (t(20, 3), t(5, dtype="int64"), (H, H), P, True, 1, 0.0, True, False), LSTM),  # packed: 20 steps in all
    ("gru", (X, H, R, *FLAGS), GRU),
    ("rnn_tanh rnn_relu", (X, H, R, *FLAGS), GRU),
    ("lstm_cell", (t(4, 3), (t(4, 2), t(4, 2)), *P), Work(320, 336, 64)),  # 2*4*40; (12+16+56)*4; 16*4
    ("lstm_cell", (t(4, 3), t(4, 2), t(4, 2), *P), Work(320, 336, 64)),  # its list written out
    ("gru_cell rnn_tanh_cell rnn_relu_cell", (t(4, 3), t(4, 2), *R), Work(160, 192, 32)),  # 2*4*20; (12+8+28)*4
    ("_cudnn_rnn", (X, P, 4, t(56), H, H, 2, 2, 0, 1, False, 0.0, True, False, (), None), LSTM),
    ("_cudnn_rnn", (X, *P, UNKNOWN, t(56), H, H, *(UNKNOWN,) * 10), LSTM),
    ("miopen_rnn", (X, P, 4, H, H, 2, 2, 1, False, 0.0, True, False, (), None), LSTM),
    ("mkldnn_rnn_layer", (X, *P, H, H, False, (), 2, 2, 1, True, False, False, True), LSTM),
    # without biases tensors like the weights stand in their place, unread: (60 + 16 + 40)*4
    (
        "mkldnn_rnn_layer",
        (X, *P[:2], *P[:2], H, H, False, (), 2, 2, 1, False, False, False, True),
        Work(1600, 464, 224),
    ),
    ("mkldnn_rnn_layer_backward", (X, *P[:2], *P[:2], H, H, None), Work(3200, 944, 464)),
    # backward: dgrad reads dy, y, weights: (40+40+56)*4, writes dx, states: (60+16)*4; wgrad (40+60+16)*4, 56*4
    ("lstm.backward", (X, (H, H), P, *FLAGS), Work(3200, 1008, 528)),
    (
        "gru.backward rnn_tanh.backward rnn_relu.backward",
        (X, H, R, *FLAGS),
        Work(1600, 864, 384),
    ),  # (80+28)*4 + (40+60+8)*4; (60+8)*4 + 28*4
    ("lstm_cell.backward", (t(4, 3), (t(4, 2), t(4, 2)), *P), Work(640, 432, 336)),
    # (8+8+56)*4 + (8+12+16)*4; (12+16)*4 + 56*4
    # weights of 20 and biases of 8: 2 * 2*4*20; (8+8+28)*4 + (8+12+8)*4; (12+8)*4 + 28*4
    ("gru_cell.backward rnn_tanh_cell.backward rnn_relu_cell.backward", (t(4, 3), t(4, 2), *R), Work(320, 288, 192)),
    ("_cudnn_rnn_backward miopen_rnn_backward", (*CUDNN_BACKWARD, (True, True, True, True)), Work(3200, 1008, 528)),
    ("_cudnn_rnn_backward", (*CUDNN_BACKWARD, (True, True, True, False)), Work(1600, 544, 304)),
    ("mkldnn_rnn_layer_backward", (X, *P, H, H, None), Work(3200, 1008, 528)),
    ("_cudnn_rnn_flatten_weight", (P, 4, 3, 2, 2, 0, 1, False, False), Work(0, 224, 224)),  # 56*4
    # fused cells, 4 rows of hidden 2: 8 numbers
    ("_thnn_fused_lstm_cell", (t(4, 8), t(4, 8), t(4, 2), t(8), t(8)), Work(216, 352, 192)),  # 8*27; (72+16)*4; 6*8*4
    ("_thnn_fused_lstm_cell", (t(4, 8), t(4, 8), t(4, 2)), Work(152, 288, 192)),
    (
        "_thnn_fused_lstm_cell_backward _thnn_fused_lstm_cell_backward_impl",
        (t(4, 2), t(4, 2), t(4, 2), t(4, 2), t(4, 8), True),
        Work(184, 256, 160),
    ),
    ("_thnn_fused_gru_cell", (t(4, 6), t(4, 6), t(4, 2), t(6), t(6)), Work(168, 272, 192)),  # 8*21; (24+24+8+12)*4
    ("_thnn_fused_gru_cell_backward", (t(4, 2), t(4, 10), True), Work(120, 192, 224)),  # 8*15; 48*4; 7*8*4
]

C = "complex64"
OTHER: list[Row] = [
    # 5 n log2 n complex, 2.5 real
    ("_fft_c2c", (t(3, 8, dtype=C), (1,), 0, True), Work(360, 192, 192)),  # 3 * 5*8*3
    ("_fft_c2c", (t(2, 4, 8, dtype=C), (1, 2), 0, True), Work(1600, 512, 512)),  # n = 32: 2 * 5*32*5
    ("_fft_c2c", (t(3, 1, dtype=C), (1,), 0, True), Work(0, 24, 24)),
    ("_fft_r2c", (t(3, 8), (1,), 0, True), Work(180, 96, 120)),  # 3 * 2.5*8*3; 3*5*8
    ("_fft_r2c", (t(3, 8), (1,), 0, False), Work(180, 96, 192)),
    ("_fft_c2r", (t(3, 5, dtype=C), (1,), 2, 8), Work(180, 120, 96)),
    # n = 3; leading order
    ("linalg_cholesky_ex linalg_cholesky cholesky", (t(2, 3, 3),), Work(18, 72, 72)),  # 2 * 27/3
    ("linalg_cholesky_ex", (t(3, 3, dtype=C),), Work(36, 72, 72)),  # 4 * 9
    ("linalg_ldl_factor_ex linalg_ldl_factor", (t(3, 3),), Work(9, 36, 36)),
    ("linalg_inv_ex linalg_inv inverse", (t(3, 3),), Work(54, 36, 36)),
    ("cholesky_inverse", (t(3, 3),), Work(18, 36, 36)),
    ("_linalg_det linalg_det det _linalg_slogdet linalg_slogdet slogdet logdet", (t(3, 3),), Work(18, 36, 36)),
    ("linalg_eig", (t(3, 3),), Work(675, 36, 96)),  # (3 + 9) * 8
    ("_linalg_eigvals linalg_eigvals", (t(3, 3),), Work(270, 36, 24)),  # 10*27; 3 complex numbers
    (
        "linalg_lu_factor_ex linalg_lu_factor _lu_with_info",
        (t(4, 3),),
        Work(27, 48, 60),
    ),  # 9 * (4 - 1); 48 + 3 pivots
    ("_linalg_solve_ex linalg_solve_ex linalg_solve", (t(3, 3), t(3, 2)), Work(54, 60, 24)),  # 18 + 2*9*2
    ("linalg_lu", (t(4, 3),), Work(27, 48, 148)),  # P 16, L 12, U 9 numbers
    ("linalg_solve", (t(2, 3, 3), t(3, 2)), Work(108, 96, 48)),  # for both matrices: 2*18 + 18*4; x is [2,3,2]
    ("linalg_solve", (t(3, 3), t(2, 3, 2)), Work(90, 84, 48)),  # one factorisation: 18 + 18*4
    ("linalg_solve", (t(2, 3, 3), t(2, 3)), Work(72, 96, 24)),  # two vectors: 2*18 + 18*2
    ("linalg_lu_solve lu_solve", (t(3, 3), t(3, dtype="int32"), t(3, 2)), Work(36, 72, 24)),
    ("triangular_solve", (t(3, 2), t(3, 3)), Work(18, 60, 60)),  # 9*2; the matrix is copied, too
    ("linalg_solve_triangular", (t(3, 3), t(3, 2)), Work(18, 48, 24)),  # 9*2; 6 of the triangle + 6
    ("linalg_solve_triangular", (t(2, 3, 3), t(3, 2)), Work(36, 72, 48)),  # 9*4; 2*6 and 6 numbers; x is [2,3,2]
    ("cholesky_solve _cholesky_solve_helper", (t(3, 2), t(3, 3)), Work(36, 48, 24)),
    ("geqrf", (t(4, 3),), Work(54, 48, 60)),  # 2*9*3
    ("linalg_ldl_solve", (t(3, 3), t(3, dtype="int32"), t(3, 2)), Work(36, 60, 24)),  # 2*9*2; triangle 24, 12, 24
    ("linalg_ldl_solve", (t(2, 3, 3), t(2, 3, dtype="int32"), t(3, 2)), Work(72, 96, 48)),  # 2*9*4; 48 + 24 + 24
    ("linalg_ldl_solve", (t(0, 2, 2), t(0, 2, dtype="int32"), t(2, 5)), Work(0, 40, 0)),  # no matrix
    ("lu_unpack", (t(4, 3), t(3, dtype="int32"), True, True), Work(0, 60, 148)),  # 3*(4+3) + 4*4 numbers
    ("linalg_cross", (t(5, 3), t(5, 3)), Work(45, 120, 60)),  # two products and a difference each
    ("linalg_cross", (t(5, 3), t(3)), Work(45, 72, 60)),
    ("_linalg_check_errors", (t(7, dtype="int32"),), Work(0, 28, 0)),
    ("linalg_qr qr", (t(4, 3), "reduced"), Work(108, 48, 84)),  # Q 12 and R 9 numbers
    ("linalg_qr", (t(4, 3), "r"), Work(54, 48, 36)),
    ("linalg_qr", (t(4, 3), "complete"), Work(138, 48, 112)),  # 54 + 4*(48 - 36 + 9); Q 16, R 12
    ("linalg_householder_product orgqr", (t(4, 3), t(3)), Work(54, 60, 48)),  # 144 - 126 + 36
    ("ormqr", (t(4, 3), t(3), t(4, 2)), Work(60, 92, 32)),  # 2*2*3*5; (12+3+8)*4
    ("_linalg_svd linalg_svd", (t(4, 3), False, True), Work(720, 48, 96)),  # 14*36 + 8*27; 3 * (1+4+3)
    ("_linalg_svd", (t(4, 3, dtype=C), False, True), Work(2880, 96, 180)),  # 21 complex numbers, 3 real ones
    ("svd", (t(4, 3), True, True), Work(720, 48, 96)),  # some vectors: the thin ones
    ("svd", (t(4, 3), False, True), Work(786, 48, 112)),
    ("_linalg_svd", (t(4, 3), False, False), Work(108, 48, 12)),  # 144 - 36
    ("_linalg_svd", (t(3, 4), False, False), Work(108, 48, 12)),  # as its transpose
    ("linalg_svdvals", (t(4, 3), None), Work(108, 48, 12)),
    ("_linalg_svd", (t(4, 3), True, True), Work(786, 48, 112)),  # 192 + 594; 16 + 9 + 3 numbers
    ("_linalg_eigh linalg_eigh symeig", (t(3, 3), "L", True), Work(243, 36, 48)),
    ("_linalg_eigh", (t(3, 3, dtype=C), "L", True), Work(972, 72, 84)),  # 9 complex numbers, 3 real ones
    ("_linalg_eigh", (t(3, 3), "L", False), Work(36, 36, 12)),
    ("linalg_eigvalsh", (t(3, 3), "L"), Work(36, 36, 12)),
    ("linalg_lstsq lstsq", (t(4, 3), t(4, 1)), Work(93, 64, 12)),  # 54 + 48 - 9
    ("linalg_lstsq", (t(2, 4, 3), t(2, 4)), Work(186, 128, 24)),  # two vectors
    ("linalg_lstsq", (t(0, 3), t(0, 2)), Work(0, 0, 24)),  # no equations: x is 0, 3 numbers per right hand side
    ("linalg_pinv pinverse", (t(4, 3),), Work(792, 48, 48)),  # 16*36 + 8*27
    ("linalg_matrix_exp matrix_exp", (t(3, 3),), Work(270, 36, 36)),
]


test_worked_by_hand = worked(RNN, OTHER)


def test_the_outputs_decide_where_they_are_told() -> None:
    assert total(evaluate("_linalg_svd", (t(4, 3), False, False), (t(0), t(3), t(0)))).write == 12
    assert total(evaluate("_fft_c2r", (t(3, 5, dtype=C), (1,), 2, UNKNOWN), (t(3, 8),))) == Work(180, 120, 96)


def test_what_is_not_known_is_not_guessed() -> None:
    with pytest.raises(UnknownArgument):
        evaluate("_fft_c2r", (t(3, 5, dtype=C), (1,), 2, UNKNOWN))
    with pytest.raises(UnknownArgument):
        evaluate("_fft_c2c", (t(3, 5, dtype=C), UNKNOWN))
    with pytest.raises(ModelError):
        evaluate("lstm", (X,))
    with pytest.raises(ShapeError):
        evaluate("linalg_inv_ex", (t(3, 4),))


size = st.integers(1, 6)


@given(steps=size, more=size, batch=size, hidden=size)
def test_flop_adds_over_steps(steps: int, more: int, batch: int, hidden: int) -> None:
    def flop(n: int) -> int:
        h = t(1, batch, hidden)
        parameters = (t(4 * hidden, 3), t(4 * hidden, hidden))
        return total(evaluate("lstm", (t(n, batch, 3), (h, h), parameters, False, 1, 0.0, True, False, False))).flop

    assert flop(steps) + flop(more) == flop(steps + more)


def flat_cudnn(sizes: list[int], hidden: int, count: int, width: int) -> tuple[Any, ...]:
    """What NVTX writes of _cudnn_rnn, an LSTM of float32: 3 steps of 5 sequences; weights of `sizes` numbers each."""
    gates = 4 * hidden
    sets = [(size, gates * hidden, gates, gates) for size in sizes]
    weights = [Tensor((n, 1), "float32") for one in sets for n in one]
    states = [Tensor((count, 5, hidden), "float32")] * 2
    return (Tensor((3, 5, width), "float32"), *weights, UNKNOWN, Tensor((999,), "float32"), *states, *[UNKNOWN] * 10)


@pytest.mark.parametrize(
    ("sizes", "hidden", "count", "width", "directions"),
    [
        ([128], 4, 1, 8, 1),
        ([128, 64], 4, 2, 8, 1),  # the second layer takes 4 numbers
        ([128, 128], 4, 2, 8, 2),  # both directions take 8
        ([128, 128, 128, 128], 4, 4, 8, 2),  # the second layer both directions' 4
        ([64, 64], 4, 2, 4, None),  # two layers or two directions of 4 numbers
        ([128, 100], 4, 2, 8, None),
    ],
)
def test_directions_by_the_weights(
    sizes: list[int], hidden: int, count: int, width: int, directions: int | None
) -> None:
    work = evaluate("_cudnn_rnn", flat_cudnn(sizes, hidden, count, width))
    assert isinstance(work, Work)
    if directions is None:
        assert math.isnan(work.nbytes)
    else:
        states = 2 * count * 5 * hidden
        weights = sum(sizes) + count * (4 * hidden * hidden + 8 * hidden)
        assert work.nbytes == 4 * (3 * 5 * width + states + weights + 3 * 5 * hidden * directions + states)


def test_a_trace_has_masks_as_lists_and_parameters_without_dtypes() -> None:
    """Kineto: output_mask [dx, dhx, dcx, dweights], and a list of tensors whose dtypes are x's, as cuDNN demands."""
    y, untyped = t(5, 4, 2), tuple(Tensor(w.shape) for w in P)
    rest = (None, None, 2, 2, 0, 1, False, 0.0, True, False, (), None, t(9))
    arguments = (X, untyped, 4, t(56), H, H, y, y, *rest)
    both = evaluate("_cudnn_rnn_backward", (*arguments, [True, True, True, True]))
    assert isinstance(both, dict) and set(both) == {"dgrad", "wgrad"} and total(both) == Work(3200, 1008, 528)
    assert total(evaluate("_cudnn_rnn_backward", (*arguments, [True, True, True, False]))) == Work(1600, 544, 304)
