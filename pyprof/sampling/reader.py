"""A thread that hands sampled traces to another process, and passes on what that one says of them."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from pyprof.errors import PyprofError
from pyprof.sampling.sample import Sample, sample_from

PATIENCE_S = 300  # for one trace
PATIENCE_AT_END_S = 60  # for the last trace when the block ends


class Job(NamedTuple):
    """An exported trace to read."""

    raw: Path
    texts: dict[str, str]
    own: dict[str, Any]
    known: dict[str, Any]  # what the sampler itself knows of the sample


class TraceReader:
    """Takes one job at a time. The process is started with the first one, and ends with `close`."""

    def __init__(
        self, send: Callable[[Sample], None], failed: Callable[[str], None], succeeded: Callable[[], None]
    ) -> None:
        self._send, self._failed, self._succeeded = send, failed, succeeded
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None  # what the process writes on standard error
        self._too_late = ""
        self.busy = False

    @property
    def pid(self) -> int | None:
        """Of the process that reads."""
        return None if self._process is None else self._process.pid

    def give(self, job: Job) -> None:
        """Read the job's trace; call this only while not ``busy``."""
        self.busy = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="pyprof samples", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def close(self) -> None:
        """Wait for the job in progress, and end the process and the thread."""
        if self._thread is None:
            return
        self._jobs.put(None)
        self._thread.join(PATIENCE_AT_END_S)
        if self._thread.is_alive():
            self._too_late = f"it was not read and sent within {PATIENCE_AT_END_S} s"
            if self._process is not None:
                self._process.kill()  # which the thread reports, and then ends
            self._thread.join(PATIENCE_AT_END_S)
            if self._thread.is_alive():  # a destination takes that long
                self._failed(self._too_late)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(job)
        self._end_process()

    def _do(self, job: Job) -> None:
        try:
            self._send(self._read(job))
            self._succeeded()
        except PyprofError as error:
            self._failed(self._too_late or str(error))
        except (OSError, ValueError, TypeError, MemoryError) as error:  # no process, or no valid answer
            self._failed(f"{type(error).__name__}: {error}")
        finally:
            self.busy = False

    def _read(self, job: Job) -> Sample:
        order = {"raw": str(job.raw), "texts": job.texts, "own": job.own}
        answer = self._ask(json.dumps(order))
        if "error" in answer:
            raise PyprofError(f"the trace cannot be read: {answer['error']}")
        return sample_from({**job.known, **answer})

    def _ask(self, order: str) -> dict[str, Any]:
        """The process's answer. If there is none, the process is ended, and the next job starts a new one."""
        if self._process is None:
            self._process = self._start()
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        watch = threading.Timer(PATIENCE_S, process.kill)
        watch.start()
        try:
            with suppress(OSError):  # it has ended, and has no answer
                process.stdin.write(f"{order}\n")
                process.stdin.flush()
            line = process.stdout.readline()
        finally:
            watch.cancel()
        if not line.endswith("\n"):
            raise PyprofError(f"the process that reads traces has ended{self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[str]:
        """Start the process in a session of its own: ^C is the program's."""
        if not sys.executable:
            raise PyprofError("this Python does not know its own executable, which would read the trace")
        found_in = str(Path(__file__).resolve().parents[2])
        folders = os.pathsep.join(filter(None, (found_in, os.environ.get("PYTHONPATH", ""))))
        # One thread: libraries that start one per core would take the cores from the training.
        ours = {"PYTHONPATH": folders, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1", "CUDA_VISIBLE_DEVICES": ""}
        pipe, self._errors = subprocess.PIPE, tempfile.TemporaryFile()  # noqa: SIM115  (until the process has ended)
        return subprocess.Popen(
            [sys.executable, "-m", "pyprof.sampling.digest"],
            stdin=pipe,
            stdout=pipe,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env={**os.environ, **ours},
            start_new_session=True,
        )

    def _last_words(self) -> str:
        """What the process that has ended said last, and its exit code."""
        assert self._process is not None and self._errors is not None
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
        self._end_process()
        return f" with code {code}{f': {lines[-1]}' if lines else ''}"

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._errors is not None:
            self._errors.close()
