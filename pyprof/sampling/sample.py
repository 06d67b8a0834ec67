"""What is known of one sampled iteration. Unknown values are None, never 0."""

from collections.abc import Mapping
from typing import Any, NamedTuple

MOST_OPS = 10  # ops of a sample, those with the longest time


class OpTime(NamedTuple):
    """An op's share of a sampled iteration; overlaps count twice."""

    op: str
    ms: float
    percent: float  # of the time of all ops of the iteration


class Sample(NamedTuple):
    """The numbers of one iteration.

    Idle time and MFU refer to `step_ms`, which no profiler slowed, and to the recorded iteration only where no
    iteration was timed. On a CPU they are unknown.
    """

    iteration: int  # counted from 0 in the block
    time_s: float  # when the iteration ended, Unix time
    rank: int | None  # in a distributed job
    step_ms: float | None  # median of the iterations timed just before, without a profiler
    recorded_ms: float  # the iteration itself, under the profiler, on the host
    sampling_ms: float  # what the sample cost the training thread besides the iteration: begin, end and export
    reading_ms: float  # how long the other process read the trace
    trace_bytes: int
    worker: str  # GPU or CPU: where the ops of `ops` ran
    busy_ms: float  # time of all rows; overlaps count twice
    attributed_percent: float | None  # of busy_ms, the share that has an op
    gpu_idle_percent: float | None  # of the iteration's time, mean of the GPUs
    tensor_core_percent: float | None  # of busy_ms, the share of kernels on tensor cores; those unknown are not in it
    tensor_core_unknown_percent: float | None  # of busy_ms, the share of kernels that may use them or not
    mfu_percent: float | None  # FLOPs of matrix products at the dense peak of each one's unit, of the iteration's time
    ops: tuple[OpTime, ...]  # the longest first
    incomplete: str | None  # why the trace lacks records, if it does

    def scalars(self) -> dict[str, float]:
        """The known numbers that are worth a curve, by name."""
        found = {name: getattr(self, name) for name in CURVES}
        return {name: float(value) for name, value in found.items() if value is not None}


# The curves, with what a monitoring system says of each.
CURVES = {
    "step_ms": "Time of a step without the profiler, median of the steps before the sampled one, in ms",
    "gpu_idle_percent": "Share of the step in which the GPU did nothing, in percent",
    "tensor_core_percent": "Share of the operations' time on tensor cores, in percent",
    "tensor_core_unknown_percent": "Share of the operations' time of which it is unknown, in percent",
    "mfu_percent": "Model FLOPs utilisation of the step, in percent",
    "busy_ms": "Time of all operations of the sampled step, in ms",
    "attributed_percent": "Share of the operations' time that has an op, in percent",
    "sampling_ms": "What the sample cost the training thread besides the step itself, in ms",
}


def sample_from(values: Mapping[str, Any]) -> Sample:
    """The sample of which `_asdict` made a JSON object."""
    return Sample(**{**values, "ops": tuple(OpTime(*op) for op in values["ops"])})
