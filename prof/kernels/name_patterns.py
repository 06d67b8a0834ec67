"""What a GPU kernel's name says: the tables behind ``tensor_cores`` and ``roles``.

``HELPERS`` are kernels that serve an op and do none of its arithmetic, although many have its library's name.
``PRODUCTS`` are kernels that multiply matrices, with what their name says of the unit and the input precision.
In both, the first pattern from the top that occurs anywhere in the name decides. ``seen`` says where a pattern comes
from: GPUs and library of a capture that holds it, or the source or document that spells the name. Two blanks separate
the fields of a row; an indented line goes on with the row above it.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

REACH = 400  # the most characters that a repetition may match; the longest word in real names has 300 (Tensile)


@dataclass(frozen=True, slots=True)
class Helper:
    """A kernel that serves an op: ``kind`` is reduce, layout, transform, fill, index, cast, epilogue or gates."""

    kind: str
    regex: re.Pattern[str]
    seen: str


@dataclass(frozen=True, slots=True)
class Product:
    """A kernel that multiplies matrices.

    ``unit``: ``tc`` (tensor or matrix cores), ``fma`` (no tensor cores), ``triton`` (not in the name; the dtype
    suggests it), ``unknown`` (a product whose unit is unknown).
    ``precision``: what enters, where the pattern fixes it. Else (empty) the pattern's group ``p`` names the type (f32
    there means none of the tensor cores), or (``scan``) the types in the whole template do.
    """

    unit: str
    precision: str
    regex: re.Pattern[str]
    seen: str


WORDS = {  # that patterns share
    "{X}": r"c?(?:bf16|tf32|f16|f32|f64|e4m3|e5m2|i8|u8|i32|u32|i4)",  # xmma's types
    "{T}": r"(?:bf16|fp16|f16|tf32|e4m3|e5m2|s8|u8|int8)",  # CUTLASS's, cuBLAS's
    "{OF}": r"(?:gemm|cudnn|fprop|dgrad|wgrad|conv)",  # what follows the shape of the instruction
    "{AT}": r"(?<![a-zA-Z0-9])",
    "{HOW}": r"(?:_(?:relu|optimized|analytic|fixed_channels|few_channels|strided))*",
}


def _rows(table: str) -> list[list[str]]:
    lines = re.sub(r"\n +", "  ", table).splitlines()
    return [re.split(" {2,}", line) for line in lines if line and not line.startswith("#")]


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile with bounded repetitions, since names from untrusted files must not take more than linear time."""
    for word, meaning in WORDS.items():
        pattern = pattern.replace(word, meaning)
    bounded = re.sub(r"(\\w|\[a-z\])([*+])", lambda m: f"{m[1]}{{{int(m[2] == '+')},{REACH}}}", pattern)
    return re.compile(bounded)


# kind, pattern, seen
_HELPERS = r"""
# Sums of partial products. xmma's "execute_split_k_kernel" stands right behind an "execute_kernel" (or
# "segment_k_on") of the same name, 254 times of 254 in an H100 capture, and takes a quarter to a twentieth of its
# time: it only adds the slices up.
reduce  splitKreduce  V100, A100, H100, H200: cuBLAS, cuBLASLt
reduce  xmma_\w*execute_split_k_kernel  A100, H200: cuDNN wgrad; H100: cuBLAS fp32
reduce  ReduceSplitK|cutlass\w*::reduction::  A100, H200: CUTLASS inside cuDNN
reduce  fmha_reduce_head  H200: cuDNN attention's backward, dK and dV of heads that share them
reduce  reduce_wgrad_nchw_helper  A100: cuDNN wgrad
reduce  reduce_1Block_kernel  cuBLAS dot, after dot_kernel: public profiles
reduce  ^Cijk_\w*PostGSU  MI300: Tensile global split-U, KernelWriterConversion.py
reduce  splitkv_combine|FlashAttnFwdCombine|FlashAttentionForwardCombine|SplitKVCombine
    FlashAttention 2, 3, 4 and ck_tile, their sources
# Layout changes around a product.
layout  nchwToNhwc|nhwcToNchw|nhwcAddPadding|nchwAddPadding  V100, A100, H200: cuDNN
layout  nhwcSliceCKernel|nchwToFoldedNhwcKernel|foldedNhwcToNchwKernel  H200: cuDNN; counters: no product
layout  \bRNN_copy_dh[xy]\b  H200: cuDNN's persistent LSTM; counters: no product
layout  tensorTransform|transformTensor|convertTensor  cuDNN
layout  transpose_readWrite_alignment_kernel  V100: cuBLAS inside cuDNN's FFT convolution
layout  batched_transpose_\d+x\d+|SubTensorOpWith  MIOpen, its source
# Into the domain where a convolution is a product, and back.
transform  winograd_nonfused::|generateWinogradTilesKernel  V100: cuDNN Winograd
transform  fft[12]d_(?:r2c|c2r)_|flip_filter  V100, A100: cuDNN FFT convolution
transform  [iI]m2[cC]ol|[cC]ol2[iI]m|vol2col|col2vol|Im2d2Col  V100: cuDNN; A100: deformable convolution; ATen slow_conv
# Workspaces, scale factors.
fill  init_device_workspace_kernel  H200: cuDNN wgrad, whose template it carries
fill  scale(?:Packed)?Tensor_kernel  V100, H200: cuDNN, clears what a dgrad then adds to
fill  persistRNN_init|\bRNN_init_\d  H200: cuDNN's persistent RNN; counters: no product
fill  Device(?:Compact|Scan|ReduceByKey)InitKernel  A100, H200: cub, before a scan or count
fill  \bscal_kernel<  H200: cuBLAS, scales C by beta before sgemm_largek
fill  ^Cijk_\w*BetaOnly  Tensile, scales C by beta before a split-U product, its source
# Where to read: tables of indices computed ahead; attention's dropout seed.
index  compute\w*OffsetsKernel|kern_precompute_indices  V100, A100: cuDNN
index  strided_dgrad_indexed::kernel_helper_stage_\d  H200: cuDNN; counters: no product
index  prepare_varlen_num_blocks|prepare_grouped_gemm_data  FlashAttention 3, PyTorch: sources
index  philox::unpack  H200: PyTorch's cuDNN attention
# Casts and row sums around fused attention's main loop.
cast  convert_dq|convert_dkv|Bwd\w*Postprocess|BackwardPostprocess|bwd_postprocess|BwdConvertQGrad
    H200: cuDNN; FlashAttention 2, 3, 4 and ck_tile, their sources
cast  dot_do_o|Bwd\w*Preprocess|BackwardPreprocess|bwd_preprocess|OGradDotO
    H200: cuDNN; FlashAttention 2, 3, 4, AOTriton and ck_tile, their sources
epilogue  epilogue::impl::globalKernel  A100, H200: cuBLASLt, adds addmm's bias
# Gates between a recurrent layer's products; the persistent kernels fuse them and are products.
gates  elemWiseRNNcell|(?:LSTM|GRU|RNN|GENERIC)_elementWise  cuDNN RNN, public profiles
"""
# unit, precision (-: empty), pattern, seen
_PRODUCTS = r"""
# cuBLASLt's nvjet. Letters: A and B, (C,) accumulate, output; t bf16, h fp16, q and r fp8, o fp4, s f32.
tc  tf32  nvjet_(?:sm\d+_)?sss_tf32  spelled in a public profile
tc  bf16  nvjet_(?:sm\d+_)?t[a-z]{2,4}_  H100, H200, B200
tc  fp16  nvjet_(?:sm\d+_)?h[a-z]{2,4}_  H100: nvFuser's comparison
tc  fp8  nvjet_(?:sm\d+_)?[qr][a-z]{2,4}_  H200
tc  fp4  nvjet_(?:sm\d+_)?o[a-z]{2,4}_  B200, in public profiles: nvfp4
# xmma (cuBLAS, cuDNN): stored types, then multiplier and accumulator, then epilogue.
fma  -  xmma_\w*_(?:ffma|dfma|hfma2?|idp4a)  H100, H200; counters on H200: tensor pipe 0%
tc  fp64  xmma_\w*?_{X}{X}_c?f64c?f64_\w*(?:tensor|dmma)\d  A100, H100: cuBLAS
tc  -  xmma_\w*?_{X}{X}_c?(?P<p>bf16|tf32|f16|f32|e4m3|e5m2|i8|u8|i4){X}
    A100, H100, H200; counters on H200: tf32f32 tensor pipe 92%
# CUTLASS by procedural name; the instruction's shape in cuBLAS's and cuDNN's own kernels.
fma  -  cutlass\w*_simt_  A100, H100, H200: CUTLASS in cuBLAS
tc  -  cutlass3x_sm\d+_bs(?:sp)?tensorop_\w{0,60}_ue\dm\dx(?P<p>e2m1|f4|e3m2|e2m3|f6|e4m3|e5m2|f8)
    CUTLASS 4: block-scaled for Blackwell, public profiles
tc  -  cutlass3x_sm\d+_(?:sp)?tensorop_[a-z]?[\dx]{0,12}{OF}[a-z_]{0,40}?_(?P<p>{T}|e2m1|f4|f8)_
    CUTLASS 3, docs/profiler.md
tc  fp64  {AT}(?:gz|[dz])(?:884|888|1688|16816){OF}  A100: cuBLAS, CUTLASS's generator
tc  int4  {AT}i(?:8832|16864){OF}  CUTLASS's generator
tc  int8  {AT}i(?:8816|16816|16832|161616|32816|83216){OF}  H200: _int_mm; T4: cuDNN
tc  fp16  {AT}h(?:884|888|1688|16816|161616|32816|83216){OF}  V100, T4, A100: cuBLAS
tc  -  {AT}(?:gc|[sc])(?:884|1688|16816)(?P<p>tf32|bf16|f16){OF}  CUTLASS: fast f32
tc  -  {AT}s\d{3,6}{OF}{HOW}_(?P<p>{T})  V100, T4, A100, H100, H200: cuBLAS, cuDNN
tc  fp16  turing_\w*s1688{OF}|{AT}s884{OF}  V100, T4, which have fp16 only
tc  tf32  {AT}(?:gc|[sc])1688{OF}  A100: cuBLAS, cuDNN; f32 in and out, no type named
tc  fp8  {AT}s16832{OF}  CUTLASS for Ada
tc  -  {AT}s(?:16816|161616){OF}  A100: fp16 or bf16
fma  -  (?:maxwell|pascal|volta|turing|ampere)_(?:\w+?_)?(?:gc|gz|[sdhczi])(?:gemm|cudnn)  V100, A100: cuBLAS, cuDNN
# Vectors, odd shapes, MAGMA.
fma  -  gemv|gemmk1_kernel|gemmSN_|\bdot_kernel<|sgemm_largek  A100, H200: cuBLAS
fma  -  gemm_kernel\dx\d_core|[sdhcz]gemm_\d+x\d+x\d+|gemm_template_\w*kernel|magma\w*gemm|gemm_\w*fermi|fermiPlus
    cuBLAS before 11, MAGMA: their sources and public profiles
# cuDNN's and PyTorch's convolutions without tensor cores.
fma  -  (?:implicit|explicit|precomputed)_convolve_[a-z]*gemm|convolve_common_engine  V100, H200: cuDNN
fma  -  (?:dgrad|wgrad)(?:2d)?_(?:\w*_)?(?:alg\d|engine)|(?:conv|dgrad|wgrad)2d_(?:grouped_direct|c1_k1|shmem)
    V100, H200: cuDNN
fma  -  pointwise_mult_and_sum_complex|winograd3x3Kernel  V100: cuDNN FFT and Winograd
fma  -  (?i:conv_depthwise[23]d|depthwiseConvolution)  PyTorch, ATen/native/cuda/DepthwiseConv2d.cu
# Attention. cuDNN says f16 for bf16 too: the op's dtype decides.
tc  -  sdpa_sm\d+\w*_(?P<p>e4m3|e5m2|fp8|f8)_  cuDNN 9
tc  -  cudnn_generated_\w*sdpa  H200
tc  tf32  fmha_cutlass[FB]_f32_\w*sm(?:8|9|1\d)\d  H200: PyTorch, by three tf32 products
tc  -  fmha_cutlass[FB]_(?P<p>f16|bf16)_\w*sm(?:[789]|1\d)\d  V100 to H100: PyTorch, xFormers
fma  -  fmha_cutlass[FB]_  PyTorch's gemm_kernel_utils.h: f32 before sm80, all before sm70
tc  tf32
    AttentionKernel<float, cutlass::arch::Sm(?:8|9|1\d)\d|AttentionBackwardKernel<cutlass::arch::Sm(?:8|9|1\d)\d, float
    the same by template
tc  -  Attention(?:Backward)?Kernel<(?:cutlass::arch::Sm\d+, )?cutlass::(?P<p>half_t|bfloat16_t)  the same by template
fma  -  AttentionKernel<float|AttentionBackwardKernel<cutlass::arch::Sm\d+, float  the same
tc  -  fmhaSm\d+\w*Kernel_Qkv(?P<p>E4m3|E2m1|Bfloat16|Fp16)  B200: TensorRT-LLM in vLLM
tc  -  fmha_v2_\w*?(?P<p>bf16|fp16|e4m3|int8)_  TensorRT, TensorRT-LLM: public profiles
tc  scan  flash_(?:fwd|bwd)_\w*kernel  H100: FlashAttention 2, its own and PyTorch's
tc  scan  FlashAttn(?:Fwd|Bwd)Sm\d+|FlashAttention(?:Forward|Backward)Sm\d+  FlashAttention 3, 4: sources
tc  scan  Batch(?:Prefill|Ragged)\w*Kernel|SinglePrefill\w*Kernel  FlashInfer, its source
fma  -  (?:Batch|Single)DecodeWith\w*Kernel|paged_attention_v[12]_kernel  FlashInfer, vLLM: sources
# Recurrent layers: the persistent kernels name their instruction.
tc  scan  RNN_blockPersist\w*HMMA  A10: cuDNN, public profiles
fma  -  RNN_blockPersist\w*<float  cuDNN, public profiles
tc  fp16  \bRNN_persist_[fb]p<__half  H200: cuDNN; counters: fp16
tc  fp16  \bampere_lstm_(?:tile|bp_)\w*  H200: cuDNN, for fp16 only; counters: fp16
# Templates that name their instruction or their unit.
tc  -  \b(?:bmm|gemm)_\w+?_(?P<p>MxE2m1MxE4m3|MxE4m3|MxE2m1|E4m3|E2m1|Bfloat16|Fp16)\w*_Fp32_t\d
    B200: TensorRT-LLM; fp4 weights against fp8 multiply at fp8's rate
tc  -  (?:MMA|SM\d+)_\d+x\d+x\d+_[FS]\d\d(?P<p>TF32|BF16|F16|E4M3|E5M2|S8|U8|F64)  CUTLASS 3's atoms
tc  scan  MmaTensorOp|MainloopSm(?:9|1\d)\d|GMMA::|SM100_MMA_|OpClassTensorOp
    A100, H200: CUTLASS inside cuDNN, mangled and not; CUTLASS 3
fma  -  MmaSimt|UniversalFMA|OpClassSimt  CUTLASS
tc  scan  kernel_cutlass_\w*(?:[gG]emm|flash_(?:fwd|bwd))  B200: CUTLASS 4's Python DSL
tc  fp8  deep_gemm::\w*fp8|fp8_gemm_kernel  DeepGEMM, its source
tc  scan  [mM]arlin::Marlin|tinygemm_m16n8k16  vLLM, PyTorch: int4 weights, 16-bit products
# AMD: MFMA on CDNA, WMMA on RDNA. MI in Tensile's names is the matrix instruction; without it, plain FMA.
tc  tensile  Cijk_A[a-z]+_B[a-z]+_\w*_MI(?!0)\d+x\d+  MI250, MI300: rocBLAS, hipBLASLt
tc  tensile  Custom_Cijk_A[a-z]+_B[a-z]+_  MI350: hipBLASLt's hand-written MFMA kernels
fma  -  Cijk_A[a-z]+_B[a-z]+_\w*_TT\d+_\d+_  Tensile, ReplacementKernels: thread tiles only
tc  -  igemm_(?:fwd|bwd|wrw)_gtc\w*?_(?P<p>bf16|fp16|int8)  MIOpen, its source
tc  fp32  igemm_(?:fwd|bwd|wrw)_gtc  MIOpen, its source
fma  -  miopenSp3AsmConv|naive_conv_|gcnAsmConv|miopenGcnAsm|MIOpenConv  MIOpen, its source
tc  -  aiter::\w*?(?P<p>bf16|fp16|fp8)\w*gemm  AITER
tc  -  aiter::fmha_\w*?_(?P<p>bf16|fp16|fp8)  AITER
tc  scan  xdl|Xdl|_mfma_|_wmma_|Fmha(?:Fwd|Bwd)\w*Kernel  Composable Kernel, its source
# Triton: the compiler decides from types and flags.
triton  -  ^triton_tem_  torch.compile's templates for mm, conv and attention
triton  -  ^_?attn_(?:fwd|bwd)|^bwd_kernel_d[kq]|^_(?:fwd|bwd)_kernel|^kernel_unified_attention  MI300: AOTriton; vLLM
triton  -  ^_?(?:matmul|bmm|gemm|fused_moe)_kernel  Triton's tutorials, vLLM
# The instruction in the name, and last: a product, and no more is known.
tc  scan  (?i:[hid]g?mma(?![a-z])|wgmma|tcgen05|tensorop)  hmma, imma, dmma, igmma ...
unknown  -  nvjet_|RNN_blockPersist|persistRNN|(?i:(?<!fb)gemm|matmul|implicit_conv|fmha)|Cijk_
    no capture: any other product, so that it is not taken for something else
"""
HELPERS = tuple(Helper(kind, _compile(pattern), seen) for kind, pattern, seen in _rows(_HELPERS))
PRODUCTS = tuple(
    Product(unit, precision.strip("-"), _compile(pattern), seen) for unit, precision, pattern, seen in _rows(_PRODUCTS)
)


@lru_cache(maxsize=65536)
def find_helper(name: str) -> Helper | None:
    """The row of the helper kernel that a name belongs to, or None."""
    return next((helper for helper in HELPERS if helper.regex.search(name)), None)


@lru_cache(maxsize=65536)
def find_product(name: str) -> tuple[Product, re.Match[str]] | None:
    """The family of product kernels a name belongs to, and where it says so."""
    matches = ((product, product.regex.search(name)) for product in PRODUCTS)
    return next(((product, match) for product, match in matches if match), None)


def is_collective(name: str) -> bool:
    """Whether a kernel is NCCL's or RCCL's."""
    return name.startswith(("nccl", "rccl"))


def stays_on_device(copy: str) -> bool:
    """Whether a copy reads and writes the memory of one GPU: ``[CUDA memcpy DtoD]``, ``Memcpy DtoD``."""
    return "Device-to-Device" in copy or "DtoD" in copy
