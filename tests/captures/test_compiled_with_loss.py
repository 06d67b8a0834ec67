"""Models that compute their loss, and Triton kernels of the program, compiled under pyprof on an H200.

`tests/device/compiled_layers.py` is the program.
"""

from collections.abc import Iterator

import numpy as np
import pytest

import pyprof
from pyprof.parse.detect import reader
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.ops import evaluation, model
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Table
from tests.paths import GOLDEN

# The record of this GPT-2's compiled code does not say that GELU takes tanh, which the markers of the eager program do:
# 2 blocks of 4096 x 3072 numbers, 9 - 5 operations each forward and 18 - 11 backward.
TANH = {"gpt2_whole": 2 * 4096 * 3072 * (4 + 7)}


def parsed(name: str) -> Table:
    path = GOLDEN / "compiled" / f"{name}.json.gz"
    return correlate(reader(path)(path))


@pytest.mark.parametrize(
    "name",
    [
        "gpt2_whole_compiled",
        "gpt2_whole_graphs",
        "llama_whole_compiled",
        "products_compiled",
        "products_templates",
        "user_kernels_compiled",
        "user_kernels_graphs",
    ],
)
def test_kernel_time_on_a_layer(name: str) -> None:
    table = parsed(name)
    layered = np.array([bool(text) for text in table.coded("layer").texts()])
    duration = table.ints("kDuration")
    assert duration[layered].sum() >= 0.997 * duration.sum()
    without = {op for op, has in zip(table.coded("op").texts(), layered, strict=True) if not has}
    assert without <= {'["ones_like"]'}  # the gradient of the loss


@pytest.mark.parametrize(
    ("program", "form", "flops"),
    [
        ("gpt2_whole", "compiled", 1_344_985_226_240),
        ("llama_whole", "compiled", 5_952_366_233_728),
        ("products", "compiled", 172_121_652_224),
        ("products", "templates", 172_121_652_224),
    ],
)
def test_flops_are_the_eager_programs(program: str, form: str, flops: int) -> None:
    """``templates``: inductor's own kernels for products (``max_autotune_gemm_backends="TRITON"``)."""
    eager, compiled = (annotate(parsed(f"{program}_{each}")).flops for each in ("eager", form))
    assert NULL not in eager and NULL not in compiled
    assert compiled.sum() == eager.sum() - TANH.get(program, 0) == flops


def test_most_flops_of_two_linear_layers_are_their_products() -> None:
    products = 5 * 2 * 4096 * 1024 * 4096  # the first layer's input needs no gradient
    assert 0 < annotate(parsed("products_eager")).flops.sum() - products < 0.002 * products


def test_steps_that_replay_graphs_have_the_flops_of_the_compiled_step() -> None:
    """``mode="reduce-overhead"``: the first of three steps captures, the others replay."""
    table = parsed("gpt2_whole_graphs")
    flops, steps = annotate(table).flops, table.ints("step")
    compiled = annotate(parsed("gpt2_whole_compiled")).flops.sum()
    assert [flops[steps == step].sum() for step in (0, 1, 2)] == [compiled] * 3


@pytest.fixture
def _formulas() -> Iterator[None]:
    models, families, kernels = dict(model.MODELS), dict(model.FAMILY), set(evaluation.KERNELS)
    pyprof.flops("scaled_add_kernel", lambda x: 2 * x.numel)
    pyprof.flops("pyprof_test::scaled_add", lambda x: 2 * x.numel)  # what launches it in the eager program
    yield
    for registry, before in ((model.MODELS, models), (model.FAMILY, families)):
        registry.clear()
        registry.update(before)  # type: ignore[arg-type]
    evaluation.KERNELS.clear()
    evaluation.KERNELS.update(kernels)


@pytest.mark.usefixtures("_formulas")
@pytest.mark.parametrize("form", ["eager", "compiled", "graphs"])
def test_triton_kernels_of_the_program(form: str) -> None:
    """One that is launched directly, one in a ``torch.library.triton_op``, around a linear layer, and a sum."""
    table = parsed(f"user_kernels_{form}")
    names, layers, flops, steps = (
        table.coded("kShortName").texts(),
        table.coded("layer").texts(),
        annotate(table).flops.tolist(),
        table.ints("step").tolist(),
    )
    rows = [
        (layer, flop)
        for name, layer, flop, step in zip(names, layers, flops, steps, strict=True)
        if name == "scaled_add_kernel" and step in (NULL, 1)
    ]
    elements = 8192 * 1024
    assert rows == [('["Net", "direct"]', 2 * elements), ('["Net", "op"]', 2 * elements)]
    # y = x W' + b: 2 * 8192 * 1024 * 1024; relu 0; the sum of all elements one less
    step = [flop for flop, step in zip(flops, steps, strict=True) if step in (NULL, 1)]
    assert sum(step) == 2 * elements * 1024 + 2 * 2 * elements + elements - 1
