"""Run the parser as `python -m pyprof.parse`."""

import sys

from pyprof.parse.cli import main

if __name__ == "__main__":
    sys.exit(main())
