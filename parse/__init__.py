"""pyprof.parse: convert profiler files to one kernel table. Does not import torch."""

if __name__ != "pyprof.parse":  # the package under a second name would have a second registry of readers
    raise ImportError("import pyprof.parse, not parse: setup.py maps the folder to that name")
