"""Turn findings into cards: sums per step, order, threshold, and which cards concern the same kernels."""

from collections.abc import Sequence

import numpy as np

from pyprof.prof.advice.card import CPU_RULES, RULES, Advice, Finding
from pyprof.prof.advice.run import HOST_SURE, Run
from pyprof.quantities import rounded
from pyprof.source_path import NOWHERE

# A card that saves less than either limit is not shown, since launches and clocks alone vary by that much.
LEAST_SHARE = 0.005  # of the step
LEAST_NS = 5000.0  # per step
LIMITED = 0.8  # if a step gets shorter by less than this share of the GPU's saving, the host limits it


def findings(run: Run) -> list[tuple[str, Finding]]:
    """The (rule, finding) pairs above the threshold, the greatest saving first; none if rules cannot judge a run."""
    if run.incomplete or run.unfit:
        return []
    least = max(LEAST_SHARE * run.step_ns, LEAST_NS) * run.steps * run.lanes
    rules = CPU_RULES if run.on_cpu else RULES
    found = [(name, finding) for name, rule in rules.items() for finding in rule(run)] if run.rows else []
    kept = [(name, finding) for name, finding in found if total_ns(run, finding) >= least]
    return sorted(kept, key=lambda pair: -total_ns(run, pair[1]))


def total_ns(run: Run, finding: Finding) -> float:
    """The ns that a finding saves, summed over all steps: at most its rows' time and the idle time around them."""
    calls = finding.launches if finding.calls is None else finding.calls
    saved = run.shorter_ns(float(finding.saved_ns.sum()), finding.launches, calls) + finding.idle_ns
    return min(saved, run.most_ns(finding.rows))


def advise(run: Run, found: Sequence[tuple[str, Finding]] | None = None) -> list[Advice]:
    """The cards, the greatest saving first. ``found``: the ``findings``, if they are known."""
    cards = []
    owners: dict[int, list[str]] = {}  # row -> rules of the earlier cards that concern it
    for name, finding in findings(run) if found is None else found:
        rows = finding.rows[finding.saved_ns > 0].tolist()
        shares = sorted({other for row in rows for other in owners.get(row, ()) if other != name})
        for row in rows:
            owners.setdefault(row, []).append(name)
        cards.append(_card(run, name, finding, tuple(shares)))
    return cards


def limited(run: Run, gpu: float, whole: float) -> str:
    """A sentence for a step that gets shorter by less than the GPU's work, because of the host; else empty.

    ``gpu``, ``whole``: what the GPU's work and the step get shorter by, ms.
    """
    if whole > LIMITED * gpu:
        return ""
    why = "the host may be the limit"
    if run.host_ns > HOST_SURE * run.queued_ns:
        why = "the host is the limit"
    elif HOST_SURE * run.host_ns < run.queued_ns:
        why = "the GPU would then wait longer for the host"
    return f". The GPU's work would fall by {rounded(gpu)} ms, but the step by less, because {why}"


def _card(run: Run, name: str, finding: Finding, shares: tuple[str, ...]) -> Advice:
    # A finding about all rows alike has no op, layer or line to name.
    known = 0 < len(finding.rows) < run.rows or bool((finding.saved_ns > 0).any())
    limit = limited(run, run.ms(float(finding.saved_ns.sum())), run.ms(total_ns(run, finding)))
    best = int(finding.rows[finding.saved_ns.argmax()]) if known else 0
    place = run.place(best) if known else NOWHERE
    return Advice(
        rule=name,
        saved_ms=round(run.ms(total_ns(run, finding)), 6),
        step_ms=round(run.step_ns / 1e6, 6),
        kernels=round(run.count(len(finding.rows)), 3),
        time_ms=round(run.ms(float(run.dur[finding.rows].sum())), 6),
        op=run.op(best) if known else "",
        layer=run.layer(best) if known else "",
        trace=place.line,
        why=run.in_makers_words(finding.why) + limit,
        change=run.in_makers_words(finding.change),
        confidence="medium" if limit and finding.confidence == "high" else finding.confidence,
        shares=shares,
        library=place.library,
    )


def together_ms(run: Run, found: Sequence[tuple[str, Finding]] | None = None) -> float:
    """The ms per step that all cards save together, counting only the greatest saving of each kernel.

    ``found``: the ``findings``, if they are known.
    """
    best = np.zeros(run.rows)
    concerned = np.zeros(run.rows, bool)
    idle = launches = 0.0
    for _, finding in findings(run) if found is None else found:
        np.maximum.at(best, finding.rows, finding.saved_ns)
        concerned[finding.rows] = True
        idle, launches = max(idle, finding.idle_ns), max(launches, finding.launches)
    saved = run.shorter_ns(float(best.sum()), launches, launches) + idle
    return run.ms(min(saved, run.most_ns(np.flatnonzero(concerned))))
