"""A capture in Python and in notebooks: ``pyprof.load("net.sqlite")`` gives a ``Profile``."""

from pyprof.prof.notebook.profiled import Profile, load

__all__ = ["Profile", "load"]
