"""What `pyprof run` does for the children of its program: the environment that makes Python collect them, and the end.

The environment names a folder (on_path/) whose sitecustomize each child's Python imports, and the orders for the child.
Nothing is installed, and both are gone when the run has ended.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyprof.files import scratch_folder
from pyprof.processes.child_capture import VARIABLE, Orders, Report

ON_PATH = str(Path(__file__).with_name("on_path"))
ENDING_S = 10.0  # how long ^C, which all processes have got, may take a child until it writes its capture
_POLL_S = 0.05


class Children:
    """The children of a run. ``folder``: where their reports are; None if they are left alone."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self.reports: list[Report] = []

    def settle(self, interrupted: bool) -> None:
        """Read what the children report, once those that are writing have done so. A further ^C ends the waiting."""
        until = time.monotonic() + (ENDING_S if interrupted else 0)
        with suppress(KeyboardInterrupt):
            while self._are_at_work(("writing", "running") if time.monotonic() < until else ("writing",)):
                time.sleep(_POLL_S)

    def _are_at_work(self, states: tuple[str, ...]) -> bool:
        self._read()
        at_work = any(report.state in states and is_alive(report.pid) for report in self.reports)
        if not at_work:
            self._read()  # what one of them has written between its last report and its end
        return at_work

    def _read(self) -> None:
        files = [] if self._folder is None else sorted(Path(self._folder).glob("*.json"))
        found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        self.reports = [Report(*report) for report in found]

    @property
    def written(self) -> list[Report]:
        """Those that have written a capture, in the order of their ranks, and then of their numbers."""
        found = [report for report in self.reports if report.state == "written"]
        return sorted(found, key=lambda report: (report.rank is None, report.rank or 0, report.pid))

    @property
    def running(self) -> list[Report]:
        """Those that are at work still."""
        return [report for report in self.reports if report.state in ("running", "writing") and is_alive(report.pid)]

    def warnings(self) -> list[str]:
        """What the user should know of the captures, and which are missing."""
        told = []
        missing: dict[str, list[str]] = {}  # why there is no capture, and of which processes
        for report in self.reports:
            who = f"process {report.pid}" if report.rank is None else f"rank {report.rank} (process {report.pid})"
            if report.state == "written":
                told += [f"{who}: {warning}" for warning in report.warnings]
            elif report.state == "failed":
                missing.setdefault("; ".join(report.warnings), []).append(who)
            elif report.state in ("running", "writing") and not is_alive(report.pid):
                missing.setdefault("it was ended before it could write one", []).append(who)
        for why, which in missing.items():
            others = f" and {len(which) - 1} other{'s' if len(which) > 2 else ''}" if len(which) > 1 else ""
            told.append(f"{which[0]}{others} {'have' if others else 'has'} no capture: {why}")
        return told


@contextmanager
def following(orders: Orders | None) -> Iterator[Children]:
    """Make the children that start in the block collect themselves. ``orders`` without ``reports``; None: no children.

    The environment of this process is as before when the block ends.
    """
    if orders is None:
        yield Children()
        return
    before = {name: os.environ.get(name) for name in (VARIABLE, "PYTHONPATH")}
    with scratch_folder(prefix="pyprof-children-") as folder:
        orders._replace(reports=folder).give()
        path = before["PYTHONPATH"]
        if ON_PATH not in (path or "").split(os.pathsep):
            os.environ["PYTHONPATH"] = f"{ON_PATH}{os.pathsep}{path}" if path else ON_PATH
        try:
            yield Children(folder)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def is_alive(pid: int) -> bool:
    """Whether a process runs. One that has ended does not, even while its parent has not asked how."""
    try:
        if hasattr(os, "waitid") and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return False
    except ChildProcessError:  # a grandchild, or a child of whose end its parent knows
        pass
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0] not in ("Z", "X")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return not Path("/proc/self").exists()
