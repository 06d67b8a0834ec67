"""Find the ends of the program's iterations, so that --warmup and --steps work on an unchanged script.

An iteration is one period of the first optimizer: from the end of one `optimizer.step()` to the end of its next one.
So gradient accumulation, whose batches share one step, makes one iteration, and so do the several optimizers of a GAN.
A step that `GradScaler` skips, for its gradients overflowed, ends an iteration as well.

In Lightning and in the Trainer of Hugging Face, a callback that is added to the running trainer ends the iteration,
after the optimizer's step. Once the program has called pyprof.step(), only these calls count.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from pyprof.capture.patch import Patches


class Framework(NamedTuple):
    """A framework whose trainer runs the loop."""

    trainer: str  # the module whose functions run the loop
    package: str  # the module that has the callbacks' base class
    base: str
    event: str  # the callback's method that is called at the end of an iteration
    callbacks: tuple[str, ...]  # attributes that lead from the trainer to its list of callbacks


FRAMEWORKS = (  # read in transformers 5.23, pytorch-lightning 2.6 and lightning 2.6
    Framework(
        "transformers.trainer", "transformers", "TrainerCallback", "on_step_end", ("callback_handler", "callbacks")
    ),
    Framework("pytorch_lightning.trainer", "pytorch_lightning", "Callback", "on_train_batch_end", ("callbacks",)),
    Framework("lightning.pytorch.trainer", "lightning.pytorch", "Callback", "on_train_batch_end", ("callbacks",)),
)


class StepFinder:
    """Calls `ended()` at the end of each iteration, on the thread that made this object, until close()."""

    def __init__(self, ended: Callable[[], None]) -> None:
        from torch.autograd.profiler import record_function
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._ended = ended
        self._thread = threading.get_ident()
        self._first: weakref.ref[Any] | None = None  # the optimizer whose steps count
        self._steps = 0  # of all optimizers
        self._stepped = False  # whether it has stepped since the last iteration's end
        self._callbacks: list[tuple[list[Any], Any]] = []  # (a trainer's list, our callback in it)
        self._patches = Patches()
        self._hook = register_optimizer_step_post_hook(self._after_step)
        # The hook runs inside the range `Optimizer.step`, which a range of iterations has to contain as a whole.
        self._patches.set(record_function, "__exit__", self._range_end(record_function.__exit__))
        self._watch_grad_scaler()

    def close(self) -> None:
        self._hook.remove()
        self._patches.undo()
        for callbacks, ours in self._callbacks:
            callbacks[:] = [callback for callback in callbacks if callback is not ours]

    def _after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        from torch.compiler import is_dynamo_compiling

        if is_dynamo_compiling() or threading.get_ident() != self._thread:
            return
        self._steps += 1
        if self._first is None or self._first() is None:
            self._first = weakref.ref(optimizer)
            self._join_framework()
        if self._first() is optimizer:
            self._stepped = True

    def _end_iteration(self) -> None:
        if self._stepped and threading.get_ident() == self._thread:
            self._stepped = False
            self._ended()

    def _range_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __exit__(range_: Any, *exc_info: Any) -> Any:
            result = original(range_, *exc_info)
            if self._stepped and not self._callbacks and str(range_.name).startswith("Optimizer.step"):
                self._end_iteration()
            return result

        return __exit__

    def _watch_grad_scaler(self) -> None:
        import torch

        finder = self
        scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
        original = scaler.step

        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            steps = finder._steps
            result = original(self, optimizer, *args, **kwargs)
            if finder._steps == steps:  # skipped
                finder._after_step(getattr(optimizer, "optimizer", optimizer), args, kwargs)
                if not finder._callbacks:
                    finder._end_iteration()
            return result

        self._patches.set(scaler, "step", step)

    def _join_framework(self) -> None:
        """Add a callback to the trainer that runs, if one does."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            name = str(frame.f_globals.get("__name__"))
            for framework in FRAMEWORKS:
                if name == framework.trainer or name.startswith(f"{framework.trainer}."):
                    self._add_callback(framework, frame.f_locals.get("self"))
                    if self._callbacks:
                        return
            frame = frame.f_back

    def _add_callback(self, framework: Framework, trainer: Any) -> None:
        base = getattr(sys.modules.get(framework.package), framework.base, None)
        found = trainer
        for attribute in framework.callbacks:
            found = getattr(found, attribute, None)
        if isinstance(base, type) and isinstance(found, list):
            event = {framework.event: lambda *_args, **_kwargs: self._end_iteration()}
            ours = type("PyprofSteps", (base,), event)()
            found.append(ours)
            self._callbacks.append((found, ours))
