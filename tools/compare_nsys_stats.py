"""Compare pyprof stats with the real nsys stats on an nsys SQLite export, report by report and row by row.

    python tools/compare_nsys_stats.py [--nsys COMMAND] [--report NAME[,NAME]] [--show N] FILE

Runs `nsys stats --report NAME --format csv FILE` for each report and prints the rows that only one of the two has.
Exit 0: all equal; 1: some differ, or nsys failed; 2: wrong usage, or there is no nsys. Another order of the rows is
told but is no difference. nsys puts a text with commas in quotes without doubling those inside, which no csv reader can
undo: what is compared are the lines without any quotes, between commas.
"""

import argparse
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyprof.errors import PyprofError
from pyprof.parse.stats import layout
from pyprof.parse.stats.recording import Recording, recording
from pyprof.parse.stats.reports import REPORTS, Wanted, wanted

Row = tuple[str, ...]


def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    nsys = shlex.split(args.nsys)
    try:
        with recording(Path(args.file)) as found:
            differing = [
                report.name for report in args.report if not compare(nsys, args.file, report, found, args.show)
            ]
    except PyprofError as error:
        print(f"compare_nsys_stats.py: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # the command is not there or may not be run
        print(f"compare_nsys_stats.py: {args.nsys}: {error.strerror}: name it with --nsys", file=sys.stderr)
        return 2
    print(f"differ: {', '.join(differing)}" if differing else f"all {len(args.report)} reports are equal")
    return 1 if differing else 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compare pyprof stats with the real nsys stats, row by row.")
    parser.add_argument("file", help="an nsys SQLite export, not gzipped")
    parser.add_argument(
        "--nsys", metavar="COMMAND", default="nsys", help="the nsys command, with words before it if any"
    )
    parser.add_argument("--report", metavar="NAME[,NAME]", type=_reports, default=everything(),
                        help="which reports (without: all, and their variants)")  # fmt: skip
    parser.add_argument("--show", metavar="N", type=int, default=5, help="rows to print of each side (without: 5)")
    return parser


def everything() -> list[Wanted]:
    """Every report, and every variant of it."""
    return [Wanted(report, variant) for report in REPORTS for variant in ("", *report.variants)]


def _reports(text: str) -> list[Wanted]:
    try:
        return [wanted(name) for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def compare(nsys: Sequence[str], file: str, report: Wanted, found: Recording, show: int) -> bool:
    """Print what differs in one report; whether nothing does."""
    command = [*nsys, "stats", "--report", report.name, "--format", "csv", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    theirs = table(done.stdout, report.report.columns)
    if theirs is None and done.returncode and "SKIPPED" not in done.stdout + done.stderr:
        print(f"{report.name}: nsys (exit {done.returncode}) printed no table: {last_line(done.stderr or done.stdout)}")
        return False
    ours = table("".join(layout.comma_separated([(report, report.rows(found))])), report.report.columns)
    return tell(report.name, theirs or [], ours or [], show)


def table(text: str, columns: Sequence[str]) -> list[Row] | None:
    """Header and rows of the csv in an output that has other lines before it; None where there is no csv."""
    lines = [cells(line) for line in text.splitlines() if line.strip()]
    for number, header in enumerate(lines):
        if 2 * len(set(header) & set(columns)) >= len(columns):
            return lines[number:]
    return None


def cells(line: str) -> Row:
    """What is between a line's commas, those inside texts too, without quotes and the blanks that align."""
    return tuple("" if cell == "None" else " ".join(cell.split()) for cell in line.replace('"', "").split(","))


def tell(name: str, theirs: list[Row], ours: list[Row], show: int) -> bool:
    """Print the difference of two tables; whether there is none."""
    if theirs and ours and theirs[0] != ours[0]:
        print(f"{name}: the columns differ\n  nsys: {', '.join(theirs[0])}\n  ours: {', '.join(ours[0])}")
        return False
    first, second = Counter(theirs[1:]), Counter(ours[1:])
    if first == second:
        print(f"{name}: {first.total()} rows are equal{'' if theirs[1:] == ours[1:] else ', in another order'}")
        return True
    print(f"{name}: {first.total()} rows of nsys, {second.total()} of ours")
    for owner, rows in (("nsys", first - second), ("ours", second - first)):
        print(f"  only {owner}: {rows.total()}")
        for row in list(rows.elements())[:show]:
            print(f"    {' | '.join(row)}")
    return False


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["nothing"])[-1]


if __name__ == "__main__":
    sys.exit(main())
