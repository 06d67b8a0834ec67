"""pyprof: which op, layer and line launched each GPU kernel of a PyTorch run, and how well the kernel did."""

from pathlib import Path

from pyprof._version import __version__

__all__ = ["__version__"]

_checkout = Path(__file__).resolve().parents[1]  # parse/ and prof/ lie beside us until installed
if (_checkout / "setup.py").is_file() and (_checkout / "parse" / "cli.py").is_file():
    __path__.append(str(_checkout))
