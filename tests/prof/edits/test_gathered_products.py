"""Products over gathered rows, from literal rows of an H200: 4.08e12 bytes/s are 0.85 of its 4.8e12."""

import pytest

from pyprof.prof.edits.edit import Abstained, Edit
from pyprof.prof.edits.rules import EDIT_RULES
from tests.prof.advice.advice_rows import mm
from tests.prof.edits.test_scenario import of_rows

EDGES, NODES, WIDTH = 200_000, 20_000, 128
LONG, SHORT = (EDGES, WIDTH), (NODES, WIDTH)


def row(name, ns, *dims, number=None, backward=False, **more):
    """Of float32; ``number``: of the autograd node."""
    direction = {"phase": "backward", "dir": "bprop"} if backward else {"phase": "forward", "dir": "fprop"}
    return {
        "aten": f"aten::{name}", "op": [name], "sizes": [list(each) for each in dims],
        "dtypes": ["float32"] * len(dims), "ns": ns, "kShortName": f"{name}_kernel",
        "seqId": [number] if number else [], **direction, **more,
    }  # fmt: skip


def gather(ns, table=SHORT, count=EDGES, number=None, **more):
    return row("index_select", ns, table, (), (count,), number=number, outs=[[count, table[1]]],
               dtypes=["float32", "", "int64"], **more)  # fmt: skip


def cat(ns, *parts, number=None, **more):
    parts = [list(each) for each in parts]
    strides = more.pop("strides", [[each[-1], 1] for each in parts])
    return {**row("cat", ns, number=number, **more), "sizes": [parts, []], "dtypes": [["float32"] * len(parts), ""],
            "strides": [strides, []]}  # fmt: skip


def product(ns, m, k, n, number=None, backward=False):
    direction = {"phase": "backward", "dir": "bprop"} if backward else {}
    return mm(
        m,
        k,
        n,
        ns,
        name="ampere_sgemm_128x64_tn",
        dtype="float32",
        seqId=[number] if number else [],
        op=["linear"],
        **direction,
    )


def proposal(*rows):
    (only,) = EDIT_RULES["gathered_product"](of_rows(*rows))
    return only


def edit_of(*rows):
    only = proposal(*rows)
    assert isinstance(only, Edit), only
    return only, {row: round(ns) for row, ns in zip(only.rows.tolist(), only.ns.tolist(), strict=True)}


# Other products of the run with the parts' sizes: forward, gradients of the input, gradients of the weight.
OTHERS = [
    product(160_000, EDGES, WIDTH, WIDTH),
    product(20_000, NODES, WIDTH, WIDTH),
]
OTHERS_BACKWARD = [
    product(170_000, EDGES, WIDTH, WIDTH, backward=True),
    product(22_000, NODES, WIDTH, WIDTH, backward=True),
    product(120_000, WIDTH, EDGES, WIDTH, backward=True),
    product(15_000, WIDTH, NODES, WIDTH, backward=True),
]
FORWARD = [
    gather(120_000, number=5),
    gather(120_000, number=6),
    cat(150_000, LONG, LONG, LONG, number=7),
    product(480_000, EDGES, 3 * WIDTH, WIDTH, number=8),
]
BACKWARD = [
    product(500_000, EDGES, WIDTH, 3 * WIDTH, number=8, backward=True),
    product(360_000, WIDTH, EDGES, 3 * WIDTH, number=8, backward=True),
    row("sum", 50_000, LONG, number=8, backward=True),
    row("copy_", 60_000, LONG, LONG, number=6, backward=True),
    row("index_add_", 70_000, SHORT, (), (EDGES,), LONG, number=6, backward=True),
    row("copy_", 60_000, LONG, LONG, number=5, backward=True),
    row("index_add_", 70_000, SHORT, (), (EDGES,), LONG, number=5, backward=True),
]


def test_ends_of_edges_are_multiplied_node_by_node():
    """Products: 160 and twice 20 µs. Two additions of 3 × 200,000 × 128 × 4 bytes, 75.29 µs, and 2 µs each."""
    edit, ns = edit_of(*OTHERS, *FORWARD)
    assert ns == {2: 120_000, 3: 120_000, 4: 0, 5: 354_588}
    assert edit.left.tolist() == [1, 1, 0, 1] and edit.added.tolist() == [0, 0, 0, 4]
    assert edit.why.startswith("1 product takes gathered rows, such as 200,000 rows of a table of 20,000")
    assert edit.title.startswith("Multiply the rows of a table before they are gathered")


def test_gradients_are_those_of_nodes_too():
    """The weight's: 120 + 2 × 15 µs. The input's: 2 × 22, as no op takes the edges' gradient. The bias's: 1/10."""
    edit, ns = edit_of(*OTHERS, *FORWARD, *OTHERS_BACKWARD, *BACKWARD)
    assert [ns[place] for place in range(10, 17)] == [44_000, 150_000, 5_000, 0, 70_000, 0, 70_000]
    assert dict(zip(edit.rows.tolist(), edit.added.tolist(), strict=True))[10] == 1


def test_the_gradient_of_the_edges_is_made_if_an_op_takes_it():
    """170 + 2 × 22 µs."""
    taken = row("threshold_backward", 90_000, LONG, LONG, number=3, backward=True)
    _, ns = edit_of(*OTHERS, *FORWARD, *OTHERS_BACKWARD, *BACKWARD, taken)
    assert ns[10] == 214_000


def test_what_is_gathered_has_the_width_of_the_result():
    """Twice as wide, what is gathered takes 2 × 120 µs, and its gradient 2 × 70. A product of the table takes 60."""
    wide = [gather(120_000, number=5), product(700_000, EDGES, WIDTH, 2 * WIDTH, number=6)]
    back = row("index_add_", 70_000, SHORT, (), (EDGES,), LONG, number=5, backward=True)
    other = product(60_000, NODES, WIDTH, 2 * WIDTH)
    _, ns = edit_of(other, *wide, back)
    assert ns == {1: 240_000, 2: 60_000, 3: 140_000}


def test_without_alike_products_the_parts_are_as_efficient_as_the_whole():
    """Of 480 µs, 5 are the launch's and 475 the work's. A third of it is 158.3 µs, a thirtieth 15.8 for each table.

    With 5 µs for each of the three products, these are 205 µs, to which 154.6 of additions come.
    """
    _, ns = edit_of(*FORWARD)
    assert ns[3] == pytest.approx(205_000 + 154_588, abs=10)


def test_pairs_of_all_nodes_need_no_gather():
    """Of 500 nodes each: 250,000 pairs. One addition writes 250,000 × 128 × 4 bytes, 31.37 µs, and 2 µs; 2 × 10 µs of
    products."""
    shape, strides = [500, 500, WIDTH], [[WIDTH, 0, 1], [0, WIDTH, 1]]
    joined = cat(120_000, shape, shape, strides=strides)
    rows = [product(10_000, 500, WIDTH, WIDTH), joined, product(400_000, 250_000, 2 * WIDTH, WIDTH)]
    _, ns = edit_of(*rows)
    assert ns == {1: 0, 2: 53_373}


def test_two_layers_of_one_input_share_what_is_joined():
    """Each gather has both widths, 2 × 120 µs. Each product has its own parts and additions, of 354.6 µs."""
    _, ns = edit_of(*OTHERS, *FORWARD, FORWARD[3])
    assert ns == {2: 240_000, 3: 240_000, 4: 0, 5: 354_588, 6: 354_588}


def test_a_cast_of_what_is_joined_is_one_of_fewer_rows():
    """A third of 300 µs, and twice a thirtieth."""
    wide = (EDGES, 3 * WIDTH)
    _, ns = edit_of(*OTHERS, *FORWARD[:3], row("copy_", 300_000, wide, wide), FORWARD[3])
    assert ns[5] == 120_000


def test_several_parts_that_are_not_gathered_stay_joined():
    """200,000 × 160 × 4 bytes are read and written: 62.75 µs, and 2 µs."""
    rows = [FORWARD[0], cat(150_000, LONG, LONG, (EDGES, 32)), product(480_000, EDGES, 288, WIDTH)]
    _, ns = edit_of(*rows)
    assert ns[1] == 64_745


MANY = (150_000, WIDTH)
NONE = "no product takes rows"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([gather(120_000, MANY), gather(120_000, MANY), *FORWARD[2:]], NONE),  # a table of nearly as many rows
        (FORWARD[2:], NONE),  # nothing is gathered
        ([*FORWARD[:2], row("silu", 60_000, LONG), row("silu", 60_000, LONG), *FORWARD[2:]], NONE),
        ([*FORWARD[:3], row("silu", 200_000, (EDGES, 3 * WIDTH)), FORWARD[3]], NONE),  # of what is joined
        ([*FORWARD[:2], {**FORWARD[2], "sizes": [[], []]}, FORWARD[3]], NONE),  # sizes that are not recorded
        ([*FORWARD, row("mul", 200_000, (EDGES, 3 * WIDTH))], NONE),  # what is joined has another use
        ([{**each, "sizes": None} for each in FORWARD], "the sizes of ops, or the GPU, are not known"),
        # The product is of other rows: what was gathered is multiplied by what it makes.
        ([FORWARD[0], product(300_000, EDGES, WIDTH, WIDTH), row("mul", 90_000, LONG, LONG)], NONE),
        ([FORWARD[0], product(300_000, EDGES, WIDTH, 64), cat(90_000, LONG, (EDGES, 64))], NONE),
        # Results that are wider than what is gathered: 8 × 120 µs for each.
        ([*FORWARD[:3], product(900_000, EDGES, 3 * WIDTH, 8 * WIDTH)], "adding what is gathered takes as long"),
    ],
)
def test_other_products_stay(rows, why):
    only = proposal(*rows)
    assert isinstance(only, Abstained) and only.why.startswith(why)
