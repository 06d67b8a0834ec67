"""The command parse.py: profiler file in, kernel table out."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pyprof.errors import PyprofError

if TYPE_CHECKING:
    from pyprof.table import Table


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="parse.py",
        description="Turn a profiler's file into the kernel table: one row a GPU operation, with op, layer, line, "
        "shapes and direction.",
        epilog="Reads nsys SQLite exports and torch.profiler (Kineto) JSON traces, gzipped or not.",
    )
    parser.add_argument("file", help="net.sqlite, net.json, or either as .gz")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write here, not to standard output: net.dict or net.parquet"
    )
    parser.add_argument("--force", action="store_true", help="overwrite the output file")
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary on standard error")
    return parser


def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    try:
        warnings, rows = _run(args.file, args.output, args.force)
    except PyprofError as error:
        print(f"parse.py: {error}", file=sys.stderr)
        return 1
    if not args.quiet:
        for line in [*(f"warning: {text}" for text in warnings), rows]:
            print(f"parse.py: {line}", file=sys.stderr)
    return 0


def _run(file: str, output: str | None, force: bool) -> tuple[list[str], str]:
    from pathlib import Path

    from pyprof.parse.correlate import correlate
    from pyprof.parse.detect import reader
    from pyprof.parquet import write_parquet
    from pyprof.netdict import write_netdict
    from pyprof.files import check_output, open_output

    check_output(output, force)  # before minutes of work
    capture = reader(Path(file))(Path(file))
    table = correlate(capture)
    if output and output.endswith(".parquet"):
        write_parquet(table, Path(output), force=force)
    else:
        with open_output(output, force=force) as out:
            write_netdict(table, out)
    return capture.warnings, summary(capture.profiler, table)


def summary(profiler: str, table: Table) -> str:
    """One line: what the capture holds and how much of its GPU time has an op."""
    import numpy as np

    kind, op = table.coded("kind"), table.coded("op")
    duration = table.ints("kDuration")
    counts = np.bincount(kind.codes, minlength=len(kind.values))
    words = ", ".join(f"{n} {_plural(name, n)}" for name, n in zip(kind.values, counts.tolist(), strict=True) if n)
    total = int(duration.sum())
    share = 100 * int(duration[op.codes >= 0].sum()) / total if total else 0.0
    return f"{profiler}: {words or 'no rows'}, {total / 1e6:.3f} ms, {share:.1f}% of it attributed to an op"


def _plural(kind: str, count: int) -> str:
    name = {"cpu": "CPU op", "memcpy": "copy", "graph": "opaque graph"}.get(kind, kind)
    return name if count == 1 else "copies" if name == "copy" else f"{name}s"
