"""A softmax between two products: which product can take its result."""

import json

import pytest

from pyprof.prof.work.unfused_attention import _takes

SOFTMAX = json.dumps([[8, 16, 32], [], []])


@pytest.mark.parametrize(
    ("operands", "takes"),
    [
        ([[8, 16, 32], [8, 32, 64]], True),
        ([[128, 32], [32, 64]], True),  # the same rows in two dimensions
        ([[8, 32, 16], [8, 16, 64]], False),  # rows of another length
        ([[16, 32], [32, 64]], False),  # fewer elements
        ([["?"], []], True),  # no shape is known
        ([], True),
    ],
)
def test_a_product_of_a_softmax(operands: list[list[object]], takes: bool) -> None:
    assert _takes(json.dumps(operands), SOFTMAX) is takes


def test_without_the_softmaxs_shape_any_product_may_take_it() -> None:
    assert _takes(json.dumps([[16, 32]]), "") and _takes("", SOFTMAX)
