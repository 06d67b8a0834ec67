"""Parse every capture of a folder, and keep the table of docs/formats.md.

    PYPROF_DATA=FOLDER python tools/formats.py [--write]

One row a file: rows, how much of the GPU (or CPU) time has an op, and why the rest has none; for a file that is no
capture, what parse.py says. Without --write it fails where the page says something else.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from pyprof.errors import PyprofError
from pyprof.parse.correlate import correlate
from pyprof.parse.detect import reader
from pyprof.parse.summary import attribution, counts

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "formats.md"
TABLE = re.compile(r"(<!-- formats -->\n)(.*?)(<!-- /formats -->)", re.DOTALL)
FOLDERS = ("nsys", "nvprof", "pyprof_golden", "kineto", "ncu")
LONGEST = 48  # characters of a public file's path


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Parse every capture below PYPROF_DATA for docs/formats.md.")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    args = parser.parse_args(argv)
    folder = os.environ.get("PYPROF_DATA")
    if not folder or not Path(folder).is_dir():
        parser.error("PYPROF_DATA names no folder")
    text = PAGE.read_text(encoding="utf-8")
    new = TABLE.sub(lambda match: match[1] + table(Path(folder)) + match[3], text)
    if args.write:
        PAGE.write_text(new, encoding="utf-8")
    elif new != text:
        print(f"{PAGE.relative_to(ROOT)}: the captures give another table: run tools/formats.py --write")
        return 1
    return 0


def table(folder: Path) -> str:
    lines = ["| file | rows | time, ms | attributed | reason for the rest |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(row(file))} |" for file in captures(folder)]
    return "\n".join(lines) + "\n"


def captures(folder: Path) -> list[Path]:
    return [file for name in FOLDERS for file in sorted((folder / name).iterdir()) if file.is_file()]


def row(file: Path) -> tuple[str, ...]:
    """The cells of a file."""
    name = f"{file.parent.name}/{shortened(file.name)}"
    try:
        found = correlate(reader(file)(file))
    except PyprofError as error:
        return name, "none", "", "", f"refused: {str(error).removeprefix(f'{file}: ')}"
    told = attribution(found)
    if told.share is None:
        return name, "none", "", "", "refused: no GPU activity"
    rest = "; ".join(f"{100 * ns / told.total_ns:.1f}% {reason}" for reason, ns in told.reasons.items())
    return name, counts(found), f"{told.total_ns / 1e6:,.3f}", f"{told.share:.1f}%", rest


def shortened(name: str) -> str:
    """A public file's owner and the end of its path; a date or hash in the name is no matter."""
    name = name.removesuffix(".gz")
    owner, plus, rest = name.partition("+")
    parts = [re.sub(r"_[0-9a-f]{10}(?=\.)", "", part) for part in rest.split("__")[1:]]
    last = "/".join(parts[-2:])
    return f"{owner}: {last}" if plus and len(last) <= LONGEST else f"{owner}: ..{last[-LONGEST:]}" if plus else name


if __name__ == "__main__":
    sys.exit(main())
