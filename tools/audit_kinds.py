"""The kind of work of an operation, from its op's and kernel's name alone; for ``audit.py``.

The words are those of the summary. The rules were written from what the names mean, not from pyprof's tables: an op
says what its kernels are for; without an op of PyTorch, the kernel's own name decides. A name that may be of several
kinds gives all of them, and one that says nothing gives none: its time is compared with no kind.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache

from tools.audit_raw import Operation

Rules = tuple[tuple[str, str], ...]
GEMM, CONVOLUTION, ATTENTION, RECURRENT = "GEMM", "convolution", "attention", "recurrent layers"
ELEMENTWISE, NORM, SOFTMAX, LOSS = "element-wise", "normalisation", "softmax", "loss"
REDUCTION, POOLING, RESIZING, FFT = "reductions", "pooling", "resizing", "FFT"
MOVE, COPY, FILL = "copies and casts", "host-device copies", "fills"
EMBEDDING, INDEXING, RANDOM = "embedding", "indexing and sorting", "random numbers"
OPTIMIZER, COMMUNICATION, GRAPH, OTHER = "optimizer", "communication", "CUDA graphs", "other"

# NCCL and RCCL; the all-reduce of vLLM and TensorRT-LLM over NVLink; DeepEP and NVSHMEM
COLLECTIVE = re.compile(
    r"^(?:nccl|rccl)|cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter|internode::|intranode::|nvshmem",
    re.IGNORECASE,
)
# Ops of PyTorch, without "aten::" and the in-place underscore; the first rule that matches decides.
OPS: Rules = (
    (r"^_?(?:mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|ger|addr|outer|linear|matmul|(?:scaled|int)_mm)$", GEMM),
    (r"embedding", EMBEDDING),
    (r"attention|flash_attn|flash_fwd|flash_bwd", ATTENTION),
    (r"conv(?!ert)", CONVOLUTION),
    (r"(?:layer|batch|group|instance|rms|weight)_norm", NORM),
    (r"nll_loss|_loss(?:_|$)|cross_entropy|kl_div", LOSS),
    (r"softmax", SOFTMAX),
    (r"_thnn_fused_\w+_cell", f"{RECURRENT}|{ELEMENTWISE}"),  # the gates alone: element by element
    (r"rnn|lstm|gru(?:_|$)", RECURRENT),
    (r"pool\dd", POOLING),
    (r"upsample|grid_sampl|interpolate", RESIZING),
    (r"fft", FFT),
    (r"^_fused_(?:adam|sgd|adagrad)", OPTIMIZER),
    (r"dropout|masked_scale|^(?:normal|uniform|random|bernoulli|exponential|multinomial|randn?|randperm)$", RANDOM),
    (r"index|gather|scatter|^(?:sort|topk|nonzero|bucketize|searchsorted|masked_select|take|argsort)$", INDEXING),
    (r"^(?:sum|mean|amax|amin|argmax|argmin|prod|any|all|cumsum|std|var|var_mean|norm|linalg_vector_norm)$", REDUCTION),
    (r"^(?:logsumexp|equal)$", REDUCTION),
    (r"^(?:fill|zero|(?:new_)?(?:zeros|ones|full)(?:_like)?|arange)$", FILL),
    (r"^(?:copy|clone|contiguous|cat|stack|repeat|flip|roll|constant_pad_nd|_to_copy)$", MOVE),
    (
        r"^(?:add|sub|mul|div|neg|pow|exp|log|log2|sqrt|rsqrt|abs|sgn|sign|cos|sin|tanh|sigmoid|relu|gelu|silu|elu|glu"
        r"|threshold|clamp|clamp_min|clamp_max|addcmul|addcdiv|lerp|where|masked_fill|nan_to_num|minimum|maximum"
        r"|eq|ne|lt|le|gt|ge|logical_and|logical_or|logical_not|bitwise_\w+|remainder|floor_divide|reciprocal|_?prelu\w*"
        r"|hardtanh|leaky_relu|square|rsub|floor|ceil|round|erf|tril|triu)(?:_backward)?$",
        ELEMENTWISE,
    ),
)
# Kernels without an op: PyTorch's own, cuBLAS, cuDNN, CUTLASS, CUB, MIOpen and hipBLASLt, and what they are called.
NAMES: Rules = (
    (r"^triton_tem_", f"{GEMM}|{CONVOLUTION}|{ATTENTION}"),
    (r"^triton_poi_\w*norm", f"{NORM}|{ELEMENTWISE}|{MOVE}|{CONVOLUTION}"),  # what follows the norm's sums
    (r"^triton_poi_", f"{ELEMENTWISE}|{MOVE}|{FILL}|{RANDOM}|{EMBEDDING}|{INDEXING}"),
    (r"^triton_(?:red|per)_", f"{REDUCTION}|{NORM}|{SOFTMAX}|{LOSS}|{MOVE}|{EMBEDDING}"),
    (r"fmha|sdpa|flash_(?:fwd|bwd)|paged_attention|unified_attention|flash_attn|unpack_cudnn", ATTENTION),
    (r"(?i:rms_?norm|layer_?norm|batch_?norm|group_?norm)|\bbn_(?:fw|bw)|cudnn::bn_", NORM),
    (
        r"[dw]grad|fprop|grouped_conv_|winograd|im2col|igemm_(?:fwd|bwd|wrw)|implicit_(?:con)?volve|conv(?!ert)\w*2d",
        CONVOLUTION,
    ),
    (r"_matmul_ogs_", GEMM),  # their names may end in the activation that they apply
    (r"rotary|act_and_mul|swiglu", ELEMENTWISE),
    (r"batched_transpose|::transpose<|cast_(?:and_)?transpose|_cast_to_fp|cast_back", MOVE),
    (
        r"nvjet|Cijk_|(?<!fb)gemm(?!\w*::\w+::utils)|gemv|splitKreduce|_matmul_scatter|batched_matrix_multi|dot_kernel",
        GEMM,
    ),
    (r"reduce_1Block|^bmm_\w+_Fp32_t", GEMM),
    (r"log_?softmax", SOFTMAX),
    (r"nll_loss|cross_entropy|mse_kernel", LOSS),
    (r"(?i:softmax)", SOFTMAX),
    (r"multi_tensor_apply_kernel.*(?:Adam|SGD|LAMB)", OPTIMIZER),
    (r"multi_tensor_apply_kernel", f"{OPTIMIZER}|{ELEMENTWISE}|{MOVE}|{FILL}|{REDUCTION}"),
    (r"embedding", EMBEDDING),
    (r"pool_(?:forward|backward)|pooling", POOLING),
    (r"upsample", RESIZING),
    (r"RadixSort|radix_sort", f"{INDEXING}|{EMBEDDING}"),  # also part of an embedding's backward pass
    (r"topk|scatter_gather|gather_kernel|index_?(?:ing|Select|_elementwise|_put)|routing", INDEXING),
    (r"reduce_kernelI?L?\w*(?:<|ILi)|DeviceReduceKernel|DeviceReduceSingleTile", REDUCTION),
    (r"dropout|distribution_elementwise|curand|philox|Dropout", RANDOM),
    (r"FillFunctor|fillBuffer|cupy_fill|arange_cuda|SubTensorOpWithScalar", FILL),
    (r"CatArray|copy_kernel|copyBuffer|copy_tensor|cupy_copy|permute\w*_kernel|reshape_and_cache|store_kvcache", MOVE),
    (r"masked_fill|elementwise_(?:add|mul)|elementwise_kernel\w*(?:<|ILi)|^cupy_\w+__", ELEMENTWISE),
)
NAMED_OP = re.compile(r"^(?:aten::(\w+?)_?|(\w+?)_?(?=, (?:seq|op_id) = ))(?:, .*)?$")
LIBRARY = re.compile(r"^(?:user: |cub::|thrust::|nccl)")  # ranges that are no ops


def kinds_of(row: Operation) -> frozenset[str]:
    """The kinds that the operation may be; empty if its names do not say."""
    if row.kind == "graph":
        return frozenset([GRAPH])
    if row.kind == "memset":
        return frozenset([FILL])
    if row.kind == "memcpy":
        return frozenset([COPY if re.search("HtoD|DtoH|Host", row.name) else MOVE])
    if is_collective(row.name):
        return frozenset([COMMUNICATION])
    return _of_names(innermost(row), row.full or row.name)


@cache
def is_collective(kernel: str) -> bool:
    return COLLECTIVE.search(kernel) is not None


@cache
def _of_names(op: str, kernel: str) -> frozenset[str]:
    of_op, of_kernel = _first(OPS, op), _first(NAMES, kernel)
    # torch.compile fuses ops of several kinds into one kernel, which is recorded as that of one of them.
    return of_op | of_kernel if kernel.startswith("triton_") else of_op or of_kernel


def innermost(row: Operation) -> str:
    """The op of PyTorch that launched the kernel, without "aten::" and the in-place underscore; empty without one.

    Of a capture by PyProf or pyprof that has no ops of PyTorch: the call that the innermost marker records.
    """
    for range_ in reversed(row.around):
        if not LIBRARY.match(range_.name):
            return _op(range_.name)
    return ""


@cache
def _op(text: str) -> str:
    """The op that a range's text names; empty if it is none."""
    if named := NAMED_OP.match(text):
        return str(named[1] or named[2])
    marker = re.search(r"""['"]op['"]: ?['"](\w+)['"]""", text) if text.startswith("{") else None
    return marker[1].strip("_") if marker else ""


def _first(rules: Rules, name: str) -> frozenset[str]:
    found = next((kinds for pattern, kinds in rules if re.search(pattern, name)), "")
    return frozenset(filter(None, found.split("|")))


def kind_bounds(operations: Iterable[Operation]) -> dict[str, tuple[int, int, int, int]]:
    """For each kind, the rows and time that are certainly of it, and those that may be (an unclear name: of any)."""
    sums: Counter[frozenset[str]] = Counter()
    counts: Counter[frozenset[str]] = Counter()
    for row in operations:
        kinds = kinds_of(row)
        counts[kinds] += 1
        sums[kinds] += row.duration
    bounds = {}
    for kind in {OTHER, *(kind for kinds in counts for kind in kinds)}:
        certain, possible = frozenset([kind]), [kinds for kinds in counts if kind in kinds or not kinds]
        most = sum(counts[kinds] for kinds in possible), sum(sums[kinds] for kinds in possible)
        bounds[kind] = (counts[certain], most[0], sums[certain], most[1])
    return bounds
