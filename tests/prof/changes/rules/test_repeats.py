"""Passes that one pass does: what tables made by hand say, and programs that were measured both ways."""

import json

import numpy as np
import pytest

from pyprof.prof.changes.effect.edit import Abstained, Edit
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.effect.scenario import apply, captured
from pyprof.prof.changes.find_changes import base_of
from pyprof.prof.changes.rules.repeats.repeats_as_one import FLOOR_NS, repeats
from pyprof.prof.load import load_table
from pyprof.prof.replay.cut_to_steps import step_window
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN
from tests.prof.changes.rules.advice_rows import run

FOLDER = GOLDEN / "changes" / "repeats"
MEASURED = json.loads((FOLDER / "measured.json").read_text(encoding="utf-8"))
MS = 1_000_000


class Scenario:
    """What a rule reads of a scenario."""

    def __init__(self, *rows):
        self.run = run(*rows)


def row(phase, size=8, ns=10_000, step=1, **more):
    return {
        "kShortName": "k",
        "aten": "aten::relu",
        "sizes": [[size, 4]],
        "phase": phase,
        "ns": ns,
        "step": step,
        **more,
    }


def proposed(*rows):
    return list(repeats(Scenario(*rows)))


def test_two_passes_before_an_update_are_one_on_twice_the_samples():
    """Kernels of 10 µs twice: 20 µs, less one time what a kernel takes however little it does."""
    pair = [row("forward"), row("backward")]
    (edit,) = proposed(*pair, *pair, row("optimizer"))
    assert isinstance(edit, Edit) and edit.rows.tolist() == [0, 1, 2, 3]
    assert edit.ns.tolist() == [20_000 - FLOOR_NS, 20_000 - FLOOR_NS, 0, 0]
    assert edit.left.tolist() == [1, 1, 0, 0]
    assert "2 micro-batches" in edit.change


def test_what_the_first_pass_sets_the_others_add():
    add = row("backward", aten="aten::add_", nodes=["torch::autograd::AccumulateGrad"])
    pair = [row("forward"), row("backward")]
    (edit,) = proposed(*pair, *pair, add, row("optimizer"))
    assert edit.rows.tolist() == [0, 1, 2, 3, 4] and edit.ns[4] == 0


@pytest.mark.parametrize(
    "rows",
    [
        [row("forward"), row("backward"), row("optimizer")],
        [row("forward"), row("backward"), row("forward", 9), row("backward", 9), row("optimizer")],  # other sizes
        [row("forward"), row("backward"), row("optimizer"), row("forward"), row("backward"), row("optimizer")],
        [row("forward"), row("backward"), row("forward"), row("backward")],  # no update shows where a step ends
    ],
    ids=["one pass", "other sizes", "an update between them", "no update"],
)
def test_what_refutes_it(rows):
    (answer,) = proposed(*rows)
    assert isinstance(answer, Abstained)


def linear(layer, rows, wide, out, **more):
    """aten::addmm of a linear layer: 10 µs."""
    return {
        "kShortName": "gemm", "aten": "aten::addmm", "sizes": [[out], [rows, wide], [wide, out]], "phase": "forward",
        "layer": ["Net", layer], "ns": 10_000, "step": 1, **more,
    }  # fmt: skip


def over(layer, *shapes, aten="aten::relu", **more):
    """An element-wise kernel of 10 µs."""
    return {
        "kShortName": "elementwise_kernel", "aten": aten, "sizes": list(shapes), "phase": "forward",
        "layer": ["Net", layer], "ns": 10_000, "step": 1, **more,
    }  # fmt: skip


def critic(number, **more):
    """[8, 3] to [8, 16] to [8, 1]: none of the results, of 128 and 8 numbers, is an input, of 24."""
    name = f"critics.{number}"
    return [linear(name, 8, 3, 16, **more), over(name, [8, 16], **more), linear(name, 8, 16, 1, **more)]


def test_passes_that_cannot_read_each_others_results_are_one():
    """Three critics: each kernel once in place of three times, 3 × 10 µs less 2 × FLOOR_NS."""
    (edit,) = proposed(*critic(0), *critic(1), *critic(2))
    assert isinstance(edit, Edit) and edit.rows.tolist() == list(range(9))
    assert edit.left.tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert edit.ns[1] == 30_000 - 2 * FLOOR_NS and not edit.ns[3:].any()
    assert "Run the 3 equal passes" in edit.change and "has the size of an operand" in edit.why


def test_modules_of_one_kind_are_one_change():
    """Two modules with three critics each."""
    other = [{**row, "layer": ["Net", "second", *row["layer"][1:]]} for n in range(3) for row in critic(n)]
    first = [{**row, "layer": ["Net", "first", *row["layer"][1:]]} for n in range(3) for row in critic(n)]
    between = over("", [8, 7], aten="aten::mul")
    (edit,) = proposed(*first, between, *other)
    assert len(edit.rows) == 18 and "through first, second as one" in edit.change


def test_what_goes_back_through_passes_goes_along():
    """Numbers of autograd, 1 to 3 of one critic and 4 to 6 of the other, tell whose backward kernels are whose."""
    forward = [{**row, "seqId": [number]} for number, row in enumerate([*critic(0), *critic(1)], 1)]
    back = [row("backward", seqId=[number], nodes=["AddmmBackward0"]) for number in (6, 4, 3, 1)]
    (edit,) = proposed(*forward, *back)
    assert edit.rows.tolist() == [0, 1, 2, 8, 9, 3, 4, 5, 6, 7] and edit.left.tolist() == [1] * 5 + [0] * 5


def stored(source):
    """A forecast from [8, 3] numbers, after which a copy of [8, 3] follows, from this type."""
    copy = {"kShortName": "elementwise_kernel", "aten": "aten::copy_", "sizes": [[8, 3], [8, 3]], "ns": 10_000}
    copy |= {"phase": "forward", "layer": ["Net"], "dtypes": ["float32", source], "step": 1}
    return [linear("net", 8, 3, 16), linear("net", 8, 16, 1), copy]


def test_a_copy_may_store_what_the_next_pass_reads():
    (answer,) = proposed(*stored("float32"), *stored("float32"))
    assert isinstance(answer, Abstained)
    (edit,) = proposed(*stored("float16"), *stored("float16"))  # a cast
    assert isinstance(edit, Edit)


def test_indices_are_no_result_of_arithmetic():
    """A language model's chunk: it reads 8 indices, and has a mean of 8 numbers, which cannot be indices."""
    table = {**linear("table", 8, 4, 16), "aten": "aten::embedding", "kShortName": "vectorized_gather_kernel"}
    mean = over("norm", [8, 16], aten="aten::mean")
    chunk = [{**table, "sizes": [[100, 16], [8]], "dtypes": ["float32", "int64"]}, mean, linear("head", 8, 16, 100)]
    (edit,) = proposed(*chunk, *chunk)
    assert isinstance(edit, Edit)


def test_a_pass_that_chooses_the_next_ones_indices_is_none():
    table = {**linear("table", 8, 4, 16), "aten": "aten::embedding", "kShortName": "vectorized_gather_kernel"}
    first = {**table, "sizes": [[100, 16], [8]], "dtypes": ["float32", "int64"]}
    word = [first, linear("head", 8, 16, 100), over("", [8, 100], aten="aten::argmax"), over("", [8, 1])]
    (answer,) = proposed(*word, *word)
    assert isinstance(answer, Abstained)


def block(number, width=16):
    """[8, width] to [8, width]: a pass that may read what the one before it has made."""
    name = f"blocks.{number}"
    return [linear(name, 8, width, width), over(name, [8, width], [8, width], aten="aten::add")]


def guided(layers, after):
    """Two passes of a model whose result is as large as its input, and what follows."""
    passes = [[linear(name, 8, 16, 64), linear(name, 8, 64, 16)] for name in layers]
    return [*passes[0], *passes[1], after]


def test_equal_products_within_a_pass_do_not_hide_it():
    """Heads of attention, [8, 16] to [8, 4]: query and key are equal products, as are the heads."""

    def head(number):
        name = f"heads.{number}"
        products = [linear(name, 8, 16, 4), linear(name, 8, 16, 4)]
        scores = {**linear(name, 8, 4, 8), "aten": "aten::bmm", "sizes": [[1, 8, 4], [1, 4, 8]]}
        return [*products, scores, over("", [8, 8], aten="aten::_softmax"), linear(name, 8, 16, 4), over("", [8, 4])]

    (edit,) = proposed(*head(0), *head(1), *head(2))
    assert len(edit.rows) == 18 and "Run the 3 equal passes" in edit.change


def experts(count, sums):
    """[8, 16] to [8, 64] to [8, 16], trained; after each that goes back, so many sums of its input's gradient."""
    rows = []
    for number in range(count):
        name = f"experts.{number}"
        rows += [linear(name, 8, 16, 64, seqId=[2 * number + 1]), linear(name, 8, 64, 16, seqId=[2 * number + 2])]
    for number in reversed(range(count)):
        rows += [row("backward", seqId=[2 * number + 2 - part], nodes=["AddmmBackward0"]) for part in (0, 1)]
        rows += sums * [over("", [8, 16], [8, 16], aten="aten::add", phase="backward")]
    return rows


def test_experts_that_share_their_input_are_one():
    (edit,) = proposed(*experts(3, sums=1))
    assert "they read one tensor" in edit.why and len(edit.rows) == 12


def test_a_chain_has_no_sums_of_gradients():
    (answer,) = proposed(*experts(3, sums=0))
    assert isinstance(answer, Abstained)


DIFFERENCE = {**over("", [8, 16], [8, 16], aten="aten::sub"), "layer": None}


def test_two_passes_whose_results_are_joined_are_one():
    (edit,) = proposed(*guided(["unet", "unet"], DIFFERENCE))
    assert edit.rows.tolist() == [0, 1, 2, 3] and "reads the results of both" in edit.why


@pytest.mark.parametrize(
    "rows",
    [
        [*block(0), *block(1), *block(2)],
        guided(["blocks.0", "blocks.1"], DIFFERENCE),  # a chain, and a sum with its input after it
        guided(["unet", "unet"], over("", [8, 16], aten="aten::mul")),  # the first result may be its input
        [*critic(0), *critic(1, sizes=None)],
        [*critic(0), row("optimizer"), *critic(1)],
        [linear("a", 8, 3, 16), linear("b", 8, 3, 16)],  # too few to matter
    ],
    ids=["a chain", "layers of a chain", "one result read", "no sizes", "an update between them", "two kernels"],
)
def test_what_refutes_that_passes_are_one(rows):
    (answer,) = proposed(*rows)
    assert isinstance(answer, Abstained)


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["program"])
def test_programs_that_were_measured_both_ways(row):
    """The GPU's time as one batch within a fifth; cuDNN has faster kernels for eight pictures than for one. Steps
    of the same program differ by up to 45% on this host (62 and 90 ms of the transformer), so that its saving lies
    between that of the shortest and of the longest step."""
    loaded = load_table(FOLDER / f"{row['program']}.pyprof", host=True)
    base = base_of(step_window(loaded.table, annotate(loaded.table), loaded.host), row["program"])
    start, forecaster = captured(base), Forecaster(base, row["before_ms"] * MS)
    (edit,) = [each for each in repeats(start) if isinstance(each, Edit)]
    after = apply(edit, start)
    gpu_ms, _ = forecaster.work(after) / MS
    assert gpu_ms == pytest.approx(row["after_gpu_ms"], rel=0.4 if row["program"] == "images" else 0.2)
    saved = forecaster.difference(start, after)
    least, most = np.sort([row["before_ms"], row["again_ms"]]) - row["after_ms"]
    assert saved.low / MS <= most and saved.high / MS >= least
