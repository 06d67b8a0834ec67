"""The command of the fuzzer: python -m tests.fuzz --cases 100000 --seed 1 --folder build/fuzz."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz import oracle
from tests.fuzz.case import make
from tests.paths import ROOT

BATCH = 2500  # cases of one process


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where records and failing files go (default: a temporary folder)")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this many")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="repeat this one case and print what it prints")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if args.only is not None:
            return _repeat(args.seed, args.only, folder)
        records = campaign(args.seed, args.first, args.cases, folder, time.time() + args.seconds)
    print(json.dumps(summary(records), indent=1))
    return int(any(record.get("found") for record in records))


def campaign(seed: int, first: int, cases: int, folder: Path, until: float = 1e18) -> list[dict[str, Any]]:
    """Work on the cases in processes of their own, one after the other. Returns a record of each."""
    records: list[dict[str, Any]] = []
    number = first
    while number < first + cases and time.time() < until:
        first_of_batch, last = number, min(number + BATCH, first + cases)
        worker = [sys.executable, "-m", "tests.fuzz.worker", *map(str, (seed, number, last, folder, until))]
        code = subprocess.run(worker, cwd=ROOT).returncode
        lines = [json.loads(line) for line in (folder / f"cases{number}.jsonl").read_text().splitlines()]
        done = [line for line in lines if "done" in line]
        records += done
        number = done[-1]["done"] + 1 if done else number
        if code:  # the case that had begun has ended the process
            records.append(
                {"done": number, "kind": make(seed, number, folder).kind, "found": [f"process ended: {code}"]}
            )
            number += 1
        _keep(seed, [record for record in records if record.get("found") and record["done"] >= first_of_batch], folder)
    return records


def _keep(seed: int, failed: list[dict[str, Any]], folder: Path) -> None:
    """Write the files of failed cases, and say what failed."""
    for record in failed:
        case = make(seed, record["done"], folder)
        if isinstance(case.content, bytes):
            (folder / f"failed{record['done']}.{case.name}").write_bytes(case.content)
        print(seed, record["done"], " ".join(case.words), record["found"], _place(record.get("err", "")), flush=True)


def _place(err: str) -> str:
    places = re.findall(r'File "[^"]*/((?:parse|prof|pyprof)/[^"]*)", line (\d+)', err)
    return f"{':'.join(places[-1]) if places else ''} {err.strip().splitlines()[-1] if err.strip() else ''}"


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts and extremes of a campaign."""
    longest = max(records, key=lambda record: record.get("seconds", 0))
    return {
        "cases": len(records),
        "by_kind": dict(Counter(record["kind"] for record in records).most_common()),
        "by_command": dict(Counter(record.get("command", "?").split()[0] for record in records).most_common()),
        "by_code": {str(code): n for code, n in Counter(record.get("code") for record in records).most_common()},
        "failed": sum(bool(record.get("found")) for record in records),
        "processor_seconds": round(sum(record.get("seconds", 0) for record in records)),
        "longest": {key: longest.get(key) for key in ("done", "kind", "command", "seconds", "bytes")},
        "largest_file_bytes": max(record.get("bytes", 0) for record in records),
        "peak_mib": max(record.get("peak_kib", 0) for record in records) >> 10,
    }


def _repeat(seed: int, number: int, folder: Path) -> int:
    room = oracle.Room(folder / "room")
    room.clean()
    case = make(seed, number, room.temporary)
    words = room.words(case)
    print("pyprof", *words)
    ended = oracle.run(words)
    print(ended.out[:3000].decode("utf-8", "replace"), ended.err, sep="\n")
    found = oracle.complaints(room, case, words, ended)
    print(ended.code, f"{ended.seconds:.2f} s", *found, sep=", ")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
