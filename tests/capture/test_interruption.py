"""Which exceptions pass through the description of a call: those of signal handlers, not those of descriptions."""

import functools
import signal
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pyprof.capture import describe  # noqa: E402
from pyprof.interruption import is_from_outside  # noqa: E402

from .conftest import Recorder  # noqa: E402

pytestmark = pytest.mark.torch


class Timeout(Exception):
    pass


def _raise(kind: type[Exception], *_: Any) -> None:
    raise kind("from the handler")


class Handler:
    def __init__(self, kind: type[Exception]) -> None:
        self.kind = kind

    def __call__(self, number: int, frame: Any) -> None:
        raise self.kind("from the handler")


@pytest.mark.parametrize("kind", [Timeout, RuntimeError, TypeError])
@pytest.mark.parametrize("make", [Handler, lambda kind: functools.partial(_raise, kind)], ids=["object", "partial"])
def test_what_a_handler_raises_in_a_description_reaches_the_program(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], make: Any
) -> None:
    monkeypatch.setattr(describe, "text", lambda *_args: signal.raise_signal(signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, make(kind))
    try:
        with pytest.raises(kind, match="from the handler"):
            torch.relu(torch.ones(17, 3))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert recorder.depth == 0


class Odd(torch.Tensor):
    """A user's class whose properties fail."""

    @property
    def layout(self) -> Any:  # type: ignore[override]
        raise Timeout("the property's own")


def test_a_failure_of_the_user_s_class_in_a_description_does_not(recorder: Recorder) -> None:
    odd = torch.ones(2).as_subclass(Odd)
    recorder.clear()
    torch.relu(odd)
    assert recorder.ops == ["torch.relu"]


@pytest.mark.parametrize(
    ("module", "kind", "outside"),
    [
        ("pyprof.capture.describe", Timeout, True),
        ("pyprof.capture.describe", TypeError, False),
        ("user", Timeout, False),
    ],
)
def test_what_another_thread_raises_in_our_code_reaches_the_program(
    module: str, kind: type[Exception], outside: bool
) -> None:
    """Neither our code nor a C function that it calls raises an exception of a class of the program's own."""
    with pytest.raises(kind) as raised:
        exec("raise kind", {"__name__": module, "kind": kind})  # noqa: S102
    assert is_from_outside(raised.value) is outside
