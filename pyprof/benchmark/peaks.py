"""The command pyprof peaks: measure what this machine reaches, for ``--peaks`` and to compare with data sheets.

torch is imported only when the measuring begins, so ``pyprof peaks --help`` works without it.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from pyprof.benchmark.device_facts import facts
from pyprof.benchmark.device_names import measured_device
from pyprof.benchmark.other_programs import OtherPrograms, caution
from pyprof.benchmark.print_peaks import print_peaks
from pyprof.benchmark.sweeps import Sweeps
from pyprof.benchmark.timer import FULL, QUICK
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, check_standard_output, run_command, warned
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.command.progress import progress
from pyprof.errors import require
from pyprof.files import check_output, open_output


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof peaks",
        description="Measure what this machine reaches: matrix products per dtype, memory from the caches outwards, "
        "element-wise ops, links. Random data, no change of clocks; a minute or two.",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write figures and curves as JSON, to be given to --peaks"
    )
    parser.add_argument(
        "--device", default="", metavar="DEVICE", help="cuda, cuda:1, cpu (default: cuda if there is a GPU)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes and trials: sooner and rougher")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the curves (needs matplotlib)")
    add_json(parser)
    add_common(parser, writes="files")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof peaks", build_parser, _run, argv, inputs=())


def _run(args: argparse.Namespace) -> Done:
    check_standard_output(args, "file")
    for file in (args.output, args.plot):
        if file:
            check_output(file, args.force)  # checked now, not after minutes of measuring
    require("torch", "measuring needs it: install PyTorch for this machine")
    if args.plot:
        require("matplotlib", "--plot needs it: pip install matplotlib")
    device, others = measured_device(args.device), OtherPrograms()
    peaks = measure(device, quick=args.quick, shown=not args.quiet)
    said = [text for text in [caution(others.cores()) if device == "cpu" else ""] if text]
    if args.output != "-" and not args.json:
        print_peaks(peaks)
    if args.output:
        with open_output(args.output, args.force) as out:
            out.write((json.dumps(peaks, indent=1) + "\n").encode())
    if args.plot:
        plot(peaks, args.plot, args.force)
    if args.json:
        write_answer("peaks", peaks, warnings=said)
    return Done([*warned(said), *(f"wrote {file}" for file in (args.output, args.plot) if file and file != "-")])


def measure(device: str, *, quick: bool = False, shown: bool = False) -> dict[str, Any]:
    """Measure everything, and return the content of a peaks file. ``shown``: show the progress on a terminal."""
    from pyprof.benchmark.peaks_content import peaks_content

    with progress(None, shown) as say:
        sweeps = Sweeps(device, QUICK if quick else FULL, say)
        return peaks_content(
            facts(sweeps.device), list(sweeps.products()), sweeps.memory(), sweeps.elementwise(), sweeps.links()
        )


def plot(peaks: dict[str, Any], file: str, force: bool) -> None:
    """Draw the growth curves (``pyprof plot growth``): matrix product rates by size, memory rates by bytes."""
    from pyprof.prof.plot import growth
    from pyprof.prof.plot.style import FORMATS, Look, save

    form = Path(file).suffix[1:].lower()
    with open_output(file, force) as out:
        save(growth.draw(growth.numbers(peaks), Look()), out, form if form in FORMATS else "png")
