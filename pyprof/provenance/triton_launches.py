"""Mark the launches of the program's own Triton kernels, which run no op: their names, arguments, layers and lines.

``JITFunction.run`` launches a function decorated with ``triton.jit`` (3.0 to 3.6). It is replaced as soon as the
program imports Triton, which may be long after pyprof is on. Kernels that inductor generates are launched otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Protocol

from pyprof.provenance.awaited_import import AwaitedImport


class Owner(Protocol):
    """What the hook asks of the session."""

    def is_recording(self) -> bool: ...

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute until the session ends."""

    def launch(self, name: str, arguments: dict[str, Any]) -> AbstractContextManager[None]:
        """The marker around a launch of the kernel."""


class TritonLaunches:
    """Replaces Triton's launcher once it has been imported, from open() to close()."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._awaited = AwaitedImport("triton.runtime.jit", self._replace)
        self.open, self.close = self._awaited.open, self._awaited.close

    def _replace(self, module: ModuleType) -> None:
        function = getattr(module, "JITFunction", None)
        if function is not None and hasattr(function, "run"):
            self._owner.set(function, "run", self._marked(function.run))

    def _marked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        owner = self._owner

        @functools.wraps(original)
        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("warmup") or not owner.is_recording():
                return original(kernel, *args, **kwargs)
            names = list(getattr(kernel, "arg_names", ()))
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            arguments = {name: given[name] for name in names if name in given}
            with owner.launch(str(getattr(kernel, "__name__", "")), arguments):
                return original(kernel, *args, **kwargs)

        return run
