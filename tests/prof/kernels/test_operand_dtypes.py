"""Dtypes from kernel names: real names, judged by their sources and by what Kineto recorded for the same kernels."""

# ruff: noqa: E501 -- a kernel's name stands on as few lines as it can, so that it can be searched for

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.dtypes import ITEM_BYTES
from pyprof.errors import InputError
from pyprof.prof.kernels.operand_dtypes import kernel_dtypes
from pyprof.prof.kernels.type_names import NOTHING, Dtypes, merged
from pyprof.prof.work.calls import call_numbers, dtypes_by_name, kernel_names
from pyprof.table.columns import Coded, Table
from tests.tables import parsed

BF16, F16, F32, I64 = "bfloat16", "float16", "float32", "int64"
NATIVE = "void at::native::"
ANON = "void at::native::(anonymous namespace)::"
UNNAMED = "void at::native::<unnamed>::"
LAMBDA3 = "::{lambda()#3}::operator()() const"
DIRECT = f"at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&){LAMBDA3}::{{lambda()#7}}::operator()() const"
CASTING = (
    "std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>,"
    " at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)"
)
NSYS_DIRECT = (
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::"
    "[lambda() (instance 7)]::operator ()() const::[lambda(float) (instance 1)]"
)
MUL = "at::native::binary_internal::MulFunctor<float>"
FUNCTOR_BF16 = f"AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, {MUL} >"

# name, op, family, what it tells
NAMES = [
    # fills, sums, products: the functor's parameter; in place, self is a tensor even without dimensions
    (f"{NATIVE}vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
     "fill_", "copy", Dtypes(F32, ((0, F32),))),
    (f"{NATIVE}vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>,"
     " std::array<char *, (unsigned long)1>>(int, T2, T3)", "fill_", "copy", Dtypes(F32, ((0, F32),))),
    (f"{NATIVE}vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >()",
     "add", "pointwise", Dtypes(BF16, (), BF16)),
    (f"{NATIVE}vectorized_elementwise_kernel<2, at::native::CUDAFunctorOnSelf_add<long>, std::array<char*, 2ul> >()",
     "add_", "pointwise", Dtypes(I64, ((0, I64),), I64)),
    # a number folded into the functor; the innermost float is the arithmetic's
    (f"{NATIVE}vectorized_elementwise_kernel<8, at::native::{FUNCTOR_BF16}, std::array<char*, 2ul> >(int)",
     "mul", "pointwise", Dtypes(BF16, (), BF16)),
    (f"{NATIVE}vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<long, long, bool,"
     " at::native::(anonymous namespace)::CompareEqFunctor<long> >, std::array<char*, 2ul> >(int)",
     "eq", "pointwise", Dtypes(I64, (), "bool")),
    (f"{NATIVE}vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<at::native::AddFunctor<long> >,"
     " at::detail::Array<char*, 2> >(int)", "add", "pointwise", Dtypes(I64)),
    # inside the loop kernel of strided operands
    (f"{NATIVE}elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::BUnaryFunctor<c10::BFloat16,"
     f" c10::BFloat16, c10::BFloat16, {MUL} > >(at::TensorIteratorBase&)::{{lambda(int)#1}}>(int)",
     "div", "pointwise", Dtypes(BF16, (), BF16)),
    (f"{NATIVE}elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::native::"
     "CUDAFunctor_add<float>>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)",
     "add", "pointwise", Dtypes(F32, (), F32)),
    # lambdas: of one type for all tensors, of several in the schema's order where that is the iterator's
    (f"{NATIVE}vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&,"
     " at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::"
     "{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)", "gelu", "activation", Dtypes(BF16)),
    (f"{NATIVE}vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::masked_scale_kernel<bool,"
     " c10::BFloat16, float>(at::Tensor&, at::Tensor const&, at::Tensor const&, float)::{lambda(c10::BFloat16, bool)#1},"
     " std::array<char*, 3ul> >(int)", "native_dropout_backward", "dropout", Dtypes("", ((0, BF16), (1, "bool")))),
    (f"{NATIVE}vectorized_elementwise_kernel<(int)2, at::native::<unnamed>::where_kernel_impl(at::TensorIterator &)::"
     "[lambda() (instance 1)]::operator ()() const::[lambda() (instance 8)]::operator ()() const::"
     "[lambda(bool, long, long) (instance 1)], std::array<char *, (unsigned long)4>>(int, T2, T3)",
     "where", "pointwise", Dtypes("", ((0, "bool"), (1, I64), (2, I64)))),
    # a cast on load: some operand is not float32, which one the name does not tell
    (f"{NATIVE}unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>, 4,"
     " TrivialOffsetCalculator<2, unsigned int>, at::native::memory::LoadWithCast<2>,"
     " at::native::memory::StoreWithCast<1> >(int)",
     "add", "pointwise", Dtypes("", ((0, ""), (1, ""), (2, ""), (3, "")), F32)),
    # element-wise kernels of ops that have operands of other types: nothing
    (f"{ANON}unrolled_elementwise_kernel_for_multi_outputs<3, {{lambda(float, float)#1}}, std::array<char*, 7ul> >(int)",
     "native_batch_norm_elemt", "norm", NOTHING),
    # copies
    (f"{NATIVE}vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::"
     "{lambda(float)#1}, std::array<char*, 2ul> >(int)", "copy_", "copy", Dtypes("", ((0, BF16), (1, F32)))),
    (f"{NATIVE}vectorized_elementwise_kernel<(int)8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::"
     "[lambda(float) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)",
     "copy_", "copy", Dtypes("", ((0, BF16), (1, F32)))),
    (f"{NATIVE}elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<{DIRECT}::{{lambda(float)#1}}>"
     "(at::TensorIteratorBase&)::{lambda(int)#1}>(int)", "copy_", "copy", Dtypes("", ((0, F32), (1, F32)), F32)),
    (f"{NATIVE}unrolled_elementwise_kernel<{DIRECT}::{{lambda(float)#1}}, {CASTING}", "copy_", "copy",
     Dtypes("", ((0, F32), (1, "")), F32)),
    (f"{NATIVE}unrolled_elementwise_kernel<{NSYS_DIRECT}, at::native::memory::LoadWithCast<(int)1>>(int, T1)",
     "copy_", "copy", Dtypes("", ((0, F32), (1, "")), F32)),
    # reductions: in and out
    (f"{NATIVE}reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, at::native::func_wrapper_t<c10::BFloat16,"
     " at::native::sum_functor<c10::BFloat16, float, c10::BFloat16>::operator()(at::TensorIterator&)::"
     "{lambda(float, float)#1}>, unsigned int, c10::BFloat16, 4, 8> >(at::native::ReduceOp<...>)",
     "sum", "reduction", Dtypes(BF16, (), BF16)),
    (f"{NATIVE}reduce_kernel<(int)512, (int)1, at::native::ReduceOp<c10::BFloat16, at::native::MeanOps<c10::BFloat16,"
     " float, float, float>, unsigned int, float, (int)4, (int)4>>(T3)", "mean", "reduction", Dtypes(BF16, (), F32)),
    # softmax: in, out, accumulator; or in, accumulator, out, and the backward reversed
    ("void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, float, float, 10, true, false>(float*)",
     "_log_softmax", "softmax", Dtypes(BF16, (), F32)),
    (f"{ANON}cunn_SoftMaxForward<4, c10::BFloat16, float, float, at::native::SoftMaxForwardEpilogue>(float*)",
     "_softmax", "softmax", Dtypes(BF16, (), F32)),
    (f"{UNNAMED}cunn_SoftMaxBackward<(int)4, c10::BFloat16, float, float, at::native::<unnamed>::"
     "LogSoftMaxBackwardEpilogue>(T2 *, const T4 *, const T4 *, long)",
     "_log_softmax_backward_data", "softmax", Dtypes(F32, (), BF16)),
    # norms: data, statistics, weights
    (f"{ANON}layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float, false>(c10::BFloat16 const*)",
     "native_layer_norm_backward", "norm", Dtypes(BF16, ((3, F32), (4, F32)))),
    (f"{NATIVE}batch_norm_collect_statistics_channels_last_kernel<at::native::Var, c10::BFloat16, float, 4>(float*)",
     "native_batch_norm", "norm", Dtypes("", ((0, BF16),), "", ((5, True),))),
    (f"{NATIVE}batch_norm_transform_input_channels_last_kernel<c10::BFloat16, float, float, (int)4>(const T1 *)",
     "native_batch_norm", "norm", Dtypes("", ((0, BF16), (1, F32), (2, F32)))),
    (f"{NATIVE}batch_norm_backward_elemt_channels_last_kernel<4, c10::BFloat16, float, c10::BFloat16>(float*)",
     "native_batch_norm_backward", "norm", Dtypes("", ((0, BF16), (1, BF16), (2, BF16), (5, F32), (6, F32)))),
    (f"{UNNAMED}unrolled_elementwise_kernel_for_multi_outputs<(int)3, at::native::<unnamed>::"
     "batch_norm_update_stats_and_invert(const at::Tensor &, double, double, long)::[lambda() (instance 1)]::operator ()()"
     " const::[lambda() (instance 2)]::operator ()() const::[lambda(float, float, float, float) (instance 1)],"
     " std::array<char *, (unsigned long)7>>(int, T2)", "native_batch_norm", "norm", Dtypes("", ((3, F32), (4, F32)))),
    # losses, pools, indices
    (f"{ANON}nll_loss_backward_reduce_cuda_kernel_2d<float, long>(float*)", "nll_loss_backward", "loss",
     Dtypes(F32, ((0, F32), (2, I64)))),
    (f"{ANON}max_pool_backward_nhwc<c10::BFloat16, float>(c10::BFloat16 const*, long const*)",
     "max_pool2d_with_indices_backward", "pooling", Dtypes(BF16, ((7, I64),))),
    (f"{ANON}compute_grad_weight<float, long>(long const*)", "embedding_dense_backward", "embedding",
     Dtypes(F32, ((1, I64),))),
    (f"{NATIVE}vectorized_gather_kernel<16, long>(char*, char*, long*)", "gather", "indexing", Dtypes("", ((2, I64),))),
    # moved bytes
    (f"{ANON}CatArrayBatchedCopy_vectorized<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 3, 128, 1,"
     " 16, 8>(char*)", "cat", "copy", Dtypes("opaque2")),
    (f"{UNNAMED}CatArrayBatchedCopy<at::native::<unnamed>::OpaqueType<(unsigned int)4>, unsigned int, (int)3>(T1 *)",
     "cat", "copy", Dtypes("opaque4")),
    # lists
    (f"{ANON}multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>,"
     " at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>, float const*>()",
     "_fused_adamw_", "optimizer", Dtypes(F32, lists=4)),
    (f"{UNNAMED}multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)1>, at::native::<unnamed>::"
     "BinaryOpScalarFunctor<float, (int)1, (int)1, (int)0>, std::plus<float>, float>(T1, T2, T3...)",
     "_foreach_add_", "optimizer", Dtypes(F32, lists=1)),
    (f"{UNNAMED}multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)2>, at::native::<unnamed>::"
     "UnaryOpFunctor<float, (int)2, (int)1, (int)1>, at::native::Copy<float, c10::BFloat16>>(T1, T2, T3...)",
     "_foreach_copy_", "optimizer", Dtypes("", ((0, F32), (1, BF16)), lists=2)),
    # collectives
    ("void <unnamed>::indexing_backward_kernel_small_stride<c10::BFloat16>(const long *, const long *, const T1 *, T1 *)",
     "_index_put_impl_", "indexing", Dtypes(at=((0, BF16), (2, BF16)), flags=((3, True),))),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
     "record_param_comms", "collective", Dtypes(F32)),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", "record_param_comms", "collective", NOTHING),
    # products
    ("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_bias_NNT", "addmm", "gemm", Dtypes(BF16, (), BF16)),
    ("nvjet_sm90_hsh_128x256_64x4_2x1_v_bz_coopA_TNN", "mm", "gemm", Dtypes(F16, (), F16)),
    ("nvjet_sm90_tss_128x256_64x4_2x1_v_bz_coopA_TNN", "addmm", "gemm", Dtypes(BF16, ((0, ""),), F32)),
    ("nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_coopA_algo2_TNT", "_scaled_mm", "gemm",
     Dtypes("", ((0, "float8_e4m3fn"), (1, "float8_e4m3fn")), BF16)),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x128x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel",
     "addmm", "gemm", Dtypes(F32, (), F32)),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_stage3_execute_kernel", "mm", "gemm",
     Dtypes(F32, (), F32)),
    ("sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_execute_kernel",
     "convolution_backward", "conv", Dtypes(BF16, (), BF16)),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(T1::Params)",
     "cudnn_convolution", "conv", Dtypes(BF16, (), BF16)),
    ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_i161616gemm_s8_forwardCompat_128x128_32x2_nn_align4>()",
     "_int_mm", "gemm", Dtypes("", ((0, "int8"), (1, "int8")), "int32")),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(T1::Params)", "mm", "gemm", Dtypes(F32)),
    ("volta_sgemm_64x32_sliced1x4_tn", "addmm", "gemm", Dtypes(F32)),
    ("volta_cgemm_32x32_tn", "cudnn_convolution", "conv", NOTHING),  # a float32 convolution by FFT
    ("void cudnn::detail::dgrad2d_alg1_1<float, (int)0, (int)6, (int)7, (bool)0, (bool)1>(int, const T1 *)",
     "convolution_backward", "conv", Dtypes(F32)),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1", "mm", "gemm", Dtypes(BF16)),
    # attention: cuDNN says f16 for bfloat16, too
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0",
     "_cudnn_attention_backward", "attention",
     Dtypes("opaque2", ((5, F32), (9, "int32"), (10, "int32")), "opaque2")),
    ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false,"
     " cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t> >, false, true,"
     " false, false, false, true, false>(pytorch_flash::Flash_fwd_params)", "_flash_attention_forward", "attention",
     Dtypes(BF16, ((3, "int32"), (4, "int32")), BF16, ((8, True),))),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm80>)",
     "_efficient_attention_forward", "attention", Dtypes(F32, ((4, "int32"), (5, "int32")), F32)),
    # nothing to read
    ("triton_poi_fused_add_1", "add", "pointwise", NOTHING),
    ("", "add", "pointwise", NOTHING),
]  # fmt: skip


@pytest.mark.parametrize(("name", "op", "family", "told"), NAMES, ids=[f"{i}-{row[1]}" for i, row in enumerate(NAMES)])
def test_a_name_tells(name: str, op: str, family: str, told: Dtypes) -> None:
    assert kernel_dtypes(name, op, family) == told


def test_kernels_of_one_op_tell_together_and_contradictions_cancel() -> None:
    statistics, transform = Dtypes(at=((0, BF16),), flags=((5, True),)), Dtypes(at=((0, BF16), (1, F32)))
    assert merged([statistics, transform]) == Dtypes(at=((0, BF16), (1, F32)), flags=((5, True),))
    assert merged([transform, statistics]) == merged([statistics, transform])
    assert merged([Dtypes(F32), Dtypes(BF16, out=F32)]) == Dtypes("", (), F32)


PIECES = ["void ", "elementwise_kernel<", "vectorized_", "AUnaryFunctor<", "float", ", ", ">", "{lambda(", ")#1}", "(",
          "ReduceOp<", "[lambda(", " (instance 1)]", "softmax_warp_forward<", "OpaqueType<", "nvjet_", "xmma_", "(int)",
          "multi_tensor_apply_kernel<", "Functor<", "gpu_kernel_impl<", "Copy<", "_f32f32_", "distribution_nullary_kernel<"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=40).map("".join), st.sampled_from(NAMES))
def test_any_text_is_a_name(name: str, row: tuple[str, str, str, Dtypes]) -> None:
    kernel_dtypes(name, row[1], row[2])
    kernel_dtypes(row[0] + name, row[1], row[2])


def test_long_and_deep_names_take_no_time() -> None:
    for piece in PIECES:
        kernel_dtypes(f"void at::native::vectorized_elementwise_kernel<4, {piece * 2000}", "add", "pointwise")
        kernel_dtypes(f"nvjet_{piece * 2000}", "mm", "gemm")


# --- real captures ------------------------------------------------------------------------------------------------


def _tables(folder: Path) -> list[tuple[str, Table]]:
    found = [(file.name, _table(file)) for file in sorted((folder / "kineto").iterdir())]
    return [(name, table) for name, table in found if table is not None]


def _table(file: Path) -> Table | None:
    try:
        return parsed(file)
    except InputError:  # a file that is there because it is no trace
        return None


def _without_dtypes(table: Table) -> Table:
    return Table(len(table), {**table.columns, "dtypes": Coded.empty(len(table))})


def _fits(told: str, recorded: str) -> bool:
    return told == recorded or (told.startswith("opaque") and ITEM_BYTES[told] == ITEM_BYTES[recorded])


def _contradictions(table: Table) -> tuple[list[object], int, int]:
    """Claims that the recorded dtypes contradict; how many operands were claimed, and how many there are."""
    names = kernel_names(table)
    calls = call_numbers(table)
    codes, hints = dtypes_by_name(_without_dtypes(table), names, calls, Coded.empty(len(table)))
    columns = [table.coded(key) for key in ("aten", "sizes", "dtypes")]
    keys = np.stack([codes, *(c.codes for c in columns), names.codes], axis=1)
    wrong, claimed, operands = [], 0, 0
    for hint, aten, size, dtype, name in np.unique(keys, axis=0).tolist():
        if min(aten, size, dtype) < 0 or not columns[2].values[dtype]:
            continue
        shapes, types = json.loads(columns[1].values[size]), json.loads(columns[2].values[dtype])
        each = enumerate(zip(shapes, types, strict=True))
        pairs = [(hints[hint].of(i), t) for i, (s, t) in each if s and t and isinstance(t, str)]
        claims = [pair for pair in pairs if pair[0]]
        operands, claimed = operands + len(pairs), claimed + len(claims)
        as_a_set = sorted(c for c, _ in claims) == sorted(t for _, t in claims)  # casts: order is not told
        mixed = hints[hint].out and len({c for c, _ in claims}) == 2 and as_a_set
        if not mixed and not all(_fits(*pair) for pair in claims):
            wrong.append((columns[0].values[aten], names.values[name][:200], claims))
    return wrong, claimed, operands


def test_no_claim_contradicts_what_kineto_recorded(data: Path) -> None:
    found = {name: _contradictions(table) for name, table in _tables(data)}
    assert {name: wrong for name, (wrong, _, _) in found.items() if wrong} == {}
    assert sum(claimed for _, claimed, _ in found.values()) > 1000
    share = {name: claimed / operands for name, (_, claimed, operands) in found.items() if operands}
    for name in ("h200_gpt2_bf16.json.gz", "h200_resnet50_bf16.json.gz", "h200_tutorial_encoder.json.gz"):
        assert share[name] > 0.9, (name, share)
