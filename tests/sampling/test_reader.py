"""The thread that hands traces to the process that reads them, where that process does not answer."""

import subprocess
import sys
import time

from pyprof.sampling import reader
from pyprof.sampling.reader import Job, TraceReader

SILENT = "import sys, time; sys.stdin.readline(); time.sleep(60)"


def test_the_end_waits_no_longer_than_said_for_a_trace(tmp_path, monkeypatch):
    started = []

    def silent(self):
        self._errors = (tmp_path / "errors").open("w+b")
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen([sys.executable, "-c", SILENT], stdin=pipe, stdout=pipe, stderr=self._errors, text=True)
        )
        return started[-1]

    monkeypatch.setattr(TraceReader, "_start", silent)
    monkeypatch.setattr(reader, "PATIENCE_AT_END_S", 1)
    failures = []
    reading = TraceReader(lambda sample: None, failures.append, lambda: None)
    reading.give(Job(tmp_path / "raw.json", {}, {}, {}))
    began = time.monotonic()
    reading.close()
    assert time.monotonic() - began < 20
    assert failures == ["it was not read and sent within 1 s"]
    assert started[0].poll() is not None
    assert not reading._thread.is_alive()
