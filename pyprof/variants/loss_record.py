"""The losses of a run: the scalars on which backward() is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyprof.capture.patch import Patches
from pyprof.variants.step_watch import StepWatch


def watch_backward(patches: Patches, watch: StepWatch, before: Callable[[], None]) -> None:
    """Replace the functions of torch.autograd that begin a backward pass; ``before()`` is called first.

    A loss that GradScaler has scaled is recorded as it was before.
    """
    import torch

    scaled: list[Any] = [None, None]  # what GradScaler made, and of what

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        before()
        losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if len(losses) == 1 and isinstance(losses[0], torch.Tensor) and losses[0].numel() == 1:
            watch.add_loss(scaled[1] if losses[0] is scaled[0] else losses[0])
        scaled[:] = None, None
        return run_backward(tensors, *args, **kwargs)

    def grad(*args: Any, **kwargs: Any) -> Any:
        before()
        return run_grad(*args, **kwargs)

    run_backward, run_grad = torch.autograd.backward, torch.autograd.grad
    patches.set(torch.autograd, "backward", backward)
    patches.set(torch.autograd, "grad", grad)
    scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    scale = scaler.scale

    def scaling(self: Any, outputs: Any) -> Any:
        result = scale(self, outputs)
        scaled[:] = result, outputs
        return result

    patches.set(scaler, "scale", scaling)
