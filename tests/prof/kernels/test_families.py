"""Families of kernels: the kind of work and the tensor cores that a name alone tells, and near names that tell less.

The names are those of captures and of the libraries' sources (``family_tables`` has the source of each pattern); what
each kernel does was read there.
"""

# ruff: noqa: E501 -- a kernel's name stands on one line, so that it can be searched for

import time

import pytest

from pyprof.prof.kernels.name_patterns import HELPERS, OTHERS, PRODUCTS, find_helper, find_other, find_product
from pyprof.prof.kernels.roles import AUX, MAIN, role
from pyprof.prof.kernels.tensor_cores import NONE, UNKNOWN, TensorCore, tensor_core
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.kinds import kinds
from pyprof.table.columns import Coded, Table
from tests.prof.kernels.test_tensor_cores import ALL, BY_DTYPE, NO_PRODUCT

BF16, FP16, FP8, FP4 = (TensorCore(1, p) for p in ("bf16", "fp16", "fp8", "fp4"))
SOME = TensorCore(1)  # on tensor cores; the name does not tell the precision of all products
GUESS = TensorCore(None, guess=True)  # Triton: the compiler decides
FA3 = "flash::CollectiveMainloopBwd<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, cutlass::bfloat16_t, float"
MOE = "cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<cute::tuple<int, int, int> >, cutlass::gemm::collective::CollectiveMma<"

PRODUCTS_OF_LIBRARIES = [
    # FlashAttention 1, 2, 3; FlashMLA
    ("void fmha_fwd_loop_kernel<FMHA_kernel_traits<256, 64, 16, 1, 4, 8u, __half>, true, false, false>(FMHA_fprop_params)", "attention", FP16),
    ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>, false>(flash::Flash_fwd_params)", "attention", FP16),
    ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::bfloat16_t>>(flash::Flash_fwd_params)", "attention", BF16),
    ("void flash::flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8, cutlass::bfloat16_t, 512>>(Flash_fwd_mla_params)", "attention", BF16),
    ("void flash::compute_attn_ws<Flash_fwd_kernel_traits<192, 128, 128, 12, 2, false, 1, cutlass::bfloat16_t, 128>, true, flash::SingleTileScheduler>(flash::Params)", "attention", BF16),
    ("_ZN5flash15compute_attn_wsI23Flash_fwd_kernel_traitsILi128ELi128ELi128ELi12ELi2ELb0ELi1EN7cutlass6half_tE", "attention", FP16),
    ("void cutlass::device_kernel<flash::FlashAttnBwd<" + FA3 + ">>(flash::Params)", "attention", BF16),
    ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnBwdSm90<" + FA3 + ">>>(T1::Params)", "attention", BF16),
    ("void cutlass::device_kernel<flash::enable_sm80_to_sm89<flash::FlashAttnFwdSm80<flash::CollectiveMainloopFwdSm80<4, cutlass::half_t>>>>(T1::Params)", "attention", FP16),
    ("fmha_fprop_fp16_128_64_sm80_kernel(Fused_multihead_attention_fprop_params)", "attention", FP16),
    # SageAttention: QK in int8, PV in fp16 or fp8
    ("void qk_int_sv_f16_attn_kernel<128u, 64u, 32u, 64u, 128u, (DataType)1, (QuantGranularity)3>(signed char*, signed char*)", "attention", SOME),
    ("void qk_int_sv_f8_attn_kernel<64u, 64u, 16u, 64u, 64u, (DataType)1>(signed char*, signed char*, signed char*)", "attention", SOME),
    # DeepGEMM and DeepSeek's own
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 2112u, 7168u, 1u, 64u, 96u, 128u>(float*, int*)", "GEMM", FP8),
    ("void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<0u, 4096u>(int*)", "GEMM", FP8),
    ("void deep_gemm::sm90_bf16_gemm_impl<(cute::UMMA::Major)0, 0u, 4096u, 7168u>(int*)", "GEMM", BF16),
    ("void deep_gemm::sm90_fp8_paged_mqa_logits<1u, 64u, 128u, 64u>(unsigned int)", "attention", FP8),
    ("void deep_gemm::sm100_fp4_mqa_logits<64u, 128u>(unsigned int)", "attention", FP4),
    ("void deep_gemm::fp8_wgrad_gemm_kernel<7168u, 4096u, 128u>(unsigned int)", "GEMM", FP8),
    ("void cutlass::device_kernel<dpsk::grouped_gemm::cuda::m_grouped_fp8_ptp128c::GemmKernel>(dpsk::grouped_gemm::cuda::m_grouped_fp8_ptp128c::GemmKernel::Params)", "GEMM", FP8),
    # CUTLASS on Hopper and Blackwell
    ("void cutlass::device_kernel<" + MOE + "cutlass::gemm::MainloopSm90ArrayTmaGmmaWarpSpecializedFP8FastAccum<4>, cutlass::float_e4m3_t*>>>(T1::Params)", "GEMM", FP8),
    ("void cutlass::device_kernel<" + MOE + "cutlass::gemm::MainloopSm100TmaUmmaWarpSpecializedBlockScaled<5>, cutlass::nv_float4_t<cutlass::float_e2m1_t>>>>(T1::Params)", "GEMM", FP4),
    ("void cutlass::device_kernel<" + MOE + "cutlass::gemm::MainloopSm120TmaWarpSpecializedBlockScaled<3>, cutlass::mx_float6_t<cutlass::float_e3m2_t>>>>(T1::Params)", "GEMM", TensorCore(1, "fp6")),
    ("cutlass3x_sm100_bstensorop_gemm_ue8m0xe4m3_ue8m0xe4m3_f32_void_bf16_128x128x128_1x1x1_0_tnt", "GEMM", FP8),
    ("kernel_cutlass_kernel___main__BlackwellFusedMultiHeadAttentionForward_object_at__TiledMMA_ThrLayoutVMNK11110000", "attention", SOME),
    # Marlin
    ("void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 1, 8, 8, 4, false>(int4 const*, int4 const*)", "GEMM", BF16),
    ("void marlin_moe_wna16::Marlin<__half, 8ul, 256, 1, 8, 8, 4, 8, false>(int4 const*)", "GEMM", FP16),
    ("_ZN6marlin6MarlinI6__halfLi256ELi1ELi8ELi8ELi4ELb0EEEvPK4int4", "GEMM", FP16),
    # FBGEMM
    ("_kernel_matmul_fp8_row", "GEMM", GUESS),
    ("_fbgemm_grouped_gemm", "GEMM", GUESS),
    # xFormers
    ("_fwd_kernel_splitK", "attention", GUESS),
    # SGLang, vLLM
    ("_fwd_grouped_kernel_stage1", "attention", GUESS),
    ("_w8a8_block_fp8_matmul", "GEMM", TensorCore(1, "fp8", guess=True)),
    ("void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2, 16, 8, 2, 1>(int, int, int)", "GEMM", UNKNOWN),
    # A cast inside a product makes no convolution of it.
    ("void cutlass::Kernel2<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::threadblock::MmaMultistage<MmaTensorOp<cutlass::bfloat16_t>, cutlass::NumericArrayConverter<cutlass::bfloat16_t, float>>>>(T1::Params)", "GEMM", BF16),
    # Mamba
    ("_bmm_chunk_fwd_kernel", "recurrent layers", GUESS),
    ("_chunk_scan_fwd_kernel", "recurrent layers", GUESS),
    ("void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, true, c10::BFloat16, c10::BFloat16>>(ConvParamsBase)", "convolution", NONE),
    # AMD
    ("igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt32x256x32_wt16x64x4_ws1x1_wr1x2_ta1x4x1x1_1x8x1x32_tb1x4x8x1_1x8x1x32_gkgs", "convolution", BF16),
    ("naive_conv_packed_fwd_nchw_float_double_float", "convolution", NONE),
    ("void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0, 1, 128, 256, false, 4, 1>(T1)", "attention", BF16),
    ("_ZN5aiter33paged_attention_ll4mi_QKV_mfma16_kernelI13__hip_bfloat16EEvv", "attention", BF16),
    ("void paged_attention_ll4mi_QKV_kernel<__hip_bfloat16, __hip_bfloat16, 64>(T1)", "attention", NONE),
    ("aiter::fmha_fwd_hd128_bf16_causal_group", "attention", BF16),
    ("aiter::pa_bf16_noquant_gqa8_1tg_4w", "attention", BF16),
    ("aiter::pa_bf16_pertokenFp8_gqa8_2tg_4w", "attention", SOME),
    ("aiter::mla_dec_stage1_bf16_a16w16_subQ16_mqa16", "attention", BF16),
    ("aiter::mla_pfl_qh192_vh128_m32x8_n128x1_causal1", "attention", SOME),
    ("aiter::mla_a8w8_qh16_m16x4_n16x1_coex0_mask1_ps", "attention", FP8),
    ("aiter::fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256", "GEMM", FP8),
    ("aiter::fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_16x256", "GEMM", FP4),
    ("aiter::fmoe_bf16_noquant_g1u1_silu_32x512", "GEMM", BF16),
    ("aiter::fmoe_kernel_func", "GEMM", SOME),
    ("aiter::f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256", "GEMM", FP4),
    ("_ZN5aiter29bf16gemm_fp32bf16_tn_96x64_pfEv", "GEMM", BF16),
    ("void ck_tile::kentry<2, ck_tile::FmhaBatchPrefillWithPagedKVCacheKernel<ck_tile::BlockFmhaPipeline<ck_tile::bf16_t>>>(T1)", "attention", BF16),
    ("_ZN7ck_tile6kentryILi2ENS_13FmhaFwdKernelINS_21BlockFmhaPipelineQRKSINS_24BlockFmhaPipelineProblemIDF16bDF16b", "attention", BF16),
    ("void ck_tile::kentry<2, ck_tile::FusedMoeGemmKernel<_Float16>>(T1)", "GEMM", FP16),
    ("_ZN7ck_tile6kentryILi2ENS_17QuantGemmKernelINS_22GemmTilePartitionerE", "GEMM", SOME),
    ("void ck_tile::kentry<1, ck_tile::GroupedConvolutionForwardKernel<_Float16>>(T1)", "convolution", FP16),
    ("void ck::kernel_moe_gemm_2lds<ck::GridwiseMoeGemm<ck::f8_t>>(T1)", "GEMM", FP8),
    ("Custom_Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_shortname0_gfx942", "GEMM", BF16),
    ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", "GEMM", TensorCore(1, "bf16", guess=True)),
    ("_p_matmul_ogs_NTN", "GEMM", GUESS),
    # A product of somebody's: what ran it is not known.
    ("void batched_matrix_multiplication_matrix_core_64x64x4<64u, 64u, 8u>(unsigned int, unsigned int)", "GEMM", UNKNOWN),
    ("volta_gcgemm_32x32_nt", "convolution", NONE),
]  # fmt: skip

HELPERS_OF_LIBRARIES = [
    # Grouped GEMMs: pointers, sizes, descriptors, layouts
    ("dpsk::grouped_gemm::cuda::utils::fill_tensormaps_kernel(CUtensorMap_st, CUtensorMap_st*, void*, int, long)", "indexing and sorting"),
    ("compute_gemm_pointers(float2 **, const float2 *, int, const float2 *, int, const float2 *, int, int)", "indexing and sorting"),
    ("void __get_group_gemm_starts<cutlass::float_e4m3_t, cutlass::bfloat16_t>(int*, cutlass::float_e4m3_t**)", "indexing and sorting"),
    ("void int4_fp8_get_group_gemm_starts<cutlass::float_e4m3_t>(int*)", "indexing and sorting"),
    ("compute_problem_sizes(int const*, int*, int*, int*, int, int, int)", "indexing and sorting"),
    ("compute_expert_offsets(int const*, int*, int*, int)", "indexing and sorting"),
    ("void tensorrt_llm::kernels::cutlass_kernels::computeStridesTmaWarpSpecializedKernel<__nv_fp8_e4m3>(long const*)", "indexing and sorting"),
    ("void at::cuda::detail::prepare_grouped_gemm_data<cutlass::bfloat16_t>(T1*)", "indexing and sorting"),
    ("void setup_grouped_gemm_kernel(int*, long)", ""),  # no table in the name: unknown, so not claimed
    # FlashAttention, FlashMLA, xFormers, vLLM, AITER, SageAttention
    ("void flash_bwd_clear_dkvaccum_kernel<Flash_bwd_kernel_traits<64, cutlass::bfloat16_t>>(Flash_bwd_params)", "attention"),
    ("void flash::flash_fwd_mla_combine_kernel<cutlass::bfloat16_t, float, long, 512, 32>(Flash_fwd_mla_params)", "attention"),
    ("get_mla_metadata_kernel(Mla_metadata_params)", "attention"),
    ("void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, __hip_bfloat16, 128, 128, 256, 3, false>(T1)", "attention"),
    ("void vllm::paged_attention_v2_reduce_kernel<__nv_bfloat16, 128, 128, 512>(T1)", "attention"),
    ("void kn_mla_reduce_v1<MlaReduceKernelV1Traits<512, 16>>(MlaReduceKernelV1Params)", "attention"),
    ("_splitK_reduce", "attention"),
    ("_fwd_kernel_stage2", "attention"),
    ("reduce_segments", "attention"),
    ("void QuantInt8Kernel<128u, 64u, 8u, true, false, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*)", "copies and casts"),
    ("void SubMeanKernel<128u, 64u, 8u, __half>(__half*, __half*, __half*)", "copies and casts"),
    # MIOpen: SubTensorOp is no TensorOp
    ("SubTensorOpWithScalar1d", "fills"),
    ("SubTensorOpWithCastTensor1d", "copies and casts"),
    ("SubTensorOpWithSubTensor4d", "copies and casts"),
    ("miopenGcnAsmWinogradXformData_0_3_6_2", "convolution"),
    # DeepGEMM, Transformer Engine, Marlin, triton_kernels
    ("void deep_gemm::transpose_fp32<512u, 64u, 56u, 57u>(float const*, float*, unsigned int)", "copies and casts"),
    ("void deep_gemm::smxx_clean_logits<256u, 64u>(unsigned int)", "fills"),
    ("void transformer_engine::swizzle_row_scaling_kernel<int4, 128, 4>(void const*, void*, int, int)", "copies and casts"),
    ("void marlin::gptq_marlin_repack_kernel<(int)256, (int)4, (bool)0, (bool)0>(const unsigned int *, const unsigned int *)", "copies and casts"),
    ("_finalize_matmul_scatter_bf16", "GEMM"),
]  # fmt: skip

REST = [
    # DeepEP, NVSHMEM, MORI, custom all-reduces
    ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*, long*)", "communication"),
    ("void deep_ep::internode_ll::combine<false, 3, 10, 7168>(void*, void*, int*, void*)", "communication"),
    ("void dpsk::ep::internode::cached_notify<false>(int, int, int, int, int*)", "communication"),
    ("void deep_ep::internode_ll::clean_low_latency_buffer<1024>(long*, int)", "communication"),
    ("_ZN7deep_ep9intranode8dispatchILi8ELi768ELi8192EEEvP4int4", "communication"),
    ("void deep_ep::elastic::dispatch_impl<8, 64>(T1)", "communication"),
    ("void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*, int*, int*, bool*, int, int, int, int)", "indexing and sorting"),
    ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", "indexing and sorting"),
    ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)", "communication"),
    ("void mori::moe::EpDispatchInterNodeKernel<__hip_bfloat16>(mori::moe::EpDispatchCombineArgs<__hip_bfloat16>)", "communication"),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)", "communication"),
    ("kuserbuffers_pushrecv(int, int, int*, int*, int*, int)", "communication"),
    ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(int)1>(T1)", "communication"),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "communication"),
    # Normalisation, softmax, losses: Apex, Transformer Engine, Liger, ATen, ck_tile, AITER
    ("void cuApplyLayerNorm<float, float, float>(float*, float*, float*, float const*, int, int, float)", "normalisation"),
    ("void transformer_engine::normalization::rmsnorm_fwd_general_kernel<transformer_engine::normalization::Kernel_traits<1>>(T1)", "normalisation"),
    ("_rms_norm_forward_kernel", "normalisation"),
    ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*, float*, float*)", "normalisation"),
    ("void at::native::(anonymous namespace)::cunn_SpatialSoftMaxForward<float, int, LogSoftMaxForwardEpilogue>(float*)", "softmax"),
    ("triton_red_fused__log_softmax_nll_loss_forward_2", "softmax"),
    ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_27Rmsnorm2dFwdPipelineProblemIDF16b", "normalisation"),
    ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib", "normalisation"),
    ("MIOpenBatchNormFwdTrainSpatial", "normalisation"),
    ("liger_cross_entropy_kernel", "loss"),
    ("void welford_kernel<float, float, float>(float const*, float*, float*, int, int, int)", "normalisation"),
    ("void lru_cache_insert_kernel<float, float>(at::PackedTensorAccessor64<float, 1ul>)", "embedding"),
    ("element_mul_kernel", "element-wise"),
    ("void cunn_SoftMaxXEntropyForward<4, c10::Half, float, float, c10::Half, SoftMaxForwardEpilogue>(float*)", "loss"),
    ("void scaled_masked_softmax_warp_forward<__half, __half, float, 10>(__half*, __half const*)", "softmax"),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, true, false>(float*, float const*, int)", "softmax"),
    # Rotary positions, gates, caches, experts
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)", "element-wise"),
    ("void transformer_engine::fused_rope_forward_kernel<__nv_bfloat16>(T1)", "element-wise"),
    ("_triton_rope", "element-wise"),
    ("void aiter::kn_entry_2c_sbhd_cached_indirect_inplace<aiter::OpCachedFwd, 0>(T1)", "element-wise"),
    ("_swiglu_forward_kernel", "element-wise"),
    ("void transformer_engine::dgated_act_kernel<4, float, __nv_bfloat16, __nv_bfloat16, transformer_engine::Empty>(T1)", "element-wise"),
    ("_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i", "element-wise"),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>(T1)", "copies and casts"),
    ("void vllm::moe::moe_align_block_size_kernel<int>(int*, int*, int*)", "indexing and sorting"),
    ("void ck_tile::kentry<2, ck_tile::MoeSortingMultiPhaseKernel_P0_v2<ck_tile::MoeSortingProblemMp<int, float, int>>>(T1)", "indexing and sorting"),
    ("void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::finalize::KernelParams<cutlass::bfloat16_t>>(T1)", "reductions"),
    # Casts: Transformer Engine, vLLM, FBGEMM, DeepSeek, SageAttention's Triton
    ("void transformer_engine::(anonymous namespace)::block_scaled_1d_cast_transpose_kernel<true, true>(T1)", "copies and casts"),
    ("void transformer_engine::mxfp8::quantize_kernel::quantize_mxfp8_kernel<true>(T1)", "copies and casts"),
    ("void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16, c10::Float8_e4m3fn>(T1)", "copies and casts"),
    ("_kernel_quantize_fp8_row", "copies and casts"),
    ("void cuda::per_token_cast_to_fp8_with_channels<__nv_bfloat16, 128, false, 128, false>(T1)", "copies and casts"),
    ("quant_per_block_int8_kernel", "copies and casts"),
    ("void dpsk::grouped_gemm::cuda::utils::transpose<512, 128, 4, 4>(unsigned char const*, unsigned char*, int, int, int, int)", "copies and casts"),
    ("__amd_rocclr_fillBufferAligned", "fills"),
    ("cupy_fill", "fills"),
    ("memcpy32_post", "copies and casts"),
    ("memset32_post", "fills"),
    ("cupy_copy__float64_float64", "copies and casts"),
    ("cupy_true_divide__float64_float64_float64", "element-wise"),
    # State-space layers
    ("void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16, 1, false, true, true, true, float>>(SSMParamsBase)", "recurrent layers"),
    ("_state_passing_fwd_kernel", "recurrent layers"),
    ("chunk_gated_delta_rule_fwd_h_kernel", "recurrent layers"),
    # Recommendation models, ATen
    ("void bounds_check_indices_kernel<long>(at::GenericPackedTensorAccessor<long, 1ul>)", "indexing and sorting"),
    ("void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float>(T1)", "embedding"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4>>(T1)", "optimizer"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, at::native::Copy<long, long>>(T1)", "copies and casts"),
    ("void at::native::index_elementwise_kernel<128, 4>(T1)", "indexing and sorting"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(T1)", "reductions"),
    ("void at::native::(anonymous namespace)::max_pool_forward_nchw<float>(int)", "pooling"),
    ("void at::native::(anonymous namespace)::upsample_bilinear2d_out_frame<float, float>(int)", "resizing"),
    ("void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, 1, 4>(T1)", "random numbers"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)", "element-wise"),
    ("void tensorrt_llm::kernels::masked_multihead_attention_kernel<__half, 128>(T1)", "attention"),
]  # fmt: skip

# Near names: words of a family inside other words, in namespaces, in types, and plain names that say too little.
NEAR = [
    "dispatch",
    "combine",
    "void kernel<float>(float*)",
    "void my_app::dispatch<8>(int*)",
    "void node::combine_rows<float>(float*)",
    "void europe_kernel<float>(float*)",  # no rope
    "void Marlin_fishing(int)",
    "void marlin::helper(int)",
    "void gemm::prologue<float>(float*)",  # a namespace, no product
    "void scale_rows<float>(cutlass::gemm::GemmCoord, float*)",  # a type of an argument
    "attention_mask_builder(int*)",
    "void lambda_kernel(float*)",
    "aiter::nothing(int*)",
    "chunk_of_data(int*)",
    "void sageattn_prepare(int*)",
    "void flashlight::step(int*)",
    "void mamba::step(float*)",
    "void quantum_step_kernel(float*)",
    "quantile_row_kernel",
    "void broadcast_rows(float*)",
    "nvshmem_free",
]


def _kind(name: str) -> str:
    """The kind of a row that has nothing but a kernel's name."""
    table = Table(1, {"kShortName": Coded.of(["k"]), "kLongName": Coded.of([name]), "kind": Coded.of(["kernel"])})
    return kinds(table, annotate(table)).texts()[0]


@pytest.mark.parametrize(("name", "kind", "expected"), PRODUCTS_OF_LIBRARIES)
def test_a_product_tells_its_kind_and_its_tensor_cores(name: str, kind: str, expected: TensorCore) -> None:
    assert (_kind(name), tensor_core(name, "")) == (kind, expected)
    assert role(name, "mylib::op", "gemm") == MAIN


@pytest.mark.parametrize(("name", "kind"), [row for row in HELPERS_OF_LIBRARIES if row[1]])
def test_a_helper_does_no_product(name: str, kind: str) -> None:
    assert _kind(name) == kind
    assert tensor_core(name, "gemm") == NONE
    assert role(name, "mylib::grouped_mm", "gemm") == AUX


@pytest.mark.parametrize(("name", "kind"), REST)
def test_other_kernels_tell_their_kind_and_no_product(name: str, kind: str) -> None:
    assert _kind(name) == kind
    assert tensor_core(name, "") is None
    assert find_helper(name) is None


@pytest.mark.parametrize("name", NEAR)
def test_a_near_name_is_unknown(name: str) -> None:
    assert (_kind(name), tensor_core(name, ""), find_helper(name)) == ("other", None, None)


def test_a_fused_kernel_is_not_the_product_in_its_name() -> None:
    """torch.compile names a kernel after all ops that it fused, or that stood next to it."""
    for name in ("triton_poi_fused_addmm_gelu_matmul_3", "triton_poi_fused__scaled_dot_product_flash_attention_0"):
        assert _kind(name) == "element-wise"
        assert find_product(name) is None


def test_every_row_decides_a_name_of_these_tests() -> None:
    rows = [*ALL, *BY_DTYPE, *PRODUCTS_OF_LIBRARIES, *HELPERS_OF_LIBRARIES, *REST]
    names = [*NO_PRODUCT, *(row[0] for row in rows)]
    deciding = {id(found) for name in names for found in (find_helper(name), find_other(name))}
    deciding |= {id((find_product(name) or [None])[0]) for name in names}
    assert [row.pattern.regex.pattern for row in (*HELPERS, *PRODUCTS, *OTHERS) if id(row) not in deciding] == []


@pytest.mark.parametrize("rows", [HELPERS, PRODUCTS, OTHERS])
def test_every_row_has_a_source(rows: tuple) -> None:  # type: ignore[type-arg]
    assert all(row.seen for row in rows)
    assert len({row.pattern.regex.pattern for row in rows}) == len(rows)


HOSTILE = [
    "_compute_gemm",
    "compute_gemmpointe",
    "aiter::mla_bf16",
    "aiter1111",
    "ck_tile::ck_tileGem",
    "grouped_gemm::fp8::",
    "internode::dispatc",
    "deep_ep::deep_ep1",
    "nvshmem_nvshmemi_pu",
    "_matmul_ogs_NN_xbf16",
    "per_token_per_token",
    "quantquantkerne",
    "cuda::quant",
    "Compute_InternalGradients",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_name_takes_linear_time(piece: str) -> None:
    """Twice as long takes about twice as long. 64 thousand characters take under 1 s here."""
    took = []
    for length in (32768, 65536):
        name = piece * (length // len(piece))
        start = time.process_time()
        find_helper(name), find_product(name), find_other(name)
        took.append(time.process_time() - start)
    assert took[1] < 5
    assert took[1] < 4 * took[0] + 0.2


def test_a_text_that_is_looked_for_first_hides_no_match() -> None:
    rows = [*ALL, *BY_DTYPE, *PRODUCTS_OF_LIBRARIES, *HELPERS_OF_LIBRARIES, *REST]
    names = [name for row in rows for name in (str(row[0]), str(row[0]).lower())]
    for row in (*HELPERS, *PRODUCTS, *OTHERS):
        assert all(row.pattern.search(name) for name in names if row.pattern.regex.search(name))
