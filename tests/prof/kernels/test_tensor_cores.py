"""Kernel names seen on real GPUs, or spelled in their libraries' sources, and what each did: judged by reading."""

# ruff: noqa: E501 -- a kernel's name stands on one line, so that it can be searched for

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.prof.kernels.tensor_cores import NONE, UNKNOWN, TensorCore, tensor_core

BF16, FP16, TF32, FP8, FP4 = (TensorCore(1, p) for p in ("bf16", "fp16", "tf32", "fp8", "fp4"))
INT8, FP64 = TensorCore(1, "int8"), TensorCore(1, "fp64")
SIXTEEN = TensorCore(1)  # on tensor cores; bf16 or fp16, the name does not tell

XGEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_"
XWGRAD = (
    "sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_warpgroupsize1x1x1_g1_"
)
XDGRAD = (
    "sm90_xmma_dgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x128x64_warpgroupsize2x1x1_g1_"
)
FLASH = "flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t, "
MI300 = "_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN_LDSB0_AFC1_AFEM1_AFEM1_ASEM1_CLR1_CADS0_DTVA0_DTVB0"
CK = "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<ck::tensor_layout::gemm::RowMajor, "

GEMM = [
    # V100: PyProf's own capture, Kineto's 2021 sample, param's linear; fp16 names from cuBLAS 10 and 11 profiles
    ("volta_sgemm_64x32_sliced1x4_tn", NONE),
    ("volta_sgemm_128x64_nn", NONE),
    ("volta_cgemm_32x32_tn", NONE),
    ("volta_fp16_sgemm_fp16_128x32_nn", NONE),  # fp16 stored, f32 multiplied
    ("volta_hgemm_128x64_nn", NONE),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", FP16),
    ("volta_h884gemm_256x128_ldg8_nt", FP16),
    ("cutlass_70_tensorop_f16_s884gemm_f16_128x128_nn_align8", FP16),
    # T4
    ("turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_stages_32x1_tn", FP16),
    ("turing_h1688gemm_128x128_ldg8_nn", FP16),
    ("turing_int8_i8816gemm_int8_128x128_ldg16_stages_64x3_nt", INT8),
    ("void cutlass::Kernel<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1>(Params)", BF16),
    # A100
    ("ampere_sgemm_128x64_tn", NONE),
    ("ampere_sgemm_32x32_sliced1x4_nt", NONE),
    ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn", FP16),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_relu_f2f_stages_32x5_tn", BF16),
    ("ampere_bf16_s1688gemm_bf16_128x128_ldg8_f2f_stages_32x1_tn", BF16),
    ("ampere_h16816gemm_128x64_ldg8_stages_64x4_tn", FP16),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(T1::Params)", TF32),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688tf32gemm_256x128_16x3_nn_align4>(T1::Params)", TF32),
    ("void cutlass::Kernel<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(T1::Params)", FP64),
    ("void cutlass::Kernel<cutlass_80_tensorop_i16832gemm_s8_256x128_64x3_tn_align16>(T1::Params)", INT8),
    ("void cutlass::Kernel2<cutlass_80_tensorop_z884gemm_32x16_16x3_nn_align1>(T1::Params)", FP64),
    ("void cutlass::Kernel<cutlass_80_tensorop_i16864gemm_s4_256x128_128x3_tn_align32>(T1::Params)", TensorCore(1, "int4")),
    ("void cutlass::Kernel<cutlass_80_tensorop_s16816gemm_grouped>(T1::Params)", SIXTEEN),
    ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(T1::Params)", NONE),
    ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_execute_kernel", FP16),
    ("sm80_xmma_gemm_i8i32_i8i32_i32_tn_n_tilesize256x128x64_stage3_warpsize4x2x1_tensor16x8x32_kernel", INT8),
    ("sm80_xmma_sparse_gemm_f16f16_f16f32_f32_nt_n_tilesize128x128x64_stage3_warpsize2x2x1_sptensor16x8x32", FP16),
    ("void internal::gemvx::kernel<int, int, float, float, float, float, false, true, false, false, 7>(T13)", NONE),
    ("void gemv2T_kernel_val<int, int, double, double, double, double, (int)128, (int)16>(T13, T6, T6)", NONE),
    ("void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024, false>(cublasGemvParams)", NONE),
    ("void gemmk1_kernel<float, 256, 5, false, false, false, false, cublasGemvTensorStridedBatched<float const>>", NONE),
    ("void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, float>>(T4)", NONE),
    ("void magma_sgemm_kernel", NONE),
    ("void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>>(float const*, float)", NONE),
    ("void fermiPlusCgemmLDS128_batched<true, false, false, false, 4, 4, 4, 3, 3, true>(float2**)", NONE),
    ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false, cublasGemvTensor<float const>>(T8)", NONE),
    # H100, H200
    ("sm90_xmma_gemm_cf64cf64_f64cf64_cf64_nn_n_tilesize64x64x16_stage3_warpsize2x2x1_tensor16x8x16", FP64),
    ("cutlass3x_sm120_bstensorop_s16832gemm", FP8),  # cut by a profiler's table
    ("void prepare_grouped_gemm_data<cutlass::bfloat16_t>(T1*)", NONE),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas", BF16),
    ("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas", TF32),
    ("sm90_xmma_gemm_f64f64_f64f64_f64_nt_n_tilesize128x128x16_stage3_warpsize4x2x1_tensor16x8x16", FP64),
    ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_cgasize1x2x1_stage4_gmmastage2_tensor64x128x32", FP8),
    ("sm90_xmma_gemm_i8i32_i8i32_f32_tn_n_tilesize128x128x128_cgasize1x2x1_stage4_igmma64x128x32", INT8),
    (XGEMM + "execute_kernel__5x_cublas", NONE),
    (XGEMM + "execute_split_k_kernel__5x_cublas", NONE),
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN", BF16),
    ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTN", FP16),
    ("nvjet_tss_128x128_64x6_2x1_v_bz_NTN", BF16),  # f32 out
    ("nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_coopA_algo2_TNT", FP8),
    ("nvjet_sss_tf32_128x256_TNT", TF32),
    ("nvjet_sm100_xyz_128x256_TNT", UNKNOWN),  # letters we have not seen
    ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(T1::Params)", BF16),
    ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(T1::Params)", BF16),
    ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_i161616gemm_s8_forwardCompat_128x128_32x2_nn_align4>(T1::Params)", INT8),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)", NONE),
    ("cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x128x64_2x1x1_0_ntn_align8_warpspecialized_pingpong", BF16),
    ("cutlass3x_sm90_tensorop_h64x128x16gemm_f16_f16_f16_void_f16_128x128x64_2x1x1_0_ttn_align8_warpspecialized", FP16),
    ("cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_128x128x128_2x1x1_0_tnt_align16", FP8),
    ("cutlass3x_sm90_tensorop_gemm_f16_f16_f32_f16_f32_128x128x64_2x1x1_0_ntn_align8", FP16),
    ("cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x64x16_1x1x1_3_tnn_align1_bias_f32_relu", NONE),
    ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>, cutlass::gemm::collective::"
     "CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4>, cutlass::float_e4m3_t, float>>>", FP8),
    ("void cutlass::device_kernel<X<cute::MMA_Atom<cute::SM90_64x128x16_F32BF16BF16_SS<(cute::GMMA::Major)0>>>>", BF16),
    ("void sgemm_largek_lds64<true, false, 5, 5, 4, 4, 4, 34>(float*, float const*, float const*, int)", NONE),
    ("void scal_kernel<float, float, 1, true, 6, 5, 5, 3>(cublasTransposeParams<float>, float const*, float*)", NONE),
    ("void cub::DeviceScanInitKernel<cub::ScanTileState<int, true> >(cub::ScanTileState<int, true>, int)", NONE),
    ("void cublasLt::epilogue::impl::globalKernel<8, 32, float, float, float, true, true, 1>(int, int, long)", NONE),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, false>(T4)", NONE),
    ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)", NONE),
    ("Memset (Device)", NONE),
    # B200
    ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", BF16),
    ("nvjet_sm100_tst_64x8_64x16_2x4_h_bz_splitK_TNT", BF16),
    ("nvjet_qqtst_128x256_128x6_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT", FP8),
    ("nvjet_ootst_128x256_256x4_2x1_2cta_v_bz_Avec16UE4M3_Bvec16UE4M3_TNT", FP4),
    ("cutlass3x_sm120_bstensorop_s16864gemm_block_scaled_ue4m3xe2m1_ue4m3xe2m1_f32_bf16_bf16_128x128x256_1x1x1_0_tnn", FP4),
    ("cutlass3x_sm100_bstensorop_s256x192x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_f16_f16_256x192x256_0_tnn", FP4),
    ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut", FP8),
    ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_swiGlu", FP8),
    ("kernel_cutlass_kernel_flashinfergemmkernelsdense_blockscaled_gemm_sm100Sm100BlockScaledPersistent", SIXTEEN),
    # MI250, MI300
    ("Cijk_Alik_Bljk_B_BS_BH" + MI300, BF16),
    ("Cijk_Alik_Bljk_BBS_BH" + MI300, BF16),
    ("Cijk_Alik_Bljk_HHS_BH" + MI300, FP16),
    ("Cijk_Alik_Bljk_F8F8S_BH" + MI300, FP8),
    ("Cijk_Alik_Bljk_I8I8I_HPA" + MI300, INT8),
    ("Cijk_Ailk_Bjlk_DB" + MI300, FP64),
    ("Cijk_Ailk_Bjlk_SB" + MI300, TensorCore(1, "fp32")),
    ("Cijk_Ailk_Bjlk_DB_MT48x64x4_SE_APM1_AF0EM1_GRVW2_GSU1_ISA906_IU1_K1_TT6_4_WG8_16_1_WGM4", NONE),
    ("Cijk_SS_BiasS_HAS_ScaleAlphaVec_PostGSU16_VW4", NONE),
    (CK + "ck::tensor_layout::gemm::ColumnMajor, unsigned short, _Float16>>(T1)", FP16),
    ("Custom_Cijk_Alik_Bljk_F8BS_BH_Bias_shortname1_gfx950", FP8),
    ("Cijk_SB_GB_BetaOnly", NONE),
    ("aiter::bf16gemm_fp32bf16_tn_96x64_splitk", BF16),
    # Triton, and templates that say no more than their instruction
    ("matmul_kernel", TensorCore(None, guess=True)),
    ("my_gemm_wgmma_bf16_kernel", BF16),  # made up
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, 1u, 128u, 128u>(T1)", FP8),
    ("void marlin::Marlin<__nv_bfloat16, 256, 1, 8, 8, 4, false, 8>(int4 const*)", BF16),
    ("void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaPipelined<MmaSimt<float>>>>", NONE),
    # nobody's
    ("void cutlass::gemm_nn_128x128<float>(float*, float*)", UNKNOWN),
    ("void warptiling<(int)128, (int)128, (int)16>(int, int, int, float *, float *, float *)", UNKNOWN),
]  # fmt: skip

CONV = [
    ("volta_scudnn_128x64_relu_xregs_large_nn_v1", NONE),
    ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", NONE),
    ("volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", FP16),
    ("volta_gcgemm_32x32_nt", NONE),
    ("turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1", FP16),
    ("cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1", NONE),
    ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3_warpsize1x2x1_g1_ffma_aligna4", NONE),
    ("sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_g1_tensor16x8x8_execute", TF32),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tensor16x8x8_execute_split_k_kernel", NONE),
    (XWGRAD + "execute_segment_k_on_kernel__5x_cudnn", BF16),
    (XWGRAD + "execute_split_k_kernel__5x_cudnn", NONE),
    (XDGRAD + "strided_execute_kernel__5x_cudnn", BF16),
    ("void cask_plugin__5x_cudnn::xmma__5x_cudnn::init_device_workspace_kernel<xmma__5x_cudnn::implicit_gemm::"
     "wgrad_indexed::Warp_specialized_params<xmma__5x_cudnn::Grid_constant_params>>(T1, bool)", NONE),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(T1)", BF16),
    ("void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x4_nhwc_unity_stride_align4>", TF32),
    ("_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionI_ZNS4_4warp11MmaTensorOpINS6_"
     "10tfloat32_tENS_6layout", TF32),
    ("void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::reduction::kernel::ReduceSplitK<cutlass__5x_cudnn::MatrixShape<4, "
     "256>, cutlass__5x_cudnn::epilogue::thread::LinearCombination<cutlass__5x_cudnn::bfloat16_t, 8, float>>>", NONE),
    ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, int)", NONE),
    ("void explicit_convolve_sgemm<float, int, 128, 6, 7, 3, 3, 5, 0, false>(int, int, int, float const*)", NONE),
    ("void cudnn::fmha_reduce_head<1>(const void *)", NONE),
    ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int, int, int, float const*)", NONE),
    ("void wgrad_alg0_engine<float, (int)128, (int)5, (int)5, (int)3>(int, int, int, const T1 *, int)", NONE),
    ("void cudnn::detail::dgrad2d_alg1_1<float, 0, 6, 7, 5, 4, 5, false, true>(int, int, int, float const*)", NONE),
    ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*)", NONE),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(cudnn::winograd_nonfused::Params)", NONE),
    ("void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*, int, int, int, int)", NONE),
    ("void pointwise_mult_and_sum_complex<float2, 8, 4>(float2*, float2*, float2*, int, int)", NONE),
    ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(T1)", NONE),
    ("void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true, (cudnnKernelDataType_t)0>(int)", NONE),
    ("void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*, float, int, int)", NONE),
    ("void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(T1)", NONE),
    ("void nhwcSliceCKernel<float, float, float, true, (cudnnKernelDataType_t)0>(cudnn::reduced_divisor, int, int, int, float const*)", NONE),
    ("void xmma__5x_cudnn::implicit_gemm::strided_dgrad_indexed::kernel_helper_stage_0<xmma__5x_cudnn::implicit_gemm::strided_dgrad_indexed::Params_pre_hopper>(T1)", NONE),
    ("wgrad2d_shmem_tiling", NONE),
    ("void cudnn::engines_precompiled::scaleTensor_kernel<float, float, 16, 16>(cudnnTensor4dStruct, float*, float)", NONE),
    ("void cudnn::engines_precompiled::scalePackedTensor_kernel<float, float>(long, float*, float)", NONE),
    ("void cudnn::detail::convertTensor_kernel<float, float, float, (cudnnKernelDataType_t)0>(float, float const*)", NONE),
    ("cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)", NONE),
    ("void transpose_readWrite_alignment_kernel<float2, float2, 1, false, 6, 4, 4>(cublasTransposeParams<float2>)", NONE),
    ("void cudnn::cnn::im2col4d_kernel<float, long>(cudnn::cnn::im2col4d_params, cudnnConvolutionStruct)", NONE),
    ("void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, false, false, 0, 0, int, float>(T1)", NONE),
    ("volta_fp16_s884cudnn", FP16),  # cut
    ("batched_transpose_32x16_dword", NONE),
    ("igemm_bwd_gtcx3_nhwc_fp32_bx0_ex0_bt128x128x16_wt32x32x2", TensorCore(1, "fp32")),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2", BF16),
    ("miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f3x2_stride1", NONE),
]  # fmt: skip

ATTENTION = [
    ("void pytorch_flash::" + FLASH + "pytorch_flash::Flash_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>>>", BF16),
    ("_Z16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi128ELi128ELi64ELi4ELb0ELb0EN7cutlass6half_tE19Flash_kernel", FP16),
    ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<96, 64, 128, 8, 2, 4, 4, true, false, "
     "cutlass::half_t, Flash_kernel_traits<96>>>(Flash_bwd_params)", FP16),
    ("void flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, cutlass::bfloat16_t>>(Flash_bwd_params)", NONE),
    ("void flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64, cutlass::bfloat16_t>>(Flash_bwd_params, int)", NONE),
    ("void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t>>(Flash_fwd_params)", NONE),
    ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, "
     "cute::tuple<cute::C<1>>, cutlass::bfloat16_t, float, cutlass::arch::Sm90>>>>(T1::Params)", BF16),
    ("void cutlass::device_kernel<flash::FlashAttnBwdPostprocessConvertdQ<cute::tuple<int>, cutlass::half_t, float>>", NONE),
    ("void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<int>, cutlass::half_t, float>>", NONE),
    ("kernel_cutlass_kernel_flash_attncuteflash_fwd_sm120FlashAttentionForwardSm120_object_at__tensorptrf16gmemalign16o", FP16),
    ("kernel_cutlass_kernel_flash_attncuteflash_bwd_preprocessFlashAttentionBackwardPreprocess_object_at__", NONE),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm80>)", TF32),
    ("fmha_cutlassB_f32_aligned_64x64_k64_dropout_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<Sm80>)", TF32),
    ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>)", BF16),
    ("fmha_cutlassB_f16_aligned_64x64_k64_sm70", FP16),
    ("fmha_cutlassF_f32_notaligned_64x64_rf_sm75", NONE),
    ("void attention_kernel<PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm80, true, 64, 64>>", TF32),
    ("void attention_kernel<PyTorchMemEffAttention::AttentionKernel<cutlass::half_t, cutlass::arch::Sm80, true>>", FP16),
    ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext", FP8),
    ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*, void*)", NONE),
    ("void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*, unsigned int)", NONE),
    ("at::cuda::philox::unpack_cudnn(at::PhiloxCudaState, long*, long*)", NONE),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0", SIXTEEN),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_e4m3_knob_7_64x128x64_4x1x1", FP8),
    ("attn_fwd", TensorCore(None, guess=True)),
    ("void attention_kernel<PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm75, true, 64, 64>>", NONE),
    ("fmha_v2_flash_attention_fp16_64_128_S_128_sm80_kernel", FP16),
    ("fmha_v2_flash_attention_e4m3_fp32_64_64_S_q_k_v_192x128_output_bf16_sm120_nl_tiled", FP8),
    ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<__nv_bfloat16>>(T1)", BF16),
    ("void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128>(float*)", NONE),
    ("aiter::fmha_bwd_hd128_bf16_causal_a32_rtna", BF16),
    ("void ck_tile::kentry<256, 1, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipeline<ck_tile::bf16_t>>>", BF16),
]  # fmt: skip

RNN = [
    ("void RNN_blockPersist_fp_LSTM_HMMA<__half, __half, float, 128>(T1)", FP16),
    ("void RNN_blockPersist_fp_LSTM<float, float, float, 128, 4, 4, 8>(T1)", NONE),
    ("void RNN_persist_fp<__half, __half, float, (cudnnRNNMode_t)1, true, 512, 2, 1, 1, 32, 0>(persist_fp_args)", FP16),
    ("void ampere_lstm_tile16<32, 0>(params_t)", FP16),
    ("void ampere_lstm_bp_largeB<512>(params_t)", FP16),
    ("void persistRNN_init_negMax<__half>(__half*, int)", NONE),
    ("RNN_init_128x4(uint4*, int, unsigned int)", NONE),
    ("RNN_copy_dhy(unsigned int*, __half const*, cudnn::reduced_divisor, int)", NONE),
    ("void RNN_blockPersist_bp_GRU<__half, __half, float, 128>(T1)", UNKNOWN),
    ("void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(int)", NONE),
]

ALL = [(n, f, t) for f, rows in zip(("gemm", "conv", "attention", "rnn"), (GEMM, CONV, ATTENTION, RNN), strict=True)
       for n, t in rows]  # fmt: skip


@pytest.mark.parametrize(("name", "family", "expected"), ALL)
def test_kernel_name_tells_the_tensor_cores(name: str, family: str, expected: TensorCore) -> None:
    assert tensor_core(name, family) == expected


KNOWN_WITHOUT_OP = ["ampere_sgemm_128x64_tn", "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN", "fmha_cutlassF_f32_aligned_64x64_rf_sm80",
                    "void splitKreduce_kernel<float, float, float>(cublasSplitKParams<float>, float const*)"]  # fmt: skip


@pytest.mark.parametrize("name", KNOWN_WITHOUT_OP)
def test_a_product_is_known_without_its_op(name: str) -> None:
    assert tensor_core(name, "") == tensor_core(name, "gemm") != None  # noqa: E711


NO_PRODUCT = [
    "Memset (Device)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
    "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>(long, long, float const*)",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4>>",
    "void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int, int const*, int const*, int*)",
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>(T1)",
    "triton_red_fused__to_copy_add_native_layer_norm_backward_view_1",
    "triton_poi_fused_addmm_gelu_matmul_3",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(T1)",
    "void tensorrt_llm::kernels::quantize_with_block_size<(tensorrt_llm::BlockScaleQuantizationType)2>(int)",
]


@pytest.mark.parametrize("name", NO_PRODUCT)
def test_no_answer_where_neither_op_nor_name_has_a_product(name: str) -> None:
    assert tensor_core(name, "norm") is None
    assert tensor_core(name, "") is None


BY_DTYPE = [
    # cuDNN names its bf16 attention f16: the dtype says which, and that tensor cores ran is the name's word
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64", "bfloat16", BF16),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64", "torch.float16", FP16),
    ("triton_tem_fused_addmm_mm_0", "bfloat16", TensorCore(1, "bf16", guess=True)),
    ("triton_tem_fused_mm_2", "float32", TensorCore(None, guess=True)),  # allow_tf32 is a flag, not in the name
    ("attn_fwd", "bfloat16", TensorCore(1, "bf16", guess=True)),
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN", "float32", BF16),  # autocast: the kernel's word counts
    ("ampere_sgemm_128x64_tn", "bfloat16", NONE),
    ("void warptiling<(int)128>(float *)", "bfloat16", UNKNOWN),
]


@pytest.mark.parametrize(("name", "dtype", "expected"), BY_DTYPE)
def test_the_dtype_helps_only_where_the_name_is_silent(name: str, dtype: str, expected: TensorCore) -> None:
    assert tensor_core(name, "gemm", dtype) == expected


def test_both_demanglers_spell_the_same_kernel() -> None:
    nsys = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, (bool)0, (bool)0, cutlass::bfloat16_t>>"
    kineto = nsys.replace("(int)", "").replace("(bool)0", "false")
    assert tensor_core(nsys, "attention") == tensor_core(kineto, "attention") == BF16


@given(st.text(max_size=200), st.sampled_from(["gemm", "conv", "norm", ""]), st.sampled_from(["", "bfloat16", "?"]))
def test_any_text_gets_an_answer(name: str, family: str, dtype: str) -> None:
    answer = tensor_core(name, family, dtype)
    assert answer is None or answer.tc in (0, 1, None)


HOSTILE = [
    "cutlass3x_sm90_tensorop_gemm",
    "xmma_f64f64_f64f64_",
    "volta_",
    "Cijk_Aa_Ba_B",
    "sdpa_sm9_",
    "bmm_MxE4m3_",
    "xxxx",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_name_costs_no_more_than_its_length(piece: str) -> None:
    """64 thousand characters take 0.03 to 0.5 s here; without a bound on a pattern's reach it was over 10 s."""
    start = time.process_time()
    tensor_core(piece * (65536 // len(piece)), "gemm")
    assert time.process_time() - start < 5
