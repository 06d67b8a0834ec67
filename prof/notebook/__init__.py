"""A capture in Python and in notebooks: ``pyprof.load("net.sqlite")`` gives a ``Profile``."""

from pyprof.prof.notebook.profiled import Profile as Profile
from pyprof.prof.notebook.profiled import load as load

__all__ = ["Profile", "load"]
