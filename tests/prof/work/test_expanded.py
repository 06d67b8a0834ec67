"""Operands that PyTorch expands before an op reads them: ranges of nsys have their sizes and no strides."""

import json
from typing import Any

import pyprof.prof.ops.families  # noqa: F401  (count_call looks models up among those that are registered)
from pyprof.marker import Marker, format_marker
from pyprof.prof.kernels.type_names import Dtypes
from pyprof.prof.work.count import Counted, OpCall, count_call

FLOAT, HALF = Dtypes("float32", out="float32"), Dtypes("bfloat16")


def marker(op: str, shape: list[int], dtype: str, **options: int | bool) -> str:
    args: list[dict[str, Any]] = [{"name": "self", "type": "tensor", "shape": shape, "dtype": dtype}]
    args += [{"name": name, "type": type(value).__name__, "value": value} for name, value in options.items()]
    return json.dumps([format_marker(Marker("Tensor", op, args))])


def counted(op: str, sizes: list[list[int]], around: str, call: str, forward: bool, kernel: Dtypes) -> Counted:
    nodes = json.dumps(around.split())
    direction = "fprop" if forward else "bprop"
    return count_call(OpCall(f"aten::{op}", json.dumps(sizes), marker=call, dir=direction, nodes=nodes, kernel=kernel))


def test_an_embedding_reads_one_index_per_row() -> None:
    """8,192 rows of 768 float32 each read and written, and 8,192 indices of int64: as Kineto's strides say of T5."""
    around = "aten::embedding aten::index_select aten::gather"
    sizes = [[32128, 768], [], [8192, 768], [], [8192, 768]]
    call = marker("embedding", [16, 512], "int64")
    found = counted("gather", sizes, around, call, True, Dtypes("float32", at=((2, "int64"),)))
    assert found.nbytes == 2 * 8192 * 768 * 4 + 8192 * 8
    other = counted("gather", sizes, "aten::gather", call, True, Dtypes("float32", at=((2, "int64"),)))
    assert other.nbytes == 2 * 8192 * 768 * 4 + 8192 * 768 * 8  # the user's own gather has an index per element


def test_index_select_along_the_dimension_that_differs() -> None:
    around = "aten::index_select aten::gather"
    found = counted("gather", [[4, 100, 8], [], [4, 25, 8]], around, "", True, FLOAT)
    assert found.nbytes == 2 * 800 * 4 + 25 * 8
    either = counted("gather", [[4, 25, 8], [], [4, 25, 8]], around, "", True, FLOAT)  # any dimension
    assert either.nbytes == 2 * 800 * 4 + 800 * 8


def test_repeat_interleave_reads_what_it_repeats_once() -> None:
    """Keys of 8 heads for 32: (4, 8, 501, 64) of bfloat16 read, 4 times as much written."""
    around = "aten::repeat_interleave aten::clone aten::copy_"
    call = marker("repeat_interleave", [4, 8, 501, 64], "bfloat16", repeats=4, dim=1)
    found = counted("copy_", [[4, 8, 4, 501, 64]] * 2 + [[]], around, call, True, HALF)
    assert found.nbytes == (1 + 4) * 4 * 8 * 501 * 64 * 2


def test_the_gradient_of_a_mean_is_read_once_for_what_it_is_the_mean_of() -> None:
    around = "MeanBackward1 aten::div aten::div"
    call = marker("mean", [16, 128, 768], "float32", dim=-1, keepdim=True)
    found = counted("div", [[16, 128, 768], []], around, call, False, FLOAT)
    assert found.nbytes is not None and abs(found.nbytes - 4 * (16 * 128 * 768 + 16 * 128)) <= 8  # and the divisor
    whole = marker("mean", [16, 128, 768], "float32")
    found = counted("div", [[16, 128, 768], []], around, whole, False, FLOAT)
    assert found.nbytes is not None and abs(found.nbytes - 4 * (16 * 128 * 768 + 1)) <= 8
    other = marker("mean", [16, 128, 4], "float32", dim=-1)  # of something else
    found = counted("div", [[16, 128, 768], []], around, other, False, FLOAT)
    assert found.nbytes is not None and abs(found.nbytes - 8 * 16 * 128 * 768) <= 8
