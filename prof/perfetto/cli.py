"""The command pyprof perfetto: kernel table (or a profiler's file) in, a trace for ui.perfetto.dev out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.command.envelope import Input, Parser, add_json, envelope, write_envelope
from pyprof.command.frame import add_force, add_quiet, add_version, carry_out, check_standard_output, warned
from pyprof.command.json_schema import Schema, integer, listing, record, text
from pyprof.prof.load import add_models, add_peaks, judged
from pyprof.prof.table.columns import COLUMN

if TYPE_CHECKING:
    from pyprof.prof.load import Loaded
    from pyprof.prof.perfetto.tracks import Trace

FORMS = (".perfetto-trace", ".pftrace", ".json", ".json.gz")


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof perfetto",
        description="Write a run as a trace for ui.perfetto.dev: every GPU operation with its op, layer, FLOPs, bytes "
        "and limits as arguments, the layers over them, counters of TFLOP/s and GB/s, arrows from launch to kernel "
        "and from forward to backward. A profiler's file gives the CPU's ranges, too.",
    )
    parser.add_argument(
        "file",
        help="a profiler's file that pyprof parse reads (net.sqlite, net.json, ...), or "
        "net.dict (or .gz) or net.parquet from it; - is a net.dict on standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=_output,
        default="net.perfetto-trace",
        help="net.perfetto-trace (or .pftrace), or Chrome's trace events as net.json or net.json.gz "
        "(default: net.perfetto-trace)",
    )
    parser.add_argument(
        "-c",
        metavar="COLUMNS",
        dest="columns",
        type=_columns,
        help="the columns of prof.py that are arguments of GPU operations, or all",
    )
    parser.add_argument("--no-ranges", action="store_true", help="leave out the CPU's ranges: a smaller file")
    add_force(parser)
    add_peaks(parser)
    add_models(parser)
    add_json(parser)
    add_quiet(parser)
    add_version(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    check_standard_output(parser, args, "trace")
    return carry_out("pyprof perfetto", _run, args, [args.file])


def _run(args: argparse.Namespace) -> list[str]:
    from pyprof.files import open_output
    from pyprof.prof.perfetto.collect import collect
    from pyprof.prof.perfetto.gpu import ARGUMENTS
    from pyprof.prof.perfetto.write_json import write_json
    from pyprof.prof.perfetto.write_proto import write_proto

    loaded, annotation, peaks = judged(args)
    trace = collect(
        loaded.name,
        loaded.table,
        annotation,
        peaks,
        loaded.capture,
        columns=args.columns or ARGUMENTS,
        ranges=not args.no_ranges,
    )
    as_json = args.output.removesuffix(".gz").endswith(".json")
    with open_output(args.output, args.force) as out:
        (write_json if as_json else write_proto)(trace, out)
    if args.json:
        _answer(args.output, trace, loaded)
    slices = sum(map(len, trace.slices))
    where = "" if args.output == "-" else f"wrote {args.output}: "
    advice = "" if args.output == "-" else "; open it at https://ui.perfetto.dev (it stays on your machine)"
    return [
        *warned(loaded.warnings),
        f"{where}{len(loaded.table):,} operations, {slices:,} slices{advice}",
        *trace.notes,
    ]


def _answer(output: str, trace: Trace, loaded: Loaded) -> None:
    from pyprof.files import open_output

    own = {
        "output": {"name": output, "bytes": Path(output).stat().st_size},
        "operations": len(loaded.table),
        "slices": sum(map(len, trace.slices)),
        "tracks": len(trace.tracks),
        "notes": trace.notes,
    }
    files = [Input(loaded.name, loaded.profiler)]
    with open_output(None) as out:
        write_envelope(envelope("perfetto", own, input=files, warnings=loaded.warnings), out)


def _perfetto() -> Schema:
    return record(
        {
            "output": record({"name": text("of the file"), "bytes": integer("its size")}, "the trace written"),
            "operations": integer("rows of the kernel table"),
            "slices": integer("of all tracks"),
            "tracks": integer("processes, groups, threads, streams and counters"),
            "notes": listing(text("a note"), "what the limits rest on, and how times were moved"),
        },
        "trace",
    )


SCHEMAS = {"perfetto": _perfetto}


def _output(text: str) -> str:
    """A name that tells the form; standard output, which has none, gets Perfetto's own."""
    if text == "-" or text.endswith(FORMS):
        return text
    raise argparse.ArgumentTypeError(f"expected a name that ends in {', '.join(FORMS)}, found {text!r}")


def _columns(text: str) -> list[str]:
    names = list(COLUMN) if text == "all" else text.split(",")
    wrong = next((name for name in names if name not in COLUMN), None)
    if wrong is not None:
        raise argparse.ArgumentTypeError(f"{wrong!r} is no column; there are: {', '.join(COLUMN)}")
    return list(dict.fromkeys(names))
