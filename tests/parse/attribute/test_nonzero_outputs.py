"""How many places nonzero found, which its own arguments do not say."""

import pytest

from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.work.annotate import annotate
from tests.parse.kineto.kineto_file import begin, op, write

# The view that nonzero makes of its result: ATen/native/TensorAdvancedIndexing.cpp and cuda/Nonzero.cu of 2.13
VIEWS = [
    ("aten::as_strided_", [[1051, 2], [], [], []]),
    ("aten::t", [[2, 1051]]),
    ("aten::set_", [[2, 1051], [1051, 2]]),
]


def table(tmp_path, *inner):
    searched = {"Input_Dims": [[64, 32]], "Input_type": ["bool"], "Concrete_Inputs": [""]}
    parts = [op(name, 1020, 5, Input_Dims=sizes, Input_type=["long int"] * len(sizes)) for name, sizes in inner]
    return correlate(read(write(tmp_path / "net.json", begin(1000), op("aten::nonzero", 1010, 50, **searched), *parts)))


@pytest.mark.parametrize("view", VIEWS)
def test_the_view_within_shows_it(tmp_path, view):
    """64 * 32 bytes read, and 1051 places of 2 int64 numbers written: 2048 + 1051 * 16 = 18,864"""
    found = table(tmp_path, view)
    assert found.coded("outs").texts() == ["[[1051, 2]]"]
    assert annotate(found).bytes.tolist() == [18_864]


@pytest.mark.parametrize("inner", [(), (("aten::as_strided_", [[1051], [], [], []]),), (("aten::t", [[7, 1051]]),)])
def test_without_such_a_view_it_is_unknown(tmp_path, inner):
    assert table(tmp_path, *inner).coded("outs").texts() == [""]
