"""apex's optimizers: what their kernels worked on, proven by blocks and the step's gradients."""

import json
import math

import numpy as np
import pytest

from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.explain import explain
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.multi_tensor import FUNCTORS, Proof, element_bytes, elements, functor_of
from pyprof.table.columns import NULL
from tests.parse.kineto.kineto_file import AUTOGRAD, begin, call, kernel, op, write, x

ADAM = (
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float, float, float, float, "
    "float, adamMode_t, float, int, int>(int, int volatile*, TensorListMetadata<4>, AdamFunctor<float>, float)"
)


def multi(functor: str, depth: int = 4) -> str:
    return f"void multi_tensor_apply_kernel<TensorListMetadata<{depth}>, {functor}, float>(int, int volatile*)"


BYTES = [
    ("AdamFunctor<float>", 28),  # 4 lists read, 3 written
    ("AdamFunctor<c10::Half, float, int>", 2 * 2 + 2 * 4 + 2 + 2 * 4),  # g and p in 2 bytes, m and v in 4
    ("AdamFunctor<c10::Half, float, long>", 2 * 2 + 2 * 4 + 2 + 2 * 4),  # the third type is that of indices
    ("AdamCapturableMasterFunctor<c10::BFloat16, float>", 2 + 3 * 4 + 2 + 3 * 4),  # p only written, in 2 bytes
    ("SGDFunctor<3, float, float>", 20),  # g, p, m read, p and m written
    ("SGDFunctor<4, c10::Half, float>", 2 + 2 * 4 + 2 * 4 + 2),  # and the model's own weights
    ("AdagradFunctor<float>", 20),
    ("NovoGradFunctor<float>", 20),
    ("LAMBStage1Functor<float>", 28),
    ("LAMBStage2Functor<float>", 12),
    ("L2NormFunctor<c10::Half>", 2),
    ("UnscaleL2NormFunctor<float>", 4),
    ("MaxNormFunctor<float>", 4),
    ("ScaleFunctor<c10::Half, float>", 6),
    ("AxpbyFunctor<float, c10::Half, float>", 10),
    ("AdamCapturableFunctor<float, float>", 28),
]


@pytest.mark.parametrize(("functor", "nbytes"), BYTES)
def test_bytes_of_an_element(functor: str, nbytes: int) -> None:
    assert element_bytes(*functor_of(multi(functor))) == nbytes


def test_every_functor_has_its_bytes_tested() -> None:
    assert {name.split("<")[0] for name, _ in BYTES} == set(FUNCTORS)


def test_other_kernels_are_none() -> None:
    torch = (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4>>"
    )
    assert functor_of(torch) == functor_of("void gemm<float>(int)") == functor_of(multi("Mine<float>")) == ("", [])
    assert math.isnan(element_bytes("ScaleFunctor", ["T"]))


@pytest.mark.parametrize(
    ("grads", "blocks", "told"),
    [
        ([[65536], [65537], [3, 5]], 4, Proof(65536 + 65537 + 15, 3, True)),  # 1 + 2 + 1 chunks
        ([[65536], [65537], [3, 5]], 8, Proof(2 * (65536 + 65537 + 15), 3, True)),  # LAMB: norms of two lists
        ([[65537], [10], []], 3, Proof(65547, 2, True)),  # the scalar has another optimizer
        ([[7], [9], [7], [9]], 2, Proof(16, 2, True)),  # gradients accumulated in two passes
        ([[7], [9]] * 3, 2, Proof(16, 2, True)),
        ([[7], [9], [9], [7]], 2, None),  # other orders prove nothing
        ([[65536 * 200], [1]], 200, Proof(65536 * 199 + 1, 2, False)),  # of 201 one is missing, of up to 65,536
        ([[65536 * 50], [1]], 50, None),  # one of 51 may be anything
        ([[7]], 0, None),
        ([], 3, None),
    ],
)
def test_elements(grads: list[list[int]], blocks: int, told: Proof | None) -> None:
    assert elements(json.dumps(grads), blocks) == told


def step(ts: float, corr: int, name: str = ADAM) -> list[dict]:
    """An optimizer's step of two launches, 3 blocks and 1: outside of any op."""
    return [
        x("user_annotation", "Optimizer.step#FusedAdam.step", ts, 90),
        call(ts + 10, corr),
        kernel(ts + 500, 90, corr, name, grid=[3, 1, 1]),
        call(ts + 30, corr + 1),
        kernel(ts + 700, 30, corr + 1, name, grid=[1, 1, 1]),
    ]


def accumulated(ts: float, *shapes: list[int]) -> list[dict]:
    return [
        op("torch::autograd::AccumulateGrad", ts + i, 1, tid=AUTOGRAD, Input_Dims=[shape], Input_type=["float"])
        for i, shape in enumerate(shapes)
    ]


def test_a_step_of_apex_has_its_gradients(tmp_path) -> None:
    """70,000 and 65,536 and 10 elements: 2 + 1 + 1 chunks, as many as blocks; 13 FLOPs and 28 bytes an element."""
    path = write(tmp_path / "t.json", begin(0), *accumulated(10, [70_000], [256, 256], [10]), *step(100, 1))
    table = correlate(read(path))
    notes = annotate(table)
    assert notes.flops.sum() == 13 * 135_546
    assert notes.bytes.sum() == 28 * 135_546
    # by blocks: three quarters of 135,546 are 101,659.5
    assert notes.flops.tolist() == [13 * 101_660, 13 * 33_886]
    (said,) = (text for what, text in explain(table, notes, 0) if what == "kernel's own work")
    assert said.startswith(
        "inferred: 135,546 elements in 3 gradients of the step, by its 2 launches with 4 blocks of 65,536 elements"
    )


def test_each_step_has_its_own_gradients(tmp_path) -> None:
    """The second step's have 4 chunks, too: 262,144 elements."""
    path = write(
        tmp_path / "t.json",
        begin(0),
        *accumulated(10, [70_000], [256, 256], [10]),
        *step(100, 1),
        *accumulated(300, [512, 512]),
        *step(400, 3),
    )
    notes = annotate(correlate(read(path)))
    assert notes.flops.tolist() == [13 * 101_660, 13 * 33_886, 13 * 196_608, 13 * 65_536]


def test_a_step_whose_backward_came_before_the_capture_did_what_an_equal_one_did(tmp_path) -> None:
    path = write(
        tmp_path / "t.json",
        begin(0),
        *step(100, 1),
        *accumulated(300, [70_000], [256, 256], [10]),
        *step(400, 3),
    )
    table = correlate(read(path))
    notes = annotate(table)
    assert notes.flops.tolist() == [13 * 101_660, 13 * 33_886] * 2
    said = [text for row in (0, 2) for what, text in explain(table, notes, row) if what == "kernel's own work"]
    assert [text.partition(", by")[0] for text in said] == [
        "inferred: 135,546 elements in 3 gradients of another, equal step",
        "inferred: 135,546 elements in 3 gradients of the step",
    ]


def test_what_the_blocks_do_not_prove_stays_unknown(tmp_path) -> None:
    path = write(
        tmp_path / "t.json", begin(0), *accumulated(10, [70_000], [256, 256]), *step(100, 1)
    )  # 3 chunks, 4 blocks
    table = correlate(read(path))
    notes = annotate(table)
    assert np.all(notes.flops == NULL) and np.all(notes.bytes == NULL)
    (said,) = (text for what, text in explain(table, notes, 0) if what == "kernel's own work")
    assert said.startswith(
        "unknown: the step's gradients do not have as many chunks of 65,536 as its 2 launches with 4 blocks"
    )


def test_torchs_own_lists_keep_their_op(tmp_path) -> None:
    """A kernel of `_foreach_add_` is its op's, whatever its name."""
    path = write(
        tmp_path / "t.json",
        begin(0),
        *accumulated(10, [70_000]),
        op("aten::_foreach_mul_", 100, 50, Input_Dims=[[], []], Input_type=["TensorList", "Scalar"]),
        call(110, 1),
        kernel(500, 9, 1, multi("ScaleFunctor<float, float>"), grid=[2, 1, 1]),
    )
    assert annotate(correlate(read(path))).flops.tolist() == [70_000]  # 1 an element
