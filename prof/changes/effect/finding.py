"""A rule's finding, the registry of rules, and the edit that does what a finding says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Edit, registering
from pyprof.table.columns import Floats, Ints

if TYPE_CHECKING:
    from pyprof.prof.changes.effect.run import Run


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """The result of a rule for some rows. Amounts are sums over all steps.

    ``change`` begins with the change as a short imperative sentence, the title of the card (``first_sentence``).
    """

    rows: Ints  # into the run's table
    saved_ns: Floats  # per row: the time that the change removes
    why: str
    change: str
    idle_ns: float = 0.0  # idle time that the change saves in addition; of CPU_RULES alone
    launches: float = 0.0  # number of launches that the change removes; negative if it adds launches
    cost: str = ""  # what the change costs; empty: that of COSTS for the rule
    calls: float | None = None  # number of host calls that the change removes; None: equal to launches
    added: float = 0.0  # small ops that launch nothing, by whose time the host needs longer


Rule = Callable[["Run"], Iterable[Finding]]
RULES: dict[str, Rule] = {}  # name -> function; of runs on GPUs
CPU_RULES: dict[str, Rule] = {}  # of programs that ran on the CPU alone
rule, cpu_rule = registering(RULES), registering(CPU_RULES)


def edit_of(run: Run, rule: str, finding: Finding, deviation: float) -> Edit:
    """An edit that does what a finding says.

    Launches that vanish are those of the kernels that vanish; where fewer kernels remain than before, but it is not
    said which, each keeps the same share of its launch.
    """
    keeps = finding.saved_ns > 0  # other rows are only mentioned
    rows, saved = finding.rows[keeps], finding.saved_ns[keeps]
    calls = finding.launches if finding.calls is None else finding.calls
    share = 1 - min(max(calls, 0.0) / max(len(rows), 1), 1.0)
    ns = np.maximum(run.dur[rows] - saved, 0.0)
    # A kernel of which a hundredth remains is gone; its launch goes with it where the rule counts launches.
    ns[ns < 0.01 * run.dur[rows]] = 0.0
    return Edit(
        rule=rule,
        change=finding.change,
        why=finding.why,
        cost=finding.cost or COSTS.get(rule, ""),
        rows=rows,
        ns=ns,
        left=np.full(len(rows), share),
        keeps_views=True,
        added=np.full(len(rows), (max(-calls, 0.0) + finding.added) / max(len(rows), 1)),
        deviation=deviation,
    )
