"""The replay without the profiler's cost beside steps measured without it: python tools/replay_unprofiled.py FOLDER ...

FOLDER has what tests/device/plan_measured.py writes: NAME.json, and beside it or in captures/ the captures that it
names. The steps without a profiler, timed just before a capture, stand for those of its warmup. Prints, for each
capture, how much longer or shorter the replay's step is, and nothing else of what was measured.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyprof.prof.load import load_table
from pyprof.prof.replay.replayed_run import replay
from pyprof.prof.replay.without_profiler import without_profiler
from pyprof.prof.simulation.cli import meetings
from pyprof.table.columns import Table
from pyprof.table.measured_steps import MeasuredStep

NEAR = 0.05


def captures(folder: Path) -> Iterator[tuple[Path, list[float]]]:
    """The captures of a folder, and the steps before each, ms."""
    for path in sorted(folder.glob("*.json")) + sorted((folder / "results").glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        for capture in found.get("captures", {}).values() if isinstance(found, dict) else ():
            places = (folder / capture["file"], folder / "captures" / capture["file"])
            yield next(place for place in places if place.exists()), capture["wall_before"]


def ratio(file: Path, walls: Sequence[float]) -> float:
    """The replay's step by the measured one."""
    loaded = load_table(str(file), lambda _: None, host=True)
    assert loaded.host is not None
    measured = [MeasuredStep(number, round(wall * 1e6), round(wall * 1e6)) for number, wall in enumerate(walls)]
    table = Table(len(loaded.table), loaded.table.columns, loaded.table.samples, measured)
    found = without_profiler(replay(table, loaded.host, loaded.name, meetings(table)))
    return found.step_ns / 1e6 / statistics.median(walls[len(walls) // 2 :])


def main(folders: Sequence[str]) -> None:
    near = []
    for folder in folders:
        for file, walls in captures(Path(folder)):
            found = ratio(file, walls)
            near.append(abs(found - 1) <= NEAR)
            print(f"{file.name.removesuffix('.json.gz'):20} {found - 1:+.1%}")
    print(f"{sum(near)} of {len(near)} within {NEAR:.0%}")


if __name__ == "__main__":
    main(sys.argv[1:])
