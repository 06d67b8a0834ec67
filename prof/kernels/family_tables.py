"""Families of kernels by name: three tables, each row with the source of its pattern. ``name_patterns`` reads them.

Two blanks separate the fields of a row. An indented line goes on with the row above it, inside the pattern if it begins
with a bar. In each table the first pattern from the top that occurs anywhere in the name decides. ``-`` is an empty
field. The last field is the source: the GPUs and the library of a capture that holds such a name, or the repository and
path of the code that spells it.

The kinds of work are families of op models (``prof/work/kinds.py``). ``docs/reference/kernels.md`` is made from these
tables by ``tools/kernels_page.py``.
"""

# Kernels that serve a product and do none of its arithmetic, although many have its library's name.
# Fields: what the helper does (reduce, layout, transform, fill, index, cast, epilogue, gates), kind of work (-: the
# name says), pattern, source.
HELPERS = r"""
# Sums of partial products. xmma's "execute_split_k_kernel" stands right behind an "execute_kernel" (or
# "segment_k_on") of the same name, 254 times of 254 in an H100 capture, and takes a quarter to a twentieth of its
# time: it only adds the slices up.
reduce  gemm  splitKreduce|splitk_reduce_kernel  V100, A100, H100, H200: cuBLAS, cuBLASLt
reduce  -  xmma_\w*execute_split_k_kernel  A100, H200: cuDNN wgrad; H100: cuBLAS fp32
reduce  -  ReduceSplitK|cutlass\w*::reduction::  A100, H200: CUTLASS inside cuDNN
reduce  attention  fmha_reduce_head  H200: cuDNN attention's backward, dK and dV of heads that share them
reduce  conv  reduce_wgrad_nchw_helper  A100: cuDNN wgrad
reduce  gemm  reduce_1Block_kernel  cuBLAS dot, after dot_kernel: public profiles
reduce  gemm  ^Cijk_\w*PostGSU  MI300: Tensile global split-U, KernelWriterConversion.py
reduce  attention  splitkv_combine|FlashAttnFwdCombine|FlashAttentionForwardCombine|SplitKVCombine|flash_fwd_mla_combine
    FlashAttention 2, 3, 4 and ck_tile, FlashMLA, their sources
reduce  attention  paged_attention_\w*reduce_kernel|mla_reduce_v\d|^_splitK_reduce$|^_fwd_kernel_stage2$
    |^reduce_segments$
    MI300: AITER, vLLM; ROCm/aiter csrc/cpp_itfs/pa, facebookresearch/xformers ops/fmha/triton_splitk.py, SGLang
reduce  gemm  ^_finalize_matmul|^_?reduce_grouped  MI300: triton_kernels' matmul_ogs in vLLM
# Layout changes around a product.
layout  copy  nchwToNhwc|nhwcToNchw|nhwcAddPadding|nchwAddPadding  V100, A100, H200: cuDNN
layout  copy  nhwcSliceCKernel|nchwToFoldedNhwcKernel|foldedNhwcToNchwKernel  H200: cuDNN; counters: no product
layout  copy  \bRNN_copy_dh[xy]\b  H200: cuDNN's persistent LSTM; counters: no product
layout  copy  tensorTransform|transformTensor|convertTensor  cuDNN
layout  copy  transpose_readWrite_alignment_kernel  V100: cuBLAS inside cuDNN's FFT convolution
layout  copy  batched_transpose_\d+x\d+|SubTensorOpWith(?:SubTensor|Transform)  MI210: ROCm/MIOpen src/kernels
layout  copy  deep_gemm::(?:\w*::)?(?:transpose|pack|transpose_and_pack)_fp32|swizzle_(?:row|col)_scaling
    deepseek-ai/DeepGEMM impls/smxx_layout.cuh; NVIDIA/TransformerEngine common/swizzle/swizzle.cu
layout  copy  (?:gptq|awq)_marlin_repack|permute_cols_kernel  vllm-project/vllm csrc/quantization/marlin
# Into the domain where a convolution is a product, and back.
transform  conv  winograd_nonfused::|generateWinogradTilesKernel  V100: cuDNN Winograd
transform  conv  miopenGcnAsmWinogradXform  ROCm/MIOpen src/kernels
transform  conv  fft[12]d_(?:r2c|c2r)_|flip_filter  V100, A100: cuDNN FFT convolution
transform  conv  [iI]m2[cC]ol|[cC]ol2[iI]m|vol2col|col2vol|Im2d2Col
    V100: cuDNN; A100: deformable convolution; ATen slow_conv
# Workspaces, scale factors.
fill  conv  init_device_workspace_kernel  H200: cuDNN wgrad, whose template it carries
fill  fill  scale(?:Packed)?Tensor_kernel  V100, H200: cuDNN, clears what a dgrad then adds to
fill  fill  persistRNN_init|\bRNN_init_\d  H200: cuDNN's persistent RNN; counters: no product
fill  reduction  Device(?:Compact|Scan|ReduceByKey)InitKernel  A100, H200: cub, before a scan or count
fill  fill  \bscal_kernel<  H200: cuBLAS, scales C by beta before sgemm_largek
fill  fill  SubTensorOpWithScalar  MI210: ROCm/MIOpen src/kernels
fill  attention  flash_bwd_clear_dkvaccum  Dao-AILab/flash-attention csrc/flash_attn/src/flash_bwd_launch_template.h
fill  fill  deep_gemm::(?:\w*::)?smxx_clean_logits  deepseek-ai/DeepGEMM impls/smxx_clean_logits.cuh
fill  fill  ^Cijk_\w*BetaOnly  Tensile, scales C by beta before a split-U product, its source
# Where to read: tables of indices computed ahead; attention's dropout seed.
index  indexing  compute\w*OffsetsKernel|kern_precompute_indices  V100, A100: cuDNN
index  indexing  strided_dgrad_indexed::kernel_helper_stage_\d  H200: cuDNN; counters: no product
index  attention  prepare_varlen_num_blocks|get_mla_metadata|mqa_logits_metadata
    FlashAttention 3, FlashMLA, ROCm/aiter csrc/kernels/mla, deepseek-ai/DeepGEMM: sources
index  attention  philox::unpack  H200: PyTorch's cuDNN attention
# Where a grouped product finds its groups: pointers, offsets, sizes, TMA descriptors. No product.
index  indexing  compute_gemm_pointers  V100: cuDNN's FFT convolution
index  indexing
    (?i:(?<![a-z]){MAKE}_?\w{0,60}?gemm\w{0,60}?{PART})
    PyTorch prepare_grouped_gemm_data; vllm-project/vllm csrc/quantization get_group_gemm_starts
index  indexing  fill_tensormaps_kernel|computeStridesTmaWarpSpecialized
    H800: DeepSeek; NVIDIA/TensorRT-LLM kernels/cutlass_kernels/moe_gemm
index  indexing  compute_(?:problem_sizes|expert_(?:blockscale_)?offsets|arg_sorts)
    vllm-project/vllm csrc/quantization/w8a8/cutlass/moe/moe_data.cu
# Casts and row sums around fused attention's main loop.
cast  attention  convert_dq|convert_dkv|Bwd\w*Postprocess|BackwardPostprocess|bwd_postprocess|BwdConvertQGrad
    H200: cuDNN; FlashAttention 2, 3, 4 and ck_tile, their sources
cast  attention  dot_do_o|Bwd\w*Preprocess|BackwardPreprocess|bwd_preprocess|OGradDotO
    H200: cuDNN; FlashAttention 2, 3, 4, AOTriton and ck_tile, their sources
cast  copy  SubTensorOpWithCastTensor  MI210: ROCm/MIOpen src/kernels
cast  copy
    QuantInt8Kernel|QuantPerThread[QK]\w*Kernel|TransposeQuantFp8Kernel|SubMeanKernel|MeanScaleKernel
    |TransposePadPermute
    thu-ml/SageAttention csrc/fused/fused.cu
epilogue  gemm  epilogue::impl::globalKernel  A100, H200: cuBLASLt, adds addmm's bias
# Gates between a recurrent layer's products; the persistent kernels fuse them and are products.
gates  rnn  elemWiseRNNcell|(?:LSTM|GRU|RNN|GENERIC)_elementWise  cuDNN RNN, public profiles
"""

# Kernels that multiply matrices.
# Fields: kind of work (-: the name says), unit (tc, fma, triton, unknown), precision, pattern, source. ``Product`` in
# ``name_patterns`` says what unit and precision mean.
PRODUCTS = r"""
# cuBLASLt's nvjet. Letters: A and B, (C,) accumulate, output; t bf16, h fp16, q and r fp8, o fp4, s f32.
gemm  tc  tf32  nvjet_(?:sm\d+_)?sss_tf32  spelled in a public profile
gemm  tc  bf16  nvjet_(?:sm\d+_)?t[a-z]{2,4}_  H100, H200, B200
gemm  tc  fp16  nvjet_(?:sm\d+_)?h[a-z]{2,4}_  H100: nvFuser's comparison
gemm  tc  fp8  nvjet_(?:sm\d+_)?[qr][a-z]{2,4}_  H200
gemm  tc  fp4  nvjet_(?:sm\d+_)?o[a-z]{2,4}_  B200, in public profiles: nvfp4
# xmma (cuBLAS, cuDNN): stored types, then multiplier and accumulator, then epilogue.
-  fma  -  xmma_\w*_(?:ffma|dfma|hfma2?|idp4a)  H100, H200; counters on H200: tensor pipe 0%
-  tc  fp64  xmma_\w*?_{X}{X}_c?f64c?f64_\w*(?:tensor|dmma)\d  A100, H100: cuBLAS
-  tc  -  xmma_\w*?_{X}{X}_c?(?P<p>bf16|tf32|f16|f32|e4m3|e5m2|i8|u8|i4){X}
    A100, H100, H200; counters on H200: tf32f32 tensor pipe 92%
# CUTLASS by procedural name; the instruction's shape in cuBLAS's and cuDNN's own kernels.
-  fma  -  cutlass\w*_simt_  A100, H100, H200: CUTLASS in cuBLAS
-  tc  -  cutlass3x_sm\d+_bs(?:sp)?tensorop_\w{0,60}_ue\dm\dx(?P<p>e2m1|f4|e3m2|e2m3|f6|e4m3|e5m2|f8)
    CUTLASS 4: block-scaled for Blackwell, public profiles
-  tc  -  cutlass3x_sm\d+_(?:sp)?tensorop_[a-z]?[\dx]{0,12}{OF}[a-z_]{0,40}?_(?P<p>{T}|e2m1|f4|f8)_
    CUTLASS 3, docs/profiler.md
-  tc  fp64  {AT}(?:gz|[dz])(?:884|888|1688|16816){OF}  A100: cuBLAS, CUTLASS's generator
-  tc  int4  {AT}i(?:8832|16864){OF}  CUTLASS's generator
-  tc  int8  {AT}i(?:8816|16816|16832|161616|32816|83216){OF}  H200: _int_mm; T4: cuDNN
-  tc  fp16  {AT}h(?:884|888|1688|16816|161616|32816|83216){OF}  V100, T4, A100: cuBLAS
-  tc  -  {AT}(?:gc|[sc])(?:884|1688|16816)(?P<p>tf32|bf16|f16){OF}  CUTLASS: fast f32
-  tc  -  {AT}s\d{3,6}{OF}{HOW}_(?P<p>{T})  V100, T4, A100, H100, H200: cuBLAS, cuDNN
-  tc  fp16  turing_\w*s1688{OF}|{AT}s884{OF}  V100, T4, which have fp16 only
-  tc  tf32  {AT}(?:gc|[sc])1688{OF}  A100: cuBLAS, cuDNN; f32 in and out, no type named
-  tc  fp8  {AT}s16832{OF}  CUTLASS for Ada
-  tc  -  {AT}s(?:16816|161616){OF}  A100: fp16 or bf16
-  fma  -  (?:maxwell|pascal|volta|turing|ampere)_(?:\w+?_)?(?:gc|gz|[sdhczi])(?:gemm|cudnn)  V100, A100: cuBLAS, cuDNN
# Vectors, odd shapes, MAGMA.
gemm  fma  -  gemv|gemmk1_kernel|gemmSN_|\bdot_kernel<|sgemm_largek  A100, H200: cuBLAS
gemm  fma  -  gemm_kernel\dx\d_core|[sdhcz]gemm_\d+x\d+x\d+|gemm_template_\w*kernel|magma\w*gemm|gemm_\w*fermi|fermiPlus
    cuBLAS before 11, MAGMA: their sources and public profiles
# cuDNN's and PyTorch's convolutions without tensor cores.
conv  fma  -  (?:implicit|explicit|precomputed)_convolve_[a-z]*gemm|convolve_common_engine  V100, H200: cuDNN
conv  fma  -  (?:dgrad|wgrad)(?:2d)?_(?:\w*_)?(?:alg\d|engine)|(?:conv|dgrad|wgrad)2d_(?:grouped_direct|c1_k1|shmem)
    V100, H200: cuDNN
conv  fma  -  pointwise_mult_and_sum_complex|winograd3x3Kernel  V100: cuDNN FFT and Winograd
conv  fma  -  (?i:conv_depthwise[23]d|depthwiseConvolution)  PyTorch, ATen/native/cuda/DepthwiseConv2d.cu
# Attention. cuDNN says f16 for bf16 too: the op's dtype decides.
attention  tc  -  sdpa_sm\d+\w*_(?P<p>e4m3|e5m2|fp8|f8)_  cuDNN 9
attention  tc  -  cudnn_generated_\w*sdpa  H200
attention  tc  tf32  fmha_cutlass[FB]_f32_\w*sm(?:8|9|1\d)\d  H200: PyTorch, by three tf32 products
attention  tc  -  fmha_cutlass[FB]_(?P<p>f16|bf16)_\w*sm(?:[789]|1\d)\d  V100 to H100: PyTorch, xFormers
attention  fma  -  fmha_cutlass[FB]_  PyTorch's gemm_kernel_utils.h: f32 before sm80, all before sm70
attention  tc  tf32
    AttentionKernel<float, cutlass::arch::Sm(?:8|9|1\d)\d|AttentionBackwardKernel<cutlass::arch::Sm(?:8|9|1\d)\d, float
    the same by template
attention  tc  -  Attention(?:Backward)?Kernel<(?:cutlass::arch::Sm\d+, )?cutlass::(?P<p>half_t|bfloat16_t)
    the same by template
attention  fma  -  AttentionKernel<float|AttentionBackwardKernel<cutlass::arch::Sm\d+, float  the same
attention  tc  -  fmhaSm\d+\w*Kernel_Qkv(?P<p>E4m3|E2m1|Bfloat16|Fp16)  B200: TensorRT-LLM in vLLM
attention  tc  -  fmha_v2_\w*?(?P<p>bf16|fp16|e4m3|int8)_  TensorRT, TensorRT-LLM: public profiles
attention  tc  scan  flash_(?:fwd|bwd)_\w*kernel  H100: FlashAttention 2, its own and PyTorch's; FlashMLA
attention  tc  scan  compute_attn_ws(?:_fp8)?(?![a-z_])  H800: FlashAttention 3's first releases; SageAttention 3
attention  tc  scan  FlashAttn(?:Fwd|Bwd)(?=[<I])  H800: FlashAttention 3's first releases
attention  tc  -  fmha_(?:fprop|dgrad)_(?P<p>fp16|bf16)_  NVIDIA/apex contrib/csrc/fmha
attention  tc  scan  fmha_(?:fwd|bwd|block)_\w*kernel  Dao-AILab/flash-attention 1, its source
attention  tc  -  qk_int8?_sv_f(?:8|16)_\w*kernel
    thu-ml/SageAttention csrc/qattn: the first product in int8, the second in fp8 or fp16
attention  tc  fp8  deep_gemm::(?:\w*::)?sm\d+_fp8_(?:paged_)?mqa_logits  deepseek-ai/DeepGEMM impls
attention  tc  fp4  deep_gemm::(?:\w*::)?sm\d+_fp4_(?:paged_)?mqa_logits  deepseek-ai/DeepGEMM impls
attention  tc  scan  FlashAttn(?:Fwd|Bwd)Sm\d+|FlashAttention(?:Forward|Backward)Sm\d+  FlashAttention 3, 4: sources
attention  tc  scan  Batch(?:Prefill|Ragged)\w*Kernel|SinglePrefill\w*Kernel  FlashInfer, its source
attention  tc  scan  paged_attention_ll4mi_QKV_mfma\d  MI300: AITER and vLLM on ROCm, csrc/rocm/attention.cu
attention  fma  -  paged_attention_ll4mi_QKV_kernel  vLLM on ROCm before its mfma kernels
attention  fma  -  (?:Batch|Single)DecodeWith\w*Kernel|paged_attention_v[12]_kernel  FlashInfer, vLLM: sources
# Recurrent layers: the persistent kernels name their instruction.
rnn  tc  scan  RNN_blockPersist\w*HMMA  A10: cuDNN, public profiles
rnn  fma  -  RNN_blockPersist\w*<float  cuDNN, public profiles
rnn  tc  fp16  \bRNN_persist_[fb]p<__half  H200: cuDNN; counters: fp16
rnn  tc  fp16  \bampere_lstm_(?:tile|bp_)\w*  H200: cuDNN, for fp16 only; counters: fp16
# Templates that name their instruction or their unit.
-  tc  -  \b(?:bmm|gemm)_\w+?_(?P<p>MxE2m1MxE4m3|MxE4m3|MxE2m1|E4m3|E2m1|Bfloat16|Fp16)\w*_Fp32_t\d
    B200: TensorRT-LLM; fp4 weights against fp8 multiply at fp8's rate
-  tc  -  (?:MMA|SM\d+)_\d+x\d+x\d+_[FS]\d\d(?P<p>TF32|BF16|F16|E4M3|E5M2|S8|U8|F64)  CUTLASS 3's atoms
-  tc  scan  MmaTensorOp|MainloopSm(?:9|1\d)\d|GMMA::|SM100_MMA_|OpClassTensorOp
    A100, H200: CUTLASS inside cuDNN, mangled and not; CUTLASS 3
-  fma  -  MmaSimt|UniversalFMA|OpClassSimt  CUTLASS
-  tc  scan  kernel_cutlass_\w*(?:[gG]emm|flash_(?:fwd|bwd)|MultiHeadAttention)  B200: CUTLASS 4's Python DSL
gemm  tc  -  deep_gemm::(?:\w*::)?sm\d+_(?P<p>fp8|fp4|bf16|tf32)_\w*(?:gemm|moe|einsum|bmn)
    deepseek-ai/DeepGEMM deep_gemm/include/deep_gemm/impls; fp8 against fp4 multiplies at fp8's rate
gemm  tc  fp8  deep_gemm::\w*fp8\w*gemm|\bfp8_gemm_kernel  deepseek-ai/DeepGEMM, its first releases
gemm  tc  -  grouped_gemm::(?:\w*::){0,4}\w*(?P<p>fp8|bf16|fp4)\w*::GemmKernel  H800: DeepSeek's training
gemm  tc  scan  (?<![A-Za-z])Marlin(?:_24|Mo[eE]\w*)?(?:<|I(?=[NLD\d]))|tinygemm_m16n8k16
    vllm-project/vllm csrc/quantization/marlin, csrc/moe/marlin_moe_wna16; PyTorch: int4 weights, 16-bit products
# AMD: MFMA on CDNA, WMMA on RDNA. MI in Tensile's names is the matrix instruction; without it, plain FMA.
gemm  tc  tensile  Cijk_A[a-z]+_B[a-z]+_\w*_MI(?!0)\d+x\d+  MI250, MI300: rocBLAS, hipBLASLt
gemm  tc  tensile  Custom_Cijk_A[a-z]+_B[a-z]+_  MI350: hipBLASLt's hand-written MFMA kernels
gemm  fma  -  Cijk_A[a-z]+_B[a-z]+_\w*_TT\d+_\d+_  Tensile, ReplacementKernels: thread tiles only
conv  tc  -  igemm_(?:fwd|bwd|wrw)_gtc\w*?_(?P<p>bf16|fp16|int8)  MIOpen, its source
conv  tc  fp32  igemm_(?:fwd|bwd|wrw)_gtc  MIOpen, its source
conv  fma  -  miopenSp3AsmConv|naive_conv_|gcnAsmConv|miopenGcnAsm|MIOpenConv
    ROCm/MIOpen src/kernels
gemm  tc  fp4  {AI}f4gemm  ROCm/aiter hsa: hand-written, f4gemm_bf16_per1x32Fp4
gemm  tc  -  {AI}fmoe_\w*?(?P<p>MXfp4|Fp8|fp8|Int8)  ROCm/aiter hsa: fused experts, weights and activations quantized
gemm  tc  -  {AI}fmoe_(?P<p>bf16|fp16)_noquant  ROCm/aiter hsa
gemm  tc  -  {AI}fmoe_  ROCm/aiter hsa
gemm  tc  -  {AI}\w*?(?P<p>bf16|fp16|fp8)\w*gemm  ROCm/aiter hsa
attention  tc  -  {AI}fmha_\w*?_(?P<p>bf16|fp16|fp8)  ROCm/aiter hsa/gfx942, gfx950
attention  tc  -  {AI}pa_(?P<p>bf16|fp16)_noquant  ROCm/aiter hsa
attention  tc  -  {AI}pa_(?:bf16|fp16|fp8)_  ROCm/aiter hsa: a quantized cache; the product's type is not in the name
attention  tc  fp8  {AI}mla_\w{0,80}?a8w8  ROCm/aiter hsa
attention  tc  -  {AI}mla_\w{0,80}?(?P<p>bf16|fp16)\w{0,40}?_a16w16  ROCm/aiter hsa
attention  tc  -  {AI}mla_(?:dec|pfl|a16w16)  ROCm/aiter hsa
conv  tc  scan  ck_tile\w*GroupedConv\w*Kernel|ck_tile::GroupedConv\w*Kernel  ROCm/composable_kernel ck_tile/ops
attention  tc  scan  Fmha(?:Fwd|Bwd|BatchPrefill)\w*Kernel  ROCm/composable_kernel ck_tile/ops/fmha
gemm  tc  scan  ck_tile::(?:\w*::)?\w*(?:Gemm|Flatmm)\w*Kernel|ck_tile\w*(?:Gemm|Flatmm)\w*Kernel
    ROCm/composable_kernel ck_tile/ops/gemm, fused_moe; mangled, too
gemm  tc  scan  kernel_(?:moe|grouped)_(?:mx)?gemm(?!_dl|_wavelet_dl)  ROCm/composable_kernel ck/tensor_operation
-  tc  scan  xdl|Xdl|_mfma_|_wmma_  ROCm/composable_kernel ck/tensor_operation; MIOpen
# Triton: the compiler decides from types and flags.
-  triton  -  ^triton_tem_  torch.compile's templates for mm, conv and attention
attention  triton  -  ^_?attn_(?:fwd|bwd)|^bwd_kernel_d[kq]|^_(?:fwd|bwd)_kernel|^_fwd_grouped_kernel_stage1
    |^kernel_unified_attention
    MI300: AOTriton; vLLM
gemm  triton  -  ^_(?:p_)?matmul_ogs_[A-Z]{2,4}_\w{2,12}x(?P<p>bf16|fp16|fp8)\w{0,10}x
    MI300: triton_kernels in vLLM: out, A, B
gemm  triton  -  ^_(?:p_)?matmul_ogs  triton_kernels in vLLM
gemm  triton  -  ^_?(?:matmul|bmm|gemm|fused_moe)_kernel  Triton's tutorials, vLLM
gemm  triton  -  ^_w8a8_block_(?P<p>fp8|int8)_matmul  vLLM, SGLang: quantization kernels in Triton
gemm  triton  -  ^_kernel_matmul_fp8|^_fbgemm_grouped_gemm
    pytorch/FBGEMM fbgemm_gpu/experimental/gemm/triton_gemm
rnn  triton  -  ^_(?:bmm_chunk|chunk_scan|chunk_state)_\w*kernel
    state-spaces/mamba mamba_ssm/ops/triton: the products of Mamba 2
# The instruction in the name, and last: a product, and no more is known.
conv  fma  -  causal_conv1d_\w*kernel  Dao-AILab/causal-conv1d csrc; vLLM's Triton ones
-  tc  scan  (?i:[hid]g?mma(?![a-z])|wgmma|tcgen05|(?<![a-z])(?:bs)?(?:sp)?tensorop(?![a-z]))
    hmma, imma, dmma, igmma ...
-  unknown  -
    nvjet_|RNN_blockPersist|persistRNN
    |(?i:(?<!fb)gemm(?!coord|shape|\w{0,60}::)|matmul|matrix_mul|wv_?splitk|implicit_conv|fmha)|Cijk_
    no capture: any other product, so that it is not taken for something else
"""

# All other kernels whose name tells their kind of work; upper and lower case are the same. Fields: kind of work,
# pattern, source.
OTHERS = r"""
# Communication between GPUs.
collective  ^(?:nccl|rccl)  NVIDIA/nccl src/device; ROCm/rccl
indexing  get_dispatch_layout  H800: deepseek-ai/DeepEP csrc/kernels/layout.cu, counts tokens and sends nothing
collective  (?:inter|intra)node(?:_ll)?(?:::|\d+)\w*(?:dispatch|combine|notify|barrier|clean_low_latency)
    H800: deepseek-ai/DeepEP csrc/kernels/{intranode,internode,internode_ll}.cu and its ports
collective  deep_ep(?:::\w*|\d+\w*){0,3}(?:dispatch|combine|barrier)  deepseek-ai/DeepEP deep_ep/include/deep_ep/impls
collective
    (?:barrier|sync|quiet)_on_stream_kernel|nvshmemi?_\w{0,40}(?:put|get|barrier|reduce|bcast|alltoall|fcollect|rdxn)
    NVIDIA/nvshmem src/host/stream/coll
collective  Ep(?:Dispatch|Combine)\w*Kernel  ROCm/mori src/ops/dispatch_combine
collective  cross_device_reduce_\dstage  vllm-project/vllm csrc/custom_all_reduce.cuh; sglang, ROCm/aiter
collective  kuserbuffers_|userbuffers_fp16_sum_inplace
    NVIDIA/TransformerEngine common/comm_gemm_overlap/userbuffers/userbuffers.cu
collective  (?<!warp)(?<!block)all_?reduce|all_?gather|reduce_?scatter|all_?to_?all
    NVIDIA/TensorRT-LLM kernels/communicationKernels, PyTorch SymmetricMemory: symm_mem
# Losses before softmax, whose names they contain; normalisation.
softmax  log_?softmax  H200: ATen; torch.compile, which fuses the loss into it
loss  cross_entropy|focal_loss|^_grpo_loss|^_tv_distance_kernel|SoftMaxXEntropy|ClassNLLCriterion|nll_loss
    |(?:mse|smooth_l1|huber)_kernel
    |^_kldiv_kernel|^_jsd_kernel
    V100: ATen; linkedin/Liger-Kernel src/liger_kernel/ops; NVIDIA/apex contrib/csrc/xentropy
softmax  softmax  H100: ATen; TransformerEngine common/fused_softmax; Megatron's in NVIDIA/apex
norm  (?:layer|rms|batch|group|instance)_?norm|\bbn_|norm_fwd|norm_bwd|GammaBeta
    V100, MI210: ATen, cuDNN, MIOpen; H800: flash-attention csrc/layer_norm; MI300: AITER, ck_tile
norm
    welford|RowwiseMoments|Compute(?:Internal|GradientFused)\w*(?:Gradients|Params)CUDA|cuApplyLayerNorm
    |cuComputeGradInput|\bln_(?:fwd|bwd)
    V100: ATen layer_norm_kernel.cu, group_norm_kernel.cu; TransformerEngine; NVIDIA/apex csrc/layer_norm_cuda_kernel.cu
# State-space and linear-attention layers.
rnn  selective_scan|selective_state_update|chunk_cumsum_\w*kernel|state_passing_\w*kernel
    state-spaces/mamba csrc/selective_scan, mamba_ssm/ops/triton
rnn  gated_delta_rule  ROCm/aiter csrc/kernels/chunk_gated_delta_rule_fwd_h.cu; flash-linear-attention
copy  multi_tensor_apply.{0,400}\bCopy(?:Functor)?<  SGLang on MI300: ATen ForeachBinaryOpList.cu, _foreach_copy_
optimizer  multi_tensor_apply|adam|lamb_  H200: ATen, NVIDIA/apex csrc/multi_tensor_*.cu
# Rotary positions before tables: their kernels have "embedding" in their names, and multiply.
pointwise  rotary|(?<![a-z])rope(?![a-z])|kn_entry_\w*(?:sbhd|thd|bshd)
    MI300: AITER, vLLM; H800; NVIDIA/TransformerEngine common/fused_rope; linkedin/Liger-Kernel
indexing  bounds_check_indices|bucketize_sparse|offsets_range|linearize_index
    H100: pytorch/FBGEMM fbgemm_gpu/src/sparse_ops
embedding  embedding|l[rfx]u_cache_\w*kernel|compute_grad_weight|krn_partial|num_of_partial_segments|sum_and_scatter
    H200, A100: ATen EmbeddingBackwardKernel.cu; pytorch/FBGEMM fbgemm_gpu/codegen, src/split_embeddings_cache
# Gates and activations, with the cast behind them.
pointwise  act_and_mul|gated_act_kernel|(?<![a-z])(?:swi|ge|re)glu|nvfuser_none|nvfuser_pointwise
    MI300: vLLM, SGLang; H800; linkedin/Liger-Kernel; NVIDIA/TransformerEngine common/activation
# The cache of keys and values; experts' tokens.
copy  reshape_and_cache|concat_and_cache|store_kv_?cache|append_paged_kv|set_mla_kv|expand_to_fused|expandInputRows
    B200, MI300: vLLM, SGLang, FlashInfer; H800: DeepSeek; NVIDIA/TensorRT-LLM moe_gemm
indexing
    moe_align_block|moe_?sorting|routing|bitmatrix|count_expert|fused_mapping|group_indices|(?:kv|page)_indices
    |token_ids_kernel
    B200, MI300: vLLM, TensorRT-LLM, triton_kernels, ck_tile, SGLang; H800: DeepSeek
reduction  finalizeMoeRouting|finalize::finalizeKernel|reduce_fused_impl
    B200: TensorRT-LLM in vLLM; H800: weighted sums of the experts' rows
# Casts to and from narrow types, with their scales.
copy
    per_(?:token|channel|block|tensor|group)\w{0,20}_cast|cast_back|cast_(?:and_)?transpose|cast_to_fp\d|cast_mxfp\d
    |cast_fp\d
    H800: DeepSeek; NVIDIA/TransformerEngine common/transpose, common/cast
copy  quant(?!um|ile|ity)(?:ize)?_?(?:mx)?(?:kernel|fp\d|int\d|with|row|per|block)|quant(?!um|ile|ity)\w{0,40}kernel
    |cvt_fp16_to_fp4
    B200: TensorRT-LLM, vLLM csrc/quantization; pytorch/FBGEMM experimental/gemm/triton_gemm; SageAttention's Triton
# CuPy names a kernel by its function and the types of its arguments.
copy  ^cupy_copy__  cupy/cupy cupy/_core/_kernel.pyx: ufuncs
fill  ^cupy_fill  cupy/cupy cupy/_core/_kernel.pyx
pointwise  ^cupy_\w+?__(?:bool|u?int|float|complex)  cupy/cupy cupy/_core/_kernel.pyx: ufuncs
copy  direct_copy|(?<!index_)copy_kernel|copy_tensor_kernel|recat_copy|CatArray|transpose|permute|rocclr_copyBuffer
    V100 to B200: ATen; MI210: MIOpen; H100: pytorch/FBGEMM
fill  rocclr_fillBuffer|FillFunctor|arange_cuda  MI300: ROCm/clr; H200: ATen, the values are not read
copy  ^memcpy\d+(?:_\w+)?$  H200: NVIDIA's driver, for copies in CUDA graphs
fill  ^memset\d+(?:_\w+)?$  the driver, for memsets in CUDA graphs
indexing  (?<!with_)index|gather|scatter|sort|topk|nonzero|masked_select  H200, H100: ATen
reduction  reduce_kernel|amax_kernel|triton_(?:red|per)_|cub::|reduction|rocprim::\w*|kernelReduceAll
    H200, MI300: ATen, torch.compile
resize  upsample  A100: ATen UpSample*.cu
pooling  pool  V100, H200: ATen, cuDNN
rng  dropout|philox|distribution  H200: ATen
pointwise  elementwise|triton_poi_|silu|gelu|_mul_|kernelPointwiseApply|clamp_position|element_mul_kernel
    H200: ATen, torch.compile
attention  attention(?!_?mask)  MI300: vLLM, TensorRT-LLM: products whose unit is unknown
"""
