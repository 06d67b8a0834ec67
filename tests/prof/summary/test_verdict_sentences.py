"""The verdict says where the GPU's work is mostly copies, and where it may be the limit without the profiler."""

import pytest

from pyprof.prof import cli as prof
from tests.parse.kineto.kineto_file import begin, call, kernel, write, x


def verdict(tmp_path, capsys, copy_us):
    """µs: a kernel of 100 from 100 on, and a copy right behind it, which the host does not wait for."""
    copied = x(
        "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 200, copy_us, tid=7, pid=0, device=0, stream=7, correlation=2,
        bytes=1000,
    )  # fmt: skip
    launch = x("cuda_runtime", "cudaMemcpyAsync", 60, 5, correlation=2)
    file = write(tmp_path / "net.json", begin(0), call(50, 1), launch, kernel(100, 100, 1), copied)
    assert prof.main(["--summary", "-w", "1000", str(file)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_copies_are_named_where_they_are_most_of_the_gpus_work(tmp_path, capsys):
    """A copy of 300 is most of 400; one of 50 is not."""
    assert "0.4000 ms of 0.4000 ms (100%, mostly copies from and to the host)" in verdict(tmp_path, capsys, 300)
    assert "0.1500 ms of 0.1500 ms (100%)." in verdict(tmp_path, capsys, 50)


@pytest.mark.parametrize(("us", "may"), [(100, True), (30, False)])
def test_the_gpu_may_be_the_limit_without_the_profiler(us, may, tmp_path, capsys):
    """µs: two kernels, 300 apart. Doubled by the profiler, a step has 200 of 500 / 2, most of it, or 60 of 360 / 2."""
    later = 100 + us + 300
    events = [begin(0), call(50, 1), kernel(100, us, 1), call(later - 10, 2), kernel(later, us, 2)]
    file = write(tmp_path / "net.json", *events)
    assert prof.main(["--summary", "-w", "1000", str(file)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"The host limits the capture: the GPU works for 0.{2 * us:03d}0 ms of" in said
    assert ("and the GPU may be what limits the capture: pyprof run --warmup 4 times" in said) == may
