"""Copies of captures without what tells of the machine and its user: the command ``pyprof scrub``."""
