"""Replay every capture and compare: the table of docs/explanation/replay.md.

    python tools/replay_captures.py [--write] [FILE or FOLDER ...]   (default: tests/golden and, if set, $PYPROF_DATA)

For each capture: its length and that of the replay, the step that differs most, and the GPU's idle time in both. A
capture is left out, with the reason, where work of the GPU has no launch in it (a slice of a longer run), where CUDA
graphs hide their kernels, where other processes used the GPU, or where it has no work of a GPU at all. Exit code 1 if a
replay differs by more than 3%.
--write puts the table into the page.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyprof.errors import PyprofError
from pyprof.prof.load import load_table
from pyprof.prof.replay.recorded_run import Work
from pyprof.prof.replay.replayed_run import replay
from pyprof.prof.timing.stragglers import meetings

ROOT = Path(__file__).resolve().parent.parent
NOT_CAPTURES = set(  # JSON files of the tests
    "measured measured_again pairs truth in_turns fbgemm_calls "
    "h200_advice h200_bench h200_truth h200_checkpointing".split()
)
# Recorded while other processes used the GPU (tests/golden/README.md): kernels begin up to 2 ms late where nothing of
# their own process runs.
SHARED = ("h200_callables_steps",)
PAGE = ROOT / "docs" / "explanation" / "replay.md"
TABLE = re.compile(r"(<!-- table: made by tools/replay_captures.py -->\n).*?(<!-- /table -->)", re.DOTALL)
SUFFIXES = (".sqlite", ".sqlite.gz", ".json", ".json.gz", ".sql", ".sql.gz", ".db", ".db.gz")
MOST, MOST_MS = 0.03, 0.02  # the largest difference, as a share; and of a step shorter than 0.7 ms, in ms


class Compared(NamedTuple):
    """A capture and its replay; times in ms."""

    name: str
    left_out: str = ""
    operations: int = 0
    recorded: float = 0.0
    replayed: float = 0.0
    worst_step: float = 0.0  # the largest difference of a step, as a share of the step or of 0.7 ms
    idle_recorded: float = 0.0
    idle_replayed: float = 0.0

    @property
    def difference(self) -> float:
        return self.replayed / self.recorded - 1 if self.recorded else 0.0

    @property
    def is_near(self) -> bool:
        return max(abs(self.difference), self.worst_step) <= MOST


def captures(names: Sequence[Path]) -> Iterator[Path]:
    """The captures in files and folders, but those that are hostile or no timelines."""
    for name in names:
        for file in sorted(name.rglob("*")) if name.is_dir() else [name]:
            is_other = {"hostile", "nsys_stats"} & set(file.parts) or file.stem in NOT_CAPTURES
            is_other = is_other or file.parent.suffix == ".pyprof"  # a part of a container
            if file.name.endswith(SUFFIXES) and not is_other:
                yield file


def compared(file: Path) -> Compared:
    """Replay a file."""
    owner = f"{file.name.partition('+')[0]}, " if "+" in file.name else ""
    name = f"{file.parent.name}: {owner}{file.name.split('__')[-1]}"
    try:
        loaded = load_table(file, host=True)
        if loaded.host is None:
            return Compared(name, "the format has no calls")
        found = replay(loaded.table, loaded.host, str(file), meetings(loaded.table))
    except PyprofError as error:
        return Compared(name, str(error).partition(": ")[2].partition(" (")[0])
    idle = found.idle_ns()
    shortest = round(MOST_MS / MOST * 1e6)
    steps = (abs(step.replayed_ns - step.recorded_ns) / max(step.recorded_ns, shortest) for step in found.steps())
    worst = max(steps, default=0.0)
    return Compared(
        name,
        _why_not(file, _launched(found.run.work), loaded.table.coded("kind").among("graph").any()),
        len(found.run.work),
        found.recorded_ns / 1e6,
        found.replayed_ns / 1e6,
        worst,
        idle[0] / 1e6,
        idle[1] / 1e6,
    )


def _launched(work: Work) -> float:
    """The share of the GPU's time, in steps and outside of them, whose launch is in the capture."""
    time = work.end - work.start
    return float(time[work.call >= 0].sum()) / max(float(time.sum()), 1.0)


def _why_not(file: Path, launched: float, opaque: object) -> str:
    if file.name.startswith(SHARED):
        return "other processes used the GPU"
    if opaque:
        return "opaque graphs"
    return f"cut: {1 - launched:.1%} of the GPU's time has no launch" if launched < 0.99 else ""


def lines(found: Sequence[Compared]) -> Iterator[str]:
    """The table in Markdown: the captures that count, then those that are left out."""
    yield "| capture | operations | capture, ms | replay, ms | difference | worst step | idle, ms | replay's idle, ms |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for each in (each for each in found if not each.left_out):
        numbers = f"{each.recorded:,.2f} | {each.replayed:,.2f} | {each.difference:+.2%} | {each.worst_step:.2%}"
        idle = f"{each.idle_recorded:,.2f} | {each.idle_replayed:,.2f}"
        yield f"| {each.name} | {each.operations:,} | {numbers} | {idle} |"
    yield ""
    yield "| left out | reason | difference all the same |"
    yield "|---|---|--:|"
    for each in (each for each in found if each.left_out):
        yield f"| {each.name} | {each.left_out} | {f'{each.difference:+.2%}' if each.recorded else ''} |"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", type=Path, metavar="FILE or FOLDER")
    parser.add_argument("--write", action="store_true", help="put the table into docs/explanation/replay.md")
    args = parser.parse_args(argv)
    data = os.environ.get("PYPROF_DATA")
    names = args.names or [ROOT / "tests" / "golden", *([Path(data)] if data else [])]
    found = [compared(file) for file in captures(names)]
    table = "".join(f"{line}\n" for line in [*lines(found), "", total(found)])
    if args.write:
        PAGE.write_text(TABLE.sub(lambda match: f"{match[1]}{table}{match[2]}", PAGE.read_text("utf-8")), "utf-8")
    print(table, end="")
    return 1 if any(not each.left_out and not each.is_near for each in found) else 0


def total(found: Sequence[Compared]) -> str:
    wrong = [each for each in found if not each.left_out and not each.is_near]
    counted = sum(not each.left_out for each in found)
    most = f"{len(wrong)} differ by more than {MOST:.0%}"
    return f"{counted} captures are replayed, of which {most}; {len(found) - counted} files are left out."


if __name__ == "__main__":
    sys.exit(main())
