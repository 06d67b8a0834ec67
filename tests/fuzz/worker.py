"""A process that works on a range of cases and writes one line of JSON about each: python -m tests.fuzz.worker."""

import json
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pyprof.prof.kept_files import keep_files
from tests.fuzz import oracle
from tests.fuzz.case import make
from tests.fuzz.seeds import seeds

ROOM_BYTES = 2 << 30  # of addresses, above what the process has once everything is imported
HANG = oracle.SECONDS * 3  # seconds of processor time, after which the process is ended


def main(seed: int, first: int, last: int, folder: Path, until: float) -> None:
    room = oracle.Room(folder / f"room{first}")
    room.clean()
    seeds()
    for words in (["prof", str(oracle.GOOD), "--summary"], ["plan", str(oracle.GOOD)]):  # imports, before the limit
        oracle.run(words)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM_BYTES, size + ROOM_BYTES))
    with keep_files(8), open(folder / f"cases{first}.jsonl", "w", encoding="utf-8") as out:  # GOOD is among them
        for number in range(first, last):
            if time.time() > until:
                break
            out.write(json.dumps({"number": number}) + "\n")
            out.flush()  # so that it is known which case ended the process
            signal.setitimer(signal.ITIMER_PROF, HANG)
            out.write(json.dumps(_tried(seed, number, room)) + "\n")
            signal.setitimer(signal.ITIMER_PROF, 0)


def _tried(seed: int, number: int, room: oracle.Room) -> dict[str, Any]:
    case = make(seed, number, room.temporary)
    words = room.words(case)
    ended = oracle.run(words)
    found = oracle.complaints(room, case, words, ended)
    size = len(case.content) if isinstance(case.content, bytes) else sum(map(len, case.content.values()))
    more = {"found": found, "err": ended.err[-1500:]} if found else {}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "done": number, "kind": case.kind, "command": " ".join(case.words), "code": ended.code,
        "seconds": round(ended.seconds, 3), "bytes": size, "peak_kib": peak, **more,
    }  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), float(sys.argv[5]))
