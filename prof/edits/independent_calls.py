"""Calls of one module that do not need each other's results, though they follow each other: how a capture shows it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from pyprof.prof.advice import Run
from pyprof.prof.advice.run_columns import numel
from pyprof.prof.edits.module_calls import MOST, Calls, calls_in_a_row
from pyprof.prof.edits.recurrent_cells import SAMPLED
from pyprof.prof.edits.sizes_of_results import made_by, may_be_one, taken_by, taken_from_outside, traced
from pyprof.table.columns import NULL, Ints

# What the user calls in a module that may change what its next call computes: it writes into tensors that stay, reads
# values, or hands a state from call to call.
WRITES = ("copy_", "__setitem__", "index_copy_", "index_put_", "index_add_", "scatter_", "scatter_add_")
STATES = ("lstm", "gru", "rnn", "_cell")
READS = ("_local_scalar_dense", "nonzero", "unique", "masked_select")
SUMS = ("add", "add_")
SUMMED = 0.5  # of the products' weights, at least, whose gradients autograd adds up
FOLLOWING = 64  # kernels after the second call, at most, in which guidance and the step of the sampler are
# Ops, with how many of their operands are as large as the result.
GUIDANCE = (("sub2", "mul1", "add2"), ("mul1", "mul1", "sub2"))


_KNOWN: WeakKeyDictionary[Run, tuple[list[list[Joined]], str]] = WeakKeyDictionary()


class Joined(NamedTuple):
    """Calls that could be one, how that is known, and their kernels of the backward pass, which may be none."""

    calls: Calls
    evidence: str
    backward: list[Ints]
    sums: list[int]


def independent_calls(run: Run) -> tuple[list[list[Joined]], str]:
    """The calls of each module that could be one, or why there are none. A plan asks many times per run: it is kept."""
    if run not in _KNOWN:
        _KNOWN[run] = _independent(run)
    return _KNOWN[run]


def _independent(run: Run) -> tuple[list[list[Joined]], str]:
    found: dict[tuple[str, ...], list[Joined]] = {}
    why = "no module runs the same ops on the same sizes a few times in a row"
    taken, refused = np.zeros(run.rows, bool), set()
    for series in calls_in_a_row(run):
        if taken[series.rows[0]].any():
            continue  # in a module whose calls become one
        why = f"between the calls of {':'.join(series.module)} are ops that may make the next call's input"
        for calls in _groups(run, series):
            joined = _joined(run, calls)
            if isinstance(joined, str):
                why = joined
                refused.add(calls.module)  # at another place, too, which may look like guidance by chance
                continue
            found.setdefault(calls.module, []).append(joined)
            taken[np.concatenate(calls.rows)] = True
    groups = [group for module, group in found.items() if module not in refused]
    return groups, "" if groups else why


def _groups(run: Run, series: Calls) -> Iterator[Calls]:
    """Parts of a series between gaps in which the next call's input may be made of the result."""
    shut = [at for at, gap in enumerate(series.gaps, 1) if _may_chain(run, series.rows[0], gap)]
    for a, b in pairwise([0, *shut, len(series.rows)]):
        if b - a > 1:
            yield Calls(series.module, series.rows[a:b], series.gaps[a : b - 1])


def _may_chain(run: Run, call: Ints, gap: Ints) -> bool:
    """Whether the kernels of a gap read values, sample, or take the result, other than to cast it."""
    if np.isin(run.aten[gap], (*READS, *SAMPLED)).any():
        return True
    sizes = {each.size for each in made_by(run, int(call[-1]))}
    used = [row for row in gap.tolist() if any(each.size in sizes for each in taken_by(run, row))]
    return any(run.family[row] != "copy" for row in used) and _chained(run, call, gap)


def _chained(run: Run, call: Ints, gap: Ints) -> bool:
    """Whether what a call takes from outside may be the result of the call before, a part of that, or made of it."""
    return may_be_one(traced(run, gap, made_by(run, int(call[-1]))), taken_from_outside(run, call))


def _joined(run: Run, calls: Calls) -> Joined | str:
    """The calls with what is known of them, or why they cannot be one."""
    name = ":".join(calls.module)
    if len(calls.rows) > MOST:
        return f"{name} is called {len(calls.rows)} times in a row: a loop, which may need each result for the next"
    reason = _keeps_state(run, calls.rows[0])
    if reason:
        return f"{name} {reason}"
    guided = len(calls.rows) == 2 and _guided(run, calls)
    if not guided and any(_chained(run, calls.rows[0], gap) for gap in calls.gaps):
        return f"a call of {name} may take the result of the one before: it takes a tensor of such a size and type"
    backward, sums = _backward(run, calls)
    if not _same(run, backward):
        backward = [_after_first(run, *each) for each in zip(calls.rows, backward, strict=True)]
    if not _same(run, backward):
        return f"the calls of {name} have different backward passes"
    graded = bool(len(backward[0]))
    if graded and len(sums) < SUMMED * (len(calls.rows) - 1) * len(_products(run, calls.rows[0])):
        return f"autograd does not add up the gradients of {name}'s weights: the calls may be of several modules"
    if not graded and not guided:
        return f"without gradients, nothing says that the calls of {name} are of one module and hand on no state"
    how = (
        "what follows is u + s * (c - u) of both results, as in guidance"
        if guided
        else "by size and type, no op of a call takes the other one's result, and their backward passes are equal"
    )
    return Joined(calls, how, backward, sums)


def _keeps_state(run: Run, call: Ints) -> str:
    """Why a call may change what the next one computes; empty if nothing says so."""
    ops = {run.op(row) for row in call.tolist()}
    aten = set(map(str, run.aten[call]))
    if ops & {*WRITES} or aten & {*READS, "index_copy_"}:
        return "writes into a tensor, or reads values, so that one call may depend on the one before"
    if any(word in name for name in aten for word in STATES):
        return "has recurrent layers, whose state one call may hand to the next"
    if {"sigmoid", "tanh"} <= {name.rstrip("_") for name in aten}:
        return "has the gates of a recurrent layer, whose state one call may hand to the next"
    norms = [row for row in call.tolist() if "batch_norm" in run.aten[row]]
    if any("True" in (run.listed("args", row)[5:6] or ["True"]) for row in norms):
        return "has batch norms in training: over both batches they have other statistics"
    return ""


def _guided(run: Run, calls: Calls) -> bool:
    """Whether u + s * (c - u) follows, or (1 + s) * c - s * u, of tensors as large as the result, and what it makes is
    then combined with a third such tensor, other than noise: the sample.

    Without that, u might be the sample itself, as in x + s * (model(x, model(x)) - x). Casts are left out.
    """
    sizes = {each.size for each in made_by(run, calls.last)}
    seen: list[str] = []
    for row in range(calls.last + 1, min(calls.last + 1 + FOLLOWING, run.rows)):
        if tuple(run.listed("layer", row)[: len(calls.module)]) == calls.module:
            break
        whole = sum(numel(shape) in sizes for shape in run.shapes(row))
        if whole and run.family[row] != "copy":
            seen.append("noise" if run.family[row] == "rng" else f"{str(run.aten[row]).rstrip('_')}{whole}")
    length = next((len(each) for each in GUIDANCE if tuple(seen[: len(each)]) == each), 0)
    later = seen[length:]
    return bool(length) and sum(name.endswith("2") for name in later) > later.count("noise")


def _backward(run: Run, calls: Calls) -> tuple[list[Ints], list[int]]:
    """The kernels of each call's backward pass, and those that add up gradients of the calls' common weights."""
    number, first = run.node_number, calls.rows[0][0]
    steps, depth = run.table.ints("step"), len(calls.module)
    near = (run.phase == "backward") & (steps == steps[first]) & (run.lane == run.lane[first]) & (run.role != "aux")
    near &= number != NULL
    mine = [row for row in np.flatnonzero(near).tolist() if tuple(run.listed("layer", row)[:depth]) == calls.module]
    every = np.array(mine, np.int64)
    shapes, batch = _weights(run, calls.rows[0]), (run.first_shape(int(first)) or [0])[0]
    starts = [int(number[call][number[call] != NULL].min(initial=1 << 60)) for call in calls.rows]
    ends = [*starts[1:], starts[-1] + max(starts[-1] - starts[-2], 0)]
    sums = np.array([_is_sum(run, row) and _is_parameter(run.first_shape(row), shapes, batch) for row in mine], bool)
    within = [(number[every] >= start) & (number[every] < end) for start, end in zip(starts, ends, strict=True)]
    return [every[mask & ~sums] for mask in within], every[np.any(within, axis=0) & sums].tolist()


def _is_parameter(shape: list[int], weights: list[list[int]], batch: int) -> bool:
    """Whether a parameter of the module has this shape: a vector, a product's weight, or one that a batch shares."""
    return len(shape) == 1 or sorted(shape) in weights or shape[:1] == [1] != [batch]


def _is_sum(run: Run, row: int) -> bool:
    """Whether autograd itself adds two gradients of one tensor, outside of the nodes that compute them."""
    return run.aten[row] in SUMS and not any("Backward" in str(node) for node in run.listed("nodes", row))


def _weights(run: Run, call: Ints) -> list[list[int]]:
    """For each product of a call, its weight's sizes in rising order: a product reads its weight turned."""
    shapes = ([shape for shape in run.shapes(row) if len(shape) > 1] for row in _products(run, call).tolist())
    return [sorted(each[1]) for each in shapes if len(each) > 1]


def _products(run: Run, rows: Ints) -> Ints:
    found: Ints = rows[np.isin(run.family[rows], ("gemm", "conv"))]
    return found


def _same(run: Run, backward: list[Ints]) -> bool:
    words = [[(run.aten[row], str(run.shapes(row))) for row in rows.tolist()] for rows in backward]
    return all(each == words[0] for each in words)


def _after_first(run: Run, call: Ints, backward: Ints) -> Ints:
    """The backward pass without the first product's: the inputs of some calls need no gradient."""
    found: Ints = backward[run.node_number[backward] > run.node_number[_products(run, call)[0]]]
    return found
