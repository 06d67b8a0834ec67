"""The process that reads GPUs for ``--nvml``: it takes orders on standard input and answers on standard output.

Orders and answers are JSON, one a line. ``{"read": [device, uuid]}`` opens a GPU, ``{"begin": seconds}`` drops what was
read and begins to read in that period, ``{"end": null}`` stops and is answered with the readings. It ends with
``{"quit": null}``, with its input, or when the process that started it has gone.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from array import array
from collections.abc import Iterable
from typing import Any, TextIO

from pyprof.errors import PyprofError
from pyprof.nvml import Gpu, Nvml, Reading

MOST = 1 << 16  # readings of one GPU that are kept, 4 MiB; then every second one is dropped, and the period doubles
# The counter is read with every eighth reading and the last one. On an H200 it takes 2.5 ms, and a sensor 1 to 7 µs:
# read with every second one, it was 25 ms of the driver's time in a second; so it is 6. Power says what is between.
ENERGY_EACH = 8
RESOLUTION_NS = 1000  # of the times
UNKNOWN = -1  # in an array


class _Track:
    """The readings of one GPU."""

    def __init__(self, device: int, gpu: Gpu) -> None:
        self.device, self.gpu = device, gpu
        self.clear()

    def clear(self) -> None:
        self.time_ns = array("q")
        self.values = {name: array("q") for name in Reading._fields}

    def read(self, last: bool = False) -> None:
        before = time.time_ns()
        reading = self.gpu.read(energy=last or len(self.time_ns) % ENERGY_EACH == 0)
        at = (before + time.time_ns()) // 2
        if len(self.time_ns) and at - self.time_ns[-1] < RESOLUTION_NS:
            return  # the system's clock was set back
        self.time_ns.append(at)
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
            "time_us": [(at - begin) // RESOLUTION_NS for at in self.time_ns],
            **{name: [None if v == UNKNOWN else v for v in values] for name, values in known.items()},
        }


class Reader:
    """Reads its GPUs in a period, within bounded memory."""

    def __init__(self, nvml: Nvml) -> None:
        self.period = 0.0  # seconds; 0: not reading
        self._nvml = nvml
        self._tracks: dict[int, _Track] = {}
        self._problems: dict[int, str] = {}  # by device: why it cannot be read

    def begin(self, period: float) -> None:
        self.period = period
        for track in self._tracks.values():
            track.clear()
        self.tick()

    def add(self, device: int, uuid: str) -> None:
        """Open a GPU, and read it from now on."""
        try:
            track = self._tracks[device] = _Track(device, self._nvml.gpu(uuid))
        except PyprofError as error:
            self._problems[device] = str(error)
            return
        if self.period:
            track.read()

    def tick(self, last: bool = False) -> None:
        for track in self._tracks.values():
            track.read(last)
        if any(len(track.time_ns) >= MOST for track in self._tracks.values()):
            for track in self._tracks.values():
                track.thin()
            self.period *= 2

    def end(self) -> dict[str, Any]:
        self.tick(last=True)
        gpus = [track.record() for _, track in sorted(self._tracks.items())]
        period, self.period = self.period, 0.0
        return {"period_ns": round(period * 1e9), "gpus": gpus, "problems": sorted(self._problems.items())}


def serve(source: Iterable[str] = sys.stdin, out: TextIO = sys.stdout) -> None:
    """Take orders until their end. The first answer says whether NVML can be used."""
    try:
        nvml = Nvml()
    except PyprofError as error:
        _answer({"error": str(error)}, out)
        return
    _answer({}, out)
    orders: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_forward, args=(source, orders), daemon=True).start()
    reader, parent = Reader(nvml), os.getppid()
    due = 0.0
    while os.getppid() == parent:
        try:
            order = orders.get(timeout=max(due - time.monotonic(), 0) if reader.period else 1)
        except queue.Empty:
            if reader.period:
                due = max(due + reader.period, time.monotonic())
                reader.tick()
            continue
        what = json.loads(order) if order is not None else {"quit": None}
        if "quit" in what:
            break
        due = _obey(what, reader, out, due)
    nvml.close()


def _obey(order: dict[str, Any], reader: Reader, out: TextIO, due: float) -> float:
    """Do what an order says; returns when the next reading is due."""
    if "read" in order:
        reader.add(*order["read"])
    elif "begin" in order:
        reader.begin(order["begin"])
        return time.monotonic() + reader.period
    elif "end" in order:
        _answer(reader.end(), out)
    return due


def _forward(source: Iterable[str], orders: queue.Queue[str | None]) -> None:
    for line in source:
        orders.put(line)
    orders.put(None)


def _answer(value: dict[str, Any], out: TextIO) -> None:
    out.write(json.dumps(value, separators=(",", ":")) + "\n")
    out.flush()
