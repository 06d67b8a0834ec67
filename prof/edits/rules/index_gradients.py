"""Gradients of x[indices], which PyTorch adds up in the order of the sorted indices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.advice import Run
from pyprof.prof.advice.run import START_NS
from pyprof.prof.advice.run_columns import numel
from pyprof.prof.edits.costs import COSTS
from pyprof.prof.edits.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.edits.rules.host_waits import released_by
from pyprof.prof.edits.scenario import Scenario
from pyprof.quantities import rounded
from pyprof.table.columns import Bools

PUT = "_index_put_impl_"
# Of the bandwidth, index_add_ reaches this by atomic additions in float32: 240,000 rows of 256 took 436 µs on an H200.
ADDING = 0.14
LEAST_NS, WORTH = 50_000.0, 2.0
NEAR = 24  # rows before and after the sums that may belong to the same node
KEPT = ("fill_", "zero_")  # what makes the gradient's zeros remains


@edit_rule("index_gradient")
def index_gradient(scenario: Scenario) -> Iterator[Proposal]:
    """The gradient of x[indices] by index_add_ or scatter_add_, as index_select and gather have it.

    The kernels that sort, and the copies and the arithmetic of the indices in the backward pass, go. Left alone are
    gradients of which the sorted sums take no longer than atomic additions would, and those of x[mask].
    """
    run = scenario.run
    groups = list(_groups(run))
    worth = [(rows, expected) for rows, expected in groups if run.dur[rows].sum() > max(WORTH * expected, LEAST_NS)]
    if not worth:
        why = "no gradient of x[indices] is summed up by sorting" if not groups else "sorting takes no longer here"
        yield Abstained("index_gradient", why)
        return
    rows = np.array([row for members, _ in worth for row in members], np.int64)
    ns, left = np.zeros(len(rows)), np.zeros(len(rows))
    first = np.cumsum([0, *(len(members) for members, _ in worth)])[:-1]
    ns[first], left[first] = [expected for _, expected in worth], 1.0
    copies = rows[(run.texts("kind") == "memcpy")[rows]]
    yield Edit(
        rule="index_gradient",
        change=(
            "Take elements by index_select or gather in place of x[indices]: their gradients are added up by "
            "index_add_ and scatter_add_, which sort nothing."
        ),
        why=(
            f"The gradient of {run.number(len(worth), 'indexing sorts', 'indexings sort')} its indices and adds up "
            f"what belongs to each ({run.trace(worth[0][0][0])}): {rounded(run.ms_of(rows))} ms; by atomic additions, "
            f"{rounded(run.ms(float(ns.sum())))} ms are expected"
        ),
        cost=COSTS["index_gradient"],
        rows=rows,
        ns=ns,
        left=left,
        deviation=0.4,
        released=released_by(scenario, copies),
    )


def _groups(run: Run) -> Iterator[tuple[list[int], float]]:
    """(rows, expected ns) of each gradient of an indexing: all rows of its node, the one that adds up first."""
    numbers, steps = run.table.ragged("seqId").lists(), run.table.ints("step")
    adds: Bools = (run.phase == "backward") & (run.aten == PUT)
    node = [(int(run.lane[row]), int(steps[row]), *numbers[row][-1:]) for row in range(run.rows)]
    nodes: dict[tuple[int, ...], list[int]] = {}
    for row in np.flatnonzero(adds).tolist():
        if numbers[row]:
            nodes.setdefault(node[row], []).append(row)
    for key, puts in nodes.items():
        near = range(max(puts[0] - NEAR, 0), min(puts[-1] + NEAR, run.rows))
        mine = [row for row in near if node[row] == key and run.phase[row] == "backward"]
        most = max((numel(shape) for shape in run.shapes(puts[-1])[1:] if numel(shape)), default=0)
        masked = "nonzero" in run.aten[mine]
        if most and not masked and run.bandwidth == run.bandwidth:
            mine = [row for row in mine if row in puts or run.largest[row] < most]  # what is done with the indices
            expected = START_NS + 1e9 * 4.0 * most / (ADDING * run.bandwidth)
            longest = max(puts, key=lambda row: run.dur[row])
            yield [longest, *(row for row in mine if row != longest and run.aten[row] not in KEPT)], expected
