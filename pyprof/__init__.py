"""pyprof: which op, layer and line of code launched each kernel of a PyTorch run, and how well it ran.

In a script:

    import pyprof
    pyprof.init()                        # every PyTorch call carries a marker from here on
    with pyprof.profile("net.json.gz"):  # the embedded collector; nsys and nvprof need no such block
        train_step()

Importing pyprof takes a few milliseconds and never imports torch: the names below are loaded when first used.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyprof._version import __version__

if TYPE_CHECKING:
    from pyprof.benchmark.bench import bench as bench
    from pyprof.capture.annotate import annotate as annotate
    from pyprof.capture.annotate import wrap as wrap
    from pyprof.capture.control import profile as profile
    from pyprof.capture.control import start as start
    from pyprof.capture.control import step as step
    from pyprof.capture.control import stop as stop
    from pyprof.capture.session import deinit as deinit
    from pyprof.capture.session import init as init
    from pyprof.counting.count import count as count
    from pyprof.errors import PyprofError as PyprofError
    from pyprof.marker import Marker as Marker
    from pyprof.marker import parse_marker as parse_marker
    from pyprof.prof.notebook import Profile as Profile
    from pyprof.prof.notebook import load as load
    from pyprof.prof.ops.formulas import flops as flops
    from pyprof.prof.ops.model import model as model
    from pyprof.sampling.sample import Sample as Sample

_PUBLIC = {  # module -> the public names that it defines
    "capture.session": "init deinit",
    "capture.annotate": "wrap annotate",
    "capture.control": "profile start stop step",
    "counting.count": "count",
    "benchmark.bench": "bench",
    "prof.notebook": "load Profile",
    "prof.ops.formulas": "flops",
    "prof.ops.model": "model",
    "marker": "Marker parse_marker",
    "sampling.sample": "Sample",
    "errors": "PyprofError",
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = ["__version__", *sorted(_HOME)]  # noqa: PLE0604  (the names are strings)


def __getattr__(name: str) -> Any:
    if name == "nvtx":  # PyProf's module, which its programs do not import
        return importlib.import_module("pyprof.nvtx")
    if name not in _HOME:
        raise AttributeError(f"module 'pyprof' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"pyprof.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext pyprof` calls in IPython and Jupyter: adds the magic `%%pyprof`."""
    from pyprof.integrations.ipython import register

    register(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


_checkout = Path(__file__).resolve().parents[1]  # in an uninstalled checkout, parse/ and prof/ lie beside pyprof/
if (_checkout / "setup.py").is_file() and (_checkout / "parse" / "cli.py").is_file():
    __path__.append(str(_checkout))
