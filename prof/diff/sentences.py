"""The sentences about a difference, and how its numbers are written."""

import json
import math
from collections.abc import Iterator, Sequence

from pyprof.prof.diff.compare import Comparison, Entry
from pyprof.prof.diff.gate import Check, Verdict
from pyprof.prof.diff.kernels import Swap
from pyprof.prof.diff.lines import VARYING, Kernel, Side
from pyprof.prof.diff.noise import Delta
from pyprof.prof.limits.hardware_words import hardware_words
from pyprof.prof.ranks.pace_records import Pace
from pyprof.prof.ranks.slow_sentences import cause_text, held_sentence
from pyprof.prof.summary.wording import amount
from pyprof.prof.summary.work_sentences import NEARLY
from pyprof.table.losses import losses

NAMED = 3  # entries that a sentence names
HARDLY = 0.02  # share of an op's time below which a kernel is not named, such as a memset
MENTIONED = 0.001  # share of the step below which a change is not mentioned
SAME_WORK = 0.005  # relative difference in FLOPs below which both do the same work
MANY = 0.2  # relative difference in the number of operations
DRIFTED = 0.01  # relative change of unchanged kernels that is worth a sentence
OTHER_CLOCK = 0.02  # relative change of the mean SM clock that is said before all else
BEFORE_CHANGE, OF_NAME = 16, 60  # characters of a whole name that are shown before a change in it, and in all
ATTRIBUTED = 0.9  # share of the time below which a warning says how much has an op
MODES = {"appeared": "new", "vanished": "gone", "args": "args", "moved": "moved", "layer": "other ops", "same": ""}
MODES |= dict.fromkeys(("kind", "graph"), "as a whole")


def digits(found: Comparison) -> int:
    """The number of decimals of ms that show a ten-thousandth of the step."""
    whole = max(found.step.before, found.step.after) / 1e6
    return max(0, 4 - len(str(int(whole)))) if whole >= 1 else 4


def shown_ms(ns: float, places: int) -> str:
    return f"{ns / 1e6:,.{places}f}"


def both_ms(value: Delta, places: int) -> str:
    """The time before and after."""
    return f"{shown_ms(value.before, places)} -> {shown_ms(value.after, places)}"


def signed_ms(value: Delta, places: int) -> str:
    """The change as the difference of the shown values: 31.49 -> 5.29 is -26.20."""
    change = round(value.after / 1e6, places) - round(value.before / 1e6, places)
    return f"{change:+,.{places}f}" if round(change, places) else f"{0:.{places}f}"


def percent(ratio: float) -> str:
    """A change in %, or as a factor from 11 on; empty for a change from zero."""
    if math.isnan(ratio) or math.isinf(ratio):
        return ""
    if ratio >= 10:
        return f"×{ratio + 1:.3g}"
    return f"{100 * ratio:+.1f}%" if abs(ratio) >= 0.0005 else "0.0%"


def unit(found: Comparison) -> str:
    """What the times are those of: a step, or the whole capture where neither side marks steps."""
    return "capture" if found.a.steps.numbers == found.b.steps.numbers == (None,) else "step"


def _noise(value: Delta, places: int, what: str = "step") -> str:
    band = value.band
    return f"noise unknown: one {what} each" if math.isnan(band) else f"noise ±{shown_ms(band, places)} ms"


def headline(found: Comparison) -> str:
    """The time of a step in A and B, or of the captures: these may hold different numbers of steps."""
    step, places, what = found.step, digits(found), unit(found)
    if lossy := _incomplete(found):
        told = f"{both_ms(step, places)} ms of operations per {what}" + (
            f" ({percent(step.ratio)})" if step.change else ""
        )
        return f"{lossy}, so this does not compare the programs. What is recorded of them: {told}."
    if not step.change:
        return f"A and B take the same time: {shown_ms(step.before, places)} ms per {what}."
    times, change, noise = f"{both_ms(step, places)} ms", signed_ms(step, places), _noise(step, places, what)
    if not step.counts:
        return f"There is no difference beyond noise: {times} per {what} ({change} ms, {percent(step.ratio)}; {noise})."
    if what == "capture":
        way = "less" if step.change < 0 else "longer"
        return f"B takes {change.lstrip('+-')} ms {way}: {times} ({percent(step.ratio)}; {noise})."
    way = "faster" if step.change < 0 else "slower"
    return f"B is {change.lstrip('+-')} ms per step {way}: {times} ({percent(step.ratio)}; {noise})."


def _incomplete(found: Comparison) -> str:
    """Which captures have lost records; empty if neither has."""
    names = [name for name, side in (("A", found.a), ("B", found.b)) if losses(side.table)]
    if not names:
        return ""
    return f"{names[0]} is an incomplete capture" if len(names) == 1 else "A and B are incomplete captures"


def side_words(side: Side) -> str:
    """A description of the compared data: the steps that count, the steps left out, and the GPUs."""
    steps = side.steps
    numbers = [n for n in steps.numbers if n is not None]
    counting = f"{len(numbers)} step{'s' if len(numbers) > 1 else ''}"
    words = [counting if numbers else "no steps marked: all of it counts as one"]
    if steps.left_out:
        words.append("left out: " + ", ".join(f"step {n} ({why})" for n, why in steps.left_out[:NAMED]))
        if len(steps.left_out) > NAMED:
            words[-1] += f" and {len(steps.left_out) - NAMED} more"
    where = "CPU" if side.on_cpu else ", ".join(side.gpus) or "unknown GPU"
    if steps.devices > 1:
        where = f"mean of {steps.devices} {'processes' if side.on_cpu else 'GPUs'}, {where}"
    return "; ".join([*words, where, *([side.profiler] if side.profiler else [])])


def clock_words(found: Comparison) -> str:
    """That the GPUs ran at different clocks, and what follows; empty if they did not, or the clocks are unknown."""
    before, after = found.a.sm_mhz, found.b.sm_mhz
    if math.isnan(before) or math.isnan(after) or abs(after / before - 1) <= OTHER_CLOCK:
        return ""
    slower = before / after - 1
    effect = f"{100 * abs(slower):.1f}% {'longer' if slower > 0 else 'shorter'}"
    return (
        f"The captures ran at different clocks: the SM clock was {before:,.0f} MHz in A and {after:,.0f} MHz in B "
        f"({percent(after / before - 1)}), on average while the GPU worked. For that alone, kernels limited by "
        f"arithmetic take about {effect} in B."
    )


def sentences(found: Comparison) -> list[str]:
    """Where the difference comes from, the most important sentence first; ``clock_words`` come before the headline."""
    if _incomplete(found):  # what got faster, or is not there, may be what was lost
        return list(_coarse(found))
    makers = (_ranks, _split, _most, _kernels, _tensor, _work, _drift, _coarse)
    return [sentence for make in makers for sentence in make(found)]


def _ranks(found: Comparison) -> Iterator[str]:
    """Which ranks the others wait for in A and in B, and how much of the collectives' time is waiting."""
    sides = [(name, side.pace) for name, side in (("A", found.a), ("B", found.b))]
    for name, pace in sides:
        if pace is not None and pace.slow:
            held = held_sentence(pace.slow[0], pace)
            causes = "; ".join(cause_text(cause, pace) for cause in pace.slow[0].causes)
            yield f"{name}: {held.rstrip('.')}{f': {causes}' if causes else ''}."
    waits = [_waiting_ns(pace) for _, pace in sides]
    before, after = waits
    if before is not None and after is not None and any(pace is not None and pace.slow for _, pace in sides):
        places = digits(found)
        yield (
            f"Of the collectives, {shown_ms(before, places)} ms per step and rank in A and {shown_ms(after, places)} "
            "ms in B are waiting for other ranks, not communication."
        )


def _waiting_ns(pace: Pace | None) -> float | None:
    known = [kind.wait_ns for kind in pace.collectives if kind.wait_ns is not None] if pace is not None else []
    return sum(known) if known else None


def _split(found: Comparison) -> Iterator[str]:
    places, on_cpu = digits(found), found.a.on_cpu and found.b.on_cpu
    busy, idle, late = found.busy, found.idle, found.late
    if not found.step.change and abs(busy.change) < MENTIONED * found.step.before:
        return
    works = (
        "Ops take"
        if on_cpu
        else "Ops of the CPU and kernels of the GPU take"
        if _one_on_cpu(found)
        else "The GPU works"
    )
    words = f"{works} {_more(busy, places)} ({both_ms(busy, places)} ms)"
    if not (found.a.steps.timed and found.b.steps.timed):
        yield f"{words}; the captures do not show idle time."
        return
    words += f" and {'nothing runs' if on_cpu else 'is idle'} {_more(idle, places)} ({both_ms(idle, places)} ms"
    if max(late.before, late.after) > 0.1 * max(idle.before, idle.after, 1):
        words += f", of which the CPU had not yet launched the next kernel in {both_ms(late, places)} ms"
    yield f"{words})."


def _one_on_cpu(found: Comparison) -> bool:
    """Whether one capture is of the CPU alone, and the other of a GPU."""
    return found.a.on_cpu != found.b.on_cpu


def _more(value: Delta, places: int) -> str:
    if not value.counts or not round(value.after / 1e6, places) - round(value.before / 1e6, places):
        return "as long, within noise," if value.change and not value.counts else "as long"
    return f"{signed_ms(value, places).lstrip('+-')} ms {'more' if value.change > 0 else 'less'}"


def _most(found: Comparison) -> Iterator[str]:
    """The few entries with most of the gain, and those with most of the loss."""
    places = digits(found)
    said: list[tuple[float, str]] = []
    for sign, word in ((-1, "faster"), (1, "slower")):
        entries = [e for e in found.entries if e.ns.counts and e.ns.change * sign > 0]
        total = sum(e.ns.change for e in entries)
        named = [f"{_entry(e)} {signed_ms(e.ns, places)}" for e in entries[:NAMED]]
        named = [n for n, e in zip(named, entries, strict=False) if abs(e.ns.change) >= 0.02 * abs(total)]
        if entries and abs(total) >= MENTIONED * max(found.step.before, found.step.after):
            more = f" and {len(entries) - len(named)} more" if len(entries) > len(named) else ""
            what = f"{len(entries)} part{'s' if len(entries) > 1 else ''} of the {unit(found)} got {word}"
            words = f"{what}, {total / 1e6:+,.{places}f} ms together: {'; '.join(named)}{more}."
            said.append((abs(total), words))
    yield from (words for _, words in sorted(said, key=lambda pair: -pair[0]))


def _entry(entry: Entry) -> str:
    return f"{entry.name} {entry.phase}" if entry.phase in ("forward", "backward") else entry.name


def _kernels(found: Comparison) -> Iterator[str]:
    swaps = found.swaps
    if swaps:
        total = sum(swap.ns.change for swap in swaps) / 1e6
        ops = sum(swap.matches for swap in swaps)
        yield f"Different kernels run in {ops} place{'s' if ops > 1 else ''}: {total:+,.{digits(found)}f} ms together."


def _tensor(found: Comparison) -> Iterator[str]:
    for count, key, when in ((found.tc_lost, "tc_lost", "no longer"), (found.tc_gained, "tc_gained", "now")):
        names = [_entry(e) for e in found.entries if getattr(e, key)]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        does = f"matrix products {when} run" if count > 1 else f"matrix product {when} runs"
        what = f"{count} {does} on them ({', '.join(names[:NAMED])}{more})"
        if count:
            yield f"{hardware_words('Tensor cores', found.gpus)} {key.removeprefix('tc_')}: {what}."


def _work(found: Comparison) -> Iterator[str]:
    rows = found.rows
    if unit(found) == "capture" and abs(rows.ratio) > MANY:
        yield (
            f"B runs {rows.after / rows.before:.3g} times the operations ({rows.before:,.0f} -> {rows.after:,.0f}), "
            "and neither capture marks steps: they may hold different numbers of steps."
        )
        return
    flop = found.flop
    counted = found.a.counted, found.b.counted
    if not flop.before or abs(flop.ratio) < SAME_WORK or counted[flop.change < 0] < NEARLY:
        return  # of the side with fewer FLOPs, some are unknown: it may do as many
    much = f"{percent(abs(flop.ratio)).lstrip('+')} {'more' if flop.change > 0 else 'fewer'}"
    before, after = (
        f"{'at least ' if known < NEARLY else ''}{amount(flops, 'FLOP')}"
        for known, flops in zip(counted, (flop.before, flop.after), strict=True)
    )
    what = "counted FLOPs" if min(counted) < NEARLY else "FLOPs"
    yield f"B does {much} {what} per {unit(found)} ({before} -> {after}): it is not the same work."


def _drift(found: Comparison) -> Iterator[str]:
    if math.isnan(found.drift) or abs(found.drift) < DRIFTED or found.drift_ns < 0.1 * found.work.before:
        return
    much = f"{100 * abs(found.drift):.1f}% {'longer' if found.drift > 0 else 'shorter'}"
    yield (
        f"Kernels that did not change (same name, same shapes) run {much}, too: the clock or the machine may differ, "
        "not the program."
    )


def _coarse(found: Comparison) -> Iterator[str]:
    """Sentences about lines that were compared in larger groups than ops."""
    if found.left_out:
        yield f"Only one capture has {' and '.join(found.left_out)}, so both are compared without."
    if any(e.status == "graph" for e in found.entries):
        yield (
            "Kernels of one side are hidden in CUDA graphs, and compared as a whole (nsys profile "
            "--cuda-graph-trace=node shows them)."
        )
    whole = [e for e in found.entries if e.status == "kind"]
    ns = sum(e.ns.before for e in whole) + sum(e.ns.after for e in whole)
    share = ns / max(found.work.before + found.work.after, 1.0)
    if share > 0.01:
        yield (
            f"{100 * share:.0f}% of the time is compared only by phase and kind of work, because the other capture "
            "does not name these layers and ops (as under torch.compile)."
        )


def warnings(found: Comparison) -> list[str]:
    """Reasons to doubt the comparison."""
    a, b = found.a, found.b
    said = []
    if a.gpus != b.gpus or a.on_cpu != b.on_cpu:
        names = ["the CPU" if side.on_cpu else ", ".join(side.gpus) or "an unknown GPU" for side in (a, b)]
        said.append(f"the captures are of different devices: {names[0]} and {names[1]}")
    if a.steps.devices != b.steps.devices:
        both = f"{a.steps.devices} and {b.steps.devices} GPUs or processes"
        said.append(f"{both} are compared: times are means over them")
    marked = [side.steps.numbers != (None,) for side in (a, b)]
    if marked[0] != marked[1]:
        said.append(f"{(b if marked[0] else a).name} marks no steps: all of it counts as one")
    if a.family and b.family and a.family != b.family:
        profilers = f"{a.profiler}, {b.profiler}"
        said.append(f"the captures are by different profilers ({profilers}), whose overhead is part of idle time")
    for side in (a, b):
        if side.attributed < ATTRIBUTED:
            percent_known = f"{100 * side.attributed:.0f}%"
            said.append(f"{side.name}: only {percent_known} of the time has an op; the rest is matched by kernel")
        steps, loading = side.steps, side.loading
        if steps.outside_rows and steps.outside_ns > 0.01 * side.work_ns.sum():
            rows = f"{steps.outside_rows:,} operations ({steps.outside_ns / 1e6:.3f} ms)"
            said.append(f"{side.name}: {rows} outside all steps are left out")
        if loading is not None:
            took = f"{loading.before_ns / 1e6:.3f} ms, which load the model"
            said.append(f"{side.name}: {loading.before_rows:,} copies before the first kernel ({took}) are left out")
    return said


def tally(entry: Entry) -> str:
    """The note of an entry: how it was matched, unless by the same op, and what changed about its kernels."""
    words = [MODES[entry.status]]
    if entry.tc_lost:
        words.append("-TC")
    elif entry.tc_gained:
        words.append("+TC")
    elif entry.swaps:
        words.append("kernel")
    return " ".join(filter(None, words))


def shown_kernels(kernels: Sequence[Kernel]) -> str:
    """Kernel names with their counts per step, the longest first, without those that take hardly any time."""
    whole = sum(kernel.ns for kernel in kernels)
    telling = [kernel for kernel in kernels if kernel.ns >= HARDLY * whole]
    words = [k.name + (f" ×{k.count:.4g}" if round(k.count, 2) != 1 else "") for k in telling[:NAMED]]
    more = len(kernels) - len(words)
    return ", ".join(words) + (f" and {more} more" if more > 0 and len(telling) > NAMED else "")


def replaced(swap: Swap) -> tuple[str, str]:
    """The kernels before and after. Where the short names agree, the longest one's whole name tells the change."""
    a, b = shown_kernels(swap.a), shown_kernels(swap.b)
    if a != b or not a:
        return a, b
    names = swap.a[0].same, swap.b[0].same
    common = next((i for i, (one, other) in enumerate(zip(*names, strict=False)) if one != other), min(map(len, names)))
    begin = max(common - BEFORE_CHANGE, 0)
    before, after = (f"{'..' * bool(begin)}{name[begin : begin + OF_NAME]}" for name in names)
    return f"{a}: {before}", f"{b}: {after}"


def swap_words(swap: Swap, places: int, gpus: Sequence[str] = ()) -> str:
    """One line about an op whose kernels changed, in the words of the GPUs' maker."""
    where = swap.name if swap.matches == 1 else f"{swap.name} ({swap.matches} places)"
    aten = swap.place.aten.removeprefix("aten::")
    what = f"{where} {swap.place.phase}" + (f", {aten}" if aten and aten != swap.place.op else "")
    change = percent(swap.ns.ratio)
    times = f"{both_ms(swap.ns, places)} ms{f' ({change})' if change else ''}"
    before, after = swap.tc
    cores = ""
    if not math.isnan(before) and not math.isnan(after) and (before > 0.5) != (after > 0.5):
        cores = f", {hardware_words('tensor cores', gpus)} {before > 0.5:d} -> {after > 0.5:d}"
    return f"{what}: {times}{cores}{_shapes(swap)}"


def _shapes(swap: Swap) -> str:
    """The shapes and dtypes, where they differ."""
    pairs = ((swap.dtypes, str), (swap.shapes, _sizes))
    return "".join(f", {shown(a)} -> {shown(b)}" for (a, b), shown in pairs if a and b and a != b)


def _sizes(text: str) -> str:
    if text == VARYING:
        return "varying shapes"
    sizes = [item for item in json.loads(text) if item]
    words = " ".join("×".join(map(str, size)) for size in sizes[:NAMED])
    return f"[{words}{' ..' if len(sizes) > NAMED else ''}]"


def verdict_words(verdict: Verdict) -> list[str]:
    """One line per test, and one for the whole condition if it has several."""
    lines = [_check(one) for one in verdict.checks]
    if len(verdict.checks) > 1:
        lines.append(f"{'failed' if verdict.fails else 'passed'}: {verdict.text}")
    return lines


def _check(one: Check) -> str:
    value = one.value
    state = "failed" if one.fails else "passed"
    if one.kind == "time":
        places = max(0, 4 - len(str(int(max(value.before, value.after) / 1e6))))
        words = f"{both_ms(value, places)} ms"
        change, noise = f"{signed_ms(value, places)} ms", _noise(value, places)
    else:
        words = f"{value.before:,.6g} -> {value.after:,.6g}"
        band = value.band
        change, noise = f"{value.change:+,.6g}", "" if math.isnan(band) or not band else f"noise ±{band:,.4g}"
        if one.text.startswith("tc_"):
            words, change, noise = f"{value.after:g}", "", ""
    ratio = percent(value.ratio)
    told = ", ".join(filter(None, [f"{change}{f' ({ratio})' if ratio and change else ''}" if change else "", noise]))
    if not one.counts and value.change:
        told += "; counts as no change"
    return f"{state}: {one.text}: {words}{f', {told}' if told else ''}"
