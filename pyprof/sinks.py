"""Where ranges go: NVTX for nsys and nvprof, the PyTorch profiler for our own collector, or both.

A sink has `push(entry)`, which returns a token, and `pop(token)`; both on the thread of the range. An `Entry` is one
text; it is made once a distinct call and pushed many times, so each sink leaves its handle for the text in it.
"""

from __future__ import annotations

import itertools
from typing import Any, Protocol

_REGISTERED_MOST = 100_000  # NVTX never frees a registered string, and a program may have new shapes at each step
_TOO_MANY = "pyprof: this program made more than 100,000 different calls; the later ones are not told apart"
_NUMBERS = itertools.count()  # of this process, so that no two collectors give one token to two texts


class Entry:
    """One text to push, and the sinks' handles for it."""

    __slots__ = ("attributes", "text", "token", "with_trace")

    def __init__(self, text: str) -> None:
        self.text = text
        self.attributes: Any = None  # NVTX's
        self.token: str | None = None  # the profiler's
        self.with_trace: dict[str, Entry] = {}


class Sink(Protocol):
    def push(self, entry: Entry) -> Any: ...
    def pop(self, token: Any) -> None: ...


class Nvtx:
    """Push/pop ranges in NVTX's default domain, through registered strings (about 0.1 us a pair untooled)."""

    def __init__(self) -> None:
        import nvtx

        self._domain = nvtx.get_domain()
        self._push = self._domain.push_range
        self._pop = self._domain.pop_range
        self._registered = 0
        self._rest = self._domain.get_event_attributes(message=_TOO_MANY)

    @staticmethod
    def listening() -> bool:
        """Whether a tool (nsys, nvprof, ncu) was attached to this process when it started."""
        try:
            import nvtx
        except ImportError:
            return False
        return type(nvtx.get_domain()).__name__ != "DummyDomain"  # nvtx's own way to say so, 0.2.5 to 0.2.15

    def push(self, entry: Entry) -> Any:
        attributes = entry.attributes
        if attributes is None:
            attributes = entry.attributes = self._attributes(entry.text)
        self._push(attributes)

    def pop(self, token: Any) -> None:
        self._pop()

    def _attributes(self, text: str) -> Any:
        if self._registered >= _REGISTERED_MOST:
            return self._rest
        self._registered += 1
        return self._domain.get_event_attributes(message=text)


class Profiler:
    """Ranges in the PyTorch profiler. They carry a short token; capture.py writes the text in its place.

    Kineto (seen in 2.13) writes a name with a quote unescaped, a backslash as a slash and anything that is not ASCII
    as "unknown": with JSON in a name its file would be no JSON. Tokens also cost less than long names.
    """

    def __init__(self) -> None:
        from torch._C._profiler import _RecordFunctionFast  # a plain C++ guard, no op: jit.trace does not see it

        self._range = _RecordFunctionFast
        self.texts: dict[str, str] = {}  # token -> text

    def push(self, entry: Entry) -> Any:
        token = entry.token
        if token is None or token not in self.texts:
            token = self._new_token(entry)
        range_ = self._range(token)
        range_.__enter__()
        return range_

    def pop(self, token: Any) -> None:
        token.__exit__(None, None, None)

    def _new_token(self, entry: Entry) -> str:
        token = f"pyprof#{next(_NUMBERS)}"
        self.texts[token] = entry.text
        entry.token = token
        return token


class Both:
    """One range in two sinks."""

    def __init__(self, outer: Sink, inner: Sink) -> None:
        self._outer, self._inner = outer, inner

    def push(self, entry: Entry) -> Any:
        outer = self._outer.push(entry)
        return outer, self._inner.push(entry)

    def pop(self, token: Any) -> None:
        self._inner.pop(token[1])
        self._outer.pop(token[0])
