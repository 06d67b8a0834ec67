"""pyprof: which op, layer and line of code launched each kernel of a PyTorch run, and how well it ran.

In a script:

    import pyprof
    pyprof.init()                        # every PyTorch call carries a marker from here on
    with pyprof.profile("net.json.gz"):  # the embedded collector; nsys and nvprof need no such block
        train_step()

Importing this costs a few milliseconds and never imports torch; the names below are loaded when first used.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyprof._version import __version__

if TYPE_CHECKING:
    from pyprof.capture import profile as profile
    from pyprof.capture import start as start
    from pyprof.capture import step as step
    from pyprof.capture import stop as stop
    from pyprof.counting import count as count
    from pyprof.errors import PyprofError as PyprofError
    from pyprof.extras import annotate as annotate
    from pyprof.extras import wrap as wrap
    from pyprof.marker import Marker as Marker
    from pyprof.marker import parse_marker as parse_marker
    from pyprof.prof.model import model as model
    from pyprof.prof.notebook import Profile as Profile
    from pyprof.prof.notebook import load as load
    from pyprof.session import deinit as deinit
    from pyprof.session import init as init

_HOME = {  # public name -> the module that has it
    "init": "session",
    "deinit": "session",
    "wrap": "extras",
    "annotate": "extras",
    "profile": "capture",
    "start": "capture",
    "stop": "capture",
    "step": "capture",
    "count": "counting",
    "load": "prof.notebook",
    "Profile": "prof.notebook",
    "model": "prof.model",
    "Marker": "marker",
    "parse_marker": "marker",
    "PyprofError": "errors",
}
__all__ = ["__version__", *sorted(_HOME)]  # noqa: PLE0604  (the names are strings)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pyprof' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"pyprof.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


_checkout = Path(__file__).resolve().parents[1]  # parse/ and prof/ lie beside us until installed
if (_checkout / "setup.py").is_file() and (_checkout / "parse" / "cli.py").is_file():
    __path__.append(str(_checkout))
