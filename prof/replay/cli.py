"""The command pyprof replay: the run simulated from its own calls and kernels."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pyprof.command.argument_types import file_name, whole_number
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, run_command, warned
from pyprof.command.parser import Parser, add_common, add_forms
from pyprof.prof.load import add_device

if TYPE_CHECKING:
    from pyprof.prof.replay.critical_path import CriticalPath
    from pyprof.prof.replay.replayed_run import Replayed

FORMS = (".perfetto-trace", ".pftrace", ".json", ".json.gz")
TOP = 15


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof replay",
        description="Simulate a run from its own parts: the host's work between calls, launches, kernels and copies in "
        "the order of their streams, waits between streams and for the GPU, hand-overs between threads. Idle time "
        "follows from these dependencies. Prints how far the replay is from the capture, and the critical path.",
    )
    parser.add_argument(
        "file", help="a profiler's file (net.sqlite, net.json, ...; files gzipped or not) or net.pyprof"
    )
    parser.add_argument("--top", metavar="N", type=whole_number(), default=TOP, help=f"rows per table (default: {TOP})")
    parser.add_argument(
        "--without-profiler",
        action="store_true",
        help="remove the profiler's cost from the host first: measured where steps were timed before it started "
        "(pyprof run --warmup 4), estimated otherwise",
    )
    add_device(parser, "replay it on another GPU")
    output = "write the simulated timeline for ui.perfetto.dev: net.perfetto-trace, .pftrace, .json or .json.gz"
    parser.add_argument("-o", "--output", metavar="FILE", type=file_name(FORMS), help=output)
    add_forms(parser.add_argument_group("form"), 60, "characters per line")
    add_common(parser, writes="file")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof replay", build_parser, _run, argv)


def _run(args: argparse.Namespace) -> Done:
    from pyprof.command.progress import progress
    from pyprof.files import check_output, open_output
    from pyprof.prof.load import load_with_calls
    from pyprof.prof.replay.critical_path import communicates, critical_path, path_places
    from pyprof.prof.replay.json_document import simulation
    from pyprof.prof.replay.print_replay import WIDTH, replay_lines
    from pyprof.prof.replay.replay_device import on_other_gpu
    from pyprof.prof.replay.replayed_run import replay
    from pyprof.prof.replay.without_profiler import without_profiler
    from pyprof.prof.timing.stragglers import meetings

    check_output(args.output, args.force)
    with progress(3, not args.quiet) as say:
        loaded, calls = load_with_calls(args.file, say)
        say("replaying")
        replayed, device = replay(loaded.table, calls, loaded.name, meetings(loaded.table)), None
        without, removed = without_profiler(replayed)
        if args.without_profiler:
            replayed = without
        if args.device:
            replayed, device = on_other_gpu(replayed, args.device)
        path = critical_path(replayed, communicates(replayed.table))
        if args.output:
            say("writing")
            _write(replayed, path, args.output, args.force)
    places = path_places(replayed, path)
    document = simulation(replayed, removed, path, places, args.output, device, args.without_profiler)
    if args.json:
        write_answer("simulation", document, input=[loaded.input], warnings=loaded.warnings)
    else:
        with open_output(None) as out:
            out.write("".join(f"{line}\n" for line in replay_lines(document, args.top, args.width or WIDTH)).encode())
    wrote = (
        [f"wrote {args.output}: open it at https://ui.perfetto.dev (it stays on your machine)"] if args.output else []
    )
    return Done([*warned(loaded.warnings), *wrote])


def _write(replayed: Replayed, path: CriticalPath, output: str, force: bool) -> None:
    from pyprof.files import open_output
    from pyprof.prof.perfetto.write_json import write_json
    from pyprof.prof.perfetto.write_proto import write_proto
    from pyprof.prof.replay.simulated_trace import simulated_trace

    as_json = output.removesuffix(".gz").endswith(".json")
    with open_output(output, force) as out:
        (write_json if as_json else write_proto)(simulated_trace(replayed, path), out)
