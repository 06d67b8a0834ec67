"""The runs of pyprof try beside the same changes made by hand, a few steps of each in turns, on a GPU.

    python3 tests/device/try_in_turns.py OUT [resnet:,amp,amp+channels_last ...]

Processes for each variant of a program of try_programs/: PROCESSES (1) of those that `pyprof try` starts, and as many
with the change made by hand. They take turns every TRY_PART (10) steps (turns.py), so that a host that is slower for a
second is so for all; but in one go where workers prepare batches, who would get ahead while they wait. Processes of the
same code differ, too, where the host is the limit: only several of each show by how much. OUT/in_turns.json has, per
variant, each process's steps in ms (`steps`: as pyprof try times them, or by the program's own clock where the change
is made by hand) and its first losses.
"""

import json
import os
import runpy
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
PAIRS = ("resnet:,amp,amp+channels_last", "trainer:,optimizer,tf32", "loader:,workers,workers")
PREPARE_S, TURN_S = 90.0, float(os.environ.get("TURN_S", "40"))
STEPS, PROCESSES = int(os.environ.get("TRY_STEPS", "40")), int(os.environ.get("PROCESSES", "1"))
PART = os.environ.get("TRY_PART", "10")


def main(out: Path, pairs: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    finish(prepare(out, pairs), out)


def prepare(out: Path, pairs: list[str]) -> list[tuple[str, list[str], dict[str, Any]]]:
    """Program, changes, and the processes by the names of their files."""
    sys.path[:0] = [str(HERE), str(HERE.parents[1])]
    import torch  # noqa: F401 (once, for all processes; nothing here may ask for the GPU)
    from turns import InTurn

    os.environ["TRY_STEPS"] = str(STEPS)
    found = []
    for pair in pairs:
        name, _, variants = pair.partition(":")
        for variant in variants.split(","):
            changes = [change for change in variant.split("+") if change]
            processes = {}
            for number in range(PROCESSES):
                for by in (("tried", "hand"), ("hand", "tried"))[number % 2]:
                    stem = str(out / f"{len(found)}.{name}.{number}.{by}")
                    work = by_try if by == "tried" else by_hand
                    processes[stem] = InTurn(f"{stem}.out", work, name, changes, stem)
            found.append((name, changes, processes))
    return found


def by_try(name: str, changes: list[str], stem: str) -> int:
    """What `pyprof try` starts for a variant."""
    os.environ.update({"CLOCK": f"{stem}.clock.json", "TRY_PART": part(changes)})
    from pyprof.variants.run_record import Settings, write
    from pyprof.variants.variant_script import main as run

    settings = Settings(
        str(HERE / "try_programs" / f"{name}.py"), [], False, changes, 10, STEPS, 5.0, f"{stem}.record.json", 4
    )
    write(f"{stem}.settings.json", settings)
    return run([f"{stem}.settings.json"])


def part(changes: list[str]) -> str:
    """The steps of a turn."""
    return PART if "workers" not in changes else str(10 * STEPS)


def by_hand(name: str, changes: list[str], stem: str) -> int:
    os.environ.update({"CLOCK": f"{stem}.clock.json", "HAND": ",".join(changes), "TRY_PART": part(changes)})
    script = str(HERE / "try_programs" / f"{name}.py")
    sys.argv, sys.path[0] = [script], str(HERE / "try_programs")
    runpy.run_path(script, run_name="__main__")
    assert "pyprof" not in sys.modules
    return 0


def finish(pairs: list[tuple[str, list[str], dict[str, Any]]], out: Path) -> None:
    """Their turns, variant by variant; who begins changes."""
    until = time.monotonic() + PREPARE_S
    for _, _, processes in pairs:
        for each in processes.values():
            each.waits(until)
    rows = []
    for name, changes, processes in pairs:
        until = time.monotonic() + TURN_S
        going = [*processes.values()]
        while going and time.monotonic() < until:
            going = [each for each in going if each.turn(until)][::-1]
        ended = [each.end(time.monotonic() + 8) for each in processes.values()]
        measured = [measured_in(stem) | {"code": code} for stem, code in zip(processes, ended, strict=True)]
        rows.append({"program": name, "changes": changes, "turn": int(part(changes)), "processes": measured})
        (out / "in_turns.json").write_text(json.dumps(rows, indent=1))
        print(told(rows[-1]), flush=True)


def measured_in(stem: str) -> dict[str, Any]:
    """What a process measured."""
    paths = [Path(f"{stem}.{kind}.json") for kind in ("clock", "record")]
    clock, record = (json.loads(path.read_text()) if path.exists() else {} for path in paths)
    steps = [ns / 1e6 for ns in record.get("step_ns", [])] if record else clock.get("steps_ms", [])
    return {
        "by": stem.rpartition(".")[2],
        "steps": [round(ms, 3) for ms in steps],
        "losses": (record or clock).get("losses", []),
    }


def told(row: dict[str, Any]) -> str:
    each = [f"{one['by']} {median(one['steps'] or [float('nan')]):.3f}" for one in row["processes"]]
    losses = [one["losses"] for one in row["processes"]]
    apart = max((abs(a - b) / abs(b) for some in losses for a, b in zip(some, losses[0], strict=False)), default=None)
    name = f"{row['program']} {'+'.join(row['changes']) or 'as it is'}"
    return f"{name:28} {', '.join(each)} ms; losses {apart}; codes {[one['code'] for one in row['processes']]}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or [*PAIRS])
