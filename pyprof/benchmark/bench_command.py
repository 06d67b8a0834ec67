"""The command pyprof bench: time a statement by itself, or the heaviest calls of a capture.

torch is imported only when the measuring begins, so ``pyprof bench --help`` works without it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyprof.benchmark.device_names import measured_device
from pyprof.benchmark.sweep_axes import parse_axis, points
from pyprof.benchmark.timer import FULL, QUICK
from pyprof.command.argument_types import imported, parsed, whole_number
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, run_command, warned
from pyprof.command.parser import LinesAsWritten, Parser, add_common, add_json
from pyprof.command.progress import progress
from pyprof.errors import UsageError, require
from pyprof.files import check_output, open_output

if TYPE_CHECKING:
    from pyprof.benchmark.bench_result import Bench

TOP = 20  # calls that --replay makes
EPILOG = """\
The statement and --setup are Python code, which is run. They see torch, F (torch.nn.functional), nn, math, device, \
the sweep's variables, and rand(*shape), which makes a tensor of random numbers; a sweep may vary its dtype, layout \
and align.

sweeps:
  M=1:4096:*2        1, 2, 4, ... 4096
  M=64:1024:+64      64, 128, ... 1024
  M=1,17,4096        these three
  dtype=bf16,fp32    fp64, fp32, fp16, bf16, fp8, int8, int32, int64
  layout=row,column  and channels_last        align=2,16       bytes, 1 to 256

examples:
  pyprof bench "F.linear(x, w)" --setup "x = rand(M, 768); w = rand(3072, 768)" --sweep M=1:4096:*2 --sweep dtype=bf16
  pyprof bench "F.gelu(x)" --setup "x = rand(4096, 4096)" --backward --warm
  pyprof bench --replay net.json.gz --top 20 --where "phase == 'forward'"
"""


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof bench",
        description="Time a statement by itself, forward and backward, beside its FLOPs, bytes and the hardware's "
        "limit; or make the heaviest calls of a capture again and time them alone. On a GPU, CUDA graphs time "
        "the calls.",
        epilog=EPILOG,
        formatter_class=LinesAsWritten,
    )
    add = parser.add_argument
    add("statement", nargs="?", metavar="STATEMENT", help="what to time, such as 'F.linear(x, w)'")
    add("--setup", metavar="CODE", action="append", default=[], help="run before, at each point; may be repeated")
    axis = "a variable and its values, see below; several give all combinations"
    add("--sweep", metavar="NAME=VALUES", action="append", default=[], type=parsed(parse_axis), help=axis)
    add("--backward", action="store_true", help="time the gradients, too; rand's tensors then require them")
    add("--warm", action="store_true", help="also time calls that find their inputs in the cache")
    replayed = parser.add_argument_group("replay")
    capture = "a capture or kernel table, whose heaviest calls are made again with random inputs and timed alone"
    replayed.add_argument("--replay", metavar="FILE", help=capture)
    replayed.add_argument("--top", metavar="N", type=whole_number(), help=f"how many (default: {TOP})")
    where = imported("pyprof.prof.table.where", "checked_condition")
    replayed.add_argument("--where", metavar="COND", type=where, help="only these rows, as prof.py --where takes it")
    add("--device", default="", metavar="DEVICE", help="cuda, cuda:1, cpu (default: cuda if there is a GPU)")
    add("--quick", action="store_true", help="fewer trials: sooner and rougher")
    add("--peaks", metavar="FILE", help="peaks as pyprof peaks writes them; without it, the GPU's data sheet's")
    add("--csv", metavar="FILE", help="write the figures as CSV; - is standard output, in place of the table")
    add("--plot", metavar="FILE.png", help="draw a sweep's rates: .png, .svg or .pdf (needs matplotlib)")
    add_json(parser)
    add_common(parser, writes="files")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof bench", build_parser, _run, argv, inputs=("replay",), runs_code=True)


def _run(args: argparse.Namespace) -> Done:
    _check(args)
    require("torch", "measuring needs it: install PyTorch for this machine")
    if args.plot:
        require("matplotlib", "--plot needs it: pip install matplotlib")
    return _replay(args) if args.replay else _bench(args)


def _check(args: argparse.Namespace) -> None:
    """Raise an error for options that do not go together, before minutes of measuring."""
    if (args.statement is None) == (args.replay is None):
        raise UsageError("expected either a STATEMENT or --replay FILE")
    given = {"--setup": args.setup, "--sweep": args.sweep, "--backward": args.backward, "--warm": args.warm}
    for option, value in (given | {"--plot": args.plot, "--peaks": args.peaks}).items():
        if args.replay and value:
            raise UsageError(f"{option} does not go with --replay")
    for option, value in (("--where", args.where), ("--top", args.top)):
        if value and not args.replay:
            raise UsageError(f"{option} goes with --replay")
    if args.json and args.csv == "-":
        raise UsageError("--json prints on standard output: give --csv another name")
    points(args.sweep)
    for file in (args.csv, args.plot):
        if file:
            check_output(file, args.force)


# A statement


def _bench(args: argparse.Namespace) -> Done:
    import torch

    from pyprof.benchmark.bench_document import Measurements, csv_lines, measurements

    if args.plot:
        from pyprof.benchmark.sweep_figure import sweep_variable

        sweep_variable(points(args.sweep))  # refused now, before minutes of measuring
    device = torch.device(measured_device(args.device))
    found = _measured(args, device)
    records, setup = measurements(found), "\n".join(args.setup)
    if args.csv:
        with open_output(args.csv, args.force) as out:
            out.writelines(csv_lines(records, list(found[0][0])))
    if args.plot:
        _plot(args, found)
    if args.json:
        document = Measurements(device=found[0][1].device, statement=args.statement, setup=setup, measurements=records)
        write_answer("bench", document, warnings=_cautions(found))
        return Done()
    if args.csv != "-":
        _print(args, found)
    said = _cautions(found) if args.sweep or args.csv == "-" else []  # otherwise they stand below the result
    return Done([*said, *(f"wrote {file}" for file in (args.csv, args.plot) if file and file != "-")])


def _cautions(found: Sequence[tuple[Mapping[str, Any], Bench]]) -> list[str]:
    """What a reader of the figures should know, each once: calls without a graph, ops without a model."""
    return list(dict.fromkeys(caution for _, bench in found for caution in bench.cautions()))


def _measured(args: argparse.Namespace, device: Any) -> list[tuple[Mapping[str, Any], Bench]]:
    from pyprof.benchmark.bench import measure
    from pyprof.benchmark.statement import Statement, users_code
    from pyprof.prof.limits.peaks_file import load_peaks

    effort = QUICK if args.quick else FULL
    statement = Statement(args.statement, "\n".join(args.setup), device, args.backward)
    peaks = load_peaks(args.peaks) if args.peaks else None
    found: list[tuple[Mapping[str, Any], Bench]] = []
    with progress(None, not args.quiet) as say, users_code():
        for point in points(args.sweep):
            say(", ".join(f"{name}={value}" for name, value in point.items()) or args.statement)
            subject = statement.subject(point)
            found.append((point, measure(subject, args.statement, args.backward, args.warm, effort, peaks)))
    return found


def _print(args: argparse.Namespace, found: Sequence[tuple[Mapping[str, Any], Bench]]) -> None:
    from pyprof.benchmark.print_bench import print_sweep
    from pyprof.command.terminal_text import output_width

    if args.sweep:
        print_sweep(found)
        return
    width, _ = output_width(None, None)
    with open_output(None) as out:
        out.write("".join(f"{line}\n" for line in found[0][1].lines(width)).encode())


def _plot(args: argparse.Namespace, found: Sequence[tuple[Mapping[str, Any], Bench]]) -> None:
    from pyprof.benchmark import sweep_figure
    from pyprof.prof.plot.style import FORMATS, Look, save

    form = Path(args.plot).suffix[1:].lower()
    figure = sweep_figure.draw(found, f"{args.statement} on {found[0][1].device}", Look())
    with open_output(args.plot, args.force) as out:
        save(figure, out, form if form in FORMATS else "png")


# A capture


def _replay(args: argparse.Namespace) -> Done:
    import torch

    from pyprof.benchmark.bench_document import csv_lines, replays
    from pyprof.benchmark.device_facts import facts
    from pyprof.benchmark.print_bench import print_replays
    from pyprof.benchmark.replay_calls import capture_calls, replay

    device = torch.device(measured_device(args.device))
    captured, calls = capture_calls(args.replay, args.where)
    with progress(None, not args.quiet) as say:
        rows = replay(calls[: args.top or TOP], device, QUICK if args.quick else FULL, say)
    gpus = sorted({name for name in captured.table.coded("gpu").values if name})
    document = replays(rows, facts(device)["device"], gpus, sum(call.ns for call in calls) * 1e-9)
    warnings = [*captured.warnings, *_other_device(document.device, gpus, device.type)]
    if args.csv:
        with open_output(args.csv, args.force) as out:
            out.writelines(csv_lines(document.rows, []))
    if args.json:
        from pyprof.command.envelope import Input

        write_answer("replay", document, input=[Input(*each) for each in captured.inputs], warnings=warnings)
        return Done()
    if args.csv != "-":
        print_replays(rows, document)
    return Done([*warned(warnings), *(f"wrote {file}" for file in (args.csv,) if file and file != "-")])


def _other_device(here: str, gpus: Sequence[str], kind: str) -> list[str]:
    """A sentence if the capture is from another device than the one that the calls were timed on."""
    if kind == "cuda" and not gpus:
        return ["the capture does not name its GPU; these times are of another device, if it is not this one"]
    if gpus and here not in gpus:
        return [f"the capture is of {', '.join(gpus)}, and the calls were timed on {here}"]
    return []
