"""Which batch of an inference server launched each row, from the annotations around the forward passes.

``pyprof.serving_range`` reads the annotations. A row belongs to the innermost one around its launch, or around the
launch of the CUDA graph that replayed it, on the launch's own thread. If that one lacks the sums over the requests, and
one around it has them for as many requests in the same phase, the row gets the latter: a trace may have both.
"""

from collections import Counter

import numpy as np

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.nesting import Nesting, innermost, nest
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind
from pyprof.serving_range import SERVING_PHASES, ServingRange, is_like_serving, serving_range
from pyprof.table.columns import Coded, Ints

SHOWN = 60  # characters of a text that a warning quotes


class ServingRanges:
    """The servers' annotations of a capture, nested by thread."""

    def __init__(self, capture: Capture, tree: RangeTree) -> None:
        self.scopes = capture.scopes
        codes = [i for i, scope in enumerate(capture.scopes) if scope.kind == Kind.USER and serving_range(scope.name)]
        chosen = np.flatnonzero(tree.is_first & np.isin(tree.scope, codes)) if codes else np.zeros(0, np.int64)
        self.nesting: Nesting = nest(tree.thread[chosen], tree.start[chosen], tree.whole_end[chosen])
        self.scope = tree.scope[chosen][self.nesting.source]
        self.pid = tree.pid[chosen][self.nesting.source]
        self._capture = capture

    def __len__(self) -> int:
        return len(self.scope)

    def texts(self) -> Coded:
        """Per row of the capture, the annotation of the batch that launched it; empty where there is none."""
        rows = self._capture.rows
        if not len(self):
            return Coded.empty(rows)
        inner = innermost(self.nesting, self._capture.launch_thread, self._capture.launch_time)
        best = np.array([*(self._best(place) for place in range(len(self))), -1], np.int64)
        return Coded(best[inner].astype(np.int32), [scope.name for scope in self.scopes]).used()

    def _best(self, place: int) -> int:
        """The scope that says most about a range's batch: its own, or that of a range around it."""
        own = self._read(place)
        if not own.whole.is_detailed:
            around = int(self.nesting.parent[place])
            while around >= 0:
                other = self._read(around)
                if other.whole.is_detailed and _same_batch(own, other):
                    return int(self.scope[around])
                around = int(self.nesting.parent[around])
        return int(self.scope[place])

    def _read(self, place: int) -> ServingRange:
        found = serving_range(self.scopes[int(self.scope[place])].name)
        assert found is not None
        return found

    def outermost(self) -> Ints:
        """The places of the ranges that no other one contains."""
        return np.flatnonzero(self.nesting.parent < 0)


def _same_batch(own: ServingRange, other: ServingRange) -> bool:
    return own.whole.requests == other.whole.requests and own.phase == other.phase


def with_serving_phases(phase: Coded, texts: Coded) -> Coded:
    """The phases of rows that a server's batch launched: prefill, decode or mixed, instead of forward and other."""
    if not texts.values:
        return phase
    of_text = [found.phase if (found := serving_range(text)) else "" for text in texts.values]
    names = [*dict.fromkeys([*phase.values, *SERVING_PHASES])]
    code = np.array([names.index(name) if name else -1 for name in of_text] + [-1], np.int32)[texts.codes]
    changed = (code >= 0) & (phase.among("forward", "other") | (phase.codes < 0))
    return Coded(np.where(changed, code, phase.codes).astype(np.int32), names)


def unknown_forms(capture: Capture) -> list[str]:
    """A warning about ranges that begin as a server's annotation does and have a form that is not known."""
    unknown = {
        i: scope.name
        for i, scope in enumerate(capture.scopes)
        if scope.kind == Kind.USER and is_like_serving(scope.name) and not serving_range(scope.name)
    }
    counts = Counter(code for code in capture.ranges.scope.tolist() if code in unknown) if unknown else Counter[int]()
    if not counts:
        return []
    text = unknown[counts.most_common(1)[0][0]]
    shown = text if len(text) <= SHOWN else f"{text[: SHOWN - 2]}.."
    number = counts.total()
    ranges = "1 range looks" if number == 1 else f"{number:,} ranges look"
    return [
        f"{ranges} like an inference server's annotation of a form that pyprof does not know ({shown!r}): "
        "its batch is not read; please report the server's version"
    ]
