"""``--nvml``: the clocks, power, temperature and energy of the GPUs that the program uses, while it is collected.

A process of its own reads them (clock_reader.py). A thread of the program needs Python's global lock after each sensor,
and takes it from the program: so read, steps whose pace Python sets took some percent longer. Here a thread only looks
which GPUs the program uses.

A reading is kept with the Unix time (ns) at which it was taken, as Kineto's events are, so that both lie on one clock.
A GPU is read from when the program has allocated memory on it; CUDA is never initialised for this.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyprof.errors import PyprofError

VERSION = 1
# Seconds between two readings. On an H200 (driver 580), NVML's clocks, instant power, temperature and energy counter
# change every 0.1 s (docs/explanation/performance.md): this is twice as often, so that no value is missed.
PERIOD = 0.05
FIND_AGAIN = 1.0  # seconds after which GPUs that the program did not use before are looked for again
PATIENCE = 20  # seconds for an answer of the process
CODE = "import json, sys; sys.path[:0] = json.loads(sys.argv[1]); from pyprof.clock_reader import serve; serve()"


class ClockSampler:
    """Reads the GPUs from ``begin`` to ``end``, which may follow each other several times.

    Raises PyprofError, in one line, if NVML cannot be used.
    """

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._pid = os.getpid()
        self._found: set[int] = set()
        self._problems: dict[int, str] = {}  # by device: why it is not read
        self._lost = ""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = _start()
        ready = self._answer()
        if ready is None or "error" in ready:
            self.close()
            raise PyprofError(ready["error"] if ready else "the process that reads NVML ended at once")

    def begin(self) -> None:
        if os.getpid() != self._pid:  # a forked child: the process is its parent's
            return
        self._find()
        self._order({"begin": self._period})
        self._stop.clear()
        self._thread = threading.Thread(target=self._look, name="pyprof --nvml", daemon=True)
        self._thread.start()

    def end(self) -> dict[str, Any] | None:
        """Stop, and return what was read, for the trace's key ``pyprof``; None if no GPU was."""
        thread, self._thread = self._thread, None
        if thread is None or os.getpid() != self._pid:
            return None
        self._stop.set()
        thread.join()
        self._find()
        self._order({"end": None})
        read = self._answer()
        if read is None:
            self._lost = f"the process that reads NVML ended with code {self._process.wait()}: nothing was read"
            return None
        self._problems.update((device, why) for device, why in read["problems"])
        if not read["gpus"]:
            return None
        return {"version": VERSION, "pid": self._pid, "period_ns": read["period_ns"], "gpus": read["gpus"]}

    def close(self) -> None:
        """End the process."""
        if os.getpid() != self._pid:
            return
        self._order({"quit": None})  # forked children may hold the pipe open, so that its end never comes
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def warnings(self) -> list[str]:
        """Why GPUs were not read."""
        texts = [f"--nvml: GPU {device} is not read: {why}" for device, why in sorted(self._problems.items())]
        return [*texts, *([f"--nvml: {self._lost}"] if self._lost else [])]

    def _look(self) -> None:
        """Look for GPUs that the program begins to use."""
        while not self._stop.wait(FIND_AGAIN if self._found else self._period):
            self._find()

    def _find(self) -> None:
        for device in _used_devices(self._found):
            self._found.add(device)
            try:
                self._order({"read": [device, _uuid(device)]})
            except PyprofError as error:
                self._problems[device] = str(error)

    def _order(self, order: dict[str, Any]) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with self._lock, suppress(OSError):  # it may have ended: its next answer, which is none, says so
            pipe.write(json.dumps(order) + "\n")
            pipe.flush()

    def _answer(self) -> dict[str, Any] | None:
        """The next answer; None if the process has ended, or did not answer in time and was killed."""
        pipe = self._process.stdout
        assert pipe is not None
        watch = threading.Timer(PATIENCE, self._process.kill)
        watch.start()
        line = pipe.readline()
        watch.cancel()
        found: dict[str, Any] | None = json.loads(line) if line.endswith("\n") else None
        return found


def _start() -> subprocess.Popen[str]:
    """Start the process, in its own session: ^C is the program's, which then asks for the readings."""
    if not sys.executable:
        raise PyprofError("this Python does not know its own executable, which would read NVML")
    command = [sys.executable, "-E", "-S", "-c", CODE, json.dumps(_folders())]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    try:
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=nowhere, text=True, encoding="utf-8", start_new_session=True
        )
    except OSError as error:
        raise PyprofError(f"no process could be started to read NVML: {error.strerror or error}") from None


def _folders() -> list[str]:
    """Where the process finds pyprof and nvidia-ml-py; without ``site`` it starts in a fraction of the time."""
    found = [str(Path(__file__).resolve().parents[1])]
    with suppress(ValueError):  # a module that was put in place by hand
        spec = importlib.util.find_spec("pynvml")
        if spec is not None and spec.origin is not None:
            found.append(str(Path(spec.origin).parent))
    return found


def _used_devices(known: Set[int]) -> list[int]:
    """Further CUDA devices on which this process has memory; none before it has initialised CUDA."""
    import torch

    if not torch.cuda.is_initialized():
        return []
    others = set(range(torch.cuda.device_count())) - known
    return [device for device in sorted(others) if torch.cuda.memory_reserved(device)]


def _uuid(device: int) -> str:
    """The UUID of a CUDA device. CUDA numbers devices otherwise than NVML, and CUDA_VISIBLE_DEVICES hides some."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if uuid is None:
        raise PyprofError(f"PyTorch {torch.__version__} does not report the GPU's UUID; 2.5 and later do")
    return str(uuid)
