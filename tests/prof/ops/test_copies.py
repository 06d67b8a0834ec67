"""Copies, fills, joins, pads and rearrangements, counted by hand. None of them computes."""

import math

from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from tests.prof.ops.op_cases import NAN, Row, i, t, worked

X = t(2, 3)  # 6 elements, 24 bytes
ROWS: list[Row] = [
    ("copy_ copy _copy_from _copy_from_and_resize", (t(2, 3, dtype="bfloat16"), X), Work(0, 24, 12)),
    ("copy_", (X, t(3)), Work(0, 12, 24)),  # broadcast
    ("_to_copy to", (X, "bfloat16"), Work(0, 24, 12)),
    ("_to_copy", (X, 15), Work(0, 24, 12)),  # a Kineto trace's number of bfloat16
    ("_to_copy", (X, None), Work(0, 24, 24)),  # to another device
    ("type_as", (X, t(5, dtype="float16")), Work(0, 24, 12)),
    ("type", (X, "torch.float64"), Work(0, 24, 48)),
    ("to type_as", (X, X), Work()),  # as it is
    ("float half bfloat16 double", (X,), Work()),  # the types are told by the outputs only
    (
        "clone alias_copy view_copy permute_copy transpose_copy t_copy squeeze_copy unsqueeze_copy detach_copy "
        "_reshape_copy lift_fresh_copy",
        (X,),
        Work(0, 24, 24),
    ),
    ("clone", (Tensor((2, 3), "float32", (0, 1)),), Work(0, 12, 24)),  # an expanded row
    ("expand_copy", (t(2, 1), [4, -1, 3]), Work(0, 8, 96)),  # 24 elements
    ("as_strided_copy", (X, [2, 2], [3, 1], 0), Work(0, 16, 16)),
    ("slice_copy select_copy diagonal_copy narrow_copy", (t(4, 3), 0, 1), (X,), Work(0, 24, 24)),
    ("slice_copy select_copy diagonal_copy narrow_copy", (t(4, 3), 0, 1), Work(0, NAN, NAN)),
    ("contiguous", (X, 0), Work()),
    ("contiguous", (Tensor((2, 3), "float32", (1, 2)), 0), Work(0, 24, 24)),
    ("contiguous", (Tensor((2, 1, 3), "float32", (3, 99, 1)), 0), Work()),  # a dimension of 1 may have any stride
    ("contiguous", (X, "channels_last"), Work(0, 24, 24)),
    ("_local_scalar_dense item", (t(),), Work()),
    ("fill_ fill", (X, 1.0), Work(0, 0, 24)),
    ("fill_", (X, t()), Work(0, 4, 24)),
    ("zero_ zero fill_diagonal_", (X,), Work(0, 0, 24)),
    ("zeros ones", ([2, 3],), Work(0, 0, 24)),
    ("zeros", ([2, 3], "int64"), Work(0, 0, 48)),
    ("full", ([2, 3], 7), Work(0, 0, 48)),  # int64
    ("full", ([2, 3], 7.0), Work(0, 0, 24)),
    ("scalar_tensor", (7.0, "float64"), Work(0, 0, 8)),
    # an array for each of 64 vmapped: 64 of 2*3
    ("_new_zeros_with_same_feature_meta", (Tensor((64, 5), "float32"), X, 1), Work(0, 0, 1536)),
    ("new_zeros new_ones", (X, [5]), Work(0, 0, 20)),
    ("new_full", (X, [5], 1.0), Work(0, 0, 20)),
    ("zeros_like ones_like", (X,), Work(0, 0, 24)),
    ("full_like", (X, 1, "int64"), Work(0, 0, 48)),
    ("zeros ones", ([2, 3], t(2, 3, dtype="float64")), Work(0, 0, 48)),  # out=
    ("full", ([2, 3], 7, X), Work(0, 0, 24)),
    ("hann_window hamming_window", (10,), Work(40, 0, 40)),  # an angle, a cosine, a product, a difference
    ("hann_window", (10, True, "float64", None, None, None), Work(40, 0, 80)),
    ("blackman_window", (10,), Work(80, 0, 40)),  # two angles, cosines and products, a difference and a sum
    ("bartlett_window", (10,), Work(30, 0, 40)),  # a product, two differences
    ("kaiser_window", (10, True, 12.0), Work(80, 0, 40)),  # 2 for x, x x, a difference, a root, beta, i0, a quotient
    # 2^40 rows of 5: the first four keep 1 to 4, all others 5
    ("tril", (t(1 << 40, 5),), Work(0, 4 * (10 + 5 * ((1 << 40) - 4)), 20 << 40)),
    ("tril_indices", (1 << 40, 5, 0), Work(0, 0, 16 * (10 + 5 * ((1 << 40) - 4)))),
    ("triu_indices", (1 << 40, 5, 0), Work(0, 0, 16 * (5 + 4 + 3 + 2 + 1))),
    ("eye", (4,), Work(0, 0, 64)),
    ("eye", (4, "bfloat16", None, None, None), Work(0, 0, 32)),
    ("eye", (4, 2, 15, None, None, None), Work(0, 0, 16)),
    ("eye", (4, t(0, dtype="float64")), Work(0, 0, 128)),
    ("linspace", (0, 1, 5, 7, None, None, None), Work(0, 0, 40)),  # a Kineto trace's number of float64
    ("logspace", (0, 1, 5, 2, t(5, dtype="float64")), Work(0, 0, 40)),
    ("arange", (5, None, None, None, None), Work(0, 0, 40)),
    ("arange", (1, 7, 2, None, None, None, None), Work(0, 0, 24)),  # 1, 3, 5
    ("arange", (0.0, 1.0, 0.25, None, None, None, None), Work(0, 0, 16)),
    ("arange", (0, 7, 1, Tensor((0,), "int64")), Work(0, 0, 56)),  # out=, which the call resizes
    ("arange", (0, 7, 2, Tensor((0,), "float32")), Work(0, 0, 16)),
    ("linspace logspace", (0, 1, 5), Work(0, 0, 20)),
    (
        "cat concat concatenate stack hstack vstack _chunk_cat fsdp::chunk_cat fsdp::all_gather_copy_in",
        ((X, X, t(1, 3)), 0),
        Work(0, 60, 60),
    ),
    ("_chunk_cat fsdp::chunk_cat", ((X, t(1, 3)), 0, 4), Work(0, 36, 96)),  # both are filled up to 4 rows
    ("_nested_tensor_from_mask_left_aligned", (X, t(2, 3, dtype="bool")), Work(0, 6)),
    ("split_with_sizes_copy split_copy unbind_copy", (X, [1, 2], 1), Work(0, 24, 24)),
    ("repeat tile", (X, [2, 1]), Work(0, 24, 48)),
    ("repeat_interleave", (X, 3), Work(0, 24, 72)),
    ("repeat_interleave", (i(4), 6), Work(0, 32, 48)),  # (repeats, output_size)
    ("repeat_interleave", (i(4), 6, None, None), Work(0, 32, 192)),
    (
        "roll flip fliplr flipud rot90 pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle "
        "_pin_memory",
        (X,),
        Work(0, 24, 24),
    ),
    ("tril", (X,), Work(0, 12, 24)),  # 2 x 3: 1 + 2 elements are kept and read, all are written
    ("triu", (X,), Work(0, 20, 24)),  # 3 + 2
    ("tril", (t(5, 3, 3), -1), Work(0, 60, 180)),  # 5 times 0 + 1 + 2
    ("triu", (t(5, 3, 3), -1), Work(0, 160, 180)),  # 5 times 3 + 3 + 2
    ("tril triu", (t(0, 3),), Work(0, 0, 0)),
    ("tril_indices triu_indices", (3, 3), Work(0, 0, 96)),  # 6 places, 2 coordinates, 8 bytes
    ("tril_indices", (2, 4, 1), Work(0, 0, 80)),  # 2 + 3
    ("triu_indices", (2, 4, 1), Work(0, 0, 80)),  # 3 + 2
    ("block_diag", ((t(2, 2), t(1, 3)),), Work(0, 28, 60)),  # 3 x 5
    ("block_diag", ((t(2, 2), t(1, 3, dtype="complex64")),), Work(0, 16 + 24, 120)),
    ("diag_embed", (X, 0), Work(0, 24, 72)),  # two of 3 x 3
    ("unfold_copy", (t(2, 5), 1, 3, 2), Work(0, 40, 48)),  # 2 windows of 3 in each of 2 rows
    ("frexp", (t(2, 3),), Work(0, 24, 48)),
    ("nonzero_static", (t(2, 3), 4), Work(0, 24, 64)),
    ("im2col", (t(1, 2, 4, 4), [2, 2], [1, 1], [0, 0], [1, 1]), Work(0, 128, 288)),  # 2 * 4 rows, 9 windows
    ("im2col", (t(1, 2, 6, 7), [3, 3], [2, 2], [0, 0], [1, 1]), Work(0, 336, 432)),  # spans 5: 2 * 9 rows, 6 windows
    ("col2im", (t(1, 8, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]), Work(72 - 32, 288, 128)),
    ("constant_pad_nd pad", (X, [1, 2]), Work(0, 24, 48)),  # 2 x 6
    ("constant_pad_nd", (X, [-1, 2]), Work(0, 16, 32)),  # 4 elements kept; 2 x 4
    (
        "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d "
        "_pad_circular",
        (X, [1, 1]),
        Work(0, 24, 40),
    ),
    (
        "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward "
        "replication_pad2d_backward replication_pad3d_backward",
        (t(2, 5), X, [1, 1]),
        Work(4, 40, 24),
    ),
    ("pad.backward", (X, [1, 1], "constant", 0), Work(0, 24, 24)),  # the interior of g
    ("pad.backward", (X, [1, 1], "reflect", None), Work(4, 40, 24)),
    (
        "_C_cache_ops::reshape_and_cache_flash _C_cache_ops::reshape_and_cache",
        (X, X, t(9, dtype="bfloat16"), t(9, dtype="bfloat16"), i(2)),
        Work(0, 64, 24),
    ),
]
test_worked_by_hand = worked(ROWS)


def test_a_size_that_is_not_told_is_not_zero() -> None:
    for op, args in (("constant_pad_nd", (X, UNKNOWN)), ("_to_copy", (X, UNKNOWN)), ("repeat", (X, UNKNOWN))):
        work = total(evaluate(op, args))
        assert work.flop == 0
        assert math.isnan(work.nbytes)


def test_outputs_that_are_told_decide() -> None:
    assert evaluate("to", (X, "cuda"), (t(2, 3, dtype="float64"),)) == Work(0, 24, 48)
    assert evaluate("arange", (UNKNOWN,), (i(7),)) == Work(0, 0, 56)
