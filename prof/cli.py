"""The command prof.py: kernel table in, annotated table out."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from pyprof.command.envelope import Input, Parser, add_json, envelope, write_envelope
from pyprof.command.frame import add_force, add_quiet, add_version, carry_out, warned
from pyprof.prof.load import add_models, add_peaks, judged
from pyprof.prof.table.columns import COLUMN, COLUMNS, DEFAULT, TooNarrow
from pyprof.prof.table.condition import ConditionError
from pyprof.prof.table.group import AGGREGATES
from pyprof.prof.table.query import QueryError, Sort
from pyprof.prof.table.where import Where, parse_where

if TYPE_CHECKING:
    from pyprof.prof.load import Loaded
    from pyprof.prof.table.cells import Cells
    from pyprof.prof.work.annotate import Annotation
    from pyprof.table.columns import Ints, Table

NAMED = 5  # ops without a model that the line on standard error names
FORMS = (".csv", ".jsonl", ".json", ".parquet")  # of -o, each also with .gz


def build_parser() -> Parser:
    parser = Parser(
        prog="prof.py",
        description="Annotate the kernel table: FLOPs, bytes, tensor cores, op, layer and direction of every kernel.\n"
        "On a terminal, without an option that chooses rows, columns or a form: the summary.",
        epilog=_columns_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", help="net.dict (or .gz) or net.parquet from parse.py, or a profiler's file "
                        "that it reads (net.sqlite, net.json, ...); without it or as -, a net.dict on standard "
                        "input")  # fmt: skip
    _add_query(parser)
    _add_forms(parser)
    parser.add_argument("--advise", action="store_true", help="in place of the table: what to change, where, and the "
                        "ms a step that it saves; with -w N for that width")  # fmt: skip
    parser.add_argument("--explain", metavar="ROW", type=_positive, help="in place of the table: where each number of "
                        "row ROW (its idx) comes from")  # fmt: skip
    add_peaks(parser)
    add_models(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write here, not to standard output; "
                        "net.csv, net.json, net.jsonl and net.parquet choose the form")  # fmt: skip
    add_force(parser)
    add_quiet(parser)
    add_version(parser)
    return parser


def _add_query(parser: argparse.ArgumentParser) -> None:
    rows = parser.add_argument_group("rows and columns")
    rows.add_argument("-c", metavar="COLUMNS", dest="columns", type=_names,
                      help=f"the columns to print, in this order, or all (without: {DEFAULT})")  # fmt: skip
    rows.add_argument("--where", metavar="COND", type=_condition,
                      help="only rows of which this is true: \"op == 'linear' and dir == 'bprop'\", "
                      "\"kernel like '*gemm*'\", \"sil > 1e6 and tc in (0, '?')\"")  # fmt: skip
    rows.add_argument("--group", metavar="COLUMNS", type=_names,
                      help="a line for all rows that agree in these columns (op,dir; layer; kernel; phase; args), with "
                      f"{', '.join(column.name for column in AGGREGATES)}; longest first")  # fmt: skip
    rows.add_argument("--sort", metavar="COLUMNS", type=_sorts,
                      help="by these columns, -COLUMN descending: --sort -sil; unknown last (without: the input's "
                      "order)")  # fmt: skip
    rows.add_argument("--top", metavar="N", type=_positive, help="the first N lines; without --sort the longest N")
    rows.add_argument("--layer-depth", metavar="N", type=_positive, help="the outermost N parts of layers")


def _add_forms(parser: argparse.ArgumentParser) -> None:
    title = parser.add_argument_group("form")
    form = title.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated, every field quoted, unknown empty")
    add_json(form)
    form.add_argument("--jsonl", action="store_true", help="JSON lines: an object a row, unknown null")
    form.add_argument("-w", metavar="N", dest="width", type=_width,
                      help="aligned columns, cut to N characters a line; without a form (or with -w 0) fields are "
                      "separated by a blank, for awk: blanks in them are _, empty ones -")  # fmt: skip
    title.add_argument("--summary", action="store_true", help="where the time went, in words and tables; with -w N for "
                       "that width")  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(_with_signs(sys.argv[1:] if argv is None else argv))
    if args.file is None and sys.stdin.isatty():
        parser.error("no file: give net.dict or net.parquet, or a net.dict on standard input")

    def work(args: argparse.Namespace) -> list[str]:
        try:
            return _work(args)(args)
        except (TooNarrow, QueryError) as error:
            parser.error(str(error))

    return carry_out("prof.py", work, args, [args.file or "-"])


def _with_signs(argv: list[str]) -> list[str]:
    """``--sort -sil`` as ``--sort=-sil``: argparse takes -sil for an option."""
    joined: list[str] = []
    for word in argv:
        if joined and joined[-1] == "--sort" and word.startswith("-"):
            joined[-1] = f"--sort={word}"
        else:
            joined.append(word)
    return joined


def _work(args: argparse.Namespace) -> Callable[[argparse.Namespace], list[str]]:
    """What to print: as asked for, and on a terminal where nothing is the summary."""
    chosen = {"-c": args.columns, "--where": args.where, "--group": args.group, "--sort": args.sort, "--top": args.top,
              "--layer-depth": args.layer_depth, "--csv": args.csv, "--jsonl": args.jsonl}  # fmt: skip
    given = [option for option, value in chosen.items() if value]
    asked = (("--summary", args.summary), ("--advise", args.advise), ("--explain", args.explain))
    whole = [name for name, wanted in asked if wanted]
    if whole and (clash := [*whole[1:], *given]):
        raise QueryError(f"argument {whole[0]}: it takes the table's place, and does not go with {clash[0]}")
    if args.advise:
        return _advise
    if args.explain:
        return _explain
    plain = not given and args.output is None and args.width is None and not args.json
    return _summary if args.summary or (plain and sys.stdout.isatty()) else _rows


def _summary(args: argparse.Namespace) -> list[str]:
    """Write the summary; it leaves the reader's warnings to standard error."""
    from pyprof.files import is_standard, open_output
    from pyprof.prof.advice import Run, advise
    from pyprof.prof.advice.report import brief
    from pyprof.prof.summary.capture_numbers import summarise
    from pyprof.prof.summary.terminal import write_summary

    loaded, annotation, peaks = judged(args)
    found = summarise(loaded.table, annotation, peaks)
    run = Run(loaded.table, annotation, peaks)
    pieces = advise(run)
    if _in_json(args):
        from pyprof.prof.json_document import summary_of

        _answer(args, "summary", summary_of(found, pieces), loaded)
        return warned(loaded.warnings)
    terminal = is_standard(args.output) and sys.stdout.isatty()
    width = args.width or (shutil.get_terminal_size().columns if terminal else 100)
    with open_output(args.output, args.force) as out:
        write_summary(found, out, width, terminal, () if found.on_cpu else brief(run, pieces))
    return [*warned(loaded.warnings), *([] if args.summary else ["rows: -c or -w, or a pipe; all advice: --advise"])]


def _advise(args: argparse.Namespace) -> list[str]:
    from pyprof.files import open_output
    from pyprof.prof.advice import Run, advise
    from pyprof.prof.advice.report import document, write_advice

    loaded, annotation, peaks = judged(args)
    run = Run(loaded.table, annotation, peaks)
    found = advise(run)
    if _in_json(args):
        _answer(args, "advice", document(run, found), loaded)
    else:
        with open_output(args.output, args.force) as out:
            write_advice(run, found, out, args.width or 0)
    return [*warned(loaded.warnings), summary(loaded.table, annotation)]


def _explain(args: argparse.Namespace) -> list[str]:
    """Write where a row's numbers come from; rows count from 1, as idx does."""
    from pyprof.files import open_output
    from pyprof.prof.explain import explain
    from pyprof.prof.json_document import explained
    from pyprof.text import printable

    loaded, annotation, _ = judged(args)
    if args.explain > len(loaded.table):
        raise QueryError(f"argument --explain: expected a row from 1 to {len(loaded.table)}, found {args.explain}")
    lines = explain(loaded.table, annotation, args.explain - 1)
    if _in_json(args):
        _answer(args, "explain", explained(args.explain, lines), loaded)
        return warned(loaded.warnings)
    wide = max(len(what) for what, _ in lines)
    text = "\n".join(f"{what:{wide}}  {printable(told)}" for what, told in lines)
    with open_output(args.output, args.force) as out:
        out.write(f"{text}\n".encode())
    return warned(loaded.warnings)


def _in_json(args: argparse.Namespace) -> bool:
    """As the options say, else as the output's name does."""
    other = args.csv or args.jsonl or args.width is not None
    return bool(args.json) or (_suffix(args.output) == ".json" and not other)


def _answer(
    args: argparse.Namespace, what: str, own: dict[str, object], loaded: Loaded, cells: Cells | None = None
) -> None:
    """Write an envelope, with ``cells`` as its rows."""
    from pyprof.files import open_output
    from pyprof.prof.table.write_jsonl import json_rows

    document = envelope(what, own, input=[Input(loaded.name, loaded.profiler)], warnings=loaded.warnings)
    with open_output(args.output, args.force) as out:
        write_envelope(document, out, None if cells is None else json_rows(cells))


def _rows(args: argparse.Namespace) -> list[str]:
    """Write the rows asked for; the lines for standard error."""
    from pyprof.files import open_output
    from pyprof.prof.table.query import answer, make_query

    query = make_query(args.columns, DEFAULT.split(","), args.where, args.group or (), args.sort or (), args.top,
                       args.layer_depth)  # fmt: skip
    write = _writer(args)
    loaded, annotation, peaks = judged(args)
    cells, rows, notes = answer(query, loaded.table, annotation, peaks)
    if _in_json(args):
        from pyprof.prof.json_document import rows_of, totals

        own = rows_of(query, loaded.table, totals(loaded.table, annotation), rows, notes)
        _answer(args, "groups" if query.group else "kernels", own, loaded, cells)
    else:
        with open_output(args.output, args.force) as out:
            write(cells, out)
    picked = [_picked(loaded.table, rows)] if query.where else []
    return [*warned(loaded.warnings), summary(loaded.table, annotation), *picked, *notes]


def _writer(args: argparse.Namespace) -> Callable[[Cells, BinaryIO], None]:
    """How to write what is no envelope: as the options say, else as the output's name does."""
    suffix = _suffix(args.output)
    if suffix == ".parquet":
        if args.csv or args.json or args.jsonl or args.width is not None:
            raise QueryError(
                f"argument -o: {args.output} is Parquet by its name, which is none of --csv, --json, --jsonl and -w"
            )
        from pyprof.prof.table.write_parquet import write_parquet

        return write_parquet
    if args.csv or (suffix == ".csv" and not args.jsonl and args.width is None):
        from pyprof.prof.table.write_csv import write_csv

        return write_csv
    if args.jsonl or (suffix == ".jsonl" and args.width is None):
        from pyprof.prof.table.write_jsonl import write_jsonl

        return write_jsonl
    from pyprof.prof.table import write_plain

    width: int = args.width or 0
    return (lambda cells, out: write_plain.write_aligned(cells, out, width)) if width else write_plain.write_plain


def _suffix(output: str | None) -> str:
    name = (output or "").removesuffix(".gz")
    return next((suffix for suffix in FORMS if name.endswith(suffix)), "")


def _picked(table: Table, rows: Ints) -> str:
    duration = table.ints("kDuration")
    ns, whole = int(duration[rows].sum()), int(duration.sum())
    return f"--where chose {len(rows)} rows, {ns / 1e6:.3f} ms, {_percent(ns, whole)} of the time"


def summary(table: Table, annotation: Annotation) -> str:
    """One line: rows, time, the share of it that has an op, and the ops without a model by their share."""
    from pyprof.prof.json_document import totals
    from pyprof.table.attribution import AttributedTime

    found = totals(table, annotation)
    whole = found.time_ns
    words = f"{found.rows} rows; {AttributedTime.of(table).sentence()}"
    missed = [f"{_name(name)} {_percent(ns, whole)}" for name, ns in found.uncounted.items()]
    if not missed:
        return f"{words}; all counted"
    rest = f" and {len(missed) - NAMED} more" if len(missed) > NAMED else ""
    share = _percent(sum(found.uncounted.values()), whole)
    return f"{words}; not counted: {share}: {', '.join(missed[:NAMED])}{rest}"


def _name(name: str) -> str:
    """An op's name on a terminal."""
    from pyprof.command.terminal_text import cut_to, safe

    return cut_to(safe(name), 40, "middle") or "(no name)"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "0.0%"


def _names(text: str) -> list[str]:
    """Names of columns; whether they are any is the query's to say."""
    names = list(COLUMN) if text == "all" else text.split(",")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise argparse.ArgumentTypeError(f"{twice!r} is named twice")
    return names


def _sorts(text: str) -> list[Sort]:
    return [Sort(name.removeprefix("-"), name.startswith("-")) for name in text.split(",")]


def _condition(text: str) -> Where:
    try:
        return parse_where(text, COLUMN)
    except ConditionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, found {text!r}")
    return int(text)


def _width(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"expected a number of characters, found {text!r}")
    return int(text)


def _columns_help() -> str:
    width = max(len(name) for name in COLUMN)
    lines = [f"  {c.name:{width}}  {c.meaning}{f' ({c.unit})' if c.unit else ''}" for c in COLUMNS]
    examples = ["prof.py --csv -c idx,op,kernel,sil,flops net.dict", "prof.py --group op,dir -w 120 net.dict",
                "prof.py --where \"bound == 'memory'\" --top 20 -c layer,op,sil,gbps,sol -w 120 net.dict"]  # fmt: skip
    return "\n".join(["columns:", *lines, "", "examples:", *(f"  {example}" for example in examples)])
