"""Ops that neither compute nor move data: views, allocations, and queries about a tensor.

Their work is known to be zero, which differs from unknown. If one of them has to copy after all (``reshape`` of
a transposed tensor, ``contiguous``, ``to``), the copy is a nested op (``clone``, ``_to_copy``, ``copy_``) with its
own kernel and its own work.
"""

from typing import Any

from pyprof.prof.ops.model import Family, Work

op = Family("view")

VIEWS = (
    "_conj _neg_view _reshape_alias _unsafe_view adjoint alias as_strided as_strided_ atleast_1d atleast_2d "
    "atleast_3d broadcast_tensors broadcast_to chunk detach detach_ diagonal expand expand_as flatten imag "
    "linalg_diagonal mH mT matrix_H moveaxis movedim narrow numpy_T permute ravel real reshape reshape_as select "
    "slice split split_with_sizes squeeze squeeze_ swapaxes swapdims t t_ tensor_split hsplit vsplit dsplit transpose "
    "transpose_ unbind unflatten unfold unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_ view "
    "view_as view_as_complex view_as_real lift_fresh values indices crow_indices col_indices _values _indices "
    "ccol_indices row_indices _autocast_to_reduced_precision _autocast_to_full_precision rename align_to _fw_primal "
    "_make_dual _unpack_dual is_same_size requires_grad_ set_ set_data retain_grad rename_ _nested_view_from_buffer "
    "_nested_view_from_jagged _nested_get_values _nested_get_offsets _nested_get_lengths _nested_get_jagged_dummy "
    "_nested_get_min_seqlen _nested_get_max_seqlen _nested_get_ragged_idx _lazy_clone T H _sparse_coo_tensor_unsafe "
    "_sparse_coo_tensor_with_dims_and_tensors _sparse_compressed_tensor_unsafe positive resolve_conj resolve_neg "
)
ALLOCATIONS = (
    "empty empty_like empty_strided empty_permuted empty_quantized _empty_affine_quantized new_empty "
    "new_empty_strided resize_ resize_as_ resize _resize_output_ _resize_output _efficientzerotensor "
)
QUESTIONS = (
    "_use_cudnn_rnn_flatten_weight size stride numel dim storage_offset is_contiguous is_pinned result_type can_cast "
    "is_floating_point is_complex is_set_to is_leaf _version output_nr sym_size sym_stride sym_numel "
    "sym_storage_offset sym_is_contiguous _has_compatible_shallow_copy_type _debug_has_internal_overlap is_inference "
    "is_signed is_conj is_neg is_coalesced sparse_dim dense_dim _nnz _dimI _dimV q_scale q_zero_point qscheme "
    "promote_types cudnn_is_acceptable _use_cudnn_ctc_loss _use_miopen_ctc_loss _fused_sdp_choice _nnpack_available "
    "get_device is_cpu is_cuda device layout _is_zerotensor _assert_tensor_metadata _assert_async "
    "_functional_assert_async record_stream sym_constrain_range sym_constrain_range_for_size _get_data_attr "
    "broadcast_shapes _has_same_storage_numel _c10d_functional::wait_tensor _c10d_functional::_wrap_tensor_autograd "
)


@op(VIEWS, ALLOCATIONS, QUESTIONS)
def nothing(*_: Any) -> Work:
    """0 flop, 0 bytes: no kernel runs."""
    return Work()
