"""The dtypes of operands, read from the template parameters of kernel names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyprof.dtypes import OF_CPP
from pyprof.prof.kernels.type_names import Dtypes, dtype_at, lambdas, parameters

# A kernel, the ops that the positions fit, what its template parameters are, and where it was seen.
# ``rest=2``: parameter 2 is the type of all other operands; ``out=2``: of the output; ``5=2``: of the argument at
# position 5. A name after a position is its dtype, or ``index``: the last integer type. ``flag=5``: argument 5 is true.
TEMPLATES = r"""
# in, out, accumulator; the backward reads output and its gradient in the first type.
softmax_warp_forward    _(?:log_)?softmax                 rest=0 out=1  H200, H100; PersistentSoftmax.cuh
softmax_warp_backward   _(?:log_)?softmax_backward_data   rest=0 out=1  H200; PersistentSoftmax.cuh
# in, accumulator, out; the backward the other way round: it reads what the forward wrote.
cunn_SoftMaxForward\w*       _(?:log_)?softmax                rest=1 out=3  H200; SoftMax.cu
cunn_SoftMaxBackward\w*      _(?:log_)?softmax_backward_data  rest=3 out=1  H200; SoftMax.cu
cunn_SpatialSoftMaxForward   _(?:log_)?softmax                rest=0 out=2  SoftMax.cu
cunn_SpatialSoftMaxBackward  _(?:log_)?softmax_backward_data  rest=2 out=0  SoftMax.cu
# Layer norm: all of the data's type, mean and rstd of the accumulator's. layer_norm_kernel.cu
vectorized_layer_norm_kernel|LayerNormForwardCUDAKernel  native_layer_norm|_fused_rms_norm  rest=0  H200, H100, MI300
layer_norm_grad_input_kernel\w*|GammaBetaBackward\w+  native_layer_norm_backward  rest=0 3=1 4=1  H200
cuComputePartGradGammaBeta|cuComputeGradInput         native_layer_norm_backward  rest=0 3=1 4=1  H200
# Batch norm channels-last: the statistics kernel (transform, input, accumulator) does not name the weights' type, the
# transform (input, accumulator, weight) does; the backward has loads, input, accumulator, weight. Normalization.cuh
batch_norm_collect_statistics_channels_last_kernel  native_batch_norm  0=1 flag=5     H200
batch_norm_transform_input_channels_last_kernel     native_batch_norm  0=0 1=2 2=2  H200
batch_norm_backward_(?:reduce|elemt)_channels_last_kernel  native_batch_norm_backward  0=1 1=1 2=3 5=2 6=2  H200
# lambda(save_mean, save_var, running_mean, running_var): words are the lambda's parameters. Normalization.cu
batch_norm_update_stats_and_invert    native_batch_norm  3=2 4=3  H200
# Batch norm, any layout: (transform,) input, weights and running statistics, accumulator. Normalization.cuh
batch_norm_collect_statistics_kernel  native_batch_norm           0=1 1=2 2=2 3=2 4=2 flag=5   its source
batch_norm_transform_input_kernel     native_batch_norm           0=0 1=1 2=1 3=1 4=1          its source
batch_norm_backward_kernel            native_batch_norm_backward  0=0 1=0 2=1 3=1 4=1 5=2 6=2  its source
# cuDNN's weights and statistics are float32 for half types too.
bn_fw_tr_\w+  cudnn_batch_norm           0=0 1=float32 2=float32 3=float32 4=float32 flag=5        V100
bn_bw_\w+     cudnn_batch_norm_backward  0=0 1=0 2=float32 3=float32 4=float32 5=float32 6=float32  V100
# Losses. NLLLoss.cu; cunn: PyTorch 1.8
nll_loss_forward_(?:reduce|no_reduce)_cuda_kernel\w*   nll_loss_forward   rest=0 1=index      H200
nll_loss_backward_(?:reduce|no_reduce)_cuda_kernel\w*  nll_loss_backward  rest=0 0=0 2=index  H200
cunn_ClassNLLCriterion_updateOutput_kernel             nll_loss_forward   rest=0 1=int64      V100
cunn_ClassNLLCriterion_updateGradInput_kernel          nll_loss_backward  rest=0 0=0 2=int64  V100
max_pool_forward_n\w+   max_pool2d_with_indices           rest=0          V100, H200
max_pool_backward_n\w+  max_pool2d_with_indices_backward  rest=0 7=int64  V100, H200
(?:adaptive_)?(?:avg|average)_?pool\w*  (?:_?adaptive_)?avg_pool[23]d(?:_backward)?  rest=0  *AveragePool*.cu
upsample_(?:nearest|bilinear|bicubic|linear)\w*  _?upsample_\w+  rest=0  UpSample*.cu
# Embedding: gradient, indices. EmbeddingBackwardKernel.cu, Embedding.cu
compute_grad_weight|sum_and_scatter       embedding_dense_backward       rest=0 1=1           H200
compute_grad_weight_bags|sum_and_scatter  _embedding_bag_dense_backward  0=0 1=1 2=1 3=1 4=1  H200
embedding_backward_feature_kernel         embedding_dense_backward       rest=0 1=2           H200
indexSelect(?:Large|Small)Index  index_select                   rest=0 2=1  H100; Indexing.cu
fused_dropout_kernel(?:_vec)?    native_dropout|_fused_dropout  rest=0      H200; Dropout.cu
# The pieces have one type; where the name has only its size, see ``operand_dtypes``.
CatArrayBatchedCopy\w*(?!<[^,]*OpaqueType)  cat|concat|stack  rest=0 out=0  A100; Shape.cu before 2.2
# FBGEMM: rows, cached rows, sums.
\w*embedding(?:_nobag)?_codegen_forward_\w*kernel\w*  fb(?:gemm)?::(?:split|ssd)_\w+  out=2 1=0  A100; FBGEMM
# vectorized_gather_kernel<alignment, index>: bytes are moved, whatever they mean.
vectorized_gather_kernel  gather|index_select|embedding  2=1  H200, B200; IndexKernelUtils.cu
"""


@dataclass(frozen=True, slots=True)
class Template:
    """A row of ``TEMPLATES``."""

    kernel: re.Pattern[str]
    ops: re.Pattern[str]
    rest: int | None
    out: int | None
    flags: tuple[tuple[int, bool], ...]
    at: Mapping[int, str]  # position -> number of a parameter, or a dtype

    @classmethod
    def of(cls, line: str) -> Template:
        kernel, ops, meanings, _ = re.split(r" {2,}", line)
        given = dict(meaning.split("=") for meaning in meanings.split())
        rest, out, flag = (int(given.pop(key)) if key in given else None for key in ("rest", "out", "flag"))
        flags = () if flag is None else ((flag, True),)
        patterns = re.compile(rf"(?:^|[ :)])(?:{kernel})[<(]"), re.compile(rf"(?:{ops})_?")
        return cls(*patterns, rest, out, flags, {int(position): source for position, source in given.items()})


_TEMPLATES = [Template.of(line) for line in TEMPLATES.splitlines() if line and not line.startswith("#")]


def template(text: str, op: str) -> Dtypes | None:
    """The dtypes that a kernel's template parameters give for ``op``; None where no row of the table fits."""
    for row in _TEMPLATES:
        match = row.kernel.search(text) if row.ops.fullmatch(op) else None
        if match:
            words = parameters(text, match) if match[0][-1] == "<" else next(filter(None, lambdas(text)), [])
            return _filled(row, words)
    return None


def _filled(row: Template, words: list[str]) -> Dtypes:
    index = next((OF_CPP[word] for word in reversed(words) if word in ("long", "int", "unsigned char")), "")
    at = []
    for position, source in row.at.items():
        named = index if source == "index" else source
        at.append((position, dtype_at(words, int(source)) if source.isdecimal() else named))
    known = tuple((position, dtype) for position, dtype in at if dtype)
    return Dtypes(dtype_at(words, row.rest), known, dtype_at(words, row.out), row.flags)
