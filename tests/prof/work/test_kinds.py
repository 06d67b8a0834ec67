"""The kind of work of ops on lists of tensors: an optimizer's in its phase, elsewhere what the kernel does."""

from pathlib import Path

import pytest

from pyprof.prof.load import load_table
from pyprof.prof.summary.components import components
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.kinds import CLASSES, KINDS_OF_CLASS, kinds
from tests.prof.changes.rules.advice_rows import table

APPLY = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::"
KERNELS = {  # op -> its kernel's long name, and its kind outside of an optimizer
    "_foreach_copy_": ("TensorListMetadata<2>, CopyFunctor<int, long, 2, 1, 1>, Copy<int, long> >", "copies and casts"),
    "_foreach_zero_": ("TensorListMetadata<1>, ZeroFunctor<float, 1, 1, 0> >", "fills"),
    "_foreach_norm": ("TensorListMetadata<1>, LpNormFunctor<float, NormType, float, 1, 1, 0> >", "reductions"),
    "_foreach_mul_": (
        "TensorListMetadata<1>, BinaryOpScalarFunctor<float, 1, 1, 0>, std::multiplies<float> >", "element-wise",
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", KERNELS)
@pytest.mark.parametrize("phase", ["forward", "backward", "other", "optimizer", ""])
def test_lists_of_tensors(op: str, phase: str) -> None:
    functor, kind = KERNELS[op]
    name = {"kLongName": APPLY + functor, "kShortName": "multi_tensor_apply_kernel", "phase": phase, "ns": 1000}
    made = table({"aten": f"aten::{op}", "sizes": [[[8]]], "dtypes": [["float32"]], **name})
    expected = "optimizer" if phase in ("optimizer", "") else kind
    assert kinds(made, annotate(made)).texts() == [expected]


def test_a_copy_of_lists_whose_op_is_unknown_is_a_copy() -> None:
    made = table(
        {"kLongName": APPLY + KERNELS["_foreach_copy_"][0], "kShortName": "multi_tensor_apply_kernel", "ns": 9}
    )
    assert kinds(made, annotate(made)).texts() == ["copies and casts"]


@pytest.mark.parametrize("name", ["tracelens_sglang_decode", "tracelens_vllm_decode", "tracelens_vllm_capture"])
def test_a_server_has_no_optimizer(data: Path, name: str) -> None:
    """They serve a model: SGLang copies its inputs with _foreach_copy_ before each replay of a graph."""
    served = load_table(data / "round2" / f"{name}.json.gz").table
    notes = annotate(served)
    of_rows = kinds(served, notes)
    assert "optimizer" not in {*of_rows.texts(), *components(served, notes, of_rows).texts()}
    assert "optimizer" not in served.coded("phase").texts()


ELEMENTS = "void at::native::vectorized_elementwise_kernel<4, at::native::"
RECORDED = {  # what a kernel does -> its kind, however the capture records it: with its op, or by its name alone
    "aten::fill_": (f"{ELEMENTS}FillFunctor<float>, at::detail::Array<char*, 1> >(int)", "fills"),
    "aten::zero_": (f"{ELEMENTS}FillFunctor<float>, at::detail::Array<char*, 1> >(int)", "fills"),
    "aten::arange": (
        "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out()>(int)", "fills",
    ),
    "aten::masked_fill_": (f"{ELEMENTS}masked_fill_kernel_cuda(at::TensorIterator&)::{{lambda()#1}}>", "element-wise"),
    "aten::mse_loss": (f"{ELEMENTS}mse_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#1}}>(int)", "loss"),
    "aten::copy_": (f"{ELEMENTS}direct_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#1}}>", "copies and casts"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"),
    [("cupy_true_divide__float64_float64_float64", "element-wise"), ("cupy_copy__float64_float64", "copies and casts"),
     ("cupy_fill", "fills"), ("cupy_sum", "other")],
)  # fmt: skip
def test_kernels_of_cupy(name: str, kind: str) -> None:
    made = table({"kLongName": name, "kShortName": name, "kind": "kernel", "ns": 9})
    assert kinds(made, annotate(made)).texts() == [kind]


@pytest.mark.parametrize("op", RECORDED)
def test_the_kind_does_not_depend_on_whether_the_op_is_recorded(op: str) -> None:
    name, kind = RECORDED[op]
    kernel = {"kLongName": name, "kShortName": name.split("<")[0], "kind": "kernel", "ns": 9}
    for shown in ({"aten": op, "sizes": [[8], [8]], "dtypes": ["float32", "float32"]}, {"aten": op}, {}):
        made = table(kernel | shown)
        assert kinds(made, annotate(made)).texts() == [kind]


@pytest.mark.parametrize(
    ("op", "kind"),
    [("aten::sort", "indexing and sorting"), ("aten::cumsum", "reductions"), ("aten::cdist", "element-wise")],
)
def test_the_op_decides_where_the_kernels_name_says_nothing(op: str, kind: str) -> None:
    name = {"kLongName": "void helper()", "kShortName": "helper", "kind": "kernel", "ns": 9}
    made = table(name | {"aten": op, "sizes": [[8, 4], [8, 4]], "dtypes": ["float32", "float32"]})
    assert kinds(made, annotate(made)).texts() == [kind]


def test_the_names_that_people_see() -> None:
    """As docs/reference lists them: filters, JSON and diffs use these words, so none changes unnoticed."""
    assert {name for names in KINDS_OF_CLASS.values() for name in names} == {
        "GEMM", "convolution", "attention", "recurrent layers", "element-wise", "normalisation", "softmax", "loss",
        "reductions", "pooling", "resizing", "FFT", "copies and casts", "host-device copies", "fills", "embedding",
        "indexing and sorting", "random numbers", "optimizer", "communication", "CUDA graphs", "other",
    }  # fmt: skip
    assert CLASSES == (
        "GEMM, recurrent layers", "convolution", "attention", "element-wise", "normalisation",
        "softmax, loss, reductions", "copies, indexing, random numbers", "optimizer", "communication", "other",
    )  # fmt: skip
