"""Random numbers, dropout and collectives, counted by hand."""

import math

import pytest

from pyprof.prof.ops.collective import wire_factor
from pyprof.prof.ops.evaluation import assumption, evaluate, find
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from tests.prof.ops.op_cases import NAN, Row, t, worked

X = t(2, 3)  # 6 elements, 24 bytes
M = t(2, 3, dtype="bool")
ROWS: list[Row] = [
    (
        "uniform_ normal_ exponential_ cauchy_ log_normal_ geometric_ random_ bernoulli_ uniform exponential cauchy "
        "log_normal geometric random normal_functional",
        (X,),
        Work(0, 0, 24),
    ),  # written, not read
    ("bernoulli_", (X, X), Work(0, 24, 24)),  # a tensor of probabilities
    ("bernoulli poisson _standard_gamma binomial _sample_dirichlet", (X,), Work(0, 24, 24)),
    ("bernoulli", (X, 0.5), Work(0, 0, 24)),  # self gives its shape
    ("rand randn", ([2, 3],), Work(0, 0, 24)),
    ("rand", ([2, 3], "float64"), Work(0, 0, 48)),
    ("rand", ([2, 3], None, "float64", None, None, False), Work(0, 0, 48)),  # a generator before the dtype
    ("rand", ([2, 3], "float64", None, None, False), Work(0, 0, 48)),
    (
        "_philox_normal _philox_normal_ _philox_uniform _philox_uniform_",
        (X, t(2, dtype="uint64"), 0.0, 1.0),
        Work(0, 16, 24),
    ),
    ("normal", (0.0, 1.0, [2, 3]), Work(0, 0, 24)),
    ("normal", (X, 1.0), Work(12, 24, 24)),
    ("randint", (10, [2, 3]), Work(0, 0, 48)),
    ("randint", (1, 10, [2, 3]), Work(0, 0, 48)),
    ("randint", (10, [2, 3], "float32", None, None, None), Work(0, 0, 24)),
    ("randint", (1, 10, [2, 3], None, "float16", None, None, None), Work(0, 0, 12)),  # a generator before the dtype
    ("randint", (10, [2, 3], t(2, 3)), Work(0, 0, 24)),  # out=
    ("normal", (0.0, 1.0, [2, 3], None, "bfloat16", None, None, None), Work(0, 0, 12)),
    ("randint_like", (X, 10, "int64", None, None, None, None), Work(0, 0, 48)),
    ("randint_like", (X, 1, 10, "int64", None, None, None, None), Work(0, 0, 48)),
    ("randperm", (7,), Work(0, 0, 56)),
    ("rand_like randn_like", (X,), Work(0, 0, 24)),
    ("randint_like", (X, 10), Work(0, 0, 24)),
    ("multinomial", (X, 5, True), Work(0, 24, 80)),
    ("dropout", (X, 0.5, False), Work()),
    ("dropout", (X, 0.0, True), Work()),
    (
        "dropout native_dropout",
        (X, 0.5, True),
        Work(6, 24, 24 + 6),
    ),  # the result and a byte of mask each
    ("alpha_dropout", (X, 0.5, True), Work(12, 24, 30)),  # a product and a sum
    # a factor for each of 2 * 3 channels of 4 elements
    ("feature_dropout", (t(2, 3, 2, 2), 0.5, True), Work(24, 96, 96 + 24)),
    ("feature_alpha_dropout", (t(2, 3, 2, 2), 0.5, True), Work(48, 96, 96 + 24)),
    ("alpha_dropout feature_dropout feature_alpha_dropout", (t(2, 3, 2, 2), 0.5, False), Work()),
    ("native_dropout", (X, UNKNOWN, UNKNOWN), Work(6, 24, 30)),
    ("native_dropout", (X, 0.5, False), Work()),
    ("_fused_dropout", (X, 0.5, None), Work(6, 24, 30)),
    ("native_dropout_backward _masked_scale", (X, M, 2.0), Work(6, 30, 24)),
    ("native_dropout_backward", (Tensor((2, 3), "float32"), Tensor((2, 3)), 2.0), Work(6, 30, 24)),
    ("dropout.backward", (X, 0.5, True), Work(6, 30, 24)),
    ("dropout.backward", (X, 0.5, False), Work()),
    ("c10d::allreduce_ c10d::broadcast_ c10d::reduce_ c10d::allreduce_coalesced_", ((X, X), None), Work(0, 48, 48)),
    ("nccl:all_reduce nccl:broadcast nccl:reduce symm_mem::multimem_all_reduce_", (X,), Work(0, 24, 24)),
    ("c10d::send nccl:send", (X,), Work(0, 24, 0)),
    ("nccl:all_to_all", (X,), Work(0, 24, 24)),
    ("c10d::recv_ nccl:recv", (X,), Work(0, 0, 24)),
    ("c10d::allgather_ c10d::gather_", (((X, X),), (X,), None), Work(0, 24, 48)),
    ("c10d::_allgather_base_ c10d::allgather_into_tensor_coalesced_", (t(4, 3), X, None), Work(0, 24, 48)),
    ("c10d::reduce_scatter_ c10d::scatter_", ((X,), ((X, X),), None), Work(0, 48, 24)),
    ("c10d::_reduce_scatter_base_ c10d::reduce_scatter_tensor_coalesced_", (X, t(4, 3), None), Work(0, 48, 24)),
    ("c10d::alltoall_ c10d::alltoall_base_", (X, X, None), Work(0, 24, 24)),
    (
        "_c10d_functional::all_reduce _c10d_functional::all_reduce_ _c10d_functional::broadcast "
        "_c10d_functional::broadcast_",
        (X, "sum", "0"),
        Work(0, 24, 24),
    ),
    ("_c10d_functional::all_gather_into_tensor", (X, 4, "0"), Work(0, 24, 96)),
    (
        "_c10d_functional::all_reduce_coalesced _c10d_functional::all_reduce_coalesced_",
        ((X, X), "sum", "0"),
        Work(0, 48, 48),
    ),
    (
        "symm_mem::one_shot_all_reduce symm_mem::two_shot_all_reduce_ symm_mem::multimem_one_shot_all_reduce",
        (X, "sum", "0"),
        Work(0, 24, 24),
    ),
    ("_dtensor::shard_dim_alltoall", (X, 0, 1, "0"), Work(0, 24, 24)),
    ("_c10d_functional::all_to_all_single", (X, [4, 1], [1, 1], "0"), Work(0, 24, 60)),  # 5 rows of 12 bytes come back
    ("_c10d_functional::all_to_all_single", (X, [], [], "0"), Work(0, 24, 24)),
    ("_c10d_functional::all_gather_into_tensor_coalesced", ((X, X), 4, "0"), Work(0, 48, 192)),
    ("_c10d_functional::reduce_scatter_tensor_coalesced", ((X, X), "sum", 2, "0"), Work(0, 48, 24)),
    # annotations that name what goes in, of collectives whose results have another size
    (
        "nccl:all_gather nccl:reduce_scatter nccl:gather nccl:scatter",
        (X,),
        Work(0, NAN, NAN),
    ),
    (
        "ncclAllReduce ncclBroadcast ncclReduce ncclAllGather ncclReduceScatter ncclAlltoAll ncclGather ncclScatter "
        "ncclSend ncclRecv ncclGroupEnd nccl:coalesced",
        (X,),
        Work(0, NAN, NAN),
    ),  # only the record beside them has the sizes
    ("record_param_comms", ((X,), 0, UNKNOWN, 1, UNKNOWN), Work(0, NAN, NAN)),  # a record of some collective
    ("record_param_comms", ((X,), 0, UNKNOWN, 1, "allreduce"), Work(0, 24, 24)),
    ("_c10d_functional::reduce_scatter_tensor", (X, "sum", 2, "0"), Work(0, 24, 12)),
    ("nccl:all_reduce", (X, X), Work(0, 48, 48)),  # an annotation of two tensors
    # a list whose tensors the trace leaves out
    ("record_param_comms", ((), 0, UNKNOWN, 1, "allreduce"), Work(0, NAN, NAN)),
    ("c10d::allreduce_ c10d::broadcast_", (UNKNOWN, None), Work(0, NAN, NAN)),
    ("c10d::send", ((), 1), Work(0, NAN, 0)),
    ("c10d::allgather_", ((), (X,), None), Work(0, 24, NAN)),
]
test_worked_by_hand = worked(ROWS)


ANNOTATIONS = [  # the titles in ProcessGroupNCCL.cpp, ProcessGroupGloo.cpp and ProcessGroupXCCL.cpp
    ("gloo:all_reduce nccl:allreduce_coalesced nccl:all_reduce_barrier xccl:all_reduce", "nccl:all_reduce"),
    ("nccl:_broadcast_oop gloo:broadcast", "nccl:broadcast"),
    ("nccl:_reduce_oop", "nccl:reduce"),
    ("nccl:_all_gather_base nccl:all_gather_into_tensor_coalesced gloo:all_gather", "nccl:all_gather"),
    ("nccl:_reduce_scatter_base nccl:reduce_scatter_tensor_coalesced", "nccl:reduce_scatter"),
    ("nccl:all_to_allv gloo:all_to_all", "nccl:all_to_all"),
]


def test_an_annotation_of_any_backend_names_its_collective() -> None:
    for names, model in ANNOTATIONS:
        assert {find(name) for name in names.split()} == {model}
    assert (find("nccl:send 0->1"), find("nccl:recv 1<-0")) == ("nccl:send", "nccl:recv")
    assert find("mylib:all_reduce") is None


def test_an_all_to_all_without_its_outputs_says_what_is_assumed() -> None:
    assert "same size" in assumption("nccl:all_to_all", (X,))
    assert assumption("c10d::alltoall_base_", (X, X)) == ""


def test_sizes_that_are_not_told_are_not_zero() -> None:
    assert math.isnan(total(evaluate("rand", (UNKNOWN,))).write)
    assert evaluate("rand", (UNKNOWN,), (X,)) == Work(0, 0, 24)


@pytest.mark.parametrize(
    ("kind", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),  # 2 * 1 / 2
        ("all_reduce", 8, 1.75),  # 2 * 7 / 8
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 4, 0.75),
        ("all_to_all", 4, 0.75),
        *((kind, 8, 1.0) for kind in ("broadcast", "reduce", "send", "recv")),
        ("barrier", 4, 1.5),
        ("all_reduce", 1, 0.0),
    ],
)
def test_bytes_on_the_wire(kind: str, ranks: int, factor: float) -> None:
    assert wire_factor(kind, ranks) == factor
