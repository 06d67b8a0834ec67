"""The timings file: written and read back, and refused where it is wrong."""

import json

import pytest

from pyprof.errors import InputError
from pyprof.prof.changes.measured.timings_file import CallTime, check_device, load_timings, timings_of, timings_text
from tests.paths import GOLDEN

HERE = {"device": "NVIDIA H200", "arch": "sm_90", "torch": "2.11.0"}
MM = CallTime("aten::mm(2 × bfloat16[8,8])", 2e-6, 1.9e-6, 2.1e-6, "cuda graph", 1980)
FAILED = CallTime("aten::nothing()", None, why="no op of torch's own")


def test_what_is_written_is_read_back(tmp_path):
    file = tmp_path / "timings.json"
    file.write_bytes(timings_text(timings_of(HERE, [MM, FAILED])))
    found = load_timings(file)
    assert found.by_call == {MM.call: MM, FAILED.call: FAILED}
    assert (found.device, found.arch, found.torch) == ("NVIDIA H200", "sm_90", "2.11.0")


def test_each_call_has_a_line_of_its_own():
    lines = timings_text(timings_of(HERE, [MM, FAILED])).decode().splitlines()
    assert sum('"call"' in line for line in lines) == 2


def written(**changes):
    call = {"call": "aten::mm()", "seconds": 1e-6}
    content = {"format": "pyprof timings", "version": 1, **HERE, "calls": [call]}
    return json.dumps({**content, **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"format": "pyprof peaks", "version": 1}',
        written(version=2),
        written(device=5),
        written(device="x" * 1000),
        written(calls={}),
        written(calls=[{"call": "a", "seconds": -1.0}]),
        written(calls=[{"call": "a", "seconds": 1e300}]),
        written(calls=[{"call": "a", "seconds": "1"}]),
        written(calls=[{"call": "a" * 1000, "seconds": 1e-6}]),
        written(calls=[{"seconds": 1e-6}]),
        written().replace("1e-06", "NaN"),
        "\x00\xff",
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, text):
    file = tmp_path / "timings.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as error:
        load_timings(file)
    assert str(file) in str(error.value) and "expected" in str(error.value) and "\n" not in str(error.value)


def test_a_file_of_another_gpu_is_refused():
    timings = timings_of(HERE, [MM])
    check_device(timings, "t.json", ["NVIDIA H200", ""], "go there")
    check_device(timings, "t.json", [], "go there")
    with pytest.raises(InputError, match="expected timings of the capture's NVIDIA A100-SXM4-80GB, found those of"):
        check_device(timings, "t.json", ["NVIDIA A100-SXM4-80GB"], "go there")


def test_the_committed_file_is_one():
    found = load_timings(GOLDEN / "timings" / "h200_advice.json")
    assert found.device == "NVIDIA H200" and len(found.calls) > 200
    (failed,) = [each for each in found.calls if each.seconds is None]
    assert failed.call.startswith("aten::_conv_depthwise2d(") and "cannot check its shapes" in failed.why
