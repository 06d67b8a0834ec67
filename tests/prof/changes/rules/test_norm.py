"""Group norms by a block a group."""

import pytest

from tests.prof.changes.rules.advice_rows import changes

VOLUMES = [2, 32, 64, 64, 64]  # fp32: 67.1 MB; 8 groups of each of 2 samples: 16 blocks
NAME = "void at::native::(anonymous namespace)::{}<float>(long, float const*)"


def norm(name="RowwiseMomentsCUDAKernel", ns=847_000, blocks=16, **more):
    return {"aten": "aten::native_group_norm", "sizes": [VOLUMES, [32], [32]], "dtypes": ["float32"] * 3, "ns": ns,
            "kShortName": name, "kLongName": NAME.format(name), "grid": [blocks, 1, 1], "phase": "forward",
            **more}  # fmt: skip


BACKWARD = {"aten": "aten::native_group_norm_backward", "sizes": [VOLUMES, VOLUMES, [2, 8]], "phase": "backward"}


def test_the_statistics_of_few_groups_by_hand():
    # 67.1e6 bytes at 0.5 × 4.8e12/s: 28 µs, and 5; on an H200 847
    (change,) = changes(norm(), rule="group_norm")
    assert (change.kernels, change.gpu_ms) == (1, pytest.approx(0.847 - 0.033, abs=0.0001))
    assert "in 16 blocks on 132 SMs" in change.why and "torch.compile" in change.change


def test_the_backward_sums_read_two_tensors():
    # 134.2e6 bytes: 55.9 µs, and 5
    (change,) = changes(norm("ComputeInternalGradientsCUDAKernel", 239_000, 64, **BACKWARD), rule="group_norm")
    assert change.gpu_ms == pytest.approx(0.239 - 0.0609, abs=0.0001)


FILLED = {
    "a block for each SM": [norm(blocks=132)],
    "no grid": [norm(grid=None)],
    "no shapes": [norm(sizes=None)],
    "no types": [norm(dtypes=None, kLongName=None)],
    "as fast as memory allows": [norm(ns=45_000)],
    "a layer norm's": [norm(aten="aten::native_layer_norm")],
}


@pytest.mark.parametrize("why", FILLED)
def test_no_word_on_group_norms(why):
    assert changes(*FILLED[why], rule="group_norm") == []


@pytest.mark.parametrize(("gpu", "units"), [("AMD Instinct MI300X", "304 CUs"), ("NVIDIA H200", "132 SMs")])
def test_the_processors_have_the_name_that_their_maker_gave_them(gpu, units):
    (change,) = changes(norm(), rule="group_norm", gpu=gpu)
    assert units in change.why


def test_an_unknown_gpu():
    assert changes(norm(), rule="group_norm", gpu="a GPU of tomorrow") == []
