"""What kernels do on their own: bytes of chores, and experts whose sizes only the launches tell. Worked by hand."""

# ruff: noqa: E501 -- a kernel's name stands on one line, so that it can be searched for

from typing import Any

import pytest

import pyprof.prof.work.helper_kernels  # noqa: F401 (registers all rules)
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.helpers.registry import HelperCall, Launch, helper_work
from tests.prof.changes.rules.advice_rows import table

H = "bfloat16"


def t(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape, dtype)


SPLIT_K = "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, __nv_bfloat16, float, __nv_bfloat16, (bool)0, float>(cublasLt::cublasSplitKParams<T6>)"
SPLIT_HALF = "void cublasLt::splitKreduce_kernel<32, 16, int, __half, __half, float, __half, false>(cublasLt::cublasSplitKParams<float>)"
SPLIT_OLD = (
    "void splitKreduce_kernel<float, float, float, float, true, false, false>(cublasSplitKParams<float>, float const*)"
)
WGRAD = "sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_warpgroupsize1x1x1_g1_execute_"

TO_NCHW = (
    "void cudnn::engines_precompiled::nhwcToNchwKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>(T1)"
)
TO_NHWC = (
    "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)0>(T1)"
)
PAD = "void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true, (cudnnKernelDataType_t)0>(int, int)"
REDUCE = "void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::reduction::kernel::ReduceSplitK<cutlass__5x_cudnn::MatrixShape<4, 256>>>"

CONV = (t(32, 1024, 14, 14, dtype=H), t(32, 256, 14, 14, dtype=H), t(1024, 256, 1, 1, dtype=H))
CONV3 = (t(32, 64, 56, 56, dtype=H), t(32, 64, 56, 56, dtype=H), t(64, 64, 3, 3, dtype=H))
WIDE = (t(32, 256, 56, 56), t(64, 256, 1, 1), [0, 0], [1, 1], [1, 1], 1, False, False, True)
STEM = (t(32, 3, 224, 224, dtype=H), t(64, 3, 7, 7, dtype=H), [3, 3], [2, 2], [1, 1], 1)
MM = (t(64, 800, dtype=H), t(800, 32, dtype=H))
CASES = [  # kernel, grid, block, kernel before, its grid, op, arguments, bytes read, bytes written
    # 262,144 weights, 64 tiles of 64 by 64, 128 blocks: 2 slices in float32, then bf16
    (SPLIT_K, (8, 64, 1), (32, 16, 1), "nvjet_sm90_tst_64x64_64x13_1x2_h_bz_splitK_NTT", (2, 64, 1), "convolution_backward", CONV, 2 * 262144 * 4, 262144 * 2),
    # the third number of the product's grid is its slices: 5 of 64 * 32
    (SPLIT_K, (2, 2, 1), (32, 16, 1), "void cutlass::Kernel2<cutlass_80_tensorop>", (4, 1, 5), "mm", MM, 5 * 2048 * 4, 4096),
    # the same of a linear layer, whose weight has a row for each column of the result
    (SPLIT_K, (2, 2, 1), (32, 16, 1), "void cutlass::Kernel2<cutlass_80_tensorop>", (4, 1, 5), "linear", (t(64, 800, dtype=H), t(32, 800, dtype=H)), 5 * 2048 * 4, 4096),
    # 24 * 22 * 512 threads, 8 elements each, are 2,162,688, and 3072 * 768 more: they loop
    (SPLIT_K, (24, 22, 1), (32, 16, 1), "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_splitK_NNT", (2, 72, 1), "mm", (t(3072, 12608, dtype=H), t(12608, 768, dtype=H)), 2 * 2_359_296 * 4, 2_359_296 * 2),
    (SPLIT_HALF, (2, 2, 1), (32, 16, 1), "", (0, 0, 0), "mm", (t(64, 800, dtype="float16"), t(800, 32, dtype="float16")), 2 * 2048 * 2, 4096),
    (SPLIT_OLD, (64, 1, 1), (32, 1, 1), "volta_sgemm", (2, 2, 3), "mm", (t(64, 800), t(800, 32)), 3 * 2048 * 4, 8192),
    # 36,864 weights: 9 tiles, 117 blocks, 13 slices
    (WGRAD + "split_k_kernel__5x_cudnn", (117, 1, 1), (128, 1, 1), WGRAD + "kernel__5x_cudnn", (117, 1, 1), "convolution_backward", CONV3, 13 * 36864 * 4, 36864 * 2),
    ("void cudnn::fusion::convert_dq_to_16bits<true>(void const*)", (1, 1, 1), (128, 1, 1), "", (0, 0, 0), "_cudnn_attention_backward", (t(2, 3, 8, 4, dtype=H), t(2, 3, 8, 4, dtype=H)), 192 * 4, 192 * 2),
    ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>()", (1, 1, 1), (128, 1, 1), "", (0, 0, 0), "_cudnn_attention_backward", (t(2, 3, 8, 4, dtype=H), t(2, 3, 8, 4, dtype=H)), 2 * 192 * 2, 48 * 4 + 192 * 4),
    ("void flash_bwd_dot_do_o_kernel<true>()", (1, 1, 1), (128, 1, 1), "", (0, 0, 0), "_flash_attention_backward", (t(2, 3, 8, 4, dtype=H), t(2, 3, 8, 4, dtype=H)), 2 * 192 * 2, 48 * 4),
    # measured: 16 * 16 * 2048 * 64 gradients of two bytes are 67,108,864; 67.12 MB were read
    ("void cudnn::fmha_reduce_head<1>(const void *)", (128, 16, 4), (128, 1, 1), "", (0, 0, 0), "_cudnn_attention_backward", (t(16, 16, 2048, 64, dtype=H), t(16, 16, 2048, 64, dtype=H), t(16, 4, 2048, 64, dtype=H)), 67_108_864, 16_777_216),
    ("void cublasLt::epilogue::impl::globalKernel<8, 32, float>(int)", (15, 1, 1), (8, 32, 1), "", (0, 0, 0), "addmm", (t(6), t(4, 5), t(5, 6)), (24 + 6) * 4, 24 * 4),
    ("void scal_kernel<float, float, 1, true, 6, 5, 5, 3>()", (2, 1, 1), (256, 1, 1), "", (0, 0, 0), "addmm", (t(6), t(4, 5), t(5, 6)), 0, 96),
    # 32*6*14*14 = 37,632 = 147 * 256 elements of the input's gradient
    ("void cudnn::engines_precompiled::scalePackedTensor_kernel<float, float>(long)", (147, 1, 1), (256, 1, 1), "", (0, 0, 0), "convolution_backward", (t(32, 16, 10, 10), t(32, 6, 14, 14), t(16, 6, 5, 5)), 0, 37632 * 4),
    ("at::cuda::philox::unpack_cudnn(at::PhiloxCudaState, long*, long*)", (1, 1, 1), (1, 1, 1), "", (0, 0, 0), "_cudnn_attention_forward", (), 0, 16),
    ("void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda(...)>", (1, 1, 1), (128, 1, 1), "", (0, 0, 0), "addmm", (t(6), t(4, 5), t(5, 6)), 24, 96),
    # 98 blocks of 32 pixels, 8 of 32 channels, 32 images: the input of 256 channels, 56 by 56
    (TO_NCHW, (98, 8, 32), (256, 1, 1), "", (0, 0, 0), "cudnn_convolution", WIDE, 32 * 256 * 3136 * 4, 32 * 256 * 3136 * 4),
    (TO_NHWC, (98, 2, 32), (256, 1, 1), "sm80_xmma_fprop", (2, 784, 1), "cudnn_convolution", WIDE, 32 * 64 * 3136 * 4, 32 * 64 * 3136 * 4),
    (TO_NCHW, (2, 1, 64), (256, 1, 1), "", (0, 0, 0), "convolution_backward", (t(32, 64, 112, 112), t(32, 3, 224, 224), t(64, 3, 7, 7)), 9408 * 4, 9408 * 4),
    # 3 channels widened to 4: the image first, then the weight; the result narrowed from 48 channels to 47
    (PAD, (264, 1, 1), (1024, 1, 1), "", (0, 0, 0), "cudnn_convolution", STEM, 32 * 3 * 50176 * 2, 32 * 4 * 50176 * 2),
    (PAD, (264, 1, 1), (1024, 1, 1), PAD, (264, 1, 1), "cudnn_convolution", STEM, 9408 * 2, 64 * 4 * 49 * 2),
    # 60 slices of 64 * 49 rows of 3 channels, in CUTLASS 8 of 2 bytes: 6.02 MB, and the counter read 6.03 MB
    (REDUCE, (16, 2, 1), (32, 4, 1), "cutlass::Kernel", (4, 1, 60), "convolution_backward", (t(32, 64, 112, 112, dtype=H), t(32, 3, 224, 224, dtype=H), t(64, 3, 7, 7, dtype=H)), 60 * 64 * 49 * 8 * 4, 64 * 49 * 8 * 2),
    ("void cub::DeviceRadixSortHistogramKernel<long>", (924, 1, 1), (128, 1, 1), "", (0, 0, 0), "embedding_dense_backward", (t(4, 8, 6), t(4, 8, dtype="int64")), 32 * 8, 0),
    ("void cub::DeviceRadixSortOnesweepKernel<long>", (1, 1, 1), (384, 1, 1), "", (0, 0, 0), "embedding_dense_backward", (t(4, 8, 6), t(4, 8, dtype="int64")), 2 * 32 * 8, 2 * 32 * 8),
]  # fmt: skip


@pytest.mark.parametrize(("name", "grid", "block", "before", "before_grid", "op", "arguments", "read", "write"), CASES)
def test_chores(
    name: str, grid: Any, block: Any, before: str, before_grid: Any, op: str, arguments: Any, read: int, write: int
) -> None:
    last = Launch(before, before_grid) if before else None
    assert helper_work(HelperCall(Launch(name, grid, block), last, op, arguments)) == Work(0, read, write)


def test_the_first_kernel_of_a_capture_is_the_one_before_the_second() -> None:
    """Its grid tells the 5 slices of 64 * 32 that the second adds up: 5 * 2048 * 4 bytes read, 2048 * 2 written."""
    call = {"aten": "aten::mm", "sizes": [[64, 800], [800, 32]], "dtypes": [H, H], "opId": 1, "ns": 1000}
    product = {"kLongName": "void cutlass::Kernel2<cutlass_80_tensorop>", "kShortName": "Kernel2", "grid": [4, 1, 5]}
    reduction = {"kLongName": SPLIT_K, "kShortName": "splitKreduce_kernel", "grid": [2, 2, 1], "block": [32, 16, 1]}
    made = table(call | product, call | reduction)
    assert annotate(made).bytes.tolist()[1] == 5 * 2048 * 4 + 2048 * 2


@pytest.mark.parametrize(
    "call",
    [
        HelperCall(Launch(SPLIT_K, (8, 64, 1), (32, 16, 1)), None, "mm", ()),  # no shapes
        HelperCall(Launch(SPLIT_K, (64, 64, 1), (32, 16, 1)), None, "mm", MM),  # far more threads than this result has
        HelperCall(Launch("void some_kernel()", (1, 1, 1), (32, 1, 1)), None, "mm", MM),
        HelperCall(Launch("void cudnn::fusion::convert_dq()", (1, 1, 1)), None, "x", (t(1), t(8, dtype=""))),  # no type
    ],
)
def test_what_nothing_tells_stays_unknown(call: HelperCall) -> None:
    assert helper_work(call) is None


# --- a mixture of experts: 888 tokens of 3,072, 128 experts, on a B200 -------------------------------------------

UP = "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_schedP2x1x2x3_biasM_bN_tma_tmaOpt_clmp_swiGlu_dynBatch_sm100f"
UP_BF16 = UP.replace("MxE4m3_MxE2m1MxE4m3", "Bfloat16_Bfloat16")
DOWN = "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_schedP2x1x2x3_biasM_bN_tmaOpt_clmp_dynBatch_sm100f"
FINALIZE = "void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::finalize::KernelParams<cutlass::bfloat16_t, cutlass::bfloat16_t, 4, true> >()"
QUANTIZE = "void tensorrt_llm::kernels::quantize_with_block_size<(tensorrt_llm::BlockScaleQuantizationType)2, __nv_bfloat16, 32, true>(int)"
ROUTER = (t(888, 3072, dtype=H), t(888, 128, dtype=H), "model.layers.0.mlp")

# 342 blocks of 16 tokens: 128 + floor((888 k - 128) / 16) = 342 for k = 4 only; 888 * 4 = 3,552 rows
EXPERTS = [
    # 8 * 128 = 1,024 features of 3,072: fp4 weights of 128 experts and their scales, 888 fp8 tokens; 512 features left
    (UP, (8, 342, 1), "", (0, 0, 0), 2 * 3552 * 1024 * 3072,
     128 * 1024 * 3072 * 17 // 32 + 888 * 3072 * 33 // 32 + 3552 * 512 * 33 // 32),
    (DOWN, (24, 342, 1), UP, (8, 342, 1), 2 * 3552 * 3072 * 512,
     128 * 3072 * 512 * 17 // 32 + 3552 * 512 * 33 // 32 + 3552 * 3072 * 2),
    # weights and tokens of the same type, which the name has once
    (UP_BF16, (8, 342, 1), "", (0, 0, 0), 2 * 3552 * 1024 * 3072,
     2 * (128 * 1024 * 3072 + 888 * 3072 + 3552 * 512)),
    # 4 products and 3 sums a number
    (FINALIZE, (888, 1, 1), DOWN, (24, 342, 1), 7 * 888 * 3072, 5 * 888 * 3072 * 2),
    (QUANTIZE, (740, 1, 1), "", (0, 0, 0), 888 * 3072, 888 * 3072 * 2 + 888 * 3072 * 33 // 32),
]  # fmt: skip


@pytest.mark.parametrize(("name", "grid", "before", "before_grid", "flop", "nbytes"), EXPERTS)
def test_experts(name: str, grid: Any, before: str, before_grid: Any, flop: int, nbytes: int) -> None:
    found = helper_work(HelperCall(Launch(name, grid), Launch(before, before_grid) if before else None, "", ROUTER))
    assert found is not None
    assert (found.flop, found.nbytes) == (flop, nbytes)


def test_a_launch_that_fits_no_number_of_experts_is_not_counted() -> None:
    assert helper_work(HelperCall(Launch(UP, (8, 343, 1)), None, "", ROUTER)) is None


def test_an_output_that_is_known_otherwise_is_found_by_the_layout_s_grid() -> None:
    """NVTX tells no padding: 64 images of 196 pixels, 7 tiles of 32, and 768 channels, 24 tiles."""
    untold = (t(64, 3, 224, 224, dtype=H), t(768, 3, 16, 16, dtype=H), *[UNKNOWN] * 7)
    launch = Launch(TO_NCHW, (7, 24, 64), (256, 1, 1))
    assert helper_work(HelperCall(launch, None, "cudnn_convolution", untold)) is None
    made = (t(64, 768, 14, 14, dtype=H),)
    found = helper_work(HelperCall(launch, None, "cudnn_convolution", untold, made))
    assert found == Work(0, 64 * 768 * 196 * 2, 64 * 768 * 196 * 2)
