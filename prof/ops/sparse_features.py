"""FBGEMM's sparse features: what a recommendation model does around its embedding tables.

A feature is a list of integers: its values lie one after the other, and lengths or offsets say which values belong to
which sample. Most of these ops only move values, so they do no floating-point work. Work that depends on the values
themselves (which rows a cache lacks) is unknown. Lists of offsets are int64 where the capture has no types.
Source: fbgemm_gpu/src/sparse_ops, src/permute_pooled_embedding_ops, FBGEMM 0.2 to 1.8.
"""

from __future__ import annotations

from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import alias
from pyprof.prof.ops.model import Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import given, indices, moved, number, tensors

copy_op, embedding_op = Family("copy"), Family("embedding")


def offsets(argument: Any) -> float:
    """Bytes of offsets: a tensor or a list of them."""
    return sum(indices(t).nbytes for t in tensors(argument))


def rows_of(tensor: Tensor) -> int:
    return tensor.shape[0] if tensor.shape else 1


@copy_op(
    "fbgemm::permute_sparse_features fbgemm::permute_2D_sparse_data fbgemm::permute_1D_sparse_data "
    "fbgemm::permute_sparse_data fbgemm::permute_2D_sparse_preallocated_out"
)
def permuted_features(permute: Tensor, lengths: Tensor, values: Tensor, weights: Any = None, total: Any = None) -> Work:
    """Lengths, values and weights in another order; of as many features as the order has, each perhaps several times

    Where the capture does not say how many values come out (permuted_lengths_sum), as many as go in.
    """
    factor = given(weights)
    count = total if type(total) is int else values.numel
    each = lengths.numel // rows_of(lengths) if rows_of(lengths) else 0
    written = moved(permute.numel * each, lengths) + moved(count, values) + (moved(count, factor) if factor else 0)
    return Work(0, distinct(permute, lengths, values, factor), written)


@copy_op("fbgemm::permute_2D_sparse_data_input1D")
def permuted_flat(
    permute: Tensor, lengths: Tensor, values: Tensor, stride: Any, weights: Any = None, total: Any = None
) -> Work:
    """The same; the lengths are one-dimensional, ``stride`` of them a feature"""
    wide = lengths.like((lengths.numel // int(stride), int(stride)), lengths.dtype)
    return permuted_features(permute, wide, values, weights, total)


@copy_op(
    "fbgemm::permute_pooled_embs fbgemm::permute_pooled_embs_auto_grad fbgemm::permute_pooled_embs_split "
    "fbgemm::permute_pooled_embs_auto_grad_split fbgemm::permute_duplicate_pooled_embs "
    "fbgemm::permute_duplicate_pooled_embs_auto_grad fbgemm::recat_embedding_grad_output "
    "fbgemm::recat_embedding_grad_output_mixed_D fbgemm::recat_embedding_grad_output_mixed_D_batch"
)
def permuted_rows(rows: Tensor, *order: Any) -> Work:
    """Columns in another order"""
    vectors = [t for t in tensors(order) if len(t.shape) == 1]
    return Work(0, distinct(rows, vectors), moved(rows.numel, rows))


@copy_op("fbgemm::permute_sequence_embeddings")
def permuted_sequences(permute: Tensor, lengths: Tensor, rows: Tensor) -> Work:
    """Lengths and sequences of rows in another order"""
    return Work(0, distinct(permute, lengths, rows), distinct(lengths, rows))


@copy_op("fbgemm::expand_into_jagged_permute")
def expanded(permute: Tensor, before: Tensor, after: Tensor, size: Any) -> Work:
    """An order of features as the order of their values"""
    return Work(0, distinct(permute, before, after), moved(int(size), permute))


@copy_op("fbgemm::reorder_batched_ad_lengths fbgemm::reorder_batched_ad_indices")
def reordered(first: Tensor, second: Tensor) -> Work:
    """Values by feature and ad instead of by request: the larger of the first two tensors, read and written"""
    values = max(first, second, key=lambda t: t.numel)
    return Work(0, distinct(first, second), values.nbytes)


@copy_op("fbgemm::bounds_check_indices")
def checked_indices(rows: Tensor, values: Tensor, starts: Tensor) -> Work:
    """Indices are compared with the tables' sizes, and those out of bounds replaced"""
    return Work(0, distinct(rows, values, starts), 0)


@copy_op("fbgemm::invert_permute fbgemm::asynchronous_inclusive_cumsum fbgemm::asynchronous_exclusive_cumsum")
def summed_lengths(lengths: Tensor) -> Work:
    """The order that undoes another; offsets from lengths: integers"""
    return Work(0, lengths.nbytes, moved(lengths.numel, lengths))


@copy_op("fbgemm::asynchronous_complete_cumsum fbgemm::asynchronous_batched_complete_cumsum")
def completely_summed(lengths: Tensor) -> Work:
    """Offsets from lengths, and the end: an integer more per row"""
    rows = rows_of(lengths) if len(lengths.shape) > 1 else 1
    return Work(0, lengths.nbytes, moved(lengths.numel + rows, lengths))


@copy_op("fbgemm::offsets_range")
def counted_up(starts: Tensor, size: Any) -> Work:
    """0, 1, ... from each offset to the next; ``size`` numbers, or as many as a tensor has"""
    count = size.numel if isinstance(size, Tensor) else int(size)
    return Work(0, starts.nbytes, moved(count, starts))


@copy_op("fbgemm::block_bucketize_sparse_features fbgemm::block_bucketize_sparse_features_inference")
def block_bucketized(
    lengths: Tensor, values: Tensor, position: Any, sequence: Any, blocks: Any, buckets: Any, weights: Any = None
) -> Work:
    """Values split over ``buckets`` ranks: lengths a rank, values, weights, where asked their places there and here"""
    factor = given(weights)
    written = moved(lengths.numel * int(buckets), lengths) + distinct(values, factor)
    written += (values.nbytes if number(position, False) else 0) + (values.nbytes if number(sequence, False) else 0)
    return Work(0, distinct(lengths, values, blocks, factor), written)


@copy_op("fbgemm::bucketize_sparse_features")
def bucketized(lengths: Tensor, values: Tensor, position: Any, buckets: Any, weights: Any = None) -> Work:
    """The same by the remainder of each value"""
    return block_bucketized(lengths, values, position, False, None, buckets, weights)


@copy_op("fbgemm::linearize_cache_indices")
def linear_indices(sizes: Tensor, values: Tensor, starts: Tensor) -> Work:
    """Each index numbered among all tables' rows: int64"""
    return Work(0, distinct(sizes, values, starts), 8 * values.numel)


@copy_op("fbgemm::get_unique_indices fbgemm::get_unique_indices_with_inverse")
def unique_indices(values: Tensor) -> Work:
    """Each index once, sorted: at least read; how many there are is in the data"""
    return Work(0, values.nbytes, 0)


WAYS = 32  # rows of a set of FBGEMM's cache, a warp's width; a tag of 8 bytes each


@copy_op("fbgemm::lxu_cache_lookup")
def cache_places(values: Tensor, state: Any) -> Work:
    """Each index is looked up among the tags of its set of 32 rows, and its place written (int32)"""
    ways = state.shape[-1] if isinstance(state, Tensor) and state.shape else WAYS
    return Work(0, values.nbytes + values.numel * ways * 8, 4 * values.numel)


@copy_op("fbgemm::lxu_cache_locations_update")
def cache_places_kept(places: Tensor, new: Tensor) -> Work:
    """Places of rows that have come into the cache since"""
    return Work(0, new.nbytes, moved(new.numel, places))


@copy_op(
    "fbgemm::lru_cache_populate fbgemm::lru_cache_populate_byte fbgemm::lfu_cache_populate "
    "fbgemm::lfu_cache_populate_byte fbgemm::lxu_cache_flush"
)
def cache_filled(*_: Any) -> Work:
    """Rows that the cache lacks are fetched, others written back; no capture says how many"""
    raise UnknownArgument("how many rows the cache lacks is in the data")


@embedding_op("fbgemm::batched_unary_embeddings")
def unary_embeddings(weight: Tensor, tables: Tensor, starts: Tensor, values: Tensor) -> Work:
    """The sum of each bag's numbers, one per row, for each of several tasks: (N - bags) additions per task"""
    tasks, bags = rows_of(weight), max(starts.numel - 1, 0)
    read = moved(tasks * values.numel, weight) + distinct(tables, starts, values)
    return Work(tasks * max(values.numel - bags, 0), read, moved(tasks * bags, weight))


alias(r"torch::autograd::CppNode<.*?Permute(?:Duplicate)?PooledEmbs\w*Function\b.*", "fbgemm::permute_pooled_embs")
