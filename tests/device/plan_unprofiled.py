"""The true step that a capture tells, beside that of the same program in a process without pyprof, on a GPU.

    python3 tests/device/plan_unprofiled.py OUT [--folder FOLDER[,FOLDER]] [--programs a,b] [--captures 2]

Of each program of several faults (plan_programs/), a process without pyprof times its steps, and others capture it with
`pyprof.profile(warmup=6)`, in turns: without, capture, without, capture, without. OUT/steps.json has, in ms per step,
what the process without pyprof measured in each of its turns (blocks between two synchronisations), and the names of
the captures, OUT/NAME.1.json.gz and so on. What a capture tells is read from it afterwards, where there is time:

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
WARM, BLOCK, BLOCKS, AT_A_TIME = 3, 4, 3, 6
TIMED, CAPTURED = 8, 2
PREPARE_S, TURN_S, WRITE_S = 90.0, float(os.environ.get("TURN_S", "30")), 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description="steps that captures tell, and steps without pyprof")
    parser.add_argument("out", type=Path)
    parser.add_argument("--folder", default=str(HERE / "plan_programs"), help="one or several, separated by commas")
    parser.add_argument("--programs", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--captures", type=int, default=2, help="of each program")
    parser.add_argument("--tiny", action="store_true", help="small sizes, as without a GPU")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    finish(*prepare(options), options)


def prepare(options: argparse.Namespace) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """All processes, of each program that without pyprof first; and what is known of each program."""
    sys.path.insert(0, str(HERE))
    import torch  # noqa: F401 (once, for all processes; nothing here may ask for the GPU)
    from turns import InTurn

    found = {path.stem: path for folder in options.folder.split(",") for path in sorted(Path(folder).glob("*.py"))}
    names = options.programs.split(",") if options.programs else [*found]
    processes: dict[str, list[Any]] = {}
    for name in names:
        plain = InTurn(str(options.out / f"{name}.0.out"), without, found[name], options)
        captures = [
            InTurn(str(options.out / f"{name}.{number}.out"), capture, found[name], options, number)
            for number in range(1, options.captures + 1)
        ]
        processes[name] = [plain, *captures]
    return processes, {}


def finish(processes: dict[str, list[Any]], found: dict[str, Any], options: argparse.Namespace) -> None:
    """Their turns, program by program."""
    until = time.monotonic() + PREPARE_S
    for each in [one for some in processes.values() for one in some]:
        each.waits(until)
    for name, (plain, *captures) in processes.items():
        begun = time.monotonic()
        turns = [plain.turn(begun + TURN_S)]
        for each in captures:
            turns += [each.turn(begun + TURN_S), plain.turn(begun + TURN_S)]
        file = options.out / f"{name}.without.json"
        found[name] = {"without": json.loads(file.read_text()) if file.exists() else [], "turns": turns}
        print(name, found[name]["without"], turns, f"{time.monotonic() - begun:.1f} s", flush=True)
        (options.out / "steps.json").write_text(json.dumps(found, indent=1))
        plain.end(0)
    late = time.monotonic() + WRITE_S
    writing = [each for _, *captures in processes.values() for each in captures]
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


def without(path: Path, options: argparse.Namespace) -> None:
    from plan_measured import in_a_block
    from turns import wait

    step = made(path, options)
    turns: list[list[float]] = []
    while True:
        wait()
        for _ in range(WARM):
            step()
        turns.append([round(in_a_block(step, BLOCK)[0], 4) for _ in range(BLOCKS)])
        assert "pyprof" not in sys.modules
        (options.out / f"{path.stem}.without.json").write_text(json.dumps(turns))


def capture(path: Path, options: argparse.Namespace, number: int) -> None:
    from turns import wait

    step = made(path, options)
    import pyprof

    wait()
    for _ in range(WARM):
        step()
    file = options.out / f"{path.stem}.{number}.json.gz"
    with pyprof.profile(file, force=True, trace=True, warmup=TIMED, steps=CAPTURED):
        for _ in range(TIMED + CAPTURED):
            step()
            pyprof.step()
        wait()


if __name__ == "__main__":
    main()
