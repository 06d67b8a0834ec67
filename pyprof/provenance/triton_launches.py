"""Mark the launches of the program's own Triton kernels, which run no op: their names, arguments, layers and lines.

``JITFunction.run`` launches a function decorated with ``triton.jit`` (3.0 to 3.6). It is replaced as soon as the
program imports Triton, which may be long after pyprof is on. Kernels that inductor generates are launched otherwise.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Protocol

_MODULE = "triton.runtime.jit"


class Owner(Protocol):
    """What the hook asks of the session."""

    def is_recording(self) -> bool: ...

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute until the session ends."""

    def launch(self, name: str, arguments: dict[str, Any]) -> AbstractContextManager[None]:
        """The marker around a launch of the kernel."""


class TritonLaunches(MetaPathFinder):
    """Waits for the import of Triton's launcher, from open() to close()."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def open(self) -> None:
        module = sys.modules.get(_MODULE)
        if module is not None:
            self._replace(module)
        else:
            sys.meta_path.insert(0, self)

    def close(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called by `import` for each module; the usual finder's answer for Triton's launcher, None for all others."""
        if fullname != _MODULE:
            return None
        self.close()
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self._replace(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

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
