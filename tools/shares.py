"""Annotate every capture of a folder, and keep the table of docs/explanation/accuracy.md.

    PYPROF_DATA=FOLDER python tools/shares.py [--write]

How much of GPU time is counted. One row per file: the share of GPU time whose FLOPs are known (or known to be none),
whose bytes are, and the ops that most of the rest belongs to. Without --write it fails where the page says something
else.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from capture_tables import Cells, keep, shown

from pyprof.errors import PyprofError
from pyprof.parse.attribute.correlate import correlate
from pyprof.parse.detect import reader
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Table

HEAD = ("capture", "GPU time, ms", "FLOPs known", "bytes known", "most of the rest")
SMALL = 0.005  # of GPU time: an op below it is not named


def main(argv: list[str] | None = None) -> int:
    return keep("docs/explanation/accuracy.md", "shares", HEAD, row, argv)


def row(file: Path) -> Cells:
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
    return shown(file), f"{total / 1e6:,.3f}", percent(flops), percent(nbytes), named


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
