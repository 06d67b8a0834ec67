"""From the captures of job_programs.py to goldens: both ranks' kernels and calls of three steps, by one clock.

    python tests/device/job_goldens.py OUT CASE TARGET.pyprof [4,5,6]    # OUT/CASE/rank0.json.gz, .. of job_programs.py

The captured steps are 2 to 6. The first of those taken leads in: only its end counts. Also prints what
tests/golden/ranks/truth.json needs of the case.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from pyprof.parse.merge import apart, host_apart
from pyprof.prof.job.cli import main as ranks_command
from pyprof.prof.job.job_folder import read_job
from pyprof.prof.job.joint_ranks import _Cut, _read_cut, _Wanted
from pyprof.prof.ranks.rank_clocks import clocks
from pyprof.table.columns import Table
from pyprof.table.container import Container, write_container
from pyprof.table.kernel_names import name_wrappers

STEPS = "4,5,6"
FIRST = 2  # the number of the first captured step


def main(out: Path, case: str, target: Path, steps: tuple[int, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ranks_command([*map(str, sorted((out / case).glob("rank*.json.gz"))), "-o", folder, "--workers", "1", "-q"])
        cuts = cuts_of(Path(folder), steps)
    table, host = name_wrappers(Table.concat(apart([each.table for each in cuts]))), host_apart(cuts)
    write_container(Container(table, None, "torch.profiler", (case,), (), host), target, True)
    sys.stdout.write(json.dumps({case: truth_of(out, case, steps)}) + "\n")


def cuts_of(folder: Path, steps: tuple[int, ...]) -> list[_Cut]:
    job = read_job(folder)
    ahead = {clock.rank: round(clock.ahead_ns or 0.0) for clock in clocks(job.ranks.clocks, job.ranks.numbers)}
    return [*map(partial(_read_cut, str(folder)), (_Wanted(p.folder, steps, ahead[p.ranks[0]]) for p in job.made))]


def truth_of(out: Path, case: str, steps: tuple[int, ...]) -> dict[str, Any]:
    records = [each for file in sorted(out.glob("truth-*.json")) for each in json.loads(file.read_text())]
    mine = sorted((each for each in records if each["case"] == case), key=lambda each: each["rank"])
    found: dict[str, Any] = {"step_ms": [round(statistics.median(each["step_ms"]), 3) for each in mine]}
    for each in mine:
        if each["slow"]:
            found["slow"] = each["rank"]
            captured = each["captured_injected_ms"][steps[0] - FIRST :]
            found |= {"injected_ms": [round(ms, 3) for ms in captured]} if max(captured) > 1 else {}
    return found


if __name__ == "__main__":
    taken = tuple(int(step) for step in (sys.argv[4] if len(sys.argv) > 4 else STEPS).split(","))
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), taken)
