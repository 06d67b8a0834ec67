"""Edits from the rules of --advise that say per kernel what remains of its time, and how many launches go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pyprof.prof.changes.effect.edit import EDIT_RULES, NOTHING_FOUND, Abstained, EditRule, Proposal
from pyprof.prof.changes.effect.finding import RULES, Finding, edit_of
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.kernels.gradients import DENSE, SPARSE_ADAM, SPARSE_SGD
from pyprof.prof.changes.rules.kernels.parameters import Counts, in_loops
from pyprof.prof.changes.rules.kernels.whole_model import COMPILED
from pyprof.table.columns import Ints

# Rule -> standard deviation of the logarithm of the durations that it expects. Of the pairs of programs in
# docs/explanation/advice.md: alignment, attention_backend and cross_entropy are within a tenth of what remains, the
# others within a fifth to a half (fusion).
DEVIATIONS = {
    "alignment": 0.12,
    "attention_backend": 0.15,
    "conv_bias": 0.1,
    "fusion": 0.45,
    "cross_entropy": 0.15,
    "optimizer": 0.15,
    "zero_grad": 0.1,
    "sparse_grad": 0.3,
    "select_in_loop": 0.2,
    "weight_casts": 0.1,
    "communication": 0.4,
}


def _with_helpers(run: Run, finding: Finding) -> Finding:
    """A sparse gradient's finding with the kernels that sort and sum the dense one, which go as well."""
    whole = _with_rows(run, finding, np.flatnonzero(run.mentions("nodes", *DENSE)))
    adam = bool(np.isin(run.aten[finding.rows], ("_foreach_addcdiv_", "addcdiv_", "_fused_adam_")).any())
    remain = (SPARSE_ADAM if adam else SPARSE_SGD) * run.steps * run.lanes
    return replace(whole, launches=len(whole.rows) - remain)


def _with_rows(run: Run, finding: Finding, more: Ints) -> Finding:
    """The finding with these rows, which then go as a whole."""
    others = np.setdiff1d(more, finding.rows)
    rows, saved = np.concatenate([finding.rows, others]), np.concatenate([finding.saved_ns, run.dur[others]])
    return replace(finding, rows=rows, saved_ns=saved, launches=finding.launches + len(others), calls=None)


def with_parameters(run: Run, finding: Finding) -> Finding:
    """A finding on biases with what else each bias is the cause of, tensor by tensor: its zeroing, the sum of its
    gradients, and its part of an optimizer's loop. Of tensors of one length, as many go from each line as there are
    biases of that length.
    """
    steps = run.table.ints("step")
    adding = [row for row in finding.rows.tolist() if _adds_bias(run, row)]
    biases: Counts = Counter((int(steps[row]), (int(run.shapes(row)[0][1]),)) for row in adding)
    more = [row for rows in in_loops(run, biases) for row in rows]
    return _with_rows(run, finding, np.array(more, np.int64))


def _adds_bias(run: Run, row: int) -> bool:
    shapes = run.shapes(row)
    return run.aten[row] in ("add", "add_") and len(shapes) > 1 and len(shapes[0]) >= 4


COMPLETED = {"sparse_grad": _with_helpers, "conv_bias": with_parameters}


def _adapted(name: str, deviation: float) -> EditRule:
    def proposals(scenario: Scenario) -> Iterator[Proposal]:
        run, found = scenario.run, False
        if name in COMPILED and any(edit.rule == "compile" for edit in scenario.edits):
            yield Abstained(name, "the plan compiles the whole model")
            return
        for finding in RULES[name](run) if run.rows else ():
            if not bool((finding.saved_ns > 0).any()):
                continue
            whole = COMPLETED[name](run, finding) if name in COMPLETED else finding
            found = True
            yield edit_of(run, name, whole, deviation)
        if not found:
            yield Abstained(name, NOTHING_FOUND)

    return proposals


for _name, _deviation in DEVIATIONS.items():
    EDIT_RULES[_name] = _adapted(_name, _deviation)
