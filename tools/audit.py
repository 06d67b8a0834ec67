"""Recompute the numbers of the summary from the raw files, with code that shares nothing with pyprof.

    python tools/audit.py [FILE or FOLDER ...]      (default: tests/golden, and $PYPROF_DATA if it is set)

For each capture, ``prof.py --summary --json`` is run as a user runs it. Then plain SQL and JSON code (no pyprof, no
numpy) reads the same file and computes each number again: operations and their time by kind and device, busy and idle
time, late launches, time in the queue, steps, phases, the attributed share, copies, communication and its exposed part,
and the bound of every piece of advice. Prints each difference, and one line per capture that cannot be compared, with
the reason. Exit code 1 if anything differs.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.audit_numbers import Difference, compare, expected
from tools.audit_raw import Unreadable, read

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (".sqlite", ".sqlite.gz", ".json", ".json.gz", ".sql", ".sql.gz", ".db", ".db.gz")


def captures(names: Sequence[Path]) -> Iterator[Path]:
    for name in names:
        found = sorted(name.rglob("*")) if name.is_dir() else [name]
        yield from (
            file
            for file in found
            if file.name.endswith(SUFFIXES) and not {"hostile", "ncu", "nsys_stats", "advice"} & set(file.parts)
        )


def summary(file: Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``prof.py --summary --json``."""
    command = [sys.executable, "-m", "pyprof", "prof", "-q", "--summary", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=600)
    return done.returncode, done.stdout, done.stderr


def audit(file: Path) -> tuple[Path, int, list[Difference], str]:
    """The file, how many numbers were compared, those that differ, and why it was left out if it was."""
    code, out, errors = summary(file)
    if code:
        return file, 0, [], f"refused: {errors.strip().splitlines()[-1] if errors.strip() else code}"
    try:
        capture = read(file)
    except Unreadable as error:
        return file, 0, [], str(error)
    compared, differences = compare(expected(capture, out), out)
    return file, compared, differences, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE or FOLDER")
    parser.add_argument("-v", "--verbose", action="store_true", help="also print each capture that agrees")
    arguments = parser.parse_args()
    data = os.environ.get("PYPROF_DATA")
    names = arguments.files or [ROOT / "tests/golden", *([Path(data)] if data else [])]
    totals: Counter[str] = Counter()
    with ThreadPool(os.cpu_count()) as pool:  # each waits for a process of its own
        for file, compared, differences, left_out in pool.imap(audit, captures(names)):
            totals.update(captures=1, numbers=compared, differences=len(differences), left_out=int(bool(left_out)))
            if left_out or arguments.verbose:
                print(f"{file.name}: {left_out or f'{compared} numbers agree'}")
            for difference in differences:
                print(f"{file}: {difference}")
    print(
        f"{totals['captures']} captures: {totals['numbers']:,} numbers compared, {totals['differences']} differ; "
        f"{totals['left_out']} captures left out"
    )
    return int(totals["differences"] > 0 or not totals["numbers"])


if __name__ == "__main__":
    sys.exit(main())
