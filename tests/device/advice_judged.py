"""Predictions of the advice beside what its changes brought: python tests/device/advice_judged.py FOLDER

FOLDER is advice_measured.py's. Needs no GPU and no torch: predictions come from the captures, measured times stay.
"""

import json
import sys
from pathlib import Path

from pyprof.prof.changes.find_changes import find_changes
from pyprof.prof.changes.records import Change
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate


def changes(path: Path) -> list[Change]:
    loaded = load_table(path, host=True)
    return find_changes(loaded.table, annotate(loaded.table), loaded.host).document.changes


def main() -> None:
    folder = Path(sys.argv[1])
    rows = [row for path in sorted(folder.glob("times-*.json")) for row in json.loads(path.read_text())]
    for row in rows:
        if "error" in row:
            print(f"{row['case']:28} {row['error'][:80]}")
            continue
        found = {state: changes(folder / f"{row['case']}.{state}.json.gz") for state in ("before", "after")}
        before, after = row["before"]["row_ms"], row["after"]["row_ms"]
        predicted = sum(change.saved_ms or 0.0 for change in found["before"] if change.rule == row["rule"])
        ratio = f"{predicted / (before - after):8.2f}" if before > after else "       -"
        print(f"{row['case']:28} {row['rule']:18} {before:8.3f} {after:8.3f} {predicted:8.3f} {before - after:8.3f}"
              f"{ratio}  python {row['before']['python_ms']:.2f} {row['after']['python_ms']:.2f}")  # fmt: skip
        for state in ("before", "after"):
            said = [f"{change.rule} {change.saved_ms or change.gpu_ms:.3f}" for change in found[state]]
            print(f"{'':10} {state}: {', '.join(said)}")


if __name__ == "__main__":
    main()
