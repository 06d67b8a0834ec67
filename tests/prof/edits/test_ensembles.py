"""Networks of equal structure as one of stacked weights, from literal rows."""

import pytest

from pyprof.prof.edits.edit import Abstained, Edit
from pyprof.prof.edits.rules import EDIT_RULES
from tests.prof.edits.test_joined_calls import op
from tests.prof.edits.test_scenario import of_rows

BATCH, GIVEN, WIDTH, NETWORKS = 32, 20, 64, 4
SIZES = ((GIVEN, WIDTH), (WIDTH, WIDTH), (WIDTH, 1))
LINEAR = {"op": ["linear"], "dtype": "float32"}


def layers(sizes=SIZES):
    return [("Critic", f"layers.{number}", given, made) for number, (given, made) in enumerate(sizes)]


def forward(start, sizes=SIZES):
    """A network's call; its ops have the numbers from ``start`` on."""
    return [
        op("addmm", [made], [BATCH, given], [given, made], [], [], layer=layer, seqId=[start + at], **LINEAR)
        for at, (*layer, given, made) in enumerate(layers(sizes))
    ]


def products(start, sizes=SIZES):
    """The products of weights' gradients, last layer first."""
    found = []
    for at, (*layer, given, made) in reversed(list(enumerate(layers(sizes)))):
        found.append(
            op("mm", [made, BATCH], [BATCH, given], layer=layer, seqId=[start + at], phase="backward", **LINEAR)
        )
    return found


def added(shape, node, layer=()):
    nodes = [node, "aten::add_"] if node else ["aten::add_"]
    return op("add_", shape, shape, [], phase="backward", nodes=nodes, layer=layer, dtype="float32")


def backward(starts, sizes=SIZES, parameters=None, sums=None):
    """One backward pass for calls with these numbers.

    ``parameters``: how many of each layer get a gradient; ``sums``: of gradients of the input, by default one less
    than there are calls.
    """
    found = [row for start in reversed(starts) for row in products(start, sizes)]
    for given, made in sizes:
        for _ in range(len(starts) if parameters is None else parameters):
            found += [added(shape, "torch::autograd::AccumulateGrad") for shape in ([made, given], [made])]
    given = [added([BATCH, sizes[0][0]], "", ("Critic", "layers.0"))]
    return found + given * (len(starts) - 1 if sums is None else sums)


def together(count=NETWORKS, sizes=SIZES, **more):
    """Calls in a row, a loss of all results, and its backward pass."""
    starts = [1000 + 10 * number for number in range(count)]
    calls = [row for start in starts for row in forward(start, sizes)]
    return [*calls, op("mean", [count, BATCH], dtype="float32"), *backward(starts, sizes, **more)]


def updates(count=NETWORKS, *more, sizes=SIZES):
    """Each network by itself: its call, loss, backward pass, a step of its optimizer, and the loss read."""
    found = []
    for number in range(count):
        start = 100 + 10 * number
        loss = op("mse_loss", [BATCH], [BATCH], [], dtype="float32", seqId=[start + 5])
        found += [*forward(start, sizes), loss, *products(start, sizes), op("_foreach_add_", phase="optimizer")]
        found += [*more, op("_local_scalar_dense", [], dtype="float32", phase="other")]
    return found


def proposed(*rows):
    (only,) = EDIT_RULES["ensemble"](of_rows(*rows))
    return only


def test_each_op_of_an_update_runs_once_for_all_networks():
    """Nine kernels remain of 4 × 9: three products, the loss, three products backward, the step, and one value read."""
    rows = [*updates(), op("stack", [BATCH], dtype="float32"), *together()]
    edit = proposed(*rows)
    assert isinstance(edit, Edit)
    within = edit.rows < NETWORKS * 9
    assert within.sum() == 36 and edit.left[within].sum() == 9
    assert NETWORKS * 9 not in edit.rows  # what joins the losses stays
    assert "stack_module_state" in edit.change and "1 loop updates each by itself" in edit.why


def test_calls_in_a_row_and_their_backward_pass_become_one():
    """Three products, three backward, six gradients added, and one sum of what the input gets."""
    edit = proposed(*together())
    assert edit.left.sum() == 3 + 3 + 6 + 1
    assert len(edit.rows) == NETWORKS * 12 + NETWORKS - 1


EQUAL = ((WIDTH, WIDTH),) * 3


@pytest.mark.parametrize("rows", [
    together(parameters=1, sums=0), together(parameters=1), together(sums=0), together(2), together(sizes=EQUAL),
    updates(), [],
], ids=[
    "one network, called again", "one network and one input", "inputs of their own", "two", "a stack of equal blocks",
    "one network updated again and again would look the same", "nothing",
])  # fmt: skip
def test_what_may_be_one_network_or_need_anothers_result_is_left_alone(rows):
    assert isinstance(proposed(*rows), Abstained)


OTHER_UPDATES = [
    updates(NETWORKS + 1), updates(NETWORKS - 1), updates(NETWORKS, op("add", [BATCH], [BATCH], dtype="float32")),
    updates(NETWORKS, op("argmax", [BATCH, 1], dtype="float32")),
]  # fmt: skip


@pytest.mark.parametrize("rows", OTHER_UPDATES, ids=["one more", "one less", "a result goes on", "a choice"])
def test_other_updates_than_one_for_each_network_stay(rows):
    """As of one network, or where results are added up for the next, which learns what remains (boosting)."""
    edit = proposed(*rows, op("stack", [BATCH], dtype="float32"), *together())
    assert edit.rows.min() > len(rows)
    assert "0 loops" in edit.why


def test_averages_of_all_weights_are_taken_of_stacked_ones():
    """A line that goes over each parameter of each network, and one that leaves some out."""
    shapes = [shape for given, made in SIZES for shape in ([made, given], [made])]
    average = [op("add_", shape, shape, [], trace=["net.py:9"], dtype="float32") for shape in shapes * NETWORKS]
    some = [op("add_", shape, shape, [], trace=["net.py:10"], dtype="float32") for shape in shapes[:-1] * NETWORKS]
    edit = proposed(*average, *some, *together())
    within = edit.rows < len(average) + len(some)
    assert within.sum() == len(average) and edit.left[within].sum() == len(shapes)
