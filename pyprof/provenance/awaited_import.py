"""Do something as soon as the program imports a module, which may be long after pyprof is on, or never.

Each child of `pyprof run` loads this file when it starts, so it imports no more than Python itself has.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class AwaitedImport:
    """Waits from open() to close() for one module, and calls ``act`` with it; at once if it has been imported."""

    def __init__(self, name: str, act: Callable[[ModuleType], object]) -> None:
        self._name, self._act = name, act

    def open(self) -> None:
        module = sys.modules.get(self._name)
        if module is not None:
            self._act(module)
        else:
            sys.meta_path.insert(0, self)

    def close(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called by `import` for each module; the other finders' answer for the awaited one, None for all others."""
        if fullname != self._name:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        answers = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((answer for answer in answers if answer is not None), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                self.close()  # only now: who looks for the module need not import it
                run(module)
                self._act(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
