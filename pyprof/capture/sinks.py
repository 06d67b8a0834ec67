"""Sinks, which receive ranges: NVTX for an attached tool, PyTorch's profiler for the embedded collector, or both.

An `Entry` is one text; it is made once per distinct call and pushed many times. To push one:

    if entry.sink is not sink:
        sink.bind(entry)
    token = entry.push()
    try: ...
    finally: pop(token)   # on the same thread

The hot paths (mode.py, layers.py) inline this code, since each Python call takes a tenth of a microsecond.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from threading import current_thread, get_ident
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyprof.capture.same_calls import SameCall

_REGISTERED_MOST = 100_000  # NVTX never frees a registered string, and a program may have new shapes at each step
_TOO_MANY = "pyprof: this program made more than 100,000 different calls; the later ones all have this text"
_NUMBERS = itertools.count()  # one sequence per process, so that two collectors never use the same token


class Entry:
    """One text to push, bound to the sink that it was last pushed to."""

    __slots__ = ("looked_up", "push", "same_call", "sink", "text", "with_trace")

    push: Callable[[], Any]

    def __init__(self, text: str) -> None:
        self.text = text
        self.sink: Sink | None = None
        self.with_trace: dict[str, Entry] = {}
        self.looked_up = 0  # by its key, for want of a same call; this and what follows belong to same_calls.py
        self.same_call: SameCall | None = None


class Sink(Protocol):
    """A receiver of ranges."""

    def bind(self, entry: Entry) -> None:
        """Set entry.push, which returns None for an NVTX range, or else an object whose __exit__ ends the range."""


def push(sink: Sink, entry: Entry) -> Any:
    if entry.sink is not sink:
        sink.bind(entry)
    return entry.push()


def pop(token: Any) -> None:
    if token is None:
        nvtx_pop()
    else:
        token.__exit__(None, None, None)


@functools.cache
def _nvtx_domain() -> Any:
    import nvtx

    return nvtx.get_domain()


def nvtx_pop() -> None:
    """End this thread's innermost range in NVTX's default domain."""
    _nvtx_domain().pop_range()


class Nvtx:
    """Push/pop ranges in NVTX's default domain, through registered strings."""

    def __init__(self) -> None:
        self._domain = _nvtx_domain()
        self._registered = 0
        self._rest = self._domain.get_event_attributes(message=_TOO_MANY)
        self.pop: Callable[[], None] = self._domain.pop_range

    @staticmethod
    def listening() -> bool:
        """Whether a tool (nsys, nvprof, ncu) was attached to this process when it started."""
        try:
            domain = _nvtx_domain()
        except ImportError:
            return False
        return type(domain).__name__ != "DummyDomain"  # the class that nvtx 0.2.5 to 0.2.15 use without a tool

    def bind(self, entry: Entry) -> None:
        attributes = self._rest
        if self._registered < _REGISTERED_MOST:
            self._registered += 1
            attributes = self._domain.get_event_attributes(message=entry.text)
        entry.push = functools.partial(self._domain.push_range, attributes)
        entry.sink = self


class Profiler:
    """Ranges in PyTorch's profiler. A range's name is a short token, which trace_file.py replaces with the text.

    Kineto (seen in 2.13) does not escape a quote in a name, and writes a backslash as a slash and non-ASCII characters
    as "unknown". With JSON in a name, its file would not be valid JSON. Tokens also cost less than long names.
    """

    live = True  # False from before PyTorch's profiler ends until it has begun again

    def __init__(self, notes_threads: bool = False) -> None:
        from torch._C._profiler import _RecordFunctionFast  # a C++ guard, not an op: jit.trace does not see it

        self._range = _RecordFunctionFast
        self._notes_threads = notes_threads
        self.threads: dict[int, str] = {}  # the names of the threads that opened a range, if they are noted
        self.texts: dict[str, str] = {}  # token -> text

    def bind(self, entry: Entry) -> None:
        token = f"pyprof#{next(_NUMBERS)}"
        self.texts[token] = entry.text
        range_, threads = self._range, self.threads

        def push() -> Any:
            opened = range_(token)
            opened.__enter__()
            if self.live:
                return opened
            # Another thread has ended the profiler since this one looked for a sink. A range that was entered without
            # a profiler raises where it is left under the next one (2.13).
            opened.__exit__(None, None, None)
            return nullcontext()

        def push_and_note() -> Any:
            if get_ident() not in threads:
                threads[get_ident()] = current_thread().name
            return push()

        entry.push = push_and_note if self._notes_threads else push
        entry.sink = self


class Both:
    """One range in two sinks."""

    def __init__(self, outer: Sink, inner: Sink) -> None:
        self._outer, self._inner = outer, inner

    def bind(self, entry: Entry) -> None:
        outer, inner = Entry(entry.text), Entry(entry.text)
        self._outer.bind(outer)
        self._inner.bind(inner)
        entry.push = functools.partial(_Pair, outer, inner)
        entry.sink = self


class _Pair:
    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: Entry, inner: Entry) -> None:
        self._outer = outer.push()
        self._inner = inner.push()

    def __exit__(self, *exc_info: object) -> None:
        pop(self._inner)
        pop(self._outer)
