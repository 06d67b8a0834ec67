"""FBGEMM's sparse and jagged features, worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

import pyprof.prof.ops.families  # noqa: F401
from pyprof.prof.ops.model import MODELS, UNKNOWN, Tensor, UnknownArgument, Work, evaluate, total
from pyprof.prof.ops.no_arithmetic import never_computes


def t(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape, dtype)


def i(*shape: int) -> Tensor:
    return Tensor(shape, "int32")


def j(*shape: int) -> Tensor:
    return Tensor(shape, "int64")


STARTS = (Tensor((4,)),)  # a list of offsets of 3 sequences, whose type no trace has: int64, 32 bytes
CASES: list[tuple[str, tuple[Any, ...], Work]] = [
    # 2 of 3 features, batches of 3: 36 bytes of lengths in, 24 out; 7 values
    ("permute_sparse_features permute_2D_sparse_data permute_sparse_data permute_2D_sparse_preallocated_out",
     (i(2), i(3, 3), j(7), None), Work(0, 8 + 36 + 56, 24 + 56)),
    ("permute_2D_sparse_data", (i(2), i(3, 3), j(7), t(7), 5), Work(0, 8 + 36 + 56 + 28, 24 + 40 + 20)),  # 5 come out
    ("permute_1D_sparse_data", (i(3), i(3), j(7), None), Work(0, 12 + 12 + 56, 12 + 56)),
    ("permute_2D_sparse_data_input1D", (i(2), i(9), j(7), 3), Work(0, 8 + 36 + 56, 24 + 56)),
    ("permute_pooled_embs permute_pooled_embs_auto_grad permute_pooled_embs_split permute_pooled_embs_auto_grad_split "
     "permute_duplicate_pooled_embs permute_duplicate_pooled_embs_auto_grad recat_embedding_grad_output "
     "recat_embedding_grad_output_mixed_D recat_embedding_grad_output_mixed_D_batch",
     (t(4, 6), j(3)), Work(0, 96 + 24, 96)),
    ("permute_pooled_embs", (t(4, 6), t(4, 6), j(3)), Work(0, 96 + 24, 96)),  # backward, forward's arguments
    ("permute_sequence_embeddings", (i(2), i(2, 3), t(7, 4)), Work(0, 8 + 24 + 112, 24 + 112)),
    ("invert_permute", (i(5),), Work(0, 20, 20)),
    ("expand_into_jagged_permute", (i(2), i(3), i(3), 9), Work(0, 8 + 12 + 12, 36)),
    ("reorder_batched_ad_lengths", (i(12), i(3), 4), Work(0, 48 + 12, 48)),
    ("reorder_batched_ad_indices", (i(5), j(12), i(5), i(3), 4), Work(0, 20 + 96, 96)),
    ("bounds_check_indices", (j(1), j(7), j(4), 1), Work(0, 96, 0)),
    ("asynchronous_inclusive_cumsum asynchronous_exclusive_cumsum", (i(7),), Work(0, 28, 28)),
    ("asynchronous_complete_cumsum asynchronous_batched_complete_cumsum", (i(7),), Work(0, 28, 32)),  # 0 and the end
    ("asynchronous_complete_cumsum", (i(2, 3),), Work(0, 24, 32)),  # a row each
    ("offsets_range", (j(4), 9), Work(0, 32, 72)),
    ("offsets_range", (j(4), i(9)), Work(0, 32, 72)),  # fb::offsets_range is given the values
    # 6 lengths for each of 2 ranks; 7 values and weights, places there and here
    ("block_bucketize_sparse_features block_bucketize_sparse_features_inference",
     (i(6), j(7), True, True, j(2), 2, t(7)), Work(0, 24 + 56 + 16 + 28, 48 + 56 + 28 + 56 + 56)),
    ("bucketize_sparse_features", (i(6), j(7), False, 2), Work(0, 24 + 56, 48 + 56)),
    ("linearize_cache_indices", (j(3), i(7), j(5)), Work(0, 24 + 28 + 40, 56)),
    ("get_unique_indices get_unique_indices_with_inverse", (j(7), 99, False), Work(0, 56, 0)),
    ("lxu_cache_lookup", (j(7), j(10, 32), 99), Work(0, 56 + 7 * 32 * 8, 28)),
    ("lxu_cache_locations_update", (i(9), i(7)), Work(0, 28, 28)),
    # 3 sequences of 7 rows of 4, padded to 5
    ("jagged_to_padded_dense jagged_to_padded_dense_forward", (t(7, 4), STARTS, [5], 0.0), Work(0, 112 + 32, 240)),
    ("jagged_2d_to_dense", (t(7, 4), j(4), 5), Work(0, 112 + 32, 240)),
    ("jagged_1d_to_dense", (t(7), j(4), 5, 0), Work(0, 28 + 32, 60)),
    ("jagged_to_padded_dense_backward", (t(3, 5, 4), STARTS, 7), Work(0, 112 + 32, 112)),
    ("dense_to_jagged dense_to_jagged_forward", (t(3, 5, 4), STARTS, 7), Work(0, 112 + 32, 112)),
    ("jagged_dense_elementwise_add", (t(7, 4), STARTS, t(3, 5, 4)), Work(28, 112 + 240 + 32, 240)),
    ("jagged_dense_elementwise_add_jagged_output jagged_dense_elementwise_mul jagged_dense_elementwise_mul_forward",
     (t(7, 4), STARTS, t(3, 5, 4)), Work(28, 224 + 32, 112)),
    ("jagged_dense_dense_elementwise_add_jagged_output jagged_dense_dense_elementwise_add_jagged_output_forward",
     (t(7, 4), STARTS, t(3, 5, 4), t(3, 5, 4)), Work(56, 336 + 32, 112)),
    # 7 rows of 4 by [4, 6] each; a matrix of [4, 6] of each sequence
    ("jagged_dense_bmm jagged_dense_bmm_forward", (t(7, 4), j(4), t(3, 4, 6), 5), Work(336, 112 + 288 + 32, 168)),
    ("jagged_jagged_bmm jagged_jagged_bmm_forward", (t(7, 4), t(7, 6), j(4), 5), Work(336, 112 + 168 + 32, 288)),
    # 3 segments of 10 values
    ("segment_sum_csr", (2, j(4), t(10)), Work(7, 32 + 40, 12)),
    # 2 tasks, 4 bags of 9 indices
    ("batched_unary_embeddings", (t(2, 30, 1), j(3), j(5), j(9)), Work(10, 2 * 36 + 24 + 40 + 72, 32)),
    ("FloatToBfloat16Quantized", (t(3, 4),), Work(0, 48, 24)),
    ("Bfloat16QuantizedToFloat", (t(3, 4, dtype="float16"),), Work(0, 24, 48)),
    # 3 rows of 16 numbers, 24 bytes each
    ("FloatToFused8BitRowwiseQuantized HalfToFused8BitRowwiseQuantized FloatOrHalfToFused8BitRowwiseQuantized",
     (t(3, 16),), Work(96, 192, 72)),
    ("Fused8BitRowwiseQuantizedToFloat", (t(3, 24, dtype="uint8"),), Work(96, 72, 192)),
    ("Fused8BitRowwiseQuantizedToHalf", (t(3, 24, dtype="uint8"),), Work(96, 72, 96)),
    ("Fused8BitRowwiseQuantizedToFloatOrHalf", (t(3, 24, dtype="uint8"), 1), Work(96, 72, 96)),
]  # fmt: skip
EACH = [(f"fbgemm::{name}", args, work) for names, args, work in CASES for name in names.split()]
UNTOLD = [
    ("fbgemm::lru_cache_populate", (t(5), j(2))),  # how many rows the cache lacks is in the data
    ("fbgemm::lru_cache_populate_byte", (t(5), j(2))),
    ("fbgemm::lfu_cache_populate", (t(5), j(2))),
    ("fbgemm::lfu_cache_populate_byte", (t(5), j(2))),
    ("fbgemm::lxu_cache_flush", (t(5), j(2))),
    ("fbgemm::jagged_to_padded_dense", (t(7, 4), STARTS, UNKNOWN)),
    ("fbgemm::jagged_to_padded_dense", (t(7, 4), UNKNOWN, [5])),
    ("fbgemm::dense_to_jagged", (t(3, 5, 4), STARTS, None)),
    ("fbgemm::block_bucketize_sparse_features", (i(6), j(7), UNKNOWN, UNKNOWN, j(2), UNKNOWN)),
    ("fbgemm::offsets_range", (j(4), UNKNOWN)),
]


@pytest.mark.parametrize(("op", "args", "work"), EACH)
def test_worked_by_hand(op: str, args: tuple[Any, ...], work: Work) -> None:
    assert total(evaluate(op, args)) == work


@pytest.mark.parametrize(("op", "args"), UNTOLD)
def test_what_is_not_told_is_not_guessed(op: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(UnknownArgument):
        evaluate(op, args)
    assert never_computes(op)  # but that they do no arithmetic is known


def test_every_model_has_a_row() -> None:
    ours = {name for name, function in MODELS.items() if function.__module__.endswith("sparse_features")}
    assert ours == {op for op, _, _ in EACH} | {op for op, _ in UNTOLD}
