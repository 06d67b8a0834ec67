"""The JSON document of prof.py --advise --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pyprof.command.json_schema import Record, doc
from pyprof.prof.advice.card import Advice
from pyprof.table.losses import Loss

if TYPE_CHECKING:
    from pyprof.prof.advice import Run


class AdviceDocument(Record):
    """The document of --advise: the advised changes and their savings."""

    step_ms: Annotated[float, doc("what a step takes; the whole capture where it marks no steps", "ms")]
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
    together_ms: Annotated[float, doc("what all pieces save a step at most, together", "ms")]
    advice: Annotated[list[Advice], doc("the greatest saving first")]


def advice_document(run: Run, cards: Sequence[Advice]) -> AdviceDocument:
    from pyprof.prof.advice import together_ms

    return AdviceDocument(
        step_ms=round(run.step_ns / 1e6, 6),
        incomplete=list(run.incomplete),
        busy_ms=None if run.incomplete else round(run.busy_ns / 1e6, 6),
        host_ms=round(run.host_ns / 1e6, 6) if run.launches_timed and not run.incomplete else None,
        steps=run.marked,
        together_ms=round(together_ms(run), 6),
        advice=list(cards),
    )
