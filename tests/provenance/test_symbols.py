"""Symbols of sizes: where a graph's inputs have them, and what they are in one call."""

import msgspec
import pytest

torch = pytest.importorskip("torch")

from pyprof.compiled_record import Call, CompiledRecord, Operation  # noqa: E402
from pyprof.provenance.symbols import evaluated, values_of, with_values  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2048*s0 + 1", 8193), ("s0 - s1", 1), ("(s0*s1)//5", 2), ("-s1", -3), ("-s1 + 7", 4), ("7", 7),
        ("s7", -1), ("Max(1, s0)", -1), ("s0 / 2", -1), ("~s0", -1), ("s0 +", -1), ("s0//(s1 - 3)", -1), ("True", -1),
    ],
)  # fmt: skip
def test_expressions_of_sizes(expression: str, value: int) -> None:
    assert evaluated(expression, {"s0": 4, "s1": 3}) == value


def test_values_come_from_numbers_and_from_dimensions_of_the_inputs() -> None:
    symbols = {"s0": (0, -1), "s1": (1, 1), "s2": (1, 5), "s3": (9, -1), "s4": (2, -1), "s5": (3, 0)}
    inputs = [12, torch.zeros(3, 4), 2.5, None]
    assert values_of(symbols, inputs) == {"s0": 12, "s1": 4}
    assert values_of({"s0": (1, -1)}, inputs) == {}  # a tensor is no size


def test_a_record_with_the_sizes_of_a_call() -> None:
    argument = {"type": "tensor", "shape": ["s0", 8], "dtype": "float32"}
    operation = Operation("aten::cat", args=([argument, {"size": "2*s0"}], {"dtype": "float32"}, 3, "sum"))
    record = CompiledRecord(calls=(Call("triton_0", (0,), loops=("s0*8", 4)),), operations=(operation,))
    known = msgspec.json.decode(with_values(msgspec.json.encode(record).decode(), {"s0": 5}), type=CompiledRecord)
    assert known.calls[0].loops == (40, 4) and known.symbols == {}
    assert known.operations[0].args == ([{**argument, "shape": [5, 8]}, 10], {"dtype": "float32"}, 3, "sum")
