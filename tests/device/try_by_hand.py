"""pyprof try on five programs that know nothing of pyprof, beside the same changes made by hand.

    python3 tests/device/try_by_hand.py OUT            on a machine with a GPU, torchvision and transformers

It takes about five minutes on an H200: 43 runs of 7 s each.

All runs wait for each other at the GPU (GPU_LOCK in try_programs/clock.py) and import side by side. Prints a line per
variant, and writes OUT/NAME.json, what `pyprof try --json` says, and OUT/hand.json.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = {
    "gpt2": "tf32,amp,optimizer,compile",
    "resnet": "amp,channels_last,amp+channels_last",
    "loader": "workers,workers+pin_memory",
    "trainer": "optimizer,tf32",
    "vit": "amp,cuda_graph,compile",
}
HERE = Path(__file__).parent / "try_programs"
LIMIT = 420  # seconds for all


def started(words, environment, folder, name):
    """A process, with its outputs in files."""
    with open(folder / f"{name}.out", "wb") as out, open(folder / f"{name}.err", "wb") as err:
        return subprocess.Popen(words, env={**os.environ, **environment}, stdout=out, stderr=err)


def ended_by(process, late):
    """Wait for a process until this time, then end it."""
    try:
        process.wait(max(late - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()


def main(out):
    out.mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp())
    lock = {"GPU_LOCK": str(work / "lock"), "TOKENIZERS_PARALLELISM": "false"}
    tried, hand = {}, {}
    for name, changes in PROGRAMS.items():
        script = str(HERE / f"{name}.py")
        words = [sys.executable, "-m", "pyprof", "try", "--json", "--repeat", "1", "--rest", "20", "--with", changes]
        tried[name] = started([*words, script], lock, work, name)
        for each in ("", *changes.split(",")):
            key = f"{name}.{each}"
            settings = {**lock, "HAND": each.replace("+", ","), "CLOCK": str(work / f"{key}.clock")}
            hand[key] = started([sys.executable, script], settings, work, key)
    late = time.monotonic() + LIMIT
    for process in (*hand.values(), *tried.values()):
        ended_by(process, late)
    clocks = {}
    for key, process in hand.items():
        clock = work / f"{key}.clock"
        text = (work / f"{key}.err").read_text(errors="replace").strip()
        clocks[key] = json.loads(clock.read_text()) if clock.exists() else {"error": text[-400:], "losses": []}
        clocks[key]["code"] = process.returncode
    (out / "hand.json").write_text(json.dumps(clocks, indent=1))
    for name, process in tried.items():
        answer = (work / f"{name}.out").read_text()
        (out / f"{name}.json").write_text(answer)
        print_program(name, process.returncode, answer, clocks, work)


def print_program(name, code, answer, clocks, work):
    own = (work / f"{name}..out").read_text()
    shown = (work / f"{name}.err").read_text(errors="replace")
    same = all(line in shown for line in own.splitlines())
    print(f"{name}: exit {code} (alone {clocks[f'{name}.']['code']}), its output is shown: {same}")
    document = json.loads(answer) if answer.startswith("{") else {}
    if "as_it_is" not in document:
        print("  failed:", answer[-300:], shown[-1500:])
        return
    rows = [("", document["as_it_is"], "")]
    rows += [("+".join(v["changes"]), v["measured"], v["why_none"]) for v in document["variants"]]
    for changes, measured, why in rows:
        hand = clocks[f"{name}.{changes}"]
        if measured is None or not hand.get("ms"):
            print(f"  {changes or 'as it is':24} {why} | by hand: {hand.get('ms')} {hand.get('error', '')}")
            continue
        pairs = zip(measured["losses"], hand["losses"], strict=False)
        losses = max((abs(a - b) / abs(b) for a, b in pairs), default=None)
        share = measured["ms"] / hand["ms"] - 1
        print(f"  {changes or 'as it is':24} {measured['ms']:8.3f} {hand['ms']:8.3f} ms {share:+.1%} losses {losses}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
