"""PyTorch's own list of its ops, with samples that run on a CPU."""

import sys
import types
import unittest
from collections.abc import Iterator
from typing import Any

import pytest


def op_db() -> Any:
    """The list. Its module needs expecttest for tests that are not run here."""
    if "expecttest" not in sys.modules:
        stub: Any = types.ModuleType("expecttest")
        stub.TestCase, stub.assert_expected_inline = unittest.TestCase, None
        sys.modules["expecttest"] = stub
    return pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db


def samples(op: Any, most: int) -> Iterator[Any]:
    """The first samples of an op in float32, or else int64."""
    import torch

    dtype = next((each for each in (torch.float32, torch.int64) if each in op.supported_dtypes("cpu")), None)
    if dtype is None or op.name.startswith("jiterator"):  # for GPUs
        return
    try:
        for _, sample in zip(range(most), op.sample_inputs("cpu", dtype), strict=False):
            yield sample
    except (ImportError, RuntimeError):
        return  # they need a library that this machine lacks


def runs(op: Any, sample: Any) -> bool:
    """Whether a call runs; some need a library that this build of torch does not have."""
    try:
        op(sample.input, *sample.args, **sample.kwargs)
    except (RuntimeError, ValueError, TypeError):
        return False
    return True
