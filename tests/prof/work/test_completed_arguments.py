"""Types and numbers of ops that nsys records by their sizes alone."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

import pyprof.prof.ops.families  # noqa: F401  (count_call looks models up among those that are registered)
from pyprof.prof.kernels.type_names import Dtypes
from pyprof.prof.work.completed_arguments import completed_cells
from pyprof.prof.work.count import OpCall, count_call


def tensor(name: str, shape: Sequence[int], dtype: str = "float32") -> dict[str, Any]:
    return {"name": name, "type": "tensor", "shape": list(shape), "dtype": dtype}


def number(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "type": type(value).__name__, "value": value}


def completed(op: str, sizes: Any, user: str = "", args: Sequence[dict[str, Any]] = (), **told: Any) -> Any:
    marker = json.dumps({"v": 1, "mod": "torch", "op": user or op, "args": [*args]}, separators=(",", ":"))
    known = {"dir": "fprop", "marker": json.dumps([marker]) if args else "", **told}
    call = OpCall(aten=f"aten::{op}", sizes=json.dumps(sizes), **known)
    cells = completed_cells(call, count_call(call))
    return None if cells is None else tuple(map(json.loads, cells))


def test_numbers_are_those_of_the_op_s_own_call() -> None:
    sizes = [[4, 8], []]
    square = completed("pow", sizes, args=(tensor("self", (4, 8)), number("exponent", 2)))
    assert square == (sizes, ["float32", ""], ["", "2"])
    sizes = [[4, 8], [], [], []]
    mean = completed("mean", sizes, args=(tensor("self", (4, 8)), number("dim", -1), number("keepdim", True)))
    assert mean == (sizes, ["float32", "", "", ""], ["", "-1", "True", ""])


def test_numbers_of_another_call_are_not_taken() -> None:
    """1 / x runs reciprocal and mul; and an op on a tensor of another shape is not the call's own."""
    _, _, args = completed("mul", [[4], []], "__rtruediv__", (tensor("self", (4,)), number("other", 3.0)))
    assert args == ["", ""]
    _, _, args = completed("pow", [[4, 4], []], args=(tensor("self", (4, 8)), number("exponent", 2)))
    assert args == ["", ""]


def test_names_of_devices_are_no_numbers() -> None:
    sizes = [[], [], [], [0]]
    made = completed("arange", sizes, args=(number("start", 5), number("end", 9), number("device", "cuda")))
    assert made == (sizes, ["", "", "", "int64"], ["5", "9", "1", ""])


@pytest.mark.parametrize(
    ("given", "numbers", "dtype"),
    [
        ((("", 768),), ["0", "768", "1"], "int64"),
        ((("", 2), ("", 9)), ["2", "9", "1"], "int64"),
        ((("", 0), ("end", 64), ("step", 2)), ["0", "64", "2"], "int64"),
        ((("", 0.5),), ["0", "0.5", "1"], "float32"),
        ((("", 8), ("dtype", "torch.float16")), ["0", "8", "1"], "float16"),
        ((("", 1), ("", 2), ("", 3), ("", 4)), ["", "", ""], ""),  # no such call
        ((("", 0), ("", 9), ("", 0)), ["0", "9", "0"], "int64"),  # nor this one: it makes no number of elements
    ],
)
def test_the_bounds_of_arange_and_its_type(given: Any, numbers: list[str], dtype: str) -> None:
    sizes = [[], [], [], [0]]
    made = completed("arange", sizes, args=[number(name, value) for name, value in given])
    assert made == (sizes, ["", "", "", dtype], [*numbers, ""])


def test_arange_writes_its_elements() -> None:
    """arange(0, 64, 2) writes 32 numbers of int64."""
    marker = {
        "v": 1,
        "mod": "torch",
        "op": "arange",
        "args": [number(n, v) for n, v in (("start", 0), ("end", 64), ("step", 2))],
    }
    text = json.dumps([json.dumps(marker, separators=(",", ":"))])
    assert count_call(OpCall("aten::arange", "[[], [], [], [0]]", marker=text)).nbytes == 32 * 8


def test_the_tensors_of_a_list_are_together_again() -> None:
    pieces = {"name": "tensors", "type": "list", "items": [tensor("", (1, 32)), tensor("", (1, 16))]}
    joined = completed("cat", [[1, 32], [1, 16], []], args=(pieces, number("dim", -1)))
    assert joined == ([[[1, 32], [1, 16]], []], [["float32", "float32"], ""], ["", "-1"])


@pytest.mark.parametrize(
    ("out", "dim"), [([[16, 128, 1]], "[2]"), ([[1, 1, 768]], "[0, 1]"), ([[768]], ""), ([[16, 64, 1]], ""), ([], "")]
)
def test_what_a_sum_sums_over_follows_from_its_result(out: Any, dim: str) -> None:
    outs = json.dumps(out) if out else ""
    found = completed("sum", [[16, 128, 768], [], [], []], dir="bprop", outs=outs, kernel=Dtypes(rest="float32"))
    assert found == ([[16, 128, 768], [], [], []], ["float32", "", "", ""], ["", dim, "", ""])


def test_what_is_recorded_stays_as_it_is() -> None:
    assert completed("relu", [[4]], dtypes='["float32"]') is None
    assert completed("no_such_op", [[4]]) is None
