"""Loops over time that compute recurrent cells op by op: as one recurrent layer."""

import pytest

from pyprof.prof.changes.effect.edit import Abstained, Edit
from pyprof.prof.changes.general_code import GENERAL
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.changes.rules.repeats.cell_loops import OF_LAUNCH
from pyprof.prof.changes.rules.repeats.repeated_passes import repeated_passes
from tests.prof.changes.effect.test_scenario import of_rows
from tests.prof.changes.rules.advice_rows import run

BATCH, STEPS, INNER, WIDTH = 48, 10, 64, 32
X, H = [BATCH, INNER], [BATCH, WIDTH]
OFTEN = [STEPS * INNER, 1]  # the strides of x[:, t]


def row(name, *dims, ns=2_000, line=5, layer="", phase="forward", number=None, strides=None, **more):
    kernel = "ampere_sgemm_32x32_tn" if name in ("mm", "addmm", "bmm") else f"{name}_kernel"
    return {"aten": f"aten::{name}", "op": [name], "sizes": [list(each) for each in dims], "trace": [f"net.py:{line}"],
            "dtypes": ["float32"] * len(dims), "kShortName": kernel, "ns": ns, "phase": phase, "step": 1,
            "dir": "bprop" if phase == "backward" else "fprop", "layer": [layer] if layer else None,
            "seqId": [] if number is None else [number],
            "strides": strides or [[*each[1:], 1] if each else [] for each in dims], **more}  # fmt: skip


def states(gates):
    return [BATCH, gates * WIDTH]


def product(source, gates, ns=10_000, **more):
    """An input, a state, or both side by side, times a weight for so many gates."""
    more.setdefault("strides", [OFTEN if source == X else [source[1], 1], [gates * WIDTH, 1]])
    return row("mm", source, [source[1], gates * WIDTH], ns=ns, **more)


def ops(text):
    """Element-wise ops on states: "add sigmoid" or, on two gates at once, "add:2"."""
    made = []
    for word in text.split():
        name, _, gates = word.partition(":")
        whole = states(int(gates or 1))
        two = name in ("add", "mul", "sub")
        made.append(row("sub" if name == "rsub" else name, *([[], whole] if name == "rsub" else [whole] * (1 + two))))
    return made


GRU_END = "mul add tanh rsub mul mul add"
LSTM_END = "sigmoid sigmoid tanh sigmoid mul mul add tanh mul"
CELLS = {
    "GRU, all gates in one product": ("GRU", [
        product(X, 3), product(H, 3), *ops(f"add sigmoid add sigmoid {GRU_END}"),
    ]),
    "GRU, two gates side by side": ("GRU", [product(X, 3), product(H, 3), *ops(f"add:2 sigmoid:2 {GRU_END}")]),
    "GRU, inputs multiplied before": ("GRU", [product(H, 3), *ops("add sigmoid add sigmoid mul add tanh sub mul add")]),
    "LSTM": ("LSTM", [product(X, 4), product(H, 4), *ops(f"add:4 {LSTM_END}")]),
    "LSTM with an output layer": ("LSTM", [
        product(X, 4), product(H, 4), *ops(f"add:4 {LSTM_END}"), row("mm", H, [WIDTH, 1000]),
    ]),
}  # fmt: skip


def loop(cell, times=STEPS):
    """Two tensors of zeros, passes, and another op."""
    zeros = row("fill_", H, [], line=1)
    return [zeros, zeros, *[each for _ in range(times) for each in cell], row("mul", X, X, line=9)]


def proposal(rule, *rows):
    (only,) = EDIT_RULES[rule](of_rows(*rows))
    return only


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_made_of_ops_is_known_by_its_gates(name):
    kind, cell = CELLS[name]
    edit = proposal("cell_loop", *loop(cell))
    assert isinstance(edit, Edit) and edit.title == f"Replace the ops of each time step by one call of nn.{kind}"
    assert f"computes nn.{kind}'s gates 10 times" in edit.why
    assert len(edit.rows) == STEPS * len(cell)
    assert sum(edit.left == OF_LAUNCH) == 2 * STEPS  # a product and a kernel of each step
    assert any(rule == "cell_loop" and edit.change.startswith(begin) for rule, begin, *_ in GENERAL)


def test_stacked_cells_of_a_pass_are_counted_each():
    """The first layer's input has 64 columns, the second one's is the first one's state."""
    second = [product(H, 4, line=6), product(H, 4, line=7), *ops(f"add:4 {LSTM_END}")]
    edit = proposal("cell_loop", *loop([*CELLS["LSTM"][1], *second]))
    assert isinstance(edit, Edit) and sum(edit.left == OF_LAUNCH) == 4 * STEPS


OTHERS = {
    "the reset gate multiplies the state before its product": [
        product(X, 3), product(H, 2), *ops("add sigmoid add sigmoid mul"), product(H, 1),
        *ops("add tanh rsub mul mul add"),
    ],
    "peepholes": [product(X, 4), product(H, 4), *ops(f"add:4 mul add mul add mul add {LSTM_END}")],
    "a layer norm": [
        product(X, 4), product(H, 4), *ops("add:4"), row("native_layer_norm", states(4), [4 * WIDTH]), *ops(LSTM_END),
    ],
    "one gate": [product(X, 2), product(H, 2), *ops("add sigmoid add tanh rsub mul mul add")],
    "an input made of the result": [
        product(X, 4), product(H, 4), *ops(f"add:4 {LSTM_END}"), row("mm", H, [WIDTH, INNER]),
    ],
    "an input that is put together": [
        row("cat", []) | {"sizes": [[[BATCH, INNER - 8], [BATCH, 8]], []], "dtypes": [["float32"] * 2, ""]},
        product(X, 4), product(H, 4), *ops(f"add:4 {LSTM_END}"),
    ],
    "a sampled word": [
        product(X, 4), product(H, 4), *ops(f"add:4 {LSTM_END}"), row("mm", H, [WIDTH, 1000]),
        row("argmax", [BATCH, 1000]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_a_cell_that_torch_nn_does_not_have_stays(name):
    assert isinstance(proposal("cell_loop", *loop(OTHERS[name])), Abstained)


def test_seven_passes_are_no_loop():
    assert isinstance(proposal("cell_loop", *loop(CELLS["LSTM"][1], times=7)), Abstained)


def training(cell, back, sliced=True):
    """Passes whose ops have the numbers 100 t + 2, + 3, ...; their gradients, the last pass first.

    ``back``: a function of the pass's number that makes its backward rows. ``sliced``: each pass begins by x[t].
    """
    passes = [
        {**each, "seqId": [100 * time + 2 + place]} for time in range(1, STEPS + 1) for place, each in enumerate(cell)
    ]
    rows = [each for time in range(STEPS, 0, -1) for each in back(time)]
    slices = [
        row("copy_", [STEPS, *X], X, phase="backward", number=100 * time + 1, nodes=["SelectBackward0", "aten::copy_"])
        for time in range(STEPS, 0, -1)
    ]
    return [*passes, *rows, *(slices if sliced else [])]


def gru_back(time):
    """tanh, the state's gradient, but for the first pass, and both weights' gradients and their sums."""

    def of(name, place, *dims, **more):
        return row(name, *dims, phase="backward", number=100 * time + 2 + place, **more)

    rows = [
        of("tanh_backward", 8, H, H),
        *([of("mm", 1, states(3), [3 * WIDTH, WIDTH], ns=8_000)] if time > 1 else []),
        of("mm", 1, [WIDTH, BATCH], states(3)), of("mm", 0, [INNER, BATCH], states(3)),
    ]  # fmt: skip
    sums = [of("add_", place, *[[width, 3 * WIDTH]] * 2) for place, width in ((0, INNER), (1, WIDTH))]
    for each in sums:
        each["op"] = ["mm"]
    return [*rows, *(sums if time < STEPS else [])]


def test_a_product_and_a_kernel_remain_for_each_step_forward_and_backward():
    """10 products with the state of 10 µs, 10 kernels of the gates; 9 products with its gradient of 8 µs, 10 kernels.

    The gates' kernel moves (3 × 3 + 2) × 1,536 × 4 bytes at 4.08e12/s, 16.6 ns, besides 2 µs: forward in place of
    eleven ops of 2 µs each, and backward in place of two. What runs once: the product with all inputs, both weights'
    gradients, and what is left of the slices' gradients. (Their sums are as large as two and four states, by chance.)
    """
    rows = training(CELLS["GRU, all gates in one product"][1], gru_back)
    made = run(*rows)
    edit = proposal("cell_loop", *rows)
    assert isinstance(edit, Edit)
    kept = edit.left == OF_LAUNCH
    rows_, took = edit.rows[kept], edit.ns[kept].round(1).tolist()
    assert sorted(set(zip(made.aten[rows_], made.phase[rows_], took, strict=True))) == [
        ("mm", "backward", 8_000.0), ("mm", "forward", 10_000.0), ("tanh", "forward", 2_016.6),
        ("tanh_backward", "backward", 2_016.6),
    ]  # fmt: skip
    assert sum(kept) == 10 + 10 + 9 + 10
    once = made.aten[edit.rows[edit.left == 1.0]].tolist()
    assert sorted(once) == ["copy_", "mm", "mm", "mm"]


def test_the_ops_of_a_recurrent_layer_without_cudnn_are_no_loop_of_the_program():
    cell = [{**each, "nodes": ["aten::gru", each["aten"]]} for each in CELLS["GRU, two gates side by side"][1]]
    assert isinstance(proposal("cell_loop", *loop(cell)), Abstained)


# Passes


def shapes_of(*rows):
    return [passes.shape for passes in repeated_passes(run(*rows), 8)]


def test_passes_are_the_shortest_that_repeat():
    """Sixteen times one product and two ops, which is eight times two of them."""
    cell = [product(H, 1), *ops("add tanh")]
    assert shapes_of(*cell * 16) == [(16, 3)]


def test_a_pass_may_call_one_line_several_times():
    """Four products of one line: the loop's passes have all of them, with an op of their own after the last."""
    assert shapes_of(*[*[product(H, 1), *ops("tanh")] * 4, *ops("mul")] * 9)[-1] == (9, 9)


def test_a_backward_pass_ends_a_loop():
    """Micro-batches are no time steps."""
    cell = [product(H, 1), *ops("add tanh"), row("tanh_backward", H, H, phase="backward")]
    assert shapes_of(*cell * 16) == []


def test_without_marked_steps_what_repeats_all_the_time_is_the_step():
    cell = [{**each, "step": None} for each in CELLS["LSTM"][1]]
    assert shapes_of(*cell * 16) == []
    rest = [row("neg", [8, 8], line=line, step=None) for line in range(30)]
    assert shapes_of(*cell * 16, *rest) == [(16, 12)]
