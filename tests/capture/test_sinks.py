"""Ranges in NVTX: texts are registered up to a number, because NVTX frees none."""

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from pyprof.capture import sinks
from pyprof.capture.sinks import Entry, Nvtx

pytestmark = pytest.mark.torch


def test_a_program_with_ever_new_texts_registers_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    registered, pushed = [], []
    domain = SimpleNamespace(
        get_event_attributes=lambda message: registered.append(message) or message,
        push_range=pushed.append,
        pop_range=lambda: None,
    )
    monkeypatch.setattr(sinks, "_nvtx_domain", lambda: domain)
    monkeypatch.setattr(sinks, "_REGISTERED_MOST", 2)
    sink = Nvtx()
    (rest,) = registered
    for text in "abc":
        entry = Entry(text)
        sink.bind(entry)
        entry.push()
    assert registered == [rest, "a", "b"]
    assert pushed == ["a", "b", rest]
