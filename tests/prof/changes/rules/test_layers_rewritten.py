"""Layers that follow each other as one, and tensors that a layer makes on the CPU, from literal rows."""

import math

import numpy as np
import pytest

from pyprof.prof.changes.rules.host.copies import _after_joining, _made, before_layers
from pyprof.prof.changes.rules.repeats.sibling_layers import PRODUCTS, TABLES, _edit, _groups
from tests.prof.changes.rules.advice_rows import mm, run

ROWS, WIDTH = 4096, 1024


def linear(layer, width=WIDTH, rows=ROWS, **more):
    return mm(rows, WIDTH, width, 20_000, op=["linear"], layer=["Net", "block", layer], **more)


def table(layer, rows, width=64, indices=8192):
    return {
        "aten": "aten::embedding", "op": ["embedding"], "sizes": [[rows, width], [indices]], "ns": 10_000,
        "dtypes": ["float32", "int64"], "strides": [[width, 1], [1]], "phase": "forward", "dir": "fprop",
        "kShortName": "indexSelectLargeIndex", "layer": ["Net", "tables", layer],
    }  # fmt: skip


RELU = {
    "aten": "aten::relu", "op": ["relu"], "sizes": [[ROWS, WIDTH]], "dtypes": ["bfloat16"], "strides": [[WIDTH, 1]],
    "ns": 5_000, "phase": "forward", "dir": "fprop", "kShortName": "relu", "layer": ["Net", "block"],
}  # fmt: skip


def together(*rows):
    return [[call.layer.rpartition(":")[2] for call in group] for group in _groups(run(*rows)) if len(group) > 1]


def test_query_key_and_value_are_one_product():
    """25.8 GFLOP take 43 µs at 0.6 of 990 TFLOP/s, which no H200 reaches; the three kernels take 60."""
    made = run(RELU, linear("q"), linear("k"), linear("v"), RELU)
    groups = [group for group in _groups(made) if len(group) > 1]
    edit = _edit(made, groups, PRODUCTS)
    assert edit.rows.tolist() == [1, 2, 3] and edit.left.tolist() == [1.0, 0.0, 0.0]
    assert 3 * 2 * ROWS * WIDTH * WIDTH / (0.6 * 990e12) * 1e9 < edit.ns.sum() <= 60_000
    assert "such as q, k, v" in edit.why


def test_results_of_another_width_may_be_one_product_too():
    """With fewer heads for keys and values, these are narrower."""
    assert together(linear("q"), linear("k", 256), linear("v", 256)) == [["q", "k", "v"]]


@pytest.mark.parametrize(
    "rows",
    [
        (linear("up"), RELU, linear("down")),
        (linear("q"), linear("k", rows=512)),  # of another sequence
        (linear("mlp.0"), linear("mlp.1")),  # of nn.Sequential: the second may take the first one's result
        (linear("q"), {**linear("k"), "layer": ["Net", "other", "k"]}),
        tuple({**linear(name), "layer": []} for name in "qkv"),
    ],
)
def test_layers_that_may_depend_on_each_other_are_left_alone(rows):
    assert together(*rows) == []


def test_tables_that_are_looked_up_in_a_row():
    rows = [table(f"tables.{number}", 100 * (number + 1)) for number in range(3)]
    assert together(*rows) == [["tables.0", "tables.1", "tables.2"]]
    assert together(*rows[:2], table("tables.9", 500, width=32)) == [["tables.0", "tables.1"]]
    made = run(*rows)
    assert _edit(made, list(_groups(made)), TABLES).left.tolist() == [1.0, 0.0, 0.0]


def copied(step, nbytes, layer=("Net", "spectrum")):
    return {
        "kind": "memcpy", "aten": "aten::copy_", "op": ["to"], "kShortName": "Memcpy HtoD (Pageable -> Device)",
        "bytes": nbytes, "ns": 900, "phase": "forward", "step": step,
        "layer": list(layer),
    }  # fmt: skip


def made_of(*rows, ranges=5, paused=False):
    count = len(rows)
    return _made(run(*rows), np.arange(count), np.full(count, ranges), np.full(count, paused)).tolist()


def test_what_a_layer_copies_equally_in_each_step_is_made_on_the_cpu():
    assert made_of(copied(1, 2048), copied(1, 4096), copied(2, 2048), copied(2, 4096)) == [0, 1, 2, 3]


def test_what_ops_on_the_cpu_make_for_a_layer_may_be_large():
    """A table of sines takes twenty ops; a batch that the model moves by itself only the copy."""
    rows = copied(1, 1 << 24), copied(2, 1 << 24)
    assert made_of(*rows, ranges=20) == [0, 1]
    assert made_of(*rows) == []


def looked_up(size=(1000,), dtype="float64", op="index", between=(), copy=None, **more):
    """Two steps, in which a copy outside of layers is read by indices, as tables of a diffusion's noise are."""
    list_of, called = list(size), {"sizes": [list(size), []], "dtypes": [dtype, ""], "phase": "forward", "layer": []}
    pick = {**called, "aten": f"aten::{op}", "op": [op], "ns": 2_000, "kShortName": "index_kernel", **more}
    copy = {"sizes": [list_of, list_of, []], "dtypes": [dtype, dtype, ""], **(copy or {})}
    steps = [
        [linear("q", step=step), {**copied(step, 8 * math.prod(size), ()), **copy}, *between, pick] for step in (1, 2)
    ]
    rows = [{**row, "step": step} for step, each in enumerate(steps, 1) for row in each]
    half = len(rows) // 2
    return _made(run(*rows), np.array([1, half + 1]), np.full(2, 5), np.zeros(2, bool)).tolist()


def test_a_table_of_which_the_gpu_takes_some_values_is_made_on_the_cpu():
    """Though outside of layers, and without a pause; it may become another type first."""
    assert looked_up() == looked_up(size=(10, 100), op="index_select") == [1, 4]
    cast = {"aten": "aten::copy_", "op": ["float"], "sizes": [[1000], [1000], []], "dtypes": ["float32", "float64", ""],
            "ns": 2_000, "kShortName": "elementwise_kernel", "phase": "forward", "layer": []}  # fmt: skip
    assert looked_up(between=[cast], dtypes=["float32", ""]) == [1, 5]


def test_what_is_read_whole_or_may_be_a_batch_is_no_table():
    """Labels are integers, and batches are large; an index of another tensor tells nothing of the copy, nor does a copy
    of unknown type."""
    assert looked_up(op="mul") == looked_up(dtype="int64") == looked_up(sizes=[[24], []]) == []
    assert looked_up(size=(1000, 100)) == looked_up(copy={"dtypes": None}) == []


def test_for_a_loss_the_host_makes_what_it_pauses_for():
    """A mask between the model and the loss is made; labels are there already, and a batch comes before the model."""
    steps = [(linear("q", step=step), copied(step, 1 << 24, ())) for step in (1, 2)]
    rows = [row for pair in steps for row in pair]
    after, found = run(*rows), np.array([1, 3])
    assert _made(after, found, np.full(2, 20), np.ones(2, bool)).tolist() == [1, 3]
    assert _made(after, found, np.full(2, 20), np.zeros(2, bool)).tolist() == []
    before = run(rows[1], rows[0], rows[3], rows[2])
    assert before_layers(before).tolist() == [True, False, True, False]
    assert _made(before, np.array([0, 2]), np.full(2, 20), np.ones(2, bool)).tolist() == []


@pytest.mark.parametrize(
    "rows",
    [
        (copied(1, 2048), copied(2, 1024)),  # as large as the data say
        (copied(1, 2048, ()), copied(2, 2048, ())),  # a batch, outside of layers
    ],
)
def test_copies_of_data_are_not(rows):
    assert made_of(*rows, ranges=20, paused=True) == []


def test_small_copies_of_one_line_become_one():
    """Five of one line: one launch in place of five, a fifth for each. Three of a line, and large ones, stay."""

    def copy(line, nbytes):
        return {"kind": "memcpy", "kShortName": "Memcpy HtoD (Pinned -> Device)", "bytes": nbytes, "ns": 900,
                "trace": [line]}  # fmt: skip

    made = run(*[copy("a.py:1", 100)] * 5, *[copy("a.py:2", 100)] * 3, *[copy("a.py:3", 1 << 30)] * 5)
    shares = _after_joining(made, np.arange(13))
    assert shares.tolist() == [0.2] * 5 + [1.0] * 8
