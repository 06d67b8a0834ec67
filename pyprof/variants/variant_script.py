"""One run of pyprof try: `python -m pyprof.variants.variant_script SETTINGS`, the script with changes applied to it.

The script is `__main__`, as under `pyprof run`. When its steps are timed, the record is written and the process ends at
once, with the code 0 and without the script's own handlers: what a script does at its end, such as writing a
checkpoint, is no part of a variant. The run of the script as it is may go on for a while (``rest_s``), so that it ends
by itself if it can.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import threading
from typing import Any

from pyprof.capture.patch import Patches
from pyprof.variants.run_record import OPTIMIZER, Facts, RunRecord, Settings, read_settings, write


class VariantRun:
    """The script's run: what is replaced for it, and what is measured."""

    def __init__(self, settings: Settings) -> None:
        from pyprof.variants.step_watch import StepWatch

        self._settings = settings
        self._facts, self._done, self._patches = Facts(), list[str](), Patches()
        self._watch = StepWatch(settings.warmup, settings.steps, self._timed)
        self._close = [self._patches.undo]
        self._kept: list[Any] = []

    def open(self) -> None:
        """Set seeds and flags, and replace what the changes and the measurement need."""
        from pyprof.capture import control
        from pyprof.capture.step_finder import StepFinder
        from pyprof.variants import default_changes
        from pyprof.variants.loss_record import watch_backward
        from pyprof.variants.model_changes import ModelChanges
        from pyprof.variants.outermost import Outermost
        from pyprof.variants.run_record import MARK

        settings, patches, facts, done = self._settings, self._patches, self._facts, self._done
        _set_seeds(settings.seed)
        self._kept = default_changes.set_flags(settings.changes)
        default_changes.change_optimizers(patches, settings, self._watch, facts, done)
        default_changes.change_loaders(patches, settings, facts, done)
        if not settings.changes:
            default_changes.watch_attention(patches, facts)
        models = ModelChanges(settings.changes, self._watch, facts, done)
        outermost = Outermost(patches, models.around)
        if "compile" not in settings.changes:  # which may trace the calls of all modules again
            self._watch.settle = outermost.settle
        watch_backward(patches, self._watch, models.leave_autocast)
        finder = StepFinder(lambda: self._watch.ended(OPTIMIZER))
        control.heed_steps(lambda: self._watch.ended(MARK))
        self._close += [finder.close, lambda: control.heed_steps(None)]

    def _timed(self) -> None:
        """All steps have been timed."""
        self._write(finished=True)
        if self._settings.rest_s <= 0:
            _end_at_once()
        for close in reversed(self._close):
            close()
        late = threading.Timer(self._settings.rest_s, _end_at_once)
        late.daemon = True
        late.start()

    def ended(self) -> None:
        """The script has ended by itself."""
        if not self._watch.finished:
            self._write(finished=False)

    def _write(self, finished: bool) -> None:
        from pyprof.variants.default_changes import note_flags

        note_flags(self._facts)
        times, passed_over = self._watch.step_ns()
        record = RunRecord(
            steps_by=self._watch.kind,
            step_ns=times,
            passed_over=passed_over,
            finished=finished,
            losses=[*self._watch.losses()],
            peak_bytes=_peak_bytes(self._facts),
            facts=self._facts,
            done=list(dict.fromkeys(self._done)),
        )
        write(self._settings.record, record)


def _set_seeds(seed: int) -> None:
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _peak_bytes(facts: Facts) -> int:
    if facts.gpu:
        import torch

        return int(torch.cuda.max_memory_allocated())
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _end_at_once() -> None:
    for child in multiprocessing.active_children():  # workers of a DataLoader
        child.terminate()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(0)


def main(argv: list[str]) -> int:
    settings = read_settings(argv[0])
    from pyprof.capture.run_script import Script, run_alone

    run = VariantRun(settings)
    run.open()
    code, interrupted = run_alone(Script(settings.script, tuple(settings.args), settings.module))
    run.ended()
    return 130 if interrupted else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
