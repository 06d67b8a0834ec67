"""``pyprof.bench`` on a CPU: its numbers by hand, its sentences, and that it leaves the arguments alone."""

import json

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pyprof  # noqa: E402
from pyprof.benchmark import bench as bench_module  # noqa: E402
from pyprof.benchmark.bench_result import (  # noqa: E402  # noqa: E402
    CPU,
    EVENTS,
    GRAPH,
    Bench,
    Measured,
    Timing,
    time_text,
)
from pyprof.benchmark.call_timer import time_calls  # noqa: E402
from pyprof.benchmark.hardware_limit import DirectionWork, limit, precision_of, work_of  # noqa: E402
from pyprof.benchmark.timer import Effort  # noqa: E402
from pyprof.counting.count import count  # noqa: E402
from pyprof.errors import PyprofError  # noqa: E402
from pyprof.prof.limits.devices import Device, find_device  # noqa: E402
from pyprof.quantities import amount  # noqa: E402

pytestmark = pytest.mark.torch
TINY = Effort(trial_s=0.0005, trials=3)
H200 = find_device("NVIDIA H200")  # 989.4 TFLOP/s in bf16, 67 in fp32, 4.8 TB/s


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(bench_module, "QUICK", TINY)
    monkeypatch.setattr(bench_module, "cache_bytes", lambda _: 1 << 12)


def timing(seconds, method=GRAPH, **more):
    return Timing(seconds, seconds * 0.99, seconds * 1.02, seconds * 0.98, 15, method, 100, **more)


def test_work_and_rates_of_a_linear_layer():
    x, w = torch.randn(4, 8), torch.randn(6, 8, requires_grad=True)
    found = pyprof.bench(F.linear, x, w, backward=True, warm=True, quick=True)
    assert (found.name, found.forward.flop, found.forward.nbytes) == ("linear", 2 * 4 * 6 * 8, 4 * (32 + 48 + 24))
    # the gradient of w alone: [6,4] @ [4,8]; reads the result's gradient and x, writes w's
    assert found.backward.flop == 2 * 6 * 4 * 8
    assert found.backward.nbytes == 4 * (24 + 32 + 48)
    assert found.flop_per_s == 384 / found.seconds > 0
    assert found.forward.timing.method == CPU and found.forward.timing.trials >= 3
    assert found.forward.timing.low_s <= found.seconds <= found.forward.timing.high_s
    assert found.forward.timing.best_s <= found.forward.timing.low_s
    assert found.forward.warm.seconds > 0
    # 32 + 48 inputs and 24 results of 4 bytes; three times a cache of 4 KiB holds 29.5 of them
    assert (found.copy_bytes, found.copies, found.cold) == (416, 30, True)
    assert (found.is_graph, found.clock_mhz, found.flop, found.nbytes) == (False, None, 384, 416)
    assert found.share is None  # nobody knows this CPU's peaks


def test_the_arguments_stay_as_they_are():
    x = torch.zeros(8, 8)
    pyprof.bench(torch.Tensor.add_, x, 1.0, quick=True)
    assert torch.equal(x, torch.zeros(8, 8))


def test_a_module_s_weights_take_turns_too():
    net = torch.nn.Linear(8, 6)
    found = pyprof.bench(net, torch.randn(4, 8), backward=True, quick=True)
    assert found.copy_bytes == 4 * (32 + 48 + 6 + 24)
    assert net.weight.grad is None
    assert found.name == "Linear"


def test_a_function_without_arguments_has_no_copies():
    x = torch.randn(100)
    found = pyprof.bench(lambda: x + 1, quick=True)
    assert (found.copies, found.cold) == (1, False)
    assert "All calls had the same inputs, which may stay in the cache." in found.notes()[0]


def test_without_a_gradient_backward_is_an_error():
    with pytest.raises(PyprofError, match="relu: no gradient to measure: no result depends on a tensor with requires"):
        pyprof.bench(torch.relu, torch.randn(4), backward=True, quick=True)


def test_errors_of_the_function_pass_through():
    with pytest.raises(RuntimeError, match="mat1"):
        pyprof.bench(torch.mm, torch.randn(3, 4), torch.randn(5, 6), quick=True)


def test_unknown_work_is_not_zero():
    found = pyprof.bench(torch.linalg.qr, torch.randn(8, 8), quick=True)
    if found.uncounted:
        assert found.forward.flop is None and found.forward.nbytes is None
        assert any("FLOPs and bytes are unknown for" in note for note in found.notes())


def test_peaks_of_a_file(tmp_path):
    file = tmp_path / "peaks.json"
    peaks = {"format": "pyprof peaks", "arch": "cpu", "device": "c", "flop_per_s": {"fp32": 1e12}, "byte_per_s": 1e10}
    file.write_text(json.dumps(peaks))
    found = pyprof.bench(torch.relu, torch.randn(1000), quick=True, peaks=str(file))
    assert (found.forward.limit_s, found.forward.bound) == (8000 / 1e10, "memory")
    assert found.share == pytest.approx(100 * 8e-7 / found.seconds)


def test_calls_take_turns():
    order = []
    calls = [lambda n=n: order.append(n) for n in range(3)]
    time_calls(lambda: calls, torch.device("cpu"), TINY)
    assert order == [n % 3 for n in range(len(order))]


# the limit, by hand

LIMITS = [
    # products, other FLOPs, bytes, precision -> seconds, bound
    ((989_400_000_000, 0, 480_000_000.0), "bf16", (1e-3, "compute")),
    ((989_400_000, 0, 480_000_000.0), "bf16", (1e-4, "memory")),
    ((0, 67_000_000_000, 48_000.0), "bf16", (1e-3, "compute")),
    ((67_000_000_000, 0, 0.0), "fp32", (1e-3, "compute")),
    ((0, 0, 4_800_000.0), "fp32", (1e-6, "memory")),
]


@pytest.mark.parametrize(("work", "precision", "expected"), LIMITS)
def test_the_limit_of_an_h200(work, precision, expected):
    seconds, bound = limit(DirectionWork(*work), H200, precision)
    assert (pytest.approx(expected[0]), expected[1]) == (seconds, bound)


def test_without_a_peak_there_is_no_limit():
    assert limit(DirectionWork(1, 0, 1.0), None, "bf16") == (None, "")
    assert limit(DirectionWork(1, 0, 1.0), Device("?", arch="sm_90"), "bf16") == (None, "")
    assert limit(DirectionWork(1, 0, float("nan")), H200, "bf16") == (None, "")


def test_the_work_of_each_direction():
    x, w = torch.randn(4, 8), torch.randn(6, 8, requires_grad=True)
    counts = count(lambda: torch.relu(F.linear(x, w)), backward=True)
    # 384 FLOPs of the product; relu has its own family, and both read and write 24 numbers
    forward = work_of(counts, "forward")
    assert (forward.products, forward.nbytes, forward.has_convolutions) == (384, 4 * (104 + 48), False)
    assert work_of(counts, "backward").products == 384


def test_the_precision_of_products():
    bf16, fp32, int8 = torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2), torch.zeros(2, dtype=torch.int8)
    assert precision_of([fp32, fp32, bf16], False) == "bf16"  # autocast's result
    assert precision_of([fp32, fp32], False) == "fp32"
    assert precision_of([torch.zeros(2, dtype=torch.float64)], False) == "fp64"
    assert precision_of([], False) == precision_of([int8.long()], False) == "fp32"


# what is said

NOTHING = {"copies": 90, "copy_bytes": 2 << 20, "cold": True}


def test_the_text_of_a_result():
    forward = Measured(timing(5e-6, empty_node_s=5.2e-7, clock_mhz=1980), timing(2e-6), 1 << 20, 4e6, 1e-6, "memory")
    found = Bench("relu", "NVIDIA H200", forward, None, **NOTHING)
    assert repr(found).splitlines() == [
        "relu on NVIDIA H200",
        "  forward  5 µs (4.95 µs to 5.1 µs), 210 GFLOP/s, 800 GB/s, 20% of the memory limit",
        "           2 µs (1.98 µs to 2.04 µs) if the inputs stay in the cache",
        "  Median of 15 trials by replays of a CUDA graph, with quartiles. Calls took turns with copies of the inputs: "
        "90 × 2.00 MiB, at least three times the size of the last cache.",
        "  520 ns were subtracted: what a node of a graph takes beside its kernel's duration.",
        "  The multiprocessors ran at 1,980 MHz.",
    ]


@pytest.mark.parametrize("width", [60, 80])
def test_the_notes_of_a_result_are_wrapped(width):
    found = Bench("relu", "NVIDIA H200", Measured(timing(5e-6), None, None, None, None), None, **NOTHING)
    head, _, *notes = found.lines(width)
    assert head == "relu on NVIDIA H200" and max(map(len, notes)) <= width
    assert " ".join(line.removeprefix("  ") for line in notes) == " ".join(found.notes())


def test_a_call_that_waits_is_told():
    forward = Measured(timing(5e-5, EVENTS, host_s=4.8e-5, why="the call waits for the GPU"), None, None, None, None)
    found = Bench("nonzero", "NVIDIA H200", forward, None, **NOTHING, uncounted=("nonzero",))
    assert found.notes()[1:] == [
        "A launch takes the host 48 µs.",
        "No CUDA graph: the call waits for the GPU.",
        "The host's launches limit the time; the GPU may be faster.",
        "FLOPs and bytes are unknown for nonzero.",
    ]
    assert found.forward.timing.launches and not timing(5e-5, EVENTS, host_s=4e-5).launches


def test_times_and_amounts():
    assert [time_text(s) for s in (2.5, 0.0123, 5.04e-5, 9.8e-7)] == ["2.5 s", "12.3 ms", "50.4 µs", "980 ns"]
    assert [amount(n, "B/s") for n in (7.9e14, 4.12e12, 5e3, 12)] == ["790 TB/s", "4.12 TB/s", "5 kB/s", "12 B/s"]
