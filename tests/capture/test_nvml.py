"""``--nvml``: NVML's readings by a fake NVML, the sampler, and what travels in the trace of a real run."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyprof import clock_reader, clock_sampler
from pyprof.clock_reader import Reader, serve
from pyprof.clock_sampler import ClockSampler
from pyprof.errors import PyprofError
from pyprof.nvml import INSTANT, MEAN, Nvml, Reading, reason_names
from tests import forked
from tests.paths import ROOT

from .fake_nvml import DRIVER_NOT_LOADED, GPU_IS_LOST, NO_PERMISSION, NOT_SUPPORTED, UUID, FakeNvml, NVMLError
from .test_run import pyprof_run, script

torch = pytest.importorskip("torch")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_readings_have_nvmls_units(nvml: FakeNvml) -> None:
    gpu = Nvml().gpu(UUID)
    assert gpu.read() == Reading(1980, 3201, 400_000, 45, 0x1, 5_000_000)
    assert (gpu.power, gpu.sm_limit_mhz, gpu.memory_limit_mhz, gpu.power_limit_mw) == (INSTANT, 1980, 3201, 700_000)


def test_an_older_driver_gives_the_mean_power_and_throttle_reasons(nvml: FakeNvml) -> None:
    nvml.readings.update(instant=NVMLError(NOT_SUPPORTED), reasons=NVMLError(13))
    gpu = Nvml().gpu(UUID)
    assert gpu.power == MEAN
    assert (gpu.read().power_mw, gpu.read().reasons) == (300_000, 0x4)


def test_a_sensor_without_permission_is_unknown_and_not_asked_again(nvml: FakeNvml) -> None:
    nvml.readings.update(energy=NVMLError(NO_PERMISSION), limit=NVMLError(NOT_SUPPORTED))
    gpu = Nvml().gpu(UUID)
    nvml.asked.clear()
    assert gpu.read() == Reading(1980, 3201, 400_000, 45, 0x1, None)
    assert "energy" not in nvml.asked and gpu.power_limit_mw is None


def test_a_reading_that_fails_once_is_unknown_once(nvml: FakeNvml) -> None:
    gpu = Nvml().gpu(UUID)
    nvml.readings["sm"] = NVMLError(GPU_IS_LOST)
    assert gpu.read().sm_mhz is None
    nvml.readings["sm"] = 1410
    assert gpu.read().sm_mhz == 1410


def test_why_there_is_no_nvml_is_one_line(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.readings["init"] = NVMLError(DRIVER_NOT_LOADED)
    with pytest.raises(PyprofError, match=r"^NVML cannot be used here: Driver Not Loaded$"):
        Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(PyprofError, match=r"^the package nvidia-ml-py is not installed for this Python"):
        Nvml()


def test_a_mig_slice_and_a_hidden_gpu_are_refused(nvml: FakeNvml) -> None:
    opened = Nvml()
    with pytest.raises(PyprofError, match="does not show it: Not Found"):
        opened.gpu("another")
    for slice_of in ({"uuids": (f"MIG-{UUID}",)}, {"mig": True}):
        nvml.readings.update(slice_of)
        with pytest.raises(PyprofError, match="it is a MIG slice"):
            opened.gpu(UUID)


def test_reasons_have_nvmls_names() -> None:
    assert reason_names(0x1) == []  # idle is no throttling
    assert reason_names(0x4 | 0x40 | 0x80) == [
        "power cap (software)",
        "thermal slowdown (hardware)",
        "power brake (hardware)",
    ]


# The process that reads


def test_a_reader_has_its_readings_until_the_end(nvml: FakeNvml) -> None:
    clocks = iter([1980, 1980, *range(1755, 1765), 1410])  # opening a GPU asks once whether it gives a sensor
    nvml.readings["sm"] = lambda: next(clocks)
    reader = Reader(Nvml())
    reader.add(0, UUID)
    reader.begin(0.005)
    before = time.time_ns()
    for _ in range(10):
        time.sleep(2e-5)  # readings within a microsecond are one
        reader.tick()
    time.sleep(2e-5)
    record = reader.end()
    (gpu,) = record["gpus"]
    assert (record["period_ns"], record["problems"], gpu["device"]) == (5_000_000, [], 0)
    assert gpu["sm_mhz"] == [1980, *range(1755, 1765), 1410]
    read = [place for place, energy in enumerate(gpu["energy_mj"]) if energy is not None]
    assert read == [0, 8, 11] and set(gpu["energy_mj"]) == {5_000_000, None}  # every eighth reading, and the last
    assert abs(gpu["begin_unix_ns"] - before) < 1e9 and gpu["time_us"] == sorted(gpu["time_us"])
    assert (gpu["sm_limit_mhz"], gpu["power_limit_mw"], gpu["power"]) == (1980, 700_000, INSTANT)


def test_memory_is_bounded(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_reader, "MOST", 32)
    nvml.readings["sm"] = lambda: len(nvml.asked)
    reader = Reader(Nvml())
    reader.add(0, UUID)
    reader.begin(0.05)
    for _ in range(400):
        time.sleep(2e-6)  # readings within a microsecond are one
        reader.tick()
    record = reader.end()
    readings = record["gpus"][0]["sm_mhz"]
    assert 16 <= len(readings) <= 33 and readings == sorted(readings)
    assert record["period_ns"] == 50_000_000 * 2 ** round(math.log2(record["period_ns"] / 5e7)) > 50_000_000
    energy = record["gpus"][0]["energy_mj"]
    assert None not in energy[:-1:8]  # what is dropped are readings without energy


def test_a_clock_that_is_set_back_costs_readings(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5_000, 5_000, 9_000, 9_000, 2_000, 2_000, 9_500, 9_500, 10_000, 10_000])
    reader = Reader(Nvml())
    reader.add(0, UUID)
    monkeypatch.setattr(clock_reader.time, "time_ns", lambda: next(times))
    reader.begin(0.05)
    for _ in range(3):
        reader.tick()
    assert reader.end()["gpus"][0]["time_us"] == [0, 4, 5]


def test_a_second_range_begins_anew(nvml: FakeNvml) -> None:
    reader = Reader(Nvml())
    reader.add(0, UUID)
    for _ in range(2):
        reader.begin(0.05)
        assert len(reader.end()["gpus"][0]["time_us"]) == 2


def test_orders_are_answered_until_their_end(nvml: FakeNvml) -> None:
    orders = ({"begin": 0.002}, {"read": [0, UUID]}, {"read": [1, "another"]}, {"end": None})
    out = io.StringIO()
    serve((json.dumps(order) + "\n" for order in orders), out)
    first, read = map(json.loads, out.getvalue().splitlines())
    assert first == {}
    assert [gpu["device"] for gpu in read["gpus"]] == [0]
    assert read["problems"] == [[1, "NVML does not show it: Not Found"]]
    assert nvml.open == 0
    nvml.readings["init"] = NVMLError(DRIVER_NOT_LOADED)
    refused = io.StringIO()
    serve(iter(()), refused)
    assert json.loads(refused.getvalue()) == {"error": "NVML cannot be used here: Driver Not Loaded"}


# The program's side of it


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The devices on which the program has memory, as the sampler sees them."""
    devices = [0]
    monkeypatch.setattr(
        clock_sampler, "_used_devices", lambda known: [device for device in devices if device not in known]
    )
    monkeypatch.setattr(clock_sampler, "_uuid", lambda device: UUID)
    return devices


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a fake nvidia-ml-py where the program and the process that reads find it."""

    def install(readings: str = "") -> None:
        folder = tmp_path / "site"
        folder.mkdir(exist_ok=True)
        made = f"from tests.capture.fake_nvml import *\nimport sys\nsys.modules[__name__] = FakeNvml({readings})\n"
        (folder / "pynvml.py").write_text(made)
        monkeypatch.syspath_prepend(str(folder))

    install()
    return install


def test_the_sampler_reads_from_begin_to_end(installed: Callable[[str], None], used: list[int]) -> None:
    sampler = ClockSampler(period=0.005)
    for _ in range(2):
        before = time.time_ns()
        sampler.begin()
        time.sleep(0.2)
        record = sampler.end()
        assert record is not None
        (gpu,) = record["gpus"]
        assert (record["version"], record["pid"], record["period_ns"]) == (1, os.getpid(), 5_000_000)
        assert set(gpu["sm_mhz"]) == {1980} and len(gpu["sm_mhz"]) == len(gpu["time_us"]) > 3
        assert before <= gpu["begin_unix_ns"] and gpu["begin_unix_ns"] + 1000 * gpu["time_us"][-1] <= time.time_ns()
    process = sampler._process
    sampler.close()
    assert process.returncode == 0
    assert not any(thread.name == "pyprof --nvml" for thread in threading.enumerate())


def test_a_gpu_is_read_from_when_the_program_uses_it(installed: Callable[[str], None], used: list[int]) -> None:
    used.clear()
    sampler = ClockSampler(period=0.002)
    sampler.begin()
    time.sleep(0.02)
    assert sampler.end() is None
    sampler.begin()
    used.append(0)
    time.sleep(0.1)
    record = sampler.end()
    sampler.close()
    assert record is not None and len(record["gpus"]) == 1


def test_why_a_gpu_is_not_read_is_a_warning(installed: Callable[[str], None], used: list[int]) -> None:
    installed("mig=True")
    sampler = ClockSampler()
    sampler.begin()
    assert sampler.end() is None
    sampler.close()
    assert sampler.warnings() == [
        "--nvml: GPU 0 is not read: it is a MIG slice, and NVML gives the clocks and the power of whole GPUs only"
    ]


def test_a_process_that_ends_costs_the_readings_and_a_warning(
    installed: Callable[[str], None], used: list[int]
) -> None:
    sampler = ClockSampler()
    sampler.begin()
    sampler._process.kill()
    assert sampler.end() is None
    sampler.close()
    assert sampler.warnings() == ["--nvml: the process that reads NVML ended with code -9: nothing was read"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_leaves_the_process_alone(installed: Callable[[str], None], used: list[int]) -> None:
    sampler = ClockSampler(period=0.005)
    sampler.begin()

    def run() -> bool:
        sampler.end()
        sampler.close()
        return True

    assert forked.exit_code(run) == 0
    record = sampler.end()
    sampler.close()
    assert record is not None and record["gpus"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_it_ends_while_a_forked_child_lives(installed: Callable[[str], None], used: list[int]) -> None:
    sampler = ClockSampler()
    child = forked.start(lambda: time.sleep(60) is None)  # a loader's worker, say: it has the pipes too
    before = time.monotonic()
    sampler.close()
    took = time.monotonic() - before
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert took < 10


def test_the_process_ends_with_the_program(tmp_path: Path, installed: Callable[[str], None]) -> None:
    code = f"import sys; sys.path[:0] = {[str(ROOT), str(tmp_path / 'site')]}\n"
    code += "from pyprof.clock_sampler import ClockSampler\nimport os\n"
    code += "print(ClockSampler()._process.pid, flush=True)\nos._exit(0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    for _ in range(500):
        if not Path(f"/proc/{int(done.stdout)}").exists():
            return
        time.sleep(0.01)
    pytest.fail("the process is still there")


def own(file: Path) -> Any:
    return json.loads(gzip.decompress(file.read_bytes())).get("pyprof")


def test_readings_travel_in_the_trace_on_its_clock(
    tmp_path: Path, installed: Callable[[str], None], used: list[int]
) -> None:
    import pyprof
    from pyprof.parse.kineto.reader import read

    file = tmp_path / "net.json.gz"
    with pyprof.profile(file, nvml=True):
        for _ in range(5):
            torch.relu(torch.ones(300, 300))
            time.sleep(0.06)
    assert set(own(file)) == {"nvml", "cpu"}
    capture = read(file)
    (samples,) = capture.samples
    assert not any("--nvml" in warning for warning in capture.warnings)
    assert samples.sm_mhz.tolist() == [1980] * len(samples) and len(samples) >= 5
    first, last = int(capture.columns["start"].min()), int(capture.columns["start"].max())
    assert last - first > 200e6  # four pauses of 60 ms
    # The readings begin when the profiler runs, and go on until it has stopped: both clocks are Unix time.
    assert samples.time_ns[0] < first + 50_000_000 and last < samples.time_ns[-1]
    assert samples.time_ns[-1] - samples.time_ns[0] < 30e9


@pytest.mark.parametrize(("devices", "told"), [([0], 0), ([], 1)])
def test_a_program_that_used_no_gpu_is_told_so(
    tmp_path: Path,
    installed: Callable[[str], None],
    used: list[int],
    capfd: pytest.CaptureFixture[str],
    devices: list[int],
    told: int,
) -> None:
    import pyprof

    used[:] = devices
    with pyprof.profile(tmp_path / "net.json", nvml=True):
        torch.relu(torch.ones(3))
        time.sleep(0.2)
    assert capfd.readouterr().err.count("--nvml: the program used no GPU of NVIDIA's, so nothing was read") == told


def test_without_the_package_the_run_goes_on(tmp_path: Path) -> None:
    name = script(
        tmp_path, "import sys, torch\nsys.modules['pynvml'] = None\ntorch.relu(torch.ones(3))\nprint('done')\n"
    )
    done = pyprof_run(tmp_path, "--nvml", "-o", "net.json.gz", name)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert len([line for line in done.stderr.splitlines() if "--nvml" in line]) == 1
    assert set(own(tmp_path / "net.json.gz")) == {"cpu"}


def test_under_an_attached_tool_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyprof.capture import run
    from pyprof.capture.sinks import Nvtx

    monkeypatch.setattr(Nvtx, "listening", staticmethod(lambda: True))
    with pytest.raises(SystemExit, match="2"):
        run.main(["--nvml", script(tmp_path, "")])
    assert "argument --nvml: the tool that is attached" in capsys.readouterr().err
