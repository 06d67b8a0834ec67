"""Steps without the profiler as captures tell them, beside steps measured without it.

    PYTHONPATH=. python tools/replay_unprofiled.py FOLDER ...

FOLDER has what tests/device/plan_unprofiled.py writes (steps.json and captures: the program ran in turns in processes
with and without pyprof), or tests/device/plan_measured.py (NAME.json, beside it or in captures/ the captures that it
names: steps of the same process, before it). Prints, for each capture, the step without pyprof in ms (the median of its
turns, the least and the greatest), the step that the summary gives, which was timed before the profiler started, and
that of the replay without the profiler's cost; both also as a difference from the median of the turns.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from pyprof.prof.load import load_table
from pyprof.prof.replay.replayed_run import replay
from pyprof.prof.replay.without_profiler import without_profiler
from pyprof.prof.timing.profiler_cost import unprofiled
from pyprof.prof.timing.stragglers import meetings

NEAR = 0.05


def captures(folder: Path) -> Iterator[tuple[Path, list[float]]]:
    """The captures of a folder, and the median step of each turn without pyprof, ms."""
    turns = folder / "steps.json"
    if turns.exists():
        for name, row in json.loads(turns.read_text(encoding="utf-8")).items():
            for path in sorted(folder.glob(f"{name}.[0-9].json.gz")):
                yield path, [median(turn) for turn in row["without"]]
        return
    for path in sorted(folder.glob("*.json")) + sorted((folder / "results").glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        for capture in found.get("captures", {}).values() if isinstance(found, dict) else ():
            places = (folder / capture["file"], folder / "captures" / capture["file"])
            yield next(place for place in places if place.exists()), [median(capture["wall_before"])]


def told(file: Path) -> tuple[float, float, float]:
    """A capture's step in ms: as timed before the profiler started, by the replay without its cost, and captured."""
    loaded = load_table(str(file), lambda _: None, host=True)
    assert loaded.host is not None, file
    timed = unprofiled(loaded.table.measured)
    assert timed is not None, file
    _, found = without_profiler(replay(loaded.table, loaded.host, loaded.name, meetings(loaded.table)))
    return timed.step_ns / 1e6, found.step_ns / 1e6, found.profiled_ns / 1e6


def main(folders: Sequence[str]) -> None:
    print("| program | without pyprof, ms | captured, ms | the summary's step | the replay's |")
    print("|---|--:|--:|--:|--:|")
    apart: list[tuple[float, float]] = []
    for folder in folders:
        for file, turns in captures(Path(folder)):
            timed, replayed, profiled = told(file)
            apart.append((timed / median(turns) - 1, replayed / median(turns) - 1))
            cells = [f"{ms:.1f} ({part:+.1%})" for ms, part in zip((timed, replayed), apart[-1], strict=True)]
            each = f"{median(turns):.1f} ({min(turns):.1f} to {max(turns):.1f})"
            print(f"| {file.name.removesuffix('.json.gz')} | {each} | {profiled:.1f} | {cells[0]} | {cells[1]} |")
    near = [sum(abs(part) <= NEAR for part in column) for column in zip(*apart, strict=True)]
    print(f"\nWithin {NEAR:.0%}, of {len(apart)}: {near[0]} of the summary's steps, {near[1]} of the replay's")


if __name__ == "__main__":
    main(sys.argv[1:])
