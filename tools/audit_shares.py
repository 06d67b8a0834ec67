"""The shares of each capture's step, against those that other code finds in the raw file (tools/raw_verdict.py).

    python tools/audit_shares.py [FILE or FOLDER ...]   (default: tests/golden and, if set, $PYPROF_DATA)

Compared are captures whose steps are marked, or begin at a DataLoader's call, and of whose time nothing is withheld.
Both are of the time from where the GPU reaches the first mark to where it reaches the last one. Exit code 1 if more
than a tenth of the captures differ by more than 10 points.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyprof.errors import PyprofError
from pyprof.prof.load import load_table
from pyprof.prof.step.run_step import run_step
from pyprof.prof.work.annotate import annotate
from tools.raw_verdict import verdicts
from tools.replay_captures import captures

ROOT = Path(__file__).resolve().parent.parent
POINTS = 10.0
LARGEST = 60_000_000  # bytes of a file that the plain reader takes whole
KINDS = {  # pyprof's word -> those of the raw verdict
    "gpu": ("gpu",),
    "communication": ("communication",),
    "data": ("loader",),
    "sync": ("wait", "after_wait"),
    "latency": ("launched_not_started",),
    "host": ("not_launched", "free"),
    "unknown": ("call_not_recorded",),
}


class Shares(NamedTuple):
    """The shares of a capture's step, in %, by cause: pyprof's, and those of the raw file."""

    file: Path
    ours: dict[str, float]
    raw: dict[str, float]

    @property
    def points(self) -> float:
        """The largest difference of a cause."""
        return max(abs(self.ours[cause] - self.raw[cause]) for cause in KINDS)

    def __str__(self) -> str:
        parts = [f"{cause} {self.ours[cause]:.1f} and {self.raw[cause]:.1f}%" for cause in KINDS if self._says(cause)]
        return f"{self.file}: {self.points:.1f} points; pyprof and the raw file: {', '.join(parts)}"

    def _says(self, cause: str) -> bool:
        return max(self.ours[cause], self.raw[cause]) > 1


def shares(file: Path) -> Shares | None:
    """Those of a file; None if it is refused, or if the two cannot be compared."""
    if file.stat().st_size > LARGEST:
        return None
    try:
        table = load_table(file).table
        step = run_step(table, annotate(table))
    except PyprofError:
        return None
    if step is None or step.begins == "operation" or not step.devices:
        return None
    found = [each["ms_per_step"] for each in verdicts(file, paced=True)["gpus"] if each["device"] != "None"]
    if not found:
        return None
    raw = {cause: sum(each[name] for each in found for name in names) for cause, names in KINDS.items()}
    ours = {share.cause: 100 * share.captured_ns / step.captured_ns for share in step.shares}
    return Shares(file, ours, {cause: 100 * ms / sum(raw.values()) for cause, ms in raw.items()})


def compared(names: Sequence[Path]) -> Iterator[Shares]:
    """The captures in files and folders that can be compared."""
    return (found for file in captures(names) if (found := shares(file)) is not None)


def main(argv: Sequence[str] = tuple(sys.argv[1:])) -> int:
    data = os.environ.get("PYPROF_DATA")
    names = [Path(name) for name in argv] or [ROOT / "tests" / "golden", *([Path(data)] if data else [])]
    found = list(compared(names))
    wrong = [each for each in found if each.points > POINTS]
    for each in wrong:
        print(each)
    print(f"{len(found) - len(wrong)} of {len(found)} captures within {POINTS:.0f} points.")
    return int(len(wrong) > len(found) / 10)


if __name__ == "__main__":
    sys.exit(main())
