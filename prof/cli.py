"""The command prof.py: annotates a kernel table, or prints a summary, advice, or the origin of a row's numbers."""

import argparse
import sys

from pyprof.command.argument_types import parsed, whole_number
from pyprof.command.frame import Done, run_command
from pyprof.command.parser import LinesAsWritten, Parser, add_common, add_forms
from pyprof.errors import UsageError
from pyprof.gc_pause import uncollected
from pyprof.prof.load import add_counters, add_input
from pyprof.prof.table.columns import COLUMN, COLUMNS, DEFAULT
from pyprof.prof.table.group import AGGREGATES
from pyprof.prof.table.query import Sort
from pyprof.prof.table.where import parse_where


def build_parser() -> Parser:
    parser = Parser(
        prog="prof.py",
        description="Annotate the kernel table: FLOPs, bytes, tensor cores, op, layer and direction of every kernel.\n"
        "On a terminal, without an option that chooses rows, columns or a form: the summary.",
        epilog=_columns_help(),
        formatter_class=LinesAsWritten,
    )
    add_input(parser, nargs="?")
    others = "further captures, of the other processes of a job: all make one table, whose column rank says which"
    parser.add_argument("others", nargs="*", metavar="file", help=others)
    add_counters(parser)
    _add_query(parser)
    _add_forms(parser)
    _add_answers(parser)
    output = "write here, not to standard output; net.csv, net.json, net.jsonl and net.parquet choose the form"
    parser.add_argument("-o", "--output", metavar="FILE", help=output)
    add_common(parser, writes="file")
    return parser


def _add_query(parser: argparse.ArgumentParser) -> None:
    rows = parser.add_argument_group("rows and columns")
    columns = f"the columns to print, in this order, or all (default: {DEFAULT}; with --ncu counters, too)"
    rows.add_argument("-c", metavar="COLUMNS", dest="columns", type=parsed(_names), help=columns)
    where = (
        "only rows of which this is true: \"op == 'linear' and dir == 'bprop'\", \"kernel like '*gemm*'\", "
        "\"sil > 1e6 and tc in (0, '?')\""
    )
    rows.add_argument("--where", metavar="COND", type=parsed(lambda text: parse_where(text, COLUMN)), help=where)
    group = (
        "one line for all rows that agree in these columns (op,dir; layer; kernel; phase; args), with "
        f"{', '.join(column.name for column in AGGREGATES)}; longest first"
    )
    rows.add_argument("--group", metavar="COLUMNS", type=parsed(_names), help=group)
    sort = "by these columns, -COLUMN descending: --sort -sil; unknown last (default: the input's order)"
    rows.add_argument("--sort", metavar="COLUMNS", type=_sorts, help=sort)
    positive = whole_number()
    rows.add_argument("--top", metavar="N", type=positive, help="the first N lines; without --sort the longest N")
    rows.add_argument("--layer-depth", metavar="N", type=positive, help="the outermost N parts of layers")


def _add_forms(parser: argparse.ArgumentParser) -> None:
    width = (
        "aligned columns, cut to N characters per line (without a form: a terminal's width; in a pipe, groups are "
        "aligned and whole); -w 0, and rows in a pipe: fields separated by a blank, for awk: blanks in them are _, "
        "empty ones -; texts are wrapped"
    )
    forms = add_forms(parser.add_argument_group("form"), 0, width)
    forms.add_argument("--csv", action="store_true", help="comma-separated, every field quoted, unknown empty")
    forms.add_argument("--jsonl", action="store_true", help="JSON lines: one object per row, unknown null")


def _add_answers(parser: argparse.ArgumentParser) -> None:
    answers = parser.add_argument_group("in place of the table")
    summary = "where the time went, in sentences and tables; with -w N for that width"
    answers.add_argument("--summary", action="store_true", help=summary)
    advise = "what to change, where, and the ms that it saves per step; with -w N for that width"
    answers.add_argument("--advise", action="store_true", help=advise)
    timings = "with --advise: measured durations, as pyprof plan --measure --timings FILE writes them"
    answers.add_argument("--timings", metavar="FILE", help=timings)
    explain = "where each number of row ROW (its idx) comes from"
    answers.add_argument("--explain", metavar="ROW", type=whole_number(), help=explain)


def main(argv: list[str] | None = None) -> int:
    words = _sort_joined(sys.argv[1:] if argv is None else argv)
    return run_command("prof.py", build_parser, _run, words)


def _sort_joined(words: list[str]) -> list[str]:
    """Rewrite ``--sort -sil`` as ``--sort=-sil``, because argparse would take -sil for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "--sort" and word.startswith("-"):
            joined[-1] = f"--sort={word}"
        else:
            joined.append(word)
    return joined


@uncollected()  # the collector would look at every object of all modules several times
def _run(args: argparse.Namespace) -> Done:
    """Do what the given options ask for. Without options, on a terminal, it prints the summary."""
    if args.csv or args.json or args.jsonl:
        args.width = None  # these forms have no width
    if args.file is None and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("no file: give net.dict or net.parquet, or a net.dict on standard input")
    options_of_table = {
        "-c": args.columns,
        "--where": args.where,
        "--group": args.group,
        "--sort": args.sort,
        "--top": args.top,
        "--layer-depth": args.layer_depth,
        "--csv": args.csv,
        "--jsonl": args.jsonl,
    }
    given = [option for option, value in options_of_table.items() if value]
    answers = {"--summary": args.summary, "--advise": args.advise, "--explain": args.explain}
    answer, *others = [*(option for option, value in answers.items() if value), *given] or [""]
    if answer in answers and others:
        raise UsageError(f"argument {answer}: it takes the table's place, and does not go with {others[0]}")
    if args.timings and not args.advise:
        raise UsageError("--timings goes with --advise")
    from pyprof.prof import print_answers, print_table

    print_table.check_output_name(args)
    no_form = not given and args.output is None and args.width is None and not args.json
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    if args.summary or (not answer and no_form and on_terminal):
        return print_answers.print_summary(args)
    if args.advise:
        return print_answers.print_advice(args)
    return print_answers.print_explanation(args) if args.explain else print_table.print_table(args)


def _names(text: str) -> list[str]:
    """Names of columns; the query checks that there are such columns. Raises ValueError for a name that comes twice."""
    names = list(COLUMN) if text == "all" else text.split(",")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is named twice")
    return names


def _sorts(text: str) -> list[Sort]:
    return [Sort(name.removeprefix("-"), name.startswith("-")) for name in text.split(",")]


def _columns_help() -> str:
    width = max(len(name) for name in COLUMN)
    lines = [f"  {c.name:{width}}  {c.meaning}{f' ({c.unit})' if c.unit else ''}" for c in COLUMNS]
    examples = [
        "prof.py --csv -c idx,op,kernel,sil,flops net.dict",
        "prof.py --group op,dir -w 120 net.dict",
        'prof.py --ncu report.csv --where "bytes_ratio > 2" -c layer,op,kernel,sil,dram,bytes -w 120 net.dict',
        "prof.py --where \"bound == 'memory'\" --top 20 -c layer,op,sil,gbps,sol -w 120 net.dict",
    ]
    return "\n".join(["columns:", *lines, "", "examples:", *(f"  {example}" for example in examples)])
