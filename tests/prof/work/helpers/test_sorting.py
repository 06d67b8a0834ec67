"""The chores of scattered sums: names as an A100 (2022) and an H200 ran them."""

from typing import Any

import pytest

import pyprof.prof.work.helpers.sorting  # noqa: F401
from pyprof.prof.kernels.roles import AUX, MAIN, assign_parts, role
from pyprof.prof.ops.model import Tensor
from pyprof.prof.work.helpers.registry import HelperCall, Launch, helper_work


def t(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape, dtype)


def i(n: int) -> Tensor:
    return Tensor((n,), "int32")


def j(n: int) -> Tensor:
    return Tensor((n,), "int64")


# 40 indices in 6 bags of two tables, 80 elements in 15 rows: prof/ops/embedding_tables.py
TABLES = (t(3, 12), t(0), t(80), t(0), t(0, 0), i(2), j(2), i(3), None, None, j(3), None, j(40), j(7), None, None, None,
          i(0), None, None, None, t(15))  # fmt: skip
UPDATE, EMBEDDING = "SplitLookupFunction_rowwise_adagrad", "embedding_dense_backward"
WORDS = (t(4, 6), j(40), 99, -1, False)
BAG, BAGS = "_embedding_bag_dense_backward", (t(8, 6), j(40), j(40), j(8), j(0), 30, False, 0, None, -1)
# 9 places of [4, 5, 6] by two lists of indices that are broadcast to [3, 3]; the same without the indices: 4 of 9 * 4
# values, if they were places of the shortest dimension
PUT, PLACES = "_index_put_impl_", (t(4, 5, 6), (None, Tensor((3, 1), "int64"), j(3)), t(4, 3, 3), True, True)
UNTOLD = (t(4, 5, 6), None, t(4, 3, 3), True, True)
SORT = "void cub::DeviceRadixSort{}Kernel<cub::DeviceRadixSortPolicy<{}>::Policy800, false, long, int>(int*)"
BINS = "void cub::DeviceRadixSortExclusiveSumKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800, int>(int*)"
COUNT = "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*, long*>>(long*)"
UNIQUE = "void cub::DeviceUniqueByKeySweepKernel<cub::DeviceUniqueByKeyPolicy<long*>>(long*)"
SCAN_INIT = "void cub::DeviceScanInitKernel<cub::ScanTileState<int, true> >(cub::ScanTileState<int, true>, int)"
COUNT_INIT = "void cub::DeviceCompactInitKernel<cub::ReduceByKeyScanTileState<int, int, true>, int*>(int)"
SCAN = "void cub::DeviceScanKernel<cub::AgentScanPolicy<128, 15, int>>(int*, int*)"
LINEARIZE = "void linearize_index_kernel<long>(at::GenericPackedTensorAccessor<long, 1ul>)"
NEW_SORT = (
    "void cub::CUB_200700_900_NS::DeviceRadixSortOnesweepKernel<cub::CUB_200700_900_NS::detail::radix::policy_hub<"
    "long, long, unsigned long long>::Policy900, false, long, long>(unsigned int*)"
)
FBGEMM = "split_embedding_backward_codegen_rowwise_adagrad_unweighted_"
CASES = [  # kernel, grid, block, op, arguments, read, written
    (SORT.format("Histogram", "long, int, int"), 1, 128, UPDATE, TABLES, 320, 0),
    # keys of 8 bytes, places of 4; weights of 4; places of 8
    (SORT.format("Onesweep", "long, int, int"), 1, 384, UPDATE, TABLES, 40 * 12, 40 * 12),
    (SORT.format("Onesweep", "long, float, int"), 1, 384, UPDATE, TABLES, 40 * 12, 40 * 12),
    (SORT.format("Onesweep", "long, long, int"), 1, 384, EMBEDDING, WORDS, 40 * 16, 40 * 16),
    (SORT.format("Onesweep", "int, cub::NullType, int"), 1, 384, EMBEDDING, WORDS, 160, 160),
    (NEW_SORT, 1, 384, EMBEDDING, WORDS, 40 * 16, 40 * 16),
    (SORT.format("Histogram", "long, long, int"), 1, 384, EMBEDDING, WORDS, 320, 0),
    # 3 blocks of 256 bins of 4 bytes
    (BINS, 3, 256, UPDATE, TABLES, 3072, 3072),
    (COUNT, 1, 128, UPDATE, TABLES, 320, 0),
    (NEW_SORT, 1, 384, BAG, BAGS, 40 * 16, 40 * 16),
    (SCAN, 1, 128, BAG, BAGS, 30 * 8, 30 * 8),  # of 30 rows at most
    (SCAN, 1, 128, EMBEDDING, WORDS, 40 * 8, 40 * 8),
    # 40 indices by tens
    ("void at::native::(anonymous namespace)::krn_partial_segment_offset<long>(long*)", 1, 32, EMBEDDING, WORDS, 0, 32),
    ("void at::native::krn_partial_to_segment_idx<long>(long*)", 1, 32, EMBEDDING, WORDS, 0, 32),
    (NEW_SORT, 1, 384, PUT, PLACES, 9 * 16, 9 * 16),
    (NEW_SORT, 1, 384, PUT, UNTOLD, 16, 16),  # 36 * 4 // 120
    (UNIQUE, 1, 64, EMBEDDING, WORDS, 320, 0),
    # 2 blocks of 128 tiles, the last of which has one at least
    (SCAN_INIT, 2, 128, UPDATE, TABLES, 0, 129 * 8),
    (COUNT_INIT, 1, 128, UPDATE, TABLES, 0, 8),
    (SCAN, 1, 128, UPDATE, TABLES, 160, 160),
    # a row of 8 bytes and a bag of 4 for each index
    (LINEARIZE, 1, 1024, UPDATE, TABLES, 320, 480),
    ("void fbgemm_gpu::linearize_index_wo_infos_kernel<long>(int)", 1, 1024, UPDATE, TABLES, 320, 320),
    # 15 rows are all there are, fewer than indices
    (FBGEMM + "find_long_segments(int)", 1, 1024, UPDATE, TABLES, 60, 0),
    ("void fbgemm_gpu::grad_mean_kernel<float>(int)", 1, 256, UPDATE, TABLES, 144, 144),
]  # fmt: skip


@pytest.mark.parametrize(("name", "blocks", "threads", "op", "arguments", "read", "written"), CASES)
def test_own_bytes(
    name: str, blocks: int, threads: int, op: str, arguments: tuple[Any, ...], read: int, written: int
) -> None:
    found = helper_work(HelperCall(Launch(name, (blocks, 1, 1), (threads, 1, 1)), None, op, arguments))
    assert found is not None
    assert (found.flop, found.read, found.write) == (0, read, written)


def test_without_the_indices_nothing_is_told() -> None:
    for op, arguments in ((UPDATE, (t(3, 12),)), ("topk", (t(40),)), (PUT, (t(0, 5), None, t(4)))):
        assert helper_work(HelperCall(Launch(CASES[1][0], (1, 1, 1), (1, 1, 1)), None, op, arguments)) is None


MAIN_KERNELS = ["kernel_cta_per_row_1", "kernel_warp_per_row_1"]


@pytest.mark.parametrize("op", [UPDATE, "fbgemm::split_embedding_backward_codegen_rowwise_adagrad"])
def test_updates_and_look_ups_work_the_rest_are_chores(op: str) -> None:
    for kernel in MAIN_KERNELS:
        assert role(f"void {FBGEMM}{kernel}<float, float, float, 2ul>()", op, "embedding") == MAIN
    for kernel in (
        FBGEMM + "find_long_segments()",
        CASES[0][0],
        "void linearize_index_kernel<long>()",
        "Memset (Device)",
    ):
        assert role(kernel, op, "embedding") == AUX


def test_parts_of_a_weighted_update() -> None:
    weighted = FBGEMM.replace("un", "")
    names = ["void split_embedding_codegen_grad_indice_weights_kernel<float>()",
             *(f"void {weighted}{kernel}<float>()" for kernel in MAIN_KERNELS)]  # fmt: skip
    assert assign_parts(names, ["indice_weights", "update"]) == ["indice_weights", "update", "update"]
