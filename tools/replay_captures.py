"""Replay every capture and compare: the table of docs/explanation/replay.md.

    python tools/replay_captures.py [FILE or FOLDER ...]      (default: tests/golden, and $PYPROF_DATA if it is set)

For each capture: its length and that of the replay, the step that differs most, and the GPU's idle time in both. A
capture is left out, with the reason, where work of the GPU has no launch in it (a slice of a longer run), where CUDA
graphs hide their kernels, or where it has no work of a GPU at all. Exit code 1 if a replay differs by more than 3%.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyprof.errors import PyprofError
from pyprof.prof.load import load_table
from pyprof.prof.replay.replayed_run import replay
from pyprof.prof.simulation.cli import meetings

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (".sqlite", ".sqlite.gz", ".json", ".json.gz", ".sql", ".sql.gz", ".db", ".db.gz")
MOST = 0.03  # the largest difference


class Compared(NamedTuple):
    """A capture and its replay; times in ms."""

    name: str
    left_out: str = ""
    operations: int = 0
    recorded: float = 0.0
    replayed: float = 0.0
    worst_step: float = 0.0  # the step's difference that is largest, as a share of the step
    idle_recorded: float = 0.0
    idle_replayed: float = 0.0

    @property
    def difference(self) -> float:
        return self.replayed / self.recorded - 1 if self.recorded else 0.0

    @property
    def is_near(self) -> bool:
        return max(abs(self.difference), abs(self.worst_step)) <= MOST


def captures(names: Sequence[Path]) -> Iterator[Path]:
    """The captures in files and folders, but those that are hostile or no timelines."""
    for name in names:
        for file in sorted(name.rglob("*")) if name.is_dir() else [name]:
            if file.name.endswith(SUFFIXES) and not {"hostile", "nsys_stats"} & set(file.parts):
                yield file


def compared(file: Path) -> Compared:
    """Replay a file."""
    name = file.name.split("__")[-1] if "+" in file.name else file.name
    try:
        loaded = load_table(file, host=True)
        if loaded.host is None:
            return Compared(name, "the format has no calls")
        found = replay(loaded.table, loaded.host, str(file), meetings(loaded.table))
    except PyprofError as error:
        return Compared(name, str(error).partition(": ")[2].partition(" (")[0])
    idle = found.idle_ns()
    worst = max((s.replayed_ns / s.recorded_ns - 1 for s in found.steps() if s.recorded_ns), key=abs, default=0.0)
    return Compared(
        name,
        _why_not(found.launched_share, loaded.table.coded("kind").among("graph").any()),
        len(found.run.work),
        found.recorded_ns / 1e6,
        found.replayed_ns / 1e6,
        worst,
        idle[0] / 1e6,
        idle[1] / 1e6,
    )


def _why_not(launched: float, opaque: object) -> str:
    if opaque:
        return "opaque graphs"
    return f"cut: {1 - launched:.1%} of the GPU's time has no launch" if launched < 0.99 else ""


def lines(found: Sequence[Compared]) -> Iterator[str]:
    """The table in Markdown: the captures that count, then those that are left out."""
    yield "| capture | operations | capture, ms | replay, ms | difference | worst step | idle, ms | idle in the replay |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for each in (each for each in found if not each.left_out):
        numbers = f"{each.recorded:,.2f} | {each.replayed:,.2f} | {each.difference:+.2%} | {each.worst_step:+.2%}"
        yield f"| {each.name} | {each.operations:,} | {numbers} | {each.idle_recorded:,.2f} | {each.idle_replayed:,.2f} |"
    yield ""
    yield "| left out | reason | difference all the same |"
    yield "|---|---|--:|"
    for each in (each for each in found if each.left_out):
        yield f"| {each.name} | {each.left_out} | {f'{each.difference:+.2%}' if each.recorded else ''} |"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", type=Path, metavar="FILE or FOLDER")
    given = parser.parse_args(argv).names
    data = os.environ.get("PYPROF_DATA")
    found = [compared(file) for file in captures(given or [ROOT / "tests" / "golden", *([Path(data)] if data else [])])]
    for line in lines(found):
        print(line)
    wrong = [each for each in found if not each.left_out and not each.is_near]
    counted = sum(not each.left_out for each in found)
    print(f"\n{counted} captures replayed, {len(wrong)} differ by more than {MOST:.0%}; {len(found) - counted} left out")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
