"""The dtypes of operands, by the template parameters of kernels whose parameters are their types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyprof.dtypes import OF_CPP
from pyprof.prof.kernels.type_names import Dtypes, dtype_at, lambdas, parameters


@dataclass(frozen=True, slots=True)
class Template:
    """A kernel whose template parameters are the types of an op's operands.

    ``rest``, ``out`` and the values of ``at`` are numbers of template parameters: of all other operands', of the
    output's and of the type of the argument at that position. A name in ``at`` is a dtype, or ``index``: the last
    integer type. ``ops``: the ops that the positions fit. ``flag``: the position of an argument that is true.
    """

    kernel: str
    ops: str
    seen: str
    rest: int | None = None
    out: int | None = None
    at: Mapping[int, int | str] = field(default_factory=dict)
    flag: int | None = None


PARAMETERS = dict.fromkeys(range(1, 5), "float32")  # cuDNN batch norm's weights and statistics, for half types too
SAVED = dict.fromkeys(range(2, 7), "float32")
TEMPLATES = (
    # in, out, accumulator; the backward reads output and its gradient in the first type.
    Template(r"softmax_warp_forward", r"_(?:log_)?softmax", "H200, H100; PersistentSoftmax.cuh", rest=0, out=1),
    Template(
        r"softmax_warp_backward", r"_(?:log_)?softmax_backward_data", "H200; PersistentSoftmax.cuh", rest=0, out=1
    ),
    # in, accumulator, out; the backward the other way round: it reads what the forward wrote.
    Template(r"cunn_SoftMaxForward\w*", r"_(?:log_)?softmax", "H200; SoftMax.cu", rest=1, out=3),
    Template(r"cunn_SoftMaxBackward\w*", r"_(?:log_)?softmax_backward_data", "H200; SoftMax.cu", rest=3, out=1),
    Template(r"cunn_SpatialSoftMaxForward", r"_(?:log_)?softmax", "SoftMax.cu", rest=0, out=2),
    Template(r"cunn_SpatialSoftMaxBackward", r"_(?:log_)?softmax_backward_data", "SoftMax.cu", rest=2, out=0),
    # Layer norm: all of the data's type, mean and rstd of the accumulator's. layer_norm_kernel.cu
    Template(
        r"(?:vectorized_layer_norm_kernel|LayerNormForwardCUDAKernel)",
        r"native_layer_norm|_fused_rms_norm",
        "H200, H100, MI300",
        rest=0,
    ),
    Template(
        r"(?:layer_norm_grad_input_kernel\w*|GammaBetaBackward\w+|cuComputePartGradGammaBeta|cuComputeGradInput)",
        r"native_layer_norm_backward",
        "H200",
        rest=0,
        at={3: 1, 4: 1},
    ),
    # Batch norm channels-last: the statistics kernel does not name the weights' type, the transform does.
    Template(
        r"batch_norm_collect_statistics_channels_last_kernel",
        r"native_batch_norm",
        "H200; Normalization.cuh: transform, input, accumulator",
        at={0: 1},
        flag=5,
    ),
    Template(
        r"batch_norm_transform_input_channels_last_kernel",
        r"native_batch_norm",
        "H200; Normalization.cuh: input, accumulator, weight",
        at={0: 0, 1: 2, 2: 2},
    ),
    Template(
        r"batch_norm_backward_(?:reduce|elemt)_channels_last_kernel",
        r"native_batch_norm_backward",
        "H200; Normalization.cuh: loads, input, accumulator, weight",
        at={0: 1, 1: 1, 2: 3, 5: 2, 6: 2},
    ),
    # lambda(save_mean, save_var, running_mean, running_var): words are the lambda's parameters.
    Template(r"batch_norm_update_stats_and_invert", r"native_batch_norm", "H200; Normalization.cu", at={3: 2, 4: 3}),
    # Batch norm, any layout: input, weights and running statistics, accumulator.
    Template(
        r"batch_norm_collect_statistics_kernel",
        r"native_batch_norm",
        "Normalization.cuh: transform first",
        at={0: 1, 1: 2, 2: 2, 3: 2, 4: 2},
        flag=5,
    ),
    Template(
        r"batch_norm_transform_input_kernel",
        r"native_batch_norm",
        "Normalization.cuh",
        at={0: 0, 1: 1, 2: 1, 3: 1, 4: 1},
    ),
    Template(
        r"batch_norm_backward_kernel",
        r"native_batch_norm_backward",
        "Normalization.cuh",
        at={0: 0, 1: 0, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2},
    ),
    Template(r"bn_fw_tr_\w+", r"cudnn_batch_norm", "V100", at={0: 0, **PARAMETERS}, flag=5),
    Template(r"bn_bw_\w+", r"cudnn_batch_norm_backward", "V100", at={0: 0, 1: 0, **SAVED}),
    Template(
        r"nll_loss_forward_(?:reduce|no_reduce)_cuda_kernel\w*",
        r"nll_loss_forward",
        "H200; NLLLoss.cu",
        rest=0,
        at={1: "index"},
    ),
    Template(
        r"nll_loss_backward_(?:reduce|no_reduce)_cuda_kernel\w*",
        r"nll_loss_backward",
        "H200; NLLLoss.cu",
        rest=0,
        at={0: 0, 2: "index"},
    ),
    Template(
        r"cunn_ClassNLLCriterion_updateOutput_kernel", r"nll_loss_forward", "V100, PyTorch 1.8", rest=0, at={1: "int64"}
    ),
    Template(
        r"cunn_ClassNLLCriterion_updateGradInput_kernel",
        r"nll_loss_backward",
        "V100, PyTorch 1.8",
        rest=0,
        at={0: 0, 2: "int64"},
    ),
    Template(r"max_pool_forward_n\w+", r"max_pool2d_with_indices", "V100, H200", rest=0),
    Template(r"max_pool_backward_n\w+", r"max_pool2d_with_indices_backward", "V100, H200", rest=0, at={7: "int64"}),
    Template(
        r"(?:adaptive_)?(?:avg|average)_?pool\w*",
        r"(?:_?adaptive_)?avg_pool[23]d(?:_backward)?",
        "AveragePool2d.cu, AdaptiveAveragePooling.cu",
        rest=0,
    ),
    Template(r"upsample_(?:nearest|bilinear|bicubic|linear)\w*", r"(?:_?upsample_\w+)", "UpSample*.cu", rest=0),
    # Embedding: gradient, indices.
    Template(
        r"(?:compute_grad_weight|sum_and_scatter)",
        r"embedding_dense_backward",
        "H200; EmbeddingBackwardKernel.cu",
        rest=0,
        at={1: 1},
    ),
    Template(
        r"(?:compute_grad_weight_bags|sum_and_scatter)",
        r"_embedding_bag_dense_backward",
        "H200; EmbeddingBackwardKernel.cu",
        at={0: 0, 1: 1, 2: 1, 3: 1, 4: 1},
    ),
    Template(
        r"embedding_backward_feature_kernel", r"embedding_dense_backward", "H200; Embedding.cu", rest=0, at={1: 2}
    ),
    Template(r"indexSelect(?:Large|Small)Index", r"index_select", "H100; Indexing.cu", rest=0, at={2: 1}),
    Template(r"fused_dropout_kernel(?:_vec)?", r"native_dropout|_fused_dropout", "H200; Dropout.cu", rest=0),
    # The pieces have one type; where the name has only its size, see ``operand_dtypes``.
    Template(
        r"CatArrayBatchedCopy\w*(?!<[^,]*OpaqueType)", r"cat|concat|stack", "A100; Shape.cu before 2.2", rest=0, out=0
    ),
    # FBGEMM: rows, cached rows, sums.
    Template(
        r"\w*embedding(?:_nobag)?_codegen_forward_\w*kernel\w*",
        r"fb(?:gemm)?::(?:split|ssd)_\w+",
        "A100; FBGEMM",
        out=2,
        at={1: 0},
    ),
    # vectorized_gather_kernel<alignment, index>: bytes are moved, whatever they mean.
    Template(
        r"vectorized_gather_kernel", r"gather|index_select|embedding", "H200, B200; IndexKernelUtils.cu", at={2: 1}
    ),
)
_TEMPLATES = [
    (re.compile(rf"(?:^|[ :)])(?:{row.kernel})[<(]"), re.compile(rf"(?:{row.ops})_?"), row) for row in TEMPLATES
]


def template(text: str, op: str) -> Dtypes | None:
    """What the template parameters of a kernel of ``op`` say; None where no row fits."""
    for kernel, ops, row in _TEMPLATES:
        match = kernel.search(text) if ops.fullmatch(op) else None
        if match:
            words = parameters(text, match) if match[0][-1] == "<" else next(filter(None, lambdas(text)), [])
            return _filled(row, words)
    return None


def _filled(row: Template, words: list[str]) -> Dtypes:
    index = next((OF_CPP[word] for word in reversed(words) if word in ("long", "int", "unsigned char")), "")
    at = []
    for position, source in row.at.items():
        named = index if source == "index" else str(source)
        dtype = dtype_at(words, source) if isinstance(source, int) else named
        if dtype:
            at.append((position, dtype))
    flags = () if row.flag is None else ((row.flag, True),)
    return Dtypes(dtype_at(words, row.rest), tuple(at), dtype_at(words, row.out), flags)
