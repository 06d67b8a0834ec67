"""Recompute the numbers of the summary and of the rows from the raw files, with code that shares nothing with pyprof.

    python tools/audit.py [FILE or FOLDER ...]      (default: tests/golden, and $PYPROF_DATA if it is set)

For each capture, ``prof.py --summary --json`` and ``prof.py --csv`` are run as a user runs them. Then plain SQL and
JSON code (no pyprof, no numpy) reads the same file and computes each number again: operations and their time by kind
and device, kinds of work, busy and idle time, time in the queue, steps, phases, the attributed share,
FLOPs, bytes, tensor cores, copies, communication and its exposed part, and the bounds of the list of changes. Prints
each difference, and one line per capture that cannot be compared, with the reason. Exit code 1 if anything differs.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.audit_advice import advice_checks
from tools.audit_kinds import kinds_of
from tools.audit_numbers import Difference, compare, expected, in_question
from tools.audit_raw import Capture, Unreadable, read
from tools.audit_rows import COLUMNS, join
from tools.audit_work import work_checks

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = ("--summary", "--json")  # the options of the two questions
ROWS = ("--csv", "-c", COLUMNS)
SUFFIXES = (".sqlite", ".sqlite.gz", ".json", ".json.gz", ".sql", ".sql.gz", ".db", ".db.gz")


def captures(names: Sequence[Path]) -> Iterator[Path]:
    for name in names:
        found = sorted(name.rglob("*")) if name.is_dir() else [name]
        yield from (
            file
            for file in found
            if file.name.endswith(SUFFIXES) and not {"hostile", "ncu", "nsys_stats", "advice"} & set(file.parts)
        )


def start(file: Path, *options: str) -> subprocess.Popen[str]:
    """``prof.py`` with these options, begun."""
    command = [sys.executable, "-m", "pyprof", "prof", "-q", *options, str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


class Audited(NamedTuple):
    """How many numbers of the summary and of the rows were compared, and those that differ.

    ``left_out``: why the file cannot be compared, if it cannot. ``coverage``: all GPU time, the part whose kind of work
    the names tell, all FLOPs that pyprof counts, and those of the products that were computed again.
    """

    file: Path
    summary: int = 0
    rows: int = 0
    differences: Sequence[Difference] = ()
    left_out: str = ""
    coverage: Mapping[str, int] = MappingProxyType({})


def audit(file: Path) -> Audited:
    """Run pyprof on the file, read it with other code, and compare."""
    with start(file, *SUMMARY) as summary, start(file, *ROWS) as rows:
        capture = raw(file)  # while the two run
        (out, errors), (table, _) = summary.communicate(timeout=600), rows.communicate(timeout=600)
    return judged(file, capture, Printed(summary.returncode, out, errors, table))


def raw(file: Path) -> Capture | str:
    """The capture as other code reads it, or why it cannot be compared."""
    try:
        return read(file)
    except Unreadable as error:
        return str(error)


class Printed(NamedTuple):
    """What pyprof printed: the summary with its exit code and what it said on standard error, and the rows."""

    code: int | None
    summary: str
    errors: str
    rows: str


def judged(file: Path, capture: Capture | str, printed: Printed) -> Audited:
    """What was printed against the capture; a file that pyprof refuses cannot be compared."""
    if printed.code:
        lines = printed.errors.strip().splitlines()
        return Audited(file, left_out=f"refused: {lines[-1] if lines else printed.code}")
    if isinstance(capture, str):
        return Audited(file, left_out=capture)
    if any("times are wrong" in loss["why"] for loss in json.loads(printed.summary)["numbers"]["incomplete"]):
        return Audited(file, left_out="some of its times are wrong")
    return compared(file, capture, printed.summary, printed.rows)


def compared(file: Path, capture: Capture, summary: str, table: str) -> Audited:
    """The capture against the summary (JSON) and the rows (CSV) that pyprof printed for it."""
    wrong = join(capture.operations, table)
    if any(not row.printed for row in capture.operations):
        return Audited(file, rows=1, differences=[Difference(*check) for check in wrong])
    numbers, differences = compare(expected(capture, summary), summary)
    work, wrong_work, products = work_checks(capture.operations)
    advice, wrong_advice = advice_checks(in_question(capture.operations, summary), json.loads(summary))
    differences += [Difference(*check) for check in (*wrong, *wrong_work, *wrong_advice)]
    coverage = {
        "ns": sum(row.duration for row in capture.operations),
        "named_ns": sum(row.duration for row in capture.operations if len(kinds_of(row)) == 1),
        "flop": sum(int(row.printed["FLOPs"] or 0) for row in capture.operations),
        "products": products,
    }
    return Audited(file, numbers + advice, 2 * len(capture.operations) + work, differences, "", coverage)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE or FOLDER")
    parser.add_argument("-v", "--verbose", action="store_true", help="also print each capture that agrees")
    arguments = parser.parse_args()
    data = os.environ.get("PYPROF_DATA")
    names = arguments.files or [ROOT / "tests/golden", *([Path(data)] if data else [])]
    totals: Counter[str] = Counter()
    with ThreadPool(os.cpu_count()) as pool:  # each waits for a process of its own
        for done in pool.imap(audit, captures(names)):
            totals.update(captures=1, summary=done.summary, rows=done.rows, left_out=int(bool(done.left_out)))
            totals.update(differences=len(done.differences), **done.coverage)
            if done.left_out or arguments.verbose:
                print(f"{done.file.name}: {done.left_out or verdict(done)}")
            for difference in done.differences:
                print(f"{done.file}: {difference}")
    print(
        f"{totals['captures']} captures: {totals['summary']:,} numbers of the summary and {totals['rows']:,} of the "
        f"rows compared, {totals['differences']} differ; {totals['left_out']} captures left out. {shares(totals)}"
    )
    return int(totals["differences"] > 0 or not totals["summary"])


def verdict(done: Audited) -> str:
    return f"{done.summary} numbers of the summary and {done.rows:,} of the rows compared. {shares(done.coverage)}"


def shares(coverage: Mapping[str, int]) -> str:
    named, again = (
        f"{coverage[part] / coverage[whole]:.1%}" if coverage[whole] else "0%"
        for part, whole in (("named_ns", "ns"), ("products", "flop"))
    )
    return f"One kind of work by the names: {named} of GPU time; FLOPs computed again: {again}."


if __name__ == "__main__":
    sys.exit(main())
