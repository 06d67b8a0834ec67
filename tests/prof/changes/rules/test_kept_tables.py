"""Tables that layer after layer makes anew from numbers: angles, masks, distances."""

import pytest

from pyprof.prof.changes.effect.edit import Abstained, Edit
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.changes.rules.host.kept_tables import _counted
from tests.prof.changes.effect.test_scenario import of_rows
from tests.prof.changes.rules.advice_rows import mm, run

F32, I64, BF16 = "float32", "int64", "bfloat16"


def one(op, sizes, dtypes, args=None, called="", **more):
    return {"aten": f"aten::{op}", "op": [called or op], "sizes": sizes, "dtypes": dtypes, "ns": 1_000,
            "args": args or [""] * len(sizes), "kShortName": "vectorized_elementwise_kernel", "phase": "forward",
            "trace": ["net.py:7"], **more}  # fmt: skip


def arange(*numbers):
    return one("arange", [[]] * 4, ["", "", "", I64], [*map(str, numbers), ""])


def cast(size, into=F32, source=I64):
    return one("copy_", [size, size, []], [into, source, ""], called="to")


def angles(tokens=1):
    """Rotary angles of 4 rates for the positions that are given, as of Meta's reference code: 13 kernels, of which 8,
    from the positions' cast on but for the rates' pow, depend on them."""
    return [
        arange(0, 8, 2), cast([4]), one("div", [[4], []], [F32, I64]),
        one("fill_", [[], []], ["float64", ""], called="__rpow__"), one("pow", [[], [4], [4]], ["float64", F32, F32]),
        cast([tokens]), one("mul", [[tokens, 1], [1, 4]], [F32, F32]),
        one("cat", [[[tokens, 4], [tokens, 4]], []], [["", ""], ""]),
        one("cos", [[tokens, 8]], [F32]), cast([tokens, 8], BF16, F32),
        one("sin", [[tokens, 8]], [F32]), cast([tokens, 8], BF16, F32),
    ]  # fmt: skip


USE = one("mul", [[2, 3, 1, 8], [1, 8]], [BF16, BF16])


def in_layers(rows, layers=(0, 0, 1, 1), then=(USE,)):
    """These rows once for each number, in the layer of that number."""
    return [{**row, "layer": ["net", f"layers.{number}"]} for number in layers for row in [*rows, *then]]


def proposed(*rows):
    (only,) = EDIT_RULES["made_again"](of_rows(*rows))
    return only


def places(rows, edit):
    """The rows of an edit, by the place in the layer's call, for each call."""
    assert isinstance(edit, Edit) and not edit.ns.any() and not edit.left.any()
    return [
        [row - begin for row in edit.rows.tolist() if begin <= row < begin + rows] for begin in range(0, 4 * rows, rows)
    ]


def test_angles_of_positions_are_made_once_for_all_layers():
    """Four calls, two for each of two layers: the rates go, and the rest of one layer's calls. What uses them stays."""
    edit = proposed(*in_layers(angles()))
    of_numbers, every = list(range(5)), list(range(12))
    assert places(13, edit) == [of_numbers, of_numbers, every, every]
    assert edit.why.startswith("4 calls make the same tensors as another one, by arange, to, div, __rpow__, pow, ")
    assert edit.why.endswith("(net.py:7): 34 launches too many")  # 2 * 5 + 2 * 12


def test_calls_of_one_layer_may_be_given_other_positions():
    """As in writing word by word with one layer: only what follows from numbers alone goes."""
    assert places(13, proposed(*in_layers(angles(), (0, 0, 0, 0)))) == [list(range(5))] * 4


def test_masks_of_numbers_alone_go_from_all_layers():
    mask = [one("fill_", [[6, 6], []], [F32, ""], ["", "-inf"], called="full"), one("triu", [[6, 6], []], [F32, ""])]
    scores = one("add", [[2, 3, 6, 6], [6, 6]], [F32, F32])
    assert places(3, proposed(*in_layers(mask, range(4), [scores]))) == [[0, 1]] * 4
    assert isinstance(proposed(*in_layers(mask, range(3), [scores])), Abstained)


def test_a_mask_by_comparison_of_places():
    """As transformers makes it: 5 × 5 values, filled where a place is not after the other."""
    size, full = [[5, 5], []], [F32, ""]
    mask = [
        one("fill_", size, full, ["", "-3e38"]), arange(5), one("add", [[5], [], []], [I64, I64, ""]),
        one("lt", [[5], [5, 1]], [I64, I64]), one("masked_fill_", [[5, 5], [5, 5], []], [F32, "bool", ""]),
    ]  # fmt: skip
    assert places(6, proposed(*in_layers(mask, range(4)))) == [list(range(5))] * 4


def test_what_is_filled_to_be_written_to_is_no_table():
    """Zeros beside arange, of another size or of the same, may be what a loop adds to."""
    for size in ([6], [4]):
        zeros = one("fill_", [size, []], [F32, ""], called="zeros")
        rows = in_layers([zeros, arange(4), cast([4]), one("div", [[4], []], [F32, I64])], range(4))
        assert places(5, proposed(*rows)) == [[1, 2, 3]] * 4


def of_frequencies(first, last="sin", size=(1, 1, 3)):
    """As transformers made angles in each layer: positions times frequencies that are kept, by a product."""
    return [
        first, {**mm(1, 1, 1, 1_000), "aten": "aten::bmm", "sizes": [[1, 4, 1], list(size)], "dtypes": [F32, F32],
                "op": ["matmul"], "args": ["", ""], "trace": ["net.py:7"]},
        one("cat", [[[1, 3, 4], [1, 3, 4]], []], [["", ""], ""]), one("cos", [[1, 3, 8]], [F32]),
        one(last, [[1, 3, 8]], [F32]),
    ]  # fmt: skip


def test_angles_of_kept_frequencies():
    """One layer's call of four remains."""
    found = places(6, proposed(*in_layers(of_frequencies(cast([1, 1, 3])), range(4))))
    assert found == [[], *[[0, 1, 2, 3, 4]] * 3]


SAYS_NOTHING = {
    "positions in floating point, which may be data": of_frequencies(cast([1, 1, 3], F32, BF16)),
    "a product of matrices": of_frequencies(cast([1, 1, 3]), size=(1, 3, 3)),
    "no cosine and sine: counts of a router": of_frequencies(cast([1, 1, 3]), last="cos"),
    "arange alone": [arange(4)],
    "arange in a function of PyTorch": [{**arange(4), "op": ["sort"]}, cast([4])],
    "data": [arange(4), one("mul", [[2, 3, 4], [4]], [F32, I64])],
    "data of the same size and another type": [arange(4), cast([4]), one("mul", [[4], []], [BF16, ""])][::2],
    "labels compared with places": [arange(4), one("eq", [[4], [4]], [I64, I64])],
    "labels beside arange": [arange(4), cast([3])],
    "no sizes": [{**row, "sizes": None, "dtypes": None} for row in angles()],
    "no numbers": [{**row, "args": None} for row in angles()],
    "the backward pass": [{**row, "phase": "backward"} for row in angles()],
}


@pytest.mark.parametrize("why", SAYS_NOTHING)
def test_no_table(why):
    assert isinstance(proposed(*in_layers(SAYS_NOTHING[why], range(4))), Abstained)


def test_other_numbers_are_other_tables():
    rows = [row for number in range(4) for row in in_layers([arange(4 + number), cast([4 + number])], [number])]
    assert isinstance(proposed(*rows), Abstained)


def test_a_vector_that_learns_is_no_number():
    """Its product with the places has a gradient: what follows is no table, what comes before is one."""
    learned = one("mul", [[3, 1], [4]], [F32, F32])
    calls = [
        row
        for layer in range(4)
        for row in in_layers([arange(3), cast([3]), {**learned, "seqId": [7 + layer]}], [layer])
    ]
    back = [{**one("mul", [[3, 4], [3, 1]], [F32, F32]), "seqId": [7 + n], "phase": "backward"} for n in range(4)]
    assert places(4, proposed(*calls, *back)) == [[0, 1]] * 4
    assert places(4, proposed(*calls)) == [[0, 1], *[[0, 1, 2]] * 3]


@pytest.mark.parametrize(("op", "args", "elements"), [
    ("arange", ["5", ""], 5), ("arange", ["2", "5", ""], 3), ("arange", ["0", "5", "2", ""], 3),
    ("arange", ["5", "0", "-1", ""], 5), ("arange", ["5", "0", "1", ""], 0), ("arange", ["0", "5", "0", ""], 0),
    ("arange", ["0", "inf", "1", ""], 0), ("arange", ["", ""], 0),
    ("arange", ["-1e308", "1e308", "1", ""], 0), ("arange", ["0", "5", "1e-320", ""], 0), ("arange", ["nan", ""], 0),
    ("arange", ["0", "1", "0.4", ""], 3), ("arange", ["x"], 0),
    ("linspace", ["0", "1", "9", ""], 9), ("linspace", ["0", "1"], 0),
    ("linspace", ["0", "1", "-9", ""], 0),
])  # fmt: skip
def test_how_many_elements_numbers_make(op, args, elements):
    assert _counted(run(one(op, [[]] * len(args), [""] * len(args), args)), 0) == elements
