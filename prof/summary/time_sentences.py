"""Sentences about time: warm-up, loading, idle time and its causes, steps, communication, layers."""

import math
from collections.abc import Iterator

from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.wording import amount, brief_time, joined, layer_name, operation_name, rate, times
from pyprof.prof.timing.blocking_copies import BlockingCopies
from pyprof.prof.timing.collectives import Collective
from pyprof.prof.timing.loading import Leading
from pyprof.prof.timing.stragglers import RankWaits
from pyprof.prof.timing.waiting import SyncPoint
from pyprof.quantities import counted, ms, share
from pyprof.source_path import Place

MOST = 3  # parts named in a sentence
OUTLIER = 1.2  # a layer that takes more than this times the median is an outlier
LITTLE = 0.01  # share of the time; anything smaller gets no sentence
MOVING = frozenset("to copy_ _to_copy cuda float half bfloat16 double type type_as clone tensor as_tensor".split())
PHASELESS = 0.1  # with more of the time outside of ops, the passes cannot be compared
QUEUED_NS = 100_000  # launching takes 5 to 50 µs; a kernel that waits longer has several launches queued before it


def warm_up_sentences(summary: Summary) -> Iterator[str]:
    """The first steps, and what ran before them."""
    warm = summary.warm_up
    if warm is None:
        return
    rest = f"{counted(warm.rows, 'operation')} in {ms(warm.ns)}"
    if not warm.steps:
        yield f"What ran before the first step is left out of all figures: {rest}."
        return
    first = "the first step" if warm.steps == 1 else f"the first {warm.steps} steps"
    longest = f"{ms(warm.longest_ns)}, {warm.longest_ns / warm.median_ns:,.3g} times the median of the other steps"
    taken = "is taken for warm-up: it" if warm.steps == 1 else "are taken for warm-up: they"
    yield f"{first[0].upper()}{first[1:]} ({longest}) {taken} and what ran before, {rest}, are left out of all figures."


def loading_sentences(summary: Summary) -> Iterator[str]:
    """Copies between host and device: those that load the model, and separately those inside the steps."""
    copies = summary.copies
    if copies is None or not copies.rows:
        return
    count = _copy_counts(copies)
    count_as = "it counts as loading and is" if copies.before_rows == 1 else "they count as loading and are"
    left_out = f"{count_as} left out of all other figures"
    if copies.before_rows == copies.rows:
        subject = "It" if copies.rows == 1 else "All of them"
        rest = f"; {left_out}" if copies.apart else ""
        yield f"{count}. {subject} ran before the first kernel{rest}."
    elif copies.apart:
        moved = f"{amount(copies.before_nbytes, 'B')}, " if copies.before_nbytes else ""
        before = f"{moved}{ms(copies.before_ns)}"
        yield f"{count}. {copies.before_rows:,} of them ({before}) ran before the first kernel; {left_out}."
    elif copies.ns > LITTLE * summary.total_ns:
        yield f"{count}: {share(copies.ns, summary.total_ns)} of {summary.worker} time."


def _copy_counts(copies: Leading) -> str:
    way = copies.ways[0] if len(copies.ways) == 1 else "host-device"
    speed = f", {rate(copies.nbytes, copies.ns)}" if copies.ns and copies.nbytes else ""
    copy, moves, takes = ("copy", "moves", "takes") if copies.rows == 1 else ("copies", "move", "take")
    if not copies.nbytes:  # the capture does not say how much
        return f"{copies.rows:,} {way} {copy} {takes} {ms(copies.ns)}"
    return f"{copies.rows:,} {way} {copy} {moves} {amount(copies.nbytes, 'B')} in {ms(copies.ns)}{speed}"


def queue_sentences(summary: Summary) -> Iterator[str]:
    """How long launched kernels wait for the GPU."""
    waits = summary.waits
    if waits.launches and not summary.on_cpu:
        time = brief_time(waits.queued_ns)
        if waits.queued_ns > QUEUED_NS:
            yield f"Half of the kernels wait in the GPU's queue for {time} or longer after their launch."
        elif waits.queued_ns:
            yield f"Half of the kernels start within {time} of their launch."
        else:
            yield "Half of the kernels start before the call that launches them has returned."


def sync_sentences(summary: Summary) -> Iterator[str]:
    """Calls in which the CPU waits for the GPU, and copies that the driver has to stage (from pageable memory)."""
    waits = summary.waits
    if waits.syncs:
        rows, waited, idle = (sum(getattr(p, key) for p in waits.syncs) for key in ("rows", "waited_ns", "idle_ns"))
        places = [_place(point) for point in waits.syncs]
        more = f" and {counted(len(places) - MOST, 'more place')}" if len(places) > MOST else ""
        yield (
            f"The CPU waits {ms(waited)} of the {_span(summary)} captured for {counted(rows, 'copy')} to the host, and "
            f"the GPU is idle for {ms(idle)} after {'it' if rows == 1 else 'them'}: {', '.join(places[:MOST])}{more}."
        )
    if waits.pageable_rows and waits.pageable_ns > LITTLE * summary.total_ns:
        copies = f"{counted(waits.pageable_rows, 'copy')} from or to pageable memory"
        take = "takes" if waits.pageable_rows == 1 else "take"
        moved = ""
        if waits.pageable_bytes and waits.pageable_ns:
            speed = rate(waits.pageable_bytes, waits.pageable_ns)
            moved = f" ({amount(waits.pageable_bytes, 'B')}, {speed})"
        yield f"{copies} {take} {ms(waits.pageable_ns)}{moved}; pinned memory is faster."


def blocking_sentences(summary: Summary) -> Iterator[str]:
    """Copies to the GPU that hold the CPU, the places that hold it longest, and what to write instead."""
    places = [place for place in summary.waits.blocking_copies if place.held_ns > LITTLE * summary.span_ns]
    if not places:
        return
    rows, held, own, pageable, pinned = (
        sum(getattr(place, key) for place in places) for key in ("rows", "held_ns", "copy_ns", "pageable", "pinned")
    )
    memory = {pageable: " of pageable memory", pinned: " of pinned memory"}.get(rows, "")
    named = [f"{_place(place)[:-1]}, {ms(place.held_ns)})" for place in places[:MOST]]
    pin = "pass non_blocking=True" if rows == pinned else "pin the memory and pass non_blocking=True"
    if not summary.attributed_ns:  # perhaps no program of PyTorch
        pin = "copies of pinned memory by an asynchronous call do not"
    if all(place.op and place.op.rpartition(".")[2] not in MOVING for place in places):  # it copies an operand
        pin = "keep these operands on the GPU"
    hold, take = ("holds", "takes") if rows == 1 else ("hold", "take")
    yield (
        f"{counted(rows, 'copy')}{memory} to the GPU {hold} the CPU for {ms(held)} of {_span(summary)} and {take} "
        f"{ms(own)} on the GPU: {', '.join(named)}; {pin}."
    )


def _span(summary: Summary) -> str:
    """The captured time, which sums over a capture are a part of."""
    return f"{ms(summary.span_ns)}{' of the GPUs together' if len(summary.devices) > 1 else ''}"


def _place(point: SyncPoint | BlockingCopies) -> str:
    line = str(Place(point.trace, point.library))
    where = " at ".join(filter(None, (operation_name(point.op) if point.op else "", line)))
    return f"{where or 'an unknown place'} ({point.rows:,})"


def backward_sentences(summary: Summary) -> Iterator[str]:
    """The time of the backward pass compared with the forward pass."""
    if summary.total_ns - summary.attributed_ns > PHASELESS * summary.total_ns:
        return  # it is not known in which pass the kernels without an op ran
    phases = {part.name: part.ns for part in summary.phases}
    forward, backward = phases.get("forward"), phases.get("backward")
    if forward and backward:
        yield (
            f"The backward pass takes {times(backward / forward)} times as long on the {summary.worker} as the forward "
            f"pass ({ms(backward)} and {ms(forward)})."
        )


def communication_sentences(summary: Summary) -> Iterator[str]:
    total = summary.communication_ns
    if not total:
        return
    of_time = f"{share(total, summary.total_ns)} of {summary.worker} time"
    yield f"Communication takes {ms(total)} ({of_time}){_exposed(summary.exposed_ns, total)}."
    known = [sent for sent in summary.collectives if sent.wire and sent.moving_ns]
    if known:
        wait = "not counting" if any(sent.waits_known for sent in known) else "counting"
        kinds = joined([_collective(sent) for sent in known[:MOST]])
        yield f"The collectives reach this bus bandwidth, {wait} the wait for other ranks: {kinds}."
    if summary.pace is None or not summary.pace.known:
        yield from _straggler_sentences(summary.waiting)


def _exposed(exposed_ns: int | None, total: int) -> str:
    if exposed_ns is None:
        return ""
    exposed = share(exposed_ns, total)
    alone = "all of it" if exposed == "100%" else f"{ms(exposed_ns)} of it ({exposed})"
    return f", {alone} while nothing else runs on the GPU"


def _collective(sent: Collective) -> str:
    among = f" among {sent.ranks} ranks" if sent.ranks else ""
    return f"{rate(sent.wire, sent.moving_ns)} in {sent.rows:,} {sent.op}{among} ({amount(sent.wire, 'B')})"


def _straggler_sentences(waiting: RankWaits) -> Iterator[str]:
    if not waiting.last:
        return
    last = waiting.last[0]
    ranks = {"rank": "ranks", "process": "processes"}[waiting.by]
    yield (
        f"In {counted(waiting.collectives, 'collective')} the {ranks} wait for each other for {ms(waiting.wait_ns)} of "
        f"{ms(waiting.ns)} ({share(waiting.wait_ns, waiting.ns)}). They wait longest for {waiting.by} {last.rank}: "
        f"{ms(last.ns)} in all; it is the last to arrive in {last.times:,} of them."
    )


def layer_sentences(summary: Summary) -> Iterator[str]:
    """Whether the layers that the model repeats take equally long."""
    layers = summary.series
    if layers is None:
        return
    text = f"The {len(layers.numbers)} layers {layer_name(layers.name)} take {ms(int(layers.median_ns))} each (median)"
    outliers = layers.outliers(OUTLIER)
    if not outliers:
        yield f"{text}, all between {ms(min(layers.ns))} and {ms(max(layers.ns))}."
        return
    furthest = sorted(outliers, key=lambda item: -abs(math.log(max(item[1], 1e-9))))[:MOST]
    yield f"{text}; {joined([f'layer {number} takes {times(ratio)} times as long' for number, ratio in furthest])}."
