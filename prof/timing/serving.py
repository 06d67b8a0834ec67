"""An inference server's batches: prefill beside decode, tokens per second and time per output token.

The annotations of the batches say how many requests and tokens each has (``pyprof.serving_range``), and a step is one
batch. A request in its generation phase gets one token per step; with speculative decoding the step computes several,
and how many of them are kept is not on record. So output tokens are only counted where a step computes one per request.
The tokens that end a prompt are not counted either, because a prompt may be computed in several steps.

Several processes may share the work of one batch (tensor parallelism) or have batches of their own (data parallelism),
and annotations do not say which. So the figures are those of the process with the lowest rank and number.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc, nan_doc
from pyprof.prof.limits.roofline import Roofline
from pyprof.prof.timing.usage import bandwidth_ns, matrix_ns
from pyprof.prof.work.annotate import Annotation
from pyprof.serving_range import MIXED, NOBODY, SERVING_PHASES, ServingRange, serving_range
from pyprof.table.columns import NULL, Ints, Table


@dataclass(frozen=True, slots=True)
class ServingPhase:
    """The batches of one phase, all on one process's GPU. Unknown numbers are None or NaN."""

    phase: Annotated[str, doc("prefill, decode or mixed")]
    steps: Annotated[int, doc("number of batches")]
    requests: Annotated[float, nan_doc("requests per batch, the median")]
    context_tokens: Annotated[int | None, doc("tokens of prompts that the batches compute")]
    generation_tokens: Annotated[int | None, doc("tokens that they compute for requests that generate")]
    ns: Annotated[int, doc("time of these steps, each until the next one begins", "ns")]
    step_ns: Annotated[float, doc("the median step", "ns")]
    output_tokens: Annotated[int | None, doc("tokens generated; null where a step computes several per request")]
    output_token_ns: Annotated[
        float, nan_doc("ns, median time per output token (TPOT) of a request: a step that computes one for each")
    ]
    rows_ns: Annotated[int, doc("time of the operations that the steps launch", "ns")]
    flops_known_ns: Annotated[int, doc("of this, of those whose FLOPs are counted", "ns")]
    bytes_known_ns: Annotated[int, doc("of this, of those whose bytes are counted", "ns")]
    mfu: Annotated[float, nan_doc("%, FLOPs of matrix products at the peak of each one's unit, of the steps' time")]
    mbu: Annotated[float, nan_doc("%, bytes that the operations need at the GPU's bandwidth, of the steps' time")]
    has_sums: Annotated[
        bool, doc("whether the annotations have the sums over the requests from which attention's work follows")
    ]

    @property
    def tokens_per_s(self) -> float:
        """Tokens that are computed per second, of prompts and of requests that generate; NaN if unknown."""
        if self.context_tokens is None or self.generation_tokens is None or not self.ns:
            return math.nan
        return (self.context_tokens + self.generation_tokens) / self.ns * 1e9


def serving_phases(
    table: Table, annotation: Annotation, limits: Roofline, steps: Mapping[int, int]
) -> tuple[ServingPhase, ...]:
    """The phases in the order of ``SERVING_PHASES``; none without annotations. ``steps``: each one's number and ns."""
    texts = table.coded("serving")
    annotated = np.flatnonzero((texts.codes >= 0) & (table.ints("step") != NULL))
    if not len(annotated):
        return ()
    process = table.ints("rank"), table.ints("pid")
    first = annotated[np.lexsort((process[1][annotated], process[0][annotated]))[0]]
    mine = (process[0] == process[0][first]) & (process[1] == process[1][first])
    batches = _batches(table, annotated[mine[annotated]])
    found = []
    for phase in SERVING_PHASES:
        of_phase = {step: batch for step, batch in batches.items() if batch.phase == phase and step in steps}
        if of_phase:
            rows = np.flatnonzero(mine & np.isin(table.ints("step"), list(of_phase)))
            times = [steps[step] for step in of_phase]
            found.append(_phase(phase, list(of_phase.values()), times, rows, table, annotation, limits))
    return tuple(found)


def _batches(table: Table, rows: Ints) -> dict[int, ServingRange]:
    """Each step's batch; a step of torch.profiler may have several, which count as one."""
    texts, numbers = table.coded("serving"), table.ints("step")[rows]
    pairs = sorted(set(zip(numbers.tolist(), texts.codes[rows].tolist(), strict=True)))
    found: dict[int, ServingRange] = {}
    for step, code in pairs:
        batch = serving_range(texts.values[code])
        if batch is not None:
            found[step] = _both(found[step], batch) if step in found else batch
    return found


def _both(a: ServingRange, b: ServingRange) -> ServingRange:
    phases = {a.phase, b.phase} - {""}
    phase = phases.pop() if len(phases) == 1 else (MIXED if phases else "")
    return ServingRange(a.engine, a.context + b.context, a.generation + b.generation, a.whole + b.whole, phase)


def _phase(
    phase: str,
    batches: list[ServingRange],
    times: list[int],
    rows: Ints,
    table: Table,
    annotation: Annotation,
    limits: Roofline,
) -> ServingPhase:
    duration, span = table.ints("kDuration")[rows], sum(times)
    requests = [batch.whole.requests for batch in batches if batch.whole.requests is not None]
    one_each = [(batch, ns) for batch, ns in zip(batches, times, strict=True) if _is_one_each(batch)]
    products, moved = matrix_ns(limits, annotation, rows), bandwidth_ns(limits, rows)
    return ServingPhase(
        phase=phase,
        steps=len(batches),
        requests=median(requests) if requests else math.nan,
        context_tokens=_sum(batch.context.tokens for batch in batches),
        generation_tokens=_sum(batch.generation.tokens for batch in batches),
        ns=span,
        step_ns=median(times),
        output_tokens=_sum(
            batch.generation.tokens if _is_one_each(batch) or batch.generation == NOBODY else None for batch in batches
        ),
        output_token_ns=median(ns for _, ns in one_each) if one_each else math.nan,
        rows_ns=int(duration.sum()),
        flops_known_ns=int(duration[annotation.flops[rows] != NULL].sum()),
        bytes_known_ns=int(duration[annotation.bytes[rows] != NULL].sum()),
        mfu=100 * products / span if span else math.nan,
        mbu=100 * moved / span if span else math.nan,
        has_sums=all(batch.whole.is_detailed for batch in batches),
    )


def _is_one_each(batch: ServingRange) -> bool:
    """Whether the step computes one token for each request that generates, and there is one."""
    return bool(batch.generation.requests) and batch.generation.tokens == batch.generation.requests


def _sum(values: Iterable[int | None]) -> int | None:
    numbers = list(values)
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
