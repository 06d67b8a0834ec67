"""The advice for a capture: its cards, where their savings come from, and why the other rules say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pyprof.command.json_schema import Record, doc
from pyprof.prof.advice.card import CPU_RULES, RULES, Advice
from pyprof.prof.advice.rank import LEAST_SHARE, advise, findings, together_ms
from pyprof.table.columns import Coded

if TYPE_CHECKING:
    from pyprof.prof.advice.run import Run
    from pyprof.table.columns import Ints

NOTHING_FOUND = "nothing in the run is what it looks for, or what it needs is not known (docs/explanation/advice.md)"
TOO_LITTLE = f"what it proposes saves less than {LEAST_SHARE:.1%} of a step, or in one case of ten nothing"
INCOMPLETE = "the capture has lost records, so advice would be false"


class StepTime(Record):
    """The time of a step without a profiler, and the interval that contains it in four cases of five."""

    ms: Annotated[float, doc("mean over what is not known: the host's pace, durations after a change", "ms")]
    low_ms: Annotated[float, doc("one case in ten is below", "ms")]
    high_ms: Annotated[float, doc("one case in ten is above", "ms")]


class AbstainedRule(Record):
    """A rule that proposes nothing."""

    rule: Annotated[str, doc("its name")]
    why: Annotated[str, doc("why it proposes nothing")]


class UnsureChange(Record):
    """A change without a card: it may save nothing, or another change has to be made first."""

    rule: Annotated[str, doc("the name of its rule")]
    title: Annotated[str, doc("the change")]
    saved_ms: Annotated[float, doc("what it saves a step on average, with the change that it needs", "ms")]
    after: Annotated[
        str, doc("the change that has to be made first; empty: none, but it saves nothing in one case of ten")
    ]


@dataclass(frozen=True, eq=False)
class Advised:
    """The advice for a run.

    ``rows``: per card, the rows of the kernel table that it concerns. ``now``: the step without the profiler, by the
    replay; None where ``not_replayed`` says why there is none: then each card's saving is a sum that its rule makes.
    """

    run: Run
    cards: list[Advice]
    rows: list[Ints]
    together_ms: float  # what all cards save together; as a sum: at most
    abstained: list[AbstainedRule]
    now: StepTime | None = None
    measured: bool = False  # whether ``now`` was measured without the profiler
    not_replayed: str = ""
    unsure: Sequence[UnsureChange] = ()  # what would save enough on average, the greatest saving first

    def of_rows(self, rows: int) -> Coded:
        """The column ``advice`` of a table with this many rows: the rules of the cards about a row, best first."""
        found: list[list[str]] = [[] for _ in range(rows)]
        for card, concerned in zip(self.cards, self.rows, strict=True):
            for row in concerned.tolist():
                if card.rule not in found[row]:
                    found[row].append(card.rule)
        return Coded.of([",".join(names) for names in found])


def advised_by_sums(run: Run, why: str) -> Advised:
    """The advice of each rule by itself. ``why``: the reason for which there is no replay."""
    found = findings(run)
    rows = [run.origin[finding.rows] for _, finding in found]
    reason = INCOMPLETE if run.incomplete else run.unfit or NOTHING_FOUND
    rules = CPU_RULES if run.on_cpu else RULES
    silent = [AbstainedRule(name, reason) for name in rules if name not in {rule for rule, _ in found}]
    return Advised(run, advise(run, found), rows, together_ms(run, found), silent, not_replayed=why)
