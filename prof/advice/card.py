"""A rule's finding, the card shown to the user, and the registry of rules."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pyprof.command.json_schema import doc, nan_doc
from pyprof.errors import ModelError
from pyprof.source_path import Place
from pyprof.table.columns import Floats, Ints

if TYPE_CHECKING:
    from pyprof.prof.advice.run import Run

Confidence = Literal["high", "medium", "low"]
Source = Literal["replay", "sum"]


@dataclass(frozen=True, slots=True)
class Advice:
    """A card: one change and its saving. Times are ms per step, or per capture if the capture marks no steps."""

    rule: Annotated[str, doc("its name (docs/explanation/advice.md)")]
    saved_ms: Annotated[float, nan_doc("ms that this change alone saves per step")]
    step_ms: Annotated[
        float,
        nan_doc("ms that a step takes now: without the profiler where a replay says so, else as captured"),
    ]
    kernels: Annotated[float, nan_doc("number of kernels per step that it concerns")]
    time_ms: Annotated[float, nan_doc("ms of GPU time that these take per step now")]
    op: Annotated[str, doc("what the user called, for the kernel with the greatest saving")]
    layer: Annotated[str, doc("its layer")]
    trace: Annotated[str, doc("its line of code; empty: none is known, or none is outside of installed packages")]
    why: Annotated[str, doc("the reason, in numbers")]
    change: Annotated[str, doc("what to write instead")]
    confidence: Annotated[Confidence, doc("how sure the saving is")]
    shares: Annotated[
        tuple[str, ...], doc("rules of better cards about some of the same kernels: their savings do not add up")
    ] = ()
    source: Annotated[
        Source, doc("replay: the step's replay without the change less that with it; sum: what the rule itself adds up")
    ] = "sum"
    low_ms: Annotated[float, nan_doc("in one case of ten, the change saves less; null for a sum", "ms")] = math.nan
    high_ms: Annotated[float, nan_doc("in one case of ten, it saves more; null for a sum", "ms")] = math.nan
    timed: Annotated[float, nan_doc("the share of its kernels' new durations that was measured (--timings)", "1")] = 0.0
    library: Annotated[str, doc("the line of an installed package that it leads to; empty: none")] = ""

    @property
    def place(self) -> Place:
        return Place(self.trace, self.library)


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """The result of a rule for some rows. Amounts are sums over all steps.

    ``change`` begins with the change as a short imperative sentence, the title of the card (``first_sentence``).
    """

    rows: Ints  # into the run's table
    saved_ns: Floats  # per row: the time that the change removes
    why: str
    change: str
    confidence: Confidence
    idle_ns: float = 0.0  # idle time of the GPU that the change saves in addition
    launches: float = 0.0  # number of launches that the change removes; negative if it adds launches
    calls: float | None = None  # number of host calls that the change removes; None: equal to launches


Rule = Callable[["Run"], Iterable[Finding]]
RULES: dict[str, Rule] = {}  # name -> function; of runs on GPUs
CPU_RULES: dict[str, Rule] = {}  # of runs on CPUs alone
F = TypeVar("F", bound=Rule)


def rule(name: str) -> Callable[[F], F]:
    """Register a rule under its public name. If the name is taken, raises ModelError, which names both functions."""
    return _registering(RULES, name)


def cpu_rule(name: str) -> Callable[[F], F]:
    """``rule`` for captures of programs that ran on the CPU alone."""
    return _registering(CPU_RULES, name)


def _registering(rules: dict[str, Rule], name: str) -> Callable[[F], F]:
    def register(function: F) -> F:
        if name in rules:
            raise ModelError(f"{name} has two rules: {rules[name].__qualname__} and {function.__qualname__}")
        rules[name] = function
        return function

    return register


def first_sentence(change: str) -> str:
    """The title of a card: the change up to the first full stop, semicolon or colon outside of parentheses."""
    for match in re.finditer(r"[.;:](?=\s)", change):
        before = change[: match.start()]
        if before.count("(") == before.count(")"):
            return before
    return change.rstrip(".;:")
