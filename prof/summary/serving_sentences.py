"""What the summary says of an inference server's batches: sentences, and the cells of a table."""

import math
from collections.abc import Iterator

from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.timing.serving import ServingPhase
from pyprof.quantities import counted, ms, percent
from pyprof.serving_range import DECODE, PREFILL

NEARLY = 0.99  # share of the time; an amount that is known for less is at least so much
NO_SUMS = (
    "Annotations of the server lack the sums over the requests' lengths, so attention over its cache is not counted: "
    "vLLM writes them with detailed_trace_annotation, SGLang with detailed_annotations."
)
TINY = 0.05  # %, which would be rounded to 0.0
HEAD = ("phase", "steps", "requests", "prompt", "new", "step", "tokens/s", "TPOT", "MFU", "MBU")
NAMES = {PREFILL: "Prefill", DECODE: "Decode", "mixed": "Mixed batches"}


def serving_sentences(summary: Summary) -> Iterator[str]:
    """Each phase's batches, their tokens per second and the time per output token."""
    for part in summary.serving:
        text = f"{NAMES[part.phase]}: {counted(part.steps, 'step')}"
        if not math.isnan(part.requests):
            text += f" of {counted(round(part.requests), 'request')}"
        text += f", {ms(part.step_ns)}{' (medians)' if part.steps > 1 else ''}"
        yield f"{text}; {'; '.join(_rates(part))}."
    if not all(part.has_sums for part in summary.serving):
        yield NO_SUMS


def _rates(part: ServingPhase) -> Iterator[str]:
    if math.isnan(part.tokens_per_s):
        yield "how many tokens it computes is not on record"
        return
    what = {PREFILL: "tokens of prompts", DECODE: "tokens"}.get(part.phase, "tokens of prompts and new ones")
    yield f"{_number(part.tokens_per_s)} {what} per second"
    if not math.isnan(part.output_token_ns):
        yield f"{ms(part.output_token_ns)} per output token of a request (TPOT)"
    elif part.output_tokens is None:
        yield "several tokens per request in a step: how many of them are kept is not on record"
    if part.phase == DECODE and not math.isnan(part.mbu):
        yield f"the bytes that it needs take {cell(part.mbu, part.bytes_known_ns, part)} of the time (MBU)"


def serving_rows(summary: Summary) -> list[tuple[str, ...]]:
    """The table's rows under ``HEAD``."""
    return [
        (
            part.phase,
            f"{part.steps:,}",
            _number(part.requests),
            _number(part.context_tokens),
            _number(part.generation_tokens),
            ms(part.step_ns),
            _number(part.tokens_per_s),
            "" if math.isnan(part.output_token_ns) else ms(part.output_token_ns),
            cell(part.mfu, part.flops_known_ns, part),
            cell(part.mbu, part.bytes_known_ns, part),
        )
        for part in summary.serving
    ]


def cell(value: float, known_ns: int, part: ServingPhase) -> str:
    """A utilisation in %; a lower bound if FLOPs or bytes are known for part of the operations' time only."""
    if math.isnan(value):
        return "unknown"
    text = f"{value:.2g}%" if value < TINY else percent(value)
    return text if known_ns >= NEARLY * part.rows_ns else f"≥ {text}"


def _number(value: float | None) -> str:
    return "unknown" if value is None or math.isnan(value) else f"{value:,.0f}"
