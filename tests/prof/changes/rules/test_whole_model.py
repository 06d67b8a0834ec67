"""The kernels that a compiler makes of a run's, and what compiled code takes the host."""

from types import SimpleNamespace

import numpy as np
import pytest

from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.edit import Abstained, Edit
from pyprof.prof.changes.effect.scenario import apply, captured
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.changes.rules.kernels.fused_kernels import FUSED_NS, RATE, fused_kernels, fusible
from pyprof.prof.changes.rules.kernels.whole_model import _hindrance
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from tests.parse.kineto.kineto_file import begin, call, kernel, op, write
from tests.prof.changes.rules.advice_rows import mm, run
from tools.plan_pairs import GOLDEN, base_of

CHANGES = GOLDEN.parent / "changes"
H200 = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
TOKENS, WIDTH = 8192, 1024
SIZE = TOKENS * WIDTH
RATE_NS = 1e9 / (RATE * 0.85 * 4.8e12)  # per byte on an H200


def row(aten, *shapes, ns=50_000, dtypes=None, name="vectorized_elementwise_kernel", **more):
    return {
        "aten": f"aten::{aten}", "sizes": [list(shape) for shape in shapes],
        "dtypes": dtypes or ["float32"] * len(shapes), "ns": ns, "kShortName": name, "phase": "forward",
        "dir": "fprop", **more,
    }  # fmt: skip


def fused(*rows):
    made = run(*rows)
    return made, list(fused_kernels(made, fusible(made)))


def test_a_residual_a_norm_and_a_cast_are_one_kernel():
    """Both operands of the sum are read and the sum is written, which is needed later on; the norm's cast result, too.

    (2 × 4 + 4 + 2) bytes per element, and a weight and a bias.
    """
    made, (found,) = fused(
        row("add", (TOKENS, WIDTH), (TOKENS, WIDTH)),
        row("native_layer_norm", (TOKENS, WIDTH), (), (WIDTH,), (WIDTH,), name="vectorized_layer_norm_kernel"),
        row("copy_", (TOKENS, WIDTH), (TOKENS, WIDTH), dtypes=["bfloat16", "float32"]),
    )
    assert found.rows == [0, 1, 2]
    assert found.nbytes + found.last == pytest.approx(14 * SIZE, rel=0.001)
    assert found.ns(made) == pytest.approx(FUSED_NS + 14 * SIZE * RATE_NS, rel=0.001)


def test_a_clone_within_the_gpus_memory_joins_its_neighbours():
    """As masked_fill makes it: the product's result is read once, and the filled tensor written."""
    clone = {"name": "Memcpy DtoD (Device -> Device)", "kind": "memcpy"}
    _, (found,) = fused(
        row("mul", (TOKENS, WIDTH), ()),
        row("copy_", (TOKENS, WIDTH), (TOKENS, WIDTH), **clone),
        row("masked_fill_", (TOKENS, WIDTH), (1, WIDTH), dtypes=["float32", "bool"]),
    )
    assert found.rows == [0, 1, 2]
    assert found.nbytes + found.last == pytest.approx(8 * SIZE, rel=0.001)


def test_a_copy_from_the_host_stays():
    _, found = fused(row("copy_", (TOKENS, WIDTH), name="Memcpy HtoD (Pageable -> Device)", kind="memcpy"))
    assert found == []


def test_a_dropout_computes_its_random_numbers():
    made, (found,) = fused(row("gelu", (TOKENS, WIDTH)), row("native_dropout", (TOKENS, WIDTH)))
    assert found.more_ns == pytest.approx(0.002 * SIZE)  # ns an element
    assert found.ns(made) > FUSED_NS + found.more_ns


def test_products_stay_and_keep_their_neighbours_apart():
    _, found = fused(
        row("gelu", (TOKENS, WIDTH)),
        row("mul", (TOKENS, WIDTH), (TOKENS, WIDTH)),
        mm(TOKENS, WIDTH, WIDTH, 100_000),
        row("gelu", (TOKENS, WIDTH)),
        row("add", (TOKENS, WIDTH), (TOKENS, WIDTH)),
    )
    assert [each.rows for each in found] == [[0, 1], [3, 4]]


def test_kernels_over_other_numbers_of_elements_are_apart():
    """The cast of a weight between a norm and its product is a kernel of its own."""
    weight = row("copy_", (WIDTH, 3), (WIDTH, 3), dtypes=["bfloat16", "float32"])
    _, found = fused(row("gelu", (TOKENS, WIDTH)), weight, row("tanh", (TOKENS, WIDTH)))
    assert [each.rows for each in found] == [[0, 2], [1]]


def test_one_norm_after_the_other_are_two_kernels():
    norm = [
        row("pow", (TOKENS, WIDTH), ()),
        row("mean", (TOKENS, WIDTH), (), name="reduce_kernel", args=["", "[-1]", "True", ""]),
        row("mul", (TOKENS, WIDTH), (TOKENS, 1)),
    ]
    _, found = fused(*norm, *norm)
    assert [each.rows for each in found] == [[0, 1, 2, 3], [4, 5]]


def test_a_bias_gradient_takes_two_kernels():
    """Sums of parts first, and then of these."""
    sums = row("sum", (TOKENS, WIDTH), name="reduce_kernel", args=["", "[0]", "True", ""])
    cast = row("copy_", (WIDTH,), (WIDTH,), dtypes=["float32", "bfloat16"])
    _, (found,) = fused(sums, cast)
    assert found.rows == [0, 1] and found.launches == 2


def test_a_kernel_alone_and_kernels_without_shapes_stay_as_they_are():
    made, (found,) = fused(row("gelu", (TOKENS, WIDTH), ns=1_000_000), row("mul"))
    assert found.rows == [0] and found.ns(made) == 1_000_000


def test_a_copy_alone_is_generated_at_the_rate_of_others():
    """PyTorch's cat of three times 29 MB took 97.7 µs, generated code 41.0 (gradients of a ViT, H200)."""
    parts = [(48, 197, 12, 64)] * 3
    made, (found,) = fused(row("cat", parts, dtypes=[["float32"] * 3], ns=97_700, name="CatArrayBatchedCopy"))
    assert 41_000 < found.ns(made) < 60_000


def test_what_two_element_wise_ops_make_is_used_in_one_kernel():
    """Scale, a triangle of a mask's size, their sum, softmax: the scores are read once and written once."""
    scores = (4, 16, 1024, 1024)
    _, (found,) = fused(
        row("div", scores, ()),
        row("triu", (1024, 1024), ()),
        row("add", scores, (1024, 1024)),
        row("_softmax", scores, (), name="softmax_warp_forward"),
    )
    assert found.rows == [0, 1, 2, 3]
    assert found.nbytes + found.last == pytest.approx(2 * 4 * 4 * 16 * 1024 * 1024, rel=0.02)


def test_the_loss_is_not_part_of_the_model():
    _, found = fused(row("_log_softmax", (TOKENS, 50_000), name="softmax"), row("gelu", (TOKENS, WIDTH)))
    assert [each.rows for each in found] == [[1]]


def on_h200(folder, *events):
    file = write(folder / "net.json", begin(0), *events, deviceProperties=[H200])
    loaded = load_table(file, host=True)
    return BaseRun(loaded.table, annotate(loaded.table), loaded.host, loaded.name)


def events(names, **more):
    """µs: ops one after the other on the host, 30 each, their kernels of 20 over a million elements."""
    found = []
    for number, name in enumerate(names, 1):
        dims = [[1000, 1000], [1000, 1000]] if name != "gelu" else [[1000, 1000]]
        found += [
            op(f"aten::{name}", 40 * number, 20, Input_Dims=dims, Input_type=["float"] * len(dims), **more),
            call(40 * number + 5, number),
            kernel(40 * number + 15, 20, number, name="void sgemm" if name == "mm" else "elementwise_kernel"),
        ]
    return found


def test_the_host_takes_a_quarter_more_for_each_kernel_that_remains(tmp_path):
    """Of five launches, three remain, a product and two fused kernels: 3/5 of the host's time, times 1.25.

    µs: a launch takes 40, the first one 5; those that remain took 5 + 40 + 40. The graph's call takes 100 more without
    the profiler.
    """
    scenario = captured(on_h200(tmp_path, *events(["gelu", "mul", "mm", "gelu", "mul"])))
    (only,) = EDIT_RULES["compile"](scenario)
    assert only.rows.tolist() == [0, 1, 2, 3, 4]
    kept = only.left > 0
    assert kept.sum() == 3 and only.ns[~kept].tolist() == [0, 0]
    assert only.left[kept] == pytest.approx([(1.25 * 3 / 5 * 165 + 100 / scenario.base.own_share) / 85] * 3)


def proposal(case):
    scenario = captured(base_of(CHANGES / f"{case}.before.json.gz"))
    (only,) = EDIT_RULES["compile"](scenario)
    assert isinstance(only, Edit)
    return scenario, only


@pytest.mark.parametrize(("case", "phase"), [("whole_llama", "forward"), ("whole_convolutions", "forward"),
                                             ("whole_convolutions", "backward")])  # fmt: skip
def test_the_gpus_time_is_within_a_quarter_of_the_compiled_programs(case, phase):
    """The captures of the same programs, compiled."""
    scenario, edit = proposal(case)
    compiled = base_of(CHANGES / f"{case}.after.json.gz").run
    found = apply(edit, scenario).run
    theirs, ours = (float(each.dur[each.phase == phase].sum()) for each in (compiled, found))
    assert ours == pytest.approx(theirs, rel=0.25)


def test_the_launches_are_those_of_the_compiled_program():
    """46 in a step of three layers, where there were 123."""
    scenario, edit = proposal("whole_llama")
    assert scenario.run.count(scenario.run.rows) == 123
    assert scenario.run.count(apply(edit, scenario).run.rows) == pytest.approx(46, abs=6)


def test_where_the_host_is_the_limit_compiling_training_gains_nothing():
    """Measured: 8.0 to 10.2 ms."""
    scenario, edit = proposal("whole_small")
    after = apply(edit, scenario)
    share = scenario.base.own_share
    assert after.step_ns(share, np.ones(1)) > scenario.step_ns(share, np.ones(0))


def test_the_whole_and_its_parts_exclude_each_other():
    scenario = captured(base_of(GOLDEN / "activation_inferred.before.json.gz"))
    (whole,) = EDIT_RULES["compile"](scenario)
    (part,) = EDIT_RULES["fusion"](scenario)
    (after_whole,) = EDIT_RULES["fusion"](apply(whole, scenario))
    (after_part,) = EDIT_RULES["compile"](apply(part, scenario))
    assert after_whole == Abstained("fusion", "the plan compiles the whole model")
    assert after_part == Abstained("compile", "the plan compiles parts of the model already (fusion)")


def test_compiled_runs_are_left_alone():
    (only,) = EDIT_RULES["compile"](captured(base_of(CHANGES / "whole_llama.after.json.gz")))
    assert only == Abstained("compile", "the run has compiled kernels already")


@pytest.mark.parametrize(("gpus", "hinders"), [(1, False), (2, True)])
def test_several_gpus_hinder_compilation(gpus, hinders):
    rows = [{"kShortName": "k", "aten": "aten::relu", "ns": 10_000, "device": device} for device in range(gpus)]
    assert bool(_hindrance(SimpleNamespace(run=run(*rows), edits=()))) == hinders
