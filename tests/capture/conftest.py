"""What the capture tests share: a sink that keeps the texts, and a clean end whatever a test did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyprof.capture.sinks import Entry
from pyprof.marker import Marker, parse_marker


class Recorder:
    """A sink. `lines` holds (depth, text) in the order pushed; `depth` is how many are open."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self.depth = 0

    def bind(self, entry: Entry) -> None:
        def push() -> Recorder:
            self.lines.append((self.depth, entry.text))
            self.depth += 1
            return self

        entry.push = push
        entry.sink = self

    def __exit__(self, *exc_info: object) -> None:
        self.depth -= 1

    def clear(self) -> None:
        self.lines.clear()

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.lines]

    @property
    def markers(self) -> list[Marker]:
        found = [parse_marker(text) for text in self.texts if text.startswith("{")]
        assert None not in found, "a marker that does not parse"
        return [marker for marker in found if marker is not None]

    @property
    def ops(self) -> list[str]:
        return [f"{marker.mod}.{marker.op}" for marker in self.markers]

    @property
    def layers(self) -> list[str]:
        return [text.removeprefix("layer:") for text in self.texts if text.startswith("layer:")]


def record(**options: Any) -> Recorder:
    """init() with a recorder in the collector's place."""
    import pyprof
    from pyprof.capture import session

    pyprof.init(**options)
    recorder = Recorder()
    active = session.current()
    assert active is not None
    active.set_profiler(recorder)
    return recorder


@pytest.fixture(autouse=True)
def _undone() -> Iterator[None]:
    """Each test ends without pyprof, and with as many modes as it began with."""
    torch = pytest.importorskip("torch")
    import pyprof

    before = torch._C._len_torch_function_stack()
    yield
    pyprof.deinit()
    assert torch._C._len_torch_function_stack() == before


@pytest.fixture
def recorder() -> Recorder:
    return record()


class Domain:
    """NVTX as a tool sees it."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.seen: list[tuple[int, str]] = []

    def get_event_attributes(self, message: str) -> str:
        return message

    def push_range(self, message: str) -> None:
        self.seen.append((len(self.open), message))
        self.open.append(message)

    def pop_range(self) -> None:
        self.open.pop()


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Domain:
    from pyprof.capture import sinks

    found = Domain()
    monkeypatch.setattr(sinks, "_nvtx_domain", lambda: found)
    return found
