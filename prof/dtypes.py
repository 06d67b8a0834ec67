"""The dtypes of an op's operands, as its kernel's name tells them.

NVTX ranges record shapes without dtypes; most kernels are templates that name them. A claim here is what the code that
spells the name stores in memory, never what is likely: ``lambda(float)`` inside a bfloat16 kernel is its arithmetic,
``LoadWithCast`` means that some operand has another type than the arithmetic, and a name that tells nothing yields
nothing. Where it tells the size of an element and not its meaning, the dtype is ``opaque1`` to ``opaque16``.

Names come in two spellings: as CUPTI and cu++filt demangle (``float const*``, ``{lambda(float)#1}``,
``(anonymous namespace)``, ``4``) and as nsys does (``const float *``, ``[lambda(float) (instance 1)]``, ``<unnamed>``,
``(int)4``). Both are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from pyprof.prof.model import MATRIX
from pyprof.prof.tensorcore import tensor_core

__all__ = ["NOTHING", "Dtypes", "kernel_dtypes", "merged"]


@dataclass(frozen=True, slots=True)
class Dtypes:
    """What a kernel's name says of its op's tensors; empty where it is silent.

    ``at``: arguments by position in the aten op's schema. An empty dtype there means that the operand's type is known to
    be hidden (a cast on load): no argument may take it from ``rest``. ``rest``: every other tensor. Both leave out
    0-dimensional tensors, which may be numbers of any type, but for position 0 in ``at``. ``out``: the (first) output,
    where the name tells it apart from the inputs. ``flags``: arguments that are no tensors and that the choice of the
    kernel proves, such as batch norm's ``training``. ``lists``: how many lists of tensors the op takes (_foreach_, _fused_).
    """

    rest: str = ""
    at: tuple[tuple[int, str], ...] = ()
    out: str = ""
    flags: tuple[tuple[int, bool], ...] = ()
    lists: int = 0

    def of(self, position: int) -> str:
        """The dtype of an argument, empty where not known."""
        return dict(self.at).get(position, self.rest)

    def hides(self, position: int) -> bool:
        """Is the argument cast on its way into the arithmetic?"""
        return (position, "") in self.at

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = Dtypes()


def merged(several: Iterable[Dtypes]) -> Dtypes:
    """What the kernels of one op call say together, in any order. Where two contradict each other, neither is believed:
    each spoke of operands of its own."""
    told = list(several)
    places = sorted({position for one in told for position, _ in one.at})
    at = tuple((i, _agreed(dict(one.at).get(i, "") for one in told)) for i in places)
    flags = {position: value for one in told for position, value in one.flags}
    lists = {one.lists for one in told if one.lists}
    return Dtypes(
        _agreed(one.rest for one in told), at, _agreed(one.out for one in told), tuple(sorted(flags.items())),
        lists.pop() if len(lists) == 1 else 0,
    )  # fmt: skip


def _agreed(dtypes: Iterable[str]) -> str:
    distinct = {dtype for dtype in dtypes if dtype}
    return distinct.pop() if len(distinct) == 1 else ""


@lru_cache(maxsize=65536)
def kernel_dtypes(name: str, op: str, family: str) -> Dtypes:
    """What the name of a kernel of the innermost aten op (without ``aten::``) says of the op's operands.

    >>> kernel_dtypes("void softmax_warp_forward<c10::BFloat16, float, float, 10, true, false>()", "_softmax", "softmax")
    Dtypes(rest='bfloat16', at=(), out='float32', flags=(), lists=0)
    """
    text = normal(name)
    if family in MATRIX:
        return _product(text, name, op, family)
    for find in (_copy, _template, _many, _reduced, _opaque, _elementwise, _random, _collective):
        found = find(text, op)
        if found is not None:
            return found
    return NOTHING


# --- names ------------------------------------------------------------------------------------------------------

_CASTS = re.compile(r"\((?:int|bool|unsigned int|long|unsigned long)\)(?=-?\d)")  # nsys: (int)4
_LAMBDA = re.compile(r"\[lambda(\((?:[^()]|\(\))*\)) \(instance (\d+)\)\]")
_DIGITS = re.compile(r"(?<=[<( ])(\d+)u?l*(?=[,>])")


def normal(name: str) -> str:
    """nsys' spelling in CUPTI's, as far as types are concerned."""
    text = _LAMBDA.sub(r"{lambda\1#\2}", _CASTS.sub("", name))
    return _DIGITS.sub(r"\1", text.replace("<unnamed>", "(anonymous namespace)").replace("operator ()", "operator()"))


TYPES: Mapping[str, str] = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "__half": "float16", "half": "float16",
    "cutlass::half_t": "float16", "c10::BFloat16": "bfloat16", "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16",
    "cutlass::bfloat16_t": "bfloat16", "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::complex<c10::Half>": "complex32",
    "bool": "bool", "unsigned char": "uint8", "signed char": "int8", "short": "int16", "unsigned short": "uint16",
    "int": "int32", "unsigned int": "uint32", "long": "int64", "long long": "int64", "unsigned long": "uint64",
}  # fmt: skip


def split(text: str) -> list[str]:
    """The parts between the commas at the top level."""
    parts, depth, begin = [], 0, 0
    for i, char in enumerate(text):
        if char in "<({[":
            depth += 1
        elif char in ">)}]":
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return [*parts, text[begin:].strip()] if text.strip() else []


def inside(text: str, opening: int) -> str:
    """What stands between the bracket at ``opening`` and its partner."""
    depth = 0
    for i in range(opening, len(text)):
        if text[i] in "<({[":
            depth += 1
        elif text[i] in ">)}]":
            depth -= 1
            if not depth:
                return text[opening + 1 : i]
    return text[opening + 1 :]


def parameters(text: str, match: re.Match[str]) -> list[str]:
    """Template parameters of the name that ``match`` ends with, whose ``<`` is its last character."""
    return split(inside(text, match.end() - 1))


def lambda_types(text: str) -> list[str]:
    """Parameters of the first lambda that takes any."""
    return next((split(found) for found in _LAMBDAS.findall(text) if found), [])


def dtype_at(words: list[str], index: int | None) -> str:
    return TYPES.get(words[index], "") if index is not None and index < len(words) else ""


# --- copies -----------------------------------------------------------------------------------------------------

_TO_HALF = re.compile(r"\b(?:(bfloat16)|(float16))_copy_kernel_cuda\(.*?\{lambda\(([\w: ]+)\)#")
_DIRECT = re.compile(r"\b(?:direct_copy_kernel_cuda|copy_device_to_device)\(.*?\{lambda\(([\w:<> ]+)\)#")
_CASTING = re.compile(r"LoadWithCast|StoreWithCast|gpu_kernel_impl<")


def _copy(text: str, op: str) -> Dtypes | None:
    """copy_(self, src). The lambda of a direct copy takes self's type; the load may cast src to it.

    Source: aten/src/ATen/native/cuda/Copy.cu, direct_copy_kernel_cuda dispatches on iter.dtype(0), self's.
    """
    if op not in ("copy_", "_to_copy", "clone"):
        return None
    half = _TO_HALF.search(text)
    if half:  # only where no cast is left to the load: src has the lambda's type
        return Dtypes(at=((0, "bfloat16" if half[1] else "float16"), (1, TYPES.get(half[3], ""))))
    direct = _DIRECT.search(text)
    if direct is None or direct[1] not in TYPES:
        return NOTHING
    source = "" if _CASTING.search(text) else TYPES[direct[1]]
    return Dtypes(at=((0, TYPES[direct[1]]), (1, source)), out=TYPES[direct[1]])


# --- kernels whose template parameters are the operands' types ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Template:
    """``rest``, ``at`` and ``out`` are numbers of template parameters (a name in ``at`` is a dtype, or ``index``: the last
    integer type); ``ops`` are the ops that the positions fit; ``flag`` is the position of ``training``, which is true."""

    kernel: str
    ops: str
    rest: int | None
    at: Mapping[int, int | str]
    out: int | None
    seen: str
    flag: int | None = None


PARAMETERS = dict.fromkeys(range(1, 5), "float32")  # cuDNN batch norm's weights and statistics, for half types too
TEMPLATES = (
    # in, out, accumulator; the backward reads output and its gradient in the first type.
    Template(r"softmax_warp_forward", r"_(?:log_)?softmax", 0, {}, 1, "H200, H100; PersistentSoftmax.cuh"),
    Template(r"softmax_warp_backward", r"_(?:log_)?softmax_backward_data", 0, {}, 1, "H200; PersistentSoftmax.cuh"),
    # in, accumulator, out; the backward the other way round: it reads what the forward wrote.
    Template(r"cunn_SoftMaxForward\w*", r"_(?:log_)?softmax", 1, {}, 3, "H200; SoftMax.cu"),
    Template(r"cunn_SoftMaxBackward\w*", r"_(?:log_)?softmax_backward_data", 3, {}, 1, "H200; SoftMax.cu"),
    Template(r"cunn_SpatialSoftMaxForward", r"_(?:log_)?softmax", 0, {}, 2, "SoftMax.cu"),
    Template(r"cunn_SpatialSoftMaxBackward", r"_(?:log_)?softmax_backward_data", 2, {}, 0, "SoftMax.cu"),
    # Layer norm: all of the data's type, mean and rstd of the accumulator's. layer_norm_kernel.cu
    Template(r"(?:vectorized_layer_norm_kernel|LayerNormForwardCUDAKernel)", r"native_layer_norm|_fused_rms_norm",
             0, {}, None, "H200, H100, MI300"),
    Template(r"(?:layer_norm_grad_input_kernel\w*|GammaBetaBackward\w+|cuComputePartGradGammaBeta|cuComputeGradInput)",
             r"native_layer_norm_backward", 0, {3: 1, 4: 1}, None, "H200"),
    # Batch norm channels-last: the statistics kernel does not tell the weights' type, the transform does.
    Template(r"batch_norm_collect_statistics_channels_last_kernel", r"native_batch_norm", None, {0: 1}, None,
             "H200; Normalization.cuh: transform, input, accumulator", flag=5),
    Template(r"batch_norm_transform_input_channels_last_kernel", r"native_batch_norm", None, {0: 0, 1: 2, 2: 2}, None,
             "H200; Normalization.cuh: input, accumulator, weight"),
    Template(r"batch_norm_backward_(?:reduce|elemt)_channels_last_kernel", r"native_batch_norm_backward",
             None, {0: 1, 1: 1, 2: 3, 5: 2, 6: 2}, None, "H200; Normalization.cuh: loads, input, accumulator, weight"),
    # lambda(save_mean, save_var, running_mean, running_var): words are the lambda's parameters.
    Template(r"batch_norm_update_stats_and_invert", r"native_batch_norm", None, {3: 2, 4: 3}, None, "H200; Normalization.cu"),
    # Batch norm, any layout: input, weights and running statistics, accumulator.
    Template(r"batch_norm_collect_statistics_kernel", r"native_batch_norm", None,
             {0: 1, 1: 2, 2: 2, 3: 2, 4: 2}, None, "Normalization.cuh: transform first", flag=5),
    Template(r"batch_norm_transform_input_kernel", r"native_batch_norm", None,
             {0: 0, 1: 1, 2: 1, 3: 1, 4: 1}, None, "Normalization.cuh"),
    Template(r"batch_norm_backward_kernel", r"native_batch_norm_backward", None,
             {0: 0, 1: 0, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2}, None, "Normalization.cuh"),
    Template(r"bn_fw_tr_\w+", r"cudnn_batch_norm", None, {0: 0, **PARAMETERS}, None, "V100", flag=5),
    Template(r"bn_bw_\w+", r"cudnn_batch_norm_backward", None, {0: 0, 1: 0, **dict.fromkeys(range(2, 7), "float32")}, None,
             "V100"),
    Template(r"nll_loss_forward_(?:reduce|no_reduce)_cuda_kernel\w*", r"nll_loss_forward", 0, {1: "index"}, None, "H200; NLLLoss.cu"),
    Template(r"nll_loss_backward_(?:reduce|no_reduce)_cuda_kernel\w*", r"nll_loss_backward", 0, {0: 0, 2: "index"}, None,
             "H200; NLLLoss.cu"),
    Template(r"cunn_ClassNLLCriterion_updateOutput_kernel", r"nll_loss_forward", 0, {1: "int64"}, None, "V100, PyTorch 1.8"),
    Template(r"cunn_ClassNLLCriterion_updateGradInput_kernel", r"nll_loss_backward", 0, {0: 0, 2: "int64"}, None,
             "V100, PyTorch 1.8"),
    Template(r"max_pool_forward_n\w+", r"max_pool2d_with_indices", 0, {}, None, "V100, H200"),
    Template(r"max_pool_backward_n\w+", r"max_pool2d_with_indices_backward", 0, {7: "int64"}, None, "V100, H200"),
    Template(r"(?:adaptive_)?(?:avg|average)_?pool\w*", r"(?:_?adaptive_)?avg_pool[23]d(?:_backward)?", 0, {}, None,
             "AveragePool2d.cu, AdaptiveAveragePooling.cu"),
    Template(r"upsample_(?:nearest|bilinear|bicubic|linear)\w*", r"(?:_?upsample_\w+)", 0, {}, None, "UpSample*.cu"),
    # Embedding: gradient, indices.
    Template(r"(?:compute_grad_weight|sum_and_scatter)", r"embedding_dense_backward", 0, {1: 1}, None, "H200; EmbeddingBackwardKernel.cu"),
    Template(r"embedding_backward_feature_kernel", r"embedding_dense_backward", 0, {1: 2}, None, "H200; Embedding.cu"),
    Template(r"indexSelect(?:Large|Small)Index", r"index_select", 0, {2: 1}, None, "H100; Indexing.cu"),
    Template(r"fused_dropout_kernel(?:_vec)?", r"native_dropout|_fused_dropout", 0, {}, None, "H200; Dropout.cu"),
    # vectorized_gather_kernel<alignment, index>: bytes are moved, whatever they mean.
    Template(r"vectorized_gather_kernel", r"gather|index_select|embedding", None, {2: 1}, None, "H200, B200; IndexKernelUtils.cu"),
)  # fmt: skip
_TEMPLATES = [
    (re.compile(rf"(?:^|[ :)])(?:{row.kernel})[<(]"), re.compile(rf"(?:{row.ops})_?"), row) for row in TEMPLATES
]


def _template(text: str, op: str) -> Dtypes | None:
    for kernel, ops, row in _TEMPLATES:
        match = kernel.search(text) if ops.fullmatch(op) else None
        if match:
            return _filled(row, parameters(text, match) if match[0][-1] == "<" else lambda_types(text[match.end() :]))
    return None


def _filled(row: Template, words: list[str]) -> Dtypes:
    rest, out = dtype_at(words, row.rest), dtype_at(words, row.out)
    index = next((TYPES[word] for word in reversed(words) if word in ("long", "int", "unsigned char")), "")
    at = {}
    for position, what in row.at.items():
        at[position] = dtype_at(words, what) if isinstance(what, int) else index if what == "index" else what
    known = tuple((position, dtype) for position, dtype in at.items() if dtype)
    flags = () if row.flag is None else ((row.flag, True),)
    return Dtypes(rest, known, out, flags)


# --- lists of tensors, reductions, moved bytes ---------------------------------------------------------------------

_MULTI = re.compile(r"multi_tensor_apply_kernel<")
_FUNCTOR = re.compile(r"\b(\w+Functor\w*)<")
_LIST_COPY = re.compile(r"\bCopy<")


def _many(text: str, op: str) -> Dtypes | None:
    """_foreach_*, _fused_*. Source: ForeachFunctors.cuh: Functor<type, depth, lists that are read, list that is written>;
    fused_adam_utils.cuh: Functor<type, depth, ..>, all lists are read."""
    match = _MULTI.search(text)
    if not match or not op.startswith(("_foreach_", "_fused_", "_amp_foreach_")):
        return None
    listed = _LIST_COPY.search(text)
    if listed:  # Copy<destination, source>, which the op takes both
        words = parameters(text, listed)
        return Dtypes(at=((0, dtype_at(words, 0)), (1, dtype_at(words, 1))), lists=2)
    functor = _FUNCTOR.search(text)
    if functor is None:
        return NOTHING
    words = parameters(text, functor)
    number = words[1:2] if op.startswith("_fused_") else words[2:3]
    return Dtypes(dtype_at(words, 0), lists=int(number[0]) if number and number[0].isdigit() else 0)


_REDUCE = re.compile(r"\bReduceOp<")


def _reduced(text: str, op: str) -> Dtypes | None:
    """ReduceOp<in, operation, index, out, ..>. Source: aten/src/ATen/native/cuda/Reduce.cuh"""
    match = _REDUCE.search(text)
    if not match:
        return None
    if SOME_OPERANDS.search(op):
        return NOTHING
    words = parameters(text, match)
    return Dtypes(dtype_at(words, 0), (), dtype_at(words, 3))


_OPAQUE = re.compile(r"\bOpaqueType<(\d+)u?>")
OPAQUE = {"1": "opaque1", "2": "opaque2", "4": "opaque4", "8": "opaque8", "16": "opaque16"}


def _opaque(text: str, op: str) -> Dtypes | None:
    """Kernels that move bytes and know an element's size only: cat (Shape.cu), index and index_put (IndexKernel.cu)."""
    match = _OPAQUE.search(text)
    if not match:
        return None
    dtype = OPAQUE.get(match[1], "")
    if "CatArrayBatchedCopy" in text and op in ("cat", "concat", "stack"):  # the inputs have one type, else no such kernel
        return Dtypes(dtype)
    if "index_kernel_impl" in text and op == "index":
        return Dtypes(at=((0, dtype),), out=dtype)
    return Dtypes(at=((0, dtype),)) if "index_put_kernel_impl" in text else NOTHING


# --- element-wise kernels ------------------------------------------------------------------------------------------

# Ops that run an element-wise kernel or a reduction on some of their operands, or on none.
SOME_OPERANDS = re.compile(
    r"norm|embedding|pool|sort|topk|index|scatter|gather|attention|rnn|lstm|gru|ctc|unique|nonzero|multinomial|fft|linalg"
    r"|masked_select|masked_scatter|histc|bincount|median|mode|cdist|grid_sampl|cum|scan|roll|flip|im2col|col2im|_sparse"
)
# Their lambda's parameters are their tensors in the schema's order. (A lambda that takes one type needs no order.)
ORDERED = ("where", "_s_where", "masked_fill", "native_dropout_backward", "_masked_scale")
_ELEMENTWISE = re.compile(r"\b(vectorized_|unrolled_|legacy_)?elementwise_kernel<")
_IMPL = re.compile(r"\bgpu_kernel_impl(?:_nocast)?<")
_APPLIED = re.compile(r"(?:\w+::|\(anonymous namespace\)::)*([AB]Unary|Binary)Functor<")
_NAMED = re.compile(r"(?:\w+::|\(anonymous namespace\)::)*(\w+)<")
_LAMBDAS = re.compile(r"\{lambda\(([^{}()]*)\)#\d+\}")


def _elementwise(text: str, op: str) -> Dtypes | None:
    """A functor's parameters are the operands' types, unless the load or store casts. Source: cuda/Loops.cuh, CUDALoops.cuh"""
    match = _ELEMENTWISE.search(text)
    if not match:
        return None
    if SOME_OPERANDS.search(op):
        return NOTHING
    inputs, out = signature(_functor(parameters(text, match), match[1] or ""))
    if not inputs or not all(inputs):
        return NOTHING
    if _CASTING.search(text):
        return _cast(inputs, out, op)
    if len(set(inputs)) == 1:
        first = ((0, inputs[0]),) if op.endswith(("_", "_backward")) else ()  # self or a gradient: a tensor, be it 0-d
        return Dtypes(inputs[0], first, out)
    return Dtypes(at=tuple(enumerate(inputs)), out=out) if op.removesuffix("_") in ORDERED else NOTHING


def _cast(inputs: list[str], out: str, op: str) -> Dtypes:
    """At least one operand has another type than the arithmetic: which one, the name does not tell.

    An op that is neither in place nor given ``out=`` allocates its output in the arithmetic's type (promotion).
    """
    hidden = tuple((i, "") for i in range(4))
    return Dtypes(at=hidden, out=out if not op.endswith("_") else "")


def _functor(words: list[str], kind: str) -> str:
    """The functor among elementwise kernels' parameters: first if unrolled, second after the width, else inside the loop."""
    place = 0 if kind == "unrolled_" else 1 if kind == "vectorized_" else 2
    text = words[place] if place < len(words) else ""
    match = _IMPL.search(text)
    return split(inside(text, match.end() - 1))[0] if match else "" if place == 2 else text


def signature(functor: str) -> tuple[list[str], str]:
    """Types of the tensors that a functor takes, and of what it returns, empty where not known."""
    functor = functor.removeprefix("void ")
    applied = _APPLIED.match(functor)
    if applied:
        words = parameters(functor, applied)
        if len(words) == 1:  # before PyTorch 1.12: BUnaryFunctor<AddFunctor<long>>
            return signature(words[0])[0], ""
        first, second, out = (dtype_at(words, i) for i in range(3))
        return {"AUnary": [second], "BUnary": [first]}.get(applied[1], [first, second]), out
    lambdas = _LAMBDAS.findall(functor)
    if lambdas:
        return [TYPES.get(word, "") for word in split(lambdas[-1])], ""
    named = _NAMED.match(functor)
    dtype = dtype_at(parameters(functor, named), 0) if named else ""
    out = dtype if named and named[1].startswith("CUDAFunctor") else ""
    return ([dtype] if dtype else []), out


# --- random numbers, collectives -----------------------------------------------------------------------------------

_DRAWN = re.compile(r"\bdistribution_nullary_kernel<")


def _random(text: str, op: str) -> Dtypes | None:
    """random_, normal_, uniform_: the first parameter is self's type. DistributionTemplates.h"""
    match = _DRAWN.search(text)
    return Dtypes(at=((0, dtype_at(parameters(text, match), 0)),)) if match and op.endswith("_") else None


_NCCL = re.compile(r"^nccl(?:Dev)?Kernel_\w*?_(?:Sum|Prod|Min|Max|MinMax|Avg|PreMulSum|SumPostDiv)_(f16|bf16|f32|f64|[iu]\d+)_")
_NCCL_TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64",
               "u8": "uint8", "i8": "int8"}  # fmt: skip


def _collective(text: str, op: str) -> Dtypes | None:
    """Reductions name their type; copies (AllGather, SendRecv) run as int8 whatever they carry, and say nothing."""
    match = _NCCL.match(text)
    return Dtypes(_NCCL_TYPES.get(match[1], "")) if match else None


# --- matrix products -----------------------------------------------------------------------------------------------

# nvjet's letters: A and B, accumulator, output; five where A, B and C are spelled apart.
LETTERS = {"t": "bfloat16", "h": "float16", "s": "float32", "d": "float64", "q": "float8_e4m3fn", "r": "float8_e5m2"}
WORDS = {
    "bf16": "bfloat16", "f16": "float16", "fp16": "float16", "h": "float16", "f32": "float32", "tf32": "float32",
    "s": "float32", "f64": "float64", "d": "float64", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "s8": "int8",
    "i8": "int8", "u8": "uint8", "i32": "int32", "cf32": "complex64", "cf64": "complex128", "c": "complex64", "z": "complex128",
}  # fmt: skip
_NVJET = re.compile(r"nvjet_(?:sm\d+_)?([a-z]{3}|[a-z]{5})_")
_XWORD = r"(c?(?:bf16|f16|f32|f64|e4m3|e5m2|i8|u8|i32))"
_XMMA = re.compile(rf"xmma_\w*?_{_XWORD}{_XWORD}_c?(?:bf16|tf32|f16|f32|f64|i8|u8|e4m3|e5m2){_XWORD}_")
_WORD = r"(?:bf16|fp16|f16|tf32|s8|u8|f64)"
# CUTLASS's procedural names: [C_]accumulator, instruction, [A]; a type that equals the accumulator's is left out.
_PROCEDURAL = re.compile(
    rf"(?:tensorop|ampere|volta|turing)_(?:({_WORD})_)?([shdi])\d{{3,6}}({_WORD})?(?:gemm|cudnn|[fdw]prop|[dw]grad)"
    rf"(?:_(?:relu|optimized|analytic|fixed_channels|few_channels|forwardCompat))*(?:_({_WORD})(?=_|$))?"
)
_PLAIN = re.compile(r"(?:simt|maxwell|pascal|volta|turing|ampere)_([sdhcz])(?:gemm|cudnn)|^void (s)gemm_largek")
# Vendors' templates whose floating parameters are all of one type, or else tell nothing.
_UNIFORM = re.compile(
    r"(?:\b|_)(?:implicit_convolve_sgemm|explicit_convolve_sgemm|dgrad2d_\w+|dgrad_\w*engine|wgrad\w*_engine\w*"
    r"|conv2d_\w+|conv_depthwise\w+|gemv\w*|gemvNSP_kernel|gemmk1_kernel|gemmSN_\w+|dot_kernel|winogradForwardOutput\w*)<"
)
OF_PRECISION = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp64": "float64", "fp32": "float32",
                "int8": "int8", "fp8": "opaque1"}  # fmt: skip

# Operands of fused attention that are not of the data's type: log-sum-exp, cumulative lengths.
ATTENTION = {
    "_flash_attention_forward": {3: "int32", 4: "int32"},
    "_efficient_attention_forward": {4: "int32", 5: "int32"},
    "_cudnn_attention_forward": {4: "int32", 5: "int32"},
    "_flash_attention_backward": {5: "float32", 6: "int32", 7: "int32"},
    "_scaled_dot_product_flash_attention_backward": {5: "float32", 6: "int32", 7: "int32"},
    "_efficient_attention_backward": {6: "int32", 7: "int32", 10: "float32"},
    "_scaled_dot_product_efficient_attention_backward": {6: "float32"},
    "_cudnn_attention_backward": {5: "float32", 9: "int32", 10: "int32"},
    "_scaled_dot_product_cudnn_attention_backward": {5: "float32", 9: "int32", 10: "int32"},
}


def _product(text: str, name: str, op: str, family: str) -> Dtypes:
    if family == "attention":
        dtype = _attention(text, name, family)
        return Dtypes(dtype, tuple(ATTENTION.get(op, {}).items()), dtype, _causal(text, op)) if dtype else NOTHING
    if family not in ("gemm", "conv"):
        return NOTHING  # a recurrent op's kernels see pieces of it
    source, out = _operands(text, name, family)
    if source in ("int8", "uint8", "float8_e4m3fn", "float8_e5m2", "opaque1"):  # with scales and biases of other types
        return Dtypes(at=((0, source), (1, source)), out=out)
    if out and out != source and op in ("addmm", "baddbmm", "addmv", "addbmm"):
        return Dtypes(source, ((0, ""),), out)  # self may be of either type
    return Dtypes(source, (), out)


def _attention(text: str, name: str, family: str) -> str:
    if "_sdpa_" in text and re.search(r"_f16_", text):
        return "opaque2"  # cuDNN writes f16 for bfloat16 too (H200, cuDNN 9)
    found = re.search(r"fmha_cutlass[FB]_(f32|f16|bf16)_", text)
    if found:
        return WORDS[found[1]]
    use = tensor_core(name, family)
    return OF_PRECISION.get(use.precision, "") if use else ""


_FLASH = re.compile(r"\bflash_(?:fwd|bwd)\w*kernel<")
IS_CAUSAL = {"_flash_attention_forward": 8, "_flash_attention_backward": 11}


def _causal(text: str, op: str) -> tuple[tuple[int, bool], ...]:
    """FlashAttention 2's kernels: <traits, is_dropout, is_causal, is_local, ..>; H100, both values, by Kineto's arguments."""
    match = _FLASH.search(text)
    words = parameters(text, match) if match else []
    if op not in IS_CAUSAL or len(words) < 4 or words[3] not in ("false", "0"):
        return ()
    return ((IS_CAUSAL[op], words[2] in ("true", "1")),)


def _operands(text: str, name: str, family: str) -> tuple[str, str]:
    """Type of a product's operands and of its result."""
    for find in (_nvjet, _xmma, _procedural):
        found = find(text)
        if found is not None:
            return found
    plain = _PLAIN.search(text)
    if plain:
        letter = plain[1] or plain[2]
        return ("", "") if family == "conv" and letter in "cz" else (WORDS[letter], "")  # complex inside: by FFT
    uniform = _UNIFORM.search(text)
    if uniform:
        kinds = {TYPES[word] for word in parameters(text, uniform) if word in TYPES and "float" in TYPES[word]}
        return (kinds.pop() if len(kinds) == 1 else "", "")
    use = tensor_core(name, family)
    return (OF_PRECISION.get(use.precision, "") if use and not use.guess else "", "")


def _nvjet(text: str) -> tuple[str, str] | None:
    match = _NVJET.search(text)
    if not match:
        return None
    letters = match[1]
    if len(letters) == 5 and letters[0] != letters[1]:
        return "", LETTERS.get(letters[-1], "")  # column-major: which of both comes first is not told
    return LETTERS.get(letters[0], ""), LETTERS.get(letters[-1], "")


def _xmma(text: str) -> tuple[str, str] | None:
    match = _XMMA.search(text)
    return (WORDS.get(match[1], ""), WORDS.get(match[2], "")) if match else None


def _procedural(text: str) -> tuple[str, str] | None:
    match = _PROCEDURAL.search(text)
    if not match:
        return None
    result, accumulator, rounded, operand = match.groups()
    if rounded:  # s1688tf32gemm, s16816bf16gemm: float32, rounded on its way into the product
        return "float32", ""
    if accumulator == "i":
        return ("uint8" if operand == "u8" else "int8"), "int32" if not result else WORDS[result]
    kind = WORDS[accumulator]
    return WORDS.get(operand or "", kind), WORDS.get(result or "", kind)
