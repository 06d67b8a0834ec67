"""The worked cases of ops.csv, FLOPs and bytes, forward and backward, to the unit, through ``pyprof.count``.

The file lies beside the folder of captures, or where PYPROF_TRUTH says; without either the tests are skipped.
A case is one call, written as Python: ``R(*shape)`` is a random tensor that requires a gradient,
``N(*shape)`` one that does not, ``I(hi, *shape)`` one of indices, in the case's type unless it says another.
``OPT(make)`` is one step of an optimizer in its steady state on a parameter of a million elements, ``CLIP()``
a clipping of its gradient.
"""

import csv
import math
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import pyprof  # noqa: E402
from pyprof.counting.counts import Counts  # noqa: E402
from pyprof.prof.ops.model import Work  # noqa: E402

ELEMENTS = 1_000_000  # of the optimizers' parameter


def find_cases() -> Path | None:
    if folder := os.environ.get("PYPROF_TRUTH"):
        return Path(folder, "ops.csv")
    folder = os.environ.get("PYPROF_DATA")
    return Path(folder).parent / "truth" / "ops.csv" if folder else None


CASES = find_cases()
ROWS = list(csv.DictReader(CASES.read_text().splitlines())) if CASES is not None and CASES.is_file() else []


class Maker:
    """Makes a case's inputs, uncounted."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def R(self, *shape: int, dtype: torch.dtype | None = None) -> Any:
        return self.N(*shape, dtype=dtype).requires_grad_()

    def N(self, *shape: int, dtype: torch.dtype | None = None) -> Any:
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            wanted = dtype or self.dtype
            real = torch.float32 if wanted.itemsize == 1 else wanted  # there are no random float8 numbers
            return torch.randn(*shape, dtype=real).to(wanted)

    def I(self, high: int, *shape: int) -> Any:  # noqa: E743  (the cases' name)
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            return torch.randint(high, shape)

    def parameter(self) -> Any:
        parameter = self.R(ELEMENTS)
        parameter.grad = self.N(ELEMENTS)
        return parameter

    def OPT(self, make: Any) -> None:
        parameter = self.parameter()
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            optimizer = make(parameter)
            optimizer.step()  # the first makes the state
        optimizer.step()

    def CLIP(self) -> None:
        torch.nn.utils.clip_grad_norm_([self.parameter()], 1.0)

    def evaluate(self, call: str) -> Any:
        ours = {"R": self.R, "N": self.N, "I": self.I, "OPT": self.OPT, "CLIP": self.CLIP}
        names = {"torch": torch, "F": F, "nn": nn, "__builtins__": {}}
        return eval(call, names | ours)  # noqa: S307  (our own file of cases, in a test; never input of the tools)


def counted(row: dict[str, str]) -> Counts:
    """A case's counts, its gradients with respect to everything that wants one included."""
    torch.manual_seed(0)
    maker = Maker(getattr(torch, row["dtype"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about its own prototypes
        counts: Counts = pyprof.count(maker.evaluate, row["call"], backward=True)
    return counts


MAKERS = {"rand", "randn", "randint", "zeros", "ones", "empty", "uniform_", "normal_", "fill_", "zero_", "constant_"}


def amounts(counts: Counts, op: str) -> tuple[int, float, int, float]:
    """(flop, bytes) forward and backward of the case's op; of all that computes, where the op names no call."""
    mine = [o for name, o in counts.ops.items() if plain(name) == plain(op)]
    mine = mine or [o for name, o in counts.ops.items() if name not in MAKERS]
    forward, backward = sum((o.forward for o in mine), Work()), sum((o.backward for o in mine), Work())
    return forward.flop, forward.nbytes, backward.flop, backward.nbytes


def plain(name: str) -> str:
    """LSTMCell is lstm_cell, but exp_ is not exp."""
    return name[:-1].replace("_", "").lower() + name[-1].lower()


def parts(row: dict[str, str]) -> tuple[float, ...]:
    """The case's values; NaN where it leaves one open."""
    columns = ("fwd_flops", "fwd_bytes", "bwd_flops", "bwd_bytes")
    return tuple(float(row[column]) if row[column] else math.nan for column in columns)


@pytest.mark.skipif(not ROWS, reason="no truth/ops.csv beside PYPROF_DATA, and no PYPROF_TRUTH")
@pytest.mark.parametrize("row", ROWS, ids=[f"{row['op']}-{row['case']}" for row in ROWS])
def test_case_is_exact(row: dict[str, str]) -> None:
    counts = counted(row)
    found = amounts(counts, row["op"])
    wanted = parts(row)
    shown = tuple(f if not math.isnan(w) else w for f, w in zip(found, wanted, strict=True))
    assert [int(n) for n in shown if n == n] == [int(n) for n in wanted if n == n], f"{counts}\n{found} {wanted}"
