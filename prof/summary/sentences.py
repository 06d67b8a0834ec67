"""A summary in sentences that a person can quote, each with its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pyprof.parse.attribute.reasons import remedy
from pyprof.prof.kernels.precision import precision_of, unit_name
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.timing.collectives import Collective
from pyprof.prof.timing.stragglers import Waiting
from pyprof.prof.timing.usage import Usage
from pyprof.quantities import ms, percent, share
from pyprof.table.attribution import AttributedTime
from pyprof.table.json_lists import first_text

__all__ = ["amount", "assumptions", "headline", "ms", "sentences", "share", "worker"]

MOST = 3  # parts that a sentence names
NAMED = 5  # ops without a model that it names
OUTLIER = 1.2  # times the median
NEARLY = 0.95  # of the time is counted: what is not hardly changes a rate
TELLING = 0.1  # of the time has a known limit: less says nothing about the whole
MISSED = 0.05  # of the time has no op: more is worth a word on what would give it one
HOST_BOUND = 0.25  # of the time the GPU waits for launches: from here on the host is said to be the limit
AHEAD_NS = 100_000  # in the queue: launching takes 5 to 50 µs, so that several launches wait
WAITS = {"launch": "late launches", "sync": "launches after a copy to the host", "data": "late input data",
         "copy": "copies from or to pageable memory", "host": "stretches of 0.2 ms and more without a launch",
         "queued": "the start of work that was queued"}  # fmt: skip
WORDS = {"kernel": "kernel", "memcpy": "copy", "memset": "memset", "graph": "graph launch", "cpu": "CPU op"}
PLURAL = {"copy": "copies", "graph launch": "graph launches"}


def headline(found: Summary) -> str:
    """What ran, where, for how long, and how much of it is attributed."""
    parts = [_counted(part.rows, WORDS.get(part.name, part.name)) for part in found.kinds_of_rows]
    where = "the CPU" if found.on_cpu else _where(found.devices)
    time = AttributedTime(found.total_ns, found.attributed_ns, found.on_cpu)
    return f"{_list(parts)} on {where}. {time.sentence()}."


def sentences(found: Summary) -> list[str]:
    makers = (_warm_up, _loading, _busy, _waits, _syncs, _steps, _ratio, _most, _matrix, _attention, _rates, _usage,
              _limits, _communication, _layers, _graphs, _unattributed, _uncounted)  # fmt: skip
    return [sentence for make in makers for sentence in make(found)]


def assumptions(found: Summary) -> list[str]:
    said = [] if found.on_cpu else [f"{note}." for note in found.notes]
    if not found.has_layers and found.attributed_ns:
        said.append(
            "The capture names no layers; captured with pyprof.init(), or torch.profiler's with_modules, it would."
        )
    said.append("FLOPs and bytes are what the algorithm needs, an FMA being 2; sums over kernels count overlaps twice.")
    return said


def worker(found: Summary) -> str:
    return "CPU" if found.on_cpu else "GPU"


def _where(devices: Sequence[Usage]) -> str:
    names = [device.name or "GPU" for device in devices]
    kinds = list(dict.fromkeys(names))
    return (
        _list([f"{names.count(kind)} × {kind}" if names.count(kind) > 1 else f"one {kind}" for kind in kinds])
        or "a GPU that is not named"
    )


def _warm_up(found: Summary) -> Iterator[str]:
    """The first steps and what was before them."""
    warm = found.warm_up
    if warm is None:
        return
    rest = f"{warm.rows:,} rows in {ms(warm.ns)}"
    if not warm.steps:
        yield f"Left out: what comes before the first step, {rest}."
        return
    first = "the first step" if warm.steps == 1 else f"the first {warm.steps} steps"
    longest = f"{ms(warm.longest_ns)}, {warm.longest_ns / warm.median_ns:,.3g} times the median of the others"
    yield f"Left out as warm-up: {first} ({longest}) and what was before, {rest}."


def _loading(found: Summary) -> Iterator[str]:
    """Copies between host and device: model loading apart from what the steps do."""
    copies = found.copies
    if copies is None or not copies.rows:
        return
    way = copies.ways[0] if len(copies.ways) == 1 else "host-device"
    what = f"{way} {'copy' if copies.rows == 1 else 'copies'}"
    moved = f"{copies.rows:,} {what} ({amount(copies.nbytes, 'B')}, {ms(copies.ns)}{_speed(copies.nbytes, copies.ns)})"
    if copies.before_rows == copies.rows:
        apart = ": loading, which all figures below leave out" if copies.apart else ""
        yield f"{moved}: all stand before the first kernel, none among the kernels{apart}."
    elif copies.apart:
        yield (f"{moved}: {copies.before_rows:,} of them ({amount(copies.before_nbytes, 'B')}, {ms(copies.before_ns)}) "
               "stand before the first kernel: loading, which all figures below leave out.")  # fmt: skip
    elif copies.ns > 0.01 * found.total_ns:
        take = "takes" if copies.rows == 1 else "take"
        yield f"{moved} {take} {share(copies.ns, found.total_ns)} of {worker(found)} time."


def _busy(found: Summary) -> Iterator[str]:
    if not found.span_ns or found.on_cpu:
        return
    gpus = "The GPU works" if len(found.devices) < 2 else f"The {len(found.devices)} GPUs work"
    idle = f"{gpus} {share(found.busy_ns, found.span_ns)} of {ms(found.span_ns)} and idle {ms(found.idle_ns)}"
    late = found.late_ns
    if late > 0.05 * found.span_ns:
        idle += f"; in {ms(late)} of that ({share(late, found.idle_ns)}) the CPU had not yet launched the next kernel"
        limit = ": as captured, under a profiler that slows it, the host is the limit"
        idle += limit if late > HOST_BOUND * found.span_ns else ""
    yield f"{idle}."


def _waits(found: Summary) -> Iterator[str]:
    """What the gaps were for, and how far the CPU is ahead of the GPU."""
    waits = found.waits
    parts = [f"{WAITS[name]} {ms(ns)}" for name, _, ns in waits.causes if ns > 0.01 * found.span_ns]
    if parts:
        yield f"Idle by cause: {_list(parts[: MOST + 1])}."
    if waits.launches and not found.on_cpu:
        ahead = "the CPU is far ahead" if waits.queued_ns > AHEAD_NS else "the queue is often empty"
        yield f"A launched kernel starts {_brief(waits.queued_ns)} later (median): {ahead}."


def _syncs(found: Summary) -> Iterator[str]:
    """Where the program makes the CPU wait, and copies that the driver must stage."""
    waits = found.waits
    if waits.syncs:
        rows, waited, idle = (sum(values) for values in zip(*((p.rows, p.waited_ns, p.idle_ns) for p in waits.syncs),
                                                            strict=True))  # fmt: skip
        places = [f"{' at '.join(filter(None, (_op(p.op), p.trace))) or 'unknown'} ({p.rows:,})" for p in waits.syncs]
        more = f" and {len(places) - MOST} more places" if len(places) > MOST else ""
        yield (f"{_counted(rows, 'copy')} to the host {'makes' if rows == 1 else 'make'} the CPU wait, {ms(waited)} in "
               f"all, and the GPU after that {ms(idle)}: {', '.join(places[:MOST])}{more}.")  # fmt: skip
    if waits.pageable_rows and waits.pageable_ns > 0.01 * found.total_ns:
        yield (f"{_counted(waits.pageable_rows, 'copy')} of {amount(waits.pageable_bytes, 'B')} from or to pageable "
               f"memory: {ms(waits.pageable_ns)}{_speed(waits.pageable_bytes, waits.pageable_ns)}.")  # fmt: skip


def _brief(ns: float) -> str:
    return f"{ns / 1e3:,.3g} µs" if ns < 1e6 else ms(ns)


def _steps(found: Summary) -> Iterator[str]:
    if len(found.steps) < 2:
        return
    times = sorted(part.ns for part in found.steps)
    slowest = max(found.steps, key=lambda part: part.ns)
    yield (f"{len(times)} steps of {ms(times[len(times) // 2])} (median), the fastest {ms(times[0])}, the slowest "
           f"{ms(slowest.ns)} (step {slowest.name}).")  # fmt: skip


def _ratio(found: Summary) -> Iterator[str]:
    phase = {part.name: part for part in found.phases}
    forward, backward = phase.get("forward"), phase.get("backward")
    if forward and backward and forward.ns:
        yield (f"The backward pass takes {backward.ns / forward.ns:.2f} times the forward's {worker(found)} time "
               f"({ms(backward.ns)} against {ms(forward.ns)}).")  # fmt: skip


def _most(found: Summary) -> Iterator[str]:
    if not found.kinds or not found.total_ns:
        return
    first, *rest = found.kinds
    named = [f"{part.name} {share(part.ns, found.total_ns)}" for part in rest[:MOST] if part.ns > 0.01 * found.total_ns]
    then = f"; then {', '.join(named)}" if named else ""
    most = "Most" if first.ns > found.total_ns / 2 else "The largest part"
    yield f"{most} of {worker(found)} time is {first.name}: {share(first.ns, found.total_ns)} ({ms(first.ns)}){then}."


def _matrix(found: Summary) -> Iterator[str]:
    matrix = found.matrix
    if not matrix.ns or found.on_cpu:
        return
    units = [f"{unit_name(part.name)} {share(part.ns, matrix.ns)}" for part in matrix.units[:MOST]]
    what = f"Matrix math (GEMM, convolution, attention) runs {ms(matrix.ns)}"
    if matrix.tensor_ns == 0 and not matrix.unknown_ns:
        one = matrix.units[0].name if len(matrix.units) == 1 else ""
        said = (
            f"all of it in {unit_name(one)}, without tensor cores"
            if one
            else f"none of it on tensor cores ({', '.join(units)})"
        )
        yield f"{what}, {said}{_better(found)}."
        return
    unknown = f", {share(matrix.unknown_ns, matrix.ns)} not known" if matrix.unknown_ns else ""
    most = _better(found) if matrix.units[0].ns > matrix.ns / 2 else ""
    yield f"{what}, {share(matrix.tensor_ns, matrix.ns)} of it on tensor cores{unknown}: {', '.join(units)}{most}."


def _better(found: Summary) -> str:
    """What the tensor cores could do, where another unit does most."""
    words = [f"{ratio:.3g} times in {precision_of(unit)}" for unit, ratio in found.matrix.better]
    base = unit_name(found.matrix.units[0].name)
    return f"; against the {base} peak this GPU's tensor cores reach {' and '.join(words[:2])}" if words else ""


def _attention(found: Summary) -> Iterator[str]:
    attention = found.attention
    if attention.fused_rows:
        name = attention.fused_name if len(attention.fused_name) <= 40 else f"{attention.fused_name[:38]}.."
        yield f"Attention is fused: {_counted(attention.fused_rows, 'kernel')} ({name}), {ms(attention.fused_ns)}."
    if attention.apart_rows > 1 and (not attention.fused_rows or attention.apart_ns > attention.fused_ns / 10):
        none = "No fused attention kernel runs" if not attention.fused_rows else "Not all of it"
        yield (f"{none}: {attention.apart_rows:,} times a softmax stands between two matrix products, as in attention "
               f"that is not fused; the kernels between these products take {ms(attention.apart_ns)}.")  # fmt: skip


def _rates(found: Summary) -> Iterator[str]:
    if not found.flop or not found.span_ns:
        if found.attributed_ns:
            yield "FLOP rates and MFU are unknown: no floating-point work could be counted."
        return
    seconds = found.span_ns * 1e-9  # of all GPUs together: the rates are those of one
    counted = share(found.counted_ns, found.total_ns)
    work = f"{amount(found.flop, 'FLOP')} and {amount(found.nbytes, 'B')}"
    amounts = f"Models count {work} in {counted} of {worker(found)} time"
    rates = f"{amount(found.flop / seconds, 'FLOP/s')} and {amount(found.nbytes / seconds, 'B/s')}"
    per = " for each GPU" if len(found.devices) > 1 else ""
    idle = "" if found.on_cpu else ", idle time included"
    whole = found.counted_ns > NEARLY * found.total_ns
    yield f"{amounts}: {'' if whole else 'at least '}{rates}{per}{idle}.{_mfu(found.devices, whole)}"


def _mfu(devices: Sequence[Usage], whole: bool) -> str:
    known = [device for device in devices if not math.isnan(device.mfu)]
    if not known:
        return ""
    mean = sum(device.mfu for device in known) / len(known)
    peak = f"{amount(known[0].peak_flop_per_s, 'FLOP/s')} ({unit_name(known[0].unit)}, dense)"
    return f" MFU is {'' if whole else 'at least '}{f'{mean:.2g}%' if mean < 0.05 else percent(mean)} of {peak}."


def _usage(found: Summary) -> Iterator[str]:
    shares = [
        (f"{name} {percent(mean)}")
        for name, mean in (
            ("GPU utilisation (a kernel runs)", _mean([device.utilisation for device in found.devices])),
            ("estimated SM efficiency", _mean([device.sm_efficiency for device in found.devices])),
            ("estimated achieved occupancy of the kernels", _mean([device.occupancy for device in found.devices])),
        )
        if not math.isnan(mean)
    ]
    if shares:
        yield f"{_list(shares)}."


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _graphs(found: Summary) -> Iterator[str]:
    whole = next((part for part in found.kinds_of_rows if part.name == "graph"), None)
    if whole is not None:
        yield (f"{_counted(whole.rows, 'graph launch')} ({ms(whole.ns)}) without the kernels within: nsys profile "
               "--cuda-graph-trace=node records them.")  # fmt: skip


def _limits(found: Summary) -> Iterator[str]:
    limits = found.limits
    if limits.ns < TELLING * found.total_ns or not limits.ns:
        return
    bounds = [f"{_bound(part.name)} {share(part.ns, limits.ns)}" for part in limits.bounds]
    known = f"({share(limits.ns, found.total_ns)} of {worker(found)} time has a known limit)"
    yield (f"Kernels reach {share(limits.sol_ns, limits.ns)} of their limits, each the greater of FLOPs / peak and "
           f"bytes / bandwidth: {ms(limits.sol_ns)} would do for {ms(limits.ns)} {known}. By time: "
           f"{', '.join(bounds)}.")  # fmt: skip


def _bound(name: str) -> str:
    return {"memory": "memory-bound", "compute": "compute-bound",
            "latency": "latency-bound (short, or too few blocks)"}.get(name, name)  # fmt: skip


def _communication(found: Summary) -> Iterator[str]:
    if found.communication_ns:
        part = share(found.exposed_ns, found.communication_ns)
        alone = "all of it" if part == "100%" else f"{ms(found.exposed_ns)} of it ({part})"
        yield f"Communication takes {ms(found.communication_ns)}, {alone} while nothing else runs on the GPU."
        told = [each for each in found.collectives if each.wire and each.moving_ns]
        if told:
            waits = "left out" if any(each.waits_known for each in told) else "included"
            kinds = "; ".join(map(_collective, told[:3]))
            yield f"On the wire: {kinds} (bus bandwidth, waiting for other ranks {waits})."
        yield from _stragglers(found.waiting)


def _collective(sent: Collective) -> str:
    among = f" among {sent.ranks} ranks" if sent.ranks else ""
    rate = amount(1e9 * sent.wire / sent.moving_ns, "B/s")
    return f"{sent.rows:,} {sent.op}{among}, {amount(sent.wire, 'B')} at {rate}"


def _stragglers(waiting: Waiting) -> Iterator[str]:
    if waiting.last:
        late, times = waiting.last[0], _counted(waiting.collectives, "collective")
        who = {"rank": "Ranks", "process": "Processes"}[waiting.by]
        yield (
            f"{who} wait for each other {ms(waiting.wait_ns)} of {ms(waiting.ns)}"
            f" ({share(waiting.wait_ns, waiting.ns)}) in {times}, most for {waiting.by} {late.rank}: {ms(late.ns)}, the"
            f" last to come in {late.times:,}."
        )


def _layers(found: Summary) -> Iterator[str]:
    layers = found.series
    if layers is None:
        return
    name, size = layers.name, len(layers.numbers)
    far = layers.outliers(OUTLIER)
    said = f"{size} layers {_outer(name)} take {ms(int(layers.median_ns))} each (median)"
    if not far:
        low, high = min(layers.ns), max(layers.ns)
        yield f"{said}, all alike ({ms(low)} to {ms(high)})."
        return
    far = sorted(far, key=lambda item: -abs(math.log(max(item[1], 1e-9))))[:MOST]
    yield f"{said}; {_list([f'layer {number} takes {ratio:.2f} times that' for number, ratio in far])}."


def _outer(name: str) -> str:
    return name if len(name) <= 48 else f"..{name[-46:]}"


def _unattributed(found: Summary) -> Iterator[str]:
    missing = found.total_ns - found.attributed_ns
    if missing > 0:
        why = [
            f"{part.name} ({share(part.ns, found.total_ns)}, {_counted(part.rows, 'row')})" for part in found.reasons
        ]
        more = f" and {len(why) - MOST} more reasons" if len(why) > MOST else ""
        yield f"Without an op: {share(missing, found.total_ns)} of {worker(found)} time: {'; '.join(why[:MOST])}{more}."
    if missing and not found.attributed_ns:
        yield ("So FLOPs, their rates and MFU are unknown, too: capture with pyprof.init(), or with nsys profile "
               "--pytorch=autograd-shapes-nvtx.")  # fmt: skip
    elif found.reasons and missing >= MISSED * found.total_ns and remedy(found.reasons[0].name):
        what = remedy(found.reasons[0].name)
        yield f"{what[0].upper()}{what[1:]}."


def _uncounted(found: Summary) -> Iterator[str]:
    sums: dict[str, int] = {}
    for part in found.uncounted:
        sums[_op(part.name)] = sums.get(_op(part.name), 0) + part.ns
    if not sums:
        return
    named = [f"{name} {share(ns, found.total_ns)}" for name, ns in sorted(sums.items(), key=lambda item: -item[1])]
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    why = "" if found.has_sizes else " (the capture records no shapes)"
    share_of = share(sum(sums.values()), found.total_ns)
    yield f"No model counts {share_of} of {worker(found)} time{why}: {', '.join(named[:NAMED])}{more}."


def _op(name: str) -> str:
    name = first_text(name) if name.startswith('["') else name
    return (name if len(name) <= 40 else f"{name[:19]}..{name[-19:]}") or "(no name)"


# Numbers in words


def amount(value: float, unit: str) -> str:
    """
    >>> amount(3.0455e12, "FLOP"), amount(13627435008, "B"), amount(512, "B")
    ('3.046 TFLOP', '13.63 GB', '512 B')
    """
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def _speed(nbytes: int, ns: int) -> str:
    return f", {amount(1e9 * nbytes / ns, 'B/s')}" if ns and nbytes else ""


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word if count == 1 else PLURAL.get(word, word + 's')}"


def _list(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" and {words[-1]}" if len(words) > 1 else "".join(words)
