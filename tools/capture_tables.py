"""Keep the tables in docs/ that have a row for each capture below PYPROF_DATA.

    PYPROF_DATA=FOLDER python tools/capture_tables.py [--write]

* docs/reference/formats.md: rows, how much of the GPU (or CPU) time is attributed to an op, and why the rest is not;
  for a file that is no capture, the message of parse.py.
* docs/explanation/accuracy.md: the share of GPU time whose FLOPs are known (or known to be none), whose bytes are, and
  the ops that most of the rest belongs to.

A table stands between two marks of its page: ``<!-- formats -->`` and ``<!-- /formats -->``. Without --write the tool
fails where a page has another table than the captures give.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyprof.errors import PyprofError
from pyprof.parse.attribute.contents import Contents
from pyprof.parse.detect import reader
from pyprof.parse.summary import counts
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.work.annotate import annotate
from pyprof.table.attribution import runs_on_cpu
from pyprof.table.columns import NULL, Table

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("nsys", "nvprof", "pyprof_golden", "kineto", "ncu")
LONGEST = 48  # characters of a public file's path
SMALL = 0.005  # of GPU time: an op below it is not named

Cells = tuple[str, ...]


@dataclass
class PageTable:
    page: str
    mark: str
    head: Cells
    row: Callable[[str, Table | PyprofError], Cells]  # of a file's name and what reading it gave; no cells: no row
    rows: list[Cells] = field(default_factory=list)

    def text(self) -> str:
        lines = [f"| {' | '.join(cells)} |" for cells in (self.head, *self.rows)]
        return "\n".join([lines[0], "|---" * len(self.head) + "|", *lines[1:]]) + "\n"

    def page_text(self) -> tuple[str, str]:
        """The page as it is, and with the table."""
        before = (ROOT / self.page).read_text(encoding="utf-8")
        between = re.compile(rf"(<!-- {self.mark} -->\n)(.*?)(<!-- /{self.mark} -->)", re.DOTALL)
        return before, between.sub(lambda match: match[1] + self.text() + match[3], before)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the tables of docs/ that come from the captures in PYPROF_DATA.")
    parser.add_argument("--write", action="store_true", help="write the tables into their pages")
    args = parser.parse_args(argv)
    folder = os.environ.get("PYPROF_DATA")
    if not folder or not Path(folder).is_dir():
        parser.error("PYPROF_DATA names no folder")
    tables = (
        PageTable(
            "docs/reference/formats.md",
            "formats",
            ("file", "rows", "time, ms", "attributed", "reason for the rest"),
            attribution_row,
        ),
        PageTable(
            "docs/explanation/accuracy.md",
            "shares",
            ("capture", "GPU time, ms", "FLOPs known", "bytes known", "most of the rest"),
            counted_row,
        ),
    )
    for file in captures(Path(folder)):
        table = parsed(file)
        for kept in tables:
            cells = kept.row(shown(file), table)
            kept.rows += [cells] if cells else []
    failed = 0
    for kept in tables:
        before, after = kept.page_text()
        if args.write:
            (ROOT / kept.page).write_text(after, encoding="utf-8")
        elif before != after:
            print(f"{kept.page}: the captures give another table: run {parser.prog} --write")
            failed = 1
    return failed


def captures(folder: Path) -> list[Path]:
    return [file for name in FOLDERS for file in sorted((folder / name).iterdir()) if file.is_file()]


def parsed(file: Path) -> Table | PyprofError:
    try:
        return correlate(reader(file)(file))
    except PyprofError as error:
        return PyprofError(str(error).removeprefix(f"{file}: "))


def shown(file: Path) -> str:
    """A capture's folder and name; of a public file the owner and the end of its path, without a date or hash."""
    name = file.name.removesuffix(".gz")
    owner, plus, rest = name.partition("+")
    if plus:
        parts = [re.sub(r"_[0-9a-f]{10}(?=\.)", "", part) for part in rest.split("__")[1:]]
        end = "/".join(parts[-2:])
        name = f"{owner}: {end}" if len(end) <= LONGEST else f"{owner}: ..{end[-LONGEST:]}"
    return f"{file.parent.name}/{name}"


def attribution_row(name: str, table: Table | PyprofError) -> Cells:
    if isinstance(table, PyprofError):
        return name, "none", "", "", f"refused: {table}"
    contents = Contents.of(table)
    time = contents.attribution
    if not time.total_ns:
        return name, "none", "", "", "refused: no GPU activity"
    rest = "; ".join(f"{time.percent(ns):.1f}% {reason}" for reason, ns in time.reasons.items())
    return name, counts(contents.kinds), f"{time.total_ns / 1e6:,.3f}", f"{time.attributed_percent:.1f}%", rest


def counted_row(name: str, table: Table | PyprofError) -> Cells:
    """No cells where the file is no capture of a GPU."""
    if isinstance(table, PyprofError) or runs_on_cpu(table.coded("kind")):
        return ()
    duration = table.ints("kDuration")
    total = int(duration.sum())
    if not total:
        return ()
    annotation = annotate(table)
    flops_known, bytes_known = annotation.flops != NULL, annotation.bytes != NULL
    uncounted: dict[str, int] = {}
    aten, kernel = table.coded("aten").texts(), table.coded("kShortName").texts()
    for row in np.flatnonzero(~(flops_known & bytes_known)).tolist():
        op = f"`{aten[row]}`" if aten[row] else f"no op: `{kernel[row][:40]}`"
        uncounted[op] = uncounted.get(op, 0) + int(duration[row])
    longest = sorted(uncounted.items(), key=lambda item: -item[1])[:3]
    named = "; ".join(f"{op} {percent(ns / total)}" for op, ns in longest if ns >= SMALL * total)
    known = (percent(float(duration[rows].sum() / total)) for rows in (flops_known, bytes_known))
    return name, f"{total / 1e6:,.3f}", *known, named


def percent(share: float) -> str:
    """Rounded down where it would look whole."""
    return "100%" if share == 1 else f"{min(99.9, 100 * share):.1f}%"


if __name__ == "__main__":
    sys.exit(main())
