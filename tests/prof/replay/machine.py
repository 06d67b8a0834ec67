"""A host and a GPU in a few lines, which run a program and record it: what a replay must agree with.

It steps through the program in order and shares nothing with ``pyprof.prof.replay``: no graph of tasks, no inference.
"""

from dataclasses import dataclass, field

import numpy as np

from pyprof.table.columns import NULL, Coded, HostTable, Table

CALL, LATENCY, GAP, HANDOFF, WAKE = 4000, 2200, 1100, 1500, 3000  # ns


@dataclass
class Machine:
    """Runs actions: ("work", ns), ("launch", stream, ns), ("record", event, stream), ("wait", stream, event),
    ("join", event) and ("sync", stream): the host waits for it, ("device",): for all, ("poll", stream, ns): it reads
    memory until a kernel has written there, ("fetch", stream, ns): a copy to pageable memory.
    """

    kernel_scale: float = 1.0
    host_scale: float = 1.0
    now: int = 0
    calls: list = field(default_factory=list)  # (name, start, end, corr, stream, index of the record's call)
    rows: list = field(default_factory=list)  # (start, end, stream, corr, kind, name)

    def run(self, program):
        self.ends = {}  # stream -> ends of its operations
        self.held = {}  # stream -> the time before which its next operation does not begin
        self.events = {}  # event -> (time at which it is reached, index of the call)
        for number, (what, *args) in enumerate(program):
            if what == "work":
                self.now += round(args[0] * self.host_scale)
            else:
                self.number = number
                getattr(self, what)(*args)
        return self

    def call(self, name, end, stream=NULL, record=NULL):
        self.calls.append((name, self.now, end, self.number, stream, record))
        self.now = end

    def _enqueue(self, stream, ns, ready, kind, name):
        ends = self.ends.setdefault(stream, [])
        begin = max(ready, self.held.pop(stream, 0), ends[-1] + GAP if ends else 0)
        ends.append(begin + round(ns))
        self.rows.append((begin, ends[-1], stream, self.number, kind, name))
        return ends[-1]

    def poll(self, stream, ns):
        """The host reads memory until a kernel has written there, 30 µs before its end: no call is on record."""
        self.launch(stream, ns, "notify")
        self.now = max(self.now, self.ends[stream][-1] - 30_000)

    def launch(self, stream, ns, name="k"):
        self._enqueue(stream, ns * self.kernel_scale, self.now + CALL + LATENCY, "kernel", name)
        self.call("cudaLaunchKernel", self.now + CALL)

    def record(self, event, stream):
        reached = max((*self.ends.get(stream, [0])[-1:], self.held.get(stream, 0) - HANDOFF))
        self.events[event] = reached, len(self.calls)
        self.call("cudaEventRecord", self.now + 1000, stream)

    def wait(self, stream, event):
        reached, index = self.events.get(event, (0, NULL))
        self.held[stream] = max(self.held.get(stream, 0), reached + HANDOFF)
        self.call("cudaStreamWaitEvent", self.now + 1000, stream, index)

    def sync(self, stream):
        last = max(self.ends.get(stream, [0])[-1], self.held.get(stream, 0) - HANDOFF)
        self.call("cudaStreamSynchronize", max(self.now + CALL, last + WAKE), stream)

    def join(self, event):
        reached, index = self.events.get(event, (0, NULL))
        self.call("cudaEventSynchronize", max(self.now + CALL, reached + WAKE), NULL, index)

    def device(self):
        last = max((ends[-1] for ends in self.ends.values()), default=0)
        self.call("cudaDeviceSynchronize", max(self.now + CALL, last + WAKE))

    def fetch(self, stream, ns):
        end = self._enqueue(stream, ns, self.now + CALL, "memcpy", "Memcpy DtoH (Device -> Pageable)")
        self.call("cudaMemcpyAsync", end + WAKE)

    def length(self):
        """From the first event to the last, ns."""
        return max(self.calls[-1][2], *(row[1] for row in self.rows)) - self.calls[0][1]

    def tables(self, streams=True):
        """The recorded kernel table and table of host calls; ``streams``: whether calls say theirs, and the records."""
        kinds = {"cudaLaunchKernel": "launch", "cudaEventRecord": "record", "cudaStreamWaitEvent": "wait"}
        kinds |= {
            "cudaEventSynchronize": "event sync",
            "cudaStreamSynchronize": "stream sync",
            "cudaDeviceSynchronize": "device sync",
        }
        name, start, end, corr, stream, record = zip(*self.calls, strict=True)
        unknown = np.full(len(name), NULL)
        host = {
            "name": Coded.of(name),
            "kind": Coded.of(kinds.get(each, "copy") for each in name),
            "start": np.array(start),
            "duration": np.array(end) - np.array(start),
            "pid": np.full(len(name), 7),
            "tid": np.full(len(name), 1),
            "corr": np.array(corr),
            "stream": np.array(stream) if streams else unknown,
            "record": np.array(record) if streams else unknown,
        }
        begin, finish, lane, number, kind, kernel = zip(*sorted(self.rows), strict=True)
        called = [corr.index(each) for each in number]
        rows = {
            "kShortName": Coded.of(kernel),
            "kLongName": Coded.of(kernel),
            "kind": Coded.of(kind),
            "start": np.array(begin),
            "kDuration": np.array(finish) - np.array(begin),
            "stream": np.array(lane),
            "device": np.zeros(len(begin), np.int64),
            "corr": np.array(number),
            "pid": np.full(len(begin), 7),
            "tid": np.full(len(begin), 1),
            "api": Coded.of(name[at] for at in called),
            "apiStart": np.array([start[at] for at in called]),
            "apiDuration": np.array([end[at] - start[at] for at in called]),
        }
        return Table(len(begin), rows), HostTable(len(name), host)
