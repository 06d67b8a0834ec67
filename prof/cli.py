"""The command prof.py: kernel table in, annotated table out."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, BinaryIO

from pyprof._version import __version__
from pyprof.errors import PyprofError
from pyprof.prof.columns import COLUMN, COLUMNS, DEFAULT, Annotation, Column, TooNarrow, first_text

if TYPE_CHECKING:
    from pyprof.prof.cells import Cells
    from pyprof.table import Table

NAMED = 5  # ops without a model that the summary names


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prof.py",
        description="Annotate the kernel table: FLOPs, bytes, tensor cores, op, layer and direction of every kernel.",
        epilog=_columns_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", help="net.dict (or .gz) or net.parquet from parse.py; without it or as -, "
                        "a net.dict on standard input")  # fmt: skip
    parser.add_argument("-c", metavar="COLUMNS", dest="columns", type=_columns, default=_columns(DEFAULT),
                        help=f"the columns to print, in this order, or all (without: {DEFAULT})")  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated, every field quoted, unknown empty")
    form.add_argument("-w", metavar="N", dest="width", type=_width, default=0,
                      help="aligned columns, cut to N characters a line; without --csv and -w (or with -w 0) fields "
                      "are separated by a blank, for awk: blanks in them are _, empty ones -")  # fmt: skip
    parser.add_argument("--peaks", metavar="FILE", help="peaks of the GPU for the columns of limits, as pyprof peaks "
                        "writes them; without it, its data sheet's")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="write here, not to standard output")
    parser.add_argument("--force", action="store_true", help="overwrite the output file")
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary on standard error")
    parser.add_argument("--version", action="version", version=f"pyprof {__version__}")
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.file is None and sys.stdin.isatty():
        parser.error("no file: give net.dict or net.parquet, or a net.dict on standard input")
    try:
        line = _run(args)
    except TooNarrow as error:
        parser.error(str(error))
    except PyprofError as error:
        print(f"prof.py: {error}", file=sys.stderr)
        return 1
    if not args.quiet:
        print(f"prof.py: {line}", file=sys.stderr)
    return 0


def _run(args: argparse.Namespace) -> str:
    from pyprof.files import check_output, open_output
    from pyprof.prof.annotate import annotate
    from pyprof.prof.cells import Cells
    from pyprof.prof.devices import load_peaks
    from pyprof.prof.limits import bound
    from pyprof.prof.link import linked
    from pyprof.tablefile import read_table

    check_output(args.output, args.force)  # before minutes of work
    peaks = load_peaks(args.peaks) if args.peaks else None
    table = linked(read_table(args.file))
    annotation = annotate(table)
    columns, notes = bound(args.columns, table, annotation, peaks)
    cells = Cells(columns, table, annotation)
    with open_output(args.output, args.force) as out:
        _write(cells, out, args.csv, args.width)
    return "\nprof.py: ".join([summary(table, annotation), *notes])


def _write(cells: Cells, out: BinaryIO, csv: bool, width: int) -> None:
    from pyprof.prof import write_csv, write_plain

    if csv:
        write_csv.write_csv(cells, out)
    elif width:
        write_plain.write_aligned(cells, out, width)
    else:
        write_plain.write_plain(cells, out)


def summary(table: Table, annotation: Annotation) -> str:
    """One line: rows, time, the share of it that has an op, and the ops without a model by their share."""
    duration = table.ints("kDuration")
    total = int(duration.sum())
    op = table.coded("op")
    done = int(duration[op.codes >= 0].sum())
    words = f"{len(table)} rows, {total / 1e6:.3f} ms, {_percent(done, total)} of GPU time attributed to an op"
    missed = [f"{_name(name)} {_percent(ns, total)}" for name, ns in annotation.uncounted.items()]
    if not missed:
        return f"{words}; all counted"
    rest = f" and {len(missed) - NAMED} more" if len(missed) > NAMED else ""
    share = _percent(sum(annotation.uncounted.values()), total)
    return f"{words}; not counted: {share}: {', '.join(missed[:NAMED])}{rest}"


def _name(name: str) -> str:
    """An op's name on a terminal; of a list of ops (JSON) the outermost."""
    from pyprof.prof.write_plain import cut_to, safe

    name = first_text(name) if name.startswith('["') else name
    return cut_to(safe(name), 40, "middle") or "(no name)"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "0.0%"


def _columns(text: str) -> list[Column]:
    if text == "all":
        return list(COLUMNS)
    names = text.split(",")
    for name in names:
        if name not in COLUMN:
            known = ", ".join(COLUMN)
            raise argparse.ArgumentTypeError(f"{name!r} is no column; there are: {known}")
    return [COLUMN[name] for name in names]


def _width(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"expected a number of characters, found {text!r}")
    return int(text)


def _columns_help() -> str:
    width = max(len(name) for name in COLUMN)
    lines = [f"  {c.name:{width}}  {c.meaning}{f' ({c.unit})' if c.unit else ''}" for c in COLUMNS]
    return "\n".join(["columns:", *lines, "", "example: prof.py --csv -c idx,op,kernel,sil,flops net.dict"])
