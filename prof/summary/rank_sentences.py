"""Sentences about a job's ranks: which one the others wait for, for how long, and why."""

from collections.abc import Iterator

from pyprof.prof.ranks.path_sentences import path_sentences
from pyprof.prof.ranks.slow_sentences import (
    NOTHING,
    brief_ms,
    bubble_sentence,
    cause_text,
    expert_sentence,
    held_sentence,
    places,
    profiler_sentences,
    slowed_by_profiler,
    whole,
)
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.quantities import counted

MOST = 3  # slow ranks with a sentence of their own


def rank_sentences(summary: Summary) -> Iterator[str]:
    """A sentence per slow rank; or that there is none, where the ranks can be compared."""
    pace = summary.pace
    if pace is None or not pace.known:
        return
    if pace.bubbles and not pace.slow:
        yield f"In collectives, no rank holds the others up for 2% of {whole(pace)} or longer."
    elif not pace.slow:
        yield f"The {len(pace.ranks)} ranks keep pace: none holds the others up for 2% of {whole(pace)} or longer."
    first = slowed_by_profiler(pace)
    if first:
        yield from path_sentences(pace)
    yield from profiler_sentences(pace)
    for slow in pace.slow[:MOST]:
        yield held_sentence(slow, pace)
        for cause in slow.causes:
            where = "; ".join(f"{brief_ms(ns)} ms at {place}" for ns, place in places(cause))
            yield f"Compared with the mean of the others, {cause_text(cause, pace)}{f' ({where})' if where else ''}."
        if not slow.causes:
            yield f"Compared with the mean of the others, {NOTHING}."
    if len(pace.slow) > MOST:
        yield f"{counted(len(pace.slow) - MOST, 'more rank')} hold others up for 2% of {whole(pace)} or longer."
    if pace.bubbles:
        yield bubble_sentence(pace)
    if not first:
        yield from path_sentences(pace)
    if pace.experts is not None:
        yield expert_sentence(pace.experts, pace.steps > 0)
