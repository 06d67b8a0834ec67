# The version, alone in a file: setup.py takes what stands between the first two quotes, and imports nothing.
__version__ = "0.1.0"
