"""Python imports this when a child of `pyprof run` starts, because the run puts this folder on PYTHONPATH.

A child that never imports torch gets no more than a finder in ``sys.meta_path``. The user's own sitecustomize, which
this one hides, runs afterwards. Children may be of any Python, so nothing of pyprof is imported before torch is.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import SourceFileLoader

FOLDER = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(FOLDER))
COMPILE_WORKER = os.path.join("torch", "_inductor", "compile_worker")


def follow() -> None:
    """Collect this process from the import of torch on, with the pyprof that the parent has."""
    module = type(sys)("pyprof.provenance.awaited_import")
    SourceFileLoader(module.__name__, os.path.join(PACKAGE, "provenance", "awaited_import.py")).exec_module(module)
    module.AwaitedImport("torch", lambda _: _begin()).open()


def _begin() -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    try:
        if "pyprof" not in sys.modules:  # a clone need not be on the path, and its other folders shall not be
            init = os.path.join(PACKAGE, "__init__.py")
            spec = spec_from_file_location("pyprof", init, submodule_search_locations=[PACKAGE])
            assert spec is not None and spec.loader is not None
            sys.modules["pyprof"] = module_from_spec(spec)
            spec.loader.exec_module(sys.modules["pyprof"])
        from pyprof.processes.child_capture import torch_is_there
    except ImportError as error:  # a torch of another environment, in which pyprof's dependencies are missing
        sys.stderr.write(f"pyprof run: process {os.getpid()} is not collected: {error}\n")
        return
    torch_is_there()


def hand_on() -> None:
    """Import the sitecustomize that Python would have imported without us, and leave ``sys.path`` as it would be."""
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != FOLDER]
    ours = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)  # Python looks there for what it has just imported


if any(COMPILE_WORKER in word for word in getattr(sys, "orig_argv", ())):
    os.environ.pop("PYPROF_FOLLOW", None)  # inductor's workers compile, and run nothing of the program
if os.environ.get("PYPROF_FOLLOW"):
    follow()
hand_on()
