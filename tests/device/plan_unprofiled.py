"""The true step that a capture tells, beside that of the same program in a process without pyprof, on a GPU.

    python3 tests/device/plan_unprofiled.py OUT [--folder FOLDER[,FOLDER]] [--programs a,b]

Of each program of several faults (plan_programs/), two processes without pyprof time blocks of steps, in turns with one
in which pyprof times the steps before a capture (`pyprof.profile(warmup=)`), which times the same blocks by the same
clock (`warm`): where the host is the limit, processes of the same code differ, too. Then that process goes on to its
capture, and those without pyprof take another turn. OUT/steps.json has, in ms per step, what each process without
pyprof measured in each of its turns (`without`) and what that with it did (`warm`); OUT/NAME.1.json.gz is the capture.
What it tells is read from it afterwards, where there is time:

    PYTHONPATH=. python tools/replay_unprofiled.py OUT
"""

import argparse
import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WARM, BLOCK, ROUNDS, AT_A_TIME = 3, 3, 4, 6
TIMED, CAPTURED = ROUNDS * (BLOCK + 1), 2  # as many as in turns, so that the later half has no turn in it
PREPARE_S, TURN_S, WRITE_S = 90.0, float(os.environ.get("TURN_S", "30")), 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description="steps that captures tell, and steps without pyprof")
    parser.add_argument("out", type=Path)
    parser.add_argument("--folder", default=str(HERE / "plan_programs"), help="one or several, separated by commas")
    parser.add_argument("--programs", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--tiny", action="store_true", help="small sizes, as without a GPU")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    finish(*prepare(options), options)


def prepare(options: argparse.Namespace) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """All processes, of each program the captured one in the middle; and what is known of each program."""
    sys.path.insert(0, str(HERE))
    import torch  # noqa: F401 (once, for all processes; nothing here may ask for the GPU)
    from turns import InTurn

    found = {path.stem: path for folder in options.folder.split(",") for path in sorted(Path(folder).glob("*.py"))}
    names = options.programs.split(",") if options.programs else [*found]
    processes: dict[str, list[Any]] = {}
    for name in names:
        works = {"0": without, "1": capture, "2": without}
        processes[name] = [
            InTurn(str(options.out / f"{name}.{number}.out"), work, found[name], options, number)
            for number, work in works.items()
        ]
    return processes, {}


def finish(processes: dict[str, list[Any]], found: dict[str, Any], options: argparse.Namespace) -> None:
    """Their turns, program by program."""
    until = time.monotonic() + PREPARE_S
    for each in [one for some in processes.values() for one in some]:
        each.waits(until)
    for name, (one, captured, two) in processes.items():
        begun = time.monotonic()
        rounds = [((one, captured, two), (two, captured, one))[number % 2] for number in range(ROUNDS)]
        turns = [each.turn(begun + TURN_S) for order in (*rounds, (one, captured, two)) for each in order]
        blocks = [measured(options.out / f"{name}.{number}.blocks.json") for number in "012"]
        found[name] = {"without": blocks[0] + blocks[2], "warm": blocks[1], "turns": turns}
        print(name, blocks, turns, f"{time.monotonic() - begun:.1f} s", flush=True)
        (options.out / "steps.json").write_text(json.dumps(found, indent=1))
        one.end(0)
        two.end(0)
    late = time.monotonic() + WRITE_S
    writing = [captured for _, captured, _ in processes.values()]
    for each in writing:  # not before: who writes a trace takes a core, and the host of the others gets slower
        each.turn(time.monotonic())
    for each in writing:
        each.end(late)


def made(path: Path, options: argparse.Namespace) -> Any:
    """The program's step, after some calls of it.

    Many are prepared: a few at a time, one of a program, and they give back the memory that they do not hold.
    """
    import torch
    from plan_measured import freed, loaded

    program = loaded(path, options.tiny)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    with (options.out / f"{sum(path.stem.encode()) % AT_A_TIME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        step = program.make(frozenset())
        for _ in range(WARM):
            step()
        freed()
    return step


def measured(file: Path) -> list[list[float]]:
    return json.loads(file.read_text()) if file.exists() else []


def in_turns(step: Any, count: int, file: Path) -> None:
    """Blocks of steps, each in a turn of its own."""
    from plan_measured import in_a_block
    from turns import wait

    turns: list[list[float]] = []
    for _ in range(count):
        wait()
        step()
        turns.append([round(in_a_block(step, BLOCK)[0], 4)])
        file.write_text(json.dumps(turns))


def without(path: Path, options: argparse.Namespace, number: str) -> None:
    from turns import wait

    in_turns(made(path, options), ROUNDS + 1, options.out / f"{path.stem}.{number}.blocks.json")
    assert "pyprof" not in sys.modules
    wait()


def capture(path: Path, options: argparse.Namespace, number: str) -> None:
    from turns import wait

    step = made(path, options)
    import pyprof

    def marked() -> None:
        step()
        pyprof.step()

    file = options.out / f"{path.stem}.{number}.json.gz"
    warm_up = ROUNDS * (BLOCK + 1) + TIMED
    with pyprof.profile(file, force=True, trace=True, warmup=warm_up, steps=CAPTURED):
        in_turns(marked, ROUNDS, options.out / f"{path.stem}.{number}.blocks.json")
        wait()
        for _ in range(TIMED + CAPTURED):
            marked()
        wait()


if __name__ == "__main__":
    main()
