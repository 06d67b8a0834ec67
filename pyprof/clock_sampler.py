"""``--nvml``: a thread that reads the clocks, power, temperature and energy of the GPUs that the program uses.

A reading is kept with the Unix time (ns) at which it was taken, as Kineto's events are, so that both lie on one clock.
The thread begins to read a GPU when the program has allocated memory on it; it never initialises CUDA itself.
"""

from __future__ import annotations

import os
import threading
import time
from array import array
from typing import Any

from pyprof.errors import PyprofError
from pyprof.nvml import Gpu, Nvml, Reading

VERSION = 1
# Seconds between two readings. On an H200 (driver 580), NVML's clocks, instant power, temperature and energy counter
# change every 0.1 s (docs/explanation/performance.md): this is twice as often, so that no value is missed.
PERIOD = 0.05
ENERGY_EACH = 2  # the counter, which takes longest to read, is read with every second reading
MOST = 1 << 16  # readings of one GPU that are kept, 4 MiB; then every second one is dropped, and the period doubles
FIND_AGAIN = 20  # periods after which GPUs that the program did not use before are looked for again
UNKNOWN = -1  # in an array


class _Track:
    """The readings of one GPU."""

    def __init__(self, device: int, gpu: Gpu) -> None:
        self.device, self.gpu = device, gpu
        self.time_ns = array("q")
        self.values = {name: array("q") for name in Reading._fields}

    def read(self, last: bool = False) -> None:
        before = time.time_ns()
        reading = self.gpu.read(energy=last or len(self.time_ns) % ENERGY_EACH == 0)
        self.time_ns.append((before + time.time_ns()) // 2)
        for name, value in zip(Reading._fields, reading, strict=True):
            self.values[name].append(UNKNOWN if value is None else value)

    def thin(self) -> None:
        for values in (self.time_ns, *self.values.values()):
            values[:] = values[::2]

    def record(self) -> dict[str, Any]:
        begin = self.time_ns[0]
        known = {name: values for name, values in self.values.items() if any(value != UNKNOWN for value in values)}
        return {
            "device": self.device,
            "power": self.gpu.power,
            "sm_limit_mhz": self.gpu.sm_limit_mhz,
            "memory_limit_mhz": self.gpu.memory_limit_mhz,
            "power_limit_mw": self.gpu.power_limit_mw,
            "begin_unix_ns": begin,
            "time_us": [(at - begin) // 1000 for at in self.time_ns],
            **{name: [None if v == UNKNOWN else v for v in values] for name, values in known.items()},
        }


class ClockSampler:
    """Reads the GPUs from ``begin`` to ``end``, which may follow each other several times."""

    def __init__(self, period: float = PERIOD) -> None:
        self.problems: dict[int, str] = {}  # by device: why it cannot be read
        self._nvml = Nvml()
        self._first_period = self._period = period
        self._tracks: dict[int, _Track] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        self._tracks, self._period = {}, self._first_period
        self._tick(find=True)
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="pyprof --nvml", daemon=True)
        self._thread.start()

    def end(self) -> dict[str, Any] | None:
        """Stop, and return what was read, for the trace's key ``pyprof``; None if no GPU was."""
        thread, self._thread = self._thread, None
        if thread is None:
            return None
        self._stop.set()
        thread.join()
        self._tick(find=not self._tracks, last=True)
        if not self._tracks:
            return None
        gpus = [track.record() for _, track in sorted(self._tracks.items())]
        return {"version": VERSION, "pid": os.getpid(), "period_ns": round(self._period * 1e9), "gpus": gpus}

    def close(self) -> None:
        self._nvml.close()

    def _run(self) -> None:
        count = 0
        while not self._stop.wait(self._period):
            count += 1
            self._tick(find=not self._tracks or count % FIND_AGAIN == 0)

    def _tick(self, find: bool, last: bool = False) -> None:
        if find:
            self._find()
        for track in self._tracks.values():
            track.read(last)
        if any(len(track.time_ns) >= MOST for track in self._tracks.values()):
            for track in self._tracks.values():
                track.thin()
            self._period *= 2

    def _find(self) -> None:
        """Open the GPUs on which the program has memory, and which are not open yet."""
        for device in _used_devices():
            if device not in self._tracks and device not in self.problems:
                try:
                    self._tracks[device] = _Track(device, self._nvml.gpu(_uuid(device)))
                except PyprofError as error:
                    self.problems[device] = str(error)

    def warnings(self) -> list[str]:
        """Why GPUs were not read."""
        return [f"--nvml: GPU {device} is not read: {why}" for device, why in sorted(self.problems.items())]


def _used_devices() -> list[int]:
    """The CUDA devices on which this process has memory; none before it has initialised CUDA."""
    import torch

    if not torch.cuda.is_initialized():
        return []
    return [device for device in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(device)]


def _uuid(device: int) -> str:
    """The UUID of a CUDA device. CUDA numbers devices otherwise than NVML, and CUDA_VISIBLE_DEVICES hides some."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if uuid is None:
        raise PyprofError(f"PyTorch {torch.__version__} does not tell its UUID (2.5 does)")
    return str(uuid)
