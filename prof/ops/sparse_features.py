"""FBGEMM's ops on sparse features, which a recommendation model runs around its embedding tables.

A feature is a list of integers per sample. All values lie one after the other; lengths or offsets tell which values
belong to which sample. Most of these ops only move values, so they do no floating-point work. Work that depends on the
values themselves (which rows a cache lacks) is unknown. Lists of offsets are int64 if the capture has no dtypes.
Source: fbgemm_gpu/src/sparse_ops, src/permute_pooled_embedding_ops, FBGEMM 0.2 to 1.8.
"""

from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import alias
from pyprof.prof.ops.model import Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import given, indices, moved, number, tensors

copy_op, embedding_op = Family("copy"), Family("embedding")


def offsets(argument: Any) -> float:
    """Bytes of offsets, given as a tensor or a list of tensors."""
    return sum(indices(t).nbytes for t in tensors(argument))


def rows_of(tensor: Tensor) -> int:
    return tensor.shape[0] if tensor.shape else 1


@copy_op(
    "fbgemm::permute_sparse_features fbgemm::permute_2D_sparse_data fbgemm::permute_1D_sparse_data "
    "fbgemm::permute_sparse_data fbgemm::permute_2D_sparse_preallocated_out"
)
def permuted_features(permute: Tensor, lengths: Tensor, values: Tensor, weights: Any = None, total: Any = None) -> Work:
    """Copies lengths, values and weights in the order of ``permute``, which may repeat or omit features

    If the capture lacks the number of output values (permuted_lengths_sum), it is assumed to equal the input's.
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
    """Same as permute_2D_sparse_data; the lengths are one-dimensional, ``stride`` per feature"""
    wide = lengths.like((lengths.numel // int(stride), int(stride)), lengths.dtype)
    return permuted_features(permute, wide, values, weights, total)


@copy_op(
    "fbgemm::permute_pooled_embs fbgemm::permute_pooled_embs_auto_grad fbgemm::permute_pooled_embs_split "
    "fbgemm::permute_pooled_embs_auto_grad_split fbgemm::permute_duplicate_pooled_embs "
    "fbgemm::permute_duplicate_pooled_embs_auto_grad fbgemm::recat_embedding_grad_output "
    "fbgemm::recat_embedding_grad_output_mixed_D fbgemm::recat_embedding_grad_output_mixed_D_batch"
)
def permuted_rows(rows: Tensor, *order: Any) -> Work:
    """Copies columns into another order"""
    vectors = [t for t in tensors(order) if len(t.shape) == 1]
    return Work(0, distinct(rows, vectors), moved(rows.numel, rows))


@copy_op("fbgemm::permute_sequence_embeddings")
def permuted_sequences(permute: Tensor, lengths: Tensor, rows: Tensor) -> Work:
    """Copies lengths and sequences of rows into another order"""
    return Work(0, distinct(permute, lengths, rows), distinct(lengths, rows))


@copy_op("fbgemm::expand_into_jagged_permute")
def expanded(permute: Tensor, before: Tensor, after: Tensor, size: Any) -> Work:
    """Expands a permutation of features to a permutation of their values"""
    return Work(0, distinct(permute, before, after), moved(int(size), permute))


@copy_op("fbgemm::reorder_batched_ad_lengths fbgemm::reorder_batched_ad_indices")
def reordered(first: Tensor, second: Tensor) -> Work:
    """Regroups values from request to feature and ad: reads and writes the larger of the first two tensors"""
    values = max(first, second, key=lambda t: t.numel)
    return Work(0, distinct(first, second), values.nbytes)


@copy_op("fbgemm::bounds_check_indices")
def checked_indices(rows: Tensor, values: Tensor, starts: Tensor) -> Work:
    """Compares indices with the tables' sizes and replaces those out of bounds"""
    return Work(0, distinct(rows, values, starts), 0)


@copy_op("fbgemm::invert_permute fbgemm::asynchronous_inclusive_cumsum fbgemm::asynchronous_exclusive_cumsum")
def summed_lengths(lengths: Tensor) -> Work:
    """The order that undoes another; offsets from lengths: integers"""
    return Work(0, lengths.nbytes, moved(lengths.numel, lengths))


@copy_op("fbgemm::asynchronous_complete_cumsum fbgemm::asynchronous_batched_complete_cumsum")
def completely_summed(lengths: Tensor) -> Work:
    """Computes offsets from lengths, with the end as one more integer per row"""
    rows = rows_of(lengths) if len(lengths.shape) > 1 else 1
    return Work(0, lengths.nbytes, moved(lengths.numel + rows, lengths))


@copy_op("fbgemm::offsets_range")
def counted_up(starts: Tensor, size: Any) -> Work:
    """Writes 0, 1, ... from each offset to the next: ``size`` numbers, or as many as a tensor has"""
    count = size.numel if isinstance(size, Tensor) else int(size)
    return Work(0, starts.nbytes, moved(count, starts))


@copy_op("fbgemm::block_bucketize_sparse_features fbgemm::block_bucketize_sparse_features_inference")
def block_bucketized(
    lengths: Tensor, values: Tensor, position: Any, sequence: Any, blocks: Any, buckets: Any, weights: Any = None
) -> Work:
    """Splits values over ``buckets`` ranks; writes lengths per rank, values, weights and, if requested, positions"""
    factor = given(weights)
    written = moved(lengths.numel * int(buckets), lengths) + distinct(values, factor)
    written += (values.nbytes if number(position, False) else 0) + (values.nbytes if number(sequence, False) else 0)
    return Work(0, distinct(lengths, values, blocks, factor), written)


@copy_op("fbgemm::bucketize_sparse_features")
def bucketized(lengths: Tensor, values: Tensor, position: Any, buckets: Any, weights: Any = None) -> Work:
    """Splits values over ``buckets`` ranks by the remainder of each value"""
    return block_bucketized(lengths, values, position, False, None, buckets, weights)


@copy_op("fbgemm::linearize_cache_indices")
def linear_indices(sizes: Tensor, values: Tensor, starts: Tensor) -> Work:
    """Renumbers each index among the rows of all tables: int64"""
    return Work(0, distinct(sizes, values, starts), 8 * values.numel)


@copy_op("fbgemm::get_unique_indices fbgemm::get_unique_indices_with_inverse")
def unique_indices(values: Tensor) -> Work:
    """Sorts the indices and removes duplicates; bytes are a lower bound, because the number of distinct ones is
    unknown"""
    return Work(0, values.nbytes, 0)


WAYS = 32  # rows per set of FBGEMM's cache (the width of a warp), each with a tag of 8 bytes


@copy_op("fbgemm::lxu_cache_lookup")
def cache_places(values: Tensor, state: Any) -> Work:
    """Looks up each index among the tags of its set of 32 rows and writes its position (int32)"""
    ways = state.shape[-1] if isinstance(state, Tensor) and state.shape else WAYS
    return Work(0, values.nbytes + values.numel * ways * 8, 4 * values.numel)


@copy_op("fbgemm::lxu_cache_locations_update")
def cache_places_kept(places: Tensor, new: Tensor) -> Work:
    """Updates the positions of rows that have entered the cache since"""
    return Work(0, new.nbytes, moved(new.numel, places))


@copy_op(
    "fbgemm::lru_cache_populate fbgemm::lru_cache_populate_byte fbgemm::lfu_cache_populate "
    "fbgemm::lfu_cache_populate_byte fbgemm::lxu_cache_flush"
)
def cache_filled(*_: Any) -> Work:
    """Fetches missing rows into the cache and writes others back; no capture records how many"""
    raise UnknownArgument("how many rows the cache lacks is in the data")


@embedding_op("fbgemm::batched_unary_embeddings")
def unary_embeddings(weight: Tensor, tables: Tensor, starts: Tensor, values: Tensor) -> Work:
    """The sum of each bag's rows of one element, for each of several tasks: (N - bags) additions per task"""
    tasks, bags = rows_of(weight), max(starts.numel - 1, 0)
    read = moved(tasks * values.numel, weight) + distinct(tables, starts, values)
    return Work(tasks * max(values.numel - bags, 0), read, moved(tasks * bags, weight))


alias(r"torch::autograd::CppNode<.*?Permute(?:Duplicate)?PooledEmbs\w*Function\b.*", "fbgemm::permute_pooled_embs")
