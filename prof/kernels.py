"""What a GPU kernel's name tells: the tables behind ``tensorcore`` and ``roles``.

``HELPERS`` are kernels that serve an op and do none of its arithmetic, although many carry its library's name.
``PRODUCTS`` are kernels that multiply matrices, with what their name says of the unit and the input precision.
Both are read top down, the first pattern found anywhere in the name wins. ``seen`` says where the pattern comes from:
a capture (GPU, library), or the source or document that spells the name for parts no capture was at hand for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["HELPERS", "PRODUCTS", "Helper", "Product", "find_helper", "find_product"]


@dataclass(frozen=True, slots=True)
class Helper:
    """A kernel that does a chore: ``kind`` is reduce, layout, transform, fill, index, cast, epilogue or gates."""

    kind: str
    pattern: str
    seen: str
    regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regex", re.compile(self.pattern))


@dataclass(frozen=True, slots=True)
class Product:
    """A kernel that multiplies matrices.

    ``unit``: ``tc`` (tensor cores), ``fma`` (none), ``types`` (the type in group ``p`` decides: f32 means none),
    ``triton`` (the name does not tell). ``precision``: fixed, or else read from group ``p``, or else by ``scan`` from
    the type names in the whole template.
    """

    unit: str
    pattern: str
    seen: str
    precision: str = ""
    scan: bool = False
    regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regex", re.compile(self.pattern))


HELPERS = (
    # Sums of partial products. An xmma "execute_split_k_kernel" follows its "execute_kernel" of the same name, with a
    # smaller grid and a tenth of the time: it adds the slices up.
    Helper("reduce", r"splitKreduce", "V100, A100, H100, H200; cuBLAS, cuBLASLt"),
    Helper("reduce", r"xmma_\w*execute_split_k_kernel", "A100, H200 cuDNN wgrad; H100 cuBLAS fp32"),
    Helper("reduce", r"ReduceSplitK|cutlass\w*::reduction::", "A100, H200; CUTLASS inside cuDNN"),
    Helper("reduce", r"reduce_wgrad_nchw_helper", "A100; cuDNN wgrad"),
    Helper("reduce", r"reduce_1Block_kernel", "cuBLAS dot and nrm2, after dot_kernel"),
    Helper("reduce", r"^Cijk_\w*PostGSU", "MI300; Tensile's global split-U, ROCm/Tensile KernelWriterConversion.py"),
    Helper("reduce", r"flash_fwd_splitkv_combine|FlashAttnFwdCombine|FlashAttentionForwardCombine|FmhaFwdSplitKVCombine",
           "FlashAttention 2, 3, 4; ck_tile"),
    # Layout changes around a product.
    Helper("layout", r"nchwToNhwc|nhwcToNchw|nhwcAddPadding|nchwAddPadding", "V100, A100, H200; cuDNN"),
    Helper("layout", r"tensorTransform|transformTensor|convertTensor|cudnn::ops::\w*[tT]ranspose", "cuDNN"),
    Helper("layout", r"transpose_readWrite_alignment_kernel", "V100; cuBLAS inside cuDNN's FFT convolution"),
    Helper("layout", r"batched_transpose_\d+x\d+|SubTensorOpWith|transpose_\w+2\w+_kernel", "MIOpen"),
    # Transforms into the domain where a convolution is a product, and back.
    Helper("transform", r"winograd_nonfused::|generateWinogradTilesKernel", "V100; cuDNN Winograd"),
    Helper("transform", r"fft[12]d_(?:r2c|c2r)_|flip_filter", "V100, A100; cuDNN FFT convolution"),
    Helper("transform", r"im2col|im2Col|col2im|Im2d2Col|vol2col|col2vol", "V100 cuDNN, A100 deformable convolution"),
    # Workspaces, scale factors, semaphores.
    Helper("fill", r"init_device_workspace_kernel", "H200; cuDNN wgrad, carries the wgrad's template"),
    Helper("fill", r"scalePackedTensor_kernel", "V100, H200; cuDNN, clears the output before a sum into it"),
    Helper("fill", r"^Cijk_\w*BetaOnly|^Cijk_[A-Z]+_GB$", "Tensile, scales C by beta before a split-U product"),
    Helper("fill", r"\bscal_kernel<", "H200; cuBLAS, scales C by beta before sgemm_largek"),
    # Where to read: index tables computed ahead.
    Helper("index", r"compute\w*OffsetsKernel|kern_precompute_indices", "V100, A100; cuDNN"),
    Helper("index", r"prepare_varlen_num_blocks|prepare_grouped_gemm_data|unpack_cudnn|philox::unpack",
           "FlashAttention 3; PyTorch grouped mm; H200 cuDNN attention's dropout seed"),
    # Casts and row sums around fused attention's main loop.
    Helper("cast", r"convert_dq|convert_dkv|FlashAttnBwdPostprocess|FlashAttentionBackwardPostprocess"
           r"|flash_bwd_postprocess|FmhaBwdConvertQGrad", "H200 cuDNN; FlashAttention 2, 3, 4; ck_tile"),
    Helper("cast", r"dot_do_o|FlashAttnBwdPreprocess|FlashAttentionBackwardPreprocess|flash_bwd_preprocess"
           r"|bwd_preprocess|FmhaBwdOGradDotO", "H200 cuDNN; FlashAttention 2, 3, 4; AOTriton; ck_tile"),
    Helper("epilogue", r"epilogue::impl::globalKernel", "A100, H200; cuBLASLt, adds the bias of addmm"),
    # Gates between a recurrent layer's products; the persistent kernels fuse them and are products.
    Helper("gates", r"elemWiseRNNcell|(?:LSTM|GRU|RNN|GENERIC)_elementWise", "cuDNN RNN, non-persistent path"),
)  # fmt: skip

_XTYPE = r"c?(?:bf16|tf32|f16|f32|f64|e4m3|e5m2|i8|u8|i32|u32|i4)"
_GEMMISH = r"(?:gemm|cudnn|fprop|dgrad|wgrad|conv)"
_PTYPE = r"(?:bf16|fp16|f16|tf32|e4m3|e5m2|s8|u8|int8|f64)"

PRODUCTS = (
    # cuBLAS, cuBLASLt. nvjet's letters: A and B, (C,) accumulate, output; t bf16, h fp16, q/r fp8, o fp4, s f32.
    Product("tc", r"nvjet_(?:sm\d+_)?sss_tf32", "H100-class; cuBLASLt, spelled in a public profile", "tf32"),
    Product("tc", r"nvjet_(?:sm\d+_)?(?P<p>[thqros])[a-z]{2,4}_", "H100, H200, B200; cuBLASLt 12.6 to 13"),
    # xmma (cask): storage pair, then multiplier and accumulator, then epilogue; "ffma" and the like: no tensor core.
    Product("fma", r"xmma_\w*_(?:ffma|dfma|hfma2?|idp4a)\w*", "H100, H200 cuBLAS; ncu on H200: tensor pipe 0%"),
    Product("tc", rf"xmma_\w*?_{_XTYPE}{_XTYPE}_f64f64_\w*(?:tensor|dmma)\d", "A100, H100; cuBLAS", "fp64"),
    Product("types", rf"xmma_\w*?_{_XTYPE}{_XTYPE}_c?(?P<p>bf16|tf32|f16|f32|e4m3|e5m2|i8|u8|i4){_XTYPE}",
            "A100, H100, H200; cuBLAS and cuDNN; ncu on H200: tf32f32 tensor pipe 92%"),
    # CUTLASS by procedural name, cuBLAS's and cuDNN's own SASS kernels.
    Product("fma", r"cutlass\w*_simt_", "A100, H100, H200; CUTLASS in cuBLAS"),
    Product("tc", rf"cutlass3x_\w*_bs(?:sp)?tensorop_\w*?(?:gemm|conv)\w*?x(?P<p>e2m1|f4|e4m3|e5m2|f8)",
            "CUTLASS 4, block-scaled for Blackwell"),
    Product("tc", rf"cutlass3x_\w*tensorop_\w*?(?:gemm|{_GEMMISH})\w*?_(?P<p>{_PTYPE}|e2m1|f4|f8)_",
            "CUTLASS 3 profiler names, docs profiler.md"),
    Product("tc", r"(?<![a-zA-Z0-9])(?:gz|[dz])(?:884|888|1688|16816)" + _GEMMISH, "A100; cuBLAS, CUTLASS", "fp64"),
    Product("tc", r"(?<![a-zA-Z0-9])i(?:8832|16864)" + _GEMMISH, "A100; CUTLASS", "int4"),
    Product("tc", r"(?<![a-zA-Z0-9])i(?:8816|16816|16832|161616|32816|83216)" + _GEMMISH,
            "T4 cuDNN; H200 cuBLAS _int_mm", "int8"),
    Product("tc", r"(?<![a-zA-Z0-9])h(?:884|888|1688|16816|161616|32816|83216)" + _GEMMISH, "V100, T4, A100", "fp16"),
    Product("tc", rf"(?<![a-zA-Z0-9])(?:gc|[sc])\d{{3,6}}(?P<p>tf32|bf16|f16){_GEMMISH}", "CUTLASS fast f32"),
    Product("tc", rf"(?<![a-zA-Z0-9])s\d{{3,6}}{_GEMMISH}(?:_(?:relu|optimized|analytic|fixed_channels|few_channels))*"
            rf"_(?P<p>{_PTYPE})", "V100, T4, A100, H100, H200; cuBLAS, cuDNN"),
    Product("tc", rf"(?:turing_\w*s1688|s884){_GEMMISH}", "V100, T4; these parts have fp16 only", "fp16"),
    Product("tc", rf"(?<![a-zA-Z0-9])(?:gc|[sc])1688{_GEMMISH}", "A100; cuBLAS, fp32 in: no type in the name", "tf32"),
    Product("tc", rf"(?<![a-zA-Z0-9])s16832{_GEMMISH}", "L4; CUTLASS for Ada", "fp8"),
    Product("tc", rf"(?<![a-zA-Z0-9])s(?:16816|161616){_GEMMISH}", "A100, fp16 or bf16"),
    Product("fma", r"(?:maxwell|pascal|volta|turing|ampere)_(?:\w+?_)?(?:gc|gz|[sdhczi])(?:gemm|cudnn)",
            "V100, A100; cuBLAS and cuDNN"),
    Product("fma", r"gemv|gemmk1_kernel|gemmSN_|\bdot_kernel<|sgemm_largek|gemm_kernel\dx\d_core|[sdhcz]gemm_\d+x\d+x\d+"
            r"|gemm_template_\w*kernel|magma\w*gemm|gemm_kernel_fermi", "A100, H200; cuBLAS and MAGMA, vectors and odd shapes"),
    # cuDNN convolutions without tensor cores.
    Product("fma", r"(?:implicit|explicit)_convolve_[a-z]*gemm|convolve_common_engine", "V100, H200; cuDNN"),
    Product("fma", r"(?:dgrad|wgrad)(?:2d)?(?:_c1_k1)?_(?:alg\d|engine|grouped_direct|\w*_engine)|conv2d_grouped_direct_kernel"
            r"|conv2d_c1_k1", "V100, H200; cuDNN"),
    Product("fma", r"pointwise_mult_and_sum_complex|winograd3x3Kernel|[fs]winograd", "V100; cuDNN FFT and Winograd"),
    Product("fma", r"conv_depthwise[23]d|DepthwiseConv", "PyTorch, ATen/native/cuda/DepthwiseConv2d.cu, 3d"),
    # Attention.
    Product("tc", r"sdpa_sm\d+\w*_(?P<p>e4m3|e5m2|fp8|f8)_", "cuDNN 9 fp8 attention"),
    Product("tc", r"cudnn_generated_\w*sdpa", "H200; cuDNN, says f16 for bf16 too: the op's dtype tells"),
    Product("tc", r"fmha_cutlass[FB]_f32_\w*sm(?:8|9|1\d)\d", "H200; PyTorch: f32 by three tf32 products", "tf32"),
    Product("tc", r"fmha_cutlass[FB]_(?P<p>f16|bf16)_\w*sm(?:[789]|1\d)\d", "V100 to H100; PyTorch, xFormers"),
    Product("fma", r"fmha_cutlass[FB]_", "PyTorch, f32 before Ampere and all before Volta"),
    Product("tc", r"Attention(?:Backward)?Kernel<(?:float, )?cutlass::arch::Sm(?:8|9|1\d)\d, (?:float|true|false),?",
            "PyTorch's memory-efficient attention by template", "tf32"),
    Product("tc", r"Attention(?:Backward)?Kernel<(?:cutlass::arch::Sm\d+, )?cutlass::(?P<p>half_t|bfloat16_t)",
            "PyTorch's memory-efficient attention by template"),
    Product("fma", r"Attention(?:Backward)?Kernel<(?:cutlass::arch::Sm[567]\d, )?float", "PyTorch, f32 before Ampere"),
    Product("tc", r"fmhaSm\d+\w*Kernel_Qkv(?P<p>E4m3|E2m1|Bfloat16|Fp16|Half)", "B200; TensorRT-LLM in vLLM"),
    Product("tc", r"fmha_v2_\w*?(?P<p>bf16|fp16|e4m3|int8)_", "TensorRT, TensorRT-LLM"),
    Product("tc", r"flash_(?:fwd|bwd)\w*kernel", "H100; FlashAttention 2, its own and PyTorch's", scan=True),
    Product("tc", r"FlashAttn(?:Fwd|Bwd)Sm\d+|FlashAttention(?:Forward|Backward)Sm\d+", "FlashAttention 3, 4", scan=True),
    Product("tc", r"Batch(?:Prefill|Ragged)\w*Kernel|SinglePrefill\w*Kernel", "FlashInfer", scan=True),
    Product("fma", r"BatchDecodeWith\w*Kernel|SingleDecode\w*Kernel|paged_attention_v[12]_kernel", "FlashInfer, vLLM"),
    Product("tc", r"RNN_blockPersist\w*HMMA", "A10; cuDNN RNN", scan=True),
    Product("fma", r"RNN_blockPersist\w*<float|persistRNN\w*<float", "cuDNN RNN in fp32"),
    # Templates that say their instruction.
    Product("tc", r"\b(?:bmm|gemm)_\w+?_(?P<p>MxE4m3|MxE2m1MxE4m3|E4m3|E2m1|MxE2m1|Bfloat16|Fp16)\w*_Fp32_t\d",
            "B200; TensorRT-LLM's generated GEMMs; fp4 weights against fp8 run as fp8"),
    Product("tc", r"(?:MMA|SM\d+)_\d+x\d+x\d+_[FS]\d\d(?P<p>TF32|BF16|F16|E4M3|E5M2|S8|U8|F64)", "CUTLASS 3 atoms"),
    Product("tc", r"MmaTensorOp|MainloopSm(?:9|1\d)\d|GMMA::|SM100_MMA_|DeviceGemmFp4|OpClassTensorOp",
            "A100, H200; CUTLASS inside cuDNN, mangled and not; CUTLASS 3", scan=True),
    Product("fma", r"MmaSimt|UniversalFMA|OpClassSimt", "CUTLASS"),
    Product("tc", r"kernel_cutlass_\w*(?:[gG]emm|flash_(?:fwd|bwd))", "CUTLASS 4 Python DSL; FlashAttention 4", scan=True),
    Product("tc", r"deep_gemm::\w*fp8|fp8_gemm_kernel", "H100; DeepGEMM", "fp8"),
    Product("tc", r"[mM]arlin::Marlin|tinygemm_m16n8k16", "vLLM; PyTorch int4 weights, 16-bit products", scan=True),
    # AMD: MFMA on CDNA, WMMA on RDNA. In Tensile's names MI is the matrix instruction, without it plain FMA.
    Product("tc", r"^(?:Custom_)?Cijk_\w*?_B[a-z]{3}_(?P<p>[A-Z0-9a-z]+?)_\w*_MI(?!0)\d+x\d+", "MI250, MI300; rocBLAS, hipBLASLt"),
    Product("fma", r"^Cijk_A", "Tensile without a matrix instruction"),
    Product("tc", r"igemm_(?:fwd|bwd|wrw)_gtc\w*?_(?P<p>bf16|fp16|fp32|int8)", "MIOpen implicit GEMM"),
    Product("fma", r"miopenSp3AsmConv|naive_conv_|gcnAsmConv|miopenGcnAsm|MIOpenConv", "MIOpen Winograd and direct"),
    Product("tc", r"aiter::\w*?(?P<p>bf16|fp16|fp8)\w*gemm|aiter::(?:fmha|mla)\w*?_(?P<q>bf16|fp16|fp8)", "AITER"),
    Product("tc", r"xdlops|_xdl|Xdl|_mfma_|_wmma_|DeviceGemmWmma|ck_tile::\w*Fmha|FmhaFwd|FmhaBwd", "Composable Kernel", scan=True),
    # Triton: the compiler decides from types and flags.
    Product("triton", r"^triton_tem_", "torch.compile max-autotune templates"),
    Product("triton", r"^_?attn_(?:fwd|bwd)|^bwd_kernel_d[kq]|^_?(?:matmul|bmm|gemm|fused_moe|unified_attention)_?kernel"
            r"|^kernel_unified_attention|^_fwd_kernel|^_bwd_kernel", "MI300 AOTriton; common Triton kernels"),
    Product("tc", r"(?i:[hid]g?mma(?![a-z])|wgmma|tcgen05|tensorop)", "the instruction in the name", scan=True),
)  # fmt: skip


def find_helper(name: str) -> Helper | None:
    """The chore a kernel does, or None where its name tells of none."""
    return next((helper for helper in HELPERS if helper.regex.search(name)), None)


def find_product(name: str) -> tuple[Product, re.Match[str]] | None:
    """The family of product kernels a name belongs to, and where it says so."""
    for product in PRODUCTS:
        match = product.regex.search(name)
        if match:
            return product, match
    return None
