"""The command parse.py, which converts profiler files to a kernel table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.command.argument_types import file_name, imported, whole_number
from pyprof.command.envelope import Input, write_answer
from pyprof.command.frame import Done, check_standard_output, run_command, warned
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.command.progress import progress
from pyprof.errors import InputError, PyprofError, UsageError
from pyprof.files import check_output, open_output
from pyprof.gc_pause import given_back
from pyprof.parse.graph_option import add_graphs

if TYPE_CHECKING:
    from pyprof.command.progress import Say
    from pyprof.parse.attribute.contents import Contents
    from pyprof.parse.attribute.notes import CaptureNotes
    from pyprof.parse.read import Parsed
    from pyprof.parse.selection import Selection
    from pyprof.table.columns import HostTable, MemoryTable, Table

ENDINGS = (".dict", ".dict.gz", ".parquet", ".csv", ".csv.gz", ".pyprof")


def build_parser() -> Parser:
    parser = Parser(
        prog="parse.py",
        description="Turn a profiler's file into the kernel table: one row per GPU operation, with op, layer, line, "
        "shapes and direction.",
        epilog="Reads nsys and nvprof SQLite databases, nsys's folders of Parquet files (parquetdir), .nsys-rep where "
        "nsys is installed, torch.profiler (Kineto) JSON traces and, experimentally, rocprofv3's JSON and databases "
        "and RPD's databases; files gzipped or not. Several files, of the ranks of a job, make one table.",
    )
    parser.add_argument("files", nargs="+", metavar="file", help="net.sqlite, net.nsys-rep, net.json, or one as .gz")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=file_name(ENDINGS),
        help="write here, not to standard output: net.dict or net.csv (or either as .gz) or net.parquet; net.pyprof is "
        "a folder that holds the memory table and the host's calls, too",
    )
    _add_selection(parser)
    add_graphs(parser)
    parser.add_argument(
        "--inductor",
        metavar="FOLDER",
        action="append",
        default=[],
        help="inductor's debug folder (torch_compile_debug, written under TORCH_COMPILE_DEBUG=1): compiled kernels "
        "of a capture that was recorded without pyprof get ops and lines from it; may be repeated",
    )
    parser.add_argument(
        "--summary",
        action="store_true",
        help="print a summary of the files and make no table; for a long nsys export the attributed share of the time "
        "is an estimate, and labelled so",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="with --summary: the attributed share of all rows, which takes about as long as a table",
    )
    add_json(parser, "one JSON object of what was read and, with -o, written; errors too (pyprof schema parse)")
    add_common(parser, writes="file")
    return parser


def _add_selection(parser: argparse.ArgumentParser) -> None:
    time = imported("pyprof.parse.selection", "parse_time")
    parser.add_argument(
        "--from",
        metavar="TIME",
        dest="begin",
        type=time,
        help="only rows that start at TIME or after: 12ms, 1.5s, 300us, plain ns; since the capture began",
    )
    parser.add_argument("--to", metavar="TIME", dest="end", type=time, help="only rows that start before TIME")
    parser.add_argument(
        "--step",
        metavar="N",
        dest="steps",
        type=imported("pyprof.parse.selection", "parse_steps"),
        help="only rows launched in training step N, or in N-M",
    )
    parser.add_argument(
        "--range",
        metavar="NAME",
        help="only rows launched while a range of that name was open, on any thread of the process, and the backward "
        "of what ran in it; * and ? stand for other characters",
    )
    parser.add_argument("--rank", metavar="N", type=whole_number(0, what="a rank"), help="only rows of that rank")


def main(argv: list[str] | None = None) -> int:
    return run_command("parse.py", build_parser, _run, argv, inputs=("files",))


def _check_options(args: argparse.Namespace) -> None:
    if args.summary and args.output:
        raise UsageError("--summary prints text on standard output: leave out -o")
    if args.exact and not args.summary:
        raise UsageError("--exact goes with --summary: a table's share is exact")
    check_standard_output(args, "table")


def _run(args: argparse.Namespace) -> Done:
    from pyprof.parse.attribute.contents import Contents
    from pyprof.parse.selection import Selection
    from pyprof.table.columns import Table

    _check_options(args)
    _check_output(args.output, args.force)  # before minutes of work
    wanted = Selection(args.begin, args.end, args.steps, args.rank, args.range)
    if args.summary and not (args.exact or args.graphs or args.inductor) and wanted == Selection():
        return _brief(args)
    container = _is_container(args.output)  # the only output with tables of host calls and allocations
    with progress(2 * len(args.files) + 1, not args.quiet) as say:
        notes, tables, memory, calls = _read(args, wanted, container, say)
        if not args.summary:
            if not any(map(len, tables)) and memory is None:
                raise _no_rows(notes)
            whole = Table.concat(tables)
            if args.output or not args.json:
                say("writing")
                _write(whole, memory, calls, notes, args.output, args.force)
    if args.json or args.summary:
        _print_summary(args, notes, [Contents.of(table) for table in tables])
        return Done()
    return Done([*warned(_not_written(whole, args.output)), *_closing_lines(notes, whole, args.output)])


@given_back()
def _read(
    args: argparse.Namespace, wanted: Selection, container: bool, say: Say
) -> tuple[list[CaptureNotes], list[Table], MemoryTable | None, HostTable | None]:
    """The files' notes and tables, and for a ``container`` the other two. The captures themselves are not kept."""
    from pyprof.parse.merge import apart, host_apart, memory_apart
    from pyprof.parse.read import read_graphs, read_inductor, read_profile
    from pyprof.parse.selection import Selection

    lean = args.range is None and not args.json and not args.summary  # these options need the names of all ranges
    graphs, inductor = read_graphs(args.graphs), read_inductor(args.inductor)
    options = {"brief": args.summary, "lean": lean and not container, "host": container, "memory": container}
    parsed = [read_profile(Path(file), say, graphs=graphs, inductor=inductor, **options) for file in args.files]
    tables = apart([profile.table for profile in parsed])
    if wanted != Selection():
        tables = _selected(args.files, parsed, tables, wanted)
    memory, calls = (memory_apart(parsed), host_apart(parsed)) if container and not args.summary else (None, None)
    return [profile.notes for profile in parsed], tables, memory, calls


def _brief(args: argparse.Namespace) -> Done:
    """Print the summary of whole files."""
    from pyprof.parse.merge import contents_apart
    from pyprof.parse.read import read_brief

    with progress(2 * len(args.files), not args.quiet) as say:
        files = [read_brief(Path(file), say) for file in args.files]
    _print_summary(args, [notes for notes, _ in files], contents_apart([contents for _, contents in files]))
    return Done()


def _no_rows(notes: list[CaptureNotes]) -> PyprofError:
    if len(notes) == 1:
        return InputError(notes[0].file, notes[0].why_empty)
    return PyprofError("; ".join(f"{file.file}: {file.why_empty}" for file in notes))


def _selected(files: list[str], parsed: list[Parsed], tables: list[Table], wanted: Selection) -> list[Table]:
    """The rows that the user selected. If there are none, raises PyprofError, which lists the available values."""
    from pyprof.parse.selection import forward_times, named_spans, select

    kept = []
    for profile, table in zip(parsed, tables, strict=True):
        spans = forward = None
        if wanted.range_name is not None:
            spans, forward = named_spans(profile.capture, wanted.range_name), forward_times(profile.capture)
        ranked = profile.table.with_column("rank", table.ints("rank"))  # keeps the file's own process numbers
        kept.append(table.take(select(ranked, wanted, spans, forward)))
    if not any(map(len, kept)):
        available = _available(parsed, tables, wanted)
        raise PyprofError(f"{', '.join(files)}: no row is left by {wanted.options()}; {available}")
    return kept


def _available(parsed: list[Parsed], tables: list[Table], wanted: Selection) -> str:
    """The values that the user could have selected."""
    from pyprof.parse.attribute.contents import known_numbers
    from pyprof.parse.summary import spread

    if wanted.range_name is not None:
        names = list(dict.fromkeys(name for profile in parsed for name in profile.notes.ranges))
        return f"its ranges are, for example, {', '.join(names)}" if names else "it has no ranges of the user's"
    steps = sorted({step for table in tables for step in known_numbers(table.ints("step"))})
    ranks = sorted({rank for table in tables for rank in known_numbers(table.ints("rank"))})
    starts = [time for table in tables if len(table) for time in table.ints("start")[[0, -1]].tolist()]
    times = f"rows start at {min(starts):,} to {max(starts):,} ns" if starts else "there are no rows"
    return f"steps {spread(steps) if steps else 'not marked'}, ranks {spread(ranks) if ranks else 'unknown'}, {times}"


def _is_container(output: str | None) -> bool:
    return output is not None and output.lower().endswith(".pyprof")


def _check_output(output: str | None, force: bool) -> None:
    if output is not None and _is_container(output):
        from pyprof.table.container import check_container_output

        check_container_output(Path(output), force)
    else:
        check_output(output, force)


def _write(
    table: Table,
    memory: MemoryTable | None,
    calls: HostTable | None,
    notes: list[CaptureNotes],
    output: str | None,
    force: bool,
) -> None:
    if output and _is_container(output):
        from pyprof.table.container import Container, write_container

        profilers = ", ".join(dict.fromkeys(file.profiler for file in notes))
        files = tuple(Path(file.file).name for file in notes)  # the container is sent to others
        kernels = table if len(table) else None
        content = Container(kernels, memory, profilers, files, tuple(_warnings(notes)), calls)
        write_container(content, Path(output), force)
        return
    if output and output.endswith(".parquet"):
        from pyprof.table.parquet import write_parquet

        write_parquet(table, Path(output), force=force)
        return
    from pyprof.parse.write_csv import write_csv
    from pyprof.table.netdict import write_netdict

    is_csv = output is not None and output.removesuffix(".gz").endswith(".csv")
    with open_output(output, force=force) as out:
        (write_csv if is_csv else write_netdict)(table, out)


def _not_written(table: Table, output: str | None) -> list[str]:
    """What the file that was written has no place for."""
    if not table.samples or (output or "").endswith((".parquet", ".pyprof")):
        return []
    return ["the clocks and power of --nvml are left out: net.dict and CSV have no place for them (-o net.parquet has)"]


def _print_summary(args: argparse.Namespace, notes: list[CaptureNotes], contents: list[Contents]) -> None:
    """Print the summary, or the object of --json."""
    from pyprof.parse.json_document import parsed
    from pyprof.parse.summary import page

    if args.json:
        inputs = [Input(file.file, file.profiler) for file in notes]
        write_answer("parse", parsed(notes, contents, args.output), input=inputs, warnings=_warnings(notes))
        return
    pages = ["".join(f"{line}\n" for line in page(*file)) for file in zip(notes, contents, strict=True)]
    with open_output(None) as out:
        out.write("\n".join(pages).encode())


def _closing_lines(notes: list[CaptureNotes], table: Table, output: str | None) -> list[str]:
    """The warnings, and a line that says which file was written and summarizes the table."""
    from pyprof.parse.attribute.contents import Contents
    from pyprof.parse.summary import one_line

    source = ", ".join(dict.fromkeys(file.profiler for file in notes))
    if len(notes) > 1:
        source = f"{len(notes)} files, {source}"
    written = f"wrote {output}: " if output and output != "-" else ""
    return [*warned(_warnings(notes)), f"{written}{one_line(source, Contents.of(table))}"]


def _warnings(notes: list[CaptureNotes]) -> list[str]:
    return [f"{file.file}: {text}" if len(notes) > 1 else text for file in notes for text in file.warnings]
