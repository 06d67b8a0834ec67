"""Optimizers' lists that the capture cut: taken from the step's gradients where the launch proves them."""

import numpy as np
import pytest

from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.cut_lists import proven_lists
from pyprof.table.columns import Coded, Data, Table

# two parameters: 300 x 300 = 90,000 elements are 2 blocks of 65,536, 10 are 1
GRADS = "[[300, 300], [10]]"
FUNCTOR = "void multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOpScalarFunctor<float, 1, 1, 0>, float>"


def table(aten: str, grids: list[int], grads: str, dtypes: str = '[[],[],""]') -> Table:
    """One op's multi-tensor kernels."""
    rows = len(grids)

    def same(text: str) -> Coded:
        return Coded.of([text] * rows)

    sizes = "[" + ",".join("[]" for _ in range(dtypes.count("[]") + dtypes.count('""'))) + "]"
    columns: dict[str, Data] = {
        "kShortName": same("multi_tensor_apply_kernel"),
        "kLongName": same(FUNCTOR),
        "kind": same("kernel"),
        "kDuration": np.full(rows, 1000),
        "pid": np.full(rows, 1),
        "opId": np.full(rows, 5),
        "aten": same(aten),
        "sizes": same(sizes),
        "dtypes": same(dtypes),
        "grads": same(grads),
        "grid": Coded.of(f"[{x}, 1, 1]" for x in grids),
    }
    return Table(rows, columns)


@pytest.mark.parametrize(
    ("aten", "grids", "grads", "dtypes", "proven"),
    [
        ("aten::_foreach_mul_", [3], GRADS, '[[],""]', GRADS),
        ("aten::_foreach_mul_", [2, 1], GRADS, '[[],""]', GRADS),  # two launches of one op
        ("aten::_foreach_mul_", [4], GRADS, '[[],""]', ""),  # other tensors
        ("aten::_foreach_mul_", [3], "[[300, 300], [10], [300, 300], [10]]", '[[],""]', GRADS),  # accumulated twice
        ("aten::_foreach_mul_", [1], "[[0], [0, 3]]", '[[],""]', ""),  # no elements, no blocks
        ("aten::_foreach_add_", [3], GRADS, '[[],""]', GRADS),  # Adam's eps
        ("aten::_foreach_add_", [2], GRADS, '[[],""]', "[[], []]"),  # Adam's step counters: a block each
        ("aten::_foreach_add_", [2], "[[10], [20]]", '[[],""]', ""),  # could be either
        ("aten::_foreach_add_", [2], "[[10], [20]]", '[[],[],""]', "[[10], [20]]"),
    ],
)
def test_blocks_prove_the_lists(aten, grids, grads, dtypes, proven):
    found = table(aten, grids, grads, dtypes)
    assert proven_lists(found, np.zeros(len(grids), np.int64)).texts() == [proven] * len(grids)


@pytest.mark.parametrize(
    ("grids", "grads", "proven"),
    [
        ([2, 1], GRADS, ["[[300, 300]]", "[[10]]"]),  # one call for each group
        ([2, 1], "[[300, 300], [10], [300, 300], [10]]", ["[[300, 300]]", "[[10]]"]),  # accumulated twice
        ([2, 1], "[[10], [300, 300], [7, 7]]", ["", ""]),  # the matrices have 3 blocks
        ([2, 4], GRADS, ["", ""]),  # no call for the others
        ([2, 3], GRADS, ["", GRADS]),  # all together in one call, and in another something else
        ([2, 1, 3], GRADS, ["[[300, 300]]", "[[10]]", GRADS]),  # gradients scaled together, weights by group
        ([1, 1], "[[10], [7, 7]]", ["", ""]),  # could be either group
    ],
)
def test_blocks_prove_the_lists_of_two_groups(grids, grads, proven):
    found = table("aten::_foreach_mul_", grids, grads, '[[],""]')
    assert proven_lists(found, np.arange(len(grids))).texts() == proven


@pytest.mark.parametrize(
    "grads",
    [
        "[null]",
        "null",
        "3",
        "{}",
        '"[[3]]"',
        "[3]",
        "[[null]]",
        "[[-3]]",
        "[[3.0]]",
        "[[true]]",
        '[["3"]]',
        "[[[3]]]",
        '[{"3": 3}]',
        "[[3",
        "no json",
        pytest.param("[" * 100_000, id="deep"),
        "[]",
    ],
)
def test_gradients_that_are_no_shapes_prove_nothing(grads):
    for aten in ("aten::_foreach_mul_", "aten::_foreach_add_"):
        assert proven_lists(table(aten, [1], grads, '[[],""]'), np.zeros(1, np.int64)).texts() == [""]


@pytest.mark.parametrize("grid", ["", "null", "[]", "[null]", '["3"]', "7", "{", "[-3, 1, 1]", f"[{10**30}, 1, 1]"])
def test_a_grid_that_is_none_proves_nothing(grid):
    found = table("aten::_foreach_mul_", [3], GRADS, '[[],""]')
    found.columns["grid"] = Coded.of([grid])
    assert proven_lists(found, np.zeros(1, np.int64)).texts() == [""]


def test_proven_lists_are_counted():
    # x *= 2 on 90,010 float32: one multiplication, 4 bytes read, 4 written an element
    notes = annotate(table("aten::_foreach_mul_", [2, 1], GRADS, '[[],""]'))
    assert int(notes.flops.sum()) == 90_010
    assert int(notes.bytes.sum()) == 90_010 * 8
