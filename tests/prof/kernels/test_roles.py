"""What real kernels are to their ops, and which gradient each kernel of a convolution's backward computes."""

# ruff: noqa: E501 -- a kernel's name stands on one line, so that it can be searched for

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.prof.kernels.roles import AUX, MAIN, PARTS, assign_parts, part_of, role

COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>(int)"
SORT = "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::detail::radix>"
SCAN = "void at_cuda_detail::cub::detail::scan::DeviceScanKernel<at_cuda_detail::cub::detail::scan::policy_hub<long>>"
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(T1)"
TO_NCHW = "void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>(T1)"
PAD = "void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true, (cudnnKernelDataType_t)0>(int, int)"
SPLIT_K = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, false>(T4)"
REDUCE = "void cutlass_cudnn_train::Kernel<cutlass_cudnn_train::reduction::kernel::ReduceSplitK<cutlass::MatrixShape<4, 128>>>"
MEMSET, MEMCPY = "Memset (Device)", "Memcpy HtoD (Pageable -> Device)"
DOT_DO_O = "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*, void*)"
CONVERT_DQ = "void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*, unsigned int)"
SDPA = "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0"
NVJET = "nvjet_sm90_tst_64x64_64x13_1x2_h_bz_splitK_NTT"
XWGRAD = (
    "sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_warpgroupsize1x1x1_g1_"
)
INIT = "void cask_plugin__5x_cudnn::xmma__5x_cudnn::init_device_workspace_kernel<xmma__5x_cudnn::implicit_gemm::wgrad_indexed::Params>"

ROLES = [
    # products and what stands around them
    (NVJET, "aten::mm", "gemm", MAIN),
    (SPLIT_K, "aten::mm", "gemm", AUX),
    (MEMSET, "aten::addmm", "gemm", AUX),
    ("[CUDA memset]", "aten::addmm", "gemm", AUX),
    (MEMCPY, "aten::mm", "gemm", AUX),
    (COPY, "aten::addmm", "gemm", AUX),  # the bias, spread over the rows
    ("void cublasLt::epilogue::impl::globalKernel<8, 32, float, float, float, true, true, 1>(int)", "aten::addmm", "gemm", AUX),
    ("void scal_kernel<float, float, 1, true, 6, 5, 5, 3>(cublasTransposeParams<float>)", "aten::addmm", "gemm", AUX),
    ("void sgemm_largek_lds64<true, false, 5, 5, 4, 4, 4, 34>(float*, float const*)", "aten::addmm", "gemm", MAIN),
    ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false>(T13)", "aten::bmm", "gemm", MAIN),
    ("void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, float>>(T4)", "aten::dot", "gemm", MAIN),
    ("void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>>(float const*)", "aten::dot", "gemm", AUX),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_ffma_aligna4_alignc4_execute_split_k_kernel__5x_cublas", "aten::mm", "gemm", AUX),
    (TO_NHWC, "aten::cudnn_convolution", "conv", AUX),
    (TO_NCHW, "aten::convolution_backward", "conv", AUX),
    (PAD, "aten::cudnn_convolution", "conv", AUX),
    (INIT, "aten::convolution_backward", "conv", AUX),
    (XWGRAD + "execute_segment_k_on_kernel__5x_cudnn", "aten::convolution_backward", "conv", MAIN),
    (XWGRAD + "execute_split_k_kernel__5x_cudnn", "aten::convolution_backward", "conv", AUX),
    (REDUCE, "aten::convolution_backward", "conv", AUX),
    ("void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*)", "aten::convolution_backward", "conv", AUX),
    ("void cudnn::ops::scalePackedTensor_kernel<float, float>(cudnnTensor4dStruct)", "aten::convolution_backward", "conv", AUX),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(T1)", "aten::cudnn_convolution", "conv", AUX),
    ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)", "aten::convolution_backward", "conv", MAIN),
    ("cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)", "aten::cudnn_convolution", "conv", AUX),
    ("void im2col_kernel<float>", "aten::slow_conv2d_forward", "conv", AUX),
    (SDPA, "aten::_cudnn_attention_backward", "attention", MAIN),
    (DOT_DO_O, "aten::_cudnn_attention_backward", "attention", AUX),
    (CONVERT_DQ, "aten::_cudnn_attention_backward", "attention", AUX),
    ("at::cuda::philox::unpack_cudnn(at::PhiloxCudaState, long*, long*)", "aten::_cudnn_attention_forward", "attention", AUX),
    ("void flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64>>(T1)", "aten::_flash_attention_backward", "attention", AUX),
    ("void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64>>(T1)", "aten::_flash_attention_forward", "attention", AUX),
    ("void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2>(int)", "aten::_cudnn_rnn", "rnn", AUX),
    # ops whose whole work is what is a chore elsewhere
    (COPY, "aten::copy_", "pointwise", MAIN),
    ("Memcpy DtoD (Device -> Device)", "aten::copy_", "pointwise", MAIN),
    ("Memcpy DtoH (Device -> Pageable)", "aten::_local_scalar_dense", "other", MAIN),
    (MEMSET, "aten::zero_", "pointwise", MAIN),
    (MEMSET, "aten::zeros", "pointwise", MAIN),
    (MEMSET, "aten::fill_.Scalar", "pointwise", MAIN),
    (FILL, "aten::fill_", "pointwise", MAIN),
    ("void at::native::im2col_kernel<float>(long, float const*)", "aten::im2col", "pointwise", MAIN),
    (SORT, "aten::sort", "sort", MAIN),
    (SCAN, "aten::cumsum", "scan", MAIN),
    (COPY, "aten::add_", "pointwise", MAIN),
    # a workspace or a semaphore inside another op
    (MEMSET, "aten::sum", "reduction", AUX),
    (MEMSET, "aten::nll_loss_backward", "loss", AUX),
    (TO_NHWC, "aten::cudnn_batch_norm", "norm", AUX),
    # scattered sums: sorted first, then summed
    (SORT, "aten::embedding_dense_backward", "embedding", AUX),
    (SCAN, "aten::embedding_dense_backward", "embedding", AUX),
    ("void at::native::(anonymous namespace)::krn_partials_per_segment<long>(long*)", "aten::embedding_dense_backward", "embedding", AUX),
    ("void at::native::<unnamed>::compute_num_of_partial_segments<long>(const T1 *)", "aten::embedding_dense_backward", "embedding", AUX),
    ("void at::native::(anonymous namespace)::compute_grad_weight<float, long>(long const*)", "aten::embedding_dense_backward", "embedding", MAIN),
    ("void at::native::(anonymous namespace)::sum_and_scatter<float, long>(long const*)", "aten::embedding_dense_backward", "embedding", MAIN),
    ("void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float, long>(T1)", "aten::embedding_dense_backward", "embedding", MAIN),
    (SORT, "aten::_index_put_impl_", "indexing", AUX),
    ("void at::native::(anonymous namespace)::indexing_backward_kernel<float, 4>(long const*)", "aten::_index_put_impl_", "indexing", MAIN),
    # no op known: the name alone
    (SPLIT_K, "", "", AUX),
    (NVJET, "", "", MAIN),
    (MEMSET, "", "", MAIN),
]  # fmt: skip


@pytest.mark.parametrize(("name", "aten", "family", "expected"), ROLES)
def test_role(name: str, aten: str, family: str, expected: str) -> None:
    assert role(name, aten, family) == expected


PART_NAMES = [
    ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "dgrad"),
    (XWGRAD + "execute_segment_k_on_kernel__5x_cudnn", "wgrad"),
    ("void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x4_nhwc_unity_stride_align4>", "dgrad"),
    ("void cutlass_cudnn_train::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_256x128_16x3_nhwc_align4>", "wgrad"),
    ("_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolution_52Conv2dWgradOutputGradientTileAccessIterator", "wgrad"),
    ("void cudnn::detail::dgrad_engine<float, 512>(int, int, int, float const*, kernel_grad_params)", "dgrad"),
    ("void cudnn::detail::dgrad2d_alg1_1<float, 0, 6, 7, 5, 4, 5, false, true>(kernel_grad_params)", "dgrad"),
    ("void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int, kernel_grad_params)", "wgrad"),
    ("volta_scudnn_128x64_stridedB_small_nn_v1", "dgrad"),
    ("volta_scudnn_128x64_stridedB_splitK_small_nn_v1", "wgrad"),
    ("void at::native::(anonymous namespace)::conv_depthwise2d_backward_kernel<3, 1, float, int>(T1)", "dgrad"),
    ("void at::native::(anonymous namespace)::conv_depthwise2d_grad_weight_kernel<float, int>(T1)", "wgrad"),
    ("igemm_bwd_gtcx3_nhwc_bf16_bx0_ex0", "dgrad"),
    ("igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1", "wgrad"),
    ("void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float>>>(T1)", "bias"),
    ("nvjet_sm90_tst_128x96_64x7_1x2_h_bz_NNT", ""),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align4>(T1::Params)", ""),
    ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), PART_NAMES)
def test_part(name: str, expected: str) -> None:
    assert part_of(name) == expected


XDGRAD = "sm90_xmma_dgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1_strided_execute_kernel__5x_cudnn"
WGRAD = XWGRAD + "execute_segment_k_on_kernel__5x_cudnn"
WGRAD_CUTLASS = "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolution_52Conv2dWgradOutputGradientTileAccessIterator"
GEMM_NT = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align4>(T1::Params)"
GEMM_TN = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>(T1::Params)"
SUM = "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float>>>(T1)"
BOTH = ["dgrad", "wgrad"]
DEPTHWISE = "void at::native::(anonymous namespace)::conv_depthwise2d_"

# Every sequence that the H200 ResNet-50 captures hold (53 backward convolutions each, nsys and Kineto), LeNet's, and
# those of an A100 training run; beside each launch the part it works for.
CALLS = [
    # H200 ResNet-50, 1x1 convolutions: plain GEMMs, dgrad first
    (BOTH, [("nvjet_sm90_tst_128x96_64x7_1x2_h_bz_NNT", "dgrad"), (NVJET, "wgrad"), (SPLIT_K, "")]),
    (BOTH, [("nvjet_sm90_tst_64x112_64x9_4x2_h_bz_NNT", "dgrad"), ("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NTT", "wgrad")]),
    # 3x3 ones: both named, wgrad with its workspace and its sum
    (BOTH, [(XDGRAD, "dgrad"), (WGRAD, "wgrad")]),
    (BOTH, [(MEMSET, ""), (XDGRAD, "dgrad"), (INIT, ""), (WGRAD, "wgrad")]),
    (BOTH, [(MEMSET, ""), (XDGRAD, "dgrad"), (INIT, ""), (WGRAD, "wgrad"), (XWGRAD + "execute_split_k_kernel__5x_cudnn", "")]),
    (BOTH, [(MEMSET, ""), (XDGRAD, "dgrad"), (MEMSET, ""), (WGRAD, "wgrad")]),
    # strided 1x1: dgrad named, wgrad a GEMM
    (BOTH, [(MEMSET, ""), (XDGRAD, "dgrad"), (NVJET, "wgrad"), (SPLIT_K, "")]),
    # the first layer needs no dgrad
    (["wgrad"], [(MEMSET, ""), (PAD, ""), (MEMSET, ""), (WGRAD_CUTLASS, "wgrad"), (REDUCE, ""), (PAD, "")]),
    # LeNet
    (BOTH, [("void cudnn::engines_precompiled::scalePackedTensor_kernel<float, float>(long)", ""),
            ("void cudnn::detail::dgrad2d_alg1_1<float, 0, 6, 7, 5, 4, 5, false, true>(int)", "dgrad"),
            (MEMSET, ""), ("void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int)", "wgrad")]),
    (["wgrad"], [(MEMSET, ""), ("void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int)", "wgrad")]),
    # A100: GEMMs on NCHW; a GEMM and a named wgrad between layout changes
    (BOTH, [(GEMM_NT, "dgrad"), (GEMM_TN, "wgrad"), ("void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*)", "")]),
    (BOTH, [(GEMM_NT, "dgrad"), (TO_NHWC, ""), (TO_NHWC, ""), (MEMSET, ""), (WGRAD_CUTLASS, "wgrad"), (REDUCE, "")]),
    (BOTH, [(TO_NHWC, ""), (TO_NHWC, ""), (XDGRAD, "dgrad"), (TO_NCHW, ""), (TO_NHWC, ""), (WGRAD, "wgrad"), (TO_NCHW, "")]),
    # by construction: a bias sum in the same op; a bias that no kernel computes here (a nested aten::sum does)
    ([*BOTH, "bias"], [(GEMM_NT, "dgrad"), (GEMM_TN, "wgrad"), (SUM, "bias")]),
    ([*BOTH, "bias"], [(GEMM_NT, "dgrad"), (GEMM_TN, "wgrad")]),
    (["wgrad", "bias"], [(GEMM_TN, "wgrad"), (SUM, "bias")]),
    # per image GEMMs: half of them each
    (BOTH, [(GEMM_NT, "dgrad"), (GEMM_NT, "dgrad"), (GEMM_TN, "wgrad"), (GEMM_TN, "wgrad")]),
    # a name beats the order
    (BOTH, [(GEMM_NT, "dgrad"), (XDGRAD, "dgrad"), (GEMM_TN, "wgrad")]),
    (["dgrad"], [(GEMM_NT, "dgrad")]),
    # names beat ATen's order
    (BOTH, [(DEPTHWISE + "grad_weight_kernel<float, int>(T1)", "wgrad"), (DEPTHWISE + "backward_kernel<3, 1, float, int>(T1)", "dgrad")]),
    ([*BOTH, "bias"], [(DEPTHWISE + "grad_weight_kernel<float, int>(T1)", "wgrad"), (DEPTHWISE + "backward_kernel<3, 1, float, int>(T1)", "dgrad")]),
    (BOTH, [(WGRAD, "wgrad"), (GEMM_NT, "dgrad")]),
    # a name that says nothing does a gradient rather than the bias' sum
    ([*BOTH, "bias"], [("kernel_a", "dgrad"), ("kernel_b", "wgrad")]),
]  # fmt: skip


def is_main(name: str) -> bool:
    return role(name, "aten::convolution_backward", "conv") == MAIN


@pytest.mark.parametrize(("present", "call"), CALLS)
def test_parts_of_a_backward_convolution(present: list[str], call: list[tuple[str, str]]) -> None:
    assert assign_parts([name for name, piece in call if piece], present) == [piece for _, piece in call if piece]
    assert [is_main(name) for name, _ in call] == [bool(piece) for _, piece in call]


def test_work_stays_where_names_or_parts_are_strange() -> None:
    assert assign_parts([SPLIT_K], ["wgrad"]) == ["wgrad"]
    assert assign_parts(["kernel_a", "kernel_b"], ["left", "right"]) == ["left", "right"]


def test_without_a_mask_the_order_says_which_gradient_ran() -> None:
    assert assign_parts([WGRAD, GEMM_NT], BOTH, all_ran=False) == ["wgrad", "wgrad"]  # a first layer has no dgrad
    assert assign_parts([GEMM_NT, WGRAD], BOTH, all_ran=False) == ["dgrad", "wgrad"]


def test_no_part_present_assigns_none() -> None:
    assert assign_parts([NVJET], []) == [""]
    assert assign_parts([], BOTH) == []


KERNELS = [NVJET, GEMM_NT, GEMM_TN, SPLIT_K, MEMSET, TO_NHWC, "some_unknown_kernel"]


@given(st.lists(st.sampled_from(KERNELS), max_size=8), st.sets(st.sampled_from(["dgrad", "wgrad"]), min_size=1))
def test_each_present_part_gets_a_main_kernel_in_order(names: list[str], present: set[str]) -> None:
    used = assign_parts(names, list(present))
    assert len(used) == len(names)
    assert used == sorted(used, key=PARTS.index)
    assert set(used) <= present
    if len(used) >= len(present):
        assert set(used) == present
