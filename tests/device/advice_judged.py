"""Predictions of the advice beside what its changes brought: python tests/device/advice_judged.py FOLDER

FOLDER is advice_measured.py's. Needs no GPU and no torch: predictions come from the captures, measured times stay.
"""

import json
import sys
from pathlib import Path

from pyprof.prof.advice import Advice
from pyprof.prof.edits.cards import advise_capture
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate


def cards(path: Path) -> list[Advice]:
    loaded = load_table(path, host=True)
    return advise_capture(loaded.table, annotate(loaded.table), loaded.host)[0].cards


def main() -> None:
    folder = Path(sys.argv[1])
    rows = [row for path in sorted(folder.glob("times-*.json")) for row in json.loads(path.read_text())]
    for row in rows:
        if "error" in row:
            print(f"{row['case']:28} {row['error'][:80]}")
            continue
        found = {state: cards(folder / f"{row['case']}.{state}.json.gz") for state in ("before", "after")}
        before, after = row["before"]["row_ms"], row["after"]["row_ms"]
        predicted = sum(card.saved_ms for card in found["before"] if card.rule == row["rule"])
        ratio = f"{predicted / (before - after):8.2f}" if before > after else "       -"
        print(f"{row['case']:28} {row['rule']:18} {before:8.3f} {after:8.3f} {predicted:8.3f} {before - after:8.3f}"
              f"{ratio}  python {row['before']['python_ms']:.2f} {row['after']['python_ms']:.2f}")  # fmt: skip
        for state in ("before", "after"):
            said = [f"{card.rule} {card.saved_ms:.3f}" for card in found[state]]
            print(f"{'':10} {state}: {', '.join(said)}")


if __name__ == "__main__":
    main()
