"""Which captures show each rule of advice and plan: docs/explanation/rules.md.

    PYTHONPATH=. python tools/rules_shown.py [--read] [--write] [FILE or FOLDER ...]

--read judges every capture (default: tests/golden and, if set, $PYPROF_DATA), each in a process of its own that may
take 120 s of processor time, and keeps what rules say in docs/explanation/rules.json: the changes of
`prof.py --advise --json`. Captures that the file has already are not judged again, so that a pass can be continued.
--write makes the page from that file; without it the page is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
PAGE = ROOT / "docs" / "explanation" / "rules.md"
KEPT = PAGE.with_suffix(".json")
LONGEST_S = 120  # of processor time, for one capture
SUFFIXES = tuple(f"{end}{gz}" for end in (".sqlite", ".json", ".sql", ".db") for gz in ("", ".gz"))
CONTAINERS = (".pyprof", "pqtdir")
NO_CAPTURES = {"hostile", "nsys_stats", "timings", "try"}
EXAMPLES = 3
WRITTEN_FOR = {"advice", "changes", "cpu"}  # recordings of programs that were each written for the rule measured
# The program of a capture by its path, where captures of one program have several names; the first that fits counts.
PROGRAMS = tuple(
    (re.compile(pattern), program)
    for pattern, program in (
        (r"/ranks/(joint/|shared/)?bus|collectives", "collectives"),
        (r"/ranks/", "ranks: GPT of four layers"),
        (r"cases/", "cases of faults"),
        (r"pyprof_golden/", "PyProf's golden capture"),
        (r"plan/nsys/pretrain", "held8/pretrain"),
        (r"h200.*(gpt2|diff_|reduce_overhead)|/gpt2_whole", "GPT-2"),
        (r"h200.*resnet50", "ResNet-50"),
        (r"h200.*lenet", "LeNet"),
        (r"llama_(whole|training|compiled)", "Llama block"),
        (r"h200_decode_", "decoding with a static cache"),
        (r"h200_callables_", "make_graphed_callables"),
        (r"h200_generate_", "transformers' generate"),
        (r"h200_checkpointing_(\w+)", r"checkpointing: \1"),
        (r"bert-small", "BERT small"),
        (r"zx3xyy", "zx3xyy: 2.7B transformer"),
        (r"(kineto_v100_workers0|resnet50_autograd_api_num_workers_0)", "kineto: ResNet-50, no workers"),
        (r"tracelens_(b300_moe|sglang|vllm)", r"tracelens: \1"),
        (r"compiled/(\w+?)_(eager|compiled|graphs|templates)\.", r"compiled: \1"),
        (r"plan/(held\d+/\w+)", r"\1"),
        (r"golden/(advice|changes)/(\w+)\.(before|after)", r"\1/\2"),
        (r"golden/cpu/(\w+?)(_threads)?\.", r"cpu/\1"),
        (r"/([^/+]+)\+[^/]*?__(?:\w*__)*([^/]+?)(_[0-9a-f]{10})?\.[\w.]+$", r"\1: \2"),
        (r"/([^/]+?)\.[\w.]+$", r"\1"),
        (r"/([^/]+)$", r"\1"),
    )
)

Answer = dict[str, Any]


def judge(file: str) -> Answer:
    """The list of a capture's changes, with the GPU's work that each removes and, of a replayed run, its saving."""
    from pyprof.prof.changes.find_changes import find_changes
    from pyprof.prof.load import load_table
    from pyprof.prof.work.annotate import annotate

    loaded = load_table(file, host=True)
    found = find_changes(loaded.table, annotate(loaded.table), loaded.host, name=loaded.name).document
    return {"changes": [[each.rule, each.title, each.gpu_ms, each.saved_ms] for each in found.changes]}


def judged(file: Path) -> Answer:
    """What ``judge`` says of a capture in a process of its own, if that was ready in time."""
    command = [sys.executable, __file__, "--judge", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    answer: Answer = {}
    for line in done.stdout.splitlines():
        answer |= json.loads(line)
    if done.returncode == -signal.SIGXCPU:
        answer["error"] = f"more than {LONGEST_S} s"
    elif done.returncode:
        answer["error"] = (done.stderr.strip().splitlines() or ["no message"])[-1].replace(str(file), file.name)
    return answer


def captures(names: Iterable[Path]) -> Iterator[Path]:
    """The files and containers in these folders that may be captures."""
    for name in (name.resolve() for name in names):
        is_folder = name.is_dir() and not name.name.endswith(CONTAINERS)
        for file in sorted(name.rglob("*")) if is_folder else [name]:
            inside = any(part.endswith(CONTAINERS) for part in file.parent.parts)
            if inside or NO_CAPTURES & set(file.parts):
                continue
            if file.name.endswith((*SUFFIXES, *CONTAINERS, ".parquet", ".dict")):
                yield file


def relative(file: Path) -> str:
    """A capture's name in the table: its path in the repository or in PYPROF_DATA."""
    for folder in (ROOT / "tests" / "golden", Path(os.environ.get("PYPROF_DATA", ROOT))):
        if file.is_relative_to(folder):
            return str(file.relative_to(folder.parent))
    return file.name


def read(names: Sequence[Path], kept: Path, workers: int) -> None:
    """Judge the captures that are not kept yet, and keep each answer as soon as it is there."""
    known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    files = {relative(file): file for file in captures(names)}
    todo = [name for name in files if name not in known]
    with ThreadPoolExecutor(workers) as pool:
        for name, answer in zip(todo, pool.map(lambda name: judged(files[name]), todo), strict=True):
            known[name] = answer
            each = (f"{json.dumps(one)}: {json.dumps(known[one], sort_keys=True)}" for one in sorted(known))
            kept.write_text("{\n" + ",\n".join(each) + "\n}\n", encoding="utf-8")


class Shown(NamedTuple):
    """A rule, and the captures and programs in which it speaks."""

    rule: str
    kind: str
    captures: list[str]
    programs: list[str]
    foreign: list[str]  # of the programs, those that were not written for the rule
    measured: dict[str, int]  # recordings, with the number of savings of the rule


def program_of(capture: str) -> str:
    """The program that a capture is of; captures before and after a change, and of several ranks, are of one."""
    return next(found.expand(program) for pattern, program in PROGRAMS if (found := pattern.search(capture)))


def rules() -> dict[str, str]:
    """Every rule, by the name that plans have for it, and where it speaks."""
    from pyprof.prof.changes.rules import CPU_RULES, EDIT_RULES

    return dict.fromkeys(EDIT_RULES, "GPU") | dict.fromkeys(CPU_RULES, "CPU")


def spoken(answer: Answer) -> set[str]:
    """The rules that have a change in a capture's list."""
    return {each[0] for each in answer.get("changes", ())}


def measurements() -> Iterator[tuple[str, str, str]]:
    """(rule, recording, program) of each change that was made and measured."""
    from tools.plan_pairs import RULES

    for folder in ("advice", "changes", "changes/libraries"):
        for row in json.loads((GOLDEN / folder / "measured.json").read_text(encoding="utf-8")):
            yield row["rule"], folder.rpartition("/")[2], f"{folder}/{row['case']}"
    for row in json.loads((GOLDEN / "cpu" / "pairs.json").read_text(encoding="utf-8")):
        yield row["rule"], "cpu", f"cpu/{row['program']}"
    for file in sorted((GOLDEN / "plan").rglob("measured.json")):
        folder = "open" if file.parent.name == "plan" else file.parent.name
        for row in json.loads(file.read_text(encoding="utf-8")):
            for change in row["alone"]:
                for part in RULES.get(change["change"], "").split("+") if change["change"] in RULES else ():
                    yield part.partition(":")[0].rstrip("!"), folder, f"{folder}/{row['program']}"


def shown(answers: dict[str, Answer]) -> list[Shown]:
    """For each rule, where it speaks, the most programs first."""
    said = {capture: spoken(answer) for capture, answer in answers.items()}
    measured = list(measurements())
    table = []
    for rule, kind in rules().items():
        captures = [capture for capture, found in said.items() if rule in found]
        programs = list(dict.fromkeys(map(program_of, captures)))
        own = {program for name, recording, program in measured if name == rule and recording in WRITTEN_FOR}
        counts: dict[str, int] = {}
        for name, recording, _ in measured:
            if name == rule:
                counts[recording] = counts.get(recording, 0) + 1
        foreign = [program for program in programs if program not in own]
        table.append(Shown(rule, kind, captures, programs, foreign, counts))
    return sorted(table, key=lambda each: (-len(each.programs), each.rule))


HEAD = """\
# Which captures show each rule

`tools/rules_shown.py --write` makes this page from `docs/explanation/rules.json`, which has what `prof.py --advise`
says of each capture in `tests/golden` and of the public captures at hand. A rule is shown by a capture if it has a
change in the list: one that saves 1% of the step after those above it, or that such a change needs. Captures before and
after a change, of several ranks, or of the same program in another form count as one program. *Others* are the programs
that were not written to measure the rule. *Measured* counts the savings of the rule that each recording states;
[Advice, measured](advice-measured.md) has more of them.

{captures} captures of {programs} programs were judged. For {late} of them, {seconds} s of processor
time were not enough.

| rule | of | captures | programs | others | such as | measured |
|---|---|--:|--:|--:|---|---|
"""
GONE = """
## Removed

`small_collectives` spoke in none of 324 captures, and was measured on the two programs written for it (4.12 of 17.7 ms
and 4.23 of 19.1). `made_again` spoke in two captures of one program (1.10 of 11.3 ms); of the largest saving that was
measured, 49.3 of 179 ms, a static cache and a CUDA graph of each word take the place.

`group_norm` (compile the norms) spoke in two captures, and said 2.87 of the 2.38 ms that compiling saved; `compile`
says 2.51 of the same program, and knows what else is fused. `dropout_in_eval` spoke in one; in three models of public
libraries, `model.eval()` saved nothing twice and 0.14 of 18.1 ms: the summary names such dropout, without a saving.
"""
SILENT = """
## Shown by no capture

| rule | of | measured |
|---|---|---|
"""


def page(answers: dict[str, Answer]) -> str:
    known = [capture for capture, answer in answers.items() if "changes" in answer]
    late = [capture for capture, answer in answers.items() if answer.get("error", "").startswith("more than")]
    programs = len(set(map(program_of, known)))
    text = HEAD.format(captures=len(known), programs=programs, late=len(late), seconds=LONGEST_S)
    table = shown(answers)
    text += "".join(_line(each) for each in table if each.captures)
    silent = [f"| `{each.rule}` | {each.kind} | {_recordings(each)} |\n" for each in table if not each.captures]
    return text + (SILENT + "".join(silent) if silent else "") + GONE


def _line(rule: Shown) -> str:
    own = [program for program in rule.programs if program not in rule.foreign]
    by_use = sorted(rule.foreign, key=lambda program: program.partition("/")[0] in WRITTEN_FOR)
    some = ", ".join([*by_use, *own][:EXAMPLES])
    counts = f"{len(rule.captures)} | {len(rule.programs)} | {len(rule.foreign)}"
    return f"| `{rule.rule}` | {rule.kind} | {counts} | {some} | {_recordings(rule)} |\n"


def _recordings(rule: Shown) -> str:
    return ", ".join(f"{name} {count}" for name, count in rule.measured.items())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", type=Path, metavar="FILE or FOLDER")
    parser.add_argument("--read", action="store_true", help="judge the captures that rules.json does not have")
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the file of answers, in place of rules.json")
    parser.add_argument("--workers", type=int, default=1, help="captures judged at the same time")
    parser.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.judge:
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S + 5))
        print(json.dumps(judge(str(args.names[0]))))
        return 0
    data = os.environ.get("PYPROF_DATA")
    if args.read:
        folders = [ROOT / "tests" / "golden", *([Path(data)] if data else [])]
        read(args.names or folders, args.kept, args.workers)
    text = page(json.loads(args.kept.read_text(encoding="utf-8")))
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
    elif not args.read:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
