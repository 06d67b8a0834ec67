"""The runs of pyprof try beside the same changes made by hand, a few steps of each in turns, on a GPU.

    python3 tests/device/try_in_turns.py OUT [resnet:,amp,amp+channels_last ...]

A pair of processes for each variant of a program of try_programs/: the one that `pyprof try` starts, and one with the
change made by hand. They take turns every ten steps (turns.py), so that a host that is slower for a second is so for
both; but in one go where workers prepare batches, who would get ahead while they wait. OUT/in_turns.json has, per
variant, the steps in ms as pyprof try times them (`tried`), as the program's own clock does in that process
(`tried_clock`) and in that by hand (`hand`), and the losses of both.
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
STEPS = int(os.environ.get("TRY_STEPS", "40"))


def main(out: Path, pairs: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    finish(prepare(out, pairs), out)


def prepare(out: Path, pairs: list[str]) -> list[tuple[str, list[str], Any, Any]]:
    """Program, changes, the process of pyprof try and that by hand."""
    sys.path[:0] = [str(HERE), str(HERE.parents[1])]
    import torch  # noqa: F401 (once, for all processes; nothing here may ask for the GPU)
    from turns import InTurn

    os.environ["TRY_STEPS"] = str(STEPS)
    found = []
    for pair in pairs:
        name, _, variants = pair.partition(":")
        for variant in variants.split(","):
            changes = [change for change in variant.split("+") if change]
            stem = str(out / f"{len(found)}.{name}")
            tried = InTurn(f"{stem}.tried.out", by_try, name, changes, stem)
            hand = InTurn(f"{stem}.hand.out", by_hand, name, changes, stem)
            found.append((name, changes, tried, hand))
    return found


def by_try(name: str, changes: list[str], stem: str) -> int:
    """What `pyprof try` starts for a variant."""
    os.environ.update({"CLOCK": f"{stem}.tried.clock.json", "TRY_PART": part(changes)})
    from pyprof.variants.run_record import Settings, write
    from pyprof.variants.variant_script import main as run

    settings = Settings(
        str(HERE / "try_programs" / f"{name}.py"), [], False, changes, 10, STEPS, 5.0, f"{stem}.tried.json", 4
    )
    write(f"{stem}.settings.json", settings)
    return run([f"{stem}.settings.json"])


def part(changes: list[str]) -> str:
    """The steps of a turn."""
    return str(10 if "workers" not in changes else 10 * STEPS)


def by_hand(name: str, changes: list[str], stem: str) -> int:
    os.environ.update({"CLOCK": f"{stem}.hand.clock.json", "HAND": ",".join(changes), "TRY_PART": part(changes)})
    script = str(HERE / "try_programs" / f"{name}.py")
    sys.argv, sys.path[0] = [script], str(HERE / "try_programs")
    runpy.run_path(script, run_name="__main__")
    assert "pyprof" not in sys.modules
    return 0


def finish(pairs: list[tuple[str, list[str], Any, Any]], out: Path) -> None:
    """Their turns, pair by pair; who begins changes."""
    until = time.monotonic() + PREPARE_S
    for _, _, *both in pairs:
        for each in both:
            each.waits(until)
    rows = []
    for number, (name, changes, tried, hand) in enumerate(pairs):
        until = time.monotonic() + TURN_S
        going = [tried, hand] if number % 2 else [hand, tried]
        while going and time.monotonic() < until:
            going = [each for each in going if each.turn(until)]
        codes = [each.end(time.monotonic() + 8) for each in (tried, hand)]
        rows.append({"program": name, "changes": changes, "codes": codes, **measured(str(out / f"{number}.{name}"))})
        (out / "in_turns.json").write_text(json.dumps(rows, indent=1))
        print(told(rows[-1]), flush=True)


def measured(stem: str) -> dict[str, Any]:
    paths = {key: Path(f"{stem}.{key}.json") for key in ("tried", "tried.clock", "hand.clock")}
    found = {key: json.loads(path.read_text()) if path.exists() else {} for key, path in paths.items()}
    return {
        "tried": [round(ns / 1e6, 4) for ns in found["tried"].get("step_ns", [])],
        "tried_clock": found["tried.clock"].get("steps_ms", []),
        "hand": found["hand.clock"].get("steps_ms", []),
        "tried_losses": found["tried"].get("losses", []),
        "hand_losses": found["hand.clock"].get("losses", []),
    }


def told(row: dict[str, Any]) -> str:
    ms = {key: median(row[key]) if row[key] else float("nan") for key in ("tried", "tried_clock", "hand")}
    both = zip(row["tried_losses"], row["hand_losses"], strict=False)
    apart = max((abs(a - b) / abs(b) for a, b in both), default=None)
    name = f"{row['program']} {'+'.join(row['changes']) or 'as it is'}"
    times = " ".join(f"{key} {value:.3f}" for key, value in ms.items())
    return f"{name:28} {times} {ms['tried'] / ms['hand'] - 1:+.1%} losses {apart} codes {row['codes']}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or [*PAIRS])
