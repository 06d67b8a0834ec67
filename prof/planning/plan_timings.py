"""Timings for a plan: from a file, and, with --measure, from this machine's GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pyprof.command.json_schema import Record, doc
from pyprof.errors import InputError, PyprofError, require
from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.measured.retimer import Retimer, with_measured
from pyprof.prof.changes.measured.timed_call import TimedCall
from pyprof.prof.changes.measured.timings_file import (
    CallTime,
    Timings,
    check_device,
    load_timings,
    timings_of,
    timings_text,
)

if TYPE_CHECKING:
    from pyprof.command.progress import Say

Found = TypeVar("Found")


class PlanTimings(Record):
    """The measured durations that the plan used."""

    device: Annotated[str, doc("the GPU that they were measured on")]
    torch: Annotated[str, doc("its PyTorch's version")]
    calls: Annotated[int, doc("how many were known")]
    measured: Annotated[int, doc("how many of them were timed now (--measure)")]
    missing: Annotated[int, doc("how many more the plan's changes ask for")]
    failed: Annotated[list[str], doc("calls that could not be timed, of all that the file has, with the reason")]


class Source:
    """Where measured durations come from: a file, read if it exists, and the GPU of this machine (``measure``).

    Raises InputError for a file that is wrong, or of another GPU than the capture's, and PyprofError where --measure
    cannot run, with what is missing.
    """

    def __init__(self, base: BaseRun, file: str | None, measure: bool, seconds: float, any_gpu: bool) -> None:
        self.base, self.file, self.seconds = base, file, seconds
        self.measured = 0  # calls that were timed now
        self.missing = 0  # calls that the plan asks for and that were not timed
        gpus = [name for name in base.table.coded("gpu").values if name]
        self.known = load_timings(file) if file and (Path(file).exists() or not measure) else None
        if self.known is not None and file and not any_gpu:
            check_device(self.known, file, gpus, "measure on that GPU, or add --any-gpu to use them all the same")
        self.times = self.known.by_call if self.known else {}
        self.device = _device(gpus, any_gpu) if measure else None  # None: the file alone
        if self.known is not None and file and measure:
            _same_machine(self.known, file, self.device)

    def plan(self, find: Callable[[], Found], say: Say) -> Found:
        """What ``find`` returns with measured durations for the edits of the run."""
        retimer = Retimer(self.times)
        self.base.retime = retimer
        until = time.monotonic() + self.seconds

        def measure(calls: list[TimedCall]) -> list[CallTime]:
            if self.device is None:
                return []
            from pyprof.benchmark.time_edits import time_edits

            new = time_edits(calls, self.device, until, say)
            self.measured += len(new)
            return new

        found = with_measured(retimer, find, measure)
        self.missing = len(retimer.missing)
        return found

    def write(self) -> str | None:
        """Write the file, if something was timed; its name."""
        if not self.file or not self.measured:
            return None
        from pyprof.files import open_output

        with open_output(self.file, force=True) as out:
            out.write(timings_text(self.content()))
        return self.file

    def content(self) -> Timings:
        if self.known is not None and self.device is None:
            return self.known
        from pyprof.benchmark.device_facts import facts

        return timings_of(facts(self.device), list(self.times.values()))

    def document(self) -> PlanTimings:
        """What the plan's document says of its timings."""
        content = self.content()
        failed = [f"{each.call}: {each.why}" for each in content.calls if each.seconds is None]
        return PlanTimings(content.device, content.torch, len(content.calls), self.measured, self.missing, failed)


def _device(gpus: Sequence[str], any_gpu: bool) -> Any:
    wanted = gpus[0] if gpus else "a GPU"
    require("torch", f"--measure times calls on {wanted}: install PyTorch, or give --timings FILE of a machine with it")
    import torch

    if not torch.cuda.is_available():
        raise PyprofError(
            f"--measure times calls on {wanted}, and PyTorch finds no GPU here; run it on that machine with --timings "
            "FILE, and plan here with the same --timings FILE and without --measure"
        )
    here = torch.cuda.get_device_name()
    others = [name for name in gpus if name != here]
    if others and not any_gpu:
        raise PyprofError(
            f"--measure times calls on the capture's {others[0][:80]}, and this machine has {here}; add --any-gpu to "
            "use its times all the same"
        )
    return torch.device("cuda")


def _same_machine(known: Timings, file: str, device: Any) -> None:
    """Raise InputError if a file that is to be extended has times of another device or PyTorch."""
    from pyprof.benchmark.device_facts import facts

    here = facts(device)
    if (known.device, known.torch) != (here["device"], here["torch"]):
        raise InputError(
            file,
            f"expected timings of {here['device']} with PyTorch {here['torch']}, to add to them, found those of "
            f"{known.device[:80]} with {known.torch[:40]}; give another name",
        )
