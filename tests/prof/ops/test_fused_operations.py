"""FLOPs of compiled kernels by the record of their operations, worked out by hand."""

import json
from dataclasses import replace
from typing import Any

import pytest

import pyprof.prof.ops.families  # noqa: F401  (fills the registry)
from pyprof.prof.ops.fused_operations import product_flop, recorded_flop
from pyprof.prof.work.count import OpCall, count_call


def tensor(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape)}


def item(aten: str, *args: Any, **more: Any) -> dict[str, Any]:
    return {"aten": aten, "done": True, "args": list(args), **more}


def nothing(op: str) -> int | None:
    return None


ADD = item("aten::add", tensor(4, 8), tensor(4, 8))  # 32
MM = item("aten::mm", tensor(4, 8), tensor(8, 2))  # 2 * 4 * 8 * 2 = 128
LAYER_NORM = item("aten::native_layer_norm", tensor(4, 8), [8], tensor(8), tensor(8), 1e-5)


@pytest.mark.parametrize(
    ("operations", "flop"),
    [
        ([ADD, ADD], 64),  # the same op twice, which a kernel's name lists once
        ([ADD, {**ADD, "done": False}], 32),  # another kernel completes it
        ([ADD, {**ADD, "again": True}], 32),  # the backward pass computes it once more
        ([MM, ADD], 32),  # the product runs in a kernel of its own
        ([item("aten::_to_copy", tensor(4, 8)), item("prims::iota", 8)], 0),
        ([item("aten::pow", tensor(4, 8), 2)], 32),
        ([ADD, item("aten::add", tensor(0, 8), tensor(0, 8))], 32),  # an empty tensor is known to need none
        ([LAYER_NORM], 7 * 32 + 2 * 4),  # 7 per element, 2 per row, as the eager op
    ],
)
def test_each_operation_counts_once_by_its_own_model(operations: list[dict[str, Any]], flop: int) -> None:
    assert recorded_flop(json.dumps(operations), False, nothing) == flop


def test_an_op_that_computes_a_part_of_an_operation_has_no_flops_of_its_own() -> None:
    """The sum over a kernel's partial results, [512, 2048], for the operation that a later kernel completes."""
    part = json.dumps([{"aten": "aten::_fused_rms_norm_backward"}])
    sizes, dtypes = "[[512, 2048], [0], [], []]", '["float32", "", "", ""]'
    call = OpCall("aten::sum", sizes, dtypes, args='["", "[0]", "False", ""]')
    assert count_call(call).flop == 511 * 2048
    assert count_call(replace(call, fused=part)).flop == 0
    whole = json.dumps([item("aten::sum", tensor(512, 2048), [0])])
    assert count_call(replace(call, fused=whole)).flop == 511 * 2048


def test_a_template_computes_the_product() -> None:
    assert recorded_flop(json.dumps([MM, ADD]), True, nothing) == 128 + 32


@pytest.mark.parametrize("args", [None, [{"dtype": "float32", "shape": [-1, 8]}, tensor(4, 8)], ["?"]])
def test_unknown_arguments_are_not_zero(args: Any) -> None:
    unknown = json.dumps([{"aten": "aten::add", "done": True, "args": args}])
    assert recorded_flop(unknown, False, nothing) is None
    assert recorded_flop(unknown, False, {"add": 5}.get) == 5


@pytest.mark.parametrize("cell", ["3", "[3]", "{", '[{"aten": 3, "done": true, "args": 4}]', "[" * 5000])
def test_a_cell_of_another_form_is_unknown(cell: str) -> None:
    assert recorded_flop(cell, True, nothing) is None
    assert product_flop(cell, "gemm") is None


def test_an_op_without_a_model_is_unknown() -> None:
    assert recorded_flop(json.dumps([item("mylib::op", tensor(8))]), False, nothing) is None


def test_products_of_a_family() -> None:
    assert product_flop(json.dumps([MM, ADD]), "gemm") == 128
    assert product_flop(json.dumps([ADD]), "gemm") is None
    assert product_flop(json.dumps([{**MM, "args": None}]), "gemm") is None


def test_a_triton_kernel_counts_by_its_record_and_its_bytes_by_its_tensors() -> None:
    """Read 4 x 8 and 4 x 8, write 4 x 8, float32: 3 * 32 * 4 bytes. The name alone would say 32 FLOPs."""
    sizes, dtypes, args = "[[4, 8], [4, 8], [4, 8], []]", '["float32", "float32", "float32", ""]', '["", "", "", "32"]'
    call = OpCall("triton_poi_fused_add_0", sizes, dtypes, args=args, dir="fprop", fused=json.dumps([ADD, ADD]))
    counted = count_call(call)
    assert (counted.flop, counted.nbytes) == (64, 384)


def test_attention_under_nvtx_has_its_flags_from_the_record() -> None:
    """Causal attention of 1 x 2 x 8 x 4. Its inner op has no flags in NVTX; the record has those of the call."""
    q = tensor(1, 2, 8, 4, dtype="bfloat16")
    record = json.dumps([item("aten::_scaled_dot_product_cudnn_attention", q, q, q, None, False, 0.0, True)])
    whole = count_call(
        OpCall(
            "aten::_scaled_dot_product_cudnn_attention",
            "[[1,2,8,4],[1,2,8,4],[1,2,8,4],[],[],[],[]]",
            '["bfloat16","bfloat16","bfloat16","","","",""]',
            args='["","","","","False","0.0","True"]',
            dir="fprop",
        )
    )
    sizes = "[[1, 2, 8, 4], [1, 2, 8, 4], [1, 2, 8, 4], [], [], [], [], [], [], [], [], [], []]"
    without = OpCall("aten::_cudnn_attention_forward", sizes, dir="bprop")
    assert count_call(without).flop is None
    assert count_call(OpCall("aten::_cudnn_attention_forward", sizes, dir="bprop", fused=record)).flop == whole.flop
