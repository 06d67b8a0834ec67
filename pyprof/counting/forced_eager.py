"""While ``pyprof.count`` counts, code under ``torch.compile`` runs uncompiled, so that its ops can be seen.

Under a dispatch mode PyTorch does so anyway, but raises an error for code compiled with ``fullgraph=True``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from pyprof.capture.patch import Patches


class ForcedEager:
    """Sets PyTorch's stance "force_eager" (since 2.6) once the compiler is loaded.

    Setting it loads the compiler, which takes seconds; so where it is not loaded yet, the program's first
    ``torch.compile`` sets the stance.
    """

    def __init__(self) -> None:
        self._stance: Any = None

    def install(self, patches: Patches) -> None:
        patches.set(torch, "compile", self._forcing(torch.compile))
        if "torch._dynamo" in sys.modules:
            self._force()

    def end(self) -> None:
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None

    def _force(self) -> None:
        if self._stance is None and hasattr(torch.compiler, "set_stance"):
            self._stance = torch.compiler.set_stance("force_eager")

    def _forcing(self, compile_: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compile_)
        def call(*args: Any, **kwargs: Any) -> Any:
            compiled = compile_(*args, **kwargs)
            self._force()
            return compiled

        return call
