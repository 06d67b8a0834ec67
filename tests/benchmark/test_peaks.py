"""``pyprof peaks``: what it writes is what ``--peaks`` reads; its sums by hand; torch's own on a CPU, small."""

import json
import subprocess
import sys

import pytest

from pyprof.benchmark import peaks, sweeps, timer
from pyprof.benchmark.device_names import measured_device
from pyprof.benchmark.peaks_content import peaks_content
from pyprof.benchmark.print_peaks import print_peaks
from pyprof.benchmark.sweeps import PRODUCTS, ProductRates, Sweeps, memory_rate, on_plateau
from pyprof.benchmark.timer import Effort, Timer
from pyprof.errors import PyprofError
from pyprof.prof.kernels.precision import UNITS
from pyprof.prof.limits.architectures import unit_of
from pyprof.prof.limits.devices import find_device
from pyprof.prof.limits.peaks_file import load_peaks, with_peaks

H200 = {
    "device": "NVIDIA H200",
    "arch": "sm_90",
    "sms": 132,
    "memory_bytes": 150109880320,
    "cache_bytes": 62914560,
    "torch": "2.11.0",
}
CURVES = {
    "bf16": [(1024, 1e14), (4096, 7.77e14), (8192, 8.11234e14), (16384, 7.9e14)],
    "fp32": [(4096, 5.1e13)],
    "fp64": [(4096, 6.3e13)],
}
LASTING = {"bf16": 6.876e14}
MEMORY = {
    "copy": [(33554432, 4.3e12), (134217728, 3.7e12), (8589934592, 4.25e12)],
    "read": [(8589934592, 4.1e12)],
    "triad": [],
}
ELEMENTWISE = {"bf16": {"add": 4.2e12, "gelu": 4.1e12}, "fp32": {"add": 4.2e12, "gelu": 4.2e12}}


@pytest.fixture
def found():
    products = [
        ProductRates(p, CURVES[p.name], LASTING.get(p.name))
        if p.name in CURVES
        else ProductRates(p, why="not on this device")
        for p in PRODUCTS
    ]
    return peaks_content(H200, products, MEMORY, ELEMENTWISE, {"host_to_device": 5.5e10})


def test_the_document_by_hand(found):
    assert found["flop_per_s"] == {"tc_bf16": 8.112e14, "fp32": 5.1e13, "tc_fp64": 6.3e13}  # four digits
    assert found["lasting_flop_per_s"] == {"tc_bf16": 6.876e14}
    assert found["byte_per_s"] == 4.25e12  # not the 4.3 of the cache
    assert found["curves"]["products_flop_per_s"]["bf16"][0] == [1024, 1e14]
    assert found["skipped"]["fp8"] == "not on this device"


def test_what_is_written_can_be_read(found, tmp_path):
    file = tmp_path / "peaks.json"
    file.write_text(json.dumps(found))
    read = load_peaks(file)
    assert (read.device, read.arch, read.byte_per_s) == ("NVIDIA H200", "sm_90", 4.25e12)
    device = with_peaks(find_device("NVIDIA H200"), read)
    assert device.peak("tc_bf16") == 8.112e14
    assert device.peak("tc_fp8") == pytest.approx(1978.9e12)  # not measured: the data sheet's


def test_the_tables_compare_with_the_data_sheet(found, capsys):
    print_peaks(found)
    out = capsys.readouterr().out
    assert "NVIDIA H200 (sm_90, 132 SMs, last cache 60 MiB), torch 2.11.0" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["bf16", "tc_bf16", "811.2", "8192", "687.6", "989.4", "82"] in lines
    assert ["fp32", "fp32", "51", "4096", "67", "76"] in lines
    assert ["copy", "4,300", "32", "MiB", "4,250", "4,800", "89"] in lines
    assert "fp8: not measured: not on this device" in out


def test_a_gpu_of_amd_has_compute_units(found, capsys):
    print_peaks({**found, "device": "AMD Instinct MI300X", "arch": "gfx942", "sms": 304})
    assert "AMD Instinct MI300X (gfx942, 304 CUs, last cache" in capsys.readouterr().out


UNITS_OF = [
    ("bf16", "sm_90", "tc_bf16"),
    ("tf32", "sm_80", "tc_tf32"),
    ("fp32", "sm_80", "fp32"),
    ("fp64", "sm_80", "tc_fp64"),
    ("fp64", "sm_89", "fp64"),
    ("fp8", "sm_89", "tc_fp8"),
    ("fp8", "sm_80", ""),
    ("bf16", "sm_75", ""),
    ("fp16", "sm_70", "tc_fp16"),
    ("fp16", "sm_61", ""),
    ("int8", "sm_120", "tc_int8"),
    ("fp32", "gfx942", "tc_fp32"),
    ("tf32", "gfx942", ""),
    ("bf16", "gfx942", "tc_bf16"),
    ("bf16", "cpu", "bf16"),
    ("bf16", "sm_", ""),
]


@pytest.mark.parametrize(("dtype", "arch", "unit"), UNITS_OF)
def test_the_unit_of_a_product(dtype, arch, unit):
    assert unit_of(dtype, arch) == unit
    assert unit in ("", *UNITS)


def test_the_plateau():
    assert not on_plateau([(1, 10.0)])
    assert not on_plateau([(1, 10.0), (2, 9.0)])  # one size without a gain may be a bad one
    assert on_plateau([(1, 10.0), (2, 9.0), (4, 10.05)])  # half a percent
    assert not on_plateau([(1, 10.0), (2, 9.0), (4, 10.2)])


def test_the_rate_of_memory():
    assert memory_rate({"copy": [(100, 9.0), (399, 8.0), (400, 4.0)], "read": [(400, 5.0)]}, 100) == 5.0
    assert memory_rate({"copy": [(100, 9.0), (200, 8.0)]}, 100) == 8.0  # none so large: the largest
    assert memory_rate({"copy": []}, 100) is None


# The command


def test_a_taken_file_is_told_before_anything_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(peaks, "measure", lambda *_, **__: pytest.fail("measured"))
    file = tmp_path / "peaks.json"
    file.write_text("mine")
    assert peaks.main(["-o", str(file)]) == 1
    assert capsys.readouterr().err == f"pyprof peaks: {file}: exists; give --force to overwrite it, or another name\n"
    assert file.read_text() == "mine"


def test_missing_modules_are_told(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert peaks.main([]) == 1
    assert "no module torch; measuring needs it" in capsys.readouterr().err


def test_it_writes_the_file_and_prints_the_tables(found, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(peaks, "measured_device", lambda name: "cpu")
    monkeypatch.setattr(peaks, "measure", lambda *_, **__: found)
    assert peaks.main(["-o", str(tmp_path / "peaks.json")]) == 0
    assert json.loads((tmp_path / "peaks.json").read_text()) == json.loads(json.dumps(found))
    said = capsys.readouterr()
    assert "811.2" in said.out and said.err == f"pyprof peaks: wrote {tmp_path / 'peaks.json'}\n"


def test_a_gpu_out_of_power_is_measured_before_and_after(monkeypatch):
    """A call takes 1 ms; after 10 ms of work without a rest, 2 ms."""
    busy = 0.0

    def run(_call, times):
        nonlocal busy
        took = 0.0
        for _ in range(times):
            one = 0.001 if busy < 0.0095 else 0.002
            took, busy = took + one, busy + one
        return took

    def rest(_seconds):
        nonlocal busy
        busy = 0.0

    clock = object.__new__(Timer)
    clock.on_gpu, clock.effort = True, Effort()
    monkeypatch.setattr(clock, "_run", run)
    monkeypatch.setattr(timer.time, "sleep", rest)
    assert clock.burst_seconds(lambda: None) == pytest.approx(0.001)
    assert clock.lasting_seconds(lambda: None) == pytest.approx(0.002)


def test_help_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; from pyprof.benchmark.peaks import main; main(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: pyprof peaks" in done.stdout


# torch, on the CPU

TINY = Effort(trial_s=0.001, trials=2, gemm=(32, 64), most_bytes=1 << 17)


@pytest.mark.torch
def test_a_cpu_is_measured(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(peaks, "QUICK", TINY)
    monkeypatch.setattr(sweeps, "ON_CPU_ELEMENTS", 1 << 10)
    before = torch.get_float32_matmul_precision()
    found = peaks.measure("cpu", quick=True)
    assert torch.get_float32_matmul_precision() == before
    assert found["arch"] == "cpu"
    assert found["flop_per_s"].keys() <= {"bf16", "fp32", "fp64"}
    assert [size for size, _ in found["curves"]["products_flop_per_s"]["fp32"]] == [32, 64]
    assert [size for size, _ in found["curves"]["memory_byte_per_s"]["triad"]] == [3 << 16, 3 << 17]
    file = tmp_path / "peaks.json"
    file.write_text(json.dumps(found))
    assert load_peaks(file).flop_per_s == found["flop_per_s"]


@pytest.mark.torch
def test_a_product_that_torch_refuses_is_told():
    pytest.importorskip("torch")
    measured = Sweeps("cpu", TINY)
    measured._multiply = lambda *_: (_ for _ in ()).throw(RuntimeError("not for you\nmore"))
    assert [found.why for found in measured.products()] == ["not for you"] * 3


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "message"), [("tpu", "expected cuda, cuda:N or cpu, found 'tpu'"), ("cuda:99", "torch sees")]
)
def test_a_device_that_is_not_there(name, message):
    pytest.importorskip("torch")
    with pytest.raises(PyprofError, match=message):
        measured_device(name)
