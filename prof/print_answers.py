"""What prof.py prints instead of the table: --summary, --advise and --explain."""

import argparse
import textwrap

from pyprof.command.frame import Done, warned
from pyprof.command.terminal_text import output_width
from pyprof.errors import UsageError
from pyprof.files import open_output
from pyprof.prof.load import load_annotated
from pyprof.prof.print_table import as_json, write_json
from pyprof.prof.table.totals import totals
from pyprof.table.losses import incomplete_line
from pyprof.text import printable

LEAST_TEXT = 20  # characters of a wrapped line behind its margin


def print_summary(args: argparse.Namespace) -> Done:
    from pyprof.prof.changes.find_changes import captured_at, find_changes
    from pyprof.prof.changes.say import brief
    from pyprof.prof.summary.capture_numbers import summarise
    from pyprof.prof.summary.terminal import write_summary

    loaded, annotation, peaks = load_annotated(args, host=True)
    numbers = summarise(loaded.table, annotation, peaks, memory=loaded.memory, path=loaded.path)
    changes = find_changes(
        loaded.table, annotation, loaded.host, peaks, loaded.name, newest=captured_at(args.file)
    ).document
    if as_json(args):
        from pyprof.prof.summary.json_document import summary_of

        write_json(args, loaded, "summary", summary_of(numbers, changes))
        return Done(warned(loaded.warnings))
    width, terminal = output_width(args.output, args.width)
    first_line = incomplete_line(numbers.incomplete)  # the summary begins with it
    warnings = [text for text in loaded.warnings if text != first_line]
    with open_output(args.output, args.force) as out:
        write_summary(numbers, out, width, terminal, brief(changes))
    hint = [] if args.summary else ["rows: -c or -w, or a pipe; all about the changes: --advise"]
    return Done([*warned(warnings), *hint])


def print_advice(args: argparse.Namespace) -> Done:
    from pyprof.prof.changes.find_changes import captured_at, find_changes
    from pyprof.prof.changes.measured.retimer import retimer_of
    from pyprof.prof.changes.say import WIDTH, advice_lines

    loaded, annotation, peaks = load_annotated(args, host=True)
    retime = retimer_of(args.timings, loaded.table) if args.timings else None
    document = find_changes(
        loaded.table, annotation, loaded.host, peaks, loaded.name, retime, captured_at(args.file)
    ).document
    if as_json(args):
        write_json(args, loaded, "advice", document)
    else:
        with open_output(args.output, args.force) as out:
            out.write("".join(f"{line}\n" for line in advice_lines(document, args.width or WIDTH)).encode())
    return Done([*warned(loaded.warnings), totals(loaded.table, annotation).line()])


def print_explanation(args: argparse.Namespace) -> Done:
    """Write where a row's numbers come from; rows are numbered from 1, like the column idx."""
    from pyprof.prof.explain import explain

    loaded, annotation, _ = load_annotated(args)
    if args.explain > len(loaded.table):
        raise UsageError(f"argument --explain: expected a row from 1 to {len(loaded.table)}, found {args.explain}")
    lines = explain(loaded.table, annotation, args.explain - 1)
    if as_json(args):
        from pyprof.prof.table.json_document import explained

        write_json(args, loaded, "explain", explained(args.explain, lines))
        return Done(warned(loaded.warnings))
    margin = max(len(what) for what, _ in lines) + 2
    told = [f"{what:{margin}}{printable(origin)}" for what, origin in lines]
    if args.width:
        width = max(args.width, margin + LEAST_TEXT)
        told = [part for line in told for part in textwrap.wrap(line, width, subsequent_indent=" " * margin)]
    with open_output(args.output, args.force) as out:
        out.write("".join(f"{line}\n" for line in told).encode())
    return Done(warned(loaded.warnings))
