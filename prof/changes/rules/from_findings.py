"""Edits from the rules of --advise that say per kernel what remains of its time, and how many launches go."""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.prof.changes.effect.edit import EDIT_RULES, NOTHING_FOUND, Abstained, EditRule, Proposal
from pyprof.prof.changes.effect.finding import RULES, edit_of
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.kernels.whole_model import COMPILED

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


def _adapted(name: str, deviation: float) -> EditRule:
    def proposals(scenario: Scenario) -> Iterator[Proposal]:
        run, found = scenario.run, False
        if name in COMPILED and any(edit.rule == "compile" for edit in scenario.edits):
            yield Abstained(name, "the plan compiles the whole model")
            return
        for finding in RULES[name](run) if run.rows else ():
            if not bool((finding.saved_ns > 0).any()):
                continue
            found = True
            yield edit_of(run, name, finding, deviation)
        if not found:
            yield Abstained(name, NOTHING_FOUND)

    return proposals


for _name, _deviation in DEVIATIONS.items():
    EDIT_RULES[_name] = _adapted(_name, _deviation)
