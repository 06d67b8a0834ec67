"""The command pyprof perfetto: kernel table (or a profiler's file) in, a trace for ui.perfetto.dev out."""

import argparse

from pyprof.command.argument_types import file_name, parsed
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, check_standard_output, run_command, warned
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.gc_pause import uncollected
from pyprof.prof.load import add_input, load_annotated
from pyprof.prof.table.columns import ADVICE, COLUMN

FORMS = (".perfetto-trace", ".pftrace", ".json", ".json.gz")


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof perfetto",
        description="Write a run as a trace for ui.perfetto.dev: every GPU operation with its op, layer, FLOPs, bytes "
        "and limits as arguments, the layers over them, counters of TFLOP/s, GB/s and memory, arrows from launch to "
        "kernel and from forward to backward. A profiler's file gives the CPU's ranges, too.",
    )
    add_input(parser)
    add, default = parser.add_argument, "net.perfetto-trace"
    output = f"{default} (or .pftrace), or Chrome's trace events as net.json or net.json.gz (default: {default})"
    add("-o", "--output", metavar="FILE", type=file_name(FORMS), default=default, help=output)
    columns = "the columns of prof.py that are arguments of GPU operations, or all"
    add("-c", metavar="COLUMNS", dest="columns", type=parsed(_columns), help=columns)
    add("--no-ranges", action="store_true", help="leave out the CPU's ranges: a smaller file")
    add_json(parser)
    add_common(parser, writes="file")
    return parser


def _columns(text: str) -> list[str]:
    """The names of columns, each once. Raises ValueError for a name that no column has."""
    names = list(COLUMN) if text == "all" else text.split(",")
    wrong = next((name for name in names if name not in COLUMN), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} is no column; there are: {', '.join(COLUMN)}")
    return list(dict.fromkeys(names))


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof perfetto", build_parser, _run, argv)


@uncollected()
def _run(args: argparse.Namespace) -> Done:
    check_standard_output(args, "trace")
    from pyprof.files import open_output
    from pyprof.prof.perfetto.build_trace import ARGUMENTS, collect
    from pyprof.prof.perfetto.json_document import trace_written
    from pyprof.prof.perfetto.write_json import write_json
    from pyprof.prof.perfetto.write_proto import write_proto

    columns, ranges = args.columns or ARGUMENTS, not args.no_ranges
    loaded, annotation, peaks = load_annotated(args, advice=ADVICE.name in columns, ranges=True)
    run = loaded.name, loaded.table, annotation, peaks, loaded.capture
    trace = collect(*run, columns=columns, ranges=ranges, memory=loaded.memory)
    as_json = args.output.removesuffix(".gz").endswith(".json")
    with open_output(args.output, args.force) as out:
        (write_json if as_json else write_proto)(trace, out)
    if args.json:
        document = trace_written(args.output, len(loaded.table), trace)
        write_answer("perfetto", document, input=[loaded.input], warnings=loaded.warnings)
    line = f"{len(loaded.table):,} operations, {sum(map(len, trace.slices)):,} slices"
    if args.output != "-":
        line = f"wrote {args.output}: {line}; open it at https://ui.perfetto.dev (it stays on your machine)"
    return Done([*warned(loaded.warnings), line, *trace.notes])
