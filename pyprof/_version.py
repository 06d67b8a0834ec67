# This file holds only the version: setup.py reads the text between the first two quotes without importing pyprof.
__version__ = "1.0.0"
