"""pyprof.prof: analyse the kernel table: FLOPs, bytes, tensor cores, limits. Does not import torch."""

if __name__ != "pyprof.prof":  # the package under a second name would have a second registry of op models
    raise ImportError("import pyprof.prof, not prof: setup.py maps the folder to that name")
