"""Run prof as `python -m pyprof.prof`."""

import sys

from pyprof.prof.cli import main

if __name__ == "__main__":
    sys.exit(main())
