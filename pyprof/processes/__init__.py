"""The children of a program under `pyprof run`: each that uses torch is collected into a file of its own."""
