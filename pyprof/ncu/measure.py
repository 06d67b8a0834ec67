"""Run ncu on a program, and put its report where the user wants it, as .ncu-rep, as CSV, or both.

ncu writes into a temporary folder, so that no half-written report is left behind. Its messages go into a file there, so
that the program's output stays what it is.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pyprof.errors import PyprofError, UsageError
from pyprof.files import open_output
from pyprof.ncu import counter_access

REPORT = ".ncu-rep"
TABLES = (".csv", ".csv.gz")
# What ncu's errors say, and what to do about them; ERR_NVGPUCTRPERM is counter_access.py's
REMEDIES = (
    (
        "Failed to find metric",
        "this GPU or this version of ncu lacks it: take a newer ncu, or other --metrics",
    ),
    (
        "collecting profiling data",
        "another profiler has the counters: stop it; DCGM's: dcgmi profiling --pause",
    ),
    ("stub libcuda", "the program loads CUDA's stub of libcuda.so: take its folder out of LD_LIBRARY_PATH"),
    (
        "LibraryNotLoaded",
        "the driver's profiling library is missing: a container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility, and "
        "the driver has to be as new as ncu",
    ),
)
ENDED = "{ended}"  # in the program's words: the name of the file into which the script's exit code goes
_PROFILED = re.compile(r"^==PROF== Profiling .*? - (\d+) pass", re.MULTILINE)


class Options(NamedTuple):
    """Options of ncu, with ncu's own words as values."""

    metrics: Sequence[str]
    from_start: bool  # whether to measure before cudaProfilerStart
    replay_mode: str
    clock_control: str
    cache_control: str
    more: Sequence[str]  # as the user gave them

    def words(self) -> list[str]:
        return [
            *("--target-processes", "all"),
            *("--profile-from-start", "on" if self.from_start else "off"),
            "--nvtx",
            *("--replay-mode", self.replay_mode),
            *("--clock-control", self.clock_control),
            *("--cache-control", self.cache_control),
            *("--metrics", ",".join(self.metrics)),
            *self.more,
        ]


class Outputs(NamedTuple):
    """The files to write: at least one."""

    report: Path | None
    table: Path | None

    @property
    def files(self) -> list[Path]:
        return [file for file in self if file is not None]


class Measured(NamedTuple):
    code: int  # the program's exit code
    kernels: int  # as ncu counts them
    passes: int  # how often each ran, at most
    errors: tuple[str, ...]  # ncu's
    written: bool


def outputs(name: str) -> Outputs:
    """
    >>> [str(file) for name in ("a.csv.gz", "run.3") for file in outputs(name).files]
    ['a.csv.gz', 'run.3.ncu-rep', 'run.3.csv']
    """
    if name == "-":
        raise UsageError("argument -o: expected a file's name, found -: standard output is the program's")
    if name.endswith(REPORT):
        return Outputs(Path(name), None)
    if name.endswith(TABLES):
        return Outputs(None, Path(name))
    return Outputs(Path(f"{name}{REPORT}"), Path(f"{name}.csv"))


def measure(
    ncu: str, options: Options, program: Sequence[str], out: Outputs, *, force: bool, to_standard_error: bool
) -> Measured:
    """Run the program under ncu and write the outputs. ``to_standard_error``: its output goes there.

    Raises PyprofError if ncu cannot be run, or measured nothing though the program ended well.
    """
    with tempfile.TemporaryDirectory(prefix="pyprof-ncu-") as name:
        folder = Path(name)
        ended, log, report = folder / "ended", folder / "ncu.log", folder / f"counters{REPORT}"
        command = [ncu, *options.words(), "--log-file", str(log), "--export", str(report.with_suffix(""))]
        code = _run([*command, *(str(ended) if word == ENDED else word for word in program)], to_standard_error)
        said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        code = int(ended.read_text(encoding="ascii")) if ended.exists() else code
        passes = [int(count) for count in _PROFILED.findall(said)]
        errors = tuple(_errors(said))
        if not report.exists():
            _nothing_measured(code, errors)
        else:
            _write(ncu, report, out, force)
        return Measured(code, len(passes), max(passes, default=0), errors, report.exists())


def _run(command: Sequence[str], to_standard_error: bool) -> int:
    """The exit code, 128 + its number for a signal. On ^C, which ncu gets as well, wait until it has written."""
    sys.stdout.flush()
    try:
        process = subprocess.Popen(command, stdout=2 if to_standard_error else None)
    except OSError as error:
        raise PyprofError(f"{command[0]}: cannot be run: {error.strerror or error}") from None
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            continue
        return 128 - code if code < 0 else code


def _errors(said: str) -> Iterable[str]:
    """ncu's errors, each with its remedy if we know one. That the program's exit code is not 0 is none."""
    for text in dict.fromkeys(re.findall(r"^==ERROR== (.+)$", said, re.MULTILINE)):
        if counter_access.ERROR in text:
            yield f"{text.strip()} ({counter_access.remedy()})"
        elif "application returned an error code" not in text:
            remedy = next((f" ({what})" for needle, what in REMEDIES if needle in text), "")
            yield f"{text.strip()}{remedy}"


def _nothing_measured(code: int, errors: Sequence[str]) -> None:
    if errors:
        raise PyprofError(f"ncu: {errors[0]}")
    if not code:
        raise PyprofError(
            "no kernel was measured: the program launched none on a GPU in the range to measure; "
            "--capture-range all measures the whole run, --warmup and --steps choose iterations of training"
        )


def _write(ncu: str, report: Path, out: Outputs, force: bool) -> None:
    """Write the report, and the table that ncu makes of it."""
    if out.report is not None:
        _copy(report, out.report, force)
    if out.table is not None:
        exported = report.with_suffix(".csv")
        command = [ncu, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
        done = subprocess.run([*command, "--log-file", str(exported)], capture_output=True, check=False)
        if done.returncode or not exported.exists():
            said = (done.stderr or done.stdout).decode(errors="replace").strip() or "nothing"
            raise PyprofError(f"{ncu} --import: expected a table, found exit code {done.returncode} and: {said[-300:]}")
        _copy(exported, out.table, force)


def _copy(file: Path, target: Path, force: bool) -> None:
    with file.open("rb") as source, open_output(target, force) as out:
        shutil.copyfileobj(source, out)
