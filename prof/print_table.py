"""prof.py without --summary, --advise and --explain: print the selected rows and columns in the selected format."""

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from typing import BinaryIO

from pyprof.command.argument_types import check_suffix
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, warned
from pyprof.command.terminal_text import output_width
from pyprof.errors import UsageError
from pyprof.files import open_output
from pyprof.prof.load import LoadedFile, load_annotated
from pyprof.prof.table import write_plain, written_forms
from pyprof.prof.table.cells import Cells
from pyprof.prof.table.columns import ADVICE, DEFAULT, MEASURED, MEASURED_BRIEF
from pyprof.prof.table.query import make_query, run_query
from pyprof.prof.table.totals import totals
from pyprof.prof.table.where import absent_texts
from pyprof.prof.work.annotate import Annotation
from pyprof.quantities import share
from pyprof.table.columns import Table

SUFFIXES = (".csv", ".jsonl", ".json", ".parquet")  # of the name for -o: these choose the form, each also with .gz
TEXT = ".txt"  # this, like no suffix, leaves it as it is without -o


def print_table(args: argparse.Namespace) -> Done:
    """Write the rows. The lines for standard error describe the table and which of its rows were selected."""
    default, group, sort = _default(args), args.group or (), args.sort or ()
    query = make_query(args.columns, default, args.where, group, sort, args.top, args.layer_depth, bool(args.ncu))
    write = _writer(args)
    loaded, annotation, peaks = load_annotated(args, advice=ADVICE in query.reads())
    cells, rows, notes = run_query(query, loaded.table, annotation, peaks)
    whole = totals(loaded.table, annotation)
    absent = absent_texts(query.where, loaded.table, annotation) if query.where and not len(rows) else ()
    notes += counter_notes(annotation, loaded.table)
    loaded = loaded._replace(warnings=(*loaded.warnings, *absent))
    if as_json(args):
        from pyprof.prof.table.json_document import rows_of

        document = rows_of(query, loaded.table, whole, rows, notes)
        write_json(args, loaded, "groups" if query.group else "kernels", document, written_forms.json_rows(cells))
    else:
        cells, left_out = _that_fit(args, cells)
        with open_output(args.output, args.force) as out:
            write(cells, out)
        notes += left_out
    lines = [*warned(loaded.warnings), whole.line()]
    if query.where:
        ns = int(loaded.table.ints("kDuration")[rows].sum())
        lines.append(f"--where chose {len(rows)} rows, {ns / 1e6:.3f} ms, {share(ns, whole.total_ns)} of the time")
    return Done([*lines, *notes])


def _default(args: argparse.Namespace) -> list[str]:
    """The columns without -c: PyProf's, and with --ncu those of the counters."""
    is_text = args.width is not None or not (args.csv or args.json or args.jsonl or _suffix(args.output))
    counters = (MEASURED_BRIEF if is_text else MEASURED) if args.ncu else ""
    return ",".join(filter(None, (DEFAULT, counters))).split(",")


def counter_notes(annotation: Annotation, table: Table) -> list[str]:
    """What was joined of the reports of Nsight Compute, if any: which kernels matched, and which did not and why."""
    if annotation.counters is None:
        return []
    from pyprof.prof.counters.measured import notes

    return notes(annotation.counters, table)


def write_json(
    args: argparse.Namespace, loaded: LoadedFile, what: str, document: object, rows: Iterable[bytes] | None = None
) -> None:
    """Write a JSON document about the file; ``rows``, if given, are its last key."""
    write_answer(
        what, document, input=[loaded.input], warnings=loaded.warnings, rows=rows, output=args.output, force=args.force
    )


def as_json(args: argparse.Namespace) -> bool:
    """Whether the output is JSON by the options or, without them, by its name."""
    other_form = args.csv or args.jsonl or args.width is not None
    return bool(args.json) or (_suffix(args.output) == ".json" and not other_form)


def _writer(args: argparse.Namespace) -> Callable[[Cells, BinaryIO], None]:
    """How to write a form other than --json: by the options or, without them, by the output's name."""
    suffix = _suffix(args.output)
    if suffix == ".parquet":
        if args.csv or args.json or args.jsonl or args.width is not None:
            others = "--csv, --json, --jsonl and -w"
            raise UsageError(f"argument -o: {args.output} is Parquet by its name, which is none of {others}")
        return written_forms.write_parquet
    by_name = suffix if args.width is None else ""
    if args.csv or (by_name == ".csv" and not args.jsonl):
        return written_forms.write_csv
    if args.jsonl or by_name == ".jsonl":
        return written_forms.write_jsonl
    width, terminal = output_width(args.output, args.width)
    if args.width:
        return partial(write_plain.write_aligned, width=width)
    if args.width is None and terminal:
        return partial(_fitted, width=width)
    return write_plain.write_words if args.width is None and args.group else write_plain.write_plain


def _that_fit(args: argparse.Namespace, cells: Cells) -> tuple[Cells, list[str]]:
    """Without the last columns of --group that the width has no room for, unless -c names them; and a line for that."""
    width, terminal = output_width(args.output, args.width)
    is_aligned = bool(args.width or terminal) and not (args.csv or args.jsonl)
    if not is_aligned or not args.group or args.columns:
        return cells, []
    count = len(cells.columns)
    while count > len(args.group) + 1 and write_plain.least_width(cells.first(count)) > width:
        count -= 1
    names = ",".join(column.name for column in cells.columns[count:])
    return cells.first(count), [f"left out for lack of width: {names} (-c names columns)"] if names else []


def _fitted(cells: Cells, out: BinaryIO, width: int) -> None:
    """Aligned columns for a terminal that is ``width`` wide; where they do not fit, the lines are longer."""
    write_plain.write_aligned(cells, out, max(width, write_plain.least_width(cells)))


def check_output_name(args: argparse.Namespace) -> None:
    """Raise UsageError if the name for -o has a suffix that names no form, and no option does."""
    table = not (args.summary or args.advise or args.explain)
    form_is_given = args.json or (table and (args.csv or args.jsonl or args.width is not None))
    if form_is_given or not args.output:
        return
    known = SUFFIXES if table else (".json",)
    check_suffix(args.output, (*known, TEXT), f"{', '.join(known)} and, for text, {TEXT} or none (each also with .gz)")


def _suffix(output: str | None) -> str:
    name = (output or "").removesuffix(".gz")
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
