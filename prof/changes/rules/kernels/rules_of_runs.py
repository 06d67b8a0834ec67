"""Rules that need the run alone: what they propose is an edit of a replayed run, and a finding without a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.finding import Finding, edit_of, rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario

BY_NAMES = 0.5  # deviation where only kernels' names tell, so that half of the gain is counted
RunRule = Callable[[Run], Iterator[Proposal]]


def run_rule(name: str) -> Callable[[RunRule], RunRule]:
    """Register a rule under its public name, of runs with a replay and without one."""

    def register(function: RunRule) -> RunRule:
        def edits(scenario: Scenario) -> Iterator[Proposal]:
            return function(scenario.run)

        def findings(run: Run) -> Iterator[Finding]:
            return findings_of(run, function(run))

        edits.__doc__ = findings.__doc__ = function.__doc__
        edit_rule(name)(edits)
        rule(name)(findings)
        return function

    return register


def findings_of(run: Run, proposals: Iterable[Proposal]) -> Iterator[Finding]:
    """The work of the GPU that each edit removes."""
    for edit in proposals:
        if isinstance(edit, Edit):
            yield Finding(edit.rows, run.dur[edit.rows] - edit.ns, edit.why, edit.change)


def by_names(run: Run, name: str, found: Iterable[Finding]) -> Iterator[Proposal]:
    """What a rule finds by the kernels' names, in a capture without any shapes."""
    edits: list[Proposal] = [edit_of(run, name, finding, BY_NAMES) for finding in found]
    nothing = "the capture has no shapes of ops, and no kernel's name shows what it looks for"
    yield from edits or [Abstained(name, nothing)]
