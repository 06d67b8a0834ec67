"""Copies of captures without private data of the machine and its user: the command ``pyprof scrub``."""
