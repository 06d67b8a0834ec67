"""pyprof plan with measured durations, and for another GPU."""

import pytest

from pyprof.prof.planning.cli import main
from tests.answered import answer
from tests.paths import GOLDEN
from tests.prof.planning.test_cli import STEP, planned

# Measured durations

TIMINGS = GOLDEN / "timings" / "h200_advice.json"
VOCABULARY = str(GOLDEN / "advice" / "lm_head.before.json.gz")


def test_a_plan_with_the_clusters_timings_needs_no_gpu(capsysbinary):
    """Measured: 9.4769 ms, and 2.7482 with a padded vocabulary."""
    assert main([VOCABULARY, "-q", "--json", "--timings", str(TIMINGS)]) == 0
    document = answer(capsysbinary.readouterr().out, "plan", "plan")
    (change,) = document["changes"]
    assert change["timed"] == 1.0
    assert change["saved_ms"] == pytest.approx(9.4769 - 2.7482, rel=0.02)
    timings = document["timings"]
    assert timings["device"] == "NVIDIA H200" and timings["calls"] > 200 and timings["measured"] == 0
    assert timings["missing"] == 0
    (failed,) = timings["failed"]  # of all calls in the file
    assert failed.startswith("aten::_conv_depthwise2d(bfloat16[64,256,56,56]")


def test_the_text_says_what_rests_on_measurement(capsysbinary):
    assert main([VOCABULARY, "-q", "--timings", str(TIMINGS)]) == 0
    said = capsysbinary.readouterr().out.decode()
    assert "were measured on NVIDIA H200" in said and "all of its new durations measured" in said


def test_timings_of_another_gpu_are_refused_unless_asked_for(capsys, tmp_path):
    other = tmp_path / "timings.json"
    other.write_text(TIMINGS.read_text(encoding="utf-8").replace("NVIDIA H200", "NVIDIA L4"), encoding="utf-8")
    assert main([VOCABULARY, "-q", "--timings", str(other)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "found those of NVIDIA L4" in said and "--any-gpu" in said
    assert main([VOCABULARY, "-q", "--timings", str(other), "--any-gpu"]) == 0


def test_a_missing_timings_file_is_told(capsys, tmp_path):
    assert main([VOCABULARY, "-q", "--timings", str(tmp_path / "none.json")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_measuring_without_a_gpu_says_what_is_missing(capsys, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([VOCABULARY, "-q", "--measure"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "NVIDIA H200, and PyTorch finds no GPU here" in said


def test_measuring_on_another_gpu_is_refused_unless_asked_for(capsys, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA L4")
    assert main([VOCABULARY, "-q", "--measure"]) == 1
    assert "this machine has NVIDIA L4; add --any-gpu" in capsys.readouterr().err


def test_measured_times_are_used_and_written(capsysbinary, monkeypatch, tmp_path):
    """The times of the committed file, as if they were measured now."""
    pytest.importorskip("torch")
    from pyprof.benchmark import device_facts, time_edits
    from pyprof.prof.changes.measured.timings_file import load_timings
    from pyprof.prof.planning import plan_timings

    known = load_timings(TIMINGS).by_call
    monkeypatch.setattr(plan_timings, "_device", lambda gpus, any_gpu: "cuda")
    monkeypatch.setattr(time_edits, "time_edits", lambda calls, *_: [known[call.text] for call in calls])
    here = {"device": "NVIDIA H200", "arch": "sm_90", "torch": "2.11.0"}
    monkeypatch.setattr(device_facts, "facts", lambda _: here)
    file = tmp_path / "timings.json"
    command = [VOCABULARY, "-q", "--json", "--measure", "--timings", str(file)]
    for measured in (6, 0):  # the second time, all are in the file
        assert main(command) == 0
        document = answer(capsysbinary.readouterr().out, "plan", "plan")
        assert document["timings"]["measured"] == measured and document["changes"][0]["timed"] == 1.0
        assert len(load_timings(file).calls) == 6
    here["torch"] = "2.12.0"
    assert main(command) == 1
    assert b"expected timings of NVIDIA H200 with PyTorch 2.12.0" in capsysbinary.readouterr().err


# Another GPU


def test_the_plan_for_another_gpu(capsysbinary):
    """Products in fp32 on the vector unit: 67 TFLOP/s on the H200, 19.5 on an A100, 3.4 times as long."""
    document = planned(capsysbinary, "--device", "A100-80GB-SXM4")
    device = document["device"]
    assert (device["name"], device["captured_on"]) == ("A100-80GB-SXM4", "NVIDIA H200")
    assert document["now"]["ms"] / device["captured"]["ms"] == pytest.approx(67 / 19.5, rel=0.1)
    width = document["now"]["high_ms"] / document["now"]["low_ms"]
    assert width > 1.2 > device["captured"]["high_ms"] / device["captured"]["low_ms"]
    assert document["changes"][0]["rule"] in ("tf32", "amp")


def test_a_gpu_without_tensor_cores_for_a_type(capsysbinary):
    document = planned(capsysbinary, "--device", "V100-SXM2")
    assert "float16" in next(each["change"] for each in document["changes"] if each["rule"] == "amp")


def test_the_names_of_gpus(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--device", "list"])
    assert end.value.code == 0
    assert "A100-80GB-SXM4" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("options", [["--device", "A100"], ["--device", "H20", "--timings", "t.json"]])
def test_options_of_another_gpu_that_are_refused(capsys, options):
    with pytest.raises(SystemExit):
        main([STEP, "-q", *options])
    assert "--device" in capsys.readouterr().err
