"""The list of the recordings by which predictions are scored: tests/golden/recordings_in_view.txt.

    python tools/recordings_in_view.py [--write]

One path per line, with the number of measured savings if the file states them: each change alone, each change after
those before it, and all changes together count as one each. Whoever writes rules has seen these recordings, and a score
that leaves one of them out is no longer comparable. A recording is added to the list and never taken from it, which
tests/test_recordings_in_view.py checks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
LIST = GOLDEN / "recordings_in_view.txt"
FOLDERS = ("advice", "changes", "cpu", "plan", "ranks", "timings", "try")


def savings(found: Any) -> int | None:
    """How many measured savings a JSON document states; None: it is no list of measurements."""
    if not isinstance(found, list):
        return None
    return sum(_of_row(row) for row in found)


def _of_row(row: dict[str, Any]) -> int:
    if "alone" in row:  # several changes of one program: tests/device/plan_truth.py
        return sum("gain" in each for part in ("alone", "in_order", "together") for each in row.get(part, ()))
    if "variants" in row:  # pyprof try beside changes made by hand: tests/device/try_by_hand.py
        return sum(bool(each["changes"] and each["hand_ms"]) for each in row["variants"])
    if "processes" in row:  # the same in turns: tests/device/try_in_turns.py
        return int(bool(row["changes"]))
    return int("before_ms" in row and "after_ms" in row)  # one change: tests/device/advice_measured.py, cpu_pairs.py


def lines() -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted(path for path in (GOLDEN / folder).rglob("*") if path.is_file()):
            count = savings(json.loads(path.read_text(encoding="utf-8"))) if path.suffix == ".json" else None
            yield str(path.relative_to(ROOT)) + ("" if count is None else f" {count}")


def main(words: list[str]) -> int:
    text = "".join(f"{line}\n" for line in lines())
    if "--write" in words:
        LIST.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
