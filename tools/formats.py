"""Parse every capture of a folder, and keep the table of docs/reference/formats.md.

    PYPROF_DATA=FOLDER python tools/formats.py [--write]

One row a file: rows, how much of the GPU (or CPU) time has an op, and why the rest has none; for a file that is no
capture, what parse.py says. Without --write it fails where the page says something else.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from capture_tables import Cells, keep, shown

from pyprof.errors import PyprofError
from pyprof.parse.attribute.contents import Contents
from pyprof.parse.attribute.correlate import correlate
from pyprof.parse.detect import reader
from pyprof.parse.summary import counts

HEAD = ("file", "rows", "time, ms", "attributed", "reason for the rest")


def main(argv: list[str] | None = None) -> int:
    return keep("docs/reference/formats.md", "formats", HEAD, row, argv)


def row(file: Path) -> Cells:
    """The cells of a file."""
    name = shown(file)
    try:
        table = correlate(reader(file)(file))
    except PyprofError as error:
        return name, "none", "", "", f"refused: {str(error).removeprefix(f'{file}: ')}"
    contents = Contents.of(table)
    time = contents.attribution
    if not time.total_ns:
        return name, "none", "", "", "refused: no GPU activity"
    rest = "; ".join(f"{time.percent(ns):.1f}% {reason}" for reason, ns in time.reasons.items())
    return name, counts(contents.kinds), f"{time.total_ns / 1e6:,.3f}", f"{time.attributed_percent:.1f}%", rest


if __name__ == "__main__":
    sys.exit(main())
