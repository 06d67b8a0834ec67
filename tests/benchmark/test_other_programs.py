"""How much other programs use the CPU, by a system's figures that are written here."""

import os
from types import SimpleNamespace

import pytest

from pyprof.benchmark import other_programs
from pyprof.benchmark.other_programs import OtherPrograms, caution


@pytest.fixture
def system(monkeypatch, tmp_path):
    """A system whose figures a test sets: ticks of 10 ms, seconds on the clock, the process's own seconds."""
    at = SimpleNamespace(stat="", clock=0.0, own=0.0, file=tmp_path / "stat")
    monkeypatch.setattr(other_programs, "Path", lambda _: at.file)
    monkeypatch.setattr(other_programs.time, "perf_counter", lambda: at.clock)
    monkeypatch.setattr(other_programs.os, "times", lambda: SimpleNamespace(user=at.own, system=0.0))
    monkeypatch.setattr(other_programs.os, "sysconf", lambda _: 100)
    return at


def stat(user, nice, kernel, idle, waiting, irq, softirq, steal):
    return f"cpu  {user} {nice} {kernel} {idle} {waiting} {irq} {softirq} {steal} 7 7\ncpu0 1 2 3\n"


def test_cores_of_other_programs(system):
    """2 s: 300 ticks more of work, of which 180 are this process's; 1.2 s in 2 s are 0.6 cores. Idle does not count."""
    system.file.write_text(stat(1000, 10, 50, 9000, 5, 1, 1, 0))
    watch = OtherPrograms()
    system.file.write_text(stat(1200, 50, 90, 9999, 99, 3, 4, 15))  # 200 + 40 + 40 + 2 + 3 + 15
    system.clock, system.own = 2.0, 1.8
    assert watch.cores() == pytest.approx(0.6) and watch.disturb
    system.own = 2.9
    assert watch.cores() == pytest.approx(0.05) and not watch.disturb
    system.own = 3.1  # ticks are coarse
    assert watch.cores() == 0


@pytest.mark.parametrize("text", ["", "cpu  1 2 3\n", "cpu  a b c d e f g h\n"])
def test_a_system_that_does_not_tell(system, text):
    system.file.write_text(text)
    watch = OtherPrograms()
    assert watch.cores() is None and not watch.disturb
    system.file.unlink()
    assert OtherPrograms().cores() is None


def test_what_is_said():
    assert caution(None) == caution(0.2) == ""
    said = f"Other programs used 0.9 of {os.cpu_count()} cores meanwhile: the times are probably too long."
    assert caution(0.94) == said
