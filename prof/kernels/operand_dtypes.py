"""Read the dtypes of an op's operands from its kernel's name.

NVTX ranges record shapes without dtypes, but most kernels are templates whose names contain them. A dtype is reported
only if the kernel's source code proves that it is stored in memory, never because it is likely: ``lambda(float)`` in
a bfloat16 kernel is the arithmetic's type, and ``LoadWithCast`` means that some operand's type differs from it. A name
without types gives no dtypes. If a name has only an element's size, the dtype is ``opaque1`` to ``opaque16``.
"""

import re
from functools import lru_cache

from pyprof.dtypes import OF_CPP, OPAQUE
from pyprof.prof.kernels.precision import DTYPE_OF_WORD
from pyprof.prof.kernels.product_dtypes import product
from pyprof.prof.kernels.template_dtypes import template
from pyprof.prof.kernels.type_names import NOTHING, Dtypes, dtype_at, lambdas, normal, parameters
from pyprof.prof.ops.model import MATRIX


@lru_cache(maxsize=65536)
def kernel_dtypes(name: str, op: str, family: str) -> Dtypes:
    """What the name of a kernel of the innermost aten op (without ``aten::``) says of the op's operands.

    >>> kernel_dtypes("void softmax_warp_forward<c10::BFloat16, float, float, 10, true>()", "_softmax", "softmax")
    Dtypes(rest='bfloat16', at=(), out='float32', flags=(), lists=0)
    """
    text = normal(name)
    if family in MATRIX:
        return product(text, name, op, family)
    for find in (_copy, _scattered, template, _many, _reduced, _opaque, _elementwise, _random, _collective):
        found = find(text, op)
        if found is not None:
            return found
    return NOTHING


# --- copies -----------------------------------------------------------------------------------------------------

_TO_HALF = re.compile(r"\b(?:(bfloat16)|(float16))_copy_kernel_cuda\(.*?\{lambda\(([\w: ]+)\)#")
_DIRECT = re.compile(r"\b(?:direct_copy_kernel_cuda|copy_device_to_device)\(.*?\{lambda\(([\w:<> ]+)\)#")
_CASTING = re.compile(r"LoadWithCast|StoreWithCast|gpu_kernel_impl<")


def _copy(text: str, op: str) -> Dtypes | None:
    """copy_(self, src). The lambda of a direct copy takes self's type; the load may cast src to it. Source:
    aten/src/ATen/native/cuda/Copy.cu, direct_copy_kernel_cuda dispatches on iter.dtype(0), self's."""
    if op not in ("copy_", "_to_copy", "clone"):
        return None
    half = _TO_HALF.search(text)
    if half:  # the load does not cast, so src has the lambda's type
        return Dtypes(at=((0, "bfloat16" if half[1] else "float16"), (1, OF_CPP.get(half[3], ""))))
    direct = _DIRECT.search(text)
    if direct is None or direct[1] not in OF_CPP:
        return NOTHING
    source = "" if _CASTING.search(text) else OF_CPP[direct[1]]
    return Dtypes(at=((0, OF_CPP[direct[1]]), (1, source)), out=OF_CPP[direct[1]])


# --- scattered sums ------------------------------------------------------------------------------------------

_SUMMED = re.compile(r"\bindexing_backward_kernel\w*<")


def _scattered(text: str, op: str) -> Dtypes | None:
    """index_put_ with accumulate, sorted: self and values of one type. Source: aten/src/ATen/native/cuda/Indexing.cu"""
    match = _SUMMED.search(text)
    if match is None or op not in ("index_put_", "_index_put_impl_", "index_put"):
        return None
    dtype = OF_CPP.get(parameters(text, match)[0], "")
    return Dtypes(at=((0, dtype), (2, dtype)), flags=((3, True),))


# --- lists of tensors, reductions, moved bytes ---------------------------------------------------------------------

_MULTI = re.compile(r"multi_tensor_apply_kernel<")
_FUNCTOR = re.compile(r"\b(\w+Functor\w*)<")
_LIST_COPY = re.compile(r"\bCopy<")


def _many(text: str, op: str) -> Dtypes | None:
    """_foreach_ and _fused_ ops. ForeachFunctors.cuh: Functor<type, depth, lists that are read, list that is written>;
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
# They convert their input before the kernel sees it: integers to int64, anything to an explicit dtype (make_reduction,
# aten/src/ATen/native/ReduceOpsUtils.h). A100: sum of int32 runs ReduceOp<long, ..>. For other types see ``casts``.
CONVERTING = ("sum", "nansum", "prod", "mean")


def _reduced(text: str, op: str) -> Dtypes | None:
    """ReduceOp<in, operation, index, out, ..>. Source: aten/src/ATen/native/cuda/Reduce.cuh"""
    match = _REDUCE.search(text)
    if not match:
        return None
    if SOME_OPERANDS.search(op):
        return NOTHING
    words = parameters(text, match)
    source, out = dtype_at(words, 0), dtype_at(words, 3)
    if source == "int64" and op in CONVERTING:
        return Dtypes(at=((0, ""),), out=out)
    return Dtypes(source, (), out)


_OPAQUE = re.compile(r"\bOpaqueType<(\d{1,2})u?>")


def _opaque(text: str, op: str) -> Dtypes | None:
    """Kernels that move bytes and know an element's size only: cat (Shape.cu), index and index_put (IndexKernel.cu)."""
    match = _OPAQUE.search(text)
    if not match:
        return None
    dtype = OPAQUE.get(int(match[1]), "")
    if "CatArrayBatchedCopy" in text and op in ("cat", "concat", "stack"):
        return Dtypes(dtype)  # the inputs have one type, else no such kernel
    if "index_kernel_impl" in text and op == "index":
        return Dtypes(at=((0, dtype),), out=dtype)
    return Dtypes(at=((0, dtype),)) if "index_put_kernel_impl" in text and "index_put" in op else NOTHING


# --- element-wise kernels ------------------------------------------------------------------------------------------

# Ops that run an element-wise kernel or a reduction on some of their operands, or on none.
SOME_OPERANDS = re.compile(
    r"norm|embedding|pool|sort|topk|index|scatter|gather|attention|rnn|lstm|gru|ctc|unique|nonzero|multinomial|fft"
    r"|linalg|masked_select|masked_scatter|histc|bincount|median|mode|cdist|grid_sampl|cum|scan|roll|flip|im2col|col2im|_sparse"
)
# Their lambda's parameters are their tensors in the schema's order. (A lambda that takes one type needs no order.)
ORDERED = ("where", "_s_where", "masked_fill", "native_dropout_backward", "_masked_scale")
_ELEMENTWISE = re.compile(r"\b(vectorized_|unrolled_|legacy_)?elementwise_kernel<")
_IMPL = re.compile(r"\bgpu_kernel_impl(?:_nocast)?<")
_APPLIED = re.compile(r"(?:\w+::|\(anonymous namespace\)::)*([AB]Unary|Binary)Functor<")
_NAMED = re.compile(r"(?:\w+::|\(anonymous namespace\)::)*(\w+)<")


def _elementwise(text: str, op: str) -> Dtypes | None:
    """A functor's parameters are the operands' types, unless the load or store casts. Source: cuda/CUDALoops.cuh"""
    match = _ELEMENTWISE.search(text)
    if not match:
        return None
    if SOME_OPERANDS.search(op):
        return NOTHING
    inputs, out = signature(_functor(parameters(text, match), match[1] or ""))
    if not inputs or not all(inputs):
        return NOTHING
    if _CASTING.search(text):
        # At least one operand has another type than the arithmetic; which one is not in the name. An op that is neither
        # in place nor given ``out=`` allocates its output in the arithmetic's type (promotion).
        return Dtypes(at=tuple((i, "") for i in range(4)), out=out if not op.endswith("_") else "")
    if len(set(inputs)) == 1:
        first = ((0, inputs[0]),) if op.endswith(("_", "_backward")) else ()  # self or a gradient: a tensor, be it 0-d
        return Dtypes(inputs[0], first, out)
    return Dtypes(at=tuple(enumerate(inputs)), out=out) if op.removesuffix("_") in ORDERED else NOTHING


def _functor(words: list[str], kind: str) -> str:
    """The functor among an elementwise kernel's parameters: first if unrolled, second after a width, or in the loop."""
    place = {"unrolled_": 0, "vectorized_": 1}.get(kind, 2)
    text = words[place] if place < len(words) else ""
    match = _IMPL.search(text)
    if match:
        return parameters(text, match)[0]
    return "" if place == 2 else text


def signature(functor: str) -> tuple[list[str], str]:
    """The types of the tensors that a functor takes, and the type of its result; empty if unknown."""
    functor = functor.removeprefix("void ")
    applied = _APPLIED.match(functor)
    if applied:
        words = parameters(functor, applied)
        if len(words) == 1:  # before PyTorch 1.12: BUnaryFunctor<AddFunctor<long>>
            return _first(words[0])[0], ""
        first, second, out = (dtype_at(words, i) for i in range(3))
        return {"AUnary": [second], "BUnary": [first]}.get(applied[1], [first, second]), out
    called = lambdas(functor)
    if called:
        return [OF_CPP.get(word, "") for word in called[-1]], ""
    return _first(functor)


def _first(functor: str) -> tuple[list[str], str]:
    """A named functor's types: the first parameter is the type of its inputs, and for sums also of its result."""
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


_NCCL = re.compile(
    r"^nccl(?:Dev)?Kernel_\w*?_(?:Sum|Prod|Min|Max|MinMax|Avg|PreMulSum|SumPostDiv)_(f16|bf16|f32|f64|[iu]\d+)_"
)


def _collective(text: str, op: str) -> Dtypes | None:
    """Reductions have their type in the name. Copies (AllGather, SendRecv) always run as int8, so it is unknown."""
    match = _NCCL.match(text)
    return Dtypes(DTYPE_OF_WORD.get(match[1], "")) if match else None
