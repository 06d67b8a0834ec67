"""Runs of the script, each a process of its own, and what became of each."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pyprof.capture.run_script import Script
from pyprof.variants.run_record import RunRecord, Settings, read_record, write

CHILD = "pyprof.variants.variant_script"  # the module that runs the script


class Options(NamedTuple):
    """What all runs have in common."""

    warmup: int
    steps: int
    rest_s: float  # of the first run of the script as it is
    limit_s: float  # of each run, then it is killed
    workers: int


class Ran(NamedTuple):
    """How a run ended."""

    code: int  # -N: by signal N
    record: RunRecord | None
    error: str  # the last line on standard error; empty if there was none, or it was the user's to read


class Runner:
    """Runs the script; ``folder`` gets the files of each run."""

    def __init__(self, script: Script, options: Options, folder: Path, to_standard_error: bool) -> None:
        self._script, self._options, self._folder = script, options, folder
        self._stdout = sys.stderr if to_standard_error else None
        self._runs = 0

    def run(self, changes: Sequence[str], shown: bool = False) -> Ran:
        """Run the script with these changes. ``shown``: with its own input and output, and until its own end."""
        self._runs += 1
        stem = f"{self._runs:02}-{'+'.join(changes) or 'as-it-is'}"
        settings, record, out, errors = (
            self._folder / f"{stem}.{end}" for end in ("settings.json", "json", "out", "err")
        )
        write(str(settings), self._settings(changes, record, shown))
        command = [sys.executable, "-m", CHILD, str(settings)]
        if shown:
            code, late = _wait(subprocess.Popen(command, stdout=self._stdout), self._limit(shown))
        else:
            with out.open("wb") as stdout, errors.open("wb") as stderr:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
                code, late = _wait(process, self._limit(shown))
        error = f"it was ended after {self._limit(shown):.0f} s (--limit)" if late else ""
        if code and not shown and not error:
            error = last_line(errors.read_bytes().decode("utf-8", "replace")) or ended_by(code)
        try:
            return Ran(code, read_record(record), error)
        except msgspec.DecodeError:  # it was killed while it wrote
            return Ran(code, None, error)

    def _limit(self, shown: bool) -> float:
        return self._options.limit_s + (self._options.rest_s if shown else 0)

    def _settings(self, changes: Sequence[str], record: Path, shown: bool) -> Settings:
        script, options = self._script, self._options
        return Settings(
            script=script.name,
            args=list(script.args),
            module=script.module,
            changes=list(changes),
            warmup=options.warmup,
            steps=options.steps,
            rest_s=options.rest_s if shown else 0.0,
            record=str(record.resolve()),
            workers=options.workers,
        )


def _wait(process: subprocess.Popen[Any], limit_s: float) -> tuple[int, bool]:
    """The exit code, and whether the process was killed at the limit. No process outlives this call."""
    try:
        return process.wait(limit_s), False
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(), True
    except KeyboardInterrupt:  # ^C reached the script, too
        try:
            process.wait(5)
        finally:
            process.kill()
        raise


def last_line(text: str) -> str:
    """The last line of an output that is not blank.

    >>> last_line("Traceback ...\\nValueError: no\\n\\n")
    'ValueError: no'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def ended_by(code: int) -> str:
    """How a process ended that wrote nothing.

    >>> ended_by(-9), ended_by(3)
    ('it was ended by SIGKILL', 'it ended with exit code 3')
    """
    if code < 0:
        try:
            return f"it was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was ended by signal {-code}"
    return f"it ended with exit code {code}"
