"""Texts among an op's arguments, which Kineto and NVTX drop, come from the marker of the user's call."""

import json

import pytest

import pyprof.prof.ops.families  # noqa: F401  (fills the registry)
from pyprof.marker import Marker, format_marker
from pyprof.prof.work.count import OpCall, count_call


def tensor(*shape, dtype="float32", name=""):
    return {"name": name, "type": "tensor", "shape": shape, "dtype": dtype}


def text(name, value):
    return {"name": name, "type": "str", "value": value}


def number(name, value):
    return {"name": name, "type": "int", "value": value}


def call(aten, sizes, marker_op, *arguments, direction="fprop", dtypes=None, args=None):
    marker = format_marker(Marker("torch", marker_op, list(arguments)))
    dtypes = json.dumps(dtypes or ["float32" if size else "" for size in sizes])
    return count_call(
        OpCall(
            f"aten::{aten}", json.dumps(sizes), dtypes, args=json.dumps(args or [""] * len(sizes)), dir=direction,
            marker=json.dumps([marker]),
        )
    )  # fmt: skip


X, INDEX = tensor(64, 32, name="input"), tensor(64, 32, dtype="int64", name="index")
SCATTER = {
    "sizes": [[64, 32], [], [64, 32], [64, 32], [], []],
    "dtypes": ["float32", "Scalar", "int64", "float32", "", "Scalar"],
}


@pytest.mark.parametrize(("approximate", "flop"), [("tanh", 9), ("none", 5)])
def test_gelu(approximate, flop):
    """0.5 x (1 + tanh(..)) takes 9 operations per element, with erf 5; 64 * 32 = 2048 elements"""
    given = call("gelu", [[64, 32], []], "gelu", X, text("approximate", approximate))
    assert given.flop == flop * 2048


def test_the_backward_of_gelu_has_the_text_of_its_forward():
    """18 operations per element with tanh"""
    sizes = [[64, 32], [64, 32], []]
    found = call("gelu_backward", sizes, "gelu", X, text("approximate", "tanh"), direction="bprop")
    assert found.flop == 18 * 2048


def scattered(op, marker_op, *arguments):
    args = ["", "0", "", "", "", "True"]
    return call(op, SCATTER["sizes"], marker_op, *arguments, dtypes=SCATTER["dtypes"], args=args).flop


@pytest.mark.parametrize(("reduce", "flop"), [("amin", 0), ("amax", 0), ("sum", 2048), ("mean", 4096)])
def test_scatter_reduce(reduce, flop):
    """An extreme compares; a sum adds once per index; a mean also divides each element of the result"""
    given = (X, number("dim", 0), INDEX, tensor(64, 32, name="src"), text("reduce", reduce))
    assert scattered("scatter_reduce", "scatter_reduce", *given) == flop


def test_a_text_without_a_name_has_its_place():
    given = (tensor(64, 32), number("", 0), tensor(64, 32, dtype="int64"), tensor(64, 32), text("", "amin"))
    assert scattered("scatter_reduce_", "scatter_reduce_", *given) == 0
    other = (tensor(8, 8), *given[1:])  # not the tensors of the op: the text may be another's
    assert scattered("scatter_reduce_", "scatter_reduce_", *other) == 2048  # taken for a sum, as without a marker


@pytest.mark.parametrize(
    ("mode", "flop"),
    [  # for 64 x 32: 2 * 32^2 * (64 - 32/3) = 109,226.67 for R, the same for a thin Q, and for the complete one
        ("r", 109_227),
        ("reduced", 218_453),
        ("complete", 415_061),  # 4 * (64^2 * 32 - 64 * 32^2 + 32^3 / 3) = 305,834.67 more than R
    ],
)
def test_qr(mode, flop):
    assert call("linalg_qr", [[64, 32], []], "qr", X, text("mode", mode)).flop == flop
