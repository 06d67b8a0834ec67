"""The tables in docs/ that are made of every capture below PYPROF_DATA: a row a file, between two marks of a page.

A page has ``<!-- formats -->`` before its table and ``<!-- /formats -->`` after it.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("nsys", "nvprof", "pyprof_golden", "kineto", "ncu")
LONGEST = 48  # characters of a public file's path

Cells = tuple[str, ...]


def keep(page: str, mark: str, head: Cells, row: Callable[[Path], Cells], argv: list[str] | None = None) -> int:
    """The main function of a tool that keeps such a table: with --write it writes it, without it fails (1) where the
    page has another one. ``row`` gives a file's cells, or none."""
    parser = argparse.ArgumentParser(description=f"Make the table of {page} out of the captures below PYPROF_DATA.")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    args = parser.parse_args(argv)
    folder = os.environ.get("PYPROF_DATA")
    if not folder or not Path(folder).is_dir():
        parser.error("PYPROF_DATA names no folder")
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = [cells for file in captures(Path(folder)) if (cells := row(file))]
    new = re.sub(rf"(<!-- {mark} -->\n)(.*?)(<!-- /{mark} -->)", lambda found: found[1] + table(head, rows) + found[3],
                 text, flags=re.DOTALL)  # fmt: skip
    if args.write:
        (ROOT / page).write_text(new, encoding="utf-8")
    elif new != text:
        print(f"{page}: the captures give another table: run {parser.prog} --write")
        return 1
    return 0


def table(head: Cells, rows: Iterable[Cells]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) + "\n"


def captures(folder: Path) -> list[Path]:
    return [file for name in FOLDERS for file in sorted((folder / name).iterdir()) if file.is_file()]


def shown(file: Path) -> str:
    """A capture's folder and name; of a public file the owner and the end of its path, without a date or hash."""
    name = file.name.removesuffix(".gz")
    owner, plus, rest = name.partition("+")
    parts = [re.sub(r"_[0-9a-f]{10}(?=\.)", "", part) for part in rest.split("__")[1:]]
    last = "/".join(parts[-2:])
    short = f"{owner}: {last}" if plus and len(last) <= LONGEST else f"{owner}: ..{last[-LONGEST:]}" if plus else name
    return f"{file.parent.name}/{short}"
