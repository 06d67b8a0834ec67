"""What runs under ncu: `python -m pyprof.ncu.marked_script [options] -- SCRIPT ARGS`, the script with its calls marked.

As `pyprof run` does it under an attached tool: the script is `__main__`, its output and its exit code are its own, and
cudaProfilerStart and cudaProfilerStop enclose the iterations to measure.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyprof.capture.collector import Window
from pyprof.capture.run import TRACES
from pyprof.capture.run_script import Script, run
from pyprof.errors import PyprofError, packages
from pyprof.files import tell


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    script = Script(options.script, tuple(options.args), options.module)
    window = Window(options.warmup, options.steps)
    try:
        with packages():
            ran = run(script, None, window, trace=TRACES[options.trace])
    except PyprofError as error:
        tell(f"pyprof ncu: {error}")
        return 1
    for warning in ran.warnings:
        tell(f"pyprof ncu: warning: {warning}")
    if options.ended:
        Path(options.ended).write_text(str(ran.code), encoding="ascii")
    return ran.code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pyprof.ncu.marked_script")
    parser.add_argument("--trace", choices=tuple(TRACES), default="user")
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--ended", help="the file that gets the script's exit code")
    parser.add_argument("-m", dest="module", action="store_true")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    return parser


if __name__ == "__main__":
    sys.exit(main())
