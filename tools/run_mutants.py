"""Mutation testing: a seeded sample of changes of the code, and whether the tests notice each.

    python tools/run_mutants.py record TREE FOLDER tests/prof/ops/test_conv.py ...   # which test executes which line
    python tools/run_mutants.py run TREE FOLDER --count 300 --seed 18                # the mutants, room by room in turn
    python tools/run_mutants.py again TREE FOLDER                                    # those that survived, once more
    python tools/run_mutants.py counts FOLDER

TREE is a copy of the checkout (`git archive HEAD | tar x -C TREE`), in which files are changed and put back; it must be
nobody's worktree. FOLDER keeps what the tests execute (cover/), and one line of JSON per mutant (results.*.jsonl), so
that a run that was broken off goes on. PYPROF_DATA and PYPROF_TRUTH are those of the tests.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.mutant_coverage import Coverage
from tools.mutants import Mutant, files_of, sample

ROOMS = {
    "counting": "prof/ops prof/work pyprof/counting",
    "attribution": "parse/attribute parse/graphs parse/tables",
    "advice": "prof/advice prof/edits prof/replay prof/planning",
    "capture": "pyprof/capture pyprof/provenance pyprof/marker.py",
}
SOURCES = ["parse", "prof", "pyprof"]
NONE_KILLED = (0, 5)  # pytest's exit codes: all passed, none collected


def in_turn(count: int, seed: int, root: Path) -> Iterator[tuple[str, int, Mutant]]:
    """(room, its number, mutant): the first of each room, then the second of each, and so on"""
    drawn = {room: sample(files_of(places.split(), root), count, seed, root) for room, places in ROOMS.items()}
    for number in range(count):
        yield from ((room, number, mutants[number]) for room, mutants in drawn.items() if number < len(mutants))


class Trial:
    """Gives mutants to their tests, in a copy of the checkout."""

    def __init__(self, tree: Path, folder: Path, share: int, most: int, most_s: float) -> None:
        from tools import mutant_tests

        self.runs, self.tree, self.folder, self.most, self.most_s = mutant_tests, tree, folder, most, most_s
        self.log = folder / f"log.{share}"
        self.coverage = Coverage(folder / "cover", tree)
        self.changed = 0
        os.chdir(tree)
        sys.path.insert(0, str(tree))
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        mutant_tests.warm_up()

    def chosen(self, mutant: Mutant) -> list[str]:
        found: list[str] = []
        left = self.most_s
        for test in self.coverage.of(mutant):
            seconds = self.coverage.seconds[test]
            if len(found) < self.most and (seconds <= left or not found):  # a slow test may come before many fast ones
                found.append(test)
                left -= seconds
        return found

    def result(self, mutant: Mutant) -> dict[str, Any]:
        self.coverage.refresh()
        tests = self.chosen(mutant)
        began = time.monotonic()
        if not tests:
            return {"result": "no coverage", "by": "", "tests": 0, "seconds": 0.0}
        limit = 20 + 5 * sum(self.coverage.seconds[test] for test in tests)
        with self.mutated(mutant):
            answer = self.runs.in_fork(lambda: self.killed_by(tests), limit, self.log)
        found = {"result": answer, "by": ""} if isinstance(answer, str) else answer
        return {**found, "tests": len(tests), "seconds": round(time.monotonic() - began, 2)}

    def killed_by(self, tests: list[str]) -> dict[str, str]:
        for some in filter(None, (tests[:3], tests[3:10], tests[10:])):  # a run imports the files of all its tests
            answer = self.runs.first_failure(some)
            if answer["code"] not in NONE_KILLED:
                return {"result": "killed", "by": answer["by"]}
        return {"result": "survived", "by": ""}

    def mutated(self, mutant: Mutant) -> "Changed":
        self.changed += 1
        return Changed(self.tree / mutant.file, mutant, self.changed)


class Changed:
    """A file with a mutant in it, for the length of a block. Each has a time of its own: Python caches code by that."""

    def __init__(self, path: Path, mutant: Mutant, number: int) -> None:
        self.path, self.mutant, self.number = path, mutant, number

    def __enter__(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # by way of __exit__
        self.source, self.stat = self.path.read_bytes(), self.path.stat()
        self.path.write_bytes(self.mutant.applied(self.source))
        os.utime(self.path, (self.stat.st_atime, self.stat.st_mtime + 1000 + self.number))

    def __exit__(self, *_: object) -> None:
        self.path.write_bytes(self.source)
        os.utime(self.path, ns=(self.stat.st_atime_ns, self.stat.st_mtime_ns))


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The last result of each mutant, by its key."""
    found = {}
    for path in sorted(folder.glob("results*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # a line that was being written when a run was broken off
                one = json.loads(line)
                found[one["key"]] = one
    return found


def run(options: argparse.Namespace) -> None:
    known = results(options.folder)
    trial = Trial(options.tree, options.folder, options.share, options.most, options.most_s)
    with (options.folder / f"results.{options.share}.jsonl").open("a", encoding="utf-8") as out:
        for place, (room, number, mutant) in enumerate(in_turn(options.count, options.seed, options.drawn)):
            if place % options.shares != options.share:
                continue
            before = known.get(mutant.key, {}).get("result")
            wanted = before in ("survived", "no coverage") if options.what == "again" else before is None
            here, there = (tree / mutant.file for tree in (options.drawn, options.tree))
            if wanted and there.is_file() and here.read_bytes() == there.read_bytes():
                line = {"room": room, "number": number, "key": mutant.key, **mutant._asdict(), **trial.result(mutant)}
                out.write("\n" + json.dumps(line))  # each begins a line, whatever a run that was broken off has left
                out.flush()


def record(options: argparse.Namespace) -> None:
    from tools import mutant_tests

    os.chdir(options.tree)
    sys.path.insert(0, str(options.tree))
    mutant_tests.warm_up()
    (options.folder / "cover").mkdir(parents=True, exist_ok=True)
    for file in options.tests:
        place = options.folder / "recorded"
        shutil.rmtree(place, ignore_errors=True)
        found = mutant_tests.in_fork(
            lambda file=file, place=place: mutant_tests.record(options.tree, file, SOURCES, place),
            600,
            options.folder / "log",
        )
        if isinstance(found, str):
            print(f"{file}: {found}")
        else:
            (options.folder / "cover" / f"{file.replace('/', '__')}.json").write_text(json.dumps(found))


def counts(options: argparse.Namespace) -> None:
    by_room: dict[str, Counter[str]] = defaultdict(Counter)
    for one in results(options.folder).values():
        by_room[one["room"]][one["result"]] += 1
    for room, found in by_room.items():
        dead = found["killed"] + found["timeout"] + found["crash"]
        print(f"{room}: {found.total()} drawn, {dead} killed ({dead / found.total():.0%}), {dict(found)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "run", "again", "counts"])
    parser.add_argument("places", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=300, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument(
        "--drawn", type=Path, help="the tree of the sample, if TREE is another: files that differ are left out"
    )
    parser.add_argument("--most", type=int, default=60, help="tests given to one mutant")
    parser.add_argument(
        "--most-s", type=float, default=15.0, help="seconds that these tests may take, without a mutant"
    )
    parser.add_argument(
        "--share", type=int, default=0, help="of --shares processes side by side, each with its own TREE"
    )
    parser.add_argument("--shares", type=int, default=1)
    options = parser.parse_args()
    if options.what == "counts":
        options.folder = options.places[0]
        return counts(options)
    options.tree, options.folder = (place.resolve() for place in options.places[:2])
    options.drawn = options.drawn.resolve() if options.drawn else options.tree
    options.tests = [str(place) for place in options.places[2:]]
    return record(options) if options.what == "record" else run(options)


if __name__ == "__main__":
    main()
