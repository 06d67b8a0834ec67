"""A callback for Lightning, by either of its names.

from pyprof.integrations.lightning import PyprofCallback

Trainer(callbacks=[PyprofCallback(every=1000, to="tensorboard:runs")])      # one step in 1,000, all the time
Trainer(callbacks=[PyprofCallback("net.json.gz", warmup=10, steps=3)])      # three steps, once
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pyprof
from pyprof.integrations.block import Block

# lightning and pytorch-lightning have the same classes, and each knows its own only: take the program's.
_PACKAGE = "pytorch_lightning" if "pytorch_lightning" in sys.modules else "lightning.pytorch"
_Callback: Any = importlib.import_module(_PACKAGE).Callback


class PyprofCallback(_Callback):
    """``pyprof.profile`` around the fit, with its arguments, on the first rank.

    A step is one of the optimizer's, so that batches whose gradients accumulate make one.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        self._block = Block(*args, **options)
        self._steps = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            self._steps = trainer.global_step
            self._block.enter()

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self._block.is_open and trainer.global_step != self._steps:
            self._steps = trainer.global_step
            pyprof.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._block.leave()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._block.leave()
