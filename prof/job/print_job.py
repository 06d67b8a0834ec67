"""A job as text: how its ranks keep pace, which one holds the others up and why, and its collectives."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from pyprof.command.terminal_text import WIDEST, cut_to
from pyprof.prof.job.json_document import JobDocument
from pyprof.prof.ranks.pace_records import CollectiveKind, SlowRank
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
from pyprof.quantities import counted, rounded
from pyprof.text import printable

LEAST_NAME = 32  # characters of a collective's name that are shown in any case
TERMS = (
    "exposed: while nothing else runs on the GPU. waiting: until the last rank came. GB/s: the bytes that a rank must "
    "send, per time without the waiting (the bus bandwidth of nccl-tests). What a communicator is for is inferred from "
    "its operations."
)


def job_lines(job: JobDocument, top: int, width: int) -> Iterator[str]:
    """The lines of the whole text: sentences are wrapped, and collectives cut, at ``width`` characters."""
    for line in _paragraphs(job, top):
        margin = " " * (len(line) - len(line.lstrip(" -")))
        yield from textwrap.wrap(line, min(width, WIDEST), subsequent_indent=margin, break_on_hyphens=False) or [""]
    if job.collectives:
        yield from _collectives(job, top, width)
    failed = [each for each in job.files if each.error]
    if failed:
        yield ""
        yield f"Left out, since not readable: {len(failed)} of {counted(len(job.files), 'file')}"
        yield from (f"  {printable(each.file)}: {printable(each.error)}" for each in failed)


def _paragraphs(job: JobDocument, top: int) -> Iterator[str]:
    yield from _head(job)
    yield ""
    path = [*path_sentences(job), ""]
    first = slowed_by_profiler(job) and len(path) > 1
    if first:
        yield from path
    for sentence in profiler_sentences(job):
        yield sentence
        yield ""
    if not job.slow:
        yield from _no_slow_rank(job)
    for slow in job.slow[:top]:
        yield from _slow(job, slow)
        yield ""
    if not first and len(path) > 1:
        yield from path
    if (more := len(job.slow) - top) > 0:
        yield f"Ranks that hold others up for 2% of {whole(job)} or longer, besides these: {more} (--top, --json)."
        yield ""
    yield from _communication(job)


def _head(job: JobDocument) -> Iterator[str]:
    mean = f"{brief_ms(job.step_ns)} ms on average"
    steps = f"{counted(job.steps, 'step')} of {mean}" if job.steps else "no marked steps"
    yield f"{counted(len(job.ranks), 'rank')}: {steps}, {counted(job.kernels, 'GPU operation')}."
    if job.missing:
        yield f"Ranks without a file: {_numbers(job.missing)}."
    yield from _clocks(job)
    sources = {each.rank_from for each in job.files if not each.error}
    if sources != {"the capture"}:
        yield f"The ranks' numbers come from {' and '.join(sorted(sources))}."


def _clocks(job: JobDocument) -> Iterator[str]:
    """How certain it is which instants of the ranks are the same."""
    known = [clock.within_ns for clock in job.clocks[1:] if clock.within_ns is not None]
    if known:
        some = "" if len(known) == len(job.ranks) - 1 else f" of {len(known) + 1} ranks"
        yield f"The clocks{some} are aligned by the ends of collectives, within {rounded(max(known) / 1e3, 3)} µs."


def _no_slow_rank(job: JobDocument) -> Iterator[str]:
    if any(kind.wait_ns is not None for kind in job.collectives):
        yield f"No rank holds the others up for 2% of {whole(job)} or longer."
    elif job.collectives:
        yield "Which rank is waited for is unknown: no communicator has all its ranks here with the same calls."
    elif job.communication is not None and job.communication.ns:
        yield "Which kernels of communication belong together is not recorded, so the ranks cannot be compared."
    else:
        yield "The captures hold no collectives, so the ranks cannot be compared."
    yield ""


def _slow(job: JobDocument, slow: SlowRank) -> Iterator[str]:
    yield held_sentence(slow, job)
    if slow.wait_ns > 1.1 * slow.held_ns:
        yield f"  Its collectives take them {brief_ms(slow.wait_ns)} ms longer; beside a part of that, other work runs."
    yield f"  It arrives last at {counted(slow.times, 'collective')}. Compared with the mean of the others,"
    if not slow.causes:
        yield f"  {NOTHING}."
    for cause in slow.causes:
        yield f"  - {cause_text(cause, job)}"
        yield from (f"      {brief_ms(ns):>8} ms  {where}" for ns, where in places(cause))


def _communication(job: JobDocument) -> Iterator[str]:
    found = job.communication
    if found is None:
        return
    waiting = "" if found.held_ns is None else f", {brief_ms(found.held_ns)} ms of that waiting for other ranks"
    exposed = f"{brief_ms(found.exposed_ns)} ms of it exposed"
    yield f"Communication takes {brief_ms(found.ns)} ms {_unit(job)}, {exposed}{waiting}."
    if job.bubbles:
        yield bubble_sentence(job)
    if job.experts is not None:
        yield expert_sentence(job.experts, job.steps > 0)
    yield ""


def _unit(job: JobDocument) -> str:
    return "per step and rank" if job.steps else "per rank"


def _collectives(job: JobDocument, top: int, width: int) -> Iterator[str]:
    yield f"Collectives, {_unit(job)}:"
    head = f"{'ms':>9}  {'exposed':>8}  {'waiting':>8}  {'GB/s':>6}  {'calls':>7}  {'ranks':>5}"
    yield f"{head}  collective (communicator)"
    for kind in job.collectives[:top]:
        wait = "?" if kind.wait_ns is None else brief_ms(kind.wait_ns)
        rate = "?" if not kind.bus_gbps else f"{kind.bus_gbps:.4g}"
        line = f"{brief_ms(kind.ns):>9}  {brief_ms(kind.exposed_ns):>8}  {wait:>8}  {rate:>6}  {rounded(kind.calls):>7}"
        line += f"  {kind.ranks:>5}  "
        yield line + cut_to(_name(kind), max(width - len(line), LEAST_NAME), "middle")
    if (more := len(job.collectives) - top) > 0:
        yield f"{more} more (--top)"
    yield from textwrap.wrap(TERMS, min(width, WIDEST))


def _name(kind: CollectiveKind) -> str:
    groups = f"{kind.groups} communicators" if kind.groups > 1 else kind.group
    parallel = {"": "", "sharded": "sharded data parallel"}.get(kind.kind, f"{kind.kind} parallel")
    told = ", ".join(filter(None, (groups, parallel)))
    return printable(f"{kind.op} ({told})" if told else kind.op)


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown} and {len(numbers) - 8} more" if len(numbers) > 8 else shown
