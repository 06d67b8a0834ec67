"""The JSON document of prof.py --advise --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from typing import Annotated

from pyprof.command.json_schema import Record, doc
from pyprof.prof.advice.advised import AbstainedRule, Advised, StepTime, UnsureChange
from pyprof.prof.advice.card import Advice
from pyprof.prof.advice.report import host_ms
from pyprof.table.losses import Loss


class AdviceDocument(Record):
    """The document of --advise: the advised changes and their savings."""

    step_ms: Annotated[float, doc("what a step takes as captured; the whole capture where it marks no steps", "ms")]
    incomplete: Annotated[
        list[Loss],
        doc("what the capture has lost, where it lacks records: then there is no advice, because it would be false"),
    ]
    busy_ms: Annotated[float | None, doc("how much of it the GPU works; null in an incomplete capture", "ms")]
    host_ms: Annotated[
        float | None,
        doc(
            "what the host needs for it without a profiler, estimated; null: launches are not timed, or the capture is "
            "incomplete",
            "ms",
        ),
    ]
    steps: Annotated[int, doc("how many the capture marks; 0: none, and a step is the whole capture")]
    now: Annotated[StepTime | None, doc("the step without the profiler, by the replay; null: the run is not replayed")]
    measured: Annotated[bool, doc("whether that time was measured without the profiler; otherwise it is an estimate")]
    not_replayed: Annotated[str, doc("why the savings are sums of each rule and no replay; empty: they are replayed")]
    together_ms: Annotated[
        float, doc("what all pieces save a step together: each after those before it; of sums, at most", "ms")
    ]
    advice: Annotated[list[Advice], doc("the greatest saving first")]
    abstained: Annotated[list[AbstainedRule], doc("the rules that advise nothing, and why")]
    unsure: Annotated[
        list[UnsureChange],
        doc("changes without a card that save enough on average, or after another one; the greatest saving first"),
    ]


def advice_document(advised: Advised) -> AdviceDocument:
    run = advised.run
    return AdviceDocument(
        step_ms=round(run.step_ns / 1e6, 6),
        incomplete=list(run.incomplete),
        busy_ms=None if run.incomplete else round(run.busy_ns / 1e6, 6),
        host_ms=round(host_ms(run, advised.now)[0], 6) if run.launches_timed and not run.incomplete else None,
        steps=run.marked,
        now=advised.now,
        measured=advised.measured,
        not_replayed=advised.not_replayed,
        together_ms=round(advised.together_ms, 6),
        advice=advised.cards,
        abstained=advised.abstained,
        unsure=list(advised.unsure),
    )
