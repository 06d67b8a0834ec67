"""The first sentences of a summary: how long a step takes, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.prof.step.run_step import GPU_LIMITS, HostPlace, Limit, RunStep
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.wording import joined
from pyprof.prof.work.kinds import COPIES
from pyprof.quantities import counted, ms, rounded, share

LITTLE = 0.01  # of the step; a smaller share is not named
NAMED = 3  # places of the host's pauses
MOST_SLOWED = 2.0  # about what a step takes with the profiler over one without it, where that is most (tiny GPT-2: 2.1)
LEADING = 0.1  # of the step; a shorter time before its first operation is not named
LIMITS: dict[Limit, str] = {
    "gpu": "The GPU limits",
    "communication": "Communication limits",
    "data": "Loading data limits",
    "sync": "Waiting for the GPU's results limits",
    "host": "The host limits",
    "latency": "Work that starts late although it was launched limits",
    "unknown": "It is not known what limits",
}
IDLE = {
    "sync": "after the host waited for a copy or a value",
    "host": "while the host has not launched the next operation",
    "latency": "before operations that were launched already",
    "unknown": "before work whose launch is not in the capture",
}
LOADING = {
    "workers": "while the program waits for the DataLoader's worker processes",
    "single process": "while the DataLoader makes the batch in the program's own process",
    "": "before a batch's copy, which was not launched in time",
}


def step_sentences(summary: Summary) -> Iterator[str]:
    """The step's time, and the verdict."""
    step = summary.step
    if step is None:
        return
    yield _time(step)
    empty = sum(not part.rows for part in summary.steps)
    if empty:
        yield f"{empty:,} of the {len(summary.steps):,} steps launch{'es' if empty == 1 else ''} no work on the GPU."
    if step.unit == "step" and step.begins == "operation":
        which = "a step begins, so each" if step.count > 1 else "the step begins, so it"
        yield f"No mark says when {which} is taken to begin with its first operation."
    if step.shares:
        yield _of_cpu(step) if summary.on_cpu else _verdict(step, _mostly_copies(summary))
        yield from _differing(step)
        yield from _places(summary, step)


def figure_of(step: RunStep) -> str:
    """What the step's time is: "median of 4, without the profiler", "1 step, as captured"."""
    if step.unit == "capture":
        return "from the first operation to the last"
    number = f"{step.of} of {step.steps}" if step.steps > 1 else counted(1, "step")
    return f"{number}, {'without the profiler' if step.timed else 'as captured'}"


def _time(step: RunStep) -> str:
    wall = ms(round(step.wall_ns))
    if step.unit == "capture":
        return f"The capture takes {wall} from its first operation to its last; no steps are marked."
    spread = f"{ms(round(step.low_ns))} to {ms(round(step.high_ns))}"
    if step.timed:
        of = (
            f"median of {step.steps} timed before it started, {spread}" if step.steps > 1 else "timed before it started"
        )
        return (
            f"A step takes {wall} without the profiler ({of}), and {ms(round(step.captured_ns))} as captured with it."
        )
    if step.steps == 1:
        return f"{'The' if step.count == 1 else 'A'} step takes {wall} as captured."
    if step.of == "mean":
        return f"A step takes {wall} as captured, the mean of {step.steps} that take from {spread}."
    return f"A step takes {wall} as captured (median of {step.steps}, {spread})."


def _mostly_copies(summary: Summary) -> bool:
    """Whether most of what the GPU does is to copy from and to the host."""
    return any(part.name == COPIES and 2 * part.ns > summary.total_ns for part in summary.kinds)


def _verdict(step: RunStep, copies: bool) -> str:
    wall, what = ms(round(step.wall_ns)), f"the {step.unit}"
    works = f"the GPU works for {ms(round(step.share('gpu')))} of {wall} ({share(step.share('gpu'), step.wall_ns)}"
    works += ", mostly copies from and to the host)" if copies else ")"
    text = f"{LIMITS[step.limit]} {what}: {works}"
    if step.share("communication") > LITTLE * step.wall_ns:
        text += f" and only communicates for {ms(round(step.share('communication')))}"
    causes = sorted((cause for cause in ("data", *IDLE)), key=lambda cause: -step.share(cause))
    idle = [_idle(step, cause) for cause in causes if step.share(cause) > LITTLE * step.wall_ns]
    text += f"; it is idle for {joined(idle)}" if idle else ""
    return f"{text}.{_lead(step)}{_profiled(step)}"


def _of_cpu(step: RunStep) -> str:
    """The verdict on a CPU, which does all the work: the DataLoader's part of it."""
    what, wall, data = f"the {step.unit}", ms(round(step.wall_ns)), step.share("data")
    if data <= LITTLE * step.wall_ns:
        return f"The host limits {what}: all of its {wall} are the CPU's work, without a call of a DataLoader."
    waits = "waits for the DataLoader's workers" if step.loader == "workers" else "makes batches in the DataLoader"
    text = f"{LIMITS[step.limit]} {what}: for {ms(round(data))} of {wall} the program {waits}"
    return f"{text}; the rest is its own work."


def _idle(step: RunStep, cause: str) -> str:
    return f"{ms(round(step.share(cause)))} {LOADING[step.loader] if cause == 'data' else IDLE[cause]}"


def _lead(step: RunStep) -> str:
    if step.lead_ns < LEADING * step.captured_ns or step.share("host") < LEADING * step.wall_ns:
        return ""
    as_captured = " (as captured)" if step.timed else ""
    return f" {ms(round(step.lead_ns))}{as_captured} pass from a step's beginning to its first operation."


def _profiled(step: RunStep) -> str:
    """That the profiler's cost is in the host's share, and in that of batches which the program's own process makes,
    where these decide something."""
    slowed = ["host"] if step.loader == "workers" else ["host", "data"]
    named = [cause for cause in slowed if step.share(cause) >= LEADING * step.wall_ns]
    if step.timed or not named:
        return ""
    shares = {
        "host": "the host's share",
        "data": "that of loading data" if len(named) > 1 else "the share of loading data",
    }
    smaller = f"{joined([shares[cause] for cause in named])} {'is' if len(named) == 1 else 'are'} smaller"
    least = max(step.wall_ns - sum(map(step.share, slowed)), step.wall_ns / MOST_SLOWED)
    if step.limit in named and step.share("gpu") >= GPU_LIMITS * least:
        smaller += f", and the GPU may be what limits the {step.unit}"
    return f" The profiler slows the host, so without it {smaller}: pyprof run --warmup 4 times steps without it."


def _places(summary: Summary, step: RunStep) -> Iterator[str]:
    """The lines before which the host pauses, where its share of the step is worth a look."""
    named = [place for place in summary.host_places[:NAMED] if place.ns > LITTLE * step.captured_ns]
    if summary.on_cpu or not named or step.share("host") < LEADING * step.wall_ns:
        return
    as_captured = " as captured" if step.unit == "step" else ""
    yield f"The host pauses longest, per {step.unit}{as_captured}: {joined([_pauses(place) for place in named])}."


def _pauses(place: HostPlace) -> str:
    pauses = rounded(place.pauses, 3)
    where = " at ".join(filter(None, (place.op, place.line)))
    return f"{ms(round(place.ns))} in {pauses} {'pause' if pauses == '1' else 'pauses'} before {where}"


def _differing(step: RunStep) -> Iterator[str]:
    """What limits each device, where that is not the same."""
    limits = [device.limit for device in step.devices]
    if len(set(limits)) > 1:
        each = [f"{limits.count(limit)} × {limit}" for limit in dict.fromkeys(limits)]
        yield f"Of the {len(limits)} GPUs, the steps' limits differ: {joined(each)}."
