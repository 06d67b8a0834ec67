"""Calls that come again in the same order get the markers that they would get one by one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import pyprof  # noqa: E402
from pyprof.capture import same_calls  # noqa: E402
from pyprof.capture.mode import MarkerMode  # noqa: E402

from .conftest import record  # noqa: E402

pytestmark = pytest.mark.torch

X, Y = torch.randn(4, 6), torch.randn(4, 6)
MANY = [torch.zeros(3) for _ in range(70)]
WEIGHT, BIAS = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))


def _six() -> tuple[int, ...]:
    """A tuple made anew, equal to the last one."""
    return tuple(int(text) for text in ["6"])


def _autocast() -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return torch.add(X, Y)


CALLS: list[Callable[[], Any]] = [  # calls of few functions, which differ from each other in one thing each
    lambda: torch.add(X, Y),
    lambda: torch.add(Y, X),
    lambda: torch.add(X, X),
    lambda: torch.add(X, 1),
    lambda: torch.add(X, True),
    lambda: torch.add(X, 1.0),
    lambda: torch.add(X, 1000),
    lambda: torch.add(X, 1001),
    lambda: torch.add(X, Y, alpha=2),
    lambda: torch.add(X, other=Y),
    lambda: torch.add(X.double(), Y),
    lambda: torch.add(X.T, Y.T),
    lambda: torch.add(X[:2], Y[:2]),
    lambda: torch.add(X[::2], Y[:2]),
    lambda: torch.add(X.clone().requires_grad_(), Y),
    lambda: torch.add(X.to_sparse(), Y.to_sparse()),
    lambda: torch.add(X[:1].expand(4, 6), Y),
    _autocast,
    lambda: X.view(6, 4),
    lambda: X.view(*[int(f"{size}") for size in (2, 12)]),
    lambda: X.sum((0, 1)),
    lambda: X.sum((0,)),
    lambda: X.sum([0, 1]),
    lambda: F.layer_norm(X, _six(), WEIGHT, BIAS),
    lambda: F.layer_norm(X, _six(), WEIGHT, BIAS, 1e-3),
    lambda: F.layer_norm(X, _six(), BIAS),
    lambda: F.relu(X),
    lambda: F.relu(X.clone(), inplace=True),
    lambda: torch.cat([X, Y]),
    lambda: torch.cat((X, Y)),
    lambda: torch.cat([X, Y], 1),
    lambda: torch.cat([X, X]),
    lambda: torch.cat([X, Y, BIAS[None]]),
    lambda: torch.cat([X.T, Y.T]),
    lambda: torch._foreach_add([X, Y], 1),
    lambda: torch._foreach_add([X, Y], [Y, X]),
    lambda: torch._foreach_add([X, Y], [1.0, 2.0]),
    lambda: torch._foreach_add(MANY, 1),
    lambda: torch._foreach_add(MANY[1:], 1),
    lambda: torch._foreach_add([*MANY[1:], X], 1),
    lambda: torch._foreach_add([X, *MANY[1:]], 1),
    lambda: torch._foreach_mul(MANY, MANY),
    lambda: torch._foreach_mul(MANY, [*MANY[:3], MANY[2], *MANY[4:]]),
    lambda: torch.mul(X, X),
    lambda: torch.mul(X, X.clone()),
    lambda: torch.where(X > 0, X, X),
    lambda: X[[True, False, True, True]],
]


def _texts(order: list[int]) -> list[str]:
    recorder = record(layers=False)
    for place in order:
        CALLS[place]()
    pyprof.deinit()
    return recorder.texts


@settings(max_examples=25)
@given(st.lists(st.integers(0, len(CALLS) - 1), min_size=1, max_size=12), st.integers(1, 5), st.randoms())
def test_markers_are_those_of_calls_looked_up_one_by_one(loop: list[int], times: int, random: Any) -> None:
    order = loop * times
    order.insert(random.randrange(len(order) + 1), random.randrange(len(CALLS)))  # an iteration differs
    order += loop * times
    found = _texts(order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(same_calls, "_Guards", None)  # as in a PyTorch without these comparisons: always the key
        assert found == _texts(order)


def _looked_up(monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any], times: int = 6) -> int:
    """How many of the last calls were looked up by a key, once three were made."""
    keys = 0
    lookup = MarkerMode._looked_up

    def counted(*args: Any) -> Any:
        nonlocal keys
        keys += 1
        return lookup(*args)

    monkeypatch.setattr(MarkerMode, "_looked_up", counted)
    record(layers=False)
    for _ in range(3):
        call()
    keys = 0
    for _ in range(times):
        call()
    return keys


@pytest.mark.parametrize("call", [0, 2, 3, 8, 17, 18, 20, 23, 26, 28, 29, 31, 34, 35, 37, 39, 41, 42, 43, 45])
def test_a_call_that_comes_again_needs_no_key(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _looked_up(monkeypatch, CALLS[call]) == 0


def test_a_parameter_that_gets_other_data_is_another_call() -> None:
    weight = nn.Parameter(torch.randn(6))
    recorder = record(layers=False)
    for size in (6, 6, 6, 6, 3, 6):
        weight.data = torch.randn(size)
        recorder.clear()
        torch.relu(weight)
        (marker,) = recorder.markers
        assert marker.args[0]["shape"] == [size]


def test_a_call_that_never_matches_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """requires_grad is compared but not part of a marker: two kinds of tensors in turns match neither time."""
    tensors = [torch.randn(4), torch.randn(4).requires_grad_()]
    made = []
    make = same_calls._made
    monkeypatch.setattr(same_calls, "_made", lambda *args: made.append(1) or make(*args))
    recorder = record(layers=False)
    for i in range(500):
        torch.relu(tensors[i % 2])
    assert len(set(recorder.texts)) == 1 and len(recorder.texts) == 500
    assert len(made) <= 5  # at the 2nd, 4th, 8th, 16th and 32nd
