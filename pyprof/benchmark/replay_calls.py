"""The heaviest calls of a capture, timed alone on this machine, beside their time in the capture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pyprof.benchmark.bench import Subject, backward_of, measured_times
from pyprof.benchmark.bench_result import Timing
from pyprof.benchmark.call_timer import kernels_of
from pyprof.benchmark.device_facts import free_bytes
from pyprof.benchmark.sweep_axes import DTYPES
from pyprof.benchmark.timer import Effort
from pyprof.errors import PyprofError
from pyprof.prof.captured import Captured, read_capture
from pyprof.prof.ops.marker_arguments import call_arguments
from pyprof.prof.ops.model import Tensor
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.table.where import parse_where, rows_where
from pyprof.rerun.new_inputs import NotRecreated
from pyprof.rerun.random_tensors import strides_of
from pyprof.rerun.recorded_calls import RecordedCall, recorded_calls
from pyprof.rerun.recreate import recreate, refusals

Say = Callable[[str], None]
SHORT = {dtype: name for name, dtype in DTYPES.items()}
LONGEST = 160  # characters of the arguments


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """A call in the capture and alone. ``timing`` is None if it could not be made again; ``why`` is the reason."""

    call: RecordedCall
    timing: Timing | None = None  # with inputs that are not in the cache
    warm: Timing | None = None  # with inputs that are, where they fit
    kernels: tuple[str, ...] = ()  # that it launched here; empty on a CPU
    why: str = ""

    @property
    def capture_s(self) -> float:
        """Seconds per call in the capture: the durations of its kernels."""
        return self.call.ns * 1e-9 / self.call.calls

    @property
    def ratio(self) -> float | None:
        """Time alone / time in the capture."""
        return self.timing.seconds / self.capture_s if self.timing and self.capture_s else None

    @property
    def same_kernels(self) -> bool | None:
        """Whether the same kernels ran as in the capture; None if either is unknown."""
        ran = {name for name in self.kernels if not _is_fill(name)}
        recorded = {name for name in self.call.kernels if not _is_fill(name)}
        return ran == recorded if ran and recorded else None


def _is_fill(name: str) -> bool:
    """Profilers name fills and copies by the driver differently."""
    return name.lower().startswith(("memset", "memcpy", "[cuda mem"))


def capture_calls(file: str, condition: str | None) -> tuple[Captured, list[RecordedCall]]:
    """A capture and its distinct calls, or those of the rows for which a condition is true."""
    captured = read_capture([file])
    if not condition:
        return captured, recorded_calls(captured.table)
    wanted = parse_where(condition, COLUMN)
    columns = {column.name: captured.column(column.name) for column in wanted.columns}
    rows = np.flatnonzero(rows_where(wanted, columns))
    if not len(rows):
        raise PyprofError(f"{file}: no row for which {condition} is true")
    return captured, recorded_calls(captured.table, rows)


def replay(calls: Sequence[RecordedCall], device: torch.device, effort: Effort, say: Say) -> list[ReplayedCall]:
    """Make each call again and time it. A call that fails is in the result, with the reason."""
    found = []
    for call in calls:
        say(call.op)
        try:
            found.append(_timed(call, device, effort))
        except NotRecreated as error:
            found.append(ReplayedCall(call, why=str(error)))
    if device.type == "cuda":  # after all measurements, which the profiler would slow down
        say("kernels")
        found = [replace(row, kernels=_launched(row.call, device)) if row.timing else row for row in found]
    return found


def _timed(call: RecordedCall, device: torch.device, effort: Effort) -> ReplayedCall:
    made = recreate(call, device, free_bytes(device) // 4)
    subject = Subject(made.function, made.args, made.kwargs)
    with refusals():
        return ReplayedCall(call, *measured_times(subject, made.backward, made.nbytes, device, effort))


def _launched(call: RecordedCall, device: torch.device) -> tuple[str, ...]:
    """The names of the kernels of one call, without duplicates; none if the call fails now."""
    try:
        made = recreate(call, device, free_bytes(device) // 4)
        subject = Subject(made.function, made.args, made.kwargs)
        with refusals():
            run = backward_of(subject) if made.backward else subject
            run()  # a first call may choose among several algorithms
            return kernels_of(run)
    except NotRecreated:
        return ()


def arguments_text(call: RecordedCall) -> str:
    """The arguments in short: ``bf16[4096,768], bf16[768,3072 strides 1,768], 1, 1``. Strides if not contiguous."""
    values = call_arguments(call.markers[-1]) if call.is_api and call.markers else call.arguments
    text = ", ".join(_short(value) for value in values if value is not None)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        sizes = ",".join(map(str, value.shape))
        dense = value.strides in (None, strides_of(value.shape, "row"))
        strides = "" if dense else f" strides {','.join(map(str, value.strides or ()))}"
        return f"{SHORT.get(value.dtype, value.dtype)}[{sizes}{strides}]"
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return f"{len(value)} tensors"
    return str(value)[:40]
