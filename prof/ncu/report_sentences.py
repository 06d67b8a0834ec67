"""The sentences at the end of the report: time, bytes and instructions in total, efficiency; and their basis."""

import math
from collections.abc import Iterator

import numpy as np

from pyprof.prof.ncu.report_device import Gpu
from pyprof.prof.ncu.report_layers import Layers
from pyprof.prof.ncu.report_rows import Kernels, Sums, by_phase, total, without_products
from pyprof.prof.summary.wording import amount, joined
from pyprof.prof.work.kinds import PRODUCTS
from pyprof.quantities import binary_bytes, counted, ms, share
from pyprof.table.columns import Floats

NUMBERS = ((1e9, "billion "), (1e6, "million "), (1e3, "thousand "))


def sentences(found: Kernels) -> list[str]:
    """What the report says in words, each sentence true by itself."""
    whole = total(found)
    said = [*_time(found, whole), *_traffic(whole), *_instructions(whole), *_efficiency(found, whole)]
    return [*said, *_without_products(found, whole)]


def _time(found: Kernels, whole: Sums) -> Iterator[str]:
    if math.isnan(whole.time_ns):
        return
    parts = [each for each in by_phase(found) if each.name and not math.isnan(each.time_ns)]
    split = ", ".join(f"{each.name} {ms(each.time_ns)} ({share(each.time_ns, whole.time_ns)})" for each in parts)
    some = f"The {whole.kernels:,} kernels take {ms(whole.time_ns)}, one after the other"
    taken = some if whole.kernels > 1 else f"The kernel takes {ms(whole.time_ns)}"
    unknown = ", as far as they were measured" if np.isnan(found.time_ns).any() else ""
    yield f"{taken}{unknown}{f': {split}' if split else ''}."


def _traffic(whole: Sums) -> Iterator[str]:
    it, reads, writes = ("It", "reads", "writes") if whole.kernels == 1 else ("They", "read", "write")
    for place, name in (("dram", "DRAM"), ("l2", "the L2 cache")):
        ways = ((reads, f"from {name}", f"{place}_read_bytes"), (writes, f"to {name}", f"{place}_write_bytes"))
        said = [
            f"{verb} {binary_bytes(whole.amounts[key])} {way} ({amount(whole.rates[key], 'B/s')})"
            if whole.amounts[key]
            else f"{verb} nothing {way}"
            for verb, way, key in ways
            if not math.isnan(whole.rates[key])
        ]
        if said:
            yield f"{it} {joined(said)}{_at_least(whole)}."


def _instructions(whole: Sums) -> Iterator[str]:
    executed = whole.amounts["instructions"]
    if not math.isnan(executed):
        size, word = next((each for each in NUMBERS if executed >= each[0]), (1, ""))
        number = f"{executed / size:,.3g} {word}instructions, counted by warp"
        yield f"{'It executes' if whole.kernels == 1 else 'They execute'} {number}{_at_least(whole)}."


def _at_least(whole: Sums) -> str:
    return ", as far as they were measured" if whole.incomplete else ""


def _efficiency(found: Kernels, whole: Sums) -> Iterator[str]:
    if math.isnan(whole.efficiency_pct):
        return
    parts = [each for each in by_phase(found) if each.name and not math.isnan(each.efficiency_pct)]
    split = ", ".join(f"{each.name} {each.efficiency_pct:.1f}%" for each in parts)
    limits = joined([_bandwidth(gpu) for gpu in found.gpus])
    yield (
        f"The overall efficiency is {whole.efficiency_pct:.1f}%, the share of the time that would suffice if every "
        f"kernel reached its limit: DRAM at {limits} or the tensor cores, whichever it uses more"
        f"{f' ({split})' if len(parts) > 1 else ''}."
    )
    best = [_best(found.dram_pct, "DRAM"), _best(found.tensor_pct, "the tensor cores")]
    reached = joined([each for each in best if each])
    yield f"The most that a kernel reaches is {reached}."


def _bandwidth(gpu: Gpu) -> str:
    known = not math.isnan(gpu.byte_per_s)
    return f"{amount(gpu.byte_per_s, 'B/s')} ({gpu.name})" if known else f"the peak that ncu takes for {gpu.name}"


def _best(values: Floats, what: str) -> str:
    known = values[np.isfinite(values)]
    return f"{known.max():.1f}% of {what}" if len(known) else ""


def _without_products(found: Kernels, whole: Sums) -> Iterator[str]:
    rest = without_products(found)
    if PRODUCTS in found.kinds and rest.kernels and not math.isnan(rest.time_ns) and not math.isnan(whole.time_ns):
        yield f"Without {PRODUCTS}s, they take {ms(rest.time_ns)} ({share(rest.time_ns, whole.time_ns)})."


# What the numbers rest on


def notes(found: Kernels, failed: int, layers: Layers | None) -> list[str]:
    """How the report's numbers came about, in sentences."""
    said = [*_clocks(found), *_sources(found), *_ranges(found), *_multiplied(found, layers), *_failed(failed)]
    return [*said, *_processes(found)]


def _clocks(found: Kernels) -> Iterator[str]:
    for gpu in found.gpus:
        if math.isnan(gpu.clock_hz):
            continue
        clock = f"{gpu.name}: measured at {gpu.clock_hz / 1e9:.2f} GHz (median of the SMs' clocks)"
        if gpu.slowed:
            yield (
                f"{clock}, {share(gpu.clock_hz, gpu.highest_hz)} of its highest, {gpu.highest_hz / 1e9:.2f} GHz: by "
                "default ncu locks the base clock, and times are at that clock (--clock-control none does not)"
            )
        else:
            yield clock


def _sources(found: Kernels) -> Iterator[str]:
    for gpu in found.gpus:
        if gpu.device is not None and gpu.device.byte_per_s is not None:
            yield f"{gpu.name}: bandwidth of DRAM from {gpu.device.source or 'the device itself'}"
        else:
            yield f"{gpu.name}: bandwidth of DRAM unknown (measure it: pyprof peaks -o peaks.json, and give --peaks)"


def _ranges(found: Kernels) -> Iterator[str]:
    if found.ranged:
        return
    if any(found.phases):
        yield (
            "the report has no NVTX ranges of PyTorch: passes and phases are guessed from kernel names and their order "
            "(measure with pyprof ncu -- python SCRIPT)"
        )
    else:
        yield (
            "the report has no NVTX ranges of PyTorch, and the kernels' names do not show which pass they belong to "
            "(measure with pyprof ncu -- python SCRIPT)"
        )


def _multiplied(found: Kernels, layers: Layers | None) -> Iterator[str]:
    if layers is not None:
        times = counted(int((found.counts > 1).sum()), "kernel")
        yield (
            f"--layers {layers.total}: {times} of the profiled layers counted {int(found.counts.max())} times, all "
            "others once, the optimizer's too, which updated the parameters of the profiled layers"
        )


def _failed(failed: int) -> Iterator[str]:
    if failed:
        yield f"{counted(failed, 'kernel')} without a time, whose measurement failed: left out of times and rates"


def _processes(found: Kernels) -> Iterator[str]:
    if found.processes > 1:
        yield f"the kernels are of {found.processes} processes, and so are all sums"
