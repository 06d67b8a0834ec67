"""Run the command line as `python -m pyprof`."""

import sys

from pyprof.cli import main

if __name__ == "__main__":
    sys.exit(main())
