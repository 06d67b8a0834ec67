"""The layouts of operands, by names of kernels whose operands' strides Kineto recorded on an H200."""

import pytest

from pyprof.prof.kernels.operand_layouts import contiguous_dimensions

LINEAR, INPUT, WEIGHT = ("k", "k"), ("k", "n"), ("m", "n")  # x @ w.t(), and the gradients of x and w


@pytest.mark.parametrize(
    ("kernel", "layout"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4", LINEAR),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4", INPUT),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(Params)", WEIGHT),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", LINEAR),
        ("nvjet_sm90_tst_64x512_64x2_1x2_h_bz_coopB_NNT", INPUT),
        ("nvjet_sm90_tst_512x64_64x2_2x1_v_bz_coopB_NTN", WEIGHT),
        ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>", LINEAR),
        ("void sgemm_largek_lds64<true, false, 5, 5, 4, 4, 4, 34>(float*, float const*)", None),
        ("vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", None),
    ],
)
def test_the_letters_of_a_name(kernel: str, layout: tuple[str, str] | None) -> None:
    assert contiguous_dimensions(kernel) == layout
