"""What the commands that judge a kernel table begin with: its file read and annotated, and the GPU's measured peaks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyprof.prof.limits.devices import Peaks
    from pyprof.prof.load import Loaded
    from pyprof.prof.work.annotate import Annotation

__all__ = ["Judged", "add_peaks", "judged"]


class Judged(NamedTuple):
    loaded: Loaded
    annotation: Annotation
    peaks: Peaks | None  # None: not measured; the data sheet's hold


def add_peaks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peaks", metavar="FILE", help="peaks of the GPU as pyprof peaks writes them; without it, its "
                        "data sheet's")  # fmt: skip


def judged(args: argparse.Namespace) -> Judged:
    """By the options ``file``, ``peaks`` and ``quiet``; ``output`` with ``force`` is checked before minutes of work."""
    from pyprof.command.progress import progress
    from pyprof.files import check_output
    from pyprof.prof.limits.devices import load_peaks
    from pyprof.prof.load import load_table
    from pyprof.prof.work.annotate import annotate

    check_output(args.output, args.force)
    peaks = load_peaks(args.peaks) if args.peaks else None
    with progress(2, not args.quiet) as say:
        loaded = load_table(args.file, say)
        return Judged(loaded, annotate(loaded.table), peaks)
