"""Models that compute their loss, and Triton kernels of the program, compiled under pyprof on an H200.

`tests/device/compiled_layers.py` is the program. The captures of GPT-2 and Llama were made before two rules of
pyprof/provenance: nodes that inductor puts in the place of a call's nodes belong to it, and kernels that reduce rows
and columns in one pass are noted (both are tested on a CPU in tests/provenance). What they say too much follows from
the sizes. The others were made with them.
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

# A row of the logits in one pass (maximum, difference, exp, sum: 3 FLOPs beside the softmax's own) and its difference.
ONLINE_SOFTMAX = {"gpt2_whole": 4 * 4096 * 50304, "llama_whole": 4 * 8192 * 32000}
# Llama, by the names of two such kernels: 4 FLOPs per element of 8192 * 2048, then 6; three sums of 512 rows of 2048;
# a sum of two gradients in the second kernel is missing.
MIXED = {"gpt2_whole": 0, "llama_whole": (4 + 6 - 1) * 8192 * 2048 + 3 * 511 * 2048}


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


@pytest.mark.parametrize("program", ["gpt2_whole", "llama_whole"])
def test_flops_are_the_eager_programs_but_for_what_is_known(program: str) -> None:
    eager, compiled = (annotate(parsed(f"{program}_{form}")).flops for form in ("eager", "compiled"))
    assert NULL not in eager and NULL not in compiled
    assert compiled.sum() == eager.sum() + ONLINE_SOFTMAX[program] + MIXED[program]


def test_products_with_a_loss_compiled_since() -> None:
    """Two linear layers with gelu between, and cross entropy, on an H200: recorded with both rules."""
    eager, compiled = (annotate(parsed(f"products_{form}")).flops for form in ("eager", "compiled"))
    assert NULL not in eager and NULL not in compiled
    assert compiled.sum() == eager.sum() == 172_121_652_224
    products = 5 * 2 * 4096 * 1024 * 4096  # the first layer's input needs no gradient
    assert 0 < eager.sum() - products < 0.002 * products


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
