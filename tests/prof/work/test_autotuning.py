"""cuDNN's autotuning: one convolution's call runs every algorithm and then the fastest again."""

import os
from pathlib import Path

import numpy as np
import pytest

from pyprof.prof.load import load_table
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.work_sentences import autotuning_sentences
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.autotuning import tried
from pyprof.table.columns import Coded, Table

DIRECT, EXPLICIT = (
    "void implicit_convolve_sgemm<float, float, 128>(int)",
    "void explicit_convolve_sgemm<float, int, 128>(int)",
)
TILED, WINOGRAD = "volta_scudnn_128x64_relu_small_nn_v1", "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"
FFT, ENGINE = "volta_gcgemm_32x32_nt", "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)"
FPROP = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize{}x128x64"

CALLS = [  # product kernels in launch order, how many of them are trials
    ([DIRECT, TILED, EXPLICIT, FFT, WINOGRAD, DIRECT], 5),
    ([ENGINE, ENGINE, TILED, ENGINE], 3),
    (
        [FPROP.format(64), FPROP.format(128), FPROP.format(256), FPROP.format(128)],
        3,
    ),  # cuDNN 8 and later: one algorithm
    ([FFT, FFT, TILED, FFT, FFT], 3),  # two tiles a run
    ([DIRECT, TILED, TILED], 2),  # the last trial stands right before the run
    ([DIRECT, DIRECT, TILED, TILED, TILED, TILED], 4),  # and with two groups
    # no trials
    ([TILED], 0),
    ([TILED, TILED, TILED], 0),  # groups
    ([FFT, "volta_cgemm_32x32_tn"], 0),
    ([FFT, "volta_cgemm_32x32_tn", FFT], 0),  # tiles of two sizes
    ([DIRECT, TILED], 0),  # the capture may have been cut: which one counted is not known
    (["volta_sgemm_32x32", "volta_sgemm_64x64", "volta_sgemm_32x32"], 0),
]


@pytest.mark.parametrize(("products", "expected"), CALLS)
def test_trials_of_a_call(products: list[str], expected: int) -> None:
    assert tried(products) == expected


def _table(aten: str, products: list[str]) -> Table:
    rows = len(products)
    columns = {
        "kShortName": Coded.of(products),
        "kLongName": Coded.of(products),
        "kind": Coded.of(["kernel"] * rows),
        "kDuration": np.full(rows, 1000, np.int64),
        "aten": Coded.of([aten] * rows),
        "opId": np.zeros(rows, np.int64),
        "pid": np.zeros(rows, np.int64),
        "sizes": Coded.of(["[[1,3,8,8],[4,3,3,3],[],[],[],[],[],[],[]]"] * rows),
        "dtypes": Coded.of(['["float32","float32","","","","","","",""]'] * rows),
        "args": Coded.of(['["","","[1,1]","[1,1]","[1,1]","1","False","False","True"]'] * rows),
    }
    return Table(rows, columns)


def test_the_work_is_that_of_the_last_run() -> None:
    """3x3 convolution of 8x8 with padding 1, 3 to 4 channels: 2*8*8*4*3*9 = 13,824 FLOP, once."""
    annotation = annotate(_table("aten::cudnn_convolution", [DIRECT, TILED, WINOGRAD, DIRECT]))
    assert annotation.role.texts() == ["aux", "aux", "aux", "main"]
    assert annotation.flops.tolist() == [0, 0, 0, 13824]
    assert annotation.tc.texts() == ["0"] * 4


DGRAD = "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)"
WGRAD_TILED = "volta_scudnn_128x64_stridedB_splitK_interior_nn_v1"
DGRAD_TILED = "volta_scudnn_128x64_stridedB_interior_nn_v1"


def _backward(products: list[str]) -> Table:
    """The gradients of data and weight of a convolution of 8x8 with padding 1, 3 to 4 channels."""
    table = _table("aten::convolution_backward", products)
    rows = len(products)
    sizes = "[[1,4,8,8],[1,3,8,8],[4,3,3,3],[],[],[],[],[],[],[],[]]"
    args = '["","","","[0]","[1,1]","[1,1]","[1,1]","False","[0,0]","1","[True,True,False]"]'
    dtypes = '["float32","float32","float32","","","","","","","",""]'
    texts = {"sizes": sizes, "args": args, "dtypes": dtypes}
    return Table(rows, {**table.columns, **{key: Coded.of([text] * rows) for key, text in texts.items()}})


def test_both_gradients_are_tuned_one_after_the_other() -> None:
    """Each gradient costs as much as the forward convolution, 13,824 FLOP, and has a last run of its own."""
    annotation = annotate(_backward([DGRAD, DGRAD_TILED, DGRAD, ENGINE, WGRAD_TILED, WGRAD_TILED]))
    assert annotation.role.texts() == ["aux", "aux", "main", "aux", "aux", "main"]
    assert annotation.flops.tolist() == [0, 0, 13824, 0, 0, 13824]


def test_a_backward_of_both_gradients_is_no_trial() -> None:
    """Two kernels are the call's two gradients; a gradient may launch a kernel for each group."""
    for products in ([DGRAD, ENGINE], [DGRAD, DGRAD, ENGINE, ENGINE], [DGRAD, ENGINE, ENGINE]):
        assert set(annotate(_backward(products)).role.texts()) == {"main"}
        assert set(annotate(_without_shapes(_backward(products))).role.texts()) == {"main"}


def _without_shapes(table: Table) -> Table:
    kept = {key: column for key, column in table.columns.items() if key not in ("sizes", "dtypes", "args")}
    return Table(len(table), kept)


def test_a_real_autotuned_call() -> None:
    """Two convolutions of a network on a V100, each tried by eight kernels and then run by the first one's."""
    data = os.environ.get("PYPROF_DATA")
    if not data:
        pytest.skip("PYPROF_DATA is not set")
    table = load_table(Path(data) / "round2" / "dlprof_w_relu.sqlite.gz").table
    annotation = annotate(table)
    conv = table.coded("aten").among("aten::cudnn_convolution") & annotation.role.among("main")
    assert table.coded("kShortName").take(conv).texts() == ["implicit_convolve_sgemm"] * 2
    # 32 images, 3 to 6 channels, 3x3 on 32x32; then 6 to 16 channels, 5x5 on 15x15; no padding
    assert annotation.flops[conv].tolist() == [2 * 32 * 6 * 30 * 30 * 27, 2 * 32 * 16 * 11 * 11 * 150]
    assert annotation.flops[table.coded("aten").among("aten::cudnn_convolution")].sum() == 9331200 + 18585600


def test_the_summary_says_how_long_the_trials_take() -> None:
    """The file's kernels before the run that counts, without helpers (offsets, FFTs, Winograd's transforms), in ns."""
    data = os.environ.get("PYPROF_DATA")
    if not data:
        pytest.skip("PYPROF_DATA is not set")
    first = 21_951 + 21_504 + 30_112 + 20_064 + 14_560 + 15_776 + 43_712 + 15_712
    second = 17_376 + 17_280 + 21_472 + 14_944 + 6_496 + 16_224 + 17_599
    table = load_table(Path(data) / "round2" / "dlprof_w_relu.sqlite.gz").table
    summary = summarise(table, annotate(table))
    assert (summary.autotuning.calls, summary.autotuning.rows, summary.autotuning.ns) == (2, 8 + 7, first + second)
    (sentence,) = autotuning_sentences(summary)
    assert sentence.startswith(
        "cuDNN's autotuning (torch.backends.cudnn.benchmark) tries algorithms in 2 convolutions: 15 kernels, "
        "0.2948 ms, 44.9% of GPU time, without their helpers."
    )


def test_a_convolution_without_trials_has_no_such_sentence() -> None:
    table = _table("aten::cudnn_convolution", [DIRECT])
    assert list(autotuning_sentences(summarise(table, annotate(table)))) == []
