"""Write PyTorch's Chrome trace as valid JSON, with our markers' texts and without the names of machine and user.

This runs once, after collecting has ended; it reads and writes each line of the trace.
"""

import gzip
import io
import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from pyprof import files
from pyprof.errors import PyprofError

_TOKEN = re.compile(r'"(pyprof#\d+)"')
_NAME = re.compile(r'^(\s*"name": ")(.*)(",?\s*)$')
# Up to PyTorch 2.12 these fields share an event's first line; since 2.13 each has its own line (seen in 2.11 and 2.13).
_ONE_LINE = re.compile(r'^(\s*"ph": "X", "cat": ")(\w+)(", "name": ")(.*)(", "pid": .*)$', re.DOTALL)
# Keys whose string values identify the machine or the user (host_name, traceName and trace_id: seen in 2.13).
_PRIVATE = re.compile(r'("(?:host_?name|traceName|trace_id|user_?name)"\s*:\s*")(?:[^"\\]|\\.)*"', re.IGNORECASE)


def check_output(file: Path, force: bool) -> None:
    """Raise PyprofError if `file` cannot be written, or exists and `force` is not given."""
    if file.exists() and not file.is_dir() and not force:
        raise PyprofError(f"{file}: exists; give --force (in Python: force=True) to overwrite it, or another name")
    files.check_output(file, force=True)
    folder = file.absolute().parent
    if not os.access(folder, os.W_OK):
        raise PyprofError(f"{file}: cannot be written: the folder {folder} is read-only for this user")


def write_trace(
    profiler: Any, texts: dict[str, str], file: Path, force: bool, own: Mapping[str, Any] | None = None
) -> None:
    """Export the profiler's records to `file`, with the markers' texts in place of their tokens (token -> text).

    own: what pyprof itself recorded, for the trace's key "pyprof"; each of its parts has a version of its own.
    The file appears when it is complete. Raises PyprofError as `check_output` does.
    """
    folder = file.absolute().parent
    with tempfile.TemporaryDirectory(dir=folder, prefix=".pyprof-") as scratch:
        raw, done = Path(scratch, "raw.json"), Path(scratch, "done")
        profiler.export_chrome_trace(str(raw))
        mend_trace(raw, done, texts, own or {}, file.suffix == ".gz")
        check_output(file, force)
        os.replace(done, file)


def mend_trace(raw: Path, done: Path, texts: dict[str, str], own: Mapping[str, Any], zipped: bool = False) -> None:
    """Write what a profiler exported to ``raw`` as ``write_trace`` would; the process need not be the program's."""
    with open(raw, encoding="utf-8", errors="replace") as lines, _open_text(done, zipped) as out:
        out.writelines(with_own(repaired(lines, texts), own))


# The categories that say how a graph was captured. A launch without a GPU operation was captured.
RANGES = frozenset(("cpu_op", "user_annotation"))
KEPT = RANGES | frozenset("cuda_runtime cuda_driver kernel gpu_memcpy gpu_memset".split())


def event_text(recorded: Iterable[list[dict[str, Any]]]) -> str:
    """Events of captures of graphs as the JSON text of one trace, with nothing else in it.

    Each profiler counts its ops ("External id") from the same number, and so does CUPTI its calls ("correlation") after
    it has been let go (cupti.py). So the later ones' are raised.
    """
    kept = []
    for number, events in enumerate(recorded):
        for event in events:
            if event.get("cat") in KEPT:
                for counted in ("External id", "correlation"):
                    if counted in event["args"]:
                        event["args"][counted] += number << 32
                kept.append(event)
    return json.dumps({"traceEvents": kept}, separators=(",", ":"))


def events_of(profiler: Any, texts: dict[str, str]) -> list[dict[str, Any]]:
    """The events of the profiler's trace, with the markers' texts in place of their tokens (token -> text)."""
    return list(_trace_of(profiler, texts)["traceEvents"])


def _trace_of(profiler: Any, texts: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pyprof-") as scratch:
        raw = Path(scratch, "raw.json")
        profiler.export_chrome_trace(str(raw))
        with open(raw, encoding="utf-8", errors="replace") as lines:
            return dict(json.loads("".join(repaired(lines, texts))))


def recorded_ranges(profiler: Any, texts: dict[str, str]) -> list[dict[str, Any]]:
    """The ops and ranges that a profiler recorded, with ``start_ns`` of the clock CLOCK_REALTIME and ``duration_ns``.

    Since PyTorch 2.4 the times of a trace are those since its key ``baseTimeNanoseconds``.
    """
    trace = _trace_of(profiler, texts)
    base = int(trace.get("baseTimeNanoseconds", 0))
    found = [event for event in trace["traceEvents"] if event.get("cat") in RANGES and "dur" in event]
    for event in found:
        event["start_ns"], event["duration_ns"] = base + round(1e3 * event["ts"]), round(1e3 * event["dur"])
    return found


class Recording:
    """What a profiler of PyTorch that has ended recorded: in memory, or, after keep(), in a file of its own.

    Kineto converts the times of CUDA's calls and of the GPU's work when it writes them, by the clock of the profiler
    that began last. After another one has begun, all of them are written with time 0 (seen with 2.11 on an H200). So
    keep() is to be called before another profiler begins. Without a GPU there are no such times.
    """

    def __init__(self, profiler: Any, folder: Path, on_gpu: bool) -> None:
        self.profiler = profiler
        self._folder, self._on_gpu = folder, on_gpu
        self._kept: Path | None = None
        self._remove: Callable[[], object] | None = None

    def keep(self) -> None:
        """Write the records to a file, in a folder that is removed by forget() or when the process ends."""
        if self._on_gpu and self._kept is None:
            scratch = tempfile.mkdtemp(dir=self._folder, prefix=".pyprof-")
            self._remove = weakref.finalize(self, _remove_own, scratch, os.getpid())
            self._kept = Path(scratch, "kept.json")
            self.profiler.export_chrome_trace(str(self._kept))

    def forget(self) -> None:
        """Remove the file, if there is one."""
        if self._remove is not None:
            self._remove()

    def export_chrome_trace(self, path: str) -> None:
        """As PyTorch's profilers have it."""
        if self._kept is None:
            self.profiler.export_chrome_trace(path)
        else:
            shutil.copyfile(self._kept, path)


def _remove_own(folder: str, pid: int) -> None:
    """Remove a folder, but not in a forked child: it is the parent's."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _open_text(path: Path, zipped: bool) -> Iterator[TextIO]:
    with open(path, "wb") as file:
        # gzip level 1 is three times as fast as 9; the file is a fifth larger. The gzip header has no name and no time.
        binary = gzip.GzipFile("", "wb", 1, file, mtime=0) if zipped else file
        with io.TextIOWrapper(cast(BinaryIO, binary), encoding="utf-8", newline="\n") as text:
            yield text


def with_own(lines: Iterable[str], own: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a trace with the key "pyprof" before its events; without it if there is nothing to say."""
    for line in lines:
        if own and '"traceEvents"' in line:
            yield f'  "pyprof": {json.dumps(own, separators=(",", ":"))},\n'
            own = {}
        yield line


def repaired(lines: Iterable[str], texts: dict[str, str]) -> Iterator[str]:
    """Kineto's lines with exact names. Our markers' events get the category of user ranges, user_annotation."""
    category = ""
    for line in lines:
        event = _ONE_LINE.match(line)
        if event is not None:
            yield _event(event, texts)
            continue
        if '"cat": "cpu_op"' in line:
            yield category
            category = line
            continue
        if "pyprof#" in line and _TOKEN.search(line):
            category = category.replace("cpu_op", "user_annotation")
            line = _TOKEN.sub(lambda token: json.dumps(texts.get(token[1], token[1])), line)
        elif '"name"' in line:
            line = _escaped(line)
        else:
            line = _PRIVATE.sub(r'\1"', line)
        yield category
        category = ""
        yield line
    yield category


def _event(event: re.Match[str], texts: dict[str, str]) -> str:
    """An event's first line, in the form of PyTorch up to 2.12."""
    before, category, between, name, after = event.groups()
    if name in texts:
        return f"{before}user_annotation{between}{json.dumps(texts[name])[1:-1]}{after}"
    name = json.dumps(name)[1:-1] if '"' in name else name
    return f"{before}{category}{between}{name}{after}"


def _escaped(line: str) -> str:
    """The line with the quotes in the event's name escaped, since Kineto does not escape them."""
    parts = _NAME.match(line)
    if parts is None or '"' not in parts[2]:
        return line
    return f"{parts[1]}{json.dumps(parts[2])[1:-1]}{parts[3]}"
