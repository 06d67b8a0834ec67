"""A module called twice in a row on inputs of one size, such as for guidance: one call on both batches side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pyprof.dtypes import HALF
from pyprof.prof.advice import Run
from pyprof.prof.advice.run_columns import numel
from pyprof.prof.edits.costs import COSTS
from pyprof.prof.edits.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.edits.independent_calls import Joined, independent_calls
from pyprof.prof.edits.rules.host_waits import released_by
from pyprof.prof.edits.rules.merged_rows import START_NS, Merged
from pyprof.prof.edits.scenario import Scenario
from pyprof.prof.limits.devices import parsed
from pyprof.quantities import rounded
from pyprof.table.columns import NULL, Ints

SMALL = 0.9  # of a kernel that is shorter than START_NS: what does not grow with its work
LAYERS = ("linear", "conv1d", "conv2d", "conv3d")


@edit_rule("joined_calls")
def joined_calls(scenario: Scenario) -> Iterator[Proposal]:
    """Calls of one module on inputs of the same size, of which none needs the result of another.

    A capture does not say which tensor an op reads, only how large it is and of which type. So this is known in two
    cases. The results of two calls are taken by the formula of guidance, u + s * (c - u), and then combined with the
    sample. Or, in training, no op of a call takes from outside what may be the result of the call before, a part of
    that, or made of it; and the backward passes of both calls are equal, so that no gradient comes back through
    anything else that one call hands to the next. Then sums of the gradients of its weights say that the module is
    one. A state that is handed on without gradient is not seen. Everything else is left alone, inference too.
    """
    first = scenario
    while first.before is not None:
        first = first.before  # the captured run: earlier changes may have removed the ops that show the data flow
    joined, why = independent_calls(first.run)
    places = _places(first, scenario)
    remaining = [[each for each in (_remaining(each, places) for each in group) if each] for group in joined]
    for group in filter(None, remaining):
        yield _edit(scenario, group)
    if not any(remaining):
        yield Abstained("joined_calls", why or "the calls are one already")


def _places(first: Scenario, now: Scenario) -> Ints:
    """Per row of the first run: the row that it has in the run after edits; -1: it is gone."""
    if first is now:
        return np.arange(now.run.rows)
    there = np.full(len(first.table), -1, np.int64)
    there[now.origin[now.run.origin]] = np.arange(now.run.rows)
    return there[first.origin[first.run.origin]]


def _remaining(joined: Joined, places: Ints) -> Joined | None:
    """The calls after edits: the ops that are left of each of them."""
    rows = _aligned(joined.calls.rows, places)
    if not len(rows[0]):
        return None
    sums = places[np.array(joined.sums, np.int64)]
    return Joined(
        joined.calls._replace(rows=rows), joined.evidence, _aligned(joined.backward, places), sums[sums >= 0].tolist()
    )


def _aligned(calls: list[Ints], places: Ints) -> list[Ints]:
    """The rows that all of these equal calls still have."""
    found = places[np.array(calls, np.int64)]
    return list(found[:, (found >= 0).all(axis=0)])


def _edit(scenario: Scenario, found: list[Joined]) -> Edit:
    run = scenario.run
    merged = Merged([], [], [])
    for each in found:
        for passes in (each.calls.rows, each.backward):
            for rows in zip(*_with_helpers(run, passes), strict=True):
                merged.put(rows, _at_once_ns(run, rows), 1)
        merged.put(each.sums, 0.0, 0)
    rows_, ns, left = merged.arrays()
    copies = rows_[(left == 0) & (run.texts("kind")[rows_] == "memcpy")]
    first = found[0]
    times, name = len(first.calls.rows), ":".join(first.calls.module)
    begins = np.array([each.calls.rows[0][0] for each in found])
    ns[np.isin(rows_, begins)] += START_NS  # of the inputs put side by side
    return Edit(
        rule="joined_calls",
        change=(
            f"Call {name} once in place of {rounded(times)} times in a row: put the inputs side by side with "
            f"torch.cat, and take the result apart with chunk({times})."
        ),
        why=(
            f"In {run.number(len(found), 'place', 'places')}, {name} runs the same {len(first.calls.rows[0])} kernels "
            f"on the same sizes {rounded(times)} times in a row, {rounded(run.ms_of(rows_))} ms per {run.unit}. No "
            f"call needs another's result: {first.evidence}"
        ),
        cost=COSTS["joined_calls"],
        rows=rows_,
        ns=ns,
        left=left,
        added=np.isin(rows_, begins).astype(np.float64),
        deviation=0.2,
        released=released_by(scenario, copies),
        prompt=_prompt(scenario, copies),
    )


def _with_helpers(run: Run, passes: list[Ints]) -> list[list[int]]:
    """The rows of these calls and the helper kernels of their ops, if all calls have the same."""
    number = run.table.ints("opId")
    every = [np.flatnonzero(np.isin(number, number[rows][number[rows] != NULL])) for rows in passes]
    same = len({tuple(run.aten[rows]) for rows in every}) == 1 and len(every[0]) >= len(passes[0])
    return [rows.tolist() for rows in (every if same else passes)]


def _prompt(scenario: Scenario, copies: Ints) -> Ints:
    """The calls of copies that go, for which the host made a tensor: it is made once."""
    calls = scenario.calls(copies)
    calls = calls[calls >= 0]
    return calls[scenario.base.pauses[calls]] if len(calls) else calls


def _at_once_ns(run: Run, rows: Sequence[int]) -> float:
    """What one kernel takes that does the work of these, which are equal."""
    now, times = float(run.dur[list(rows)].sum()), len(rows)
    if _casts_weight(run, rows[0]):
        return now / times
    one, code = now / times, int(run.limits.unit.codes[rows[0]])
    flop, nbytes = float(run.flop[rows[0]]), float(run.nbytes[rows[0]])
    if run.family[rows[0]] in ("gemm", "conv") and code >= 0 and flop > 0 and nbytes == nbytes:
        unit = run.limits.unit.values[code]
        alone = run.product_ns(flop, nbytes, unit)
        more = run.product_ns(times * flop, times * nbytes - (times - 1) * _weight_bytes(run, rows[0]), unit)
        return min(now, one * more / alone) if more == more else now
    return now - (times - 1) * min(START_NS, SMALL * one)


def _weight_bytes(run: Run, row: int) -> float:
    shapes = [shape for shape in run.shapes(row) if len(shape) > 1]
    return numel(shapes[1]) * (2 if run.dtype[row] in HALF else 4) if len(shapes) > 1 else 0.0


def _casts_weight(run: Run, row: int) -> bool:
    """Whether autocast casts a parameter, which has no batch: a copy in a layer, of another shape than its input."""
    shapes = run.shapes(row)
    if run.aten[row] != "copy_" or run.op(row) not in LAYERS or not shapes:
        return False
    of_input = _input_shape(run, row)
    return bool(of_input) and shapes[0] != of_input


def _input_shape(run: Run, row: int) -> list[int]:
    """The shape of the first argument of the layer's call that a row belongs to, from its marker; empty if unknown."""
    for text in reversed(run.listed("marker", row)):
        arguments = (parsed(text) or {}).get("args", []) if isinstance(text, str) else []
        if arguments and isinstance(arguments[0].get("shape"), list):
            return list(arguments[0]["shape"])
    return []
