"""Ops, annotations and Python frames of a torch.profiler trace -> ranges with distinct scopes."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from pyprof.dtypes import OF_CPP
from pyprof.parse.attribute.capture import Ranges
from pyprof.parse.attribute.scope import Kind, Scope, classify
from pyprof.parse.formats.python_frames import frame_scope
from pyprof.parse.formats.shape_text import as_sizes, as_strides
from pyprof.parse.kineto.collectives import message
from pyprof.parse.kineto.event_types import Args, Event
from pyprof.parse.kineto.events import Clock, Events, Threads, args, durations, integers
from pyprof.table.columns import NULL, Bools, Ints, lookup, value_at

NO_TENSOR = frozenset(("", "Scalar", "ScalarList", "GenericList", "nullptr (uninitialized)"))
COMMUNICATION = ("nccl:", "gloo:", "mpi:", "ucc:", "xccl:")  # torch.distributed's annotations: "nccl:all_reduce"


@dataclass(slots=True)
class TraceRanges:
    """The ranges of a trace."""

    ranges: Ranges
    scopes: list[Scope]
    is_op: Bools  # per range: whether it is a cpu_op
    unread: int = 0  # number of distinct calls whose shapes are not lists of sizes


class _Scopes:
    """Distinct scopes, looked up by their raw bytes, so that each is parsed once for any number of calls."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.known: dict[tuple[Any, ...], int] = {}
        self.unread = 0

    def ops(self, events: list[Event], details: list[Args]) -> Ints:
        """The scope of each op."""
        known = self.known
        codes = []
        for event, a in zip(events, details, strict=True):
            dims = bytes(a.dims) or bytes(a.old_dims)
            key = (event.name, dims, bytes(a.types), bytes(a.strides), bytes(a.values), a.collective, message(a))
            code = known.get(key)
            if code is None:
                code = known[key] = len(self.scopes)
                self.scopes.append(op_scope(*key))
                self.unread += bool(_list(dims)) and not _shapes(dims)
            codes.append(code)
        return np.array(codes, np.int64)

    def annotations(self, events: list[Event]) -> Ints:
        """The scope of each annotation. A collective's scope has its tensor sizes, since its op may have none."""
        codes = self.texts([event.name for event in events], annotation_scope)
        for at, event in enumerate(events):
            if event.args is not None and event.name.startswith(COMMUNICATION):
                dims = bytes(event.args.dims) or bytes(event.args.old_dims)
                key = ("", event.name, dims, bytes(event.args.types))
                if dims and key not in self.known:
                    self.known[key] = len(self.scopes)
                    self.scopes.append(collective_scope(event.name, dims, key[-1]))
                codes[at] = self.known.get(key, codes[at])
        return codes

    def texts(self, texts: list[str], make: Any) -> Ints:
        """The scope of each text; -1 if ``make`` returns None."""
        codes: dict[str, int] = {}
        for text in dict.fromkeys(texts):
            scope = make(text)
            codes[text] = -1 if scope is None else len(self.scopes)
            self.scopes += [] if scope is None else [scope]
        return np.array([codes[text] for text in texts], np.int64)


def op_scope(
    name: str, dims: bytes, types: bytes, strides: bytes, values: bytes, collective: object = None, comm: str = ""
) -> Scope:
    """The scope of an op, made from the bytes of its inputs' sizes, types, strides and values.

    The values of ``record_param_comms`` lack its strings; its fifth input, the collective's name, has a separate key.
    """
    sizes = _shapes(dims)
    scope = classify(name, True, _text(sizes))
    if scope.kind not in (Kind.OP, Kind.NODE):
        return scope
    dtypes = [dtype(kind, size) for kind, size in zip(_list(types), sizes, strict=False)]
    arguments = _list(values)
    if isinstance(collective, str) and name == "record_param_comms" and len(arguments) > 4:
        arguments[4] = collective
    return scope._replace(
        dtypes=_text(dtypes), strides=as_strides(_text(_list(strides))), args=_text(arguments), comm=comm
    )


def dtype(kind: object, sizes: object) -> str | list[str]:
    """torch's name of a tensor's type: empty where it is not a tensor, a list for a list of tensors.

    >>> dtype("c10::BFloat16", [2, 3]), dtype("Scalar", []), dtype("TensorList", [[2], [3]])
    ('bfloat16', '', ['', ''])
    """
    if kind == "TensorList":  # the trace does not have the types of the list's tensors
        return [""] * len(sizes) if isinstance(sizes, list) else []
    if not isinstance(kind, str) or kind in NO_TENSOR:
        return ""
    return OF_CPP.get(kind) or kind.removeprefix("c10::").lower()


def _list(raw: bytes) -> list[Any]:
    try:
        value = orjson.loads(raw) if raw else []
    except orjson.JSONDecodeError:  # impossible: the decoder has already accepted the text
        return []
    return value if isinstance(value, list) else []


def _shapes(raw: bytes) -> list[Any]:
    """The shapes; empty if the text is not a list of shapes."""
    shapes = _list(raw)
    return shapes if as_sizes(_text(shapes)) else []


def _text(values: list[Any]) -> str:
    return orjson.dumps(values).decode() if values else ""


def collective_scope(name: str, dims: bytes, types: bytes) -> Scope:
    """The scope of a collective's annotation, with the sizes and types of its input tensors."""
    sizes = _shapes(dims)
    dtypes = [dtype(kind, size) for kind, size in zip(_list(types), sizes, strict=False)]
    return Scope(Kind.COMM, name, sizes=_text(sizes), dtypes=_text(dtypes))


def annotation_scope(name: str) -> Scope:
    return Scope(Kind.COMM, name) if name.startswith(COMMUNICATION) else classify(name, False)


def trace_ranges(events: Events, clock: Clock, threads: Threads) -> TraceRanges:
    """All ranges: ops, then annotations, then the user's frames and modules."""
    scopes = _Scopes()
    op_args = args(events.ops)
    frames = [event.name for event in events.frames]
    parts = (scopes.ops(events.ops, op_args), scopes.annotations(events.annotations), scopes.texts(frames, frame_scope))
    scope = np.concatenate(parts)
    every = [*events.ops, *events.annotations, *events.frames]
    kept = scope >= 0
    if not kept.all():
        every = [event for event, keep in zip(every, kept.tolist(), strict=True) if keep]
        scope = scope[kept]
    start = clock.times(every)
    end = start + np.maximum(durations(every), 0)
    rest = len(every) - len(op_args)
    seq = _padded([a.seq for a in op_args], rest)
    seq[seq < 0] = NULL
    op_id = integers([a.ext for a in [*op_args, *args(every[len(op_args) :])]])
    ranges = Ranges(threads.of(every), start, end, scope, seq, op_id)
    _link(ranges, events, clock, threads, _padded([a.forward_thread for a in op_args], rest))
    return TraceRanges(ranges, scopes.scopes, np.arange(len(every)) < len(op_args), scopes.unread)


def _padded(values: list[Any], rest: int) -> Ints:
    return np.concatenate([integers(values), np.full(rest, NULL, np.int64)])


def _link(ranges: Ranges, events: Events, clock: Clock, threads: Threads, forward_thread: Ints) -> None:
    """Store each backward node's forward op, from the trace's own flows, and the thread of the forward op.

    "Fwd thread id" is PyTorch's own numbering of threads (1, 2, ..). The flows show which thread a number means: for
    the nodes with that number, it is the thread on which most of their forward ops ran.
    """
    forward = _flows(ranges, events, clock, threads)
    ranges.forward_range = forward if np.any(forward >= 0) else None
    pid = threads.processes(ranges.thread)
    linked = np.flatnonzero((forward >= 0) & (forward_thread > 0))
    columns = (pid[linked], forward_thread[linked], ranges.thread[forward[linked]])
    votes = Counter(zip(*(column.tolist() for column in columns), strict=True))
    thread_of = {(owner, number): thread for (owner, number, thread), _ in reversed(votes.most_common())}
    nodes = np.flatnonzero(forward_thread > 0)
    ranges.forward_thread = np.full(len(ranges), -1, np.int64)
    ranges.forward_thread[nodes] = [
        thread_of.get(key, -1) for key in zip(pid[nodes].tolist(), forward_thread[nodes].tolist(), strict=True)
    ]


def _flows(ranges: Ranges, events: Events, clock: Clock, threads: Threads) -> Ints:
    """For each range, the forward op from which a fwdbwd flow leads to it, -1 for none."""
    forward = np.full(len(ranges), -1, np.int64)
    starts = {(event.pid, event.id): event for event in events.flow_starts}
    ends = [event for event in events.flow_ends if (event.pid, event.id) in starts]
    by_length = np.argsort(ranges.end - ranges.start, kind="stable")  # finds the innermost of ranges with equal start
    numbered = by_length[ranges.seq[by_length] != NULL]
    if not ends or not len(numbered):
        return forward

    def ranges_at(flows: list[Event]) -> Ints:
        at = lookup(ranges.thread[numbered], ranges.start[numbered], threads.of(flows), clock.times(flows))
        return value_at(numbered, at, -1)

    source, target = ranges_at([starts[event.pid, event.id] for event in ends]), ranges_at(ends)
    both = (source >= 0) & (target >= 0)
    forward[target[both]] = source[both]
    return forward
