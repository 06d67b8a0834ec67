"""pyprof.parse: profiler files in, one kernel table out. Imports no torch."""

if __name__ != "pyprof.parse":  # a second identity would mean a second registry
    raise ImportError("import pyprof.parse, not parse: setup.py maps the folder to that name")
