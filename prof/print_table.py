"""prof.py without --summary, --advise and --explain: print the selected rows and columns in the selected format."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import BinaryIO

from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, warned
from pyprof.errors import UsageError
from pyprof.files import open_output
from pyprof.prof.load import load_annotated
from pyprof.prof.table import write_plain, written_forms
from pyprof.prof.table.cells import Cells
from pyprof.prof.table.columns import DEFAULT
from pyprof.prof.table.query import make_query, run_query
from pyprof.prof.table.totals import percent_text, totals
from pyprof.table.columns import Ints, Table

SUFFIXES = (".csv", ".jsonl", ".json", ".parquet")  # allowed in the file name for -o, each also with .gz


def print_table(args: argparse.Namespace) -> Done:
    """Write the rows. The lines for standard error describe the table and which of its rows were selected."""
    default, group, sort = DEFAULT.split(","), args.group or (), args.sort or ()
    query = make_query(args.columns, default, args.where, group, sort, args.top, args.layer_depth)
    write = _writer(args)
    loaded, annotation, peaks = load_annotated(args)
    cells, rows, notes = run_query(query, loaded.table, annotation, peaks)
    whole = totals(loaded.table, annotation)
    if as_json(args):
        from pyprof.prof.table.json_document import rows_of

        write_answer(
            "groups" if query.group else "kernels",
            rows_of(query, loaded.table, whole, rows, notes),
            input=[loaded.input],
            warnings=loaded.warnings,
            rows=written_forms.json_rows(cells),
            output=args.output,
            force=args.force,
        )
    else:
        with open_output(args.output, args.force) as out:
            write(cells, out)
    chosen = [_chosen(loaded.table, rows)] if query.where else []
    return Done([*warned(loaded.warnings), whole.line(), *chosen, *notes])


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
    return partial(write_plain.write_aligned, width=args.width) if args.width else write_plain.write_plain


def _suffix(output: str | None) -> str:
    name = (output or "").removesuffix(".gz")
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")


def _chosen(table: Table, rows: Ints) -> str:
    duration = table.ints("kDuration")
    ns, whole_ns = int(duration[rows].sum()), int(duration.sum())
    return f"--where chose {len(rows)} rows, {ns / 1e6:.3f} ms, {percent_text(ns, whole_ns)} of the time"
