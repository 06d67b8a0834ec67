"""Mutation testing: a seeded sample of changes of the code, and whether the tests notice each.

    python tools/run_mutants.py record TREE FOLDER tests/prof/ops/test_conv.py ...   # which test executes which line
    python tools/run_mutants.py run TREE FOLDER --count 300 --seed 18                # the mutants, room by room in turn
    python tools/run_mutants.py again TREE FOLDER                                    # those that survived, once more
    python tools/run_mutants.py counts FOLDER

TREE is a copy of the checkout (`git archive HEAD | tar x -C TREE`), in which files are changed and put back; it must be
nobody's worktree. FOLDER keeps what the tests execute (cover/), and one line of JSON per mutant (results.*.jsonl), so
that a run that was broken off goes on. PYPROF_DATA and PYPROF_TRUTH are those of the tests.

The code may go on while a sample is tried: with `--drawn`, the sample is that of an older tree, cover/ is what tests
executed there, and each mutant is made where its lines are in TREE; what tests execute in TREE may be in cover.now/.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.mutant_coverage import Coverage
from tools.mutant_words import Words
from tools.mutants import Mutant, files_of, moved, sample

ROOMS = {
    "counting": "prof/ops prof/work pyprof/counting",
    "attribution": "parse/attribute parse/graphs parse/tables",
    "advice": "prof/changes prof/replay prof/planning",
    "capture": "pyprof/capture pyprof/provenance pyprof/marker.py",
}
SOURCES = ["parse", "prof", "pyprof"]
NONE_KILLED = (0, 5)  # pytest's exit codes: all passed, none collected
FAST_S = 0.25  # tests that take no longer come first


def in_turn(count: int, seed: int, root: Path) -> Iterator[tuple[str, int, Mutant]]:
    """(room, its number, mutant): the first of each room, then the second of each, and so on"""
    drawn = {room: sample(files_of(places.split(), root), count, seed, root) for room, places in ROOMS.items()}
    for number in range(count):
        yield from ((room, number, mutants[number]) for room, mutants in drawn.items() if number < len(mutants))


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Trial:
    """Gives mutants to their tests, in a copy of the checkout."""

    def __init__(self, tree: Path, drawn: Path, folder: Path, share: int, most: int, most_s: float) -> None:
        from tools import mutant_tests

        self.runs, self.tree, self.folder, self.most, self.most_s = mutant_tests, tree, folder, most, most_s
        self.log = folder / f"log.{share}"
        self.now, self.before = Coverage(folder / "cover.now", tree), Coverage(folder / "cover", drawn)
        self.changed = 0
        os.chdir(tree)
        sys.path.insert(0, str(tree))
        os.environ["OMP_NUM_THREADS"] = "1"
        mutant_tests.warm_up()
        tested = sorted({test.split("::")[0] for test in self.before.seconds.keys() | self.now.seconds.keys()})
        self.collected = set(mutant_tests.in_fork(lambda: mutant_tests.collected(tested), 600, self.log))
        self.words = Words(tree, self.collected)
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

    def chosen(self, drawn: Mutant, mutant: Mutant) -> tuple[list[str], list[str]]:
        """The fast tests of a mutant, for a third of the time, and those that have the rest of it."""
        executing = self.now.of(mutant, nearest=False) + self.before.of(drawn, nearest=False)
        known = [test for test in dict.fromkeys(executing or self.before.of(drawn)) if test in self.collected]
        both = zip(self.words.nearest(mutant, known), known, strict=True)
        every = list(dict.fromkeys(test for pair in both for test in pair))
        fast = self.within([test for test in every if self.seconds(test) <= FAST_S], self.most, self.most_s / 3)
        rest = [test for test in every if test not in fast]
        left = self.most_s - sum(map(self.seconds, fast))
        return fast, self.within(rest, self.most - len(fast), left) or ([] if fast else rest[:1])

    def seconds(self, test: str) -> float:
        return self.now.seconds.get(test) or self.before.seconds[test]

    def within(self, tests: list[str], most: int, most_s: float) -> list[str]:
        found: list[str] = []
        for test in tests:
            if len(found) < most and self.seconds(test) <= most_s:  # a slow test may come before many fast ones
                found.append(test)
                most_s -= self.seconds(test)
        return found

    def result(self, drawn: Mutant, mutant: Mutant) -> dict[str, Any]:
        self.now.refresh()
        parts = self.chosen(drawn, mutant)
        tests = [test for part in parts for test in part]
        began, cpu = time.monotonic(), cpu_seconds()
        if not tests:
            return {"result": "no coverage", "by": "", "tests": 0, "seconds": 0.0, "cpu": 0.0}
        seconds = sum(map(self.seconds, tests))
        with self.mutated(mutant):
            answer = self.runs.in_fork(lambda: self.killed_by(parts), 30 + 6 * seconds, self.log, 8 + 2 * seconds)
        found = {"result": answer, "by": ""} if isinstance(answer, str) else answer
        took = {"seconds": round(time.monotonic() - began, 2), "cpu": round(cpu_seconds() - cpu, 2)}
        return {**found, "tests": len(tests), **took}

    def killed_by(self, parts: Iterable[list[str]]) -> dict[str, str]:
        for some in filter(None, parts):  # a run imports the files of all its tests
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
    trial = Trial(options.tree, options.drawn, options.folder, options.share, options.most, options.most_s)
    with (options.folder / f"results.{options.share}.jsonl").open("a", encoding="utf-8") as out:
        for place, (room, number, mutant) in enumerate(in_turn(options.count, options.seed, options.drawn)):
            if place % options.shares != options.share:
                continue
            before = known.get(mutant.key, {}).get("result")
            wanted = before in ("survived", "no coverage") if options.what == "again" else before is None
            if wanted:
                now = moved(mutant, options.drawn, options.tree)
                found = trial.result(mutant, now) if now else {"result": "rewritten since", "by": ""}
                line = {"room": room, "number": number, "key": mutant.key, **mutant._asdict(), **found}
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
        dead, tried = (found["killed"] + found["timeout"] + found["crash"], found.total() - found["rewritten since"])
        print(f"{room}: {found.total()} drawn, {dead} killed ({dead / max(tried, 1):.0%} of {tried}), {dict(found)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "run", "again", "counts"])
    parser.add_argument("places", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=300, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument(
        "--drawn",
        type=Path,
        help="the tree of the sample, if TREE is later: a mutant goes with its lines",
    )
    parser.add_argument("--most", type=int, default=60, help="tests given to one mutant")
    parser.add_argument(
        "--most-s", type=float, default=10.0, help="seconds that these tests may take, without a mutant"
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
