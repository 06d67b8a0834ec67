"""Annotate every capture of a folder, and keep the table of docs/accuracy.md: how much of GPU time is counted.

    PYPROF_DATA=FOLDER python tools/shares.py [--write]

One row a file: the share of GPU time whose FLOPs are known (or known to be none), whose bytes are, and the ops that
most of the rest belongs to. Without --write it fails where the page says something else.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from formats import captures, shortened  # noqa: E402

from pyprof.errors import PyprofError  # noqa: E402
from pyprof.parse.correlate import correlate  # noqa: E402
from pyprof.parse.detect import reader  # noqa: E402
from pyprof.prof.annotate import annotate  # noqa: E402
from pyprof.table import NULL, Table  # noqa: E402

PAGE = ROOT / "docs" / "accuracy.md"
TABLE = re.compile(r"(<!-- shares -->\n)(.*?)(<!-- /shares -->)", re.DOTALL)
SMALL = 0.005  # of GPU time: an op below it is not named


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Annotate every capture below PYPROF_DATA for docs/accuracy.md.")
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
        print(f"{PAGE.relative_to(ROOT)}: the captures give another table: run tools/shares.py --write")
        return 1
    return 0


def table(folder: Path) -> str:
    lines = ["| capture | GPU time, ms | FLOPs known | bytes known | most of the rest |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(cells)} |" for file in captures(folder) if (cells := row(file))]
    return "\n".join(lines) + "\n"


def row(file: Path) -> tuple[str, ...]:
    """The cells of a file; none where it is no capture of a GPU."""
    try:
        found = correlate(reader(file)(file))
    except PyprofError:
        return ()
    told = shares(found)
    if told is None:
        return ()
    total, flops, nbytes, rest = told
    named = "; ".join(f"{name} {percent(share)}" for name, share in rest.items() if share >= SMALL)
    return f"{file.parent.name}/{shortened(file.name)}", f"{total / 1e6:,.3f}", percent(flops), percent(nbytes), named


def shares(found: Table) -> tuple[int, float, float, dict[str, float]] | None:
    """(ns on the GPU, share with FLOPs, share with bytes, shares of the ops and kernels without one of them)."""
    on_gpu = np.array([kind != "cpu" for kind in found.coded("kind").texts()], bool)
    ns = np.where(on_gpu, found.ints("kDuration"), 0)
    total = int(ns.sum())
    if not total:
        return None
    notes = annotate(found)
    known = notes.flops != NULL, notes.bytes != NULL
    left: dict[str, int] = {}
    aten, name = found.coded("aten").texts(), found.coded("kShortName").texts()
    for i in np.flatnonzero(~(known[0] & known[1])).tolist():
        what = f"`{aten[i]}`" if aten[i] else f"no op: `{name[i][:40]}`"
        left[what] = left.get(what, 0) + int(ns[i])
    rest = {what: part / total for what, part in sorted(left.items(), key=lambda item: -item[1])[:3]}
    return total, float(ns[known[0]].sum() / total), float(ns[known[1]].sum() / total), rest


def percent(share: float) -> str:
    """Rounded down where it would look whole."""
    return "100%" if share == 1 else f"{min(99.9, 100 * share):.1f}%"


if __name__ == "__main__":
    sys.exit(main())
