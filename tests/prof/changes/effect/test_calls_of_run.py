"""The calls of captures that measured ones are compared with."""

from collections import Counter
from types import SimpleNamespace

import pytest

from pyprof.prof.changes.effect.calls_of_run import calls_of, form_of, like_the_measured
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.limits.devices import find_device
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN


def run_of(name):
    table = load_table(GOLDEN / name).table
    return Run(table, annotate(table))


def test_resnet50_in_channels_last_and_bf16():
    """53 convolutions forward and backward, of which the first has no gradient of its input; 53 batch norms."""
    run = run_of("h200_resnet50_bf16.json.gz")
    calls = list(calls_of(run))
    kinds = Counter((each.call.kind, each.call.direction) for each in calls)
    assert kinds["conv2d", "fprop"] == 53 and kinds["conv2d", "bprop"] == 52 and kinds["conv2d", "wgrad"] == 1
    assert kinds["batch_norm", "fprop"] == kinds["batch_norm", "bprop"] == 53
    assert kinds["max_pool", "fprop"] == kinds["max_pool", "bprop"] == 1
    assert form_of(run) == "nhwc" and {each.now.form for each in calls if each.spatial} == {"nhwc"}
    assert {each.now.precision for each in calls if each.call.kind == "conv2d"} == {"bf16"}


def test_a_call_has_all_kernels_of_its_op():
    """The first convolution pads its three channels twice and fills memory twice before it multiplies."""
    run = run_of("h200_resnet50_bf16.json.gz")
    first = next(each for each in calls_of(run) if each.call.kind == "conv2d")
    assert len(first.rows) == 5
    # 32 pictures of 112² pixels, 64 filters of 3 × 7 × 7: 7.55 GFLOP (tests/device/resnet50.py)
    assert first.call.flop == 2 * 32 * 112 * 112 * 64 * 3 * 7 * 7


def test_products_are_told_apart_by_what_is_transposed():
    """A linear layer's product, the gradient of its input and that of its weight."""
    kinds = Counter(
        each.call.direction for each in calls_of(run_of("h200_gpt2_bf16.json.gz")) if each.call.kind == "gemm"
    )
    assert kinds["fprop"] and kinds["dgrad"] == kinds["fprop"] and kinds["wgrad"] == kinds["fprop"]


@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("NVIDIA H100 80GB HBM3", True),
        ("NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA GeForce RTX 4090", False),
        ("Tesla V100-SXM2-16GB", False),
    ],
)
def test_only_gpus_that_gain_alike_are_compared(name, alike):
    """TF32 is 8 times fp32 on an A100, the same as fp32 on a GeForce RTX 4090, and missing on a V100."""
    assert like_the_measured(SimpleNamespace(device=find_device(name)), "fp32", "tf32") == alike
