"""What cuDNN's gates read and write, against an H200's counters: 3 steps of 8,192 sequences, 1,024 units, cuDNN 9."""

from typing import Any

import pytest

import pyprof.prof.work.helpers.recurrent  # noqa: F401
from pyprof.prof.ops.model import Tensor
from pyprof.prof.work.helpers.registry import HelperCall, Launch, helper_work

F, H = "float", "__nv_bfloat16"
SIZE = {F: "float32", H: "bfloat16"}
CELL = "void elemWiseRNNcell<{0}, {0}, float, (cudnnRNNMode_t){1}, (cudnnRNNBiasMode_t)2>(int, int, bool, {0} const*)"
NSYS = "void elemWiseRNNcell<{0}, {0}, float, {1}, 2>(int, int, int, int, int, bool, const T1 *, const T1 *)"
BP1 = "void {1}_elementWise_bp1<{0}, {0}, float>(int, int, {0}*, {0}*)"
BP2 = "void {1}_elementWise_bp2<{0}, {0}, float, {2}, (cudnnRNNBiasMode_t)2>(int, int, {0}*, cudnn::reduced_divisor)"
STEP, BIAS = ((32_768, 1, 1), (256, 1, 1)), ((32, 1, 1), (32, 32, 1))
UNITS = 8_192 * 1_024


def arguments(dtype: str, train: Any = None) -> tuple[Any, ...]:
    data, hidden = Tensor((3, 8_192, 512), dtype), Tensor((1, 8_192, 1_024), dtype)
    return (data, (), 4, None, hidden, None, 2, 1_024, 0, 1, False, 0.0, train, False)


READ = [  # kernel, type, launch, bytes of DRAM read as counted (of three launches the least)
    (CELL.format(F, 1), F, STEP, 67_131_904),
    (CELL.format(H, 1), H, STEP, 33_567_232),
    (CELL.format(F, 2), F, STEP, 302_184_192),
    (NSYS.format(H, 2), H, STEP, 151_026_176),
    (CELL.format(F, 3), F, STEP, 234_999_040),
    (CELL.format(H, 3), H, STEP, 117_470_464),
    (BP1.format(F, "RNN"), F, STEP, 100_672_256),
    (BP1.format(H, "RNN"), H, STEP, 50_337_280),
    (BP1.format(F, "LSTM"), F, STEP, 302_005_504),
    (BP1.format(H, "LSTM"), H, STEP, 151_008_768),
    (BP1.format(F, "GRU"), F, STEP, 234_891_520),
    (BP1.format(H, "GRU"), H, STEP, 117_452_288),
    (BP2.format(F, "GENERIC", 1), F, BIAS, 100_684_032),
    (BP2.format(F, "GENERIC", 4), F, BIAS, 402_712_064),
    (BP2.format(H, "GENERIC", 4), H, BIAS, 201_383_424),
    (BP2.format(F, "GRU", 3), F, BIAS, 604_058_624),
    (BP2.format(H, "GRU", 3), H, BIAS, 302_020_096),
]


@pytest.mark.parametrize(("name", "kind", "launch", "counted"), READ)
def test_what_is_read_is_what_was_counted(name: str, kind: str, launch: Any, counted: int) -> None:
    found = helper_work(HelperCall(Launch(name, *launch), None, "_cudnn_rnn", arguments(SIZE[kind])))
    assert found is not None
    assert found.read == pytest.approx(counted, rel=2e-3)
    assert found.flop == 0


@pytest.mark.parametrize(
    ("name", "alone", "training"),
    [(CELL.format(F, 1), 1, 2), (CELL.format(F, 2), 2, 7), (CELL.format(F, 3), 1, 5)],
)
def test_in_training_a_cell_keeps_what_its_backward_needs(name: str, alone: int, training: int) -> None:
    """H200, the last launch, which the cache no longer holds: 74.0, 243.8 and 178.2 MB written, 33.6 MB a number."""
    for train, numbers in ((True, training), (False, alone), (None, alone)):
        found = helper_work(HelperCall(Launch(name, *STEP), None, "_cudnn_rnn", arguments("float32", train)))
        assert found is not None and found.write == numbers * UNITS * 4


def test_sequences_that_have_ended_are_left_out() -> None:
    shorter = Launch(BP1.format(F, "GRU"), (2, 1, 1), (256, 1, 1))
    found = helper_work(HelperCall(shorter, None, "_cudnn_rnn_backward", arguments("float32")))
    assert found is not None and (found.read, found.write) == (7 * 512 * 4, 6 * 512 * 4)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        (CELL.format(F, 7), arguments("float32")),  # no such mode
        (CELL.format("mystery", 1), arguments("float32")),
        (CELL.format(F, 1), ()),
        (BP2.format(F, "GRU", 3), (Tensor((), "float32"), (), 4, None, Tensor((1, 2, 3), "float32"))),
    ],
)
def test_what_is_not_told_stays_unknown(name: str, given: tuple[Any, ...]) -> None:
    assert helper_work(HelperCall(Launch(name, *STEP), None, "_cudnn_rnn", given)) is None


def test_a_launch_of_unknown_size_is_not_counted() -> None:
    """Without the state's shape, or without the number of threads, no one knows how many units it works on."""
    name, known = CELL.format(F, 2), arguments(SIZE[F])
    unknown = (*known[:4], None, *known[5:])
    assert helper_work(HelperCall(Launch(name, *STEP), None, "_cudnn_rnn", unknown)) is None
    assert helper_work(HelperCall(Launch(name), None, "_cudnn_rnn", known)) is None
