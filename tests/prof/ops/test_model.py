"""The registry of op models: orders of arguments, and what it refuses."""

from collections.abc import Iterator

import pytest

from pyprof.errors import ModelError
from pyprof.prof.ops.evaluation import evaluate, function_of, parameters
from pyprof.prof.ops.model import FAMILY, MODELS, ORDER, Tensor, Work, model

X, W = Tensor((2, 3), "float32"), Tensor((4, 5), "float32")


@pytest.fixture(autouse=True)
def unregistered() -> Iterator[None]:
    """Take out what a test puts into the registry."""
    before = set(MODELS)
    yield
    for registry in (MODELS, FAMILY, ORDER):
        for name in set(registry) - before:
            del registry[name]


def scaled(x: Tensor, weight: Tensor, scale: int = 10, out: object = None) -> Work:
    return Work(scale, x.numel, weight.numel)


def test_one_function_serves_several_orders() -> None:
    model("t::plain", "t::turned t::turned2 (weight, _eps, x, scale)", family="norm")(scaled)
    assert evaluate("t::plain", (X, W, 3)) == Work(3, 6, 20)
    assert evaluate("t::turned", (W, 1e-5, X, 3, "more")) == Work(3, 6, 20)
    assert evaluate("t::turned2", (W, 1e-5, X)) == Work(10, 6, 20)  # the function's own default
    assert {FAMILY[name] for name in ("t::plain", "t::turned", "t::turned2")} == {"norm"}
    assert parameters("t::turned") == ("weight", "_eps", "x", "scale")


def test_an_argument_that_is_not_there_is_an_error_of_the_call() -> None:
    model("t::turned (weight, x)")(scaled)
    with pytest.raises(ModelError, match="t::turned"):
        evaluate("t::turned", (W,))


def test_an_order_names_nothing_that_the_function_does_not_take() -> None:
    with pytest.raises(ModelError, match="t::wrong: scaled takes no wieght"):
        model("t::wrong (wieght, x)")(scaled)


def test_a_second_model_is_refused_and_both_are_named() -> None:
    model("t::once")(scaled)
    with pytest.raises(ModelError, match="t::once has two models: scaled and scaled"):
        model("t::once (x, weight)")(scaled)


def test_operators_are_their_functions() -> None:
    names = ["__mod__", "__imod__", "__rmod__", "__ifloordiv__", "__truediv__", "__radd__", "__len"]
    expected = ["remainder", "remainder_", "remainder", "floor_divide_", "div", "add", "__len"]
    assert list(map(function_of, names)) == expected
