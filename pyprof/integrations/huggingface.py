"""A callback for the Trainer of Hugging Face.

from pyprof.integrations.huggingface import PyprofCallback

Trainer(..., callbacks=[PyprofCallback(every=1000, to="tensorboard:runs")])      # one step in 1,000, all the time
Trainer(..., callbacks=[PyprofCallback("net.json.gz", warmup=10, steps=3)])      # three steps, once
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

import pyprof
from pyprof.integrations.block import Block


class PyprofCallback(TrainerCallback):
    """``pyprof.profile`` around the training, with its arguments, on the first rank. Its steps are the Trainer's."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._block = Block(*args, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self._block.enter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._block.is_open:
            pyprof.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._block.leave()
