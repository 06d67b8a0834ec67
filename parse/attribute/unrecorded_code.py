"""Tie the calls of graphs that were compiled without pyprof to records from elsewhere: inductor's debug folder.

PyTorch's profiler has a range around the code of a compiled graph, ``## Call CompiledFxGraph KEY ##`` (2.5 to 2.13),
which no file of the folder names. So the graph of a range is the one whose calls fit what ran in it: the same Triton
kernels, each as often. If several fit, those whose library calls fit as well are left; if their records still differ,
no call is tied.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from pyprof.compiled_record import CompiledRecord, op_name
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.compiled_code import Origins, called_within
from pyprof.parse.attribute.range_tree import RangeTree

RANGE = "## Call CompiledFxGraph "


def name_unrecorded(capture: Capture, tree: RangeTree) -> None:
    """Give the ops that such a graph's code calls a scope that says where they come from."""
    if not capture.unrecorded:
        return
    graphs = Graphs(capture.unrecorded)
    codes = [code for code, scope in enumerate(tree.scopes) if scope.name.startswith(RANGE)]
    origins = Origins(tree.scopes)
    ran = 0
    for _, ops in called_within(tree, np.isin(tree.scope, codes)):
        called = tree.scope[ops].tolist()
        ran += 1
        if any(tree.scopes[code].origin for code in called):  # pyprof has recorded it
            continue
        name = graphs.fitting([tree.scopes[code].name for code in called])
        if name:
            tree.scope[ops] = origins.scopes_of(name, capture.unrecorded[name], called)
    tree.scope_kind = np.fromiter((scope.kind for scope in tree.scopes), np.int64, len(tree.scopes))
    capture.warnings += graphs.warnings(ran)


class Graphs:
    """The graphs of a folder, and which of them ran."""

    def __init__(self, records: Mapping[str, CompiledRecord]) -> None:
        self._records = records
        self._calls = {name: Counter(op_name(call.kernel) for call in one.calls) for name, one in records.items()}
        self._triton = {name: _triton(calls, records[name].dtypes) for name, calls in self._calls.items()}
        self._kernels = {kernel for own in self._triton.values() for kernel in own}
        self._known: dict[tuple[str, ...], str] = {}
        self._unfitting = self._ambiguous = 0

    def fitting(self, ops: Sequence[str]) -> str:
        """The name of the graph whose code calls these ops; empty if there is none, or if several fit."""
        key = tuple(ops)
        if key not in self._known:
            ran = Counter(ops)
            triton = {op: count for op, count in ran.items() if op in self._kernels or op.startswith("triton_")}
            fitting = [name for name, own in self._triton.items() if own == triton]
            exact = [name for name in fitting if all(ran[op] == count for op, count in self._calls[name].items())]
            self._known[key] = self._only(exact or fitting)
        return self._known[key]

    def _only(self, names: Sequence[str]) -> str:
        if not names:
            self._unfitting += 1
            return ""
        if any(self._records[name] != self._records[names[0]] for name in names):
            self._ambiguous += 1
            return ""
        return names[0]

    def warnings(self, ran: int) -> list[str]:
        if not ran:
            return [
                f'inductor\'s folder is of no use: the capture has no range "{RANGE.strip()}" (PyTorch 2.5 or later)'
            ]
        found = []
        if self._unfitting:
            found.append(f"{self._unfitting:,} compiled graphs that ran are not in inductor's folder")
        if self._ambiguous:
            found.append(
                f"{self._ambiguous:,} compiled graphs that ran fit several graphs of inductor's folder: not tied"
            )
        return found


def _triton(calls: Counter[str], dtypes: Mapping[str, object]) -> dict[str, int]:
    return {kernel: count for kernel, count in calls.items() if kernel in dtypes or kernel.startswith("triton_")}
