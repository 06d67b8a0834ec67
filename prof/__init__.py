"""pyprof.prof: the kernel table in, answers out: FLOPs, bytes, tensor cores, limits. Imports no torch."""

if __name__ != "pyprof.prof":  # a second identity would mean a second registry
    raise ImportError("import pyprof.prof, not prof: setup.py maps the folder to that name")
