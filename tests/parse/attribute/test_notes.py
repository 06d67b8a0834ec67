"""The advice for a capture without PyTorch's ranges is that of its own profiler."""

import pytest

from pyprof.parse.attribute.notes import CaptureNotes, no_ops
from pyprof.parse.attribute.reasons import NO_CALL, NO_RANGE, remedy
from pyprof.parse.kineto.reader import read
from tests.parse.kineto.kineto_file import begin, kernel, write

ROCTX = "profile with torch.autograd.profiler.emit_nvtx(record_shapes=True)"
ADVICE = [
    ("nsys 2025.3.1", "profile with pyprof.init(), or nsys --pytorch=autograd-shapes-nvtx"),
    ("nvprof", "profile with pyprof.init() or emit_nvtx"),
    ("kineto", "profile with ProfilerActivity.CPU, too"),
    ("rocprofv3", f"{ROCTX} and rocprofv3 --marker-trace"),  # pyprof.init() pushes NVTX, which AMD's tools ignore
    ("rocmProfileData", ROCTX),
]


@pytest.mark.parametrize(("profiler", "advice"), ADVICE)
def test_each_profiler_has_its_own_advice(profiler, advice):
    assert no_ops(profiler) == f"no PyTorch ranges in the capture: {advice}, for ops"


@pytest.mark.parametrize("category", ["kernel", "mtia_ccp_events"])
def test_no_trace_of_torch_profiler_is_told_to_use_nsys(tmp_path, category):
    events = begin(1000), {**kernel(1100, 50, 1), "cat": category}
    notes = CaptureNotes.of(read(write(tmp_path / "net.json", *events)))
    assert notes.warnings == ["no PyTorch ranges in the capture: profile with ProfilerActivity.CPU, too, for ops"]


def test_remedies_of_reasons_that_every_profiler_has_name_none_of_nvidias():
    for reason in (NO_CALL, NO_RANGE):  # NO_CALLS is a reason in captures of nsys alone
        assert "nsys" not in remedy(reason)
