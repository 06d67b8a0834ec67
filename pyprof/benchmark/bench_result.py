"""The result of ``pyprof.bench``: times, work, rates, and the share of the hardware's limit."""

from __future__ import annotations

from dataclasses import dataclass

from pyprof.benchmark.other_programs import caution
from pyprof.command.terminal_text import wrapped
from pyprof.quantities import amount, binary_bytes

GRAPH, EVENTS, CPU = "cuda graph", "cuda events", "cpu timer"
SMALL = 10  # calls that take longer than so many empty nodes are shown without the node's time
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns"))


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one call. The spread is that between trials: its quartiles."""

    seconds: float  # the median
    low_s: float
    high_s: float
    best_s: float  # the shortest trial
    trials: int
    method: str  # GRAPH, EVENTS or CPU
    calls: int  # in a trial
    empty_node_s: float | None = None  # of a graph's node, beside its kernel's duration; has been subtracted
    host_s: float | None = None  # of the host, to launch one call; only measured without a graph
    why: str = ""  # why there is no graph
    clock_mhz: int | None = None  # of the multiprocessors, while they worked
    other_cores: float | None = None  # that other programs used meanwhile; only on a CPU, where the system tells

    @property
    def launches(self) -> bool:
        """Whether the host's launches, and not the GPU, probably decide the time."""
        return self.host_s is not None and self.host_s > 0.9 * self.seconds


@dataclass(frozen=True, slots=True)
class Measured:
    """One direction of a call: forward or backward."""

    timing: Timing  # of calls that take turns with copies of the inputs
    warm: Timing | None  # of calls that all work on the same inputs; None if not asked for
    flop: int | None  # of the algorithm; None if an op has no model
    nbytes: float | None  # that the algorithm reads and writes; None likewise
    limit_s: float | None  # no call that does this work can be faster; None if unknown
    bound: str = ""  # "compute" or "memory": the greater limit

    @property
    def seconds(self) -> float:
        """The median."""
        return self.timing.seconds

    @property
    def flop_per_s(self) -> float | None:
        return _rate(self.flop, self.seconds)

    @property
    def byte_per_s(self) -> float | None:
        return _rate(self.nbytes, self.seconds)

    @property
    def share(self) -> float | None:
        """The limit's share of the time, in percent; 100 is as fast as the hardware allows."""
        return None if self.limit_s is None or not self.seconds else 100 * self.limit_s / self.seconds


@dataclass(frozen=True, slots=True, repr=False)
class Bench:
    """A call's measurement."""

    name: str
    device: str
    forward: Measured
    backward: Measured | None
    copies: int  # of the inputs, which take turns
    copy_bytes: int  # of one copy and its results
    cold: bool  # whether the copies exceed the last cache before memory
    uncounted: tuple[str, ...] = ()  # ops whose FLOPs and bytes are not known

    @property
    def seconds(self) -> float:
        """The median time of a forward call."""
        return self.forward.seconds

    @property
    def flop(self) -> int | None:
        return self.forward.flop

    @property
    def nbytes(self) -> float | None:
        return self.forward.nbytes

    @property
    def flop_per_s(self) -> float | None:
        return self.forward.flop_per_s

    @property
    def byte_per_s(self) -> float | None:
        return self.forward.byte_per_s

    @property
    def share(self) -> float | None:
        """The limit's share of the forward call's time, in percent."""
        return self.forward.share

    @property
    def clock_mhz(self) -> int | None:
        """Of the multiprocessors, while they worked; None if NVML does not say, and on a CPU."""
        return self.forward.timing.clock_mhz

    @property
    def is_graph(self) -> bool:
        """Whether the time is that of a CUDA graph."""
        return self.forward.timing.method == GRAPH

    def directions(self) -> dict[str, Measured]:
        """What was measured, by direction."""
        return {"forward": self.forward} | ({"backward": self.backward} if self.backward else {})

    def __repr__(self) -> str:
        return "\n".join([*self._figures(), *(f"  {note}" for note in self.notes())])

    def lines(self, width: int) -> list[str]:
        """The same as ``repr`` with the notes in lines of ``width`` characters or fewer."""
        return [*self._figures(), *(line for note in self.notes() for line in wrapped(note, width, "  ", "  "))]

    def _figures(self) -> list[str]:
        lines = [f"{self.name} on {self.device}"]
        for direction, measured in self.directions().items():
            lines.append(f"  {direction:8} {described(measured)}")
            if measured.warm is not None:
                lines.append(f"  {'':8} {_times(measured.warm)} if the inputs stay in the cache")
        return lines

    def notes(self) -> list[str]:
        """How it was measured, in sentences."""
        timing = self.forward.timing
        said = [f"Median of {timing.trials} trials by {_METHODS[timing.method]}, with quartiles. {self._inputs()}"]
        if timing.host_s is not None:
            said.append(f"A launch takes the host {time_text(timing.host_s)}.")
        if timing.empty_node_s is not None and timing.seconds < SMALL * timing.empty_node_s:
            text = time_text(timing.empty_node_s)
            said.append(f"{text} were subtracted: what a node of a graph takes beside its kernel's duration.")
        if timing.clock_mhz is not None:
            said.append(f"The multiprocessors ran at {timing.clock_mhz:,} MHz.")
        return [*said, *self.cautions()]

    def cautions(self) -> list[str]:
        """What limits the figures, in sentences; none if nothing does."""
        said = [
            f"No CUDA graph: {measured.timing.why}." for measured in self.directions().values() if measured.timing.why
        ]
        cores = [measured.timing.other_cores or 0.0 for measured in self.directions().values()]
        said += [text for text in [caution(max(cores))] if text]
        if any(measured.timing.launches for measured in self.directions().values()):
            said.append("The host's launches limit the time; the GPU may be faster.")
        if self.uncounted:
            said.append(f"FLOPs and bytes are unknown for {', '.join(self.uncounted)}.")
        return list(dict.fromkeys(said))

    def _inputs(self) -> str:
        if self.copies == 1 and not self.cold:
            return "All calls had the same inputs, which may stay in the cache."
        sizes = f"{self.copies:,} × {binary_bytes(self.copy_bytes)}"
        if self.copies == 1:
            return f"The inputs and results exceed the cache: {sizes}."
        times = "at least" if self.cold else "less than"
        return f"Calls took turns with copies of the inputs: {sizes}, {times} three times the size of the last cache."


_METHODS = {CPU: "torch.utils.benchmark", EVENTS: "CUDA events", GRAPH: "replays of a CUDA graph"}


def described(measured: Measured) -> str:
    """A measurement in one line."""
    parts = [_times(measured.timing)]
    if measured.flop:
        parts.append(amount(measured.flop_per_s or 0.0, "FLOP/s"))
    if measured.nbytes:
        parts.append(amount(measured.byte_per_s or 0.0, "B/s"))
    if measured.share is not None:
        parts.append(f"{measured.share:.3g}% of the {measured.bound} limit")
    return ", ".join(parts)


def _times(timing: Timing) -> str:
    return f"{time_text(timing.seconds)} ({time_text(timing.low_s)} to {time_text(timing.high_s)})"


def time_text(seconds: float) -> str:
    """
    >>> time_text(1.2345e-6), time_text(0.25), time_text(3), time_text(0)
    ('1.235 µs', '250 ms', '3 s', '0 ns')
    """
    scale, unit = next((scale, unit) for scale, unit in UNITS if seconds >= scale)
    return f"{seconds / (scale or 1e-9):.4g} {unit}"


def _rate(work: float | None, seconds: float) -> float | None:
    return None if work is None or not seconds else work / seconds
