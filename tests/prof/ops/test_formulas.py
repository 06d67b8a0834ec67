"""pyprof.flops: formulas of one line for Triton kernels and for ops of libraries."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import pyprof
from pyprof.errors import ModelError
from pyprof.prof.ops import evaluation, model
from pyprof.prof.work.count import OpCall, count_call


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    """What a test registers is taken out again."""
    models, families, kernels = dict(model.MODELS), dict(model.FAMILY), set(evaluation.KERNELS)
    yield
    for registry, before in ((model.MODELS, models), (model.FAMILY, families)):
        registry.clear()
        registry.update(before)  # type: ignore[arg-type]
    evaluation.KERNELS.clear()
    evaluation.KERNELS.update(kernels)


def call(aten: str, **columns: str) -> OpCall:
    sizes, dtypes = "[[4, 8], [4, 8], [4, 8], [], []]", '["float32", "float32", "float32", "", ""]'
    return OpCall(aten, sizes, dtypes, args='["", "", "", "0.5", "32"]', dir="fprop", **columns)


@pytest.mark.parametrize("aten", ["scaled_add_kernel", "scaled_add_kernel_0", "scaled_add_kernel_17"])
def test_a_triton_kernel_also_as_compiled_code_calls_it(aten: str) -> None:
    """2 FLOPs for each of 32 elements; three tensors of 32 float32."""
    pyprof.flops("scaled_add_kernel", lambda a, b, out, scale: 2 * a.numel)
    counted = count_call(call(aten))
    assert (counted.flop, counted.nbytes, counted.why) == (64, 384, "")


def test_another_kernels_number_is_not_its() -> None:
    pyprof.flops("scaled_add_kernel", lambda a: a.numel)
    assert count_call(call("scaled_add_kernel_x")).flop is None
    assert count_call(call("other_kernel_0")).flop is None


def test_an_op_of_a_library_without_outputs_has_unknown_bytes() -> None:
    pyprof.flops("mylib::scaled_add", lambda a, b: 2 * a.numel)
    counted = count_call(call("mylib::scaled_add"))
    assert (counted.flop, counted.nbytes) == (64, None)


def test_a_formula_for_the_bytes() -> None:
    pyprof.flops("mylib::scaled_add", lambda a, b: 2 * a.numel, nbytes=lambda a: 3 * a.nbytes, family="pointwise")
    counted = count_call(call("mylib::scaled_add"))
    assert (counted.flop, counted.nbytes, counted.family) == (64, 384, "pointwise")


def test_as_a_decorator() -> None:
    @pyprof.flops("mylib::scaled_add")
    def scaled_add(a: Any, *_: Any) -> int:
        return 3 * int(a.numel)

    assert count_call(call("mylib::scaled_add")).flop == 96
    assert scaled_add(type("Tensor", (), {"numel": 2})) == 6


def test_arguments_that_the_capture_lacks_make_it_unknown() -> None:
    pyprof.flops("my_kernel", lambda a, count: 2 * count)
    counted = count_call(OpCall("my_kernel", "[[4], []]", json.dumps(["float32", ""]), dir="fprop"))
    assert counted.flop is None


def test_a_formula_that_fails_is_reported() -> None:
    pyprof.flops("my_kernel", lambda a: a.no_such_name)
    counted = count_call(call("my_kernel"))
    assert counted.flop is None and "no_such_name" in counted.why


def test_a_second_formula_is_refused() -> None:
    pyprof.flops("my_kernel", lambda a: a.numel)
    with pytest.raises(ModelError, match="my_kernel has two models"):
        pyprof.flops("my_kernel", lambda a: 2 * a.numel)
