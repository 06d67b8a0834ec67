"""Sentences about the clocks, power and energy of the GPUs, where ``pyprof run --nvml`` read them."""

import math
from collections.abc import Iterator

from pyprof.prof.kernels.precision import unit_name
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.wording import amount, joined
from pyprof.prof.timing.clocks import Clocks
from pyprof.quantities import counted, ms, share

MOST = 3  # reasons and GPUs that a sentence names
FEW = 5  # readings of work below which a mean says little
FEW_UPDATES = 20  # of NVML's values below which an energy is an estimate, within some percent
TELLING = 0.01  # share of the work; a fall that is shorter is not mentioned
NO_COUNTER = "this GPU has no energy counter"


def clock_sentences(summary: Summary) -> Iterator[str]:
    """The SM and memory clocks while each GPU worked."""
    for gpu in _known(summary):
        clock = f"The SM clock{_of(gpu, summary)} was {mhz(gpu.sm_mhz)} on average while the GPU worked"
        extent = f"lowest {mhz(gpu.lowest_sm_mhz)}, highest {mhz(gpu.highest_sm_mhz)}"
        limit = f", of at most {mhz(gpu.sm_limit_mhz)}" if gpu.sm_limit_mhz is not None else ""
        memory = ""
        if not math.isnan(gpu.memory_mhz):
            lowest = "" if gpu.lowest_memory_mhz >= gpu.memory_mhz - 1 else f", lowest {mhz(gpu.lowest_memory_mhz)}"
            memory = f"; the memory clock was {mhz(gpu.memory_mhz)}{lowest}"
        readings = max(round(gpu.work_ns / gpu.period_ns), 1) if gpu.period_ns else gpu.readings
        few = f" (about {counted(readings, 'reading')}: an estimate)" if readings < FEW else ""
        yield f"{clock} ({extent}{limit}){memory}{few}."


def fall_sentences(summary: Summary) -> Iterator[str]:
    """When the SM clock fell below its limit, for how long, and what NVML names as the reason."""
    for gpu in _known(summary):
        if not gpu.falls or gpu.fallen_ns < TELLING * gpu.work_ns:
            continue
        limit = "the highest that was read" if gpu.sm_limit_mhz is None else "its limit"
        times = "" if len(gpu.falls) == 1 else f", {len(gpu.falls)} times"
        first = f"first {ms(gpu.falls[0].start_ns)} after the capture began{times}"
        reasons = [f"{reason.name} {share(reason.ns, gpu.work_ns)}" for reason in gpu.reasons[:MOST]]
        why = f"NVML names as reasons, by their share of the work: {joined(reasons)}" if reasons else "NVML names none"
        yield (
            f"The SM clock{_of(gpu, summary)} was more than 2% below {limit} for {share(gpu.fallen_ns, gpu.work_ns)} "
            f"of the work, {first}. {why}."
        )


def peak_sentences(summary: Summary) -> Iterator[str]:
    """What the clocks allowed, beside the peak that the limits refer to."""
    for peak in list(dict.fromkeys(summary.clock_peaks))[:MOST]:
        reached, referred = (amount(rate, "FLOP/s") for rate in (peak.flop_per_s, peak.peak_flop_per_s))
        at_most = f"this GPU's {unit_name(peak.unit)} reach at most {reached}"
        yield f"At {mhz(peak.sm_mhz)}, {at_most}; limits and MFU refer to {referred}."


def power_sentences(summary: Summary) -> Iterator[str]:
    """Mean power, and the energy of a step by the counter and by integrated power."""
    for gpu in _known(summary):
        if math.isnan(gpu.power_w):
            continue
        limit = "" if math.isnan(gpu.power_limit_w) else f", of at most {gpu.power_limit_w:,.0f} W"
        heat = (
            "" if math.isnan(gpu.highest_temperature_c) else f", and was at most {gpu.highest_temperature_c:.0f} °C hot"
        )
        yield f"The GPU{_of(gpu, summary)} drew {gpu.power_w:,.0f} W on average while it worked{limit}{heat}."
    energies = [gpu for gpu in summary.clocks if not math.isnan(gpu.joule_per_step)]
    if not energies:
        return
    steps = min(gpu.steps for gpu in energies)
    per_step = sum(gpu.joule_per_step for gpu in energies)
    by_power = sum(gpu.integrated_j / gpu.steps for gpu in energies)
    together = "of the GPUs together " if len(energies) > 1 else ""
    mean = f"mean of {counted(steps, 'step')}, idle time included"
    updates = min(gpu.updates for gpu in energies)
    about = ""
    if updates < FEW_UPDATES:
        about, mean = "about ", f"{mean}; an estimate, for NVML's values changed {updates} times meanwhile"
    if any(math.isnan(gpu.energy_j) for gpu in energies):
        yield f"A step takes {about}{joule(per_step)} {together}by integrated power ({NO_COUNTER}; {mean})."
        return
    beside = "" if math.isnan(by_power) else f", {joule(by_power)} by integrated power"
    yield f"A step takes {about}{joule(per_step)} {together}by NVML's energy counter{beside} ({mean})."


def _known(summary: Summary) -> list[Clocks]:
    """The GPUs with clocks, the slowest first; no more than a summary has room for."""
    known = [gpu for gpu in summary.clocks if not math.isnan(gpu.sm_mhz)]
    return sorted(known, key=lambda gpu: gpu.sm_mhz)[:MOST]


def _of(gpu: Clocks, summary: Summary) -> str:
    """Which of several GPUs."""
    if len(summary.clocks) < 2:
        return ""
    numbers = (("rank", gpu.rank), ("process", gpu.pid if gpu.rank is None else None), ("GPU", gpu.ordinal))
    return " of " + ", ".join(f"{name} {value}" for name, value in numbers if value is not None)


def mhz(value: float) -> str:
    return f"{value:,.0f} MHz"


def joule(value: float) -> str:
    """
    >>> joule(31.234), joule(0.01234), joule(1234.5)
    ('31.2 J', '0.0123 J', '1,234 J')
    """
    return f"{value:,.0f} J" if value >= 1000 else f"{value:.3g} J"
