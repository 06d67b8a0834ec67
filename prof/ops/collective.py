"""Collectives: bytes read and written in this rank's memory, bytes sent over the network; 0 flop.

The sums inside an all-reduce run in NCCL's kernels. They do not count as FLOPs, as in PyTorch's convention.
"""

import math
from typing import Any

from pyprof.prof.ops.evaluation import alias, assumes
from pyprof.prof.ops.model import Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import moved, tensors

op = Family("collective")

# Annotations of torch.distributed's backends: "gloo:all_reduce", "nccl:_broadcast_oop", "nccl:send 0->1"
# (ProcessGroupNCCL.cpp and ProcessGroupGloo.cpp of 2.0 to 2.11, the argument profilingTitle).
_BACKEND = "(?:nccl|gloo|mpi|ucc|xccl):_?"
alias(_BACKEND + r"all_?reduce\w*", "nccl:all_reduce")
alias(_BACKEND + r"(broadcast|reduce|all_to_all)(?:v|_oop)?", r"nccl:\1")
alias(_BACKEND + r"(send|recv)\b.*", r"nccl:\1")
alias(_BACKEND + r"all_?gather\w*", "nccl:all_gather")
alias(_BACKEND + r"reduce_?scatter\w*", "nccl:reduce_scatter")
alias(_BACKEND + r"(gather|scatter|coalesced)", r"nccl:\1")


def wire_factor(kind: str, ranks: int) -> float:
    """Bytes that a rank must send per byte of the full buffer (nccl-tests, PERFORMANCE.md: bus bandwidth)

    all_reduce, barrier 2 (n - 1) / n;  broadcast, reduce, send, recv 1;  the others (n - 1) / n
    """
    share = (ranks - 1) / ranks
    if kind in ("all_reduce", "barrier"):
        return 2 * share
    return 1.0 if kind in ("broadcast", "reduce", "send", "recv") else share


def flat(argument: Any) -> tuple[Tensor, ...]:
    """The tensors in nested lists, because c10d passes lists of lists."""
    if isinstance(argument, (list, tuple)):
        return tuple(tensor for item in argument for tensor in flat(item))
    return tensors(argument)


def size(argument: Any) -> float:
    """Bytes of a buffer or of a list of buffers; NaN if there is none, since a trace may leave out a list's tensors."""
    buffers = flat(argument)
    return sum(moved(tensor.numel, tensor) for tensor in buffers) if buffers else math.nan


def read(argument: Any) -> float:
    """Bytes of the distinct buffers; NaN if there is none."""
    buffers = flat(argument)
    return distinct(buffers) if buffers else math.nan


@op(
    "c10d::allreduce_ c10d::broadcast_ c10d::reduce_ c10d::allreduce_coalesced_ nccl:all_reduce nccl:broadcast "
    "nccl:reduce nccl:all_to_all symm_mem::multimem_all_reduce_"
)
def same_size(*buffers: Any) -> Work:
    """Reads the buffers and writes as many bytes (all_to_all: if all parts have the same size)"""
    return Work(0, read(buffers), size(buffers))


@assumes("nccl:all_to_all")
def equal_parts(_: tuple[Any, ...]) -> str:
    return "the annotation has the inputs only: all parts are assumed to have the same size"


IN_PLACE = ("allreduce", "broadcast", "reduce", "allreduce_coalesced")


@op("record_param_comms")
def recorded(buffers: Any, seq: Any = None, group: Any = None, rank: Any = None, name: Any = None) -> Work:
    """The profiler's record of any collective: 0 flop. Bytes are known only for collectives that work in place.

    Arguments as ParamCommsUtils.hpp records them (torch 2.13). A Kineto trace leaves out arguments that are strings; it
    has the collective's name in a separate field, "Collective name".
    """
    return same_size(buffers) if name in IN_PLACE else Work(0, math.nan, math.nan)


@op(
    "nccl:all_gather nccl:reduce_scatter nccl:gather nccl:scatter nccl:coalesced ncclAllReduce ncclBroadcast "
    "ncclReduce ncclAllGather ncclReduceScatter ncclAlltoAll ncclGather ncclScatter ncclSend ncclRecv ncclGroupEnd"
)
def by_record(*_: Any) -> Work:
    """Unknown here: the accompanying record (`comm`) has all sizes, an annotation at most those of the inputs"""
    return Work(0, math.nan, math.nan)


@op("c10d::send nccl:send")
def send(buffer: Any) -> Work:
    """Reads the buffer"""
    return Work(0, read(buffer), 0)


@op("c10d::recv_ nccl:recv")
def recv(buffer: Any) -> Work:
    """Writes the buffer"""
    return Work(0, 0, size(buffer))


@op(
    "c10d::allgather_ c10d::_allgather_base_ c10d::reduce_scatter_ c10d::_reduce_scatter_base_ c10d::alltoall_ "
    "c10d::alltoall_base_ c10d::gather_ c10d::scatter_ c10d::allgather_into_tensor_coalesced_ "
    "c10d::reduce_scatter_tensor_coalesced_"
)
def into(outputs: Any, inputs: Any) -> Work:
    """Reads the inputs, writes the outputs"""
    return Work(0, read(inputs), size(outputs))


alias(r"_c10d_functional_autograd::(\w+)", r"_c10d_functional::\1")


@op(
    "_c10d_functional::all_reduce_coalesced _c10d_functional::all_reduce_coalesced_ symm_mem::one_shot_all_reduce "
    "symm_mem::two_shot_all_reduce_ symm_mem::multimem_one_shot_all_reduce _dtensor::shard_dim_alltoall"
)
def functional_same_size(inputs: Any) -> Work:
    """Reads the tensors, writes as many bytes"""
    return same_size(inputs)


@op("_c10d_functional::all_to_all_single")
def functional_all_to_all(self: Tensor, received: Any = ()) -> Work:
    """Reads the rows to send, writes those received, whose numbers by rank are an argument"""
    if not isinstance(received, (list, tuple)):
        return Work(0, self.nbytes, math.nan)
    rows = sum(received) if received else self.shape[0]
    return Work(0, self.nbytes, moved(self.numel // (self.shape[0] or 1) * rows, self))


@op("_c10d_functional::all_gather_into_tensor_coalesced")
def functional_all_gather_coalesced(inputs: Any, ranks: int) -> Work:
    """Reads this rank's parts, writes the parts of all ranks"""
    return Work(0, read(inputs), size(inputs) * ranks)


@op("_c10d_functional::reduce_scatter_tensor_coalesced")
def functional_reduce_scatter_coalesced(inputs: Any, operation: Any, ranks: int) -> Work:
    """Reads the tensors, writes this rank's part of each"""
    return Work(0, read(inputs), size(inputs) / ranks)


@op(
    "_c10d_functional::all_reduce _c10d_functional::all_reduce_ _c10d_functional::broadcast "
    "_c10d_functional::broadcast_"
)
def functional_all_reduce(self: Tensor) -> Work:
    """Reads the tensor, writes as many bytes"""
    return Work(0, self.nbytes, size(self))


@op("_c10d_functional::all_gather_into_tensor")
def functional_all_gather(self: Tensor, ranks: int) -> Work:
    """Reads this rank's part, writes the parts of all ranks"""
    return Work(0, self.nbytes, moved(self.numel * ranks, self))


@op("_c10d_functional::reduce_scatter_tensor")
def functional_reduce_scatter(self: Tensor, operation: Any, ranks: int) -> Work:
    """Reads the tensor, writes this rank's part"""
    return Work(0, self.nbytes, moved(self.numel // ranks, self))
