"""`python parse/parse.py` from a checkout, as PyProf had it; the command itself is cli.py."""

import sys
from pathlib import Path

if not __package__:  # run by path: sys.path holds this folder, where it should hold its parent
    _here = Path(__file__).resolve().parent
    sys.path[:] = [str(_here.parent), *(p for p in sys.path if Path(p).resolve() != _here)]

from pyprof.parse.cli import main  # importable only after the lines above

if __name__ == "__main__":
    sys.exit(main())
