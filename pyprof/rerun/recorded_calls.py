"""The distinct calls of a kernel table, with the time that the capture shows for each: what can be called again.

Where a capture records dtypes, strides and values (torch.profiler), a call is one of an aten op, forward or backward.
Where it records only shapes (NVTX ranges), the user's call is taken, from the marker that pyprof made: all kernels of
its forward, or all of its backward.

An op may run other ops that launch kernels of their own, such as ``embedding_dense_backward``, which fills its result
with zeros. Calling it again runs these, too. So their time belongs to it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np

from pyprof.marker import Marker, parse_marker
from pyprof.prof.ops.evaluation import find
from pyprof.prof.ops.model import FAMILY, MATRIX
from pyprof.prof.work.calls import Calls, op_calls
from pyprof.table.columns import Ints, Table

NEAR = 64  # rows before and after an inner op's in which its outer op is looked for
NO_FORM = "the capture has no dtypes and strides (torch.profiler with record_shapes=True has, or call pyprof.init())"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """Calls of one op with the same arguments."""

    op: str  # "aten::mm", or "torch.nn.functional.linear" for the user's call
    direction: str  # "fprop", "bprop", or empty outside of a forward and backward pass
    arguments: tuple[Any, ...]  # of an aten op, in the order of its schema: as models take them
    markers: tuple[Marker, ...]  # of the user's calls around it, outermost first
    calls: int
    ns: int  # of all its kernels in the capture, together
    kernels: tuple[str, ...]  # the names of its kernels, without duplicates
    flop: int | None  # of one call, if known
    is_product: bool  # whether it is a matrix product, by its family
    is_api: bool = False  # whether it is the user's call, and not an op that the dispatcher recorded
    why: str = ""  # why it cannot be called again, if the capture alone tells


def recorded_calls(table: Table, rows: Ints | None = None) -> list[RecordedCall]:
    """The distinct calls of a table, or of some of its rows, in the order of their time in the capture."""
    numbered = op_calls(table)
    owner = owners(table, numbered.number)
    keys: dict[tuple[Any, ...], list[int]] = {}
    first: dict[int, int] = {}  # a row of each call, whose arguments are the call's own
    for row, call in enumerate(numbered.number.tolist()):
        first.setdefault(call, row)
    describe = _Describer(table, numbered)
    for row in range(len(table)) if rows is None else rows.tolist():
        keys.setdefault(describe.key(first[int(owner[row])]), []).append(row)
    found = [describe.call(key, members, owner, first) for key, members in keys.items()]
    return sorted(found, key=lambda call: -call.ns)


class _Describer:
    """Describes the calls that rows belong to."""

    def __init__(self, table: Table, numbered: Calls) -> None:
        self.numbered = numbered
        self.ns = table.ints("kDuration")
        texts = ("aten", "dir", "marker", "dtypes", "sizes", "op", "kind", "reason")
        self.text = {key: table.coded(key).texts() for key in texts}
        self.name = numbered.names.texts()
        self.markers: dict[str, tuple[Marker, ...]] = {"": ()}
        self.forms: dict[int, str] = {}

    def key(self, row: int) -> tuple[Any, ...]:
        """What is equal for all calls of one kind: (op, direction, arguments, is it the user's call, reason)."""
        aten, direction = self.text["aten"][row], self.text["dir"][row]
        if aten and self.text["dtypes"][row]:
            return aten, direction, self._form(row), False, ""
        marker = next(iter(self._markers(row)[-1:]), None)
        if marker is not None and marker.op:
            return f"{marker.mod}.{marker.op}", direction, repr((marker.args, marker.autocast)), True, ""
        why = NO_FORM if aten else ": ".join(filter(None, ("no op is known", self.text["reason"][row])))
        return aten or self.name[row], direction, self.text["sizes"][row], False, why

    def call(self, key: tuple[Any, ...], rows: list[int], owner: Ints, first: dict[int, int]) -> RecordedCall:
        op, direction, _, is_api, why = key
        own = [first[number] for number in dict.fromkeys(owner[rows].tolist())]
        counted = self.numbered.of(own[0])
        return RecordedCall(
            op,
            direction,
            () if is_api else self._arguments(own[0]),
            self._markers(own[0]),
            self._api_calls(own) if is_api else len(own),
            int(self.ns[rows].sum()),
            tuple(dict.fromkeys(self.name[row] for row in rows)),
            counted.flop,
            counted.family in MATRIX or (is_api and FAMILY.get(find(op.rpartition(".")[2]) or "") in MATRIX),
            is_api,
            why,
        )

    def _api_calls(self, own: Iterable[int]) -> int:
        """How often the user's call ran: as often as the one of its ops that takes the most time."""
        calls: dict[tuple[str, str], list[int]] = {}
        for row in own:
            calls.setdefault((self.text["aten"][row], self.text["sizes"][row]), []).append(int(self.ns[row]))
        return len(max(calls.values(), key=sum))

    def _arguments(self, row: int) -> tuple[Any, ...]:
        sizes = self.text["sizes"][row]
        count = len(json.loads(sizes)) if sizes else 0
        return self.numbered.of(row).arguments[:count]

    def _form(self, row: int) -> str:
        """The arguments as a text, made once per distinct signature."""
        signature = int(self.numbered.signature[row])
        if signature not in self.forms:
            self.forms[signature] = repr(self._arguments(row))
        return self.forms[signature]

    def _markers(self, row: int) -> tuple[Marker, ...]:
        text = self.text["marker"][row]
        if text not in self.markers:
            found = (parse_marker(each) for each in json.loads(text))
            self.markers[text] = tuple(replace(each, trace=[]) for each in found if each is not None)
        return self.markers[text]


def owners(table: Table, number: Ints) -> Ints:
    """The call that each row belongs to: its own, or the one of an op that runs this row's op.

    An outer op that launches kernels itself stands, as the innermost op, in a row that was launched directly before or
    after the inner op's, on the same thread.
    """
    lists = {text: tuple(json.loads(text)) for text in table.coded("nodes").values}
    nodes = [lists.get(text, ()) for text in table.coded("nodes").texts()]
    launching = set(nodes)
    outers = {around: _outer(around, launching) for around in launching}
    pid, tid = table.ints("pid"), table.ints("tid")
    order = np.lexsort((table.ints("start"), table.ints("apiStart"), tid, pid)).tolist()
    thread = list(zip(pid.tolist(), tid.tolist(), strict=True))
    owner = number.copy()
    for place, row in enumerate(order):
        outer = outers[nodes[row]]
        if outer:
            after, before = order[place + 1 : place + NEAR], order[max(place - NEAR, 0) : place][::-1]
            found = (_launched_by(outer, nodes, _same(thread, row, side)) for side in (after, before))
            owner[row] = next((number[other] for other in found if other is not None), number[row])
    return owner


def _same(thread: Sequence[tuple[int, int]], row: int, others: Iterable[int]) -> Iterator[int]:
    """The rows up to the first one of another thread."""
    return takewhile(lambda other: thread[other] == thread[row], others)


def _outer(nodes: tuple[str, ...], launching: set[tuple[str, ...]]) -> tuple[str, ...]:
    """The outermost op around this one that launches kernels itself, with what is around it; empty if there is none."""
    prefixes = (nodes[:length] for length in range(1, len(nodes)))
    return next((prefix for prefix in prefixes if prefix in launching and prefix[-1].startswith("aten::")), ())


def _launched_by(outer: tuple[str, ...], nodes: Sequence[tuple[str, ...]], neighbours: Iterable[int]) -> int | None:
    """The nearest of the neighbours that the outer op launched, with nothing but its inner ops in between."""
    for row in neighbours:
        if nodes[row] == outer:
            return row
        if nodes[row][: len(outer)] != outer:
            return None
    return None
