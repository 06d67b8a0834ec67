"""Of a capture whose times cannot be true, the summary reports what ran and its work, and nothing based on times."""

from pyprof.prof import cli as prof
from tests.parse.kineto.kineto_file import begin, call, kernel, op, write

SHAPES = {"Input_Dims": [[64, 32], [32, 16]], "Input_type": ["float", "float"]}


def told(tmp_path, capsys, first_us):
    """µs: products of 1 each, 2 apart on one stream, of which the first one takes ``first_us``."""
    events = [begin(0)]
    for n in range(20):
        events += [op("aten::mm", 10 + 8 * n, 7, **SHAPES), call(11 + 8 * n, n + 1)]
        events += [kernel(1000 + 2 * n, 1 if n else first_us, n + 1, "ampere_sgemm_128x64_nn")]
    file = write(tmp_path / "net.json", *events, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}])
    assert prof.main(["--summary", "-w", "1000", str(file)]) == 0
    return capsys.readouterr().out


def test_shares_of_times_are_withheld_where_times_are_wrong(tmp_path, capsys):
    """An operation of a stream cannot last over the next ones. Its work is known: 20 * 2 * 64 * 32 * 16 = 1.311 M."""
    found = told(tmp_path, capsys, 1600)
    assert "This is an incomplete capture: an operation of 1.6 ms lasts over the next 19 of its stream" in found
    assert "FLOPs are known for 100% of GPU time: 1.311 MFLOP." in found
    assert not any(word in found for word in ("Most of GPU time", "takes", "By kind of work", "bound"))


def test_they_are_told_where_times_are_true(tmp_path, capsys):
    found = told(tmp_path, capsys, 1)
    assert "incomplete" not in found and "Most of GPU time is GEMM: 100%" in found and "By kind of work" in found
