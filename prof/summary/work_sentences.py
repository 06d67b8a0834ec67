"""Sentences about the work of the kernels: kinds, matrix math, attention, FLOPs, bytes, utilisation, limits.

The last are about what the capture or the models do not say: kernels in graphs, time without an op or FLOP model.
"""

import math
from collections.abc import Iterator, Sequence

from pyprof.parse.attribute.reasons import UNRECORDED_THREAD, general, remedy
from pyprof.prof.kernels.precision import precision_of, unit_name
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.captured_graphs import GraphContent
from pyprof.prof.summary.components import Part
from pyprof.prof.summary.measured_work import measured_sentences
from pyprof.prof.summary.wording import amount, joined, operation_name
from pyprof.quantities import counted, ms, percent, share
from pyprof.table.schema import outermost

MOST = 3  # parts that a sentence names
MOST_OPS = 5  # ops without a model that a sentence names
LITTLE = 0.01  # of the time: less is not named
NEARLY = 0.99  # share of the time; an amount that is known for less is said to be "at least" so much
TELLING = 0.1  # share of the time; limits known for less than this say nothing about the whole
MISSED = 0.05  # a larger share of GPU time without an op gets a sentence that says how to attribute it
LONGEST_KERNEL = 40  # characters of a kernel's name
BOUNDS = {
    "memory": "memory-bound",
    "compute": "compute-bound",
    "latency": "latency-bound (short, or too few blocks)",
    "neither": "bound by neither",
}


def kind_sentences(summary: Summary) -> Iterator[str]:
    """The kinds of work that take longest."""
    total = summary.total_ns
    if not summary.kinds or not total:
        return
    first, *rest = summary.kinds
    most = "Most" if first.ns > total / 2 else "The largest part"
    named = [f"{part.name} {share(part.ns, total)}" for part in rest[:MOST] if part.ns > LITTLE * total]
    then = f"; then {', '.join(named)}" if named else ""
    kind = "in kernels of no known kind" if first.name == "other" else first.name
    yield f"{most} of {summary.worker} time is {kind}: {share(first.ns, total)} ({ms(first.ns)}){then}."


def matrix_sentences(summary: Summary) -> Iterator[str]:
    """Whether matrix math runs on tensor cores, and in which formats."""
    matrix = summary.matrix
    if not matrix.ns or summary.on_cpu:
        return
    of_time = f"{share(matrix.ns, summary.total_ns)} of GPU time"
    units = ", ".join(f"{unit_name(part.name)} {share(part.ns, matrix.ns)}" for part in matrix.units[:MOST])
    if matrix.unknown_ns == matrix.ns:
        where = "and the kernels' names do not tell whether on tensor cores"
    else:
        on_tensor_cores = share(matrix.tensor_ns, matrix.ns) if matrix.tensor_ns or matrix.unknown_ns else "none"
        unknown = f", unknown for {share(matrix.unknown_ns, matrix.ns)}" if matrix.unknown_ns else ""
        where = f"{on_tensor_cores} of it on tensor cores{unknown}: {units}"
    what = "Matrix math (the main kernels of GEMM, convolution and attention)"
    yield f"{what} takes {ms(matrix.ns)} ({of_time}), {where}."
    if matrix.better and matrix.units[0].ns > matrix.ns / 2:  # most of it is not on tensor cores, which are faster
        ratios = joined([f"{ratio:.3g} times in {precision_of(unit)}" for unit, ratio in matrix.better[:2]])
        yield f"The peak of this GPU's tensor cores, against that of {unit_name(matrix.units[0].name)}, is {ratios}."


def autotuning_sentences(summary: Summary) -> Iterator[str]:
    """How much of the time cuDNN's autotuning takes, which a capture of later steps does not have."""
    tuning = summary.autotuning
    if tuning.ns > LITTLE * summary.total_ns:
        trials, calls = counted(tuning.rows, "kernel"), counted(tuning.calls, "convolution")
        yield (
            f"cuDNN's autotuning (torch.backends.cudnn.benchmark) tries algorithms in {calls}: {trials}, "
            f"{ms(tuning.ns)}, {share(tuning.ns, summary.total_ns)} of GPU time, without their helpers. "
            "Each shape is tried once per process: begin the capture after some steps of warm-up."
        )


def dropout_sentences(summary: Summary) -> Iterator[str]:
    """Dropout in inference, which makes the results random."""
    found = summary.dropout_without_gradients
    if found.rows:
        yield (
            f"Dropout runs although no gradient is recorded: {counted(found.rows, 'kernel')}, {ms(found.ns)}. The "
            "results are random; model.eval() turns dropout off, unless it is meant, as in Monte Carlo dropout."
        )


def attention_sentences(summary: Summary) -> Iterator[str]:
    """Whether attention runs in fused kernels."""
    attention = summary.attention
    if attention.fused_rows:
        name = attention.fused_name
        name = name if len(name) <= LONGEST_KERNEL else f"{name[: LONGEST_KERNEL - 2]}.."
        kernels = counted(attention.fused_rows, "fused kernel")
        yield f"Attention runs in {kernels} ({name}), {ms(attention.fused_ns)} in all."
    if attention.apart_rows > 1 and attention.apart_ns > attention.fused_ns / 10:
        fused = "Some attention may not be fused" if attention.fused_rows else "No fused attention kernel runs"
        yield (
            f"{fused}: {attention.apart_rows:,} times a softmax runs between two matrix products, as in unfused "
            f"attention. The kernels between these products take {ms(attention.apart_ns)}."
        )


def _no_flop(summary: Summary) -> Iterator[str]:
    """Why there are no rates. The FLOPs of copies, fills and the like are counted, and there are none."""
    if summary.counted_ns >= NEARLY * summary.total_ns > 0:
        yield "The ops do no floating-point operations: they copy, fill, index or compare."
    elif summary.counted_ns:
        of_time = f"{share(summary.counted_ns, summary.total_ns)} of {summary.worker} time"
        yield f"FLOP rates and MFU are unknown: the only ops counted, {of_time}, do no FLOPs, as copies do."
    elif summary.attributed_ns:
        yield "FLOP rates and MFU are unknown: the FLOPs of no op could be counted."


def rate_sentences(summary: Summary) -> Iterator[str]:
    """FLOPs, bytes, their rates, and for how much of the time they are known."""
    if not summary.span_ns or not summary.flop:
        yield from _no_flop(summary)
    else:
        known = f"FLOPs are known for {share(summary.counted_ns, summary.total_ns)} of {summary.worker} time"
        least, mean = at_least(summary.counted_ns, summary), per_gpu(summary)
        rate = "" if _without_rates(summary) else f", {least}{amount(summary.flop_per_s, 'FLOP/s')}{mean}"
        yield f"{known}: {least}{amount(summary.flop, 'FLOP')}{rate}."
        if not math.isnan(summary.mean("mfu")):
            peaks = f"{peak_text(summary)}{_of_half(summary)}"
            yield f"Model FLOPs utilisation (MFU) is {least}{mfu_text(summary)} of {peaks}."
    if summary.span_ns and summary.nbytes:
        known = f"Bytes are known for {share(summary.bytes_counted_ns, summary.total_ns)} of {summary.worker} time"
        least, mean = at_least(summary.bytes_counted_ns, summary), per_gpu(summary)
        rate = "" if _without_rates(summary) else f", {least}{amount(summary.byte_per_s, 'B/s')}{mean}"
        yield f"{known}: {least}{amount(summary.nbytes, 'B')}{rate}."
    if summary.launches_alone:
        yield (
            "These CPU ops launched GPU work that the capture does not have: their times are those of launching. No "
            "rate follows from them (profile with ProfilerActivity.CUDA or .XPU, too)."
        )


def _without_rates(summary: Summary) -> bool:
    """Whether no rate over the span follows from the amounts that the capture has."""
    return summary.launches_alone or bool(summary.incomplete)


def at_least(known_ns: int, summary: Summary) -> str:
    """The prefix "at least" for an amount or rate whose FLOPs or bytes are known for only part of the time."""
    return "" if known_ns >= NEARLY * summary.total_ns else "at least "


def per_gpu(summary: Summary) -> str:
    """The suffix that tells whether a rate is per GPU."""
    gpus = " per GPU" if len(summary.devices) > 1 else ""
    return gpus if summary.on_cpu else f"{gpus} including idle time"


def mfu_text(summary: Summary) -> str:
    mfu = summary.mean("mfu")
    return f"{mfu:.2g}%" if mfu < 0.05 else percent(mfu)


def peak_text(summary: Summary) -> str:
    """The peak rate to which MFU refers, as text."""
    device = next(device for device in summary.devices if not math.isnan(device.mfu))
    peak = f"{amount(device.peak_flop_per_s, 'FLOP/s')} ({unit_name(device.unit)}, dense)"
    alone = device.matrix_flop is not None and device.matrix_flop / device.peak_flop_per_s * 1e9
    if math.isclose(alone, device.matrix_ns, rel_tol=0.001):
        return peak
    return f"the peaks of the units that the products ran on, most of them {peak}"


def _of_half(summary: Summary) -> str:
    """MFU of the GPU's best peak in half precision, which is what people compare; empty where it is the same."""
    device = next(device for device in summary.devices if not math.isnan(device.mfu))
    if math.isnan(device.mfu_half) or math.isclose(device.peak_flop_per_s, device.half_peak_flop_per_s):
        return ""
    mfu = summary.mean("mfu_half")
    peak = (
        f"{amount(device.half_peak_flop_per_s, 'FLOP/s')} ({unit_name(device.half_unit)}, the best in half precision)"
    )
    return f", and {f'{mfu:.2g}%' if mfu < 0.05 else percent(mfu)} of {peak}"


def usage_sentences(summary: Summary) -> Iterator[str]:
    """SM efficiency and occupancy, with the names of PyTorch's profiler; the mean of several GPUs.

    GPU utilisation, its third figure, is the share of the captured step in which kernels run: the verdict has that of
    the step as the user runs it.
    """
    means = (
        ("estimated SM efficiency", summary.mean("sm_efficiency")),
        ("estimated achieved occupancy", summary.mean("occupancy")),
    )
    known = [f"{name} is {percent(mean)}" for name, mean in means if not math.isnan(mean)]
    if known:
        text = joined(known)
        yield f"{text[0].upper()}{text[1:]}."


def limit_sentences(summary: Summary) -> Iterator[str]:
    """How far the kernels are from the hardware's limits, and what limits them."""
    limits = summary.limits
    if not limits.ns or limits.ns < TELLING * summary.total_ns:
        return
    yield (
        f"At the hardware's limits the kernels would need {ms(limits.sol_ns)} instead of {ms(limits.ns)} "
        f"({share(limits.sol_ns, limits.ns)}): the longer of FLOPs / peak and bytes / bandwidth, known for "
        f"{share(limits.ns, summary.total_ns)} of {summary.worker} time."
    )
    bounds = [f"{share(part.ns, limits.ns)} is {BOUNDS.get(part.name, part.name)}" for part in limits.bounds]
    yield f"Of the {ms(limits.ns)} of kernels whose limit is known, {joined(bounds)}."


def counter_sentences(summary: Summary) -> Iterator[str]:
    """What Nsight Compute measured, against the algorithm."""
    yield from measured_sentences(summary.measured, summary.total_ns)


def graph_sentences(summary: Summary) -> Iterator[str]:
    """CUDA graphs whose kernels are not in the capture."""
    graphs = next((part for part in summary.kinds_of_rows if part.name == "graph"), None)
    if graphs is not None:
        launches = counted(graphs.rows, "graph launch")
        yield (
            f"The kernels of {launches} ({ms(graphs.ns)}) are not in the capture: nsys profile --cuda-graph-trace=node "
            "records them."
        )
    for graph in summary.graphs[:MOST]:
        if graph.launches:
            work = [f"{graph.launches:,} captured launches"]
            work += [] if graph.flop is None else [amount(graph.flop, "FLOP")]
            work += [] if graph.nbytes is None else [amount(graph.nbytes, "B")]
            yield f"Each of the {graph.rows:,} launches of {graph.name} runs {joined(work)}{_largest(graph)}."


def _largest(graph: GraphContent) -> str:
    """The ops and the layers with most of a graph's FLOPs, as the end of a sentence."""
    if not graph.flop:
        return ""
    ops = [f"{operation_name(part.name)} {share(part.flop or 0, graph.flop)}" for part in graph.ops[:MOST]]
    layers = [f"{part.name} {share(part.flop or 0, graph.flop)}" for part in graph.layers[:MOST] if part.name]
    return f": of the FLOPs {joined(ops)}" + (f"; by layer {joined(layers)}" if layers else "")


def unattributed_sentences(summary: Summary) -> Iterator[str]:
    """How much time has no op, why, and how to attribute it."""
    total, missing = summary.total_ns, summary.total_ns - summary.attributed_ns
    groups = _groups(summary.reasons)
    if missing > 0:
        reasons = [_reason(summary, *group) for group in groups]
        more = f" and {counted(len(reasons) - MOST, 'more reason')}" if len(reasons) > MOST else ""
        time = f"{share(missing, total)} of {summary.worker} time"
        yield f"{time} has no op: {'; '.join(reasons[:MOST])}{more}."
    reason = groups[0][0] if groups else ""
    advice = remedy(reason)
    if missing and not summary.attributed_ns and not summary.counted_ns:
        unknown = "Without ops, FLOPs, their rates and MFU are unknown"
        if reason != UNRECORDED_THREAD:
            yield f"{unknown}: capture with pyprof.init(), or with torch.profiler's ProfilerActivity.CPU."
            return
        yield f"{unknown}."
    if advice and missing >= MISSED * total:
        yield f"{advice[0].upper()}{advice[1:]}."


def _groups(reasons: Sequence[Part]) -> list[tuple[str, list[Part]]]:
    """The reasons for which rows have no op, the longest time first, each with its parts: one per range or file."""
    groups: dict[str, list[Part]] = {}
    for part in reasons:
        groups.setdefault(general(part.name), []).append(part)
    return sorted(groups.items(), key=lambda group: -sum(part.ns for part in group[1]))


def _reason(summary: Summary, reason: str, parts: Sequence[Part]) -> str:
    """A reason with its share of the time, and the names of the parts with most time."""
    ns, rows = sum(part.ns for part in parts), sum(part.rows for part in parts)
    names = [name for part in parts if (name := part.name[len(reason) :].removeprefix(": "))]
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    which = f": {', '.join(names[:MOST])}{more}" if names else ""
    return f"{reason} ({share(ns, summary.total_ns)}, {counted(rows, 'operation')}){which}"


def uncounted_sentences(summary: Summary) -> Iterator[str]:
    """The ops whose FLOPs are unknown, and those whose FLOPs are known, but not their bytes."""
    lacking = "ops without a FLOP model, or without the arguments that it needs"
    why = lacking if summary.has_sizes else "ops whose shapes the capture does not record"
    yield from _uncounted(summary, summary.uncounted, why)
    if summary.bytes_counted_ns < NEARLY * summary.total_ns:
        yield from _uncounted(summary, summary.bytes_uncounted, "ops whose FLOPs are counted, and not their bytes")


def _uncounted(summary: Summary, parts: Sequence[Part], what: str) -> Iterator[str]:
    sums: dict[str, int] = {}
    for part in parts:
        op = operation_name(outermost(part.name))
        sums[op] = sums.get(op, 0) + part.ns
    if not sums:
        return
    total = summary.total_ns
    named = [f"{op} {share(ns, total)}" for op, ns in sorted(sums.items(), key=lambda item: -item[1])]
    more = f" and {len(named) - MOST_OPS} more" if len(named) > MOST_OPS else ""
    time = f"{share(sum(sums.values()), total)} of {summary.worker} time"
    yield f"{time} runs in {what}: {', '.join(named[:MOST_OPS])}{more}."
