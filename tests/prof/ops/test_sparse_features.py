"""FBGEMM's sparse and jagged features, worked by hand."""

import pytest

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.known_work import never_computes
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work
from tests.prof.ops.op_cases import Row, i, i32, t, worked

STARTS = (Tensor((4,)),)  # a list of offsets of 3 sequences, whose type no trace has: int64, 32 bytes
ROWS: list[Row] = [
    # 2 of 3 features, batches of 3: 36 bytes of lengths in, 24 out; 7 values
    (
        "permute_sparse_features permute_2D_sparse_data permute_sparse_data permute_2D_sparse_preallocated_out",
        (i32(2), i32(3, 3), i(7), None),
        Work(0, 8 + 36 + 56, 24 + 56),
    ),
    (
        "permute_2D_sparse_data",
        (i32(2), i32(3, 3), i(7), t(7), 5),
        Work(0, 8 + 36 + 56 + 28, 24 + 40 + 20),
    ),  # 5 come out
    ("permute_1D_sparse_data", (i32(3), i32(3), i(7), None), Work(0, 12 + 12 + 56, 12 + 56)),
    ("permute_2D_sparse_data_input1D", (i32(2), i32(9), i(7), 3), Work(0, 8 + 36 + 56, 24 + 56)),
    (
        "permute_pooled_embs permute_pooled_embs_auto_grad permute_pooled_embs_split "
        "permute_pooled_embs_auto_grad_split permute_duplicate_pooled_embs permute_duplicate_pooled_embs_auto_grad "
        "recat_embedding_grad_output recat_embedding_grad_output_mixed_D recat_embedding_grad_output_mixed_D_batch",
        (t(4, 6), i(3)),
        Work(0, 96 + 24, 96),
    ),
    ("permute_pooled_embs", (t(4, 6), t(4, 6), i(3)), Work(0, 96 + 24, 96)),  # backward, forward's arguments
    ("permute_sequence_embeddings", (i32(2), i32(2, 3), t(7, 4)), Work(0, 8 + 24 + 112, 24 + 112)),
    ("invert_permute", (i32(5),), Work(0, 20, 20)),
    ("expand_into_jagged_permute", (i32(2), i32(3), i32(3), 9), Work(0, 8 + 12 + 12, 36)),
    ("reorder_batched_ad_lengths", (i32(12), i32(3), 4), Work(0, 48 + 12, 48)),
    ("reorder_batched_ad_indices", (i32(5), i(12), i32(5), i32(3), 4), Work(0, 20 + 96, 96)),
    ("bounds_check_indices", (i(1), i(7), i(4), 1), Work(0, 96, 0)),
    ("asynchronous_inclusive_cumsum asynchronous_exclusive_cumsum", (i32(7),), Work(0, 28, 28)),
    ("asynchronous_complete_cumsum asynchronous_batched_complete_cumsum", (i32(7),), Work(0, 28, 32)),  # 0 and the end
    ("asynchronous_complete_cumsum", (i32(2, 3),), Work(0, 24, 32)),  # a row each
    ("offsets_range", (i(4), 9), Work(0, 32, 72)),
    ("offsets_range", (i(4), i32(9)), Work(0, 32, 72)),  # fb::offsets_range is given the values
    # 6 lengths for each of 2 ranks; 7 values and weights, places there and here
    (
        "block_bucketize_sparse_features block_bucketize_sparse_features_inference",
        (i32(6), i(7), True, True, i(2), 2, t(7)),
        Work(0, 24 + 56 + 16 + 28, 48 + 56 + 28 + 56 + 56),
    ),
    # which places are asked for is not told: those that are not asked for by default are not counted
    ("block_bucketize_sparse_features", (i32(6), i(7), UNKNOWN, UNKNOWN, i(2), 2), Work(0, 24 + 56 + 16, 48 + 56)),
    ("bucketize_sparse_features", (i32(6), i(7), False, 2), Work(0, 24 + 56, 48 + 56)),
    ("linearize_cache_indices", (i(3), i32(7), i(5)), Work(0, 24 + 28 + 40, 56)),
    ("get_unique_indices get_unique_indices_with_inverse", (i(7), 99, False), Work(0, 56, 0)),
    ("lxu_cache_lookup", (i(7), i(10, 32), 99), Work(0, 56 + 7 * 32 * 8, 28)),
    ("lxu_cache_locations_update", (i32(9), i32(7)), Work(0, 28, 28)),
    # 3 sequences of 7 rows of 4, padded to 5
    ("jagged_to_padded_dense jagged_to_padded_dense_forward", (t(7, 4), STARTS, [5], 0.0), Work(0, 112 + 32, 240)),
    ("jagged_2d_to_dense", (t(7, 4), i(4), 5), Work(0, 112 + 32, 240)),
    ("jagged_1d_to_dense", (t(7), i(4), 5, 0), Work(0, 28 + 32, 60)),
    ("jagged_to_padded_dense_backward", (t(3, 5, 4), STARTS, 7), Work(0, 112 + 32, 112)),
    ("dense_to_jagged dense_to_jagged_forward", (t(3, 5, 4), STARTS, 7), Work(0, 112 + 32, 112)),
    ("jagged_dense_elementwise_add", (t(7, 4), STARTS, t(3, 5, 4)), Work(28, 112 + 240 + 32, 240)),
    (
        "jagged_dense_elementwise_add_jagged_output jagged_dense_elementwise_mul jagged_dense_elementwise_mul_forward",
        (t(7, 4), STARTS, t(3, 5, 4)),
        Work(28, 224 + 32, 112),
    ),
    (
        "jagged_dense_dense_elementwise_add_jagged_output jagged_dense_dense_elementwise_add_jagged_output_forward",
        (t(7, 4), STARTS, t(3, 5, 4), t(3, 5, 4)),
        Work(56, 336 + 32, 112),
    ),
    # 7 rows of 4 by [4, 6] each; a matrix of [4, 6] of each sequence
    ("jagged_dense_bmm jagged_dense_bmm_forward", (t(7, 4), i(4), t(3, 4, 6), 5), Work(336, 112 + 288 + 32, 168)),
    ("jagged_jagged_bmm jagged_jagged_bmm_forward", (t(7, 4), t(7, 6), i(4), 5), Work(336, 112 + 168 + 32, 288)),
    # 3 segments of 10 values
    ("segment_sum_csr", (2, i(4), t(10)), Work(7, 32 + 40, 12)),
    # 2 tasks, 4 bags of 9 indices
    ("batched_unary_embeddings", (t(2, 30, 1), i(3), i(5), i(9)), Work(10, 2 * 36 + 24 + 40 + 72, 32)),
    ("FloatToBfloat16Quantized", (t(3, 4),), Work(0, 48, 24)),
    ("Bfloat16QuantizedToFloat", (t(3, 4, dtype="float16"),), Work(0, 24, 48)),
    # 3 rows of 16 numbers, 24 bytes each
    (
        "FloatToFused8BitRowwiseQuantized HalfToFused8BitRowwiseQuantized FloatOrHalfToFused8BitRowwiseQuantized",
        (t(3, 16),),
        Work(96, 192, 72),
    ),
    ("Fused8BitRowwiseQuantizedToFloat", (t(3, 24, dtype="uint8"),), Work(96, 72, 192)),
    ("Fused8BitRowwiseQuantizedToHalf", (t(3, 24, dtype="uint8"),), Work(96, 72, 96)),
    ("Fused8BitRowwiseQuantizedToFloatOrHalf", (t(3, 24, dtype="uint8"), 1), Work(96, 72, 96)),
]
OF_PYTORCH: list[Row] = [  # torch.nested's, with the same arguments
    ("_jagged_to_padded_dense_forward", (t(7, 4), STARTS, [5], 0.0), Work(0, 112 + 32, 240)),
    ("_padded_dense_to_jagged_forward", (t(3, 5, 4), STARTS, 7), Work(0, 112 + 32, 112)),
]
UNKNOWN_WORK: list[Row] = [
    # how many rows the cache lacks is in the data
    (
        "lru_cache_populate lru_cache_populate_byte lfu_cache_populate lfu_cache_populate_byte lxu_cache_flush",
        (t(5), i(2)),
        UnknownArgument,
    ),
    ("jagged_to_padded_dense", (t(7, 4), STARTS, UNKNOWN), UnknownArgument),
    ("jagged_to_padded_dense", (t(7, 4), UNKNOWN, [5]), UnknownArgument),
    ("dense_to_jagged", (t(3, 5, 4), STARTS, None), UnknownArgument),
    ("block_bucketize_sparse_features", (i32(6), i(7), UNKNOWN, UNKNOWN, i(2), UNKNOWN), UnknownArgument),
    ("offsets_range", (i(4), UNKNOWN), UnknownArgument),
]


def of_fbgemm(rows: list[Row]) -> list[Row]:
    return [(" ".join(f"fbgemm::{name}" for name in names.split()), *rest) for names, *rest in rows]


test_worked_by_hand = worked(of_fbgemm(ROWS), of_fbgemm(UNKNOWN_WORK), OF_PYTORCH)


@pytest.mark.parametrize("names", dict.fromkeys(names for names, *_ in UNKNOWN_WORK))
def test_an_op_of_unknown_work_still_does_no_arithmetic(names: str) -> None:
    assert all(never_computes(f"fbgemm::{name}") for name in names.split())
