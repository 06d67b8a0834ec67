"""pyprof plan: what it prints, its options, and that each change counts after those before it."""

import os

import pytest

from pyprof.prof.changes.records import StepTime
from pyprof.prof.cli import main as advise
from pyprof.prof.planning.cli import main
from pyprof.prof.planning.json_document import PlanDocument
from pyprof.prof.planning.print_plan import head
from tests.answered import answer
from tests.parse.kineto.kineto_file import begin, call, kernel, op, write, x
from tests.paths import GOLDEN

STEP = str(GOLDEN / "advice" / "mixed.before.json.gz")


def planned(capsysbinary, *options):
    assert main([STEP, "-q", "--json", *options]) == 0
    return answer(capsysbinary.readouterr().out, "plan", "plan")


def test_the_plan_of_a_transformer_layer_in_fp32(capsysbinary):
    """Measured: 7.898 ms without the profiler, 2.18 in mixed precision."""
    document = planned(capsysbinary)
    assert document["now"]["ms"] == pytest.approx(7.898, rel=0.05)
    assert not document["measured"]
    first = document["changes"][0]
    assert first["rule"] in ("tf32", "amp") and first["saved_ms"] > 4
    assert "bits" in first["cost"]


def test_each_change_follows_those_before_it(capsysbinary):
    document = planned(capsysbinary)
    now = document["now"]["ms"]
    for change in document["changes"]:
        assert change["saved_ms"] == pytest.approx(now - change["step"]["ms"], abs=1e-5)
        assert change["step"]["low_ms"] <= change["step"]["ms"] <= change["step"]["high_ms"]
        now = change["step"]["ms"]
    assert all(other["saved_ms"] < 0.01 * now for other in document["not_chosen"])


def test_every_rule_is_in_the_plan_or_says_why_not(capsysbinary):
    from pyprof.prof.changes.rules import EDIT_RULES

    document = planned(capsysbinary)
    said = {each["rule"] for key in ("changes", "not_chosen", "abstained") for each in document[key]}
    assert said == set(EDIT_RULES)
    assert all(each["why"] for each in document["abstained"])


def test_a_launch_that_loads_a_kernel_is_told_from_the_profiler(tmp_path, capsysbinary):
    """µs: of two launches one takes 6,020, of which 20 are those of a launch and 6,000 are said to be left out."""
    loads = {**call(100, 2), "dur": 6020}
    events = [call(0, 1), kernel(10, 50, 1), loads, kernel(6130, 50, 2)]
    ops = [op("aten::mm", 0, 6), op("aten::add", 90, 6040)]
    file = str(write(tmp_path / "net.json", begin(0), *ops, *events))
    assert main([file, "-q", "--json"]) == 0
    assert answer(capsysbinary.readouterr().out, "plan", "plan")["besides_ms"] == pytest.approx(6.0, abs=0.01)
    assert main([file, "-q", "-w", "200"]) == 0
    assert "and without 6 ms of launches that do more than that" in capsysbinary.readouterr().out.decode()


def test_what_a_lone_step_does_before_its_first_operation_stays(tmp_path, capsysbinary):
    """µs: a step of 1,000, whose kernels run from 400 to 450 and from 950 to 990. 590 of it are replayed, 410 stay."""
    mark = x("user_annotation", "ProfilerStep#3", 0, 1000)
    events = [call(390, 1), kernel(400, 50, 1), call(940, 2), kernel(950, 40, 2)]
    file = str(write(tmp_path / "net.json", begin(0), mark, op("aten::mm", 380, 20), op("aten::add", 930, 20), *events))
    assert main([file, "-q", "--json"]) == 0
    found = answer(capsysbinary.readouterr().out, "plan", "plan")
    assert found["captured_ms"] == pytest.approx(1.0)
    assert 0.41 + 0.09 <= found["now"]["ms"] <= 1.0  # both kernels take 0.09
    for command, options in ((main, ()), (advise, ("--advise",))):
        assert command([file, "-q", "-w", "200", *options]) == 0
        told = " ".join(capsysbinary.readouterr().out.decode().split())
        assert told.startswith("The step takes 1 ms as captured. Without the profiler, it takes about ")


def test_a_doubtful_replay_says_so():
    found = PlanDocument(
        unit="step", captured_ms=12.0, steps=3, now=StepTime(8.0, 6.0, 10.0), incomplete=[], changes=[], not_chosen=[],
        abstained=[], doubt="the replay is 53.1% shorter than the capture", besides_ms=4.0,
    )  # fmt: skip
    assert "This and all that follows may be false: the replay is 53.1% shorter than the capture." in head(found)
    assert (
        "Without the profiler, and without 4 ms of launches that do more than that, such as load a kernel, it takes "
        in head(found)
    )


def test_a_kernel_that_begins_while_its_launch_loads_it_begins_sooner_without(tmp_path, capsysbinary):
    """µs: the call lasts from 100 to 6,120 and its kernel begins at 6,110. Without 6,000 of it, it begins at 110."""
    events = [call(0, 1), kernel(10, 50, 1), {**call(100, 2), "dur": 6020}, kernel(6110, 50, 2)]
    ops = [op("aten::mm", 0, 6), op("aten::add", 90, 6040)]
    file = str(write(tmp_path / "net.json", begin(0), *ops, *events))
    assert main([file, "-q", "--json"]) == 0
    found = answer(capsysbinary.readouterr().out, "plan", "plan")
    assert found["captured_ms"] == pytest.approx(6.15)  # from 10 to 6,160
    assert found["besides_ms"] == pytest.approx(6.0) and found["now"]["ms"] <= 0.15


def test_a_long_launch_that_costs_no_time_is_not_said_to_be_left_out(tmp_path, capsysbinary):
    """µs: the second launch lasts 6,020 while the first kernel runs for 10,000: the step would be as long without."""
    events = [call(0, 1), kernel(10, 10_000, 1), {**call(100, 2), "dur": 6020}, kernel(10_012, 50, 2)]
    ops = [op("aten::mm", 0, 6), op("aten::add", 90, 6040)]
    file = str(write(tmp_path / "net.json", begin(0), *ops, *events))
    assert main([file, "-q", "--json"]) == 0
    assert answer(capsysbinary.readouterr().out, "plan", "plan")["besides_ms"] == 0


def test_with_and_without(capsysbinary):
    document = planned(capsysbinary, "--with", "amp", "--without", "cuda_graph,tf32")
    assert document["changes"][0]["rule"] == "amp"
    assert {"rule": "tf32", "why": "left out (--without)"} in document["abstained"]


def test_a_removed_rule_is_named_in_one_line_and_has_no_effect(capsysbinary):
    assert main([STEP, "--json", "--with", "ensemble,amp", "--without", "sample_loop,tf32"]) == 0
    document = answer(capsysbinary.readouterr().out, "plan", "plan")
    assert document["warnings"] == ["rule ensemble was removed in 2.0", "rule sample_loop was removed in 2.0"]
    assert document["changes"][0]["rule"] == "amp"
    assert {"rule": "tf32", "why": "left out (--without)"} in document["abstained"]


def test_a_measured_step_is_where_the_plan_begins(capsysbinary):
    document = planned(capsysbinary, "--step-ms", "8.5")
    assert document["measured"]
    assert document["now"]["ms"] == pytest.approx(8.5, rel=0.02)


def test_an_unknown_rule_is_refused(capsys):
    with pytest.raises(SystemExit):
        main([STEP, "-q", "--without", "nonsense"])
    assert "expected rules among alignment, allocator" in capsys.readouterr().err


def test_a_kernel_table_is_refused(capsys, tmp_path):
    from pyprof.parse.cli import main as parse

    assert parse([STEP, "-q", "-o", str(tmp_path / "net.dict")]) == 0
    assert main([str(tmp_path / "net.dict"), "-q"]) == 1
    assert "expected the host's calls, found a kernel table" in capsys.readouterr().err


@pytest.mark.parametrize("width", [60, 80, 140])
def test_lines_are_no_longer_than_asked_for(capsys, width):
    assert main([STEP, "-q", "-w", str(width)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert "80% interval" in "".join(lines)


def test_code_whose_comment_has_no_room_can_still_be_copied(capsys):
    """The comment stands before the line of 72 characters, of which a terminal of 80 shows 67."""
    assert main([str(GOLDEN / "memory/h200_lstm.json.gz"), "-q", "-w", "80"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    place = lines.index('+ torch.set_float32_matmul_precision("high")')
    assert lines[place - 1] == "+ # at the start: products"


def test_a_comment_that_has_no_room_stays_a_comment(capsys):
    """``# A multiple of 8 ..`` has 92 characters: its rest is a comment, too, so that what is copied runs."""
    assert main([str(GOLDEN / "h200_diff_eager.json.gz"), "-q", "-w", "80"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    place = lines.index("+ # A multiple of 8 for types of two bytes, of 4 for four. No target")
    assert lines[place + 1] == "+ # refers to the added rows."


def test_a_second_capture_after_the_change(capsysbinary):
    """GPT-2's output layer, and the same program with the vocabulary padded: two captures of an H200."""
    eager, padded = (str(GOLDEN / f"h200_diff_{name}.json.gz") for name in ("eager", "padded"))
    assert main([eager, "-q", "--json", "--check", padded]) == 0
    checked = answer(capsysbinary.readouterr().out, "plan", "plan")["checked"]
    made = {change["rule"]: change["made"] for change in checked["changes"]}
    assert made == {"alignment": True, "cross_entropy": False, "compile": False}
    assert checked["difference"] == pytest.approx(0, abs=0.03)
    assert main([eager, "-q", "--check", padded]) == 0
    assert "not made" in capsysbinary.readouterr().out.decode()


def test_an_incomplete_capture_is_refused(capsys, tmp_path):
    """One of four launches has no kernel: the plan would take its time for idle time."""
    events = [begin(900)]
    for number in range(4):
        events += [op("aten::mm", 1000 + 100 * number, 50), call(1010 + 100 * number, number + 1)]
        events += [kernel(2000 + 2000 * number, 1000, number + 1, "ampere_sgemm_128x64_nn")] if number != 1 else []
    file = write(tmp_path / "net.json", *events, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}])
    assert main([str(file), "-q"]) == 1
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1
    assert "expected a complete capture, found an incomplete capture: 1 of 4 kernel launches has no kernel" in told.err


def test_names_of_the_cards_are_understood(capsysbinary):
    document = planned(capsysbinary, "--without", "launch_bound,tf32")
    assert {"rule": "cuda_graph", "why": "left out (--without)"} in document["abstained"]


def test_each_change_shows_its_code(capsysbinary):
    """The capture's source files may be in this checkout, but are newer than the capture or have changed since."""
    for change in planned(capsysbinary)["changes"]:
        assert change["code"]["general"] and change["code"]["after"] and change["code"]["place"] == ""


def test_the_programs_own_line_is_shown_and_rewritten(capsys, tmp_path, monkeypatch):
    """A capture of a loop that copies pageable memory, whose source is at hand."""
    from pyprof.prof.changes.source_line import module
    from pyprof.prof.planning import cli

    file = GOLDEN / "advice" / "pageable.before.json.gz"
    source = tmp_path / "tests" / "device" / "advice_host.py"
    source.parent.mkdir(parents=True)
    source.write_text("\n" * 172 + "x = images.to(device)\n", encoding="utf-8")  # line 173, as in the capture
    os.utime(source, (1_000, 1_000))
    module.cache_clear()
    monkeypatch.chdir(tmp_path)
    assert cli.main([str(file), "-q"]) == 0
    told = capsys.readouterr().out
    assert "- x = images.to(device)" in told and "+ x = images.to(device, non_blocking=True)" in told
    assert "names are examples" not in told


@pytest.mark.parametrize("case", ["held_zeros", "mixed"])
def test_a_rule_in_the_plan_has_no_other_reason_to_say_nothing(capsysbinary, case):
    """Its own change leaves it nothing to find: "the run launches CUDA graphs already" would be said of the program."""
    assert main([str(GOLDEN / f"advice/{case}.before.json.gz"), "-q", "--json"]) == 0
    document = answer(capsysbinary.readouterr().out, "plan", "plan")
    planned = {change["rule"] for change in document["changes"]}
    assert "cuda_graph" in planned
    said = {reason["rule"]: reason["why"] for reason in document["abstained"]}
    assert {said[rule] for rule in planned & said.keys()} == {"it is in the plan"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--measure-seconds", "3"], "--measure-seconds goes with --measure"),
        (["--any-gpu"], "--any-gpu goes with --timings or --measure"),
    ],
)
def test_an_option_without_effect_is_refused(capsys, options, why):
    with pytest.raises(SystemExit) as stop:
        main([STEP, *options])
    assert stop.value.code == 2 and why in capsys.readouterr().err
