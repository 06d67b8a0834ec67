"""Whether the kernels of a replay can be those of the capture's ops."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pyprof.parse.attribute.scope import Kind
from pyprof.parse.graphs.graph_agreement import agrees
from pyprof.parse.graphs.graph_replays import _Captured

GEMM, NATIVE, TRITON = "sm80_xmma_gemm_f32f32", "void at::native::vectorized_elementwise_kernel", "triton_poi_fused_0"


@pytest.mark.parametrize(
    ("ops", "kernels", "expected"),
    [
        (["aten::mm", "aten::relu"], [GEMM, NATIVE], True),
        (["aten::relu"], [GEMM], False),  # a product in an op that has none
        (["aten::relu"], [TRITON], True),  # of another library, but no product
        (["mylib::fused"], [GEMM], True),  # nobody knows what it calls
        (["aten::mm"], [NATIVE], False),  # a product needs a kernel of a library
        (["aten::relu"], ["ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"], False),
    ],
)
def test_a_kernel_in_an_op(ops: list[str], kernels: list[str], expected: bool) -> None:
    assert agrees(ops, list(range(len(ops))), kernels) is expected


def test_one_kernel_of_a_library_is_enough_for_a_product() -> None:
    assert agrees(["aten::mm", "aten::mm"], [3, 3], [NATIVE, GEMM])
    assert not agrees(["aten::mm", "aten::mm"], [3, 4], [NATIVE, GEMM])


def test_a_backward_node_has_the_path_of_no_other_range() -> None:
    """Two nodes of one scope are two paths, neither of which is that of an op; two ops of one scope have one."""
    kinds, scopes = [Kind.NODE, Kind.NODE, Kind.OP, Kind.OP, Kind.OP], [2, 2, 0, 1, 1]
    captured: Any = object.__new__(_Captured)
    captured.paths, captured.path_numbers = {}, {}
    captured.tree = SimpleNamespace(kind=kinds, scope=np.array(scopes), parent=np.full(5, -1))
    assert [captured._path(place, True) for place in range(5)] == [0, 1, 2, 3, 3]
