"""pyprof try on five programs that know nothing of pyprof, beside the same changes made by hand.

    python3 tests/device/try_by_hand.py OUT            on a machine with a GPU, torchvision and transformers

It takes about four minutes on an H200. Of each program, a capture is made first, from which pyprof try predicts; then
its runs by pyprof try, and those with the changes made by hand, go on beside each other. All wait for each other at the
GPU (GPU_LOCK in try_programs/clock.py), where they take turns, and prepare what needs no GPU side by side. Last comes
pyprof try --plan of GPT-2.

Prints a line per variant, and writes OUT/measured.json (what tests/golden/try has), OUT/NAME.json (what pyprof try
--json says) and the captures. A line's second time is by hand, the share their difference.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import torch

PROGRAMS = {
    "gpt2": "amp,compile",
    "resnet": "amp,amp+channels_last",
    "loader": "workers",
    "trainer": "optimizer,tf32",
    "vit": "cuda_graph,compile",
}
PLANNED = "gpt2"
HERE = Path(__file__).parent / "try_programs"
LIMIT = 260  # seconds for all, unless TRY_LIMIT says otherwise


class Trials:
    """The runs of all programs; files of each are OUT/logs/NAME.KEY.out and .err."""

    def __init__(self, out, programs):
        self.out, self.programs = out, programs
        self.logs = out / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.late = time.monotonic() + float(os.environ.get("TRY_LIMIT", LIMIT))
        self.lock = {"GPU_LOCK": str(Path(tempfile.mkdtemp()) / "lock"), "TOKENIZERS_PARALLELISM": "false"}

    def ran(self, name, words, environment=None):
        """Run a command until it ends or time is over. Its exit code and output."""
        out, err = self.logs / f"{name}.out", self.logs / f"{name}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                words, env={**os.environ, **self.lock, **(environment or {})}, stdout=stdout, stderr=stderr
            )
            try:
                process.wait(max(self.late - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
        return process.returncode, out.read_text(errors="replace")

    def program(self, name):
        """One program: its capture, then both series of runs."""
        with ThreadPoolExecutor() as pool:
            pool.submit(self.capture, name)
            if "compile" in self.programs[name].split(","):
                pool.submit(self.compile, name)
        with ThreadPoolExecutor() as pool:
            tried, hand = pool.submit(self.tried, name), pool.submit(self.by_hand, name)
            rows = row_of(name, *tried.result(), hand.result(), (self.logs / f"{name}.try.err").read_text())
        if name == PLANNED and Path(self.capture_of(name)).exists():
            words = ["--plan", "--capture", self.capture_of(name), "--repeat", "1"]
            _, answer = self.ran(f"{name}.plan", self.try_words(name, *words))
            (self.out / f"{name}_plan.json").write_text(answer)
        return rows

    def capture_of(self, name):
        return str(self.out / f"{name}_capture.json.gz")

    def capture(self, name):
        """A capture of the program as it is; pyprof plan needs that of a GPU."""
        if not torch.cuda.is_available():
            return
        words = [sys.executable, "-m", "pyprof", "run", "-q", "--warmup", "6", "--steps", "2"]
        self.ran(f"{name}.capture", [*words, "-o", self.capture_of(name), str(HERE / f"{name}.py")])

    def compile(self, name):
        """Fill the compiler's cache, beside the captures: what a compilation takes is not measured here."""
        self.ran(f"{name}.compile", [sys.executable, str(HERE / f"{name}.py")], {"HAND": "compile", "GPU_LOCK": ""})

    def try_words(self, name, *words):
        script, logs = str(HERE / f"{name}.py"), str(self.logs / f"{name}{'-plan' * ('--plan' in words)}")
        return [sys.executable, "-m", "pyprof", "try", "--json", "--rest", "20", *words, "--logs", logs, script]

    def tried(self, name):
        words = ["--repeat", "1", "--with", self.programs[name]]
        if Path(self.capture_of(name)).exists():
            words += ["--capture", self.capture_of(name)]
        code, answer = self.ran(f"{name}.try", self.try_words(name, *words))
        (self.out / f"{name}.json").write_text(answer)
        return code, json.loads(answer) if answer.startswith("{") else {}

    def by_hand(self, name):
        """Runs by the changes made in them: exit code, output, and what the clock wrote."""
        found = {}
        for count, each in enumerate(["", *self.programs[name].split(",")]):
            key = f"{name}.hand{count}"
            clock = self.logs / f"{key}.clock"
            settings = {"HAND": each.replace("+", ","), "CLOCK": str(clock)}
            code, shown = self.ran(key, [sys.executable, str(HERE / f"{name}.py")], settings)
            if clock.exists():
                found.setdefault(each, []).append({**json.loads(clock.read_text()), "code": code, "shown": shown})
        return found


def row_of(name, code, document, hand, shown):
    """What the golden record has of a program. Times in ms."""
    own = hand.get("", [{}])[0]
    rows = []
    tried = [{"changes": [], "measured": document.get("as_it_is"), "why_none": "", "predicted": None}]
    for variant in [*tried, *document.get("variants", [])]:
        runs = hand.get("+".join(variant["changes"]), [])
        row = {"changes": variant["changes"], "why_none": variant["why_none"], "predicted": variant["predicted"]}
        for key, losses, ms in (
            ("tried", (variant["measured"] or {}).get("losses"), (variant["measured"] or {}).get("runs_ms")),
            ("hand", runs[0]["losses"] if runs else None, [round(run["ms"], 4) for run in runs]),
        ):
            row |= {f"{key}_ms": ms, f"{key}_losses": losses}
        rows.append(row)
    return {
        "program": name,
        "exit_code": code,
        "own_exit_code": own.get("code"),
        "shows_own_output": all(line in shown.splitlines() for line in own.get("shown", "?").splitlines()),
        "variants": rows,
    }


def print_program(found):
    """One line per variant: ms by pyprof try, by hand, the difference, and of the losses the greatest."""
    codes = f"exit {found['exit_code']} (alone {found['own_exit_code']})"
    print(f"{found['program']}: {codes}, its output is shown: {found['shows_own_output']}")
    for row in found["variants"]:
        name = "+".join(row["changes"]) or "as it is"
        if not row["tried_ms"] or not row["hand_ms"]:
            print(f"  {name:24} {row['why_none']} | {row['tried_ms']} | by hand: {row['hand_ms']}")
            continue
        tried, hand = median(row["tried_ms"]), median(row["hand_ms"])
        pairs = zip(row["tried_losses"], row["hand_losses"], strict=False)
        losses = max((abs(a - b) / abs(b) for a, b in pairs), default=None)
        expected = row["predicted"]["ms"] if row["predicted"] else None
        print(f"  {name:24} {tried:8.3f} {hand:8.3f} ms {tried / hand - 1:+.1%} losses {losses} predicted {expected}")


def main(out):
    programs = {name: PROGRAMS[name] for name in os.environ.get("TRY_PROGRAMS", ",".join(PROGRAMS)).split(",")}
    trials = Trials(out, programs)
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(trials.program, programs))
    (out / "measured.json").write_text(json.dumps(found, indent=1) + "\n")
    for each in found:
        print_program(each)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
